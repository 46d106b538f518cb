//! The ops of a step, or of the run: what they allocated, what they kept, and what of it was alive at the peak; and
//! what survived since a tag.

mod alive;
mod forward;

use std::collections::{HashMap, HashSet};

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Category, Micros, OpRow, OpTotals, Sort, Study, naming};
use crate::source::{FileProgress, Picture, SourceKind, StudyRequest};
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::copied::{self, Clipping};
use crate::tui::large::Large;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::screens::lab;
use crate::tui::share;
use crate::tui::stage::{Chart, FrameLayout, Stage};
use crate::tui::states::{OpsAction, ScreenAction, ScreenStates};
use crate::units::Bytes;
use crossterm::event::KeyCode;

pub(crate) const SCREEN: Screen =
    Screen { key: '4', title: "Ops", draw, wants, copied: rows, large: &[Large::Peak, Large::StepTime], bindings };

/// From this width on, what was alive at the peak is listed by name at the right.
const TWO_COLUMNS: u16 = 110;
/// The least and the greatest width of that list.
const NAMES: (u16, u16) = (40, 64);
/// The fewest rows of the step's curve, if the tables leave any.
const LEAST_CURVE: u16 = 7;
/// From this width of the table on, the step's curve is below it alone. A narrower curve is not worth its bytes.
const OWN_CURVE: u16 = 76;

