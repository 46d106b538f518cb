//! The real program in a pseudo-terminal: keys, resizing, signals, panics, a lost connection. Whatever ends the
//! program, the terminal is restored.

use std::fs::File;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtyPair, native_pty_system};
use rustix::process::{Pid, Signal};
use vramlab::model::Lab;
use vramlab::recording::{Next, Reader};
use vt100::{MouseProtocolMode, Parser};

use crate::patience::{self, BEAT, PATIENCE, Stopwatch};
use crate::terminal::{
    Session, in_environment, lab_command, pid, size, small_lab_command, step_shown, vramlab, wait_for_end,
};

/// The longest that ending may take.
const END: Duration = Duration::from_secs(2);

#[test]
fn it_trains_answers_keys_and_leaves() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    {
        let parser = lab.screen.lock().unwrap();
        assert!(parser.screen().alternate_screen() && parser.screen().hide_cursor());
        assert_eq!(parser.screen().mouse_protocol_mode(), MouseProtocolMode::AnyMotion);
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
    lab.wait_for_text("pause at the next op");
    lab.press("?");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn ranks_train_in_a_lab_that_goes_from_one_to_the_next_and_leaves_at_once() {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(["gpt-mini", "--parallel", "pp-1f1b", "--device", "sim:h200x2"]);
    let mut lab = Session::start(in_environment(command, &[]), 120, 40);
    lab.wait_for_training();
    lab.wait_for_text("ranks pp-1f1b · 2");
    lab.wait_for_text("pp-1f1b, rank 0 of 2");
    lab.press("D");
    lab.wait_for_text("pp-1f1b, rank 1 of 2");
    lab.press("o");
    lab.wait_for_text("o optimizer sgd");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn ranks_of_the_processor_train_in_a_lab_that_ends_them_all() {
    for code in [0, 143] {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["gpt-mini", "--parallel", "ddp", "--device", "cpux2"]);
        let mut lab = Session::start(in_environment(command, &[]), 120, 40);
        lab.wait_for_training();
        lab.wait_for_text("ranks ddp · 2");
        lab.wait_for_text("ddp, rank 0 of 2");
        lab.press("D");
        lab.wait_for_text("ddp, rank 1 of 2");
        match code {
            0 => lab.press("q"),
            _ => lab.signal(Signal::TERM),
        }
        assert_eq!(lab.wait_for_end(END).exit_code(), code);
        lab.assert_restored();
    }
}

/// The last text on the terminal's clipboard: the payload of OSC 52, decoded.
fn clipboard(raw: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(raw);
    let (_, sequence) = text.rsplit_once("\x1b]52;c;")?;
    let (payload, _) = sequence.split_once('\x07')?;
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for symbol in payload.trim_end_matches('=').chars() {
        bits = bits << 6 | u32::try_from(digits.find(symbol).expect("base64")).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn what_is_copied_reaches_the_terminals_clipboard_and_leaving_tells_what_the_run_came_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let arguments = ["mlp-mini", "--device", "cpu", "--layers", "3", "--record", path.to_str().unwrap()];
    let mut lab = Session::start(vramlab(&arguments), 120, 40);
    lab.wait_for_training();
    lab.press("m");
    lab.wait_for("autocast to fp16", |screen| {
        // Not "→ fp16", which is still to come: a pause would delay it.
        let is_on = |line: &str| line.contains("m AMP") && line.contains("fp16") && !line.contains("→ fp16");
        screen.contents().lines().any(is_on)
    });
    lab.press(" ");
    lab.wait_for_text("PAUSED");
    lab.press("y");
    lab.wait_for_text("copy to the terminal's clipboard");
    lab.press("c");
    lab.wait_for_text("copied: vramlab run mlp-mini");
    let command = clipboard(&lab.raw.lock().unwrap()).unwrap();
    assert!(command.starts_with("vramlab run mlp-mini --device cpu --amp fp16 --batch "), "{command}");
    assert!(command.ends_with(" --layers 3"), "{command}");
    lab.press("yy");
    lab.wait_for_text("copied: mlp-mini on cpu");
    let figures = clipboard(&lab.raw.lock().unwrap()).unwrap();
    assert!(figures.contains("\nallocated: ") && figures.contains(" bytes)\nreserved: "), "{figures}");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
    lab.wait_for_text("run it again");
    let said = lab.text();
    let line =
        |head: &str| said.lines().find_map(|line| line.trim_start().strip_prefix(head)).unwrap_or_default().trim();
    assert!(said.trim_start().starts_with("mlp-mini on cpu"), "nothing before it:\n{said}");
    assert!(line("peak").contains(" reserved"), "{said}");
    assert_eq!((line("recorded"), line("run it again")), (path.to_str().unwrap(), &*command), "{said}");
    assert!(steps_recorded(&path) > 0, "and there it is");
}

#[test]
fn whom_a_signal_ended_is_told_nothing() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.signal(Signal::TERM);
    assert_eq!(lab.wait_for_end(END).exit_code(), 143);
    lab.assert_restored();
    assert_eq!(lab.text().trim(), "");
}

#[test]
fn in_a_small_address_space_larger_batches_are_refused_and_training_goes_on() {
    let mut lab = Session::start(small_lab_command(512, "gpt-mini"), 120, 60);
    lab.wait_for_training();
    // A batch that does not fit in any memory is not even made.
    lab.press(" ");
    lab.wait_for_text("PAUSED");
    lab.press(&"B".repeat(20));
    lab.press(" ");
    lab.wait_for_text("it stays as it was");
    lab.wait_for_text("RUNNING");
    // Twice as many each time, until a step does not fit.
    let mut batch: u64 = 4;
    while !lab.text().contains("OUT OF MEMORY") {
        assert!(batch < 1 << 20, "everything fits:\n{}", lab.text());
        batch *= 2;
        lab.press("B");
        let taken = format!("B{batch} ");
        lab.wait_for("the batch, or no memory", |screen| {
            let text = screen.contents();
            text.contains(&taken) || text.contains("OUT OF MEMORY")
        });
        // Either steps go through with it, or one does not.
        let begun = step_shown(&lab.text());
        lab.wait_for("steps with the batch, or no memory", |screen| {
            let text = screen.contents();
            let gone_on = step_shown(&text).zip(begun).is_some_and(|(now, begun)| now >= begun + 3);
            gone_on || text.contains("OUT OF MEMORY")
        });
    }
    // The batch of the last complete step is requested again, and an eighth of it.
    lab.press("bbb ");
    lab.wait_for_text("RUNNING");
    // The step that failed was the first of its batch, or a later one.
    let expected = [batch / 16, batch / 8].map(|batch| format!("B{batch} "));
    lab.wait_for("an eighth of the last batch", |screen| {
        expected.iter().any(|batch| screen.contents().contains(batch))
    });
    lab.press("q");
    assert_eq!(lab.wait_for_end(PATIENCE).exit_code(), 0);
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

/// The changes from frame to frame add up to what a complete redraw shows, colours included.
#[test]
fn a_picture_drawn_anew_is_the_picture() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.press("?");
    lab.wait_for_text("pause at the next op");
    lab.press("? ");
    lab.wait_for_text("PAUSED");
    lab.press("j?jk[?");
    let shown = lab.settled();
    lab.press("\x0c");
    let differs = lab.settled().iter().zip(&shown).position(|(anew, before)| anew != before);
    assert_eq!(differs.map(|cell| (&shown[cell], cell / 100, cell % 100)), None, "{}", lab.text());
    // No frame leaves a style behind for the next one, or for a shell.
    let raw = lab.raw.lock().unwrap().clone();
    let raw = String::from_utf8_lossy(&raw);
    for frame in raw.split_inclusive("\x1b[?2026l").filter(|frame| frame.contains("\x1b[?2026h")) {
        let styles = frame.split("\x1b[").filter_map(|sequence| {
            let end = sequence.find(|symbol: char| symbol.is_ascii_alphabetic())?;
            sequence[end..].starts_with('m').then_some(&sequence[..end])
        });
        assert!(styles.last().is_none_or(str::is_empty), "{frame:?}");
    }
    lab.press("q");
    lab.wait_for_end(END);
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
fn no_unfinished_sequence_keeps_a_person_from_leaving() {
    for (beginning, way_out) in [("\x1b[<", "q"), ("\x1b[?", "\x03"), ("\x1b[200~", "q"), ("\x1b]0;x", "\x03")] {
        let mut lab = Session::lab(&[]);
        lab.wait_for_text("RUNNING");
        lab.press(beginning);
        // A busy machine needs time to see that nothing follows: the key is pressed until it is read.
        let left = || {
            sleep(Duration::from_millis(700));
            lab.press(way_out);
            sleep(Duration::from_millis(100));
            lab.child.try_wait().unwrap()
        };
        let status = patience::find(left, || format!("a way out: {beginning:?} deafens it"));
        assert_eq!(status.exit_code(), 0);
        lab.assert_restored();
    }
}

#[test]
fn what_is_pasted_into_a_line_is_written_there() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.press("L");
    lab.wait_for_text("Enter sets it from the next step on");
    lab.press("\x1b[200~5\x1b[A12MiB\r\x1b[201~");
    // Control characters in the paste are left out, and the paste ends nothing.
    lab.wait_for_text("5[A12MiB");
    lab.press("\x15");
    lab.press("\x1b[200~512MiB\x1b[201~\r");
    lab.wait_for_text("512 MiB");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_text_that_becomes_shorter_is_told_and_the_terminal_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, vec![b'x'; 1 << 20]).unwrap();
    let mut command = lab_command(&[]);
    let arguments = command.get_argv_mut();
    arguments.splice(1.., ["gpt-char", "--device", "cpu", "--data"].map(Into::into));
    arguments.push(text.clone().into());
    let mut lab = Session::start(command, 100, 30);
    lab.wait_for_training();
    std::fs::File::options().write(true).open(&text).unwrap().set_len(0).unwrap();
    lab.wait_for_text("shorter; check the file given");
    lab.wait_for_text("STEP FAILED");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn files_that_are_none_are_told_in_the_lab_and_their_names_command_nothing() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("vramlab/themes");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a\x1b]0;owned\x07.toml"), "styles = 3").unwrap();
    let mut lab = Session::lab(&[("XDG_CONFIG_HOME", config.path().to_str().unwrap())]);
    lab.wait_for_text("can't be read");
    lab.press("q");
    lab.wait_for_end(END);
    lab.assert_restored();
    assert!(!String::from_utf8_lossy(&lab.raw.lock().unwrap()).contains("\x1b]0;"));
}

