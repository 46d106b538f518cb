//! The switches: keys, labels, values in force and wanted values.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::pane::{self, Frame, span};
use crate::drawing::theme::Token;
use crate::model::Setting;
use crate::session::{self, Switch, SwitchGroup};
use crate::source::SourceKind;
use crate::tui::action::Action;
use crate::tui::stage::{Stage, Targets};
use crate::tui::words;
use crate::units::Bytes;

/// The widths of a switch in the first and in the second column: of key and label, and of everything.
const CELLS: [(usize, u16); 2] = [(12, 26), (10, 21)];

/// A switch's key, label and value, and its action on a click.
struct SwitchCell {
    key: String,
    label: &'static str,
    short: &'static str,
    value: String,
    token: Token,
    /// True if flipping it changes nothing.
    idle: bool,
    action: Action,
}

/// The cells of a group. The memory group ends with `empty_cache`.
fn cells(stage: &Stage<'_>, group: SwitchGroup) -> Vec<SwitchCell> {
    let settings = stage.picture.switches();
    let fixed = stage.picture.can(crate::source::Ability::Flip).is_err();
    let kept = fixed || !stage.hold.permits(Action::EmptyCache, stage.picture);
    let switches = Switch::all().filter(|switch| switch.group() == group).filter_map(|switch| {
        let setting = settings.get(switch.word())?;
        let idle = fixed || !stage.permits(switch) || setting.idle.is_some();
        let token = match &setting.wanted {
            Some(_) => Token::Warn,
            None if is_usual(switch, setting) => {
                if idle {
                    Token::Dim
                } else {
                    Token::Text
                }
            }
            None => Token::Accent,
        };
        Some(SwitchCell {
            key: stage.keys.key_of(Action::of_switch(switch)).to_owned(),
            label: switch.label(),
            short: short_label(switch),
            value: match &setting.wanted {
                Some(next) => format!("→ {next}"),
                None => words::value(&setting.value).into_owned(),
            },
            token,
            idle,
            action: Action::of_switch(switch),
        })
    });
    let empty_cache = (group == SwitchGroup::Memory).then(|| SwitchCell {
        key: stage.keys.key_of(Action::EmptyCache).to_owned(),
        label: "empty_cache",
        short: "empty",
        value: match releasable(stage) {
            Bytes::ZERO => "nothing".to_owned(),
            bytes => figures::short_bytes(bytes),
        },
        token: Token::Dim,
        idle: kept,
        action: Action::EmptyCache,
    });
    switches.chain(empty_cache).collect()
}

/// The bytes that `empty_cache` would release: now if nothing moves, otherwise at the end of a step, including the
/// cache of the next steps. For what has already happened, the bytes at the moment shown.
fn releasable(stage: &Stage<'_>) -> Bytes {
    if !stage.picture.is_live() {
        return stage.shown.ledger.releasable;
    }
    let view = stage.view();
    if stage.is_still() { view.ledger.releasable } else { view.rested.releasable }
}

/// True if a switch has its default value, which needs no emphasis.
fn is_usual(switch: Switch, setting: &Setting) -> bool {
    let usual = switch.usual();
    usual.is_none_or(|usual| usual == *setting.value)
}

/// `text` in at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The flags of a recorded run, whose switches can't be flipped; `None` for a run that goes on.
fn recorded(stage: &Stage<'_>) -> Option<String> {
    let settings = stage.picture.switches();
    let is_ours = matches!(stage.picture.kind, SourceKind::Recording(_)) && !settings.0.is_empty();
    is_ours.then(|| {
        let flags = session::as_flags(settings, stage.view().limit, &[]);
        // A flag stays on one line with its value.
        let flags: Vec<String> = flags.join(" ").split(" --").map(|flag| flag.replace(' ', TIED)).collect();
        if flags == [""] { "nothing but the usual".to_owned() } else { flags.join(" --") }
    })
}

/// A blank at which lines are not broken.
const TIED: &str = "\u{a0}";

/// How many rows the pane needs at this width, with its frame.
pub(crate) fn wanted_rows(stage: &Stage<'_>, width: u16) -> u16 {
    if let Some(flags) = recorded(stage) {
        return u16::try_from(pane::wrap(&flags, usize::from(width.saturating_sub(4))).len() + 2).unwrap_or(u16::MAX);
    }
    let rows = |group| cells(stage, group).len();
    u16::try_from(rows(SwitchGroup::Memory).max(rows(SwitchGroup::Training))).unwrap_or(0).saturating_add(2)
}