fn bindings() -> Vec<Binding> {
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Ops(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, KeyGroup::View, hint, help);
    vec![
        view(
            &[plain('v')],
            "v",
            own(OpsAction::Totals),
            "by",
            "a row for each op, module, place, or module's forward output",
        )
        .brief("rows by op, module, place or output"),
        view(
            &[plain('u')],
            "u",
            own(OpsAction::Sort),
            "sort",
            "sort by bytes at the peak, taken, kept, by time, by calls",
        )
        .brief("sort by bytes, by time or by calls"),
        view(&[plain('0')], "0", own(OpsAction::Window), "step or run", "the step around the cursor, or the whole run")
            .brief("this step, or the whole run"),
        view(
            &[plain('d')],
            "d",
            own(OpsAction::Tag),
            "tag",
            "tag this moment and list what outlives it; again: remove it",
        )
        .brief("list what outlives this moment, or stop"),
        view(&[plain('^')], "^", own(OpsAction::Peak), "peak", "move the cursor to the peak"),
        view(&[named(KeyCode::Down), plain('j')], "↓ j", Action::Scroll(1), "", "scroll the table down"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", Action::Scroll(-1), "", "scroll the table up"),
    ]
}

fn wants(states: &mut ScreenStates, picture: &Picture) -> Option<StudyRequest> {
    Some(states.ops.wanted(picture))
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let tag = stage.states.ops.tag;
    // A study requested before does not answer a tag.
    let answers = |study: &&Study| tag.is_none_or(|tag| study.begin == tag || study.end == tag);
    let reading = stage.picture.reading.as_ref();
    let Some(study) = stage.picture.study.as_deref().filter(|study| reading.is_none() && answers(study)) else {
        let text = match (stage.picture.studying, tag) {
            _ if reading.is_some() => {
                let words = reading.map_or_else(String::new, FileProgress::words);
                format!("  {words}: requests are listed when all are known")
            }
            (Some(part), _) => format!("  reading the events … {:.0} %", 100.0 * part),
            (None, Some(_)) => match stage.keys.key_of(Action::Own(ScreenAction::Ops(OpsAction::Tag))) {
                "" => "  the tag is set: what is allocated from here on will be listed".to_owned(),
                key => {
                    format!("  the tag is set: what is allocated from here on will be listed · {key} removes the tag")
                }
            },
            (None, None) => "  no step has begun yet".to_owned(),
        };
        put(Rect { y: area.y + area.height / 2, height: 1, ..area }, 0, vec![span(stage.theme, Token::Dim, text)], buf);
        return layout;
    };
    if let Some(tag) = tag {
        layout.rows = alive::since_tag(stage, study, tag, area, buf);
        layout.panels.push((area, Panel::Alive));
        layout.focus = Some(Panel::Alive);
        return layout;
    }
    let kind = if area.width >= 100 && area.height >= 20 { Frame::Box } else { Frame::Rule };
    let nameless = study.at_peak.iter().all(|at| Category::ALL.iter().any(|category| category.label() == at.name));
    let nameless = nameless && matches!(stage.picture.kind, SourceKind::Snapshot(_));
    let forward = stage.states.ops.forward;
    let two = area.width >= TWO_COLUMNS;
    let wanted = if nameless || forward { None } else { wanted_rows(stage, study, kind, two) };
    // The step's curve takes the rows that the tables leave, at full width or only below the table.
    let leaves = |rows: &u16| area.height >= rows.saturating_add(LEAST_CURVE);
    let below =
        |area: Rect, rows: u16| area.layout::<2>(&Split::vertical([Constraint::Length(rows), Constraint::Min(0)]));
    let (table_rows, name_rows) = wanted.unzip();
    let whole = wanted.map(|(table, names)| table.max(names)).filter(leaves);
    let [area, mut curve] = whole.map_or([area, Rect::ZERO], |rows| below(area, rows));
    let (mut left, mut right) = if two {
        let names = (area.width * 2 / 7).clamp(NAMES.0, NAMES.1);
        let [left, right] = area.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(names)]));
        (left, Some(right))
    } else {
        (area, None)
    };
    let wide = left.width >= OWN_CURVE && whole.is_none() && name_rows.is_some();
    if let Some(rows) = table_rows.filter(|rows| wide && leaves(rows)) {
        [left, curve] = below(left, rows);
    }
    // Otherwise below the list of names.
    if let (Some(column), Some(rows)) = (right, name_rows.filter(|rows| curve.is_empty() && leaves(rows))) {
        let [names, rest] = below(column, rows);
        (right, curve) = (Some(names), rest);
    }
    if !curve.is_empty() {
        layout.charts.push((lab::step_curve(stage, kind, curve, buf), Chart::Step));
        layout.panels.push((curve, Panel::StepCurve));
    }
    layout.panels.push((left, if forward { Panel::Forward } else { Panel::Ops }));
    layout.panels.extend(right.map(|right| (right, Panel::Alive)));
    if forward {
        layout.rows = forward::table(stage, study, kind, left, buf);
        if let Some(right) = right {
            alive::at_peak(stage, study, right, buf);
        }
        return layout;
    }
    layout.rows = table(stage, study, kind, left, buf);
    if nameless && left.height > 8 {
        let text = "This snapshot doesn't say who asked: torch.cuda.memory._record_memory_history(stacks=\"python\") records it.";
        for (y, line) in (5..left.height - 1).zip(pane::wrap(text, usize::from(left.width.saturating_sub(4)))) {
            put_at(left, 2, y, vec![span(stage.theme, Token::Warn, line)], buf);
        }
    }
    if let Some(right) = right {
        alive::at_peak(stage, study, right, buf);
    }
    layout
}

/// How many rows the table and the names beside it need, if a step's curve may be drawn below them. A table of the
/// whole run covers more than a step.
fn wanted_rows(stage: &Stage<'_>, study: &Study, kind: Frame, names: bool) -> Option<(u16, u16)> {
    let state = &stage.states.ops;
    let of_a_step = !state.whole || study.steps.len() <= 1;
    stage.picture.shown_step().filter(|_| of_a_step)?;
    let frame = if kind == Frame::Box { 2 } else { 1 };
    // The sentence and the heading are above its rows.
    let (mut own, differences) = (study.op_rows(state.totals, state.sort), differing(stage, study));
    let rows = match &differences {
        Some(differences) => own.len() + differences.gone.len(),
        None => usize::from(fold_small(&mut own).is_some()) + own.len(),
    };
    let table = rows + 2 + frame;
    let names = if names { study.at_peak.len() + 2 } else { 0 };
    let rows = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX);
    Some((rows(table), rows(names)))
}

