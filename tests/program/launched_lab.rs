//! The lab of ranks that are processes: rank 0 draws it in a pseudo-terminal, the others train for it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use portable_pty::CommandBuilder;
use rustix::process::{Pid, Signal, kill_process};
use vramlab::model::EventKind;
use vramlab::recording::{Next, Reader};

use crate::launched::{SILENCE, port};
use crate::patience::{self, PATIENCE, Stopwatch};
use crate::pytorch::torchrun;
use crate::terminal::{Session, in_environment, step_shown, vramlab};

/// The longest that ending may take: ranks say goodbye to each other.
const END: Duration = Duration::from_secs(10);

/// The processes of a lab of several ranks.
struct Launched {
    lab: Session,
    others: Vec<Child>,
}

impl Launched {
    fn start(ranks: usize, arguments: &[&str]) -> Self {
        let port = port();
        let variables = |rank: usize| {
            let rank = rank.to_string();
            [("RANK", rank.clone()), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks.to_string())]
                .into_iter()
                .chain([("MASTER_ADDR", "127.0.0.1".to_owned()), ("MASTER_PORT", port.clone())])
                .chain([("XDG_CONFIG_HOME", "/nowhere".to_owned())])
        };
        let other = |rank| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
            command.args(arguments).envs(variables(rank));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let others = (1..ranks).map(other).collect();
        let variables: Vec<(&str, String)> = variables(0).collect();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
        Self { lab: Session::start(in_environment(vramlab(arguments), &variables), 120, 40), others }
    }

    /// Presses `q`; returns the output of each of the other ranks.
    fn leave(mut self) -> Vec<String> {
        self.lab.press("q");
        assert_eq!(self.lab.wait_for_end(END).exit_code(), 0);
        self.lab.assert_restored();
        self.others.drain(..).map(|other| ended(other, true)).collect()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.others.iter_mut().for_each(|other| drop(other.kill()));
    }
}

/// The output of a process that ends by itself, and soon.
fn ended(mut other: Child, well: bool) -> String {
    let mut watch = Stopwatch::start(other.id());
    let has_ended = || {
        let ended = other.try_wait().unwrap().is_some();
        assert!(ended || !watch.exceeds(END), "a rank is still there");
        ended
    };
    patience::wait(has_ended, || "a rank to end".to_owned());
    let output = other.wait_with_output().unwrap();
    assert_eq!(output.status.success(), well);
    assert!(output.stdout.is_empty(), "only rank 0 has a screen");
    String::from_utf8(output.stderr).unwrap()
}

/// For each rank, the steps before which a switch was set to this value.
fn flips(path: &Path, value: &str) -> [Vec<u64>; 2] {
    let mut reader = Reader::new(File::open(path).unwrap());
    let (mut flips, mut next) = ([Vec::new(), Vec::new()], [0; 2]);
    let mut named = Vec::new();
    while let Next::Frame(frame) = reader.next().unwrap() {
        for event in frame.unpack().unwrap().events() {
            let event = event.unwrap();
            let rank = usize::from(event.device.0);
            match event.kind {
                EventKind::Define { id, text } if &*text == value => named.push((rank, id)),
                EventKind::StepBegin { step } => next[rank] = step + 1,
                EventKind::SwitchFlipped { to, .. } if named.contains(&(rank, to)) => flips[rank].push(next[rank]),
                _ => {}
            }
        }
    }
    flips
}

#[test]
fn rank_0_shows_all_ranks_and_a_switch_reaches_them_before_the_same_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let record = path.to_str().unwrap();
    let mut ranks = Launched::start(2, &["gpt-mini", "--device", "cpu", "--parallel", "ddp", "--record", record]);
    ranks.lab.wait_for_training();
    ranks.lab.wait_for_text("ranks ddp · 2");
    ranks.lab.press("o");
    ranks.lab.wait_for_text("o optimizer sgd");
    ranks.lab.press("D");
    ranks.lab.wait_for_text("ddp, rank 1 of 2");
    ranks.lab.wait_for_training();
    // The run begins again in another way, from the same weights.
    ranks.lab.press("W");
    ranks.lab.wait_for_text("ranks ddp-view · 2");
    ranks.lab.wait_for_training();
    let told = ranks.leave();
    assert!(told[0].starts_with("rank 1 of 2: trains for the lab of rank 0\n"), "{told:?}");
    assert!(told[0].contains("rank 1 of 2: the lab has ended after "), "{told:?}");
    let [first, second] = flips(&path, "sgd");
    assert!(first.first().is_some_and(|step| *step > 0), "{first:?}");
    assert_eq!(first.first(), second.first());
    // The second run begins with it. Where the first one was cut off, one rank may have begun one more step.
    assert_eq!([first.len(), second.len()], [2, 2], "{first:?} {second:?}");
}

#[test]
fn a_rank_that_is_killed_is_named_and_threads_can_take_over() {
    let mut ranks = Launched::start(3, &["gpt-mini", "--device", "cpu", "--parallel", "fsdp", "--batch", "6"]);
    ranks.lab.wait_for_training();
    let killed = Instant::now();
    let mut gone = ranks.others.remove(0);
    kill_process(Pid::from_child(&gone), Signal::KILL).unwrap();
    ranks.lab.wait_for_text("rank 1: its process is gone");
    assert!(killed.elapsed() < SILENCE, "took {:?}", killed.elapsed());
    gone.wait().unwrap();
    ranks.lab.press("P");
    ranks.lab.wait_for_training();
    // The remaining processes are no longer needed.
    ended(ranks.others.remove(0), true);
    ranks.leave();
}

