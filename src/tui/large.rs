//! A screen's most important figures, large enough for the back of a room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::stage::Stage;
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{put_at, span};
use crate::drawing::theme::Token;
use crate::source::Moment;

/// A figure that can be drawn large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Large {
    /// Allocated bytes, now or at the fullest moment seen.
    Allocated,
    /// Reserved.
    Reserved,
    /// Stranded.
    Stranded,
    /// Highest allocated since the start.
    Peak,
    /// Median time of a step.
    StepTime,
    /// How the last flip changed the allocated peak, once it is measured.
    Effect,
}

/// The parts of a figure.
struct LargeFigure {
    digits: String,
    /// Its name, its moment and its unit; the last two may be empty.
    name: &'static str,
    of: String,
    unit: &'static str,
    token: Token,
}

impl LargeFigure {
    /// The label on one line.
    fn label(&self) -> String {
        let of = if self.of.is_empty() { String::new() } else { format!(" {}", self.of) };
        let unit = if self.unit.is_empty() { String::new() } else { format!(", {}", self.unit) };
        format!("{}{of}{unit}", self.name)
    }

    /// The label on two lines, beside the digits.
    fn label_lines(&self) -> [String; 2] {
        let more: Vec<&str> = [self.of.as_str(), self.unit].into_iter().filter(|text| !text.is_empty()).collect();
        [self.name.to_owned(), more.join(", ")]
    }
}

/// From this screen size on a figure has five rows and a label below; otherwise three rows and a label beside. The row
/// above is free.
const LARGE: (u16, u16) = (100, 32);
/// The smallest screen that has enough rows left for its own content.
const LEAST: (u16, u16) = (80, 24);
/// Cells between two figures.
const BETWEEN: u16 = 4;

/// The rows of a digit, with a bit for each of its three pixels, the left one highest.
const fn pixels(symbol: char) -> [u8; 5] {
    match symbol {
        '0' => [0b111, 0b101, 0b101, 0b101, 0b111],
        '1' => [0b010, 0b110, 0b010, 0b010, 0b111],
        '2' => [0b111, 0b001, 0b111, 0b100, 0b111],
        '3' => [0b111, 0b001, 0b011, 0b001, 0b111],
        '4' => [0b101, 0b101, 0b111, 0b001, 0b001],
        '5' => [0b111, 0b100, 0b111, 0b001, 0b111],
        '6' => [0b111, 0b100, 0b111, 0b101, 0b111],
        '7' => [0b111, 0b001, 0b010, 0b010, 0b010],
        '8' => [0b111, 0b101, 0b111, 0b101, 0b111],
        '9' => [0b111, 0b101, 0b111, 0b001, 0b111],
        '-' | '−' => [0, 0, 0b111, 0, 0],
        '+' => [0, 0b010, 0b111, 0b010, 0],
        '%' => [0b101, 0b001, 0b010, 0b100, 0b101],
        '.' => [0, 0, 0, 0, 0b100],
        _ => [0; 5],
    }
}

/// The width of a symbol in pixels.
const fn width(symbol: char) -> u16 {
    if matches!(symbol, '.' | ' ') { 1 } else { 3 }
}

/// How many rows the figures take on a screen of this size.
pub(crate) const fn rows(area: Rect) -> u16 {
    if area.width >= LARGE.0 && area.height >= LARGE.1 {
        7
    } else if area.width >= LEAST.0 && area.height >= LEAST.1 {
        4
    } else {
        0
    }
}

/// Draws as many of the figures as fit.
pub(crate) fn render(stage: &Stage<'_>, figures: &[Large], area: Rect, buf: &mut Buffer) {
    let large = area.height >= 7;
    // A blank row separates them from the header.
    let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let mut x = 1;
    for told in figures.iter().filter_map(|figure| told(*figure, stage)) {
        let scale = if large { 2 } else { 1 };
        let digits = told.digits.chars().map(|symbol| (width(symbol) + 1) * scale).sum::<u16>();
        let cells = |text: &str| u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        let lines = told.label_lines();
        let beside = lines.iter().map(|line| cells(line)).max().unwrap_or(0);
        let wanted = if large { digits.max(cells(&told.label())) } else { digits + beside };
        if x + wanted > area.width {
            continue;
        }
        let text = |label: String| vec![span(stage.theme, Token::Text, label)];
        if large {
            draw(stage, &told.digits, told.token, scale, Rect { x: area.x + x, ..below }, buf);
            put_at(below, x, 5, text(told.label()), buf);
        } else {
            draw(stage, &told.digits, told.token, scale, Rect { x: area.x + x, ..below }, buf);
            for (y, line) in (1..).zip(lines) {
                put_at(below, x + digits, y, text(line), buf);
            }
        }
        x += wanted + BETWEEN;
    }
}

