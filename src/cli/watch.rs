//! `vramlab watch`: shows any unchanged PyTorch program in the lab's screens while it trains.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use color_eyre::eyre::{Result, WrapErr, eyre};
use rustix::process::{Signal, getpgrp};
use tokio::signal::unix::{self, SignalKind};

use super::config;
use super::farewell;
use super::output::complain;
use super::record;
use super::screen::ScreenArgs;
use super::spec::themes;
use super::stand_in::{self, StandInArgs};
use super::{Status, Usage};
use crate::source::{self, MeetingPoint, Request, Source};
use crate::tui::{self, AwaitedProgram, OpeningCommand};
use crate::watch::{Job, Lines, Output, descends, listening_in, sockets, sweep};

/// How long an ending program may take to disappear.
const GONE: Duration = Duration::from_millis(300);

/// Arguments of `vramlab watch`.
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Attach to a program that is being watched already, or that imports vramlab_watch itself. If there are several,
    /// give its PID.
    #[arg(long, value_name = "PID", num_args = 0..=1, conflicts_with = "program")]
    attach: Option<Option<u32>>,
    /// Record to this file without a screen: `vramlab open FILE` plays it.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Which allocations are recorded with their stacks, and so with source lines.
    #[arg(long, value_enum, default_value_t)]
    lines: LinesArg,
    /// File for the program's own output while the screen is open [default: vramlab-watch-PID.log here].
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    output: Option<PathBuf>,
    #[command(flatten)]
    stand_in: StandInArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "PROGRAM", last = true, required_unless_present = "attach")]
    program: Vec<OsString>,
}

/// Which allocations have lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LinesArg {
    /// Those of the first 20 steps, and now and then later.
    #[default]
    Sampled,
    /// All: each costs a few microseconds.
    All,
    /// No allocations.
    None,
}

impl From<LinesArg> for Lines {
    fn from(lines: LinesArg) -> Self {
        match lines {
            LinesArg::Sampled => Self::Sampled,
            LinesArg::All => Self::All,
            LinesArg::None => Self::None,
        }
    }
}

/// Watches until the program ends (with `--record`), or the user leaves the screen.
pub(super) fn run(args: &WatchArgs) -> Result<Status> {
    let options = args.screen.options(&config::settings(), origin(args))?;
    if let Some(path) = &args.record {
        record::refuse_existing(path)?;
    } else if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(eyre!("there is no terminal to draw on; run `vramlab watch` in one, or give --record FILE"));
    }
    sweep();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Registered before the program starts: from then on, a signal must still leave a complete recording.
    let signals = args.record.as_ref().map(|_| runtime.block_on(async { Signals::new() })).transpose()?;
    let (watched, name) = match args.attach {
        Some(pid) => running(pid)?,
        None => started(args)?,
    };
    let source = source::watched(watched.meeting.clone(), name.into()).wrap_err("the program can't be watched")?;
    if let (Some(path), Some(signals)) = (&args.record, signals) {
        let outcome = runtime.block_on(recorded(source, path, signals, watched.job.as_deref()));
        let status = watched
            .job
            .as_ref()
            .map_or(Ok(None), |job| job.lock().unwrap_or_else(PoisonError::into_inner).wait().map(Some))?;
        watched.tell_what_was_counted();
        let nothing = match outcome {
            RecordingOutcome::Something => {
                complain(format_args!("recorded in {}: vramlab open {}", path.display(), path.display()));
                Status::DONE
            }
            RecordingOutcome::Nothing(why) => {
                // A file that can't be removed stays: it says the same.
                let _ = std::fs::remove_file(path);
                complain(format_args!("nothing was recorded: {why}"));
                Status::FAILED
            }
        };
        return Ok(status.map_or(nothing, of_program));
    }
    let options = tui::TuiOptions { awaited: watched.awaited(args), ..options };
    let origin = options.origin.clone();
    let left = runtime.block_on(tui::run(source, options, themes()))?;
    farewell::print(&left, &origin)?;
    watched.tell_what_was_counted();
    let ended = watched.tell_what_goes_on();
    Ok(match left.exit {
        tui::Exit::Quit => ended.map_or(Status::DONE, of_program),
        exit => exit.into(),
    })
}

