//! The real program in a pseudo-terminal: keys, resizing, signals, panics, a lost connection. Whatever ends it, the
//! terminal comes back as it was.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtyPair, PtySize, SlavePty, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vt100::{MouseProtocolMode, Parser};

/// Long enough for a busy machine; nothing waits longer than it must.
const PATIENCE: Duration = Duration::from_secs(30);
/// What ending may take.
const END: Duration = Duration::from_secs(2);

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

/// A program in a terminal of its own.
struct Session {
    master: Box<dyn MasterPty + Send>,
    /// Kept open, so that the line settings can be read when the program has ended.
    _slave: Box<dyn SlavePty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    screen: Arc<Mutex<Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    settings: String,
}

impl Session {
    fn lab(environment: &[(&str, &str)]) -> Self {
        Self::start(lab_command(environment), 100, 30)
    }

    fn start(command: CommandBuilder, columns: u16, rows: u16) -> Self {
        let PtyPair { master, slave } = native_pty_system().openpty(size(columns, rows)).unwrap();
        let settings = format!("{:?}", master.get_termios());
        let child = slave.spawn_command(command).unwrap();
        let keyboard = master.take_writer().unwrap();
        let mut reader = master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(Parser::new(rows, columns, 0)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let (seen, bytes) = (screen.clone(), raw.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().process(&buffer[..n]);
                bytes.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { master, _slave: slave, child, keyboard, screen, raw, settings }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self.screen.lock().unwrap().screen()) {
            assert!(Instant::now() < deadline, "no {what} on the screen:\n{}", self.text());
            sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text));
    }

    /// Until steps have been trained.
    fn wait_for_training(&self) {
        self.wait_for("trained step", |screen| screen.contents().contains("loss") && screen.contents().contains(" ms"));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(&*self.child), signal).unwrap();
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        self.master.resize(size(columns, rows)).unwrap();
    }

    fn wait_for_end(&mut self, limit: Duration) -> ExitStatus {
        wait_for_end(&mut *self.child, limit)
    }

    /// The terminal is as it was before the program began.
    fn assert_restored(&self) {
        // The last bytes may still be on their way.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.screen.lock().unwrap().screen().alternate_screen() && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is still on");
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is still on");
        assert_eq!(screen.mouse_protocol_mode(), MouseProtocolMode::None, "the mouse is still captured");
        let raw = self.raw.lock().unwrap();
        let raw = String::from_utf8_lossy(&raw);
        let (begun, ended) = (raw.rfind("\x1b[?2026h"), raw.rfind("\x1b[?2026l"));
        assert!(begun <= ended, "a synchronized frame is still open");
        assert_eq!(format!("{:?}", self.master.get_termios()), self.settings, "the line settings differ");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn pid(child: &dyn Child) -> Pid {
    Pid::from_raw(i32::try_from(child.process_id().unwrap()).unwrap()).unwrap()
}

fn wait_for_end(child: &mut dyn Child, limit: Duration) -> ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "still running after {limit:?}");
        sleep(Duration::from_millis(10));
    }
}

fn lab_command(environment: &[(&str, &str)]) -> CommandBuilder {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(["mlp-mini", "--device", "cpu"]);
    command.cwd(env!("CARGO_MANIFEST_DIR"));
    command.env_clear();
    for (name, value) in
        [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("COLORTERM", "truecolor"), ("HOME", "/nonexistent")]
    {
        command.env(name, value);
    }
    for (name, value) in environment {
        command.env(name, value);
    }
    command
}

#[test]
fn it_trains_answers_keys_and_leaves() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    {
        let parser = lab.screen.lock().unwrap();
        assert!(parser.screen().alternate_screen() && parser.screen().hide_cursor());
        assert_eq!(parser.screen().mouse_protocol_mode(), MouseProtocolMode::ButtonMotion);
    }
    assert!(lab.text().contains("processor"));
    lab.press("m");
    lab.wait_for_text("m AMP       fp16");
    lab.press("c");
    lab.wait_for_text("c checkpoint  on");
    lab.press(" ");
    lab.wait_for_text("PAUSED");
    lab.press(" ");
    lab.wait_for_text("RUNNING");
    lab.press("?");
    lab.wait_for_text("empty_cache: wholly free segments go back");
    lab.press("?");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn ctrl_c_leaves() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_text("RUNNING");
    lab.press("\x03");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_storm_of_sizes_ends_in_the_right_picture() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    for step in 0..20u16 {
        lab.resize(20 + step * 7, 5 + step * 2);
        sleep(Duration::from_millis(20));
    }
    lab.resize(120, 40);
    lab.wait_for("footer in the last row", |screen| {
        screen.rows(0, 120).nth(39).is_some_and(|row| row.contains("quit")) && screen.contents().contains("switches")
    });
    lab.press("q");
    lab.wait_for_end(END);
    lab.assert_restored();
}

