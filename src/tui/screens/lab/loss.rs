//! The loss over the whole run, in braille.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::chart::Curve;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::StepsView;

/// The width of the axis left of the curve.
const GUTTER: u16 = 6;

/// Draws the pane.
pub(crate) fn render(steps: &StepsView, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut title = vec![span(theme, Token::Title, "loss")];
    let last = steps.last.as_ref().map(|last| last.loss);
    if let Some(Some(loss)) = last {
        title.push(span(theme, Token::Strong, format!(" {loss:.3}")));
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    if last == Some(None) {
        let text = "No loss: a simulated device computes none.";
        let width = usize::from(inner.width.saturating_sub(2));
        for (y, line) in (0..inner.height).zip(pane::wrap(text, width)) {
            pane::put_at(inner, 1, y, vec![span(theme, Token::Dim, line)], buf);
        }
        return;
    }
    let plot = Rect { x: inner.x + GUTTER, width: inner.width.saturating_sub(GUTTER + 1), ..inner };
    let losses: Vec<f32> = steps.losses.iter().copied().filter(|loss| loss.is_finite()).collect();
    if plot.is_empty() || losses.is_empty() {
        return;
    }
    let (low, high) = axis(&losses);
    put(inner, 0, vec![span(theme, Token::Dim, format!("{high:>5.1}"))], buf);
    if inner.height > 1 {
        put(inner, inner.height - 1, vec![span(theme, Token::Dim, format!("{low:>5.1}"))], buf);
    }
    curve(&losses, low, high, theme, plot, buf);
}

/// The lowest and highest value of the axis, in half units, so that it rarely moves.
fn axis(losses: &[f32]) -> (f32, f32) {
    let low = losses.iter().copied().fold(f32::INFINITY, f32::min);
    let high = losses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let low = (low * 2.0).floor() / 2.0;
    (low, ((high * 2.0).ceil() / 2.0).max(low + 0.5))
}

fn curve(losses: &[f32], low: f32, high: f32, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let plot = plot.intersection(buf.area);
    let (wide, tall) = (usize::from(plot.width * Curve::COLUMNS), plot.height * Curve::ROWS);
    // The axis doubles when it is full, so that the curve mostly grows instead of shrinking.
    let capacity = losses.len().next_power_of_two().max(32);
    let dot = |loss: &f32| {
        let share = f64::from((loss - low) / (high - low)).clamp(0.0, 1.0);
        let highest = tall.saturating_sub(1);
        u32::from(highest) - ((1.0 - share) * f64::from(highest)).round() as u32
    };
    // All losses in a column of dots, so that no spike is skipped.
    let span = |x: usize| {
        let from = x * capacity / wide;
        let to = ((x + 1) * capacity).div_ceil(wide).max(from + 1).min(losses.len());
        let part = losses.get(from..to)?;
        Some((part.iter().map(dot).min()?, part.iter().map(dot).max()?))
    };
    Curve::through(plot, (0..wide).map(span)).draw(Token::Loss, theme, buf);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};

    #[test]
    fn the_axis_lies_on_half_units() {
        assert_eq!(axis(&[4.3, 3.1]), (3.0, 4.5));
        assert_eq!(axis(&[2.0]), (2.0, 2.5));
    }

    #[test]
    fn a_falling_loss_falls() {
        let losses: Vec<f32> = (0..32).map(|step| 4.0 - step as f32 / 32.0).collect();
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::None).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 4, 2));
        curve(&losses, 3.0, 4.0, &theme, buf.area, &mut buf);
        let rows: Vec<String> = (0..2).map(|y| (0..4).map(|x| buf[(x, y)].symbol()).collect()).collect();
        // Every column of dots spans its four losses: two dots each.
        assert_eq!(rows, ["⠳⢄  ", "  ⠙⢦"].map(str::to_owned));
    }
}