#[test]
fn settings_of_the_file_hold_in_the_lab_and_what_is_wrong_in_them_is_told() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("vramlab");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "theme = 'neon'\n[keys]\nquit = 'Q'\n").unwrap();
    let mut lab = Session::lab(&[("XDG_CONFIG_HOME", config.path().to_str().unwrap())]);
    lab.wait_for_text("there is no theme \"neon\"");
    lab.wait_for_text("Q quit");
    lab.press("Q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn whatever_signal_ends_it_the_terminal_comes_back() {
    let signals = [
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
        (Signal::ABORT, 134),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
        (Signal::ALARM, 142),
        (Signal::TERM, 143),
    ];
    for (signal, code) in signals {
        let mut lab = Session::lab(&[]);
        lab.wait_for_text("RUNNING");
        lab.signal(signal);
        assert_eq!(lab.wait_for_end(END).exit_code(), code, "{signal:?}");
        lab.assert_restored();
    }
}

#[test]
fn a_signal_ends_it_while_the_terminal_takes_no_bytes() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_text("RUNNING");
    // Its reader holds the screen's lock to write to it: as long as this thread holds the lock, nobody reads.
    let screen = Arc::clone(&lab.screen);
    let stopped = screen.lock().unwrap();
    lab.press("??????");
    sleep(Duration::from_secs(2));
    lab.signal(Signal::TERM);
    assert_eq!(lab.wait_for_end(END).exit_code(), 143);
    drop(stopped);
    assert_eq!(format!("{:?}", lab.master.get_termios()), lab.settings, "the line settings differ");
}