#[test]
fn a_paste_is_no_series_of_commands() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.press("\x1b[200~qqqmmm\x1b[201~");
    lab.press("?");
    lab.wait_for_text("help ");
    assert!(lab.child.try_wait().unwrap().is_none(), "a pasted q quits nothing");
    lab.press("q");
    lab.wait_for_end(END);
}

#[test]
fn sigterm_gives_the_terminal_back() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_text("RUNNING");
    lab.signal(Signal::TERM);
    assert_eq!(lab.wait_for_end(END).exit_code(), 143);
    lab.assert_restored();
}

#[test]
fn sigint_from_outside_gives_the_terminal_back() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_text("RUNNING");
    lab.signal(Signal::INT);
    assert_eq!(lab.wait_for_end(END).exit_code(), 130);
    lab.assert_restored();
}

#[test]
fn sighup_ends_it() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_text("RUNNING");
    lab.signal(Signal::HUP);
    assert_eq!(lab.wait_for_end(END).exit_code(), 129);
}

#[test]
fn a_lost_terminal_ends_it_even_in_the_middle_of_a_write() {
    for reads in [true, false] {
        let PtyPair { master, slave } = native_pty_system().openpty(size(200, 60)).unwrap();
        let mut child = slave.spawn_command(lab_command(&[])).unwrap();
        drop(slave);
        // One reader that stops at the first bytes: soon the program hangs in a write.
        let mut reader = master.try_clone_reader().unwrap();
        let mut buffer = [0; 64];
        assert!(reader.read(&mut buffer).unwrap() > 0);
        let deadline = Instant::now() + Duration::from_secs(1);
        while reads && Instant::now() < deadline {
            let _ = reader.read(&mut [0; 8192]).unwrap();
        }
        if !reads {
            sleep(Duration::from_secs(1));
        }
        drop((reader, master));
        wait_for_end(&mut *child, END);
    }
}

#[test]
fn a_stopped_lab_gives_the_terminal_back_and_repaints_when_it_goes_on() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.signal(Signal::TSTP);
    lab.wait_for("the main screen", |screen| !screen.alternate_screen());
    lab.assert_restored();
    // Stopping follows leaving; a continue that came before it would be lost.
    sleep(Duration::from_millis(300));
    lab.signal(Signal::CONT);
    lab.wait_for("the lab again", |screen| screen.alternate_screen() && screen.contents().contains("switches"));
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_panic_in_any_thread_restores_the_terminal_before_its_message() {
    for place in ["loop", "thread"] {
        let mut lab = Session::lab(&[("VRAMLAB_TEST_PANIC", place)]);
        let status = lab.wait_for_end(PATIENCE);
        assert_eq!(status.exit_code(), 101, "{place}");
        lab.assert_restored();
        lab.wait_for_text("a panic that a test asked for");
    }
}

#[test]
fn without_colour_no_colour_is_sent() {
    let mut lab = Session::lab(&[("NO_COLOR", "1")]);
    lab.wait_for_training();
    lab.press("q");
    lab.wait_for_end(END);
    lab.assert_restored();
    let raw = lab.raw.lock().unwrap();
    let raw = String::from_utf8_lossy(&raw);
    for sequence in raw.split("\x1b[").skip(1) {
        // The parameters end at the first letter, which says what the sequence is.
        let end = sequence.find(|symbol: char| symbol.is_ascii_alphabetic()).unwrap_or(0);
        let (parameters, rest) = sequence.split_at(end);
        let colour = parameters.split(';').any(|code| matches!(code, "38" | "48"));
        assert!(!(rest.starts_with('m') && colour), "{parameters}m");
    }
    assert!(raw.contains("\x1b[1m") || raw.contains("\x1b[1;7m"), "bold survives");
}

#[test]
fn the_c_locale_gets_ascii() {
    let mut lab = Session::lab(&[("LANG", "C")]);
    lab.wait_for_training();
    lab.press("q");
    lab.wait_for_end(END);
    assert!(lab.raw.lock().unwrap().is_ascii());
}

#[test]
fn the_harness_sees_a_careless_program() {
    let mut command = CommandBuilder::new("sh");
    command.args(["-c", r"printf '\033[?1049h\033[?25l\033[?2004h\033[?1002h'; stty raw -echo; printf ready"]);
    command.env("TERM", "xterm");
    let mut careless = Session::start(command, 80, 24);
    careless.wait_for_text("ready");
    careless.wait_for_end(PATIENCE);
    assert!(catch_unwind(AssertUnwindSafe(|| careless.assert_restored())).is_err());
}