/// How a recording ended.
enum RecordingOutcome {
    Something,
    /// The program used no PyTorch on a GPU, or could not be reached: the message about it.
    Nothing(Arc<str>),
}

/// The command that watches the same again.
fn origin(args: &WatchArgs) -> OpeningCommand {
    let attached = |pid: &Option<u32>| [Some("--attach".to_owned()), pid.map(|pid| pid.to_string())];
    let stand_in = args.stand_in.words();
    let started = stand_in
        .into_iter()
        .chain(std::iter::once("--".to_owned()))
        .chain(args.program.iter().map(|word| word.to_string_lossy().into()));
    OpeningCommand::Watch(match &args.attach {
        Some(pid) => attached(pid).into_iter().flatten().collect(),
        None => started.collect(),
    })
}

/// A watched program, and what this process knows about it.
struct WatchedProgram {
    meeting: MeetingPoint,
    job: Option<Arc<Mutex<Job>>>,
    output: Option<PathBuf>,
    /// The folder in which the processes of a program on a stand-in GPU write their counts.
    stand_in: Option<PathBuf>,
}

impl WatchedProgram {
    /// What the screen shows about the program before the program sends anything.
    fn awaited(&self, args: &WatchArgs) -> AwaitedProgram {
        let words: Vec<String> = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let started = self.job.as_ref().map(|job| job.lock().unwrap_or_else(PoisonError::into_inner).pid());
        let attached = match &self.meeting {
            MeetingPoint::Socket(socket) => socket.file_stem().and_then(|stem| stem.to_str()?.parse().ok()),
            MeetingPoint::Started(_) => None,
        };
        AwaitedProgram {
            command: words.join(" "),
            pid: started.or(attached),
            output: self.output.clone(),
            ..AwaitedProgram::default()
        }
    }

    /// Reports which values a program on a stand-in GPU read that nothing computed. Its job still exists, and so do its counts.
    fn tell_what_was_counted(&self) {
        if let Some(folder) = &self.stand_in {
            stand_in::tell(folder);
        }
    }

    /// Reports that the program goes on, if it does, and how to join it again; else how it ended.
    fn tell_what_goes_on(&self) -> Option<ExitStatus> {
        let job = self.job.as_ref()?;
        std::thread::sleep(GONE);
        let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
        let output =
            self.output.as_ref().map_or_else(String::new, |path| format!("; its output is in {}", path.display()));
        let ended = job.ended();
        match ended {
            // The started process may be a shell or a launcher: only processes that use PyTorch can be joined.
            None => complain(format_args!(
                "the program goes on (process {}){output}. {}",
                job.pid(),
                how_to_join(&listening_in(job.folder()))
            )),
            Some(status) => complain(format_args!("the program ended ({status}){output}")),
        }
        ended
    }
}

/// Starts the program.
fn started(args: &WatchArgs) -> Result<(WatchedProgram, String)> {
    let output = match &args.record {
        Some(_) => Output::Inherit,
        None => Output::File(args.output.clone().unwrap_or_else(free_output)),
    };
    let (variables, stand_in) = match args.stand_in.cards()? {
        Some(cards) => {
            let placed = stand_in::place(&cards, &args.stand_in.skip_steps)?;
            (placed.variables, Some(placed.folder))
        }
        None => (Vec::new(), None),
    };
    let job = Arc::new(Mutex::new(Job::start(&args.program, args.lines.into(), &output, variables)?));
    let path = match output {
        Output::File(path) => Some(path),
        Output::Inherit => None,
    };
    let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let meeting = MeetingPoint::Started(Arc::clone(&job));
    Ok((WatchedProgram { meeting, job: Some(job), output: path, stand_in }, name_of(&words)))
}

