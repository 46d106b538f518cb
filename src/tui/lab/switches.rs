//! The switches: keys, values, the one in force, the one that is coming.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::pane::{self, Frame, put, span};
use crate::session::{LabState, Switch, SwitchState};
use crate::tui::figures;
use crate::tui::keymap::Action;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Where a click does what.
pub(crate) type Targets = Vec<(Rect, Action)>;

/// Rows that the pane wants, with its frame.
pub(crate) fn wanted_rows(state: &LabState) -> u16 {
    u16::try_from(state.switches.len()).unwrap_or(0).saturating_add(3)
}

/// Draws a line for each switch, and one for `empty_cache`.
pub(crate) fn render(
    state: &LabState,
    releasable: Bytes,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    let title = vec![span(theme, Token::Title, "switches")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    for (y, switch) in (0..inner.height).zip(&state.switches) {
        let mut line = vec![
            span(theme, Token::Key, format!(" {} ", switch.key)),
            span(theme, Token::Text, format!("{:<14}", switch.label)),
        ];
        for index in 0..switch.values.len() {
            line.extend(value(switch, index, theme));
        }
        put(inner, y, line, buf);
        targets.push((Rect { y: inner.y + y, height: 1, ..inner }, Action::Flip(switch.switch)));
    }
    let y = u16::try_from(state.switches.len()).unwrap_or(u16::MAX);
    if y < inner.height {
        let line = vec![
            span(theme, Token::Key, " e "),
            span(theme, Token::Text, format!("{:<15}", "empty_cache")),
            span(theme, Token::Dim, format!("{} would go", figures::bytes(releasable))),
        ];
        put(inner, y, line, buf);
        targets.push((Rect { y: inner.y + y, height: 1, ..inner }, Action::EmptyCache));
    }
}

fn value(switch: &SwitchState, index: usize, theme: &Theme) -> Vec<Span<'static>> {
    let text = switch.values[index].to_owned();
    if switch.pending.is_some_and(|pending| pending.0 == index && pending != switch.current) {
        vec![span(theme, Token::Warn, "›"), span(theme, Token::Warn, text), span(theme, Token::Warn, "…")]
    } else if switch.current.0 == index {
        vec![span(theme, Token::Accent, "▸"), span(theme, Token::Accent, text), Span::raw(" ")]
    } else {
        vec![Span::raw(" "), span(theme, Token::Dim, text), Span::raw(" ")]
    }
}

/// A short word for a switch, where a line must hold them all.
const fn short_label(switch: Switch) -> &'static str {
    match switch {
        Switch::Amp => "AMP",
        Switch::Checkpointing => "ckpt",
        Switch::Accumulation => "accum",
        Switch::Pinned => "pin",
        Switch::Optimizer => "opt",
        Switch::ZeroGrad => "zero",
    }
}

/// Draws all switches in as few rows as they take, each with the value in force.
pub(crate) fn render_compact(
    state: &LabState,
    releasable: Bytes,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    let entries = state.switches.iter().map(|switch| {
        let current = switch.values.get(switch.current.0).copied().unwrap_or("–");
        let pending = switch.pending.filter(|&pending| pending != switch.current);
        let next = pending.and_then(|pending| switch.values.get(pending.0));
        let mut entry = vec![
            span(theme, Token::Key, switch.key.to_string()),
            span(theme, Token::Dim, format!(" {} ", short_label(switch.switch))),
            span(theme, Token::Accent, format!("▸{current}")),
        ];
        if let Some(next) = next {
            entry.push(span(theme, Token::Warn, format!("›{next}…")));
        }
        (entry, Action::Flip(switch.switch))
    });
    let empty_cache = vec![
        span(theme, Token::Key, "e"),
        span(theme, Token::Dim, " empty_cache "),
        span(theme, Token::Text, figures::bytes(releasable)),
    ];
    let entries: Vec<_> = entries.chain([(empty_cache, Action::EmptyCache)]).collect();
    let (mut x, mut y) = (1u16, 0u16);
    for (entry, action) in entries {
        let width = u16::try_from(entry.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
        if x > 1 && x.saturating_add(width) > area.width {
            (x, y) = (1, y + 1);
        }
        if y >= area.height {
            return;
        }
        pane::put_at(area, x, y, entry, buf);
        let target = Rect { x: area.x + x, y: area.y + y, width, height: 1 };
        targets.push((target.intersection(area), action));
        x = x.saturating_add(width).saturating_add(2);
    }
}
