//! `vramlab fit --device sim:NAME -- PROGRAM`: the largest number with which any program runs through, on a card that is not there.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use color_eyre::eyre::{Result, eyre};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use super::output::stdout;
use super::stand_in;
use super::{Status, Usage, interrupt};
use crate::fit;
use crate::standin::{Cards, Counts};
use crate::units::Bytes;
use crate::user_input::command_line;
use crate::watch::{Job, Lines, Output, sweep};

/// The placeholder for the number in the program's arguments.
const PLACE: &str = "{}";
/// The largest batch that is tried.
const MOST: usize = 1 << 20;
/// The interval between checks whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Lines of a failed program's output that are shown.
const TOLD: usize = 12;
/// Texts by which PyTorch and CUDA report that memory ran out.
const OUT_OF_MEMORY: [&str; 3] = ["OutOfMemoryError", "CUDA out of memory", "CUDA error: out of memory"];

/// What the search is for.
pub(super) struct ProgramSearch<'a> {
    /// The program, with [`PLACE`] among its arguments.
    pub program: &'a [OsString],
    /// The simulated card.
    pub cards: &'a Cards,
    /// The number that is tried first.
    pub start: usize,
    /// Optimizer steps after which a probe stops, unless the program has ended before.
    pub steps: u64,
    /// Print one JSON object instead of a table.
    pub json: bool,
}

/// One run of the program.
struct ProgramRun {
    number: usize,
    fits: bool,
    /// The most memory that the run took of a card.
    used: Bytes,
}

/// Searches and prints. Exit code 1 if nothing fits, 130 if Ctrl-C ended the search.
pub(super) fn run(search: &ProgramSearch<'_>) -> Result<Status> {
    if !search.program.iter().any(|word| word.to_string_lossy().contains(PLACE)) {
        return Err(Usage(format!(
            "none of the program's arguments holds {PLACE}, which stands for the batch; write for example: python train.py --batch {PLACE}"
        ))
        .into());
    }
    sweep();
    let stop = interrupt::flag()?;
    let live = io::stderr().is_terminal();
    let mut probes: Vec<ProgramRun> = Vec::new();
    let mut out = stdout();
    let outcome = fit::largest(search.start.clamp(1, MOST), MOST, |number| {
        if let Some(known) = probes.iter().find(|probe| probe.number == number) {
            return Ok(Some(known.fits));
        }
        say(live, format_args!("{number} … (Ctrl-C prints what is known)"));
        let Some(probe) = probe(search, number, &stop)? else { return Ok(None) };
        say(live, format_args!(""));
        if !search.json {
            writeln!(out, "{:>8}  {}", number, told(&probe))?;
        }
        let fits = probe.fits;
        probes.push(probe);
        Ok::<_, color_eyre::Report>(Some(fits))
    })?;
    say(live, format_args!(""));
    let best = probes.iter().filter(|probe| probe.fits).max_by_key(|probe| probe.number);
    if search.json {
        let tried: Vec<_> = probes
            .iter()
            .map(|probe| json!({ "batch": probe.number, "fits": probe.fits, "device_used_peak": probe.used.get() }))
            .collect();
        let largest = best.map(|probe| probe.number);
        let card = &search.cards.card.name;
        writeln!(
            out,
            "{}",
            json!({ "card": card, "largest": largest, "complete": outcome.is_some(), "tried": tried })
        )?;
    } else {
        let card = &search.cards.card;
        let card = format!("{} (sim:{})", card.title, card.name);
        match (best, outcome.is_some()) {
            (Some(best), true) => {
                writeln!(
                    out,
                    "\n{} is the largest that fits on {card}.\n\n    {}",
                    best.number,
                    line(search, best.number)
                )?;
            }
            (Some(best), false) => writeln!(out, "\nInterrupted: {} fits on {card}, and more may.", best.number)?,
            (None, true) => writeln!(out, "\nNothing fits on {card}, not even 1.")?,
            (None, false) => writeln!(out, "\nInterrupted before anything fitted.")?,
        }
    }
    Ok(match (outcome.is_some(), best) {
        (false, _) => Status::of_code(130),
        (true, Some(_)) => Status::DONE,
        (true, None) => Status::FAILED,
    })
}

