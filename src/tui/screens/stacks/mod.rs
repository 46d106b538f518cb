//! Stacks: who allocated the memory at the cursor, as a tree of frames, lines, files, modules or categories.
//!
//! ```text
//!  from 110 columns on                        smaller
//!  ╭ stacks ─────────────╮╭ frame ────────╮   ─ stacks ──────────
//!  │ one area a branch   ││               │   ─ its parts ───────
//!  ╰─────────────────────╯│               │   ─ frame ───────────
//!  ╭ its parts ──────────╮│               │
//!  ╰─────────────────────╯╰───────────────╯
//!  ╭ this step, where rows are left ──────╮
//!  ╰──────────────────────────────────────╯
//! ```

mod detail;
mod icicle;
mod staying;
mod table;

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
use crate::tui::screens::lab;
use crate::tui::stage::{Chart, FrameLayout, Stage};
use crate::tui::states::{Lookup, ScreenAction, ScreenStates, StacksAction};

pub(crate) const SCREEN: Screen = Screen {
    key: '7',
    title: "Stacks",
    draw,
    wants,
    copied: copied::moment,
    large: &[Large::Allocated, Large::Peak],
    bindings,
};

/// From this width on the selection's details are at the right.
const TWO_COLUMNS: u16 = 110;
/// The fewest rows of a useful step curve, with its frame.
const LEAST_CURVE: u16 = 10;

fn bindings() -> Vec<Binding> {
    use StacksAction::{Into, Next, NextSibling, Out, Peak, Previous, PreviousSibling, Shape};
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Stacks(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, KeyGroup::View, hint, help);
    vec![
        view(&[named(KeyCode::Down), plain('j')], "↓ j", own(Next), "select", "select the next row"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", own(Previous), "", "select the previous row"),
        view(&[plain(';')], ";", own(NextSibling), "", "select the next sibling"),
        view(&[plain('\'')], "'", own(PreviousSibling), "", "select the previous sibling"),
        view(&[named(KeyCode::Enter)], "Enter", own(Into), "into", "open the selected row"),
        view(&[named(KeyCode::Backspace)], "Backspace", own(Out), "out", "back to the row it is part of"),
        view(&[plain('v')], "v", own(Shape), "by", "group by stack, line, file, module, category; or by name")
            .brief("group by stack, line, file, module or name"),
        view(&[plain('^')], "^", own(Peak), "peak", "move the cursor to the peak; again: back to where it was")
            .brief("go to the peak, and back again"),
        view(
            &[plain('/')],
            "/",
            Action::Filter(Lookup::Stacks),
            "search",
            "search for part of a line, function, name or category",
        )
        .brief("search lines, functions and names"),
    ]
}

fn wants(_: &mut ScreenStates, _: &Picture) -> Option<StudyRequest> {
    None
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let state = &stage.states.stacks;
    let looked = |rows: u16| state.looked(stage.shown, usize::from(rows.saturating_sub(1)));
    if state.is_narrowed() {
        layout.leave = Some(Action::Own(ScreenAction::Stacks(StacksAction::Leave)));
    }
    let wide = area.width >= TWO_COLUMNS && area.height >= 16;
    let kind = if wide { Frame::Box } else { Frame::Rule };
    if wide {
        let side = (area.width * 2 / 5).clamp(44, 64);
        let beside = Split::horizontal([Constraint::Min(0), Constraint::Length(side)]);
        let [left, _] = area.layout::<2>(&beside);
        let levels = icicle::levels(&looked(0), left.width.saturating_sub(2));
        // Levels have a second row for figures if the table leaves room.
        let most = u16::try_from(looked(left.height).rows.len()).unwrap_or(u16::MAX).saturating_add(3);
        let rows = 1 + u16::from(left.height.saturating_sub(2 * levels + 2) >= most);
        let top = (rows * levels + 2).clamp(4, (area.height * 9 / 20).max(6));
        // Rows that the table does not need show the step, and where in it the moment of these stacks is.
        let unused = left.height.saturating_sub(top + most);
        let curve = if unused >= LEAST_CURVE && stage.picture.shown_step().is_some() { unused } else { 0 };
        let [above, curve] = area.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(curve)]));
        let [left, right] = above.layout::<2>(&beside);
        let [top, middle] = left.layout::<2>(&Split::vertical([Constraint::Length(top), Constraint::Min(0)]));
        let looked = looked(middle.height.saturating_sub(2));
        icicle::render(stage, &looked, kind, rows, top, buf, &mut layout.targets);
        layout.rows = table::render(stage, &looked, kind, middle, buf, &mut layout.targets);
        if !curve.is_empty() {
            layout.charts.push((lab::step_curve(stage, kind, curve, buf), Chart::Step));
            layout.panels.push((curve, Panel::StepCurve));
        }
        detail::render(stage, &looked, kind, right, buf);
    } else {
        // The root needs no more details than the rows of its children give.
        let all = looked(0);
        let is_all = all.flame.get(all.selected).is_none_or(|selected| selected.parent.is_none());
        let told = if is_all { 0 } else { 5.min(area.height / 4) };
        let deepest = icicle::levels(&looked(0), area.width) + 1;
        let top = deepest.clamp(3, (area.height * 2 / 5).max(4));
        let rows = [Constraint::Length(top), Constraint::Min(0), Constraint::Length(told)];
        let [top, middle, bottom] = area.layout::<3>(&Split::vertical(rows));
        let looked = looked(middle.height.saturating_sub(1));
        icicle::render(stage, &looked, kind, 1, top, buf, &mut layout.targets);
        layout.rows = table::render(stage, &looked, kind, middle, buf, &mut layout.targets);
        if !bottom.is_empty() {
            detail::render(stage, &looked, kind, bottom, buf);
        }
    }
    layout
}
