//! How many bytes a frame takes on the wire, because people watch over SSH.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use portable_pty::{Child, CommandBuilder, MasterPty, PtyPair, PtySize, native_pty_system};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::drawing::wire::WireBackend;
use vramlab::model::{DeviceKind, Grouping, Lab, RunState};
use vramlab::source::Picture;
use vramlab::tui::{self, App, FrameLayout, GlyphTier, Message};
use vt100::Parser;

use crate::patience;

/// What the program may send to a terminal of this many columns and rows: bytes of the first picture, and bytes a
/// second while gpt-char trains.
const BUDGETS: [(u16, u16, usize, usize); 3] =
    [(80, 24, 10_000, 8_000), (120, 40, 15_000, 12_000), (200, 60, 25_000, 20_000)];
/// What a screen full of figures may take, drawn from nothing and after the Lab: no more than a first picture, whose
/// charts are empty, and with little to spare.
const FULL: [(u16, u16, usize, usize); 3] =
    [(80, 24, 6_300, 5_000), (120, 40, 13_400, 10_400), (200, 60, 24_400, 22_800)];
/// The most that a frame may take after the first picture.
const BURST: usize = 20_000;
/// The end of a frame: until then a terminal shows nothing of it.
const END: &[u8] = b"\x1b[?2026l";
/// How long a running lab is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// After this time nothing on a paused lab's screen changes any more.
const SETTLED: Duration = Duration::from_millis(6500);

/// Counts the bytes that would go to the terminal.
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
        let catalog = ThemeCatalog::default();
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
            let mut layout = FrameLayout::default();
            self.terminal.draw(|frame| layout = tui::draw(&self.app, frame.area(), frame.buffer_mut())).unwrap();
            self.app.update(Message::Drawn(layout));
        }
        self.counter.0.get() - before
    }
}

