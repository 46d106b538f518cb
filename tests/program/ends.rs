//! Every way out, from whatever lies over the screen: keys, Ctrl-C, the signals that end a program. And what a watched
//! program's end and a recording's frames come to.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vramlab::model::{EventKind, Ranks, RunState};
use vramlab::recording::{Frame, Next, Reader};
use vramlab::units::DeviceIndex;
use vt100::Parser;

/// Long enough for a busy machine; nothing waits longer than it must.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between keys that are no sequence of one key, and between two looks at the screen.
const BEAT: Duration = Duration::from_millis(20);

/// The program in a terminal of its own.
struct Session {
    _master: Box<dyn MasterPty + Send>,
    /// Kept open: a terminal that nobody has open hangs up.
    _slave: Box<dyn SlavePty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    screen: Arc<Mutex<Parser>>,
}

impl Session {
    fn start(arguments: &[&str], home: &Path, environment: &[(&str, &Path)]) -> Self {
        let size = PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(arguments);
        command.cwd(home);
        command.env_clear();
        for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("COLORTERM", "truecolor")] {
            command.env(name, value);
        }
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for name in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, home);
        }
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        let keyboard = pair.master.take_writer().unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(Parser::new(size.rows, size.cols, 0)));
        let seen = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().process(&buffer[..n]);
            }
        });
        Self { _master: pair.master, _slave: pair.slave, child, keyboard, screen }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, text: &str, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(text) {
            assert!(Instant::now() < deadline, "{what}: no {text:?} on the screen:\n{}", self.text());
            sleep(BEAT);
        }
    }

    fn press(&mut self, keys: &str) {
        // Who has left hears nothing.
        let _ = self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush());
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.process_id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Its exit code, once it has ended and the terminal is as before.
    fn end(&mut self, what: &str) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{what}: still there:\n{}", self.text());
            sleep(BEAT);
        };
        while self.screen.lock().unwrap().screen().alternate_screen() {
            assert!(Instant::now() < deadline, "{what}: the terminal is not given back");
            sleep(BEAT);
        }
        status.exit_code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

const LAB: &[&str] = &["gpt-mini", "--device", "cpu"];
const SIMULATED: &[&str] = &["gpt2", "--device", "sim:h200"];
const LESSON: &[&str] = &["lesson", "checkpointing"];

