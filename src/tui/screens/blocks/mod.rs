//! Blocks: every segment of every pool and stream, and details of the selection.
//!
//! ```text
//!  from 100 columns on                        smaller
//!  ╭ blocks ─────────────╮╭ block ────────╮   ─ blocks ──────────
//!  │                     ││               │   ─ block ───────────
//!  ╰─────────────────────╯│               │
//!  ╭ segments ───────────╮│               │
//!  ╰─────────────────────╯╰───────────────╯
//!
//!  with a ghost, from 100 columns on          smaller
//!  ╭ of the run ───╮╭ of the ghost ───╮       ─ of the run ────────
//!  │               ││                 │       ─ of the ghost ──────
//!  ╰───────────────╯╰─────────────────╯       ─ block ─────────────
//!  ─ run and ghost, or the block ──────
//! ```

mod beside;
mod chart;
mod detail;
mod story;
mod table;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use crate::drawing::map::Survey;
use crate::drawing::pane::Frame;
use crate::model::Grouping;
use crate::source::{Picture, StudyRequest, Window};
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::copied::Clipping;
use crate::tui::holders;
use crate::tui::large::Large;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::stage::{FrameLayout, Stage};
use crate::tui::states::{BlocksAction, Lookup, ScreenAction, ScreenStates, SelectedPart};

pub(crate) const SCREEN: Screen = Screen {
    key: '2',
    title: "Blocks",
    draw,
    wants,
    copied: selected,
    large: &[Large::Reserved, Large::Stranded],
    bindings,
};

/// From this width on the selection's details are at the right.
const TWO_COLUMNS: u16 = 100;
/// From this height on there is a table below the map.
const WITH_TABLE: u16 = 40;
/// Rows for the overview of all segments with the keys that select, and the fewest rows worth a list of holders.
const OVERVIEW: u16 = 17;
const LEAST: u16 = 6;
/// Rows for the overview under a rule, in two columns.
const SHORT: u16 = 5;
const LEAST_HELD: u16 = 3;
/// From this width on facts are in two columns, and take one row less.
const ABREAST: u16 = 70;

