//! How well everybody can tell two colours apart: the contrast of WCAG, from relative luminance.

use ratatui::style::Color;

/// From this contrast on, touching areas can be told apart (WCAG 1.4.11).
pub const AREAS: f64 = 3.0;

/// Relative luminance of a colour from 0 to 1; `None` for the terminal's own 16 colours, whose look the program can't know.
pub fn luminance(color: Color) -> Option<f64> {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let (r, g, b) = match color {
        Color::Rgb(r, g, b) => (r, g, b),
        Color::Indexed(grey @ 232..) => {
            let shade = 8 + 10 * (grey - 232);
            (shade, shade, shade)
        }
        Color::Indexed(cube @ 16..) => {
            let step = |divisor: u8| STEPS[usize::from((cube - 16) / divisor % 6)];
            (step(36), step(6), step(1))
        }
        _ => return None,
    };
    let linear = |value: u8| {
        let value = f64::from(value) / 255.0;
        if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    Some(0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b))
}

/// The contrast of two relative luminances, from 1 to 21.
pub fn contrast(a: f64, b: f64) -> f64 {
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(a: Color, b: Color) -> f64 {
        contrast(luminance(a).unwrap(), luminance(b).unwrap())
    }

    #[test]
    fn contrasts_are_those_of_wcag() {
        assert!((between(Color::Rgb(0, 0, 0), Color::Rgb(255, 255, 255)) - 21.0).abs() < 1e-9);
        // A well-known pair: the lightest grey that passes 4.5 on white.
        assert!((between(Color::Rgb(0x76, 0x76, 0x76), Color::Rgb(255, 255, 255)) - 4.54).abs() < 0.01);
        assert!((between(Color::Indexed(16), Color::Indexed(231)) - 21.0).abs() < 1e-9);
        assert_eq!(luminance(Color::Indexed(244)), luminance(Color::Rgb(128, 128, 128)));
        assert_eq!(luminance(Color::Blue), None);
    }
}
