//! A sketch of segments and blocks as in every run: it illustrates the words of a question, not its answer.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::tui::stage::Stage;

/// Segments in hundredths: allocated blocks with their colours, and free ones.
const SEGMENTS: [&[(u16, Option<Token>)]; 3] = [
    &[(34, Some(Token::Parameters)), (22, Some(Token::Activations)), (44, None)],
    &[(18, None), (14, Some(Token::Optimizer)), (30, None), (10, Some(Token::Activations))],
    &[(46, Some(Token::Activations)), (14, None)],
];
/// The least and the most rows of a segment, and the rows for the text below it.
const ROWS: (u16, u16) = (2, 8);
const BELOW: u16 = 2;

/// Draws the sketch.
pub(super) fn segments(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title = vec![
        span(theme, Token::Title, "segments and blocks"),
        span(theme, Token::Dim, " · not those of this run, which are hidden until you answer"),
    ];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let legend = [(Some(Token::Activations), " a block in use: allocated   "), (None, " free, and still reserved   ")];
    let legend: Vec<Span<'static>> =
        legend.into_iter().flat_map(|(token, text)| [part(theme, token, 2), span(theme, Token::Dim, text)]).collect();
    put(inner, 0, legend, buf);
    let bars = Rect { y: inner.y + 2.min(inner.height), height: inner.height.saturating_sub(2), ..inner };
    let rows = (bars.height / SEGMENTS.len() as u16).saturating_sub(BELOW).clamp(ROWS.0, ROWS.1);
    for (segment, y) in SEGMENTS.iter().zip((0..bars.height).step_by(usize::from(rows + BELOW))) {
        let mut x = 0;
        for (share, token) in *segment {
            let cells = (u32::from(bars.width) * u32::from(*share) / 100) as u16;
            for row in y..(y + rows).min(bars.height) {
                put_at(bars, x, row, vec![part(theme, *token, usize::from(cells))], buf);
            }
            x += cells;
        }
        if y + rows < bars.height {
            let text = "└ a segment: the allocator took it from the driver";
            put(bars, y + rows, vec![span(theme, Token::Dim, text)], buf);
        }
    }
}

/// The cells of a block, or of free memory.
fn part(theme: &Theme, token: Option<Token>, cells: usize) -> Span<'static> {
    match token {
        Some(token) => {
            Span::styled(" ".repeat(cells), Style::new().fg(theme.color(token)).add_modifier(Modifier::REVERSED))
        }
        None => span(theme, Token::Dim, "·".repeat(cells)),
    }
}
