//! A whole frame: the Lab screen, what lies over it, and the passes over all cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::app::{App, Layout};
use super::glyphs::{self, GlyphTier};
use super::help;
use super::lab::{self, pane};
use super::theme::Token;

/// Draws a frame; returns what clicks and keys need to know of its layout.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) -> Layout {
    let area = area.intersection(buf.area);
    buf.set_style(area, app.theme().style(Token::Surface).patch(app.theme().style(Token::Text)));
    let mut layout = if area.width < lab::SMALLEST.0 || area.height < lab::SMALLEST.1 {
        too_small(app, area, buf);
        Layout::default()
    } else {
        lab::render(app, area, buf)
    };
    if let Some(first) = app.help() {
        layout.help_rows = help::render(app, first, area, buf);
        layout.targets.clear();
    }
    if let Some(editor) = app.editor() {
        editor.render(app.theme(), area, buf);
        layout.targets.clear();
    }
    if app.glyphs() == GlyphTier::Ascii {
        glyphs::to_ascii(buf, area);
    }
    layout
}

fn too_small(app: &App, area: Rect, buf: &mut Buffer) {
    let (width, height) = lab::SMALLEST;
    let text =
        format!("{}×{} is too small, the lab needs {width}×{height}. It goes on; q quits.", area.width, area.height);
    let lines = pane::wrap(&text, usize::from(area.width));
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        buf.set_line(area.x, y, &Line::styled(line, app.theme().style(Token::Text)), area.width);
    }
}