#[test]
fn a_rank_that_says_nothing_is_named_and_the_lab_goes_on_or_ends_without_it() {
    let mut ranks = Launched::start(3, &["gpt-mini", "--device", "cpu", "--parallel", "fsdp", "--batch", "6"]);
    ranks.lab.wait_for_training();
    let silent = Pid::from_child(&ranks.others[0]);
    kill_process(silent, Signal::STOP).unwrap();
    let stopped = Instant::now();
    ranks.lab.wait_for_text("rank 1 has said nothing for 5 s: the others wait for it");
    assert!(stopped.elapsed() < SILENCE, "took {:?}", stopped.elapsed());
    // The strip says what each rank does: that one is silent, and for how long, and the others wait.
    let rows = |screen: &vt100::Screen| -> Vec<String> {
        let contents = screen.contents();
        let below = contents.lines().skip_while(|line| !line.contains("ranks fsdp · 3"));
        below.skip(1).take(3).filter(|line| line.contains(" ms")).map(str::to_owned).collect()
    };
    ranks.lab.wait_for("one silent rank, two that wait", |screen| {
        let rows = rows(screen);
        let says = |word: &str| rows.iter().filter(|row| row.contains(word)).count();
        rows.len() == 3 && rows[1].contains("silent ") && says("silent ") == 1 && says("waits") == 2
    });
    kill_process(silent, Signal::CONT).unwrap();
    ranks.lab.wait_for_text("rank 1 answers again");
    let before = step_shown(&ranks.lab.text());
    ranks.lab.wait_for("a step more", |screen| step_shown(&screen.contents()) > before);
    kill_process(silent, Signal::STOP).unwrap();
    ranks.lab.wait_for("silence again", |screen| rows(screen).iter().any(|row| row.contains("silent ")));
    // A silent rank delays nobody, and is named once more where a launcher would wait for it.
    ranks.lab.press("q");
    assert_eq!(ranks.lab.wait_for_end(END).exit_code(), 1);
    ranks.lab.assert_restored();
    ranks.lab.wait_for_text("its process may still be there");
    ended(ranks.others.remove(1), true);
    kill_process(silent, Signal::CONT).unwrap();
    ended(ranks.others.remove(0), true);
}

/// As users start it: torchrun itself, with its ranks in sessions of their own and the terminal passed on.
#[test]
fn torchrun_hands_its_terminal_to_the_lab_of_rank_0() {
    let Some(python) = torchrun() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let mut command = CommandBuilder::new(python);
    command.args(["-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2"]);
    command.args([env!("CARGO_BIN_EXE_vramlab"), "gpt-mini", "--device", "cpu", "--parallel", "ddp"]);
    command.args(["--record", path.to_str().unwrap()]);
    let search = std::env::var("PATH").unwrap_or_default();
    let variables = [("PATH", &*search), ("XDG_CONFIG_HOME", "/nowhere")];
    let mut launched = Session::start(in_environment(command, &variables), 120, 40);
    launched.wait_for_training();
    launched.wait_for_text("ranks ddp · 2");
    // The lab notices a new size although the signal goes to torchrun.
    launched.resize(90, 30);
    launched.wait_for_text("ranks allocated/peak/reserved");
    launched.press("D");
    launched.wait_for_text("ddp, rank 1 of 2");
    launched.press("o");
    launched.wait_for_text("o opt sgd");
    launched.press("q");
    assert_eq!(launched.wait_for_end(PATIENCE).exit_code(), 0);
    launched.assert_restored();
    let raw = String::from_utf8_lossy(&launched.raw.lock().unwrap()).into_owned();
    assert!(!raw.contains("trains for the lab"), "the other rank writes onto the screen of rank 0");
    let [first, second] = flips(&path, "sgd");
    assert!(!first.is_empty() && first == second, "{first:?} {second:?}");
}

#[test]
fn who_trains_for_a_lab_that_is_killed_ends_and_says_so() {
    let mut ranks = Launched::start(2, &["gpt-mini", "--device", "cpu", "--parallel", "tp", "--batch", "8"]);
    ranks.lab.wait_for_training();
    ranks.lab.signal(Signal::KILL);
    let told = ended(ranks.others.remove(0), false);
    assert!(told.contains("rank 0 is gone, and with it the lab"), "{told}");
}

#[test]
fn a_rank_without_memory_stops_all_and_they_begin_again() {
    let limited = ["gpt-mini", "--device", "cpu", "--parallel", "pp-gpipe", "--batch", "64", "--limit", "4MiB"];
    let mut ranks = Launched::start(2, &limited);
    ranks.lab.wait_for_text("OUT OF MEMORY");
    ranks.lab.wait_for_text("out of memory");
    // Halves the batch until it fits.
    ranks.lab.press("bbb ");
    ranks.lab.wait_for_training();
    ranks.leave();
}

#[test]
fn ranks_on_cards_that_are_not_there_are_computed_by_rank_0() {
    let ranks = Launched::start(3, &["gpt-mini", "--device", "sim:h200", "--parallel", "ddp", "--batch", "6"]);
    ranks.lab.wait_for_training();
    ranks.lab.wait_for_text("ranks ddp · 3");
    for told in ranks.leave() {
        assert!(told.contains("is simulated by rank 0"), "{told}");
    }
}