/// Something that lies over a screen: the program, what it shows before, the keys that open it, and what it shows then.
struct Over(&'static str, &'static [&'static str], &'static str, &'static [&'static str], &'static str, Leaves);

/// Which keys leave it.
#[derive(Clone, Copy, PartialEq)]
enum Leaves {
    /// `q` and no more.
    AtOnce,
    /// The first `q` closes it.
    Closes,
    /// It is closed, then the first one asks, as Ctrl-C does: there is an audience.
    Asks,
    /// `q` is text: `Esc` closes it.
    Writes,
}

use Leaves::{Asks, AtOnce, Closes, Writes};

const OVER: &[Over] = &[
    Over("nothing", LAB, "RUNNING", &[], "RUNNING", AtOnce),
    Over("a paused run", LAB, "RUNNING", &[" "], "PAUSED", AtOnce),
    Over("the cursor in the past", LAB, "this step peak", &[" ", "h"], "held at the cursor", AtOnce),
    Over("the editor of the limit", LAB, "RUNNING", &["L"], "sets it from the next step on", Writes),
    Over("the editor of settings", LAB, "RUNNING", &["x", "expandable"], "sets it from the next step on", Writes),
    Over("the places to go to", LAB, "RUNNING", &["g"], "cancels", Closes),
    Over("the themes", LAB, "RUNNING", &["T", "j"], "cancels", Closes),
    Over("the filter", LAB, "RUNNING", &["2", "/", "w"], "keeps it", Writes),
    Over("the file to compare", LAB, "RUNNING", &["5", "+", "/t"], "reads it", Writes),
    Over("the ghost's line", SIMULATED, "RUNNING", &["G", "\x1b[200~paste\x1b[201~"], "starts it", Writes),
    Over("the copy menu", SIMULATED, "RUNNING", &["y"], "clipboard", Closes),
    Over("the copy menu in the past", SIMULATED, "RUNNING", &[",", "z", "w", "y"], "clipboard", Closes),
    Over("the palette", LAB, "RUNNING", &[":", "ckpt"], "does it", Writes),
    Over("the help", LAB, "RUNNING", &["?"], "closes", Closes),
    Over("a search in the help", LAB, "RUNNING", &["?", "/", "am"], "ends the search", Writes),
    Over("the findings", LAB, "RUNNING", &["w"], "closes", Closes),
    Over("a line over the findings", LAB, "RUNNING", &["w", "L"], "sets it from the next step on", Writes),
    Over("a presentation", LAB, "RUNNING", &["V", "w"], "closes", Asks),
    Over("a lesson's first page", LESSON, "Enter begins", &[], "Enter begins", AtOnce),
    Over("a lesson's question", LESSON, "Enter begins", &["\r"], "How much does the peak fall?", AtOnce),
    Over("themes over a question", LESSON, "Enter begins", &["\r", "\x1b[B", "T"], "cancels", Closes),
    Over("the demo", &["demo"], "demo 1/", &[], "demo 1/", AtOnce),
];

/// How many of them run side by side: each waits for its screen most of its time.
const SIDE_BY_SIDE: usize = 4;

/// Opens everything that lies over a screen, leaves it so, and looks at the exit code.
fn leave_each(code: u32, way: impl Fn(&mut Session, Leaves) + Sync) {
    let queue = Mutex::new(OVER.iter());
    let leave = |Over(name, arguments, before, keys, shown, leaves): &Over| {
        let home = tempfile::tempdir().unwrap();
        let mut session = Session::start(arguments, home.path(), &[]);
        session.wait_for(before, name);
        for keys in *keys {
            session.press(keys);
            sleep(BEAT);
        }
        session.wait_for(shown, name);
        way(&mut session, *leaves);
        assert_eq!(session.end(name), code, "{name}");
    };
    let next = || queue.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(over) = next() {
                    leave(over);
                }
            });
        }
    });
}

#[test]
fn q_leaves_from_everywhere() {
    leave_each(0, |session, leaves| {
        let count = match leaves {
            AtOnce => 1,
            Closes => 2,
            Asks => 3,
            Writes => {
                // Alone: with what follows it could begin a sequence.
                session.press("\x1b");
                sleep(Duration::from_millis(400));
                // A line may lie over something that `q` closes.
                2
            }
        };
        for _ in 0..count {
            session.press("q");
            sleep(BEAT);
        }
    });
}

#[test]
fn ctrl_c_leaves_from_everywhere() {
    leave_each(0, |session, leaves| {
        session.press("\x03");
        if leaves == Asks {
            sleep(BEAT);
            session.press("\x03");
        }
    });
}

#[test]
fn sigterm_ends_it_everywhere() {
    leave_each(143, |session, _| session.signal(Signal::TERM));
}

#[test]
fn sighup_ends_it_everywhere() {
    leave_each(129, |session, _| session.signal(Signal::HUP));
}

/// All frames of a recording.
fn frames(path: &Path) -> Vec<Frame> {
    let mut reader = Reader::new(File::open(path).unwrap());
    let mut frames = Vec::new();
    while let Next::Frame(frame) = reader.next().unwrap() {
        frames.push(frame);
    }
    frames
}

/// Whether it holds the notice that the recording has begun.
fn tells_of_the_beginning(frame: &Frame) -> bool {
    let begins = |kind: &EventKind| matches!(kind, EventKind::Notice { text } if text.starts_with("recording to "));
    frame.unpack().unwrap().events().any(|event| begins(&event.unwrap().kind))
}