/// Bytes of each frame of the synthetic run at its own pace (20 ms a step: everything moves at once), with 30 frames a
/// second.
fn frames_of_a_run(width: u16, height: u16) -> Vec<usize> {
    let mut screen = Screen::new(width, height);
    let mut lab = Lab::new();
    let mut next = 0;
    let mut sizes = Vec::new();
    let events = crate::lab_states::run_on(DeviceKind::Processor);
    // A viewer of a running lab sees a moment for a second: the peak of the last step, then that of a later one.
    let mut mark = None;
    let mut due = 0;
    for (index, event) in events.iter().enumerate() {
        let time = event.time.0;
        lab.apply(event);
        if time >= next {
            next = time + 33_333;
            let picture = if time >= due {
                let picture = crate::lab_states::going_on(&mut lab, &events[..=index]);
                due = if picture.marked.is_some() { time + 1_000_000 } else { 0 };
                mark.clone_from(&picture.marked);
                picture
            } else {
                Picture { marked: mark.clone(), ..crate::lab_states::state_of(lab.view(), RunState::Running) }
            };
            screen.app.update(Message::Clock(Duration::from_micros(time)));
            screen.app.update(Message::Picture(Arc::new(picture)));
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
    screen.app.update(Message::Picture(Arc::new(crate::lab_states::paused())));
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
    screen.app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    let first = screen.frame();
    assert!(first < 20_000, "the first frame took {first} bytes");
    for symbol in ['?', '?', 'T', 'T', 'T', 'T'] {
        screen.app.update(Message::Key(KeyEvent::new(KeyCode::Char(symbol), KeyModifiers::NONE)));
        let size = screen.frame();
        assert!(size < 20_000, "{symbol} took {size} bytes");
    }
}

#[test]
fn every_screen_keeps_to_its_budget() {
    for (columns, rows, most_at_first, most_later) in FULL {
        for key in '1'..='7' {
            let what = format!("screen {key} at {columns}×{rows}");
            let press = |screen: &mut Screen| {
                screen.app.update(Message::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
            };
            let picture =
                Arc::new(crate::lab_states::with_study(crate::lab_states::paused(), Grouping::Category, false));
            let mut first = Screen::new(columns, rows);
            press(&mut first);
            first.app.update(Message::Picture(picture.clone()));
            let at_first = first.frame();
            let mut later = Screen::new(columns, rows);
            later.app.update(Message::Picture(picture));
            later.frame();
            press(&mut later);
            let burst = later.frame();
            println!("{what}: {at_first} bytes from nothing, {burst} behind the Lab");
            assert!(at_first > 500 && at_first <= most_at_first, "{what}: {at_first} bytes from nothing");
            assert!(burst <= most_later, "{what}: {burst} bytes behind the Lab");
        }
    }
}

/// The real program in a terminal: its screen, and the bytes of each of its frames.
struct Program {
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    _terminal: Box<dyn MasterPty + Send>,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    /// The screen that complete frames have drawn.
    screen: Parser,
    /// Bytes of each complete frame, and of what came before the first.
    frames: Vec<usize>,
    /// Bytes of a frame that has not ended yet.
    begun: Vec<u8>,
    /// Bytes until blocks were on the screen.
    first: Option<usize>,
}

impl Seen {
    fn take(&mut self, bytes: &[u8]) {
        self.begun.extend(bytes);
        while let Some(end) = self.begun.windows(END.len()).position(|bytes| bytes == END) {
            let frame: Vec<u8> = self.begun.drain(..end + END.len()).collect();
            self.screen.process(&frame);
            self.frames.push(frame.len());
            if self.first.is_none() && self.screen.screen().contents().contains("blocks") {
                self.first = Some(self.frames.iter().sum());
            }
        }
    }

    /// All bytes so far.
    fn bytes(&self) -> usize {
        self.frames.iter().sum::<usize>() + self.begun.len()
    }
}

impl Program {
    /// gpt-char on the processor.
    fn start(columns: u16, rows: u16) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let PtyPair { master, slave } = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["gpt-char", "--device", "cpu"]);
        command.cwd(env!("CARGO_MANIFEST_DIR"));
        command.env_clear();
        for (name, value) in
            [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("COLORTERM", "truecolor"), ("HOME", "/nonexistent")]
        {
            command.env(name, value);
        }
        let child = slave.spawn_command(command).unwrap();
        let keyboard = master.take_writer().unwrap();
        let mut reader = master.try_clone_reader().unwrap();
        let screen = Parser::new(rows, columns, 0);
        let seen = Arc::new(Mutex::new(Seen { screen, frames: Vec::new(), begun: Vec::new(), first: None }));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                shared.lock().unwrap().take(&buffer[..n]);
            }
        });
        Self { child, keyboard, _terminal: master, seen }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn text(&self) -> String {
        self.seen().screen.screen().contents()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_keeps_to_its_budgets_and_is_silent_while_paused() {
    let mut paused = Vec::new();
    for (columns, rows, most_at_first, most_a_second) in BUDGETS {
        let what = format!("{columns}×{rows}");
        let mut program = Program::start(columns, rows);
        let first = patience::find(|| program.seen().first, || format!("blocks at {what}:\n{}", program.text()));
        assert!(first <= most_at_first, "{what}: the first picture took {first} bytes");
        let watch = || {
            let (begun, before) = (Instant::now(), program.seen().frames.len());
            sleep(WATCHED);
            let frames = program.seen().frames[before..].to_vec();
            let a_second = (frames.iter().sum::<usize>() as f64 / begun.elapsed().as_secs_f64()) as usize;
            println!(
                "{what}: {first} bytes first, then {a_second} a second, at most {:?} a frame",
                frames.iter().max()
            );
            assert!(frames.len() > 2, "{what}: it does not run:\n{}", program.text());
            assert!(frames.iter().all(|&frame| frame <= BURST), "{what}: {frames:?}");
            a_second
        };
        // If other work takes the processor, steps take different times, and more of their picture changes.
        assert!((0..3).any(|_| watch() <= most_a_second), "{what}: over {most_a_second} bytes a second, three times");
        program.keyboard.write_all(b" ").unwrap();
        program.keyboard.flush().unwrap();
        patience::wait(|| program.text().contains("PAUSED"), || format!("a pause at {what}:\n{}", program.text()));
        paused.push((what, program));
    }
    sleep(SETTLED);
    for (what, program) in &paused {
        // On a busy machine frames come late.
        let is_silent = || {
            let before = program.seen().bytes();
            sleep(Duration::from_secs(1));
            program.seen().bytes() == before
        };
        assert!((0..3).any(|_| is_silent()), "{what}: nothing changes, and something is sent");
        assert!(program.text().contains("PAUSED"), "{what}");
    }
}
