//! Unicode or ASCII: screens are drawn in Unicode, and where the terminal can't show it every cell is replaced by
//! its twin. Twins are one cell wide, so nothing moves.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;

/// Which characters the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlyphTier {
    /// Box lines, blocks, braille.
    Unicode,
    /// The 95 printable ones.
    Ascii,
}

impl GlyphTier {
    /// Reads `--glyphs`' values: `unicode`, `ascii`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "unicode" => Some(Self::Unicode),
            "ascii" => Some(Self::Ascii),
            _ => None,
        }
    }

    /// The word for it in `doctor` and in the values of `--glyphs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicode => "unicode",
            Self::Ascii => "ascii",
        }
    }

    /// `text` in the characters of this tier.
    #[must_use]
    pub fn shown(self, text: &str) -> String {
        let twin = |symbol: char| if symbol.is_ascii() { symbol } else { ascii_twin(symbol) };
        match self {
            Self::Unicode => text.to_owned(),
            Self::Ascii => text.chars().map(twin).collect(),
        }
    }

    /// The tier that the environment admits: the first of `LC_ALL`, `LC_CTYPE`, `LANG` that is set names UTF-8, and
    /// `TERM` is not the Linux console, whose font lacks most blocks.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let console = matches!(set("TERM").as_deref(), Some("linux" | "dumb" | "vt100" | "vt220"));
        if utf8 && !console { Self::Unicode } else { Self::Ascii }
    }
}

/// Replaces every cell of `area` that is not ASCII by its twin; `surface` is the ground. A whole block is its colour alone. A cell of two
/// colours that a block divides has that of the larger part as its ground, and on it a character at the height of the smaller.
pub fn to_ascii(buf: &mut Buffer, area: Rect, surface: Color) {
    for position in area.intersection(buf.area).positions() {
        let cell = &mut buf[position];
        let Some(symbol) = cell.symbol().chars().next().filter(|symbol| !symbol.is_ascii()) else { continue };
        cell.set_char(ascii_twin(symbol));
        if let Some([first, second]) = ascii_pair(symbol)
            && position.x > area.left()
        {
            let style = buf[position].style();
            let before = &mut buf[(position.x - 1, position.y)];
            if before.symbol() == " " {
                before.set_char(first).set_style(style);
                buf[position].set_char(second);
            }
            continue;
        }
        if matches!(symbol, '█' | '■') && cell.fg != Color::Reset {
            cell.set_bg(cell.fg);
        }
        let halves = block_eighths(symbol).filter(|_| cell.bg != surface && cell.bg != Color::Reset);
        if let Some(eighths) = halves {
            let upright = matches!(symbol, '▁'..='▇');
            cell.set_char(match eighths {
                _ if !upright => '|',
                0..=2 => '_',
                3..=5 => 'o',
                6.. => '"',
            });
            if eighths >= 4 {
                let (lower, upper) = (cell.fg, cell.bg);
                cell.set_fg(upper).set_bg(lower);
            }
        }
    }
}

/// Two characters that say more than the twin, where a blank stands before it.
const fn ascii_pair(symbol: char) -> Option<[char; 2]> {
    match symbol {
        '→' => Some(['-', '>']),
        '≤' => Some(['<', '=']),
        '≥' => Some(['>', '=']),
        _ => None,
    }
}

/// How many eighths of a cell a block fills, from below or from the left; `None` of what is no block, or a whole one, or a mere line.
fn block_eighths(symbol: char) -> Option<u32> {
    match symbol {
        '▁'..='▇' => Some(u32::from(symbol) - u32::from('▁') + 1),
        '▉'..='▎' => Some(u32::from('▏') - u32::from(symbol) + 1),
        _ => None,
    }
}

/// The ASCII character that stands for `symbol`.
#[must_use]
pub fn ascii_twin(symbol: char) -> char {
    match symbol {
        '╍' => '=',
        '─' | '━' | '┄' | '╌' | '−' | '–' | '—' | '‐' => '-',
        '│' | '┃' | '▏' | '▕' | '║' | '╵' => '|',
        '░' | '┊' | '┆' => ':',
        '╱' => '/',
        '╭' | '╮' | '╰' | '╯' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
        '·' | '•' | '⋅' => '.',
        '▁' | '▂' => '_',
        '▔' => '-',
        '▃' | '▄' => 'o',
        '▅' | '▆' | '▇' | '█' | '▉' | '▊' | '▋' | '▌' | '▐' | '▍' | '▎' => '#',
        '▀' => '"',
        '▒' => '~',
        '▓' => '%',
        '■' => '#',
        '□' => '.',
        '▸' | '▶' | '→' | '›' => '>',
        '◂' | '←' | '‹' => '<',
        '▲' | '↑' => '^',
        '▼' | '↓' => 'v',
        '●' | '✓' | '◆' => '*',
        '×' => 'x',
        '±' => '~',
        '≈' => '~',
        '≥' => '>',
        '≤' => '<',
        '…' => '.',
        '°' => ' ',
        '’' | '‘' => '\'',
        '“' | '”' => '"',
        'µ' | 'μ' => 'u',
        '\u{2800}' => ' ',
        '⣀' | '⡀' | '⢀' => '_',
        '⠉' => '-',
        '⡪' => '%',
        '⣿' => '#',
        '\u{2801}'..='\u{28ff}' => '*',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(environment: &[(&str, &str)]) -> GlyphTier {
        GlyphTier::detect(|name| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_locale_chooses_the_tier() {
        assert_eq!(detect(&[("LANG", "en_GB.UTF-8")]), GlyphTier::Unicode);
        assert_eq!(detect(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")]), GlyphTier::Ascii);
        assert_eq!(detect(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")]), GlyphTier::Unicode);
        assert_eq!(detect(&[("LANG", "C.UTF-8"), ("TERM", "linux")]), GlyphTier::Ascii);
        assert_eq!(detect(&[]), GlyphTier::Ascii);
    }

    #[test]
    fn twins_are_printable_ascii() {
        for symbol in "─│╭╮╰╯·░▒▓█▌▐▁▄▸▲→−×…⠀⣿é".chars() {
            assert!(matches!(ascii_twin(symbol), ' '..='~'), "{symbol}");
        }
    }

    #[test]
    fn a_cell_of_two_parts_has_the_colour_of_the_larger() {
        for (symbol, kept) in
            [('▂', "upper"), ('▃', "upper"), ('▄', "lower"), ('▇', "lower"), ('▎', "upper"), ('▊', "lower")]
        {
            let mut buf = Buffer::empty(Rect::new(0, 0, 1, 1));
            buf[(0, 0)].set_char(symbol).set_fg(Color::Red).set_bg(Color::Blue);
            to_ascii(&mut buf, Rect::new(0, 0, 1, 1), Color::Black);
            let (ground, mark) = if kept == "lower" { (Color::Red, Color::Blue) } else { (Color::Blue, Color::Red) };
            assert_eq!((buf[(0, 0)].fg, buf[(0, 0)].bg), (mark, ground), "{symbol}");
            assert!("_o\"|".contains(buf[(0, 0)].symbol()), "{symbol}");
        }
    }

    #[test]
    fn the_whole_area_becomes_ascii() {
        let mut buf = Buffer::with_lines(["╭ a → b ╮", "│ ██░░ │ ", "a→b  ≤2 ≥"]);
        to_ascii(&mut buf, Rect::new(0, 0, 9, 3), Color::Reset);
        assert_eq!(buf, Buffer::with_lines(["+ a-> b +", "| ##:: | ", "a>b <=2>="]));
    }
}