/// Finds a program that is already running.
fn running(pid: Option<u32>) -> Result<(WatchedProgram, String)> {
    let found = sockets();
    let socket = match (pid, &found[..]) {
        (_, []) => {
            return Err(eyre!(
                "no program that can be watched runs here. Start one with `vramlab watch -- python train.py`, or let it \
                 `import vramlab_watch`"
            ));
        }
        (None, [(_, socket)]) => socket,
        (None, several) => {
            let pids: Vec<_> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            return Err(
                Usage(format!("several programs can be watched: give --attach one of {}", pids.join(", "))).into()
            );
        }
        (Some(pid), found) => {
            // If the PID is a shell's or a launcher's, the processes that it started are meant.
            let own = found.iter().find(|(process, _)| *process == pid);
            let mut started = found.iter().filter(|(process, _)| descends(*process, pid));
            let of = own.or_else(|| started.next().filter(|_| started.next().is_none()));
            let (_, socket) =
                of.ok_or_else(|| Usage(format!("process {pid} can't be watched; those that can: {}", list(found))))?;
            socket
        }
    };
    let name = socket.file_stem().map_or_else(String::new, |stem| format!("process {}", stem.to_string_lossy()));
    Ok((
        WatchedProgram { meeting: MeetingPoint::Socket(socket.clone()), job: None, output: None, stand_in: None },
        name,
    ))
}

/// How to watch the listening processes again.
fn how_to_join(found: &[(u32, PathBuf)]) -> String {
    match found {
        [] => "Once it uses PyTorch on a GPU, join it: vramlab watch --attach".to_owned(),
        [(pid, _)] => format!("Join it again: vramlab watch --attach {pid}"),
        several => format!("Join one of its processes again, {}: vramlab watch --attach PID", list(several)),
    }
}

fn list(found: &[(u32, PathBuf)]) -> String {
    found.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>().join(", ")
}

/// The signals that end a program and also reach its recorder.
struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// From here on, these signals no longer end this process.
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hangup: unix::signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}

/// Whether an interrupt from this process's terminal also reaches the program that it started.
fn is_interrupted_with_it() -> bool {
    let terminal = std::fs::File::open("/dev/tty").ok();
    terminal.is_some_and(|terminal| rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Records until the program has ended. A signal is left to the program, which may end or not; a program that was not
/// started here is left running.
async fn recorded(source: Source, path: &Path, mut signals: Signals, job: Option<&Mutex<Job>>) -> RecordingOutcome {
    source.request(Request::Record(path.to_owned()));
    let mut pictures = source.pictures.clone();
    let ended = async { drop(pictures.wait_for(|picture| !picture.extent.grows).await) };
    tokio::pin!(ended);
    loop {
        let signal = tokio::select! {
            () = &mut ended => break,
            signal = signals.next() => signal,
        };
        let Some(job) = job else { break };
        if signal != Signal::INT || !is_interrupted_with_it() {
            job.lock().unwrap_or_else(PoisonError::into_inner).signal(signal);
        }
    }
    let picture = Arc::clone(&source.pictures.borrow());
    if picture.view.about.device.is_empty() {
        let said = picture.view.log.last().map(|line| Arc::clone(&line.text));
        return RecordingOutcome::Nothing(said.unwrap_or_else(|| "it reported nothing".into()));
    }
    RecordingOutcome::Something
}

/// The program's exit code becomes ours.
fn of_program(status: ExitStatus) -> Status {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Status::of_code(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A program's name: the script or module that Python runs, else the program.
fn name_of(words: &[String]) -> String {
    let file = |word: &String| {
        Path::new(word).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let script = words.iter().find(|word| word.ends_with(".py")).map(file);
    let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1)).cloned();
    script.or_else(module).or_else(|| words.first().map(file)).unwrap_or_default()
}

/// A path for the program's output at which no file exists.
fn free_output() -> PathBuf {
    let name = |n: u32| {
        PathBuf::from(format!(
            "vramlab-watch-{}{}.log",
            std::process::id(),
            if n == 0 { String::new() } else { format!("-{n}") }
        ))
    };
    (0..1000).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_its_script() {
        let name = |words: &str| name_of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(name("python -u src/train.py --lr 1"), "train.py");
        assert_eq!(name("torchrun --nproc 2 -m my.train"), "my.train");
        assert_eq!(name("/usr/bin/train"), "train");
    }
}
