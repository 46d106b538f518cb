//! The curve of a history that is still being read: lower bounds of the allocated bytes so far.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::chart::{Axis, Ink, Stack, areas, plot_in};
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::source::{FileProgress, ReadingStage};
use crate::units::Bytes;

/// Draws the pane. If the file's length is known, the part that has not been read is blank at the right.
pub(super) fn render(reading: &FileProgress, theme: &Theme, kind: Frame, area: Rect, buf: &mut Buffer) {
    let inner = pane::frame(kind, title(reading, theme), theme.style(Token::Border), area, buf);
    let plot = plot_in(inner, kind, 1);
    let Some(top) = reading.least.iter().copied().max().filter(|_| !plot.is_empty()) else { return };
    let axis = Axis::new(ByteUnit::for_largest(top), top, plot.height);
    axis.draw(theme, inner, plot, buf);
    let fill = if theme.is_colorless() { "░" } else { "█" };
    let stack = |level: Bytes| {
        let mut stack = Stack::default();
        stack.add(level, Ink { token: Token::Allocated, fill });
        stack
    };
    let read = if reading.doing == ReadingStage::Reading { reading.part.unwrap_or(1.0).clamp(0.0, 1.0) } else { 1.0 };
    let columns = (f64::from(plot.width) * read).ceil() as usize;
    let stacks: Vec<Stack> = in_columns(&reading.least, columns).map(stack).collect();
    areas(&stacks, axis.top, theme, plot, buf);
    let unit = format!("{:>4}", axis.unit.name());
    put_at(inner, 0, plot.height, vec![span(theme, Token::Dim, unit)], buf);
}

fn title(reading: &FileProgress, theme: &Theme) -> Vec<Span<'static>> {
    let mut title = vec![span(theme, Token::Title, "recorded")];
    if let Some(peak) = reading.least.iter().max() {
        title.extend([
            span(theme, Token::Text, " allocated, at least · peak ≥ "),
            span(theme, Token::Strong, figures::bytes(*peak)),
        ]);
    }
    title.push(match reading.doing {
        ReadingStage::Failed => span(theme, Token::Danger, " · the file is damaged"),
        _ => span(theme, Token::Warn, format!(" · {}", reading.words())),
    });
    title
}

/// The levels in `columns` columns, each at its highest.
fn in_columns(levels: &[Bytes], columns: usize) -> impl Iterator<Item = Bytes> + '_ {
    let count = levels.len();
    (0..columns).filter_map(move |x| {
        let from = (x * count / columns).min(count.checked_sub(1)?);
        let to = ((x + 1) * count / columns).clamp(from + 1, count);
        levels[from..to].iter().copied().max()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_show_the_highest_of_what_they_stand_for() {
        let levels = [1, 9, 2, 3, 8, 4].map(Bytes);
        let of = |columns| in_columns(&levels, columns).map(|level| level.0).collect::<Vec<_>>();
        assert_eq!(of(3), [9, 3, 8]);
        assert_eq!(of(12), [1, 1, 9, 9, 2, 2, 3, 3, 8, 8, 4, 4]);
        assert!(in_columns(&[], 4).next().is_none());
    }
}