/// The whole table with columns separated by tabs, in bytes and milliseconds, for spreadsheets.
fn rows(stage: &Stage<'_>) -> Clipping {
    let state = &stage.states.ops;
    let Some(study) = stage.picture.study.as_deref() else { return copied::moment(stage) };
    let (kind, when) = (state.totals.label(), window(stage, study));
    let mut text = format!("{kind} {when}, {}\n", copied::whose(stage));
    text.push_str(&format!("{kind}\tcalls\thost ms\ttaken bytes\tkept bytes\tworkspace bytes\tbytes at peak\n"));
    for row in study.op_rows(state.totals, state.sort) {
        let (taken, kept, workspace, peak) = (row.taken.get(), row.kept.get(), row.workspace.get(), row.peak().get());
        let (name, time) = (row.name.replace('\t', " "), milliseconds(row.time));
        text.push_str(&format!("{name}\t{}\t{time}\t{taken}\t{kept}\t{workspace}\t{peak}\n", row.calls));
    }
    Clipping::new("table", &text)
}

/// `61 % activations, 44 % of them log-probabilities`; the second half only if it adds something and fits in `room` cells.
fn sentence(study: &Study, room: usize) -> Option<String> {
    let total = study.peak?.allocated;
    let rows = study.op_rows(OpTotals::Op, Sort::AtPeak);
    let of = |category: Category| -> Bytes { rows.iter().map(|row| row.at_peak[category as usize]).sum() };
    let most = Category::ALL.into_iter().rev().max_by_key(|category| of(*category))?;
    let bytes = of(most);
    let first = study.alive_at_peak_of(most).into_iter().next()?;
    let share = |part: Bytes, whole: Bytes| figures::percent(part.get(), whole.get());
    let all = format!("{} {}", share(bytes, total), most.label());
    let part = share(first.bytes, bytes);
    // A name that is only its category's, or that is all of it, adds nothing.
    let named = part != share(bytes, bytes) && Category::ALL.iter().all(|category| category.label() != first.name);
    // If lines are known, a line says more than a function that every program has.
    let whole = match (naming::place(&first.name), naming::thing(&first.name)) {
        (line, function) if first.name.ends_with(')') && function.starts_with('_') => line,
        _ => &first.name,
    };
    let before = format!("{all}, {part} of them ");
    let left = room.saturating_sub(before.width());
    let name = pane::cut_name(whole, left);
    // A name cut into two pieces is worse than none.
    let begins = name.starts_with('…') || name.chars().next() == whole.chars().next();
    let pieces = name.matches('…').count() + usize::from(!begins);
    let readable = left >= LEAST_NAME.min(whole.width()) && pieces < 2;
    Some(if named && readable { before + &name } else { all })
}

fn window(stage: &Stage<'_>, study: &Study) -> String {
    let first = study.steps.first().map_or(stage.view().steps.finished, |step| step.what);
    match (&stage.picture.kind, stage.states.ops.whole) {
        // Not every snapshot has steps.
        (SourceKind::Snapshot(_), true) => "of the recording".to_owned(),
        (SourceKind::Snapshot(_), false) if study.steps.is_empty() => "of the recording".to_owned(),
        (_, true) => {
            let last = study.steps.last().map_or(first, |step| step.what);
            format!("of steps {first}–{last}")
        }
        (_, false) => format!("of step {first}"),
    }
}

/// One column of figures.
struct OpsColumn {
    head: &'static str,
    sort: Option<Sort>,
    width: usize,
    figure: fn(&OpRow, ByteUnit) -> String,
    /// Shown from this width on.
    from: u16,
    /// True if only a run has it: a snapshot does not record when an op ends.
    of_a_run: bool,
}

/// The width of the column of differences, and the least width of names.
const DELTA: usize = 12;
const LEAST_NAMES: usize = 24;
/// The width of a bar, if there is room.
const BAR: usize = 20;
/// Rows of less than this are combined if there are many of them and another row has many times as much.
const SMALL: Bytes = Bytes::mib(1);
const FEWEST_SMALL: usize = 3;
const TELLING: u64 = 100;
/// The least width of a name in a sentence.
const LEAST_NAME: usize = 12;

