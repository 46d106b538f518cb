//! Tests of how messages change the screen's state.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::KeyEvent;
use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{App, Message};
use crate::drawing::theme::ColorTier;
use crate::drawing::theme::ThemeCatalog;
use crate::model::RunState;
use crate::model::{Lab, Ledger, Level, LogLine, Micros, StepsView, View};
use crate::source::{Extent, MarkedMoment, Moment, Picture};
use crate::synthetic;
use crate::tui::glyphs::GlyphTier;
use crate::tui::layers::Layer;
use crate::tui::panel::Panel;
use crate::tui::stage::FrameLayout;
use crate::tui::states::LabState;
use crate::units::Bytes;

fn app() -> App {
    let catalog = ThemeCatalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    App::new(catalog, theme, GlyphTier::Unicode)
}

/// A fast lab with this many bytes allocated.
fn fast(allocated: u64) -> Picture {
    let steps = StepsView { finished: 9, median: Micros(20_000), ..StepsView::default() };
    let ledger = Ledger { live: Bytes(allocated), ..Ledger::default() };
    let (run, extent) = (RunState::Running, Extent { grows: true, ..Extent::default() });
    let view = View { run: run.clone(), steps, ledger, ..View::default() };
    Picture { view: Arc::new(view), run, extent, ..Picture::default() }
}

fn at(app: &mut App, millis: u64, picture: Picture) {
    app.update(Message::Clock(Duration::from_millis(millis)));
    app.update(Message::Picture(Arc::new(picture)));
}

fn typed(app: &mut App, keys: &str) {
    for symbol in keys.chars() {
        app.update(Message::Key(KeyEvent::new(KeyCode::Char(symbol), KeyModifiers::NONE)));
    }
}

#[test]
fn figures_and_blocks_are_of_the_mark_and_the_rest_is_of_now() {
    let mut app = app();
    let mark = MarkedMoment { moment: Moment::StepPeak, view: fast(900).view, step: None, ghost: None };
    at(&mut app, 100, Picture { marked: Some(mark), ..fast(300) });
    assert_eq!(app.stage().shown.ledger.live, Bytes(900));
    assert_eq!(app.stage().view().ledger.live, Bytes(300));
    at(&mut app, 200, fast(200));
    assert_eq!(app.stage().shown.ledger.live, Bytes(200), "nothing is held: without a mark it is now");
}

#[test]
fn a_screens_own_keys_change_what_it_remembers_and_news_does_not() {
    let mut app = app();
    let mut whole = fast(1);
    let mut lab = crate::model::Lab::new();
    for event in crate::synthetic::training_run() {
        lab.apply(&event);
    }
    whole.history = Arc::clone(&lab.view().history);
    at(&mut app, 0, whole.clone());
    // 31 steps in 5 columns: 8 steps to each.
    app.update(Message::Drawn(FrameLayout { history_columns: 5, ..FrameLayout::default() }));
    typed(&mut app, "]+");
    assert!(app.needs_frame());
    assert_eq!(app.stage().states.lab.zoom, Some(1));
    at(&mut app, 10, whole);
    assert_eq!(app.stage().states.lab.zoom, Some(1));
}

#[test]
fn blocks_scroll_by_rows_and_pages_within_their_ends() {
    let mut app = app();
    let rows = |rows| Message::Drawn(FrameLayout { rows, ..FrameLayout::default() });
    app.update(rows((50, 8)));
    typed(&mut app, "jj");
    assert_eq!(app.stage().scroll, 2);
    typed(&mut app, &"k".repeat(9));
    assert_eq!(app.stage().scroll, 0);
    for _ in 0..50 {
        app.update(Message::Key(KeyEvent::new(KeyCode::Char('J'), KeyModifiers::SHIFT)));
    }
    assert_eq!(app.stage().scroll, 42, "the last page is a whole one");
    app.update(Message::Key(KeyEvent::new(KeyCode::Char('K'), KeyModifiers::SHIFT)));
    assert_eq!(app.stage().scroll, 34);
    app.update(rows((20, 8)));
    assert_eq!(app.stage().scroll, 12, "fewer rows have another end");
    app.update(rows((50, 100)));
    assert_eq!(app.stage().scroll, 0, "all rows fit now: nothing is left to scroll");
}

#[test]
fn what_is_on_top_scrolls_and_what_lies_below_stays() {
    let mut app = app();
    let drawn = Message::Drawn(FrameLayout { rows: (50, 8), layer_rows: (30, 10), ..FrameLayout::default() });
    typed(&mut app, "?");
    app.update(drawn);
    typed(&mut app, "jjk");
    assert!(matches!(app.layers(), [Layer::Help(help)] if help.first() == 1));
    typed(&mut app, &"j".repeat(90));
    assert!(matches!(app.layers(), [Layer::Help(help)] if help.first() == 20));
    assert_eq!(app.stage().scroll, 0);
    typed(&mut app, "?");
    assert!(app.layers().is_empty());
}

