//! `vramlab watch`: real programs in Python, with a stand-in for PyTorch (`tests/watch/torch`). They are skipped
//! without Python.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vramlab::model::{DeviceKind, EventKind, Ranks, RunState};
use vramlab::recording::{Next, Reader};
use vramlab::source::RankFigures;
use vramlab::units::{Bytes, DeviceIndex};

use crate::patience;

/// Waits until a condition about a watched program is true.
fn wait(until: impl FnMut() -> bool) {
    patience::wait(until, || "a watched program".to_owned());
}

/// Whether there is a Python to run the stand-in; says so if there is none.
fn python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no python3 here");
    }
    found
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch")
}

/// `vramlab watch` in a folder of its own, with the stand-in on Python's path.
fn watch(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command
        .arg("watch")
        .current_dir(home)
        .env("XDG_RUNTIME_DIR", home)
        .env("XDG_CONFIG_HOME", home)
        .env("PYTHONPATH", programs())
        .env("VRAMLAB_WATCH", "debug")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The contents of a recording, as its models are at the end.
fn read(path: &Path) -> (Ranks, Vec<EventKind>) {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap());
    let (mut ranks, mut kinds) = (Ranks::default(), Vec::new());
    while let Next::Frame(frame) = reader.next().unwrap() {
        for event in frame.unpack().unwrap().events() {
            let event = event.unwrap();
            ranks.apply(&event);
            kinds.push(event.kind);
        }
    }
    (ranks, kinds)
}

#[test]
fn a_program_is_recorded_to_its_last_byte() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let run = watch(home.path())
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["40", "0.005", "allocated"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", run.status);
    // The program prints what it prints alone, and nothing about being watched.
    assert_eq!(String::from_utf8_lossy(&run.stderr), "recorded in run.vram: vramlab open run.vram\n");
    let (mut ranks, kinds) = read(&home.path().join("run.vram"));
    let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
    let allocated: u64 = std::fs::read_to_string(home.path().join("allocated")).unwrap().parse().unwrap();
    let view = lab.view();
    assert_eq!(view.ledger.allocated().0, allocated);
    assert_eq!(*lab.run(), RunState::Finished);
    assert_eq!(&*lab.about().workload, "train.py");
    assert_eq!(&*lab.about().device, "NVIDIA Stand-in");
    assert_eq!(kinds.iter().filter(|kind| matches!(kind, EventKind::StepEnd(_))).count(), 40);
    let takes = kinds.iter().filter(|kind| matches!(kind, EventKind::Alloc { .. })).count();
    assert_eq!(takes, 3 + 40 * 6 + 4, "every allocation, once");
    let named =
        |text: &str| kinds.iter().any(|kind| matches!(kind, EventKind::Define { text: t, .. } if t.contains(text)));
    assert!(named("train.py:10") && named("train.py:25"));
    assert!(!home.path().join("vramlab-watch").read_dir().unwrap().any(|left| left.is_ok()), "nothing is left behind");
}

