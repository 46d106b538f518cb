//! Unicode or ASCII. Screens are drawn in Unicode; if the terminal can't show it, every cell is replaced by its ASCII
//! twin. Twins are one cell wide, so nothing moves.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Color;

use crate::drawing::theme::Theme;

/// Which characters the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlyphTier {
    /// Box lines, blocks, braille.
    Unicode,
    /// The 95 printable ASCII characters.
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

    /// The tier's name in `doctor` and as a value of `--glyphs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicode => "unicode",
            Self::Ascii => "ascii",
        }
    }

    /// The theme for a terminal with these characters.
    pub(super) fn dressed(self, theme: Theme) -> Theme {
        match self {
            Self::Unicode => theme,
            Self::Ascii => theme.in_whole_cells(),
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

    /// The tier that the environment allows: Unicode if the first of `LC_ALL`, `LC_CTYPE`, `LANG` that is set names
    /// UTF-8, and `TERM` is not the Linux console, whose font lacks most block characters.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let console = matches!(set("TERM").as_deref(), Some("linux" | "dumb" | "vt100" | "vt220"));
        if utf8 && !console { Self::Unicode } else { Self::Ascii }
    }
}

/// Replaces every cell of `area` that is not ASCII by its twin; `surface` is the background. Blocks become colours, if
/// there are any: the larger of two parts in a cell gets the cell, and a thin one becomes a character at its height.
/// Two adjacent frame lines become one.
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
                close_up(buf, position.x + 1, position.y, area.right());
            }
            continue;
        }
        if matches!(symbol, '╭' | '╰' | '│') && position.x > area.left() {
            let before = &buf[(position.x - 1, position.y)];
            if matches!(before.symbol(), "|" | "+") && before.fg == buf[position].fg {
                buf[position].set_char(' ');
            }
            continue;
        }
        if cell.fg != Color::Reset {
            block(symbol, cell, surface);
        }
    }
}

/// Replaces a block by a colour.
fn block(symbol: char, cell: &mut Cell, surface: Color) {
    let bare = cell.bg == surface || cell.bg == Color::Reset;
    let Some(eighths) = block_eighths(symbol) else {
        if matches!(symbol, '█' | '■') {
            cell.set_bg(cell.fg);
        }
        return;
    };
    let upright = matches!(symbol, '▁'..='▇');
    let (part, ground) = (cell.fg, cell.bg);
    match (upright, eighths) {
        (true, 0..=2) => cell.set_char('_'),
        (true, 3) if bare => cell.set_char('_'),
        (true, 3) => cell.set_char('#').set_fg(ground),
        (true, _) => cell.set_char('#').set_bg(part),
        // Its end is visible next to the following cell.
        (false, 4..) => cell.set_char('|').set_fg(if bare { surface } else { ground }).set_bg(part),
        (false, _) => cell.set_char('|'),
    };
}

/// Closes a single blank at `x`, so that the text before it has equal space on both sides: moves the following words,
/// up to two blanks or a frame.
fn close_up(buf: &mut Buffer, x: u16, y: u16, right: u16) {
    let ends = |x: u16| x >= right || buf[(x, y)].symbol() == " ";
    let is_frame = |x: u16| x < right && matches!(buf[(x, y)].symbol(), "│" | "─" | "║" | "╮" | "╯");
    if !ends(x) || ends(x + 1) || is_frame(x + 1) {
        return;
    }
    let end = (x + 1..right).find(|at| ends(*at) && (ends(at + 1) || is_frame(at + 1))).unwrap_or(right - 1);
    for at in x..end {
        buf[(at, y)] = buf[(at + 1, y)].clone();
    }
}

/// Two characters that are clearer than the twin, if a blank comes before it.
const fn ascii_pair(symbol: char) -> Option<[char; 2]> {
    match symbol {
        '→' => Some(['-', '>']),
        '≤' => Some(['<', '=']),
        '≥' => Some(['>', '=']),
        _ => None,
    }
}

/// How many eighths of a cell a block fills, from below or from the left; `None` for other characters, whole blocks and mere lines.
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
        '⠉' | '⠒' | '⠤' => '-',
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
    fn the_larger_of_two_parts_has_the_cell() {
        let (low, high, surface) = (Color::Red, Color::Blue, Color::Black);
        // The character, its colour and its background, next to another part and alone.
        for (symbol, beside, alone) in [
            ('▂', ("_", low, high), ("_", low, surface)),
            ('▃', ("#", high, high), ("_", low, surface)),
            ('▄', ("#", low, low), ("#", low, low)),
            ('▇', ("#", low, low), ("#", low, low)),
            ('▎', ("|", low, high), ("|", low, surface)),
            ('▌', ("|", high, low), ("|", surface, low)),
            ('█', ("#", low, low), ("#", low, low)),
        ] {
            for (ground, (wanted, fg, bg)) in [(high, beside), (surface, alone)] {
                let mut buf = Buffer::empty(Rect::new(0, 0, 1, 1));
                buf[(0, 0)].set_char(symbol).set_fg(low).set_bg(ground);
                to_ascii(&mut buf, Rect::new(0, 0, 1, 1), surface);
                let cell = &buf[(0, 0)];
                assert_eq!((cell.symbol(), cell.fg, cell.bg), (wanted, fg, bg), "{symbol}");
            }
        }
    }

    #[test]
    fn the_whole_area_becomes_ascii() {
        let mut buf = Buffer::with_lines(["╭ a → b ╮", "│ ██░░ ││", "a→b  ≤2 ≥"]);
        to_ascii(&mut buf, Rect::new(0, 0, 9, 3), Color::Reset);
        assert_eq!(buf, Buffer::with_lines(["+ a->b  +", "| ##:: | ", "a>b <=2>="]));
        let mut buf =
            Buffer::with_lines(["12.6 → 9.4 GiB  same │", "12.6 →  9.4     same │", "12.6 → 9.4 GiB (-9 %) "]);
        to_ascii(&mut buf, Rect::new(0, 0, 22, 3), Color::Reset);
        let wanted = ["12.6->9.4 GiB   same |", "12.6->  9.4     same |", "12.6->9.4 GiB (-9 %)  "];
        assert_eq!(buf, Buffer::with_lines(wanted));
    }
}