#[test]
fn a_live_recording_has_a_frame_for_every_quarter_of_a_second() {
    /// What a killed writer costs at most, in microseconds.
    const MOST: u64 = 250_000;
    for workload in [LAB, &["gpt2", "--device", "sim:h200", "--speed", "max"]] {
        let home = tempfile::tempdir().unwrap();
        let arguments = [workload, &["--record", "run.vram"]].concat();
        let mut session = Session::start(&arguments, home.path(), &[]);
        session.wait_for("RUNNING", workload[0]);
        sleep(Duration::from_secs(4));
        session.press("q");
        assert_eq!(session.end(workload[0]), 0);
        let mut frames = frames(&home.path().join("run.vram"));
        // What happened before the recording began is written at once, however long it took.
        let begun = frames.iter().position(tells_of_the_beginning).expect("it says that it records");
        frames.drain(..begun);
        let span = frames.iter().map(|frame| frame.to().0 - frame.from().0).max().unwrap();
        let gap = frames.windows(2).map(|pair| pair[1].from().0.saturating_sub(pair[0].to().0)).max().unwrap_or(0);
        println!("{}: {} frames, the longest {span} µs, {gap} µs without an event", workload[0], frames.len());
        assert!(frames.len() > 15, "{} frames of {}", frames.len(), workload[0]);
        assert!(span <= MOST, "a frame of {} is of {span} µs", workload[0]);
    }
}

/// Whether there is a Python for a program to watch; said where there is none.
fn python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no python3 here");
    }
    found
}

/// A watched program that has a stand-in for PyTorch.
fn watched(home: &Path, options: &[&str], program: &[&str]) -> Session {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch");
    let arguments = [&["watch"], options, &["--"], program].concat();
    Session::start(
        &arguments,
        home,
        &[
            ("PYTHONPATH", &programs),
            ("VRAMLAB_WATCH", Path::new("debug")),
            ("PYTHONDONTWRITEBYTECODE", Path::new("1")),
        ],
    )
}

#[test]
fn watching_on_a_screen_ends_as_the_program_did() {
    if !python() {
        return;
    }
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch/train.py");
    let train = train.to_str().unwrap();
    let shell = format!("python3 {train} 20 0.01 allocated; exit 9");
    let killed = format!("python3 {train} 20 0.01 allocated; kill -9 $$");
    for (script, code) in [(shell, 9), (killed, 137), ("exit 7".to_owned(), 7)] {
        let home = tempfile::tempdir().unwrap();
        let mut session = watched(home.path(), &[], &["bash", "-c", &script]);
        session.wait_for("ENDED", &script);
        session.press("q");
        assert_eq!(session.end(&script), code, "{script}:\n{}", session.text());
    }
    // One that goes on when it is left has not ended.
    let home = tempfile::tempdir().unwrap();
    let mut session = watched(home.path(), &[], &["python3", train, "100000", "0.01", "allocated"]);
    session.wait_for("WATCHING", "a program that goes on");
    session.press("q");
    assert_eq!(session.end("a program that goes on"), 0);
    session.wait_for("the program goes on (process ", "a program that goes on");
    let said = session.text();
    let (_, pid) = said.split_once("(process ").unwrap();
    let pid: i32 = pid.split(')').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
}

#[test]
fn ctrl_c_ends_a_program_that_is_recorded_as_it_would_end_it_alone() {
    if !python() {
        return;
    }
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch/train.py");
    let home = tempfile::tempdir().unwrap();
    let program = ["python3", train.to_str().unwrap(), "1000000", "0.01", "allocated"];
    let mut session = watched(home.path(), &["--record", "run.vram"], &program);
    let file = home.path().join("run.vram");
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::metadata(&file).is_ok_and(|file| file.len() > 2000) {
        assert!(Instant::now() < deadline, "nothing is recorded:\n{}", session.text());
        sleep(BEAT);
    }
    session.press("\x03");
    assert_eq!(session.end("a recorded program"), 130, "{}", session.text());
    session.wait_for("recorded in run.vram", "a recorded program");
    assert_eq!(session.text().matches("KeyboardInterrupt").count(), 1, "once:\n{}", session.text());
    let mut ranks = Ranks::default();
    for frame in frames(&file) {
        frame.unpack().unwrap().events().for_each(|event| ranks.apply(&event.unwrap()));
    }
    let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
    assert_eq!((lab.malformed(), lab.run().clone()), (0, RunState::Finished));
    assert!(lab.finished() > 0, "steps before it was ended");
}
