//! Every way out of everything that lies over the screen: keys, Ctrl-C, the signals that end a program. Also the end of
//! a watched program, and a recording's frames.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use portable_pty::CommandBuilder;
use rustix::process::{Pid, Signal, kill_process};
use vramlab::model::{EventKind, Ranks, RunState};
use vramlab::recording::{Frame, Next, Reader};
use vramlab::units::DeviceIndex;

use crate::patience::{self, PATIENCE};
use crate::terminal::{Session, in_environment};

/// The program in a terminal of its own, with a home folder of its own.
fn start(arguments: &[&str], home: &Path, environment: &[(&str, &str)]) -> Session {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(arguments);
    let mut command = in_environment(command, environment);
    command.cwd(home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env(name, home);
    }
    Session::start(command, 120, 40)
}

/// Its exit code, once it has ended and the terminal is as before.
fn end(session: &mut Session) -> u32 {
    let status = session.wait_for_end(PATIENCE);
    session.assert_restored();
    status.exit_code()
}

const LAB: &[&str] = &["gpt-mini", "--device", "cpu"];
const SIMULATED: &[&str] = &["gpt2", "--device", "sim:h200"];
const LESSON: &[&str] = &["lesson", "checkpointing"];

/// Something that lies over a screen: the program, what it shows before, the keys that open the thing, and what it
/// shows then.
struct Over(&'static str, &'static [&'static str], &'static str, &'static [&'static str], &'static str, Leaves);

/// The keys that leave it.
#[derive(Clone, Copy, PartialEq)]
enum Leaves {
    /// A single `q`.
    AtOnce,
    /// The first `q` closes it.
    Closes,
    /// The first `q` closes it; then the next one asks, as Ctrl-C does, because there is an audience.
    Asks,
    /// `q` is text here: `Esc` closes it.
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

/// The pause between keys that form no sequence of one key.
const BETWEEN_KEYS: Duration = Duration::from_millis(20);

/// How many of them run at the same time: each waits for its screen most of the time.
const SIDE_BY_SIDE: usize = 4;

/// Opens everything that lies over a screen, leaves it in this way, and checks the exit code.
fn leave_each(code: u32, way: impl Fn(&mut Session, &Over) + Sync) {
    let queue = Mutex::new(OVER.iter());
    let leave = |over: &Over| {
        let Over(name, arguments, before, keys, shown, _) = over;
        let home = tempfile::tempdir().unwrap();
        let mut session = start(arguments, home.path(), &[]);
        let sees = |session: &Session, text: &str| {
            session.wait_for(&format!("{text:?} of {name}"), |screen| screen.contents().contains(text));
        };
        sees(&session, before);
        for keys in *keys {
            session.press(keys);
            sleep(BETWEEN_KEYS);
        }
        sees(&session, shown);
        way(&mut session, over);
        assert_eq!(end(&mut session), code, "{name}");
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
    leave_each(0, |session, Over(name, .., shown, leaves)| {
        let count = match leaves {
            AtOnce => 1,
            Closes => 2,
            Asks => 3,
            Writes => {
                // Followed by other bytes it could begin a sequence: once it has closed the line, it was read alone.
                session.press("\x1b");
                session.wait_for(&format!("the end of {name}"), |screen| !screen.contents().contains(shown));
                // A line may lie over something that `q` closes.
                2
            }
        };
        for _ in 0..count {
            session.press("q");
            sleep(BETWEEN_KEYS);
        }
    });
}

#[test]
fn ctrl_c_leaves_from_everywhere() {
    leave_each(0, |session, Over(.., leaves)| {
        session.press("\x03");
        if *leaves == Asks {
            sleep(BETWEEN_KEYS);
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

/// Whether the frame has the notice that recording has begun.
fn tells_of_the_beginning(frame: &Frame) -> bool {
    let begins = |kind: &EventKind| matches!(kind, EventKind::Notice { text } if text.starts_with("recording to "));
    frame.unpack().unwrap().events().any(|event| begins(&event.unwrap().kind))
}

#[test]
fn a_live_recording_has_a_frame_for_every_quarter_of_a_second() {
    /// The most that a killed writer loses, in microseconds.
    const MOST: u64 = 250_000;
    for workload in [LAB, &["gpt2", "--device", "sim:h200", "--speed", "max"]] {
        let home = tempfile::tempdir().unwrap();
        let arguments = [workload, &["--record", "run.vram"]].concat();
        let mut session = start(&arguments, home.path(), &[]);
        session.wait_for_text("RUNNING");
        let path = home.path().join("run.vram");
        // Everything before the recording began is written at once, however long it took.
        let since_it_began = || {
            let mut frames = frames(&path);
            let begun = frames.iter().position(tells_of_the_beginning)?;
            frames.drain(..begun);
            Some(frames)
        };
        let enough = || path.exists() && since_it_began().is_some_and(|frames| frames.len() > 12);
        patience::wait(enough, || format!("frames of {}", workload[0]));
        session.press("q");
        assert_eq!(end(&mut session), 0);
        let frames = since_it_began().expect("it says that it records");
        let span = frames.iter().map(|frame| frame.to().0 - frame.from().0).max().unwrap();
        let gap = frames.windows(2).map(|pair| pair[1].from().0.saturating_sub(pair[0].to().0)).max().unwrap_or(0);
        println!("{}: {} frames, the longest {span} µs, {gap} µs without an event", workload[0], frames.len());
        assert!(span <= MOST, "a frame of {} is of {span} µs", workload[0]);
    }
}

/// Whether there is a Python to watch a program; says so if there is none.
fn python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no python3 here");
    }
    found
}

/// A watched program, with a stand-in for PyTorch.
fn watched(home: &Path, options: &[&str], program: &[&str]) -> Session {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch");
    let arguments = [&["watch"], options, &["--"], program].concat();
    let programs = programs.to_str().unwrap();
    start(&arguments, home, &[("PYTHONPATH", programs), ("VRAMLAB_WATCH", "debug"), ("PYTHONDONTWRITEBYTECODE", "1")])
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
        session.wait_for_text("ENDED");
        session.press("q");
        assert_eq!(end(&mut session), code, "{script}:\n{}", session.text());
    }
    // A program that goes on when it is left has not ended.
    let home = tempfile::tempdir().unwrap();
    let mut session = watched(home.path(), &[], &["python3", train, "100000", "0.01", "allocated"]);
    session.wait_for_text("WATCHING");
    session.press("q");
    assert_eq!(end(&mut session), 0);
    session.wait_for_text("the program goes on (process ");
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
    let recorded = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 2000);
    patience::wait(recorded, || format!("a recording:\n{}", session.text()));
    session.press("\x03");
    assert_eq!(end(&mut session), 130, "{}", session.text());
    session.wait_for_text("recorded in run.vram");
    assert_eq!(session.text().matches("KeyboardInterrupt").count(), 1, "once:\n{}", session.text());
    let mut ranks = Ranks::default();
    for frame in frames(&file) {
        frame.unpack().unwrap().events().for_each(|event| ranks.apply(&event.unwrap()));
    }
    let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
    assert_eq!((lab.malformed(), lab.run().clone()), (0, RunState::Finished));
    assert!(lab.finished() > 0, "steps before it was ended");
}
