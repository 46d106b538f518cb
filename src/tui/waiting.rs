//! What is shown of a program that is watched before its first request of memory: whom the screen waits for, what must happen,
//! and where the program's own output goes.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::action::Action;
use super::stage::Stage;
use crate::drawing::figures;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::model::RunState;
use crate::source::{Kind, Picture};

/// Widest the box gets.
const WIDTH: u16 = 110;
/// Rows of the pane of what the program prints, at least.
const LEAST_TAIL: u16 = 5;
/// Cells before what is told.
const COLUMN: usize = 13;

/// What is known of a program before it says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The command that started it; empty where it ran already.
    pub command: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Where its own output goes.
    pub output: Option<PathBuf>,
    /// The last lines of it.
    pub printed: Vec<String>,
}

/// Whether a picture is one of a program that has not used a GPU yet, or never did.
pub(crate) fn is_shown(picture: &Picture) -> bool {
    let nothing = picture.view.segments.is_empty() && picture.view.peak_reserved.get() == 0;
    matches!(picture.kind, Kind::Watched(_)) && picture.view.about.workload.is_empty() && nothing
}

/// Draws it over `area`, so long after the screen was opened.
pub(crate) fn render(stage: &Stage<'_>, awaited: &Awaited, elapsed: Duration, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Kind::Watched(name) = &stage.picture.kind else { return };
    let ended = stage.picture.run == RunState::Finished;
    let width = WIDTH.min(area.width);
    let room = usize::from(width.saturating_sub(4)).saturating_sub(COLUMN);
    let mut rows: Vec<(Token, &str, String)> = Vec::new();
    let mut tell = |token, head: &'static str, text: &str| {
        for (index, line) in pane::wrap(text, room).into_iter().enumerate() {
            rows.push((token, if index == 0 { head } else { "" }, line));
        }
    };
    let process = awaited.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    tell(Token::Strong, "program", &format!("{name}{process}"));
    if !awaited.command.is_empty() {
        tell(Token::Dim, "", &awaited.command);
    }
    let since = figures::duration(elapsed);
    if ended {
        tell(Token::Warn, "ended", "no memory of a GPU was seen");
    } else {
        tell(Token::Text, "waiting", &format!("for its first memory on a GPU, {since} so far"));
        tell(
            Token::Text,
            "needed",
            "Python imports torch, then the program allocates on the GPU (.cuda(), .to(\"cuda\"))",
        );
        tell(Token::Dim, "", "vramlab turns on PyTorch's recording of memory by itself; the program is not changed");
    }
    let log = &stage.view().log;
    for line in &log[log.len().saturating_sub(3)..] {
        tell(Token::Warn, "note", &line.text);
    }
    match &awaited.output {
        Some(path) => tell(Token::Text, "its output", &format!("in {0}: tail -f {0}", path.display())),
        None => tell(Token::Dim, "its output", "goes where it went before"),
    }
    let quit = stage.keys.key_of(Action::Quit);
    let leaves = if ended { format!("{quit} closes") } else { format!("{quit} leaves; the program goes on") };
    tell(Token::Dim, "keys", &format!("{leaves} · {} help", stage.keys.key_of(Action::ToggleHelp)));
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    // What the program prints stands below, where there is room for some lines of it.
    let room = area.height - height;
    let tail = if awaited.printed.is_empty() || room < LEAST_TAIL {
        0
    } else {
        u16::try_from(awaited.printed.len()).unwrap_or(u16::MAX).saturating_add(2).clamp(LEAST_TAIL, room)
    };
    let above = (room - tail) / 3;
    let outer = Rect { x: area.x + (area.width - width) / 2, y: area.y + above, width, height };
    printed(stage, awaited, Rect { y: outer.bottom(), height: tail, ..outer }, buf);
    let title = if ended { "nothing to show" } else { "waiting for the program" };
    let inner = pane::frame(Frame::Box, vec![span(theme, Token::Title, title)], theme.style(Token::Border), outer, buf);
    for (y, (token, head, line)) in (0..inner.height).zip(rows) {
        let line = vec![Span::raw(" "), span(theme, Token::Dim, format!("{head:<COLUMN$}")), span(theme, token, line)];
        put(inner, y, line, buf);
    }
}

/// The last lines of what the program prints, as many as have room.
fn printed(stage: &Stage<'_>, awaited: &Awaited, area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "its output")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let rows = usize::from(inner.height);
    let first = awaited.printed.len().saturating_sub(rows);
    for (y, line) in (0..inner.height).zip(&awaited.printed[first..]) {
        let line = pane::cut(line, usize::from(inner.width.saturating_sub(2)));
        put(inner, y, vec![Span::raw(" "), span(theme, Token::Dim, line)], buf);
    }
}