#[test]
fn the_exit_code_of_a_program_is_that_of_watching_it() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let ended = |code: &str| {
        let name = format!("{}.vram", code.len());
        let mut command = watch(home.path());
        command.args(["--record", &name, "--", "python3", "-c", code]).stderr(Stdio::null());
        command.status().unwrap().code()
    };
    assert_eq!(ended("import sys; sys.exit(7)"), Some(7));
    assert_eq!(ended("import torch; torch.cuda.init(); raise SystemExit(3)"), Some(3));
    let missing = watch(home.path()).args(["--record", "x.vram", "--", "./no-such-program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("can't be started"));
}

#[test]
fn a_program_goes_on_when_its_viewer_is_killed_and_can_be_joined_again() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut first = watch(home.path())
        .env("UNTIL", home.path().join("joined"))
        .args(["--record", "first.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["100", "0.005", "allocated"])
        .spawn()
        .unwrap();
    let recorded = |name| std::fs::metadata(home.path().join(name)).is_ok_and(|file| file.len() > 2000);
    wait(|| recorded("first.vram"));
    // As the kernel would end it: nothing of it runs any more.
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = watch(home.path());
    let second = second.args(["--attach", "--record", "second.vram"]).stderr(Stdio::piped()).spawn().unwrap();
    wait(|| recorded("second.vram"));
    std::fs::write(home.path().join("joined"), "").unwrap();
    let joined = second.wait_with_output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    wait(|| std::fs::read_to_string(home.path().join("allocated")).is_ok_and(|told| !told.is_empty()));
    let (mut ranks, kinds) = read(&home.path().join("second.vram"));
    let allocated: u64 = std::fs::read_to_string(home.path().join("allocated")).unwrap().parse().unwrap();
    assert_eq!(ranks.lab_mut(DeviceIndex::FIRST).unwrap().view().ledger.allocated().0, allocated);
    assert!(kinds.iter().filter(|kind| matches!(kind, EventKind::StepEnd(_))).count() > 50);
    assert!(
        !watch(home.path()).args(["--attach", "--record", "third.vram"]).status().unwrap().success(),
        "it has ended"
    );
}

#[test]
fn the_folder_of_a_killed_viewer_goes_once_its_program_has_ended() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // The variable that `--device` sets: the program waits for its viewer at ends of steps.
    let mut first = watch(home.path())
        .env("VRAMLAB_CARD", "card")
        .args(["--record", "first.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["1000000", "0.005", "allocated"])
        .stderr(std::fs::File::create(home.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    wait(|| std::fs::metadata(home.path().join("first.vram")).is_ok_and(|file| file.len() > 2000));
    let folders = || home.path().join("vramlab-watch").read_dir().unwrap().map(|folder| folder.unwrap().path());
    let folder = folders().next().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let said = || std::fs::read_to_string(home.path().join("said")).unwrap();
    wait(|| said().contains("nobody watches this program any more (process "));
    let said = said();
    let program = said.split_once("(process ").unwrap().1.split_once(')').unwrap().0;
    let program = rustix::process::Pid::from_raw(program.parse().unwrap()).unwrap();
    // It uses no GPU, so no recording remains.
    let start_another =
        || watch(home.path()).args(["--record", "second.vram", "--", "python3", "-c", ""]).status().unwrap();
    start_another();
    assert!(folder.join("package").is_dir(), "the program still reads it");
    rustix::process::kill_process(program, rustix::process::Signal::KILL).unwrap();
    // A process for which nobody waits may remain as a number.
    let environment = format!("/proc/{}/environ", program.as_raw_nonzero());
    wait(|| {
        std::fs::read(&environment).is_ok_and(|variables| variables.is_empty()) || !Path::new(&environment).exists()
    });
    start_another();
    assert_eq!(folders().count(), 0, "{:?}", folders().collect::<Vec<_>>());
}

/// The program, recorded without a terminal that would interrupt both.
fn recorded(home: &Path) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let mut run = watch(home);
    run.args(["--record", "run.vram", "--", "python3"]).arg(programs().join("train.py"));
    run.args(["1000000", "0.005", "allocated"]).process_group(0).stderr(Stdio::null());
    let run = run.spawn().unwrap();
    wait(|| std::fs::metadata(home.join("run.vram")).is_ok_and(|file| file.len() > 2000));
    run
}

#[test]
fn what_ends_the_recorder_ends_the_program_and_leaves_a_whole_recording() {
    use rustix::process::{Pid, Signal, kill_process};
    if !python() {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let home = tempfile::tempdir().unwrap();
        let mut run = recorded(home.path());
        kill_process(Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap(), signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code), "{signal:?}");
        let (mut ranks, kinds) = read(&home.path().join("run.vram"));
        let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
        assert_eq!((lab.malformed(), lab.run().clone()), (0, RunState::Finished), "{signal:?}");
        let said = |kind: &EventKind| matches!(kind, EventKind::Notice { text } if text.contains("the program failed (signal: "));
        assert!(kinds.iter().any(said), "{signal:?}");
        let left = home.path().join("vramlab-watch").read_dir().unwrap().count();
        assert_eq!(left, 0, "{signal:?}: nothing is left behind");
    }
}

#[test]
fn who_records_a_program_of_others_leaves_it_when_interrupted() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::os::unix::process::CommandExt;
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut first = recorded(home.path());
    let mut second = watch(home.path());
    let mut second =
        second.args(["--attach", "--record", "second.vram"]).process_group(0).stderr(Stdio::null()).spawn().unwrap();
    wait(|| std::fs::metadata(home.path().join("second.vram")).is_ok_and(|file| file.len() > 2000));
    let end = |id: u32| kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), Signal::INT).unwrap();
    end(second.id());
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert_eq!(read(&home.path().join("second.vram")).0.lab_mut(DeviceIndex::FIRST).unwrap().malformed(), 0);
    assert!(first.try_wait().unwrap().is_none(), "it goes on");
    end(first.id());
    assert_eq!(first.wait().unwrap().code(), Some(130));
}

