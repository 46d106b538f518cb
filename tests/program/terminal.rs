//! A program in a pseudo-terminal: what it shows, pressed keys, and whether the terminal is restored.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtyPair, PtySize, SlavePty, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vt100::{MouseProtocolMode, Parser};

use crate::patience::{self, Stopwatch};

pub fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

/// A program in a terminal of its own.
pub struct Session {
    pub master: Box<dyn MasterPty + Send>,
    /// Kept open, so that the line settings can be read after the program has ended.
    _slave: Box<dyn SlavePty + Send>,
    pub child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    pub screen: Arc<Mutex<Parser>>,
    pub raw: Arc<Mutex<Vec<u8>>>,
    pub settings: String,
    /// How often the terminal was drained.
    drained: Cell<usize>,
}

impl Session {
    pub fn lab(environment: &[(&str, &str)]) -> Self {
        Self::start(lab_command(environment), 100, 30)
    }

    pub fn start(command: CommandBuilder, columns: u16, rows: u16) -> Self {
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
        Self { master, _slave: slave, child, keyboard, screen, raw, settings, drained: Cell::new(0) }
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Looks at the screen now, and again whenever the program has written something, until `holds` is true.
    pub fn wait_for(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let mut seen = None;
        let holds = || {
            // Bytes are counted behind the screen that they change, so what comes meanwhile is looked at next time.
            let written = Some(self.raw.lock().unwrap().len());
            std::mem::replace(&mut seen, written) != written && holds(self.screen.lock().unwrap().screen())
        };
        patience::wait(holds, || format!("{what} on the screen:\n{}", self.text()));
    }

    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text));
    }

    /// Waits until steps have been trained.
    pub fn wait_for_training(&self) {
        self.wait_for("trained step", |screen| step_shown(&screen.contents()).is_some_and(|step| step > 0));
    }

    /// Reads everything that was written to the terminal: after it comes a sequence without meaning.
    fn drain(&self) {
        self.drained.set(self.drained.get() + 1);
        let last = format!("\x1b]777;read {}\x07", self.drained.get());
        let name = self.master.tty_name().unwrap();
        let mut terminal = File::options().write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap();
        terminal.write_all(last.as_bytes()).unwrap();
        let is_read = || String::from_utf8_lossy(&self.raw.lock().unwrap()).contains(&last);
        patience::wait(is_read, || format!("all to be read:\n{}", self.text()));
    }

    /// Whether a thread of the program runs, or would run if it had a processor.
    fn is_busy(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).into_iter().flatten().flatten();
        let mut states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        states.any(|state| state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
    }

    pub fn id(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// The contents and style of each cell, once they have stopped changing and the program rests.
    pub fn settled(&self) -> Vec<String> {
        let look = || {
            let parser = self.screen.lock().unwrap();
            let screen = parser.screen();
            let (rows, columns) = screen.size();
            let cells = (0..rows).flat_map(|row| (0..columns).filter_map(move |column| screen.cell(row, column)));
            let seen = |cell: &vt100::Cell| match (cell.contents(), cell.inverse() || cell.underline()) {
                // Of a blank, only the background can be seen.
                ("" | " ", false) => format!(" on {:?}", cell.bgcolor()),
                // A full block looks like a blank on a background of its colour: the program sends whichever takes
                // fewer bytes.
                ("█", false) => format!(" on {:?}", cell.fgcolor()),
                (symbol, _) => {
                    format!("{symbol} in {:?} on {:?}, bold {}", cell.fgcolor(), cell.bgcolor(), cell.bold())
                }
            };
            cells.map(seen).collect::<Vec<_>>()
        };
        let rested = || {
            let before = look();
            sleep(Duration::from_millis(400));
            if self.is_busy() {
                return None;
            }
            self.drain();
            Some(look()).filter(|after| *after == before)
        };
        patience::find(rested, || format!("the picture to stop changing:\n{}", self.text()))
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid(&*self.child), signal).unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        self.master.resize(size(columns, rows)).unwrap();
    }

    pub fn wait_for_end(&mut self, limit: Duration) -> ExitStatus {
        wait_for_end(&mut *self.child, limit)
    }

    /// Asserts that the terminal is as it was before the program began.
    pub fn assert_restored(&self) {
        self.drain();
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

pub fn pid(child: &dyn Child) -> Pid {
    Pid::from_raw(i32::try_from(child.process_id().unwrap()).unwrap()).unwrap()
}

/// Waits for a program to end; `limit` is the longest time on a machine of its own.
pub fn wait_for_end(child: &mut dyn Child, limit: Duration) -> ExitStatus {
    let mut watch = Stopwatch::start(child.process_id().unwrap());
    let ended = || {
        let status = child.try_wait().unwrap();
        assert!(status.is_some() || !watch.exceeds(limit), "still running after {limit:?}");
        status
    };
    patience::find(ended, || "a program to end".to_owned())
}

pub fn lab_command(environment: &[(&str, &str)]) -> CommandBuilder {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(["mlp-mini", "--device", "cpu"]);
    in_environment(command, environment)
}

/// A lab whose process may have this many MiB of address space.
pub fn small_lab_command(mib: u32, workload: &str) -> CommandBuilder {
    let mut command = CommandBuilder::new("/bin/sh");
    let limited = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib * 1024);
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_vramlab"), workload, "--device", "cpu"]);
    in_environment(command, &[])
}

pub fn in_environment(mut command: CommandBuilder, environment: &[(&str, &str)]) -> CommandBuilder {
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

/// The program with these `arguments`.
pub fn vramlab(arguments: &[&str]) -> CommandBuilder {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(arguments);
    in_environment(command, &[])
}

/// The step that the header of a running lab shows.
pub fn step_shown(text: &str) -> Option<u64> {
    let header = text.lines().find(|line| line.contains("RUNNING"))?;
    // "12 steps" if it counts them, else "step 12" for the moment that is shown.
    let words: Vec<&str> = header.split_whitespace().collect();
    let beside = |pair: &[&str]| match pair {
        [count, "steps"] => count.parse().ok(),
        ["step", at] => at.parse().ok(),
        _ => None,
    };
    words.windows(2).rev().find_map(beside)
}
