//! How many colours the terminal shows, according to the environment.

use ratatui::style::Color;

/// How many colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColorTier {
    /// No colours: bold, underline and reverse replace them.
    None,
    /// The terminal's own palette of 16.
    Ansi,
    /// The 240 fixed colours in addition.
    Indexed,
    /// 24 bits.
    True,
}

impl ColorTier {
    /// Reads `--color`'s values: `never`, `16`, `256`, `truecolor`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "never" | "none" => Some(Self::None),
            "16" => Some(Self::Ansi),
            "256" => Some(Self::Indexed),
            "truecolor" | "24bit" => Some(Self::True),
            _ => None,
        }
    }

    /// The tier's name in `doctor` and as a value of `--color`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "never",
            Self::Ansi => "16",
            Self::Indexed => "256",
            Self::True => "truecolor",
        }
    }

    /// The tier that the environment demands or allows: `NO_COLOR`, then `COLORTERM`, then `TERM`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        if set("NO_COLOR").is_some() || term == "dumb" {
            return Self::None;
        }
        if set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit") || term.ends_with("-direct") {
            return Self::True;
        }
        if term.contains("256color")
            || ["alacritty", "foot", "xterm-kitty", "xterm-ghostty", "wezterm"].contains(&&*term)
        {
            return Self::Indexed;
        }
        Self::Ansi
    }
}

/// The nearest of the 240 fixed colours: the 6×6×6 cube or the 24 greys, by squared distance.
pub(super) fn nearest_indexed(red: u8, green: u8, blue: u8) -> Color {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let distance = |r: u8, g: u8, b: u8| {
        [(red, r), (green, g), (blue, b)].iter().map(|&(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum::<u32>()
    };
    let step = |value: u8| (0..6u8).min_by_key(|&i| value.abs_diff(STEPS[usize::from(i)])).unwrap_or(0);
    let (r, g, b) = (step(red), step(green), step(blue));
    let cube = distance(STEPS[usize::from(r)], STEPS[usize::from(g)], STEPS[usize::from(b)]);
    let grey = (0..24u8).min_by_key(|&i| distance(8 + 10 * i, 8 + 10 * i, 8 + 10 * i)).unwrap_or(0);
    let shade = 8 + 10 * grey;
    if distance(shade, shade, shade) < cube {
        Color::Indexed(232 + grey)
    } else {
        Color::Indexed(16 + 36 * r + 6 * g + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(environment: &[(&str, &str)]) -> ColorTier {
        ColorTier::detect(|name| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_chooses_the_tier() {
        assert_eq!(detect(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), ColorTier::True);
        assert_eq!(detect(&[("TERM", "xterm-256color")]), ColorTier::Indexed);
        assert_eq!(detect(&[("TERM", "screen")]), ColorTier::Ansi);
        assert_eq!(detect(&[("TERM", "linux")]), ColorTier::Ansi);
        assert_eq!(detect(&[("TERM", "dumb")]), ColorTier::None);
        assert_eq!(
            detect(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("NO_COLOR", "1")]),
            ColorTier::None
        );
        assert_eq!(detect(&[("TERM", "xterm"), ("NO_COLOR", "")]), ColorTier::Ansi, "an empty NO_COLOR does not count");
    }

    #[test]
    fn the_nearest_indexed_colour_of_exact_ones_is_itself() {
        assert_eq!(nearest_indexed(0, 95, 255), Color::Indexed(16 + 6 + 5));
        assert_eq!(nearest_indexed(128, 128, 128), Color::Indexed(244));
        assert_eq!(nearest_indexed(255, 255, 255), Color::Indexed(231));
    }
}