/// Draws the switches in two columns, memory in the first: key, name, value.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer, targets: &mut Targets) {
    let theme = stage.theme;
    if let Some(flags) = recorded(stage) {
        let title = vec![span(theme, Token::Title, "switches"), span(theme, Token::Dim, " · this run had")];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
        for (y, line) in (0..inner.height).zip(pane::wrap(&flags, usize::from(inner.width.saturating_sub(2)))) {
            pane::put_at(inner, 1, y, vec![span(theme, Token::Text, line.replace(TIED, " "))], buf);
        }
        return;
    }
    let title = vec![span(theme, Token::Title, "switches")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let spare = inner.width.saturating_sub(CELLS[0].1 + CELLS[1].1);
    let mut x = 0;
    for (group, (label, width)) in [SwitchGroup::Memory, SwitchGroup::Training].into_iter().zip(CELLS) {
        let width = width + spare / 2;
        let value = usize::from(width).saturating_sub(label + 3);
        for (y, cell) in (0..inner.height).zip(cells(stage, group)) {
            let line = vec![
                span(theme, if cell.idle { Token::Dim } else { Token::Key }, format!(" {:<1} ", cell.key)),
                span(theme, Token::Dim, format!("{:<label$}", cell.label)),
                span(theme, cell.token, cut(&cell.value, value)),
            ];
            pane::put_at(inner, x, y, line, buf);
            let target = Rect { x: inner.x + x, y: inner.y + y, width, height: 1 };
            targets.push((target.intersection(inner), cell.action));
        }
        x += width;
    }
    if stage.hold.asks() {
        pane::remark(span(theme, Token::Dim, "off until the question is answered"), area, buf);
    } else if stage.picture.is_live() && releasable(stage) > Bytes::ZERO {
        let when = if stage.is_still() { "now" } else { "when the step ends" };
        let moment = match stage.keys.key_of(Action::EmptyCache) {
            "" => format!("empty_cache returns it {when}"),
            key => format!("{key} returns it {when}"),
        };
        pane::remark(span(theme, Token::Dim, moment), area, buf);
    }
}

/// A short name for a switch, for a line that must hold all of them.
fn short_label(switch: Switch) -> &'static str {
    match switch.word() {
        "zero-grad" => "grads",
        "opt-form" => "form",
        "attention" => "attn",
        "attention-mask" => "mask",
        "drop-output" => "drop",
        "schedule" => "lr",
        "alloc-conf" => "alloc",
        "retain" | "amp" | "tf32" => switch.label(),
        word => word,
    }
}

/// Longer values are cut when all switches share a few lines.
const SHORT_VALUE: usize = 9;

/// A short form of a value, for a line that must hold many.
fn short_value(value: &str) -> String {
    match value {
        // What happens to the gradients.
        "set_to_none" => "none".to_owned(),
        "expandable_segments:True" => "expandable".to_owned(),
        value => cut(value, SHORT_VALUE),
    }
}

/// True if a line has the flags of a recording instead.
pub(crate) fn are_a_line(stage: &Stage<'_>) -> bool {
    recorded(stage).is_some()
}

/// Draws all switches with their values in as few rows as possible. If there are too few rows, switches that change
/// nothing are left out.
pub(crate) fn render_compact(stage: &Stage<'_>, area: Rect, buf: &mut Buffer, targets: &mut Targets) {
    let theme = stage.theme;
    if let Some(flags) = recorded(stage) {
        let room = usize::from(area.width.saturating_sub(2));
        let line = pane::cut(&format!("this run had {}", flags.replace(TIED, " ")), room);
        pane::put_at(area, 1, 0, vec![span(theme, Token::Dim, line)], buf);
        return;
    }
    let all = [SwitchGroup::Memory, SwitchGroup::Training].into_iter().flat_map(|group| cells(stage, group));
    let (idle, useful): (Vec<SwitchCell>, Vec<SwitchCell>) = all.partition(|cell| cell.idle);
    let (mut x, mut y) = (1u16, 0u16);
    for cell in useful.into_iter().chain(idle) {
        let entry = vec![
            span(theme, if cell.idle { Token::Dim } else { Token::Key }, cell.key.clone()),
            span(theme, Token::Dim, format!(" {} ", cell.short)),
            span(theme, cell.token, short_value(&cell.value)),
        ];
        let width = u16::try_from(entry.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
        if x > 1 && x.saturating_add(width) >= area.width {
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
