//! The switches: keys, values, the one in force, the one that is coming.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::pane::{self, Frame, span};
use crate::session::{LabState, Switch, SwitchGroup, SwitchState};
use crate::tui::editor::Purpose;
use crate::tui::figures;
use crate::tui::keymap::Action;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Where a click does what.
pub(crate) type Targets = Vec<(Rect, Action)>;

/// Cells of a switch in the first and in the second column: key, label, value.
const CELLS: [(usize, u16); 2] = [(12, 25), (10, 22)];

/// A switch's key, label and value, and what a click there does.
struct Cell {
    key: char,
    label: &'static str,
    short: &'static str,
    value: String,
    token: Token,
    action: Action,
}

/// The cells of a group, and `empty_cache` at the end of what is about memory.
fn cells(state: &LabState, group: SwitchGroup, releasable: Bytes) -> Vec<Cell> {
    let switches = state.switches.iter().filter(|switch| switch.group == group).map(|switch| Cell {
        key: switch.key,
        label: switch.label,
        short: short_label(switch.switch),
        value: match &switch.pending {
            Some(next) => format!("›{next}…"),
            None => switch.current.to_string(),
        },
        token: match (&switch.pending, is_usual(switch)) {
            (Some(_), _) => Token::Warn,
            (None, true) => Token::Text,
            (None, false) => Token::Accent,
        },
        action: action(switch.switch),
    });
    let empty_cache = (group == SwitchGroup::Memory).then(|| Cell {
        key: 'e',
        label: "empty_cache",
        short: "empty",
        value: figures::bytes(releasable),
        token: Token::Dim,
        action: Action::EmptyCache,
    });
    switches.chain(empty_cache).collect()
}

/// The value that a switch has when nobody touches it, which needs no emphasis.
fn is_usual(switch: &SwitchState) -> bool {
    match switch.switch {
        Switch::Optimizer => switch.current == "adamw",
        Switch::Batch => true,
        Switch::Limit => switch.current == "none",
        Switch::Settings => switch.current == "default",
        _ => switch.values.first().is_some_and(|first| *first == switch.current),
    }
}

const fn action(switch: Switch) -> Action {
    match switch {
        Switch::Limit => Action::Edit(Purpose::Limit),
        Switch::Settings => Action::Edit(Purpose::Settings),
        other => Action::Flip(other),
    }
}

/// `text` in at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Rows that the pane wants, with its frame.
pub(crate) fn wanted_rows(state: &LabState) -> u16 {
    let rows = |group| cells(state, group, Bytes::ZERO).len();
    u16::try_from(rows(SwitchGroup::Memory).max(rows(SwitchGroup::Training))).unwrap_or(0).saturating_add(2)
}

/// Draws the switches in two columns, what is about memory in the first: key, name, value.
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
    let spare = inner.width.saturating_sub(CELLS[0].1 + CELLS[1].1);
    let mut x = 0;
    for (group, (label, width)) in [SwitchGroup::Memory, SwitchGroup::Training].into_iter().zip(CELLS) {
        let width = width + spare / 2;
        let value = usize::from(width).saturating_sub(label + 4);
        for (y, cell) in (0..inner.height).zip(cells(state, group, releasable)) {
            let line = vec![
                span(theme, Token::Key, format!(" {} ", cell.key)),
                span(theme, Token::Dim, format!("{:<label$}", cell.label)),
                span(theme, cell.token, cut(&cell.value, value)),
            ];
            pane::put_at(inner, x, y, line, buf);
            let target = Rect { x: inner.x + x, y: inner.y + y, width, height: 1 };
            targets.push((target.intersection(inner), cell.action));
        }
        x += width;
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
        Switch::Form => "form",
        Switch::Batch => "batch",
        Switch::Offload => "offload",
        Switch::Attention => "attn",
        Switch::Tf32 => "TF32",
        Switch::Schedule => "lr",
        Switch::Fuse => "fuse",
        Switch::Retain => "leak",
        Switch::Limit => "limit",
        Switch::Settings => "alloc",
    }
}

/// Values longer than this are cut where all switches share a few lines.
const SHORT_VALUE: usize = 8;

/// Draws all switches in as few rows as they take, each with the value in force.
pub(crate) fn render_compact(
    state: &LabState,
    releasable: Bytes,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    let all =
        [SwitchGroup::Memory, SwitchGroup::Training].into_iter().flat_map(|group| cells(state, group, releasable));
    let (mut x, mut y) = (1u16, 0u16);
    for cell in all {
        let entry = vec![
            span(theme, Token::Key, cell.key.to_string()),
            span(theme, Token::Dim, format!(" {} ", cell.short)),
            span(theme, cell.token, cut(&cell.value, SHORT_VALUE)),
        ];
        let width = u16::try_from(entry.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
        if x > 1 && x.saturating_add(width) > area.width {
            (x, y) = (1, y + 1);
        }
        if y >= area.height {
            return;
        }
        pane::put_at(area, x, y, entry, buf);
        let target = Rect { x: area.x + x, y: area.y + y, width, height: 1 };
        targets.push((target.intersection(area), cell.action));
        x = x.saturating_add(width).saturating_add(2);
    }
}
