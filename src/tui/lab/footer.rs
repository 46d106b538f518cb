//! The sentence a teacher would say now, and the keys that can be pressed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::log;
use super::pane::{self, put, put_at, span};
use super::switches::Targets;
use crate::model::Level;
use crate::session::{LabState, RunState};
use crate::tui::keymap::{Action, BINDINGS};
use crate::tui::theme::{Theme, Token};

/// Draws the most important finding: what is the case, and what to do about it.
pub(crate) fn render_why(state: &LabState, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (level, what, remedy) = match (&state.run, state.view.findings.first()) {
        (RunState::Failed(reason), _) => (Level::Danger, reason.clone(), "Press q to leave.".to_owned()),
        (RunState::StepFailed(reason), _) => {
            let remedy = "The switches go back to what worked: press space to go on, or flip another one.";
            (Level::Danger, format!("{reason}."), remedy.to_owned())
        }
        (RunState::Lost(reason), _) => {
            (Level::Danger, format!("{reason}."), "Press P for the processor, q to leave.".to_owned())
        }
        (_, Some(finding)) => (finding.level, finding.what.clone(), finding.remedy.clone()),
        (_, None) => return,
    };
    let token = match level {
        Level::Info | Level::Switch => Token::Text,
        loud => log::token(loud),
    };
    let width = usize::from(area.width.saturating_sub(9));
    let lines = pane::wrap(&format!("{what}  {remedy}"), width);
    put(area, 0, vec![span(theme, Token::Title, " why: ")], buf);
    let mut shown = 0;
    let cut = lines.len() > usize::from(area.height);
    for (y, mut line) in (0..area.height).zip(lines) {
        if cut && y + 1 == area.height {
            line.push_str(" …");
        }
        let length = line.chars().count();
        let split = what.chars().count().saturating_sub(shown).min(length);
        let (first, second): (String, String) =
            (line.chars().take(split).collect(), line.chars().skip(split).collect());
        put_at(area, 6, y, vec![span(theme, token, first), span(theme, Token::Dim, second)], buf);
        shown += length + 1;
    }
}

/// Draws what the keys do, as many as fit, or the notice that stands in their place.
pub(crate) fn render_keys(
    state: &LabState,
    notice: Option<&str>,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    if let Some(notice) = notice {
        put(area, 0, vec![Span::raw(" "), span(theme, Token::Accent, notice)], buf);
        return;
    }
    let mut hints: Vec<(&str, &str, Action)> = BINDINGS
        .iter()
        .filter(|binding| !binding.hint.is_empty() && binding.is_enabled(&state.run))
        .map(|binding| (binding.label.split(' ').next().unwrap_or_default(), binding.hint, binding.action))
        .collect();
    for (_, hint, action) in &mut hints {
        if *action == Action::TogglePause && state.run != RunState::Running {
            *hint = "go on";
        }
    }
    let cells = |hint: &(&str, &str, Action)| hint.0.chars().count() + hint.1.chars().count() + 4;
    let mut room = usize::from(area.width).saturating_sub(1);
    // The last ones (help, quit) matter most: the middle gives way.
    let mut kept: Vec<(&str, &str, Action)> = Vec::new();
    for hint in hints.iter().rev().take(2).chain(hints.iter().take(hints.len().saturating_sub(2))) {
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
