//! Mouse actions: clicks and drags by their position, the wheel by its direction; and the panel under the mouse.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use crate::tui::action::Action;
use crate::tui::panel::Panel;
use crate::tui::stage::{Chart, FrameLayout};
use crate::tui::states::{BlocksAction, LabAction, ScreenAction, TimelineAction};

/// Where the mouse was last seen on the current screen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pointer {
    /// Where it moved to, if no key was pressed since.
    moved: Option<Position>,
    clicked: Option<Position>,
}

impl Pointer {
    /// Takes in a mouse event.
    pub fn take(&mut self, mouse: MouseEvent) {
        let position = Position::new(mouse.column, mouse.row);
        self.moved = Some(position);
        if let MouseEventKind::Down(_) = mouse.kind {
            self.clicked = Some(position);
        }
    }

    /// Notes that a key was pressed: a mouse at rest then points at nothing.
    pub fn rest(&mut self) {
        self.moved = None;
    }

    /// The panel under the mouse, or else the last one clicked.
    pub fn panel(&self, layout: &FrameLayout) -> Option<Panel> {
        [self.moved, self.clicked].into_iter().flatten().find_map(|position| layout.panel_at(position))
    }
}

/// What is asked for on a frame of this layout.
pub(super) fn action_of(mouse: MouseEvent, layout: &FrameLayout) -> Option<Action> {
    let position = Position::new(mouse.column, mouse.row);
    match mouse.kind {
        MouseEventKind::ScrollDown => Some(Action::Scroll(1)),
        MouseEventKind::ScrollUp => Some(Action::Scroll(-1)),
        MouseEventKind::Down(MouseButton::Left) => {
            in_chart(position, layout).or_else(|| in_map(position, layout)).or_else(|| target(position, layout))
        }
        MouseEventKind::Drag(MouseButton::Left) => in_chart(position, layout),
        MouseEventKind::Down(MouseButton::Right) => layout.panel_at(position).map(Action::HelpOn),
        _ => None,
    }
}

/// The moment under the mouse.
fn in_chart(position: Position, layout: &FrameLayout) -> Option<Action> {
    let inside = |(area, _): &&(Rect, Chart)| area.contains(position);
    let &(area, chart) = layout.charts.iter().find(inside)?;
    let column = position.x - area.x;
    Some(Action::Own(match chart {
        Chart::History => ScreenAction::Lab(LabAction::HistoryColumn(column, area.width)),
        Chart::Step => ScreenAction::Lab(LabAction::StepColumn(column, area.width)),
        Chart::Window => ScreenAction::Timeline(TimelineAction::Column(column, area.width)),
    }))
}

/// The cell of the map under the mouse.
fn in_map(position: Position, layout: &FrameLayout) -> Option<Action> {
    let cell = |area: Rect| area.contains(position).then(|| (position.x - area.x, position.y - area.y));
    let on_blocks = |(column, row)| ScreenAction::Blocks(BlocksAction::Cell(column, row));
    let on_lab = |(column, row)| ScreenAction::Lab(LabAction::Cell(column, row));
    let blocks = layout.map.and_then(cell).map(on_blocks);
    blocks.or_else(|| layout.overview.and_then(cell).map(on_lab)).map(Action::Own)
}

/// The topmost target at a position.
fn target(position: Position, layout: &FrameLayout) -> Option<Action> {
    let target = layout.targets.iter().rev().find(|(area, _)| area.contains(position));
    target.map(|(_, action)| *action)
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyModifiers;

    use super::*;

    #[test]
    fn clicks_do_what_lies_on_top_and_drags_stay_in_charts() {
        let layout = FrameLayout {
            targets: vec![(Rect::new(0, 0, 80, 1), Action::ToggleHelp), (Rect::new(10, 0, 5, 1), Action::Quit)],
            map: Some(Rect::new(40, 10, 20, 5)),
            panels: vec![(Rect::new(0, 10, 80, 5), Panel::Why), (Rect::new(40, 10, 20, 5), Panel::Map)],
            charts: vec![(Rect::new(4, 2, 20, 5), Chart::History), (Rect::new(4, 8, 30, 5), Chart::Step)],
            ..FrameLayout::default()
        };
        let at =
            |kind, column, row| action_of(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }, &layout);
        let (down, drag) = (MouseEventKind::Down(MouseButton::Left), MouseEventKind::Drag(MouseButton::Left));
        assert_eq!(at(down, 3, 0), Some(Action::ToggleHelp));
        assert_eq!(at(down, 12, 0), Some(Action::Quit), "drawn later, so it lies on top");
        assert_eq!(at(drag, 12, 0), None);
        assert_eq!(at(MouseEventKind::Down(MouseButton::Right), 12, 0), None);
        let right = MouseEventKind::Down(MouseButton::Right);
        assert_eq!(at(right, 42, 12), Some(Action::HelpOn(Panel::Map)), "drawn later, so it lies on top");
        assert_eq!(at(right, 2, 12), Some(Action::HelpOn(Panel::Why)));
        let own = |action| Some(Action::Own(ScreenAction::Lab(action)));
        assert_eq!(at(down, 4, 2), own(LabAction::HistoryColumn(0, 20)));
        assert_eq!(at(drag, 23, 6), own(LabAction::HistoryColumn(19, 20)));
        assert_eq!(at(drag, 24, 6), None);
        assert_eq!(at(drag, 9, 8), own(LabAction::StepColumn(5, 30)));
        let cell = Action::Own(ScreenAction::Blocks(BlocksAction::Cell(2, 4)));
        assert_eq!((at(down, 42, 14), at(drag, 42, 14), at(down, 60, 14)), (Some(cell), None, None));
        assert_eq!(at(MouseEventKind::ScrollUp, 0, 20), Some(Action::Scroll(-1)));
    }
}