const COLUMNS: &[OpsColumn] = &[
    OpsColumn {
        head: "calls",
        sort: Some(Sort::Calls),
        width: 6,
        figure: |row, _| row.calls.to_string(),
        from: 50,
        of_a_run: true,
    },
    OpsColumn {
        head: "host ms",
        sort: Some(Sort::Time),
        width: 9,
        figure: |row, _| milliseconds(row.time),
        from: 60,
        of_a_run: true,
    },
    OpsColumn {
        head: "taken",
        sort: Some(Sort::Taken),
        width: 8,
        figure: |row, unit| unit.or_smaller(row.taken),
        from: 0,
        of_a_run: false,
    },
    OpsColumn {
        head: "kept",
        sort: Some(Sort::Kept),
        width: 8,
        figure: |row, unit| unit.or_smaller(row.kept),
        from: 0,
        of_a_run: true,
    },
    OpsColumn {
        head: "workspace",
        sort: None,
        width: 11,
        figure: |row, unit| unit.or_smaller(row.workspace),
        from: 96,
        of_a_run: false,
    },
    OpsColumn {
        head: "at peak",
        sort: Some(Sort::AtPeak),
        width: 10,
        figure: |row, unit| unit.or_smaller(row.peak()),
        from: 0,
        of_a_run: false,
    },
];

fn milliseconds(time: Micros) -> String {
    figures::milliseconds(time)
}

/// Explanations of the columns, if rows are left over.
const ABOUT: [(&str, &str); 3] =
    [("taken", "taken: allocated"), ("kept", "kept: not freed by it"), ("at peak", "at peak: alive at the peak")];