/// Draws text five pixels high. A pixel is a cell high and two wide, or half a cell high.
fn draw(stage: &Stage<'_>, text: &str, token: Token, scale: u16, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let style = stage.theme.style(token);
    let mut x = 0;
    for symbol in text.chars() {
        let rows = pixels(symbol);
        let lit = |row: usize, column: u16| rows.get(row).is_some_and(|bits| bits >> (2 - column) & 1 == 1);
        for column in 0..width(symbol) {
            for y in 0..if scale == 2 { 5 } else { 3 } {
                let glyph = match (scale, usize::from(y)) {
                    (2, row) => {
                        if lit(row, column) {
                            "██"
                        } else {
                            ""
                        }
                    }
                    (_, half) => match (lit(2 * half, column), lit(2 * half + 1, column)) {
                        (true, true) => "█",
                        (true, false) => "▀",
                        (false, true) => "▄",
                        (false, false) => "",
                    },
                };
                if !glyph.is_empty() {
                    put_at(area, x + column * scale, y, vec![Span::styled(glyph, style)], buf);
                }
            }
        }
        x += (width(symbol) + 1) * scale;
    }
}

/// A figure's current value; `None` if there is none.
fn told(figure: Large, stage: &Stage<'_>) -> Option<LargeFigure> {
    let (view, ledger) = (stage.view(), &stage.shown.ledger);
    // The unit stays the same while figures change.
    let unit = ByteUnit::for_largest(view.peak_reserved.max(ledger.reserved()));
    let moment = match stage.picture.moment() {
        Moment::Now => "",
        Moment::Cursor => "at the cursor",
        Moment::StepPeak | Moment::RunPeak => "at the peak",
        Moment::Failure => "at the failure",
    };
    let bytes = |bytes, name, of: &str, token| {
        Some(LargeFigure { digits: unit.figure(bytes), name, of: of.to_owned(), unit: unit.name(), token })
    };
    match figure {
        Large::Allocated => bytes(ledger.allocated(), "allocated", moment, Token::Strong),
        Large::Reserved => bytes(ledger.reserved(), "reserved", moment, Token::Strong),
        Large::Stranded => bytes(ledger.stranded, "stranded", moment, Token::Stranded),
        Large::Peak if !view.knows_peaks() => None,
        Large::Peak => bytes(view.peak_allocated, "peak allocated", "", Token::Strong),
        Large::StepTime => (view.steps.finished > 0).then(|| LargeFigure {
            digits: figures::milliseconds(view.steps.median),
            name: "ms a step",
            of: String::new(),
            unit: stage.clock().of("", "simulated"),
            token: Token::Accent,
        }),
        Large::Effect => {
            let effect = stage.picture.effect().filter(|effect| !effect.is_under_way() && !stage.hold.asks())?;
            let (before, after) = (effect.before?.peak_allocated, effect.after?.peak_allocated);
            let flip = effect.flips.last()?;
            let percent = 100.0 * (after.median - before.median) / before.median.max(1.0);
            let digits = format!("{percent:+.0}%");
            let of = format!("by {} {}", flip.switch, flip.to);
            let token = if percent > 0.0 { Token::Warn } else { Token::Ok };
            Some(LargeFigure { digits, name: "peak allocated", of, unit: "", token })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_has_a_shape_of_its_own() {
        let all: Vec<[u8; 5]> = "0123456789+-%.".chars().map(pixels).collect();
        for (index, shape) in all.iter().enumerate() {
            assert!(shape.iter().any(|row| *row > 0) && !all[index + 1..].contains(shape), "{index}");
        }
    }

    #[test]
    fn a_screen_keeps_most_of_its_rows() {
        for (width, height, taken) in [(80, 24, 4), (120, 40, 7), (200, 60, 7), (79, 60, 0), (120, 23, 0)] {
            assert_eq!(rows(Rect::new(0, 0, width, height)), taken);
        }
    }
}
