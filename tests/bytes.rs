//! What a frame costs on the wire: people watch over SSH.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/lab_states.rs"]
mod lab_states;
#[path = "common/synthetic.rs"]
mod synthetic;

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use vramlab::model::{DeviceKind, Lab, RunState};
use vramlab::tui::{self, App, Catalog, ColorTier, GlyphTier, Layout, Message, WireBackend};

/// Counts what would go to the terminal.
#[derive(Clone, Default)]
struct Counter(Rc<Cell<usize>>);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Screen {
    app: App,
    counter: Counter,
    terminal: Terminal<WireBackend<Counter>>,
}

impl Screen {
    fn new(width: u16, height: u16) -> Self {
        let catalog = Catalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        let counter = Counter::default();
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        let backend = WireBackend::new(counter.clone());
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport }).unwrap();
        Self { app: App::new(catalog, theme, GlyphTier::Unicode), counter, terminal }
    }

    /// Draws a frame if one is due; returns its bytes.
    fn frame(&mut self) -> usize {
        let before = self.counter.0.get();
        if self.app.needs_frame() {
            let mut layout = Layout::default();
            self.terminal.draw(|frame| layout = tui::draw(&self.app, frame.area(), frame.buffer_mut())).unwrap();
            self.app.update(Message::Drawn(layout));
        }
        self.counter.0.get() - before
    }
}

/// The synthetic run at its own pace (20 ms a step: everything moves at once), 30 frames a second: bytes of each frame.
fn frames_of_a_run(width: u16, height: u16) -> Vec<usize> {
    let mut screen = Screen::new(width, height);
    let mut lab = Lab::new();
    let mut next = 0;
    let mut sizes = Vec::new();
    for event in lab_states::run_on(DeviceKind::Processor) {
        let time = event.time.0;
        lab.apply(&event);
        if time >= next {
            next = time + 33_333;
            screen.app.update(Message::Clock(Duration::from_micros(time)));
            screen.app.update(Message::Picture(Arc::new(lab_states::state_of(lab.view(), RunState::Running))));
            sizes.push(screen.frame());
        }
    }
    sizes
}

#[test]
fn a_steady_frame_at_120x40_is_below_two_kilobytes() {
    let mut sizes = frames_of_a_run(120, 40);
    assert!(sizes.len() > 10, "{sizes:?}");
    assert!(sizes.iter().all(|&size| size < 20_000), "no frame above 20 KB: {sizes:?}");
    let steady = sizes.split_off(3);
    let mean = steady.iter().sum::<usize>() / steady.len();
    assert!(mean < 2_000, "{mean} bytes a frame: {steady:?}");
    let mut sorted = steady.clone();
    sorted.sort_unstable();
    assert!(sorted[sorted.len() / 2] < 2_000, "{steady:?}");
}

#[test]
fn nothing_is_sent_when_nothing_changes() {
    let mut screen = Screen::new(120, 40);
    screen.app.update(Message::Picture(Arc::new(lab_states::paused())));
    screen.frame();
    screen.frame();
    screen.app.update(Message::Clock(Duration::from_secs(60)));
    screen.frame();
    for second in 61..70 {
        screen.app.update(Message::Clock(Duration::from_secs(second)));
        assert_eq!(screen.frame(), 0);
    }
}

#[test]
fn help_and_themes_stay_below_twenty_kilobytes() {
    let mut screen = Screen::new(120, 40);
    screen.app.update(Message::Picture(Arc::new(lab_states::running())));
    let first = screen.frame();
    assert!(first < 20_000, "the first frame took {first} bytes");
    for symbol in ['?', '?', 'T', 'T', 'T', 'T'] {
        screen.app.update(Message::Key(KeyEvent::new(KeyCode::Char(symbol), KeyModifiers::NONE)));
        let size = screen.frame();
        assert!(size < 20_000, "{symbol} took {size} bytes");
    }
}
