//! The ledger: the accounts of every reserved byte over time, the bytes lost in holes, and the remedies.
//!
//! ```text
//!  from 100×26 on                               smaller
//!  ╭ ledger ──────────────╮╭ accounts ─────╮    ─ ledger ──────────
//!  │                      ││               │    ─ fragmentation ───
//!  ╰──────────────────────╯╰───────────────╯    accounts
//!  ╭ fragmentation ───────╮╭ the driver's ─╮    ─ pools ───────────
//!  ╰──────────────────────╯│ view          │    driver
//!  ╭ pools ───────────────╮│               │    ─ findings ────────
//!  ╰──────────────────────╯╰───────────────╯
//!  ╭ findings ─────────────────────────────╮
//!  ╰───────────────────────────────────────╯
//! ```

mod accounts;
mod charts;
mod driver;
mod findings;
mod pools;
mod worst;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use crate::drawing::pane::Frame;
use crate::source::{Picture, StudyRequest};
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::copied;
use crate::tui::large::Large;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::stage::{Chart, FrameLayout, Stage};
use crate::tui::states::{LedgerAction, ScreenAction, ScreenStates};

pub(crate) const SCREEN: Screen = Screen {
    key: '6',
    title: "Ledger",
    draw,
    wants,
    copied: copied::moment,
    large: &[Large::Reserved, Large::Stranded],
    bindings,
};

/// From this size on there is a column of panes at the right.
const TWO_COLUMNS: (u16, u16) = (100, 26);
/// The width of that column.
const RIGHT: u16 = 46;
/// From this height on there is a strip for the stranded share; below it, the chart of all accounts has these rows.
const WITH_STRIP: u16 = 26;
/// From this width on that column is wider beside a ghost.
const WITH_A_GHOST: u16 = 140;

fn bindings() -> Vec<Binding> {
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Ledger(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, KeyGroup::View, hint, help);
    use LedgerAction::{Finding, Go, NextRemedy, Peak, Window};
    vec![
        view(&[named(KeyCode::Down), plain('j')], "↓ j", own(Finding(1)), "finding", "select the next finding"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", own(Finding(-1)), "", "select the previous finding"),
        view(
            &[named(KeyCode::Enter)],
            "Enter",
            own(Go),
            "its place",
            "move the cursor to where the finding can be seen",
        )
        .brief("go to where the finding can be seen"),
        view(&[plain('d')], "d", Action::Remedy, "do it", "apply the remedy of the finding"),
        view(&[plain('v')], "v", own(NextRemedy), "", "choose the next remedy of the finding"),
        view(&[plain('0')], "0", own(Window), "step or run", "chart the step around the cursor, or the whole run")
            .brief("chart this step, or the whole run"),
        view(&[plain('^')], "^", own(Peak), "peak", "move the cursor to the peak of reserved"),
    ]
}

fn wants(states: &mut ScreenStates, _: &Picture) -> Option<StudyRequest> {
    Some(states.ledger.wanted())
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let sums = stage.states.ledger.sums(&stage.shown.segments);
    let pools = &sums.pools;
    if area.width >= TWO_COLUMNS.0 && area.height >= TWO_COLUMNS.1 {
        let wanted = findings::wanted_rows(stage, area.width.saturating_sub(4)) + 2;
        let [top, bottom] = rows(area, wanted.clamp(5, area.height / 3));
        let [left, right] = area_columns(top, stage);
        let table = pools::wanted_rows(pools) + 2;
        let [left, table] = rows(left, table.min(left.height / 3));
        let [chart, under] = left.layout::<2>(&Split::vertical([Constraint::Fill(5), Constraint::Fill(3)]));
        charts(stage, Frame::Box, chart, under, buf, &mut layout);
        pools::render(pools, stage.theme, Frame::Box, table, buf);
        let driver = driver::wanted_rows(stage, right.width);
        let spare = right.height.saturating_sub(driver);
        let figures = match spare {
            spare if spare >= accounts::most_rows(stage) + worst::FEWEST_ROWS => accounts::most_rows(stage),
            spare if spare >= accounts::wanted_rows(stage) + worst::FEWEST_ROWS => accounts::wanted_rows(stage),
            spare => spare,
        };
        let parts = [Constraint::Length(figures), Constraint::Min(0), Constraint::Length(driver)];
        let [figures, worst, driver] = right.layout::<3>(&Split::vertical(parts));
        accounts::render(stage, figures, buf);
        worst::render(stage, &sums.worst, worst, buf);
        driver::render(stage, driver, buf);
        findings::render(stage, Frame::Box, bottom, buf, &mut layout.targets);
        layout.panels.extend([
            (table, Panel::Pools),
            (figures, Panel::Accounts),
            (worst, Panel::Worst),
            (driver, Panel::Driver),
            (bottom, Panel::Why),
        ]);
    } else {
        let part = |share: u16, from: u16| if area.height >= from { (area.height / share).max(3) } else { 0 };
        let table = (pools::wanted_rows(pools) + 1).min(part(4, 16).max(2));
        let [chart, under, sums, table, driver, told] = area.layout::<6>(&Split::vertical([
            Constraint::Min(0),
            Constraint::Length(part(6, WITH_STRIP)),
            Constraint::Length(accounts::line_rows(stage)),
            Constraint::Length(if area.height >= 14 { table } else { 0 }),
            Constraint::Length(u16::from(area.height >= 18)),
            Constraint::Length((area.height / 4).max(3)),
        ]));
        charts(stage, Frame::Rule, chart, under, buf, &mut layout);
        accounts::render_lines(stage, sums, buf);
        pools::render(pools, stage.theme, Frame::Rule, table, buf);
        driver::render_line(stage, driver, buf);
        findings::render(stage, Frame::Rule, told, buf, &mut layout.targets);
        layout.panels.extend([
            (sums, Panel::Accounts),
            (table, Panel::Pools),
            (driver, Panel::Driver),
            (told, Panel::Why),
        ]);
    }
    layout
}

/// The upper part, and a lower part of `lower` rows.
fn rows(area: Rect, lower: u16) -> [Rect; 2] {
    area.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(lower)]))
}

/// The two columns. If there is room, the right one has a column for a ghost.
fn area_columns(area: Rect, stage: &Stage<'_>) -> [Rect; 2] {
    let wide = stage.picture.ghost.is_some() && area.width >= WITH_A_GHOST;
    let right = if wide { RIGHT + 10 } else { RIGHT.max(area.width * 3 / 10) };
    area.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(right)]))
}

fn charts(stage: &Stage<'_>, kind: Frame, chart: Rect, under: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    for plot in charts::render(stage, kind, chart, under, buf) {
        layout.charts.push((plot, Chart::Window));
    }
    layout.panels.extend([(chart, Panel::LedgerChart), (under, Panel::Fragmentation)]);
}