#[test]
fn a_lost_terminal_ends_it_even_in_the_middle_of_a_write() {
    for reads in [true, false] {
        let PtyPair { master, slave } = native_pty_system().openpty(size(200, 60)).unwrap();
        let mut child = slave.spawn_command(lab_command(&[])).unwrap();
        drop(slave);
        // A reader that stops at the first bytes: soon the program blocks in a write.
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
    // Stopping follows leaving; a continue signal that came before it would be lost.
    patience::wait_until_stopped(lab.id());
    lab.assert_restored();
    lab.signal(Signal::CONT);
    lab.wait_for("the lab again", |screen| screen.alternate_screen() && screen.contents().contains("switches"));
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_lab_that_was_stopped_without_being_asked_takes_the_terminal_again() {
    let mut lab = Session::lab(&[]);
    lab.wait_for_training();
    lab.signal(Signal::STOP);
    patience::wait_until_stopped(lab.id());
    let before = lab.raw.lock().unwrap().len();
    lab.signal(Signal::CONT);
    let taken = || String::from_utf8_lossy(&lab.raw.lock().unwrap()[before..]).contains("\x1b[?1049h");
    patience::wait(taken, || "the alternate screen to be taken again".to_owned());
    lab.wait_for("the lab again", |screen| screen.alternate_screen() && screen.contents().contains("switches"));
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_terminal_that_is_closed_ends_the_lab_as_a_hang_up_does() {
    for _ in 0..3 {
        let PtyPair { master, slave } = native_pty_system().openpty(size(100, 30)).unwrap();
        let mut child = slave.spawn_command(lab_command(&[])).unwrap();
        let mut reader = master.try_clone_reader().unwrap();
        let (mut screen, mut buffer) = (Parser::new(30, 100, 0), [0; 8192]);
        let deadline = Instant::now() + PATIENCE;
        while step_shown(&screen.screen().contents()).is_none_or(|step| step == 0) {
            assert!(Instant::now() < deadline, "no trained step on the screen:\n{}", screen.screen().contents());
            let read = reader.read(&mut buffer).unwrap();
            screen.process(&buffer[..read]);
        }
        // With its last descriptor the terminal is gone: the leader of its session gets a hang-up and a continue.
        drop((reader, master, slave));
        let status = wait_for_end(&mut *child, END);
        assert_eq!((status.exit_code(), status.signal()), (129, None));
    }
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
        // The parameters end at the first letter, which names the sequence.
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
    lab.wait_for_end(PATIENCE);
    assert!(lab.raw.lock().unwrap().is_ascii());
}

#[test]
fn the_demo_is_told_to_its_end_and_left() {
    let mut lab = Session::start(vramlab(&["demo", "--pace", "fast"]), 80, 24);
    lab.wait_for_text("demo 1/");
    // One scene at a time: none takes longer than the patience of a test.
    let place = |text: &str| {
        let (scene, of) = text.split_once("demo ")?.1.split_once('/')?;
        Some((scene.parse::<usize>().ok()?, of.split_whitespace().next()?.parse::<usize>().ok()?))
    };
    let (_, scenes) = place(&lab.text()).unwrap();
    for next in 2..=scenes {
        lab.wait_for(&format!("scene {next}"), |screen| {
            let text = screen.contents();
            text.contains("The lab is yours now") || place(&text).is_some_and(|(scene, _)| scene >= next)
        });
    }
    lab.wait_for_text("The lab is yours now");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn a_lesson_is_taken_beside_the_lab_and_begun_anew() {
    let kept = tempfile::tempdir().unwrap();
    let mut command = vramlab(&["lesson", "checkpointing"]);
    command.env("XDG_STATE_HOME", kept.path());
    let mut lab = Session::start(command, 120, 40);
    // Until the model is built the lab runs.
    lab.wait_for_text("PAUSED");
    lab.wait_for_text("Enter begins");
    assert!(lab.text().contains("Forward saves activations"), "{}", lab.text());
    lab.press("\r");
    lab.wait_for_text("How much does the peak fall?");
    // Neither reading on nor a switch answers it.
    lab.press("\r");
    lab.wait_for_text("Choose first");
    lab.press("e");
    lab.wait_for_text("a question is open: answer it first, or Ctrl-N passes it");
    lab.press("\x1b[B");
    lab.wait_for_text("▸ A.");
    // Elsewhere the key is the switch's.
    lab.press("c");
    lab.wait_for_text("▸ C.");
    lab.press("\r");
    lab.wait_for_text("Right: it is C.");
    assert!(lab.text().contains("1 of 1 points") && lab.text().contains("[3 Step]"), "{}", lab.text());
    let progress = kept.path().join("vramlab").join("progress.toml");
    assert!(std::fs::read_to_string(progress).unwrap().contains("checkpointing"));
    lab.press("~");
    lab.wait_for_text("What it saves");
    lab.press("~");
    lab.press("Z");
    lab.wait_for_text("Enter begins");
    lab.press("\r");
    lab.wait_for_text("How much does the peak fall?");
    lab.press("1");
    lab.wait_for_text("[1 Lab]");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}

#[test]
fn the_harness_sees_a_careless_program() {
    let mut command = CommandBuilder::new("/bin/sh");
    command.args(["-c", r"printf '\033[?1049h\033[?25l\033[?2004h\033[?1002h'; stty raw -echo; printf ready"]);
    command.env("TERM", "xterm");
    let mut careless = Session::start(command, 80, 24);
    careless.wait_for_text("ready");
    careless.wait_for_end(PATIENCE);
    assert!(catch_unwind(AssertUnwindSafe(|| careless.assert_restored())).is_err());
}

/// Number of complete steps in a recording, read as far as it goes.
fn steps_recorded(path: &Path) -> u64 {
    let mut reader = Reader::new(File::open(path).unwrap());
    let mut lab = Lab::new();
    while let Next::Frame(frame) = reader.next().unwrap() {
        frame.unpack().unwrap().events().for_each(|event| lab.apply(&event.unwrap()));
    }
    assert_eq!(lab.malformed(), 0);
    lab.finished()
}

#[test]
fn what_a_killed_lab_recorded_can_be_read_up_to_shortly_before_and_opened() {
    /// On a machine of its own, everything that happened longer ago than this is in the file.
    const LOST: Duration = Duration::from_millis(250);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let name = path.to_str().unwrap();
    let mut lab = Session::start(vramlab(&["gpt-mini", "--device", "cpu", "--record", name]), 100, 30);
    lab.wait_for("a few steps", |screen| step_shown(&screen.contents()).is_some_and(|step| step > 5));
    let (mut watch, begun) = (Stopwatch::start(lab.id()), Instant::now());
    let told = step_shown(&lab.text()).unwrap();
    // Even threads that wait for a processor all the time have had one by then.
    while watch.took() < LOST && begun.elapsed() < 16 * LOST {
        sleep(BEAT);
    }
    lab.signal(Signal::KILL);
    lab.wait_for_end(END);
    let recorded = steps_recorded(&path);
    assert!(recorded >= told, "{recorded} steps are recorded, {told} were shown {LOST:?} before the end");

    let mut opened = Session::start(vramlab(&["open", name]), 100, 30);
    opened.wait_for_text("gpt-mini");
    opened.wait_for("the last step", |screen| screen.contents().contains(&format!(" {recorded} ")));
    opened.press("m");
    opened.wait_for_text("a recording can't be changed");
    opened.press("q");
    assert_eq!(opened.wait_for_end(END).exit_code(), 0);
    opened.assert_restored();
    assert_eq!(steps_recorded(&path), recorded, "opening it changes nothing");
}

#[test]
fn a_snapshot_stands_on_the_screen_before_it_is_all_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.pickle");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut pickle = Vec::new();
    crate::big::Big { entries: 20_000, depth: 9, places: 300 }.write(&mut pickle).unwrap();
    let mut session = Session::start(vramlab(&["open", path.to_str().unwrap()]), 120, 40);
    let mut slow = File::options().write(true).open(&path).unwrap();
    slow.write_all(&pickle[..pickle.len() / 2]).unwrap();
    session.wait_for("the curve as far as it is known", |screen| {
        screen.contents().contains("READING") && screen.contents().contains("at least")
    });
    session.wait_for_text("segments");
    session.press("H");
    session.wait_for_text("the history is still being read");
    slow.write_all(&pickle[pickle.len() / 2..]).unwrap();
    drop(slow);
    session.wait_for("the whole history", |screen| {
        let text = screen.contents();
        text.contains(" SNAPSHOT ") && text.contains("entries") && !text.contains("at least")
    });
    session.press("q");
    assert_eq!(session.wait_for_end(END).exit_code(), 0);
    session.assert_restored();
}

#[test]
fn what_is_no_recording_is_told_without_a_screen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "dear diary, today I measured reserved memory\n".repeat(100)).unwrap();
    let missing = folder.path().join("missing.vram");
    for path in [&path, &missing] {
        let mut session = Session::start(vramlab(&["open", path.to_str().unwrap()]), 200, 30);
        assert_eq!(session.wait_for_end(PATIENCE).exit_code(), 1);
        session.wait_for_text("because: ");
        session.assert_restored();
        let text = session.text();
        let said: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let [what, why] = &*said else { panic!("what, and why: {text}") };
        assert!(what.starts_with("error: ") && what.contains(path.file_name().unwrap().to_str().unwrap()), "{text}");
        assert!(why.trim_start().starts_with("because: ") && !why.contains("dear diary"), "{text}");
        let raw = session.raw.lock().unwrap();
        assert!(!String::from_utf8_lossy(&raw).contains("\x1b[?1049h"), "no screen is opened for a sentence");
    }
}

#[test]
fn a_recording_never_takes_the_place_of_a_file_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.vram");
    std::fs::write(&path, "precious").unwrap();
    let arguments = ["mlp-mini", "--device", "cpu", "--record", path.to_str().unwrap()];
    let mut session = Session::start(vramlab(&arguments), 200, 30);
    assert_eq!(session.wait_for_end(PATIENCE).exit_code(), 2);
    session.wait_for_text("is there already");
    session.assert_restored();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

/// How often the threads of a process have gone to sleep.
fn rests(pid: Pid) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    threads.map(of).sum()
}

#[test]
fn a_paused_lab_that_records_rests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let arguments = ["mlp-mini", "--device", "cpu", "--record", path.to_str().unwrap()];
    let mut lab = Session::start(vramlab(&arguments), 100, 30);
    lab.wait_for_training();
    lab.press(" ");
    lab.wait_for_text("PAUSED");
    sleep(Duration::from_millis(500));
    let before = rests(pid(&*lab.child));
    sleep(Duration::from_secs(1));
    let woken = rests(pid(&*lab.child)) - before;
    assert!(woken < 150, "something woke up {woken} times within a second, with nothing to do");
    lab.press("q");
    assert_eq!(lab.wait_for_end(END).exit_code(), 0);
    lab.assert_restored();
}