/// Draws the table. Returns the number of rows, and how many are visible.
fn table(stage: &Stage<'_>, study: &Study, kind: Frame, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let theme = stage.theme;
    let state = &stage.states.ops;
    let mut rows = study.op_rows(state.totals, state.sort);
    let differences = differing(stage, study);
    let is_alike = differences.is_none() && self::differences(stage, study).is_some();
    if let Some(differences) = &differences {
        rows.extend(differences.gone.iter());
        rows.sort_by_key(|row| std::cmp::Reverse(differences.of(row).unsigned_abs()));
    }
    let small = if differences.is_some() { None } else { fold_small(&mut rows) };
    rows.extend(&small);
    let peak = study.peak.map_or(Bytes::ZERO, |peak| peak.allocated);
    let longest = rows.iter().map(|row| row.peak()).max().unwrap_or_default();
    let by = |row: &&OpRow| differences.as_ref().map_or(0, |differences| differences.of(row).unsigned_abs());
    let most_by = rows.iter().map(by).max().unwrap_or(0);
    let largest = rows.iter().map(|row| row.taken.max(row.peak())).max().unwrap_or_default();
    let unit = ByteUnit::for_largest(largest);
    let title = vec![
        span(theme, Token::Title, format!("by {}", state.totals.label())),
        span(theme, Token::Dim, format!(" {} · {}", window(stage, study), unit.name())),
    ];
    let against = stage.picture.pinned.as_ref().map(|pinned| {
        let step = pinned.step.step;
        let words = match (&differences, is_alike) {
            (Some(_), _) => format!(" · Δ against step {step}"),
            (None, true) => format!(" · as step {step}: no op differs at the peak"),
            (None, false) => format!(" · Δ reading step {step}"),
        };
        span(theme, Token::Accent, words)
    });
    let title = title.into_iter().chain(against).collect();
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if inner.height < 3 {
        return (rows.len(), 0);
    }
    let room = usize::from(inner.width).saturating_sub("at the peak : ".width() + figures::bytes(peak).width());
    if let Some(said) = sentence(study, room) {
        let line = vec![
            span(theme, Token::Text, "at the peak "),
            span(theme, Token::Strong, figures::bytes(peak)),
            span(theme, Token::Text, format!(": {said}")),
        ];
        pane::put(inner, 0, line, buf);
    }
    let can_be_known = |column: &&OpsColumn| !column.of_a_run || !matches!(stage.picture.kind, SourceKind::Snapshot(_));
    let mut columns: Vec<&OpsColumn> =
        COLUMNS.iter().filter(|column| inner.width >= column.from).filter(can_be_known).collect();
    let delta = if differences.is_some() { DELTA } else { 0 };
    let least = match inner.width {
        82.. => BAR,
        70.. => BAR / 2,
        _ => 5,
    };
    let taken = |columns: &[&OpsColumn]| columns.iter().map(|column| column.width).sum::<usize>() + delta;
    // Differences come before the time per run of an op.
    while delta > 0 && columns.len() > 2 && taken(&columns) + least + LEAST_NAMES > usize::from(inner.width) {
        columns.remove(0);
    }
    let figures_width = taken(&columns);
    // Names take what they need, and bars the rest.
    let most = usize::from(inner.width).saturating_sub(figures_width + least + 1);
    let names = most.min(rows.iter().map(|row| row.name.width() + 2).max().unwrap_or(0).max(LEAST_NAMES));
    let bar = usize::from(inner.width).saturating_sub(names + figures_width + 1);
    let head = Rect { y: inner.y + 1, height: 1, ..inner };
    let heading = match state.totals {
        OpTotals::Op => "op",
        OpTotals::Module => "module, or file",
        OpTotals::Place => "module or line",
    };
    put(head, 0, vec![span(theme, Token::Dim, heading)], buf);
    let mut x = names;
    for column in &columns {
        let sorted = delta == 0 && column.sort == Some(state.sort);
        let text = format!(
            "{:>width$}",
            match sorted {
                true if column.head.len() + 2 < column.width => format!("▼ {}", column.head),
                true => format!("▼{}", column.head),
                false => column.head.to_owned(),
            },
            width = column.width
        );
        let token = if sorted { Token::Strong } else { Token::Dim };
        put_at(head, u16::try_from(x).unwrap_or(u16::MAX), 0, vec![span(theme, token, text)], buf);
        x += column.width;
    }
    if delta > 0 {
        let text = format!("{:>delta$}", "▼ Δ at peak");
        put_at(head, u16::try_from(x).unwrap_or(u16::MAX), 0, vec![span(theme, Token::Strong, text)], buf);
    }
    let of_snapshot = matches!(stage.picture.kind, SourceKind::Snapshot(_));
    let body = Rect { y: inner.y + 2, height: inner.height - 2, ..inner };
    let seen = usize::from(body.height);
    let first = stage.scroll.min(rows.len().saturating_sub(seen));
    for (y, row) in (0..body.height).zip(&rows[first..]) {
        put(body, y, vec![named(row, state.totals, of_snapshot, names.saturating_sub(1), theme)], buf);
        let mut x = names;
        for column in &columns {
            let figure = (column.figure)(row, unit);
            let zero = matches!(figure.as_str(), "0" | "0.0" | "0.00");
            let text = format!("{:>width$}", if zero { "·".to_owned() } else { figure }, width = column.width);
            let token = if zero {
                Token::Dim
            } else if column.sort == Some(state.sort) {
                Token::Strong
            } else {
                Token::Text
            };
            put_at(body, u16::try_from(x).unwrap_or(u16::MAX), y, vec![span(theme, token, text)], buf);
            x += column.width;
        }
        if let Some(differences) = &differences {
            let by = differences.of(row);
            let (sign, token) = match by {
                0 => ("", Token::Dim),
                1.. => ("+", Token::Warn),
                _ => ("−", Token::Ok),
            };
            let figure = if by == 0 { "·".to_owned() } else { unit.or_smaller(Bytes(by.unsigned_abs())) };
            let text = format!("{:>delta$}", format!("{sign}{figure}"));
            put_at(body, u16::try_from(x).unwrap_or(u16::MAX), y, vec![span(theme, token, text)], buf);
            x += delta;
        }
        let at = Rect { x: body.x + u16::try_from(x + 1).unwrap_or(0), y: body.y + y, width: bar as u16, height: 1 };
        // A bar shows the figure beside it.
        match &differences {
            Some(differences) => {
                let by = differences.of(row);
                let token = if by > 0 { Token::Warn } else { Token::Ok };
                share::draw_plain(by.unsigned_abs(), most_by, token, theme, at, buf);
            }
            None => share::draw(&row.at_peak, longest, theme, at, buf),
        }
    }
    let about = ABOUT.into_iter().filter(|(head, _)| columns.iter().any(|column| column.head == *head));
    let about = about.map(|(_, words)| words).collect::<Vec<_>>().join(" · ");
    if rows.len() + 1 < seen && about.width() <= usize::from(body.width) {
        put(body, body.height - 1, vec![span(theme, Token::Dim, about)], buf);
    }
    (rows.len(), seen)
}

