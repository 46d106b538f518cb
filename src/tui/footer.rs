//! The footer: the keys that can be pressed, or a notice in their place. It belongs to no screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::action::Action;
use super::keymap;
use super::stage::{Stage, Targets};
use super::waiting;
use crate::drawing::pane::{self, put, put_at, put_right, span};
use crate::drawing::theme::Token;
use crate::model::RunState;
use crate::source::Picture;

/// How many of the last keys are always shown.
const LAST: usize = 3;
/// The most rows of a notice.
const NOTICE: usize = 3;

/// How many rows the footer takes. A notice replaces the keys; if it needs more rows, they are taken from the screen,
/// so that it covers nothing.
pub(crate) fn rows(notice: Option<&str>, area: Rect) -> u16 {
    let lines = notice.map_or(1, |notice| lines(notice, area.width).len());
    u16::try_from(lines).unwrap_or(1).max(1)
}

/// A notice in lines of `width` cells, with a blank at each end.
fn lines(notice: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.saturating_sub(2));
    let mut lines = pane::wrap(notice, width);
    if lines.len() > NOTICE {
        let rest = lines.split_off(NOTICE - 1).join(" ");
        lines.push(pane::cut(&rest, width));
    }
    lines
}

/// Draws as many keys as fit, or the notice.
pub(crate) fn render(
    stage: &Stage<'_>,
    notice: Option<&str>,
    screen: usize,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    let theme = stage.theme;
    let area = pressed(stage, area, buf);
    if let Some(notice) = notice {
        for (y, line) in (0..area.height).zip(lines(notice, area.width)) {
            put(area, y, vec![Span::raw(" "), span(theme, Token::Accent, line)], buf);
        }
        return;
    }
    let picture = stage.picture;
    // Before a program has said anything there is nothing to look at.
    let waits = waiting::is_shown(picture);
    let shown = stage.keys.bindings().iter().filter(|binding| {
        !binding.hint.is_empty()
            && !binding.keys.is_empty()
            && binding.acts_on(screen)
            && stage.hold.permits(binding.action, picture)
            && (!waits || is_of_program(binding.action))
            && keymap::acts(binding.action, picture).is_ok()
    });
    let hints: Vec<(&str, &str, Action)> = shown
        .map(|binding| {
            let key = binding.first_label();
            (key, hint(binding.action, binding.hint, picture), binding.action)
        })
        .collect();
    let cells = |hint: &(&str, &str, Action)| hint.0.chars().count() + hint.1.chars().count() + 4;
    // There is no gap after the last key.
    let mut room = usize::from(area.width) + 2;
    // The last keys (find, help, quit) are the most important, so keys in the middle are left out.
    let mut kept: Vec<(&str, &str, Action)> = Vec::new();
    for hint in hints.iter().rev().take(LAST).chain(hints.iter().take(hints.len().saturating_sub(LAST))) {
        if cells(hint) <= room {
            room -= cells(hint);
            kept.push(*hint);
        }
    }
    kept.sort_by_key(|(key, _, _)| hints.iter().position(|hint| hint.0 == *key));
    let mut x = 1;
    for (key, hint, action) in kept {
        let end =
            put_at(area, x, 0, vec![span(theme, Token::Key, key), span(theme, Token::Dim, format!(" {hint}"))], buf);
        targets.push((Rect { x: area.x + x, width: end.saturating_sub(x), height: 1, ..area }, action));
        x = end + 3;
    }
}

/// Draws the keys that were pressed for an audience at the right. Returns the area left beside them.
fn pressed(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> Rect {
    let key = stage.theme.style(Token::Key).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let mut line: Vec<Span<'static>> = Vec::new();
    for shown in stage.pressed.iter().rev() {
        let mut entry = vec![Span::raw(" "), Span::styled(format!(" {} ", shown.key), key)];
        if !shown.word.is_empty() {
            entry.push(span(stage.theme, Token::Text, format!(" {}", shown.word)));
        }
        let cells: usize = entry.iter().chain(&line).map(Span::width).sum();
        // The last keys, as many as fit in a part of the row.
        if cells > usize::from(area.width / 2) && !line.is_empty() {
            break;
        }
        line.splice(0..0, entry);
    }
    if line.is_empty() {
        return area;
    }
    line.push(Span::raw(" "));
    Rect { width: put_right(area, area.height.saturating_sub(1), line, buf), ..area }
}

/// True if a key concerns only this program, and not what it shows.
const fn is_of_program(action: Action) -> bool {
    matches!(action, Action::ChooseTheme | Action::Palette | Action::ToggleHelp | Action::Quit)
}

/// A word for what a key does now.
fn hint(action: Action, usual: &'static str, picture: &Picture) -> &'static str {
    match action {
        Action::TogglePause if picture.playing.is_some() => "stop",
        Action::TogglePause if !picture.is_live() => "play",
        Action::TogglePause if picture.run == RunState::Running && !picture.is_now() => "play",
        Action::TogglePause if picture.run != RunState::Running => "go on",
        Action::Record if picture.recording.is_some() => "end recording",
        _ => usual,
    }
}