#[test]
fn nobody_else_can_open_the_socket() {
    use std::os::unix::fs::PermissionsExt;
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut running = watch(home.path())
        .env("UNTIL", home.path().join("seen"))
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["50", "0.01", "allocated"])
        .spawn()
        .unwrap();
    let socket = || {
        let folders = home.path().join("vramlab-watch").read_dir().ok()?.flatten();
        let mut files = folders.filter_map(|folder| folder.path().read_dir().ok()).flat_map(|files| files.flatten());
        files.find(|file| file.path().extension().is_some_and(|extension| extension == "sock")).map(|file| file.path())
    };
    wait(|| socket().is_some());
    let socket = socket().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    // A client that connects and sends nothing, or leaves at once, does no harm.
    let mut silent = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
    let mut magic = [0; 4];
    silent.read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"VRW1");
    std::fs::write(home.path().join("seen"), "").unwrap();
    assert!(running.wait().unwrap().success());
}

#[test]
fn a_program_that_records_for_itself_records_what_it_would_have() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let alone = Command::new("python3")
        .arg(programs().join("own.py"))
        .arg(home.path().join("alone"))
        .env("PYTHONPATH", programs())
        .status()
        .unwrap();
    assert!(alone.success());
    let watched = watch(home.path())
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("own.py"))
        .arg("watched")
        .output()
        .unwrap();
    assert!(watched.status.success(), "{}", String::from_utf8_lossy(&watched.stderr));
    let dumps = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    assert!(dumps("alone").len() > 100_000, "it records much");
    assert!(dumps("alone") == dumps("watched"), "its own recordings are another with a viewer");
    let (mut ranks, kinds) = read(&home.path().join("run.vram"));
    assert_eq!(ranks.lab_mut(DeviceIndex::FIRST).unwrap().view().ledger.allocated().0, 0);
    assert_eq!(kinds.iter().filter(|kind| matches!(kind, EventKind::StepEnd(_))).count(), 120);
    assert_eq!(ranks.lab_mut(DeviceIndex::FIRST).unwrap().malformed(), 0);
}

#[test]
fn a_recording_of_nothing_is_none() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let run = watch(home.path())
        .args(["--record", "run.vram", "--", "python3", "-c", "import torch, sys; sys.exit(7)"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(7), "{said}");
    assert!(said.starts_with("nothing was recorded: ") && said.contains("never used PyTorch on a GPU"), "{said}");
    assert!(!home.path().join("run.vram").exists());
}

#[test]
fn a_program_behind_a_shell_is_joined_by_either_process_and_a_killed_one_by_none() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let sockets = || {
        let folders = home.path().join("vramlab-watch").read_dir().ok().into_iter().flatten().flatten();
        let files = folders.filter_map(|folder| folder.path().read_dir().ok()).flat_map(|files| files.flatten());
        let sockets =
            files.map(|file| file.path()).filter(|file| file.extension().is_some_and(|ending| ending == "sock"));
        sockets.collect::<Vec<_>>()
    };
    let script = format!("python3 {} 1000000 0.005 allocated; exit 9", programs().join("train.py").display());
    let mut first = watch(home.path());
    first.args(["--record", "first.vram", "--", "bash", "-c", &script]).stderr(Stdio::null());
    let mut first = first.spawn().unwrap();
    wait(|| !sockets().is_empty());
    let socket = sockets().remove(0);
    let python: i32 = socket.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    // The shell was started; its child is watched.
    let stat = std::fs::read_to_string(format!("/proc/{python}/stat")).unwrap();
    let bash = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
    let mut second = watch(home.path());
    let second = second.args(["--attach", &bash, "--record", "second.vram"]).stderr(Stdio::null()).spawn().unwrap();
    wait(|| std::fs::metadata(home.path().join("second.vram")).is_ok_and(|file| file.len() > 2000));
    rustix::process::kill_process(rustix::process::Pid::from_raw(python).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(9), "the shell's exit code");
    assert!(second.wait_with_output().unwrap().status.success());
    // What a killed program leaves behind is no program: it is put back here, as if its folder had stayed.
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(&socket);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    for attach in [vec!["--attach"], vec!["--attach", socket.file_stem().unwrap().to_str().unwrap()]] {
        let out = watch(home.path()).args(attach).args(["--record", "third.vram"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("no program that can be watched runs here"), "{said}");
        assert!(!home.path().join("third.vram").exists());
    }
    assert!(!socket.exists(), "it is removed");
}