/// Removes rows that are tiny compared with the largest, and returns their sum as one row.
fn fold_small(rows: &mut Vec<&OpRow>) -> Option<OpRow> {
    let bytes = |row: &OpRow| row.taken.max(row.peak()).max(row.workspace);
    let is_small = |row: &&OpRow| bytes(row) < SMALL;
    let count = rows.iter().filter(|row| is_small(row)).count();
    if count < FEWEST_SMALL || rows.iter().all(|row| bytes(row).get() < SMALL.get() * TELLING) {
        return None;
    }
    let mut all = OpRow { name: format!("{count} more under 1 MiB"), ..OpRow::default() };
    for row in rows.iter().filter(|row| is_small(row)) {
        all.calls += row.calls;
        all.time = Micros(all.time.0 + row.time.0);
        all.blocks += row.blocks;
        (all.taken, all.kept) = (all.taken + row.taken, all.kept + row.kept);
        all.workspace = all.workspace.max(row.workspace);
        all.at_peak.iter_mut().zip(row.at_peak).for_each(|(all, bytes)| *all += bytes);
    }
    rows.retain(|row| !is_small(row));
    Some(all)
}

/// A row's name in `cells` cells. Blocks that no op allocated are listed under their category.
fn named(row: &OpRow, totals: OpTotals, of_snapshot: bool, cells: usize, theme: &Theme) -> Span<'static> {
    let without = row.calls == 0 && Category::ALL.iter().any(|category| category.label() == row.name);
    match (without, totals) {
        (true, OpTotals::Op) => {
            // A lab allocates parameters before the first op.
            let why = match row.name == Category::Parameter.label() {
                true if !of_snapshot => "before ops",
                _ => "no op",
            };
            span(theme, Token::Dim, pane::cut(&format!("{} ({why})", row.name), cells))
        }
        (true, _) => span(theme, Token::Dim, pane::cut(&row.name, cells)),
        (false, _) => span(theme, Token::Text, pane::cut_name(&row.name, cells)),
    }
}

/// The differences from the pinned step's rows, in bytes alive at the peak.
struct Differences {
    pinned: HashMap<String, u64>,
    /// Rows that only the pinned step has.
    gone: Vec<OpRow>,
}

impl Differences {
    fn of(&self, row: &OpRow) -> i64 {
        let (here, there) = (row.peak().get(), self.pinned.get(&row.name).copied().unwrap_or(0));
        i64::try_from(here).unwrap_or(i64::MAX).saturating_sub(i64::try_from(there).unwrap_or(i64::MAX))
    }
}

/// The differences, if any row differs: a column of dots alone would be of no use.
fn differing(stage: &Stage<'_>, study: &Study) -> Option<Differences> {
    let rows = study.op_rows(stage.states.ops.totals, stage.states.ops.sort);
    differences(stage, study).filter(|found| !found.gone.is_empty() || rows.iter().any(|row| found.of(row) != 0))
}

/// `None` if no step is pinned, or nothing is known of it yet.
fn differences(stage: &Stage<'_>, study: &Study) -> Option<Differences> {
    let other = stage.picture.pinned.as_ref()?.study.as_deref()?;
    let totals = stage.states.ops.totals;
    let here: HashSet<&str> = study.op_rows(totals, Sort::AtPeak).into_iter().map(|row| &*row.name).collect();
    let there = other.op_rows(totals, Sort::AtPeak);
    let only = there.iter().filter(|row| !here.contains(&*row.name) && row.peak() > Bytes::ZERO);
    let gone = only.map(|row| OpRow { name: row.name.clone(), ..OpRow::default() }).collect();
    Some(Differences { pinned: there.iter().map(|row| (row.name.clone(), row.peak().get())).collect(), gone })
}