fn bindings() -> Vec<Binding> {
    use BlocksAction::{
        Coloring, LargestBlock, LargestHole, Next, NextSegment, OfOp, Order, Peak, Previous, PreviousSegment, ZoomAll,
        ZoomIn, ZoomOut,
    };
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Blocks(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, KeyGroup::View, hint, help);
    vec![
        view(
            &[plain('_')],
            "_",
            own(LargestHole),
            "hole",
            "the largest hole and who holds its segment; again: next smaller",
        )
        .brief("the largest hole, then the next smaller"),
        view(&[plain('#')], "#", own(LargestBlock), "largest", "the largest block; again: the next smaller one")
            .brief("the largest block, then the next smaller"),
        view(&[plain('i')], "i", own(Next), "next", "the next block by address that the filter leaves")
            .brief("the next block that the filter leaves"),
        view(&[plain('I')], "I", own(Previous), "", "the previous block"),
        view(&[plain('@')], "@", own(OfOp), "", "a block this op allocated or freed; again: its next block")
            .brief("a block of this op, then its next block"),
        view(&[plain(';')], ";", own(NextSegment), "segment", "the next segment on the map"),
        view(&[plain('\'')], "'", own(PreviousSegment), "", "the previous segment"),
        view(
            &[plain('/')],
            "/",
            Action::Filter(Lookup::Blocks),
            "filter",
            "filter by words of a name, an op or a category",
        )
        .brief("filter by name, op or category"),
        view(&[plain('v')], "v", own(Coloring), "by", "colour by category, module, age, stream and pool, account")
            .brief("colour by category, module, age and more"),
        view(&[plain('u')], "u", own(Order), "sort", "sort segments: address, size, most stranded, least used")
            .brief("sort segments by address, size and more"),
        view(&[plain('+'), plain(']')], "+ ]", own(ZoomIn), "zoom in", "zoom in: half as many bytes to a cell"),
        view(&[plain('-'), plain('[')], "- [", own(ZoomOut), "zoom out", "zoom out, until all segments are seen"),
        view(&[plain('0')], "0", own(ZoomAll), "", "show all segments"),
        view(&[plain('^')], "^", own(Peak), "peak", "move the cursor to the peak of the step"),
        view(&[named(KeyCode::Down), plain('j')], "↓ j", Action::Scroll(1), "", "scroll the map down"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", Action::Scroll(-1), "", "scroll the map up"),
        view(&[plain('J')], "J", Action::ScrollPage(1), "", "next page of the map"),
        view(&[plain('K')], "K", Action::ScrollPage(-1), "", "previous page of the map"),
    ]
}

/// The step around the cursor, which shows when a block dies.
fn wants(_: &mut ScreenStates, _: &Picture) -> Option<StudyRequest> {
    Some(StudyRequest { window: Window::Step, grouping: Grouping::Category })
}

/// The selection, or else the overview.
fn selected(stage: &Stage<'_>) -> Clipping {
    let state = &stage.states.blocks;
    let survey = state.survey(stage.shown, &stage.picture.history);
    detail::copied(stage, &survey, state.picked(&stage.shown.segments))
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let state = &stage.states.blocks;
    let survey = state.survey(stage.shown, &stage.picture.history);
    let picked = state.picked(&stage.shown.segments);
    if state.selected.is_some() || survey.is_filtered() {
        layout.leave = Some(Action::Own(ScreenAction::Blocks(BlocksAction::Leave)));
    }
    layout.focus = state.selected.map(|_| Panel::Detail);
    if stage.picture.ghost.is_some() {
        haunted(stage, &survey, picked, area, buf, &mut layout);
    } else if area.width >= TWO_COLUMNS && area.height >= 16 {
        let right = (area.width / 3).clamp(44, 60);
        let [left, right] = area.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(right)]));
        let under = if area.height >= WITH_TABLE { area.height / 4 } else { 0 };
        let [map, under] = left.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(under)]));
        chart::render(stage, &survey, picked, Frame::Box, map, buf, &mut layout);
        table::render(stage, &survey, picked, under, buf);
        // Without a selection there is room for the holders.
        let shares = state.selected.is_none() && right.height >= OVERVIEW + LEAST && holders::are_shown(stage);
        let overview = if shares { OVERVIEW } else { right.height };
        let [detail, held] = right.layout::<2>(&Split::vertical([Constraint::Length(overview), Constraint::Min(0)]));
        detail::render(stage, &survey, picked, Frame::Box, detail, buf);
        layout.panels.extend([(map, Panel::Map), (under, Panel::Segments), (detail, Panel::Detail)]);
        if !held.is_empty() {
            holders::render(stage, Frame::Box, held, buf);
            layout.panels.push((held, Panel::Alive));
        }
    } else {
        let under = (area.height * 3 / 7).clamp(4, 11);
        let [map, under] = area.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(under)]));
        chart::render(stage, &survey, picked, Frame::Rule, map, buf, &mut layout);
        // Without a selection there is room for the holders.
        let short = if area.width >= ABREAST { SHORT - 1 } else { SHORT };
        let shares = state.selected.is_none() && under.height >= short + LEAST_HELD && holders::are_shown(stage);
        let overview = if shares { short } else { under.height };
        let [detail, held] = under.layout::<2>(&Split::vertical([Constraint::Length(overview), Constraint::Min(0)]));
        detail::render(stage, &survey, picked, Frame::Rule, detail, buf);
        layout.panels.extend([(map, Panel::Map), (detail, Panel::Detail)]);
        if !held.is_empty() {
            holders::render(stage, Frame::Rule, held, buf);
            layout.panels.push((held, Panel::Alive));
        }
    }
    layout
}

/// Draws the run's map and a ghost's at one scale, with the selection's details below.
fn haunted(
    stage: &Stage<'_>,
    survey: &Survey,
    picked: Option<SelectedPart>,
    area: Rect,
    buf: &mut Buffer,
    layout: &mut FrameLayout,
) {
    let abreast = area.width >= TWO_COLUMNS && area.height >= 16;
    let under = if abreast { (area.height / 4).clamp(5, 14) } else { (area.height / 4).clamp(5, 8) };
    let [maps, under] = area.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(under)]));
    let (kind, halves) = if abreast {
        let half = maps.width / 2;
        (Frame::Box, Split::horizontal([Constraint::Length(half), Constraint::Min(0)]))
    } else {
        (Frame::Rule, Split::vertical([Constraint::Length(maps.height / 2), Constraint::Min(0)]))
    };
    let [run, ghost] = maps.layout::<2>(&halves);
    chart::render(stage, survey, picked, kind, run, buf, layout);
    let cells = layout.map.unwrap_or_default();
    beside::render(stage, survey, picked, (kind, cells), ghost, buf);
    layout.panels.extend([(run, Panel::Map), (ghost, Panel::Map)]);
    if stage.states.blocks.selected.is_some() {
        detail::render(stage, survey, picked, Frame::Rule, under, buf);
        layout.panels.push((under, Panel::Detail));
    } else {
        beside::render_table(stage, under, buf);
        layout.panels.push((under, Panel::Accounts));
    }
}