#[test]
fn help_begins_with_what_the_mouse_is_at_and_a_mouse_that_moves_draws_nothing() {
    let mut app = app();
    at(&mut app, 0, fast(1));
    let panels = vec![(Rect::new(0, 0, 80, 10), Panel::History), (Rect::new(0, 10, 80, 10), Panel::Map)];
    let drawn = Message::Drawn(FrameLayout { panels, ..FrameLayout::default() });
    let mouse = |kind, row| Message::Mouse(MouseEvent { kind, column: 5, row, modifiers: KeyModifiers::NONE });
    let (moved, clicked) = (MouseEventKind::Moved, MouseEventKind::Down(MouseButton::Left));
    let helped = |app: &mut App| {
        typed(app, "?");
        let about = match app.layers() {
            [Layer::Help(help)] => help.panel(),
            other => panic!("{other:?}"),
        };
        typed(app, "?");
        app.update(drawn.clone());
        about
    };
    app.update(drawn.clone());
    assert_eq!(helped(&mut app), None, "the mouse was not seen yet");
    for row in 0..20 {
        assert_eq!(app.update(mouse(moved, row)), []);
        assert!(!app.needs_frame(), "row {row}");
    }
    assert_eq!(helped(&mut app), Some(Panel::Map));
    assert_eq!(helped(&mut app), Some(Panel::Map), "asked again");
    typed(&mut app, "j");
    app.update(drawn.clone());
    assert_eq!(helped(&mut app), None, "a key was pressed since, and the mouse only lies there");
    app.update(mouse(clicked, 3));
    app.update(mouse(moved, 15));
    app.update(drawn.clone());
    assert_eq!(helped(&mut app), Some(Panel::Map), "it moved on");
    typed(&mut app, "j");
    app.update(drawn.clone());
    assert_eq!(helped(&mut app), Some(Panel::History), "the last that was clicked");
    typed(&mut app, "2");
    app.update(drawn.clone());
    assert_eq!(helped(&mut app), None, "another screen");
}

#[test]
fn a_warning_of_the_log_stands_in_the_footer_for_a_while() {
    let mut app = app();
    let mut picture = fast(1);
    let line = LogLine { time: Micros(5), step: 1, level: Level::Warning, text: "refused: no".into() };
    Arc::make_mut(&mut picture.view).log.push(line);
    at(&mut app, 10, picture.clone());
    assert_eq!((app.notice(), app.next_change()), (Some("refused: no"), Some(Duration::from_millis(5010))));
    app.update(Message::Drawn(FrameLayout::default()));
    app.update(Message::Clock(Duration::from_millis(5009)));
    assert!(!app.needs_frame());
    app.update(Message::Clock(Duration::from_millis(5010)));
    assert!(app.needs_frame());
    assert_eq!((app.notice(), app.next_change()), (None, None));
}

#[test]
fn a_click_into_the_map_of_the_lab_shows_that_block_on_blocks() {
    let mut lab = Lab::new();
    // Within the last step, where there are blocks of every kind.
    let events = synthetic::training_run();
    events.iter().take(events.len() - events.len() / 60).for_each(|event| lab.apply(event));
    let view = Arc::new(lab.view());
    let area = Rect::new(0, 0, 120, 40);
    let mut app = app();
    app.update(Message::Clock(Duration::from_millis(100)));
    app.update(Message::Picture(Arc::new(Picture { view: Arc::clone(&view), ..Picture::default() })));
    let draw = |app: &mut App| {
        let layout = crate::tui::draw(app, area, &mut Buffer::empty(area));
        let drawn = layout.clone();
        app.update(Message::Drawn(layout));
        drawn
    };
    let map = draw(&mut app).overview.unwrap();
    let scale = LabState::default().overview(&view.segments, (usize::from(map.width), usize::from(map.height))).scale;
    let mut found = Vec::new();
    for position in map.positions() {
        typed(&mut app, "1");
        draw(&mut app);
        let kind = MouseEventKind::Down(MouseButton::Left);
        let (column, row) = (position.x, position.y);
        app.update(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        let before = app.screen();
        draw(&mut app);
        if before == 1 {
            found.push(app.stage().states.blocks.selected.unwrap().address);
        }
    }
    let segments = view.segments.iter();
    let blocks = segments
        .flat_map(|segment| segment.blocks.iter().map(|block| (segment.address.offset(block.offset), block.size)));
    let large: Vec<_> = blocks.filter(|(_, size)| size.get() >= 2 * scale).collect();
    assert!(large.len() > 1, "{large:?}");
    for (address, size) in large {
        let cells = found.iter().filter(|found| **found == address).count() as u64;
        let drawn = size.get() / scale;
        assert!(cells.abs_diff(drawn) <= 1, "{address:?} is drawn in {drawn} cells and found in {cells}");
    }
    assert!(found.len() < map.area() as usize, "where nothing is drawn a click leads nowhere");
}