#[test]
fn a_leak_that_begins_late_has_its_line() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // The program waits for a look every 25 steps. Looks may take half of the time; otherwise they would be seconds
    // apart on a busy machine.
    let run = watch(home.path())
        .env("VRAMLAB_WATCH_SHARE", "0.5")
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("late.py"))
        .args(["1100", "25"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (ranks, kinds) = read(&home.path().join("run.vram"));
    let names = ranks.lab(DeviceIndex::FIRST).unwrap().names();
    let late: Vec<&str> = kinds
        .iter()
        .filter_map(|kind| match kind {
            EventKind::Alloc { name, .. } => Some(names.get(*name)),
            _ => None,
        })
        .collect();
    // Seven allocations a step; one of them leaks.
    let last = &late[late.len() - 700..];
    let named = last.iter().filter(|name| name.contains("train.py:99")).count();
    assert_eq!(named, 100, "of the last hundred steps' leaks so many have their line");
}

#[test]
fn windows_of_a_fast_program_contradict_nothing() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // A ring that is far too short: most events are lost between two looks.
    let run = watch(home.path())
        .env("VRAMLAB_WATCH_ENTRIES", "64")
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["3000", "0.001", "allocated"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (mut ranks, _) = read(&home.path().join("run.vram"));
    let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
    let allocated: u64 = std::fs::read_to_string(home.path().join("allocated")).unwrap().parse().unwrap();
    assert_eq!((lab.malformed(), lab.view().ledger.allocated().0), (0, allocated));
}

#[test]
fn a_program_on_a_card_that_is_not_there_is_seen_whole_however_fast_it_is() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // The variable that `--device` sets; the ring holds three steps.
    let run = watch(home.path())
        .envs([("VRAMLAB_CARD", "card"), ("VRAMLAB_WATCH_ENTRIES", "64")])
        .args(["--record", "run.vram", "--", "python3"])
        .arg(programs().join("train.py"))
        .args(["300", "0", "allocated"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (mut ranks, kinds) = read(&home.path().join("run.vram"));
    let takes = kinds.iter().filter(|kind| matches!(kind, EventKind::Alloc { .. })).count();
    assert_eq!(takes, 3 + 300 * 6 + 30, "every allocation from the first on, once");
    let lab = ranks.lab_mut(DeviceIndex::FIRST).unwrap();
    assert_eq!((lab.malformed(), lab.about().kind), (0, DeviceKind::Absent));
}

#[test]
fn ranks_stand_side_by_side_and_a_context_on_the_gpu_of_another_is_seen() {
    if !python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // As a launcher starts two ranks; the second used a GPU before it chose its own.
    let ranks = r#"for rank in 1 0; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 GPUS=2 CONTEXTS=0,$rank python3 "$0" 60 0.02 allocated$rank &
    done; wait"#;
    let run = watch(home.path())
        .args(["--record", "run.vram", "--", "sh", "-c", ranks])
        .arg(programs().join("train.py"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (ranks, _) = read(&home.path().join("run.vram"));
    let figures = RankFigures::of(&ranks, &[DeviceIndex(0), DeviceIndex(1)]);
    assert_eq!(figures.iter().map(|of| of.alike.words()).collect::<Vec<_>>(), ["rank 0", "rank 1"]);
    assert!(figures.iter().all(|of| of.alike.world == 2 && of.allocated > Bytes::ZERO));
    let contexts: Vec<&[u16]> = figures.iter().map(|of| &*of.foreign_contexts).collect();
    assert_eq!(contexts, [&[] as &[u16], &[0]]);
}

/// PyTorch's record of exchanges says how long each took: the rank that waits for no other is the one for which all
/// others wait.
#[test]
fn a_straggler_among_ranks_is_found_where_exchanges_are_timed() {
    if !python() {
        return;
    }
    let found = |timing: Option<&str>| {
        let home = tempfile::tempdir().unwrap();
        let ranks = r#"for rank in 0 1; do
            EXCHANGE=$((40 - 38 * rank)) RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 GPUS=2 python3 "$0" 90 0.04 allocated$rank &
        done; wait"#;
        let mut watch = watch(home.path());
        watch.envs(timing.map(|timing| ("TORCH_NCCL_ENABLE_TIMING", timing)));
        watch.args(["--record", "run.vram", "--", "sh", "-c", ranks]).arg(programs().join("train.py"));
        let run = watch.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let (ranks, _) = read(&home.path().join("run.vram"));
        let figures = RankFigures::of(&ranks, &[DeviceIndex(0), DeviceIndex(1)]);
        RankFigures::findings(&figures).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let said = found(None);
    assert!(matches!(&said[..], [said] if said.starts_with("rank 1 is a straggler: ")), "{said:?}");
    // If the user turned that off, nothing is measured.
    assert_eq!(found(Some("0")), [""; 0]);
}