fn told(probe: &ProgramRun) -> String {
    if probe.fits { format!("fits: {} of the card taken at most", probe.used) } else { "does not fit".to_owned() }
}

/// Prints progress; a failure to write it is ignored.
fn say(live: bool, text: std::fmt::Arguments<'_>) {
    if live {
        let _ = write!(io::stderr(), "\r{text}\x1b[K");
    }
}

/// The program's command line with `number` in place of the placeholder.
fn words(search: &ProgramSearch<'_>, number: usize) -> Vec<OsString> {
    let number = number.to_string();
    let replaced =
        |word: &OsString| word.to_str().map_or_else(|| word.clone(), |text| text.replace(PLACE, &number).into());
    search.program.iter().map(replaced).collect()
}

/// The command that watches the program with the number that fits.
fn line(search: &ProgramSearch<'_>, number: usize) -> String {
    let Cards { card, count, memory } = search.cards;
    let device = if *count > 1 { format!("sim:{}x{count}", card.name) } else { format!("sim:{}", card.name) };
    let mut line = vec!["vramlab".to_owned(), "watch".to_owned(), "--device".to_owned(), device];
    if let Some(memory) = memory {
        line.extend(["--limit".to_owned(), memory.get().to_string()]);
    }
    line.push("--".to_owned());
    line.extend(words(search, number).iter().map(|word| word.to_string_lossy().into_owned()));
    command_line(line)
}

/// Runs the program once; `None` if it was stopped.
fn probe(search: &ProgramSearch<'_>, number: usize, stop: &AtomicBool) -> Result<Option<ProgramRun>> {
    let placed = stand_in::place(search.cards, &[])?;
    let log = placed.folder.join("output");
    let mut variables = placed.variables;
    variables.push(("VRAMLAB_WATCH_STEPS".into(), search.steps.to_string().into()));
    let mut job = Job::start(&words(search, number), Lines::None, &Output::File(log.clone()), variables)?;
    let status = loop {
        if let Some(status) = job.ended() {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            end(&mut job);
            return Ok(None);
        }
        thread::sleep(LOOK);
    };
    let used = Counts::read(&placed.folder).used_peak;
    let fits = status.success() || !ran_out(&log, status)?;
    Ok(Some(ProgramRun { number, fits, used }))
}

/// Ends the program and its children.
fn end(job: &mut Job) {
    if let Some(group) = i32::try_from(job.pid()).ok().and_then(Pid::from_raw) {
        // A process group that is gone needs no signal.
        let _ = kill_process_group(group, Signal::KILL);
    }
    // The program's folder is removed once the program is known to have ended.
    let _ = job.wait();
}

/// Whether a program that failed ran out of memory.
///
/// # Errors
/// If the program failed for another reason: then the number says nothing.
fn ran_out(log: &Path, status: ExitStatus) -> Result<bool> {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if OUT_OF_MEMORY.iter().any(|words| text.contains(words)) {
        return Ok(true);
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(TOLD)..).unwrap_or_default().join("\n    ");
    Err(eyre!(
        "the program failed ({status}), and not for want of memory. Run it once by itself; it said last:\n    {last}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::CardCatalog;

    #[test]
    fn the_number_stands_wherever_it_is_wanted() {
        let card = CardCatalog::with_user_cards(None).card("t4").unwrap();
        let cards = Cards { card, count: 2, memory: Some(Bytes(7)) };
        let program = ["python", "a b.py", "--batch={}", "{}"].map(OsString::from);
        let search = ProgramSearch { program: &program, cards: &cards, start: 1, steps: 4, json: false };
        assert_eq!(words(&search, 12), ["python", "a b.py", "--batch=12", "12"].map(OsString::from));
        assert_eq!(line(&search, 3), "vramlab watch --device sim:t4x2 --limit 7 -- python 'a b.py' --batch=3 3");
    }
}
