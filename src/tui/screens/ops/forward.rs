//! What each module's forward puts out, and what the module keeps until backward, as a hook on every module would print.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::figures::ByteUnit;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::model::{ModuleOutput, Study};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// From this width on a row shows how many times a step calls the module.
const CALLS: u16 = 68;

/// Draws the modules in the order in which they return. Returns the number of rows, and how many are visible.
pub(super) fn table(stage: &Stage<'_>, study: &Study, kind: Frame, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let (theme, view) = (stage.theme, stage.view());
    let rows = &*view.modules;
    let kept = |row: &ModuleOutput| study.kept_by(view.names.get(row.module));
    let largest = rows.iter().map(|row| row.bytes.max(kept(row).unwrap_or_default())).max().unwrap_or_default();
    let unit = ByteUnit::for_largest(largest);
    let title = vec![
        span(theme, Token::Title, "forward"),
        span(theme, Token::Dim, format!(" of a step, in the order modules return · {}", unit.name())),
    ];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if rows.is_empty() || inner.height < 3 {
        let text = "no module outputs are known here: the model has none, or the run is not this lab's";
        for (y, line) in (0..inner.height).zip(pane::wrap(text, usize::from(inner.width))) {
            put(inner, y, vec![span(theme, Token::Dim, line)], buf);
        }
        return (rows.len(), 0);
    }
    let calls = inner.width >= CALLS;
    let head = format!("{:<20} {:<9}{:>9}{:>9}", "shape", "dtype", "output", "kept");
    let count = |text: &str| if calls { format!("{text:>6}") } else { String::new() };
    put(inner, 0, vec![span(theme, Token::Dim, "module")], buf);
    let names = put_right(inner, 0, vec![span(theme, Token::Dim, format!("{head}{}", count("calls")))], buf);
    let room = usize::from(names.saturating_sub(1));
    let about = "output: what it returns · kept: still alive when backward begins";
    let body = Rect { y: inner.y + 1, height: inner.height - 2, ..inner };
    let seen = usize::from(body.height);
    let first = stage.scroll.min(rows.len().saturating_sub(seen));
    for (y, row) in (0..body.height).zip(&rows[first..]) {
        let name = match view.names.get(row.module) {
            "" => "(the model)",
            name => name,
        };
        put(body, y, vec![span(theme, Token::Text, pane::cut_front(name, room))], buf);
        let kept = match kept(row) {
            None => "?".to_owned(),
            Some(Bytes::ZERO) => "·".to_owned(),
            Some(bytes) => unit.figure(bytes),
        };
        let line = vec![
            span(theme, Token::Strong, format!("{:<20} ", pane::cut(&shape(row), 20))),
            span(theme, Token::Dim, format!("{:<9}", view.names.get(row.dtype))),
            span(theme, Token::Text, format!("{:>9}", unit.figure(row.bytes))),
            span(theme, Token::Strong, format!("{kept:>9}")),
            span(theme, Token::Dim, count(&format!("{}×", row.calls))),
        ];
        put_right(body, y, line, buf);
    }
    pane::put(inner, inner.height - 1, vec![span(theme, Token::Dim, about)], buf);
    (rows.len(), seen)
}

/// `[8, 1024, 768]`.
fn shape(row: &ModuleOutput) -> String {
    format!("[{}]", row.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}
