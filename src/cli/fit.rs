//! `vramlab fit`: the largest batch under a limit, and the cheapest combination of switches that fits.

use std::ffi::OsString;
use std::io::Write;
use std::sync::atomic::Ordering;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Map, Value, json};

use super::columns::{Cell, Column, Paper, Table, Tone};
use super::fit_program::{self, ProgramSearch};
use super::output::{stdout, warn};
use super::percent::changed;
use super::said_once::{SaidOnce, words};
use super::search::{Follower, in_milliseconds, limit_json, limit_of, milliseconds, probe_json, reason, why, words_of};
use super::spec::SpecArgs;
use super::stand_in::StandInArgs;
use super::{Status, Usage, config, foresight, interrupt, ranks, reproduce, ways};
use crate::fit::{
    self, CandidateCost, CandidateFit, Control, Largest, Pareto, Probe, ProbeFigures, ProbeOutcome, SearchNews, Terms,
};
use crate::session::{DeviceChoice, LabSpec, Setup};
use crate::workload::{Data, LengthPolicy};

/// Combinations that the table lists.
const ROWS: usize = 12;
/// Arguments of `vramlab fit`.
#[derive(Debug, Args)]
pub(super) struct FitArgs {
    /// What to train: see `vramlab list`.
    #[arg(value_name = "WORKLOAD", required_unless_present = "program")]
    workload: Option<String>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Number of steps that a batch must train, each time from a clean state. Of a program, steps of its optimizer count, unless
    /// it ends before.
    #[arg(long, value_name = "N", default_value_t = fit::STEPS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Share the work among simulated GPUs in this way (ddp, ddp-view, zero1, zero2, fsdp, tp, pp-gpipe, pp-1f1b, ps), or try
    /// each of them (all). Finds the fewest cards for the batch of all ranks; with --device sim:h200x4 the largest batch of four
    /// cards.
    #[arg(long, value_name = "WAY", conflicts_with = "batch_only")]
    parallel: Option<ranks::Ways>,
    /// Find only the largest batch; try no combinations of switches.
    #[arg(long)]
    batch_only: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Any PyTorch program and its arguments, after `--`; {} among them is the batch. It runs on the card of --device.
    #[arg(value_name = "PROGRAM", last = true, requires = "device", conflicts_with_all = NOT_OF_PROGRAMS)]
    program: Vec<OsString>,
}

/// Switches that only vramlab's own workloads have.
const NOT_OF_PROGRAMS: [&str; 22] = [
    "workload",
    "parallel",
    "speed",
    "torch",
    "layers",
    "width",
    "heads",
    "seq",
    "vocab",
    "classes",
    "image",
    "patch",
    "context",
    "data",
    "seed",
    "load",
    "preallocate",
    "inference",
    "half",
    "new_tokens",
    "static_cache",
    "batch_only",
];

/// The result, and the arguments that decide its wording.
struct FitReport<'a> {
    args: &'a FitArgs,
    spec: &'a LabSpec,
    largest: Largest,
    pareto: Pareto,
    ways: Vec<CandidateFit>,
    interrupted: bool,
    paper: Paper,
}

/// Searches and prints. Exit code 1 if nothing fits, 130 if Ctrl-C ended the search.
pub(super) fn run(args: &FitArgs) -> Result<Status> {
    let Some(workload) = &args.workload else { return of_program(args) };
    let mut settings = config::settings();
    let device = args.spec.device.clone().or_else(|| settings.device());
    settings.told.iter().for_each(warn);
    let (device, cards) = ranks::split_count(device);
    let given = SpecArgs { device, ..args.spec.clone() };
    let mut spec = given.lab(Some(workload), Some(args.steps))?;
    if let Some(ways) = ranks::ways(args.parallel, cards)? {
        if args.spec.data.is_none() {
            ranks::keep_batches(&mut spec);
        }
        let search = ranks::RankSearch { given: &given, spec: &spec, ways, cards, steps: args.steps, json: args.json };
        return search.run();
    }
    if let Data::Lengths(lengths) = &mut spec.data {
        // The longest samples decide what fits, and a probe has few steps.
        if lengths.policy != LengthPolicy::Pack {
            lengths.policy = LengthPolicy::LongestFirst;
        }
    }
    foresight::announce_search(&spec, args.steps, !args.batch_only);
    let stop = interrupt::flag()?;
    let follow = Follower::new(&spec);
    let tell = |news: SearchNews<'_>| follow.hear(&news);
    let control = Control::new(&stop, &tell);
    let terms = Terms { why };
    let largest = fit::largest_batch(&spec, args.steps, terms, &control);
    let pareto = match &largest {
        Ok(_) if args.batch_only || control.is_stopped() => Ok(Pareto::default()),
        Ok(_) => fit::pareto(&spec, args.steps, terms, &control),
        Err(_) => Ok(Pareto::default()),
    };
    let ways = match (&largest, &pareto) {
        (Ok(largest), Ok(pareto)) if pareto.complete && (largest.batch.is_none() || pareto.front().is_empty()) => {
            fit::other_ways(&spec, pareto, args.steps, terms, &control)
        }
        _ => Ok(Vec::new()),
    };
    follow.end();
    let interrupted = stop.load(Ordering::Relaxed);
    let report = FitReport {
        args,
        spec: &spec,
        largest: largest?,
        pareto: pareto?,
        ways: ways?,
        interrupted,
        paper: Paper::stdout(),
    };
    if args.json {
        writeln!(stdout(), "{}", report.json())?;
    } else {
        report.write(&mut report.paper.out())?;
    }
    let fits = if args.batch_only { report.largest.batch.is_some() } else { !report.pareto.front().is_empty() };
    Ok(match (interrupted, fits) {
        (true, _) => Status::of_code(130),
        (false, true) => Status::DONE,
        (false, false) => Status::FAILED,
    })
}

/// Searches with a user's program.
fn of_program(args: &FitArgs) -> Result<Status> {
    let given = args.spec.switches.of_program().map_err(Usage)?;
    let stand_in = StandInArgs { device: args.spec.device.clone(), limit: given.limit, skip_steps: Vec::new() };
    let Some(cards) = stand_in.cards()? else {
        return Err(Usage("give --device sim:NAME for a program".to_owned()).into());
    };
    let (start, steps) = (given.batch.unwrap_or(1), args.steps);
    fit_program::run(&ProgramSearch { program: &args.program, cards: &cards, start, steps, json: args.json })
}

impl FitReport<'_> {
    fn is_simulated(&self) -> bool {
        matches!(self.spec.device, DeviceChoice::Sim(_))
    }

    fn simulated(&self) -> &'static str {
        if self.is_simulated() { ", simulated" } else { "" }
    }

    /// The shell command that runs with these switches.
    fn command(&self, setup: &Setup) -> String {
        reproduce::command(&self.args.spec, self.spec, setup, None)
    }

    fn of_batch(&self, batch: usize) -> Setup {
        let mut setup = self.spec.setup();
        setup.config.batch = batch;
        setup
    }

    fn write(&self, out: &mut impl Write) -> Result<()> {
        let about = self.spec.about(None);
        let (workload, simulated) = (&self.spec.workload.name, self.simulated());
        let (limit, steps) = (limit_of(self.spec), self.args.steps);
        let device = &about.device;
        let data = words_of(self.spec.config.data);
        let heading = format!(
            "{workload} on {device}, within {limit}: {steps} steps a probe, each from a clean state; {data}{simulated}"
        );
        self.paper.paragraph(out, &heading, 0, Tone::Plain)?;
        writeln!(out)?;
        self.write_probes(out)?;
        if self.interrupted {
            writeln!(out, "\nInterrupted: this is what was known so far.")?;
        }
        if !self.args.batch_only && !self.pareto.tried.is_empty() {
            writeln!(out)?;
            self.write_front(out)?;
        }
        Ok(ways::write(out, &self.ways, self.simulated(), |setup| self.command(setup))?)
    }

    fn write_probes(&self, out: &mut impl Write) -> Result<()> {
        let mut table = Table::new([
            Column::right("batch"),
            Column::wraps("outcome"),
            Column::right("peak\nreserved"),
            Column::right("peak\nallocated"),
            Column::right("step"),
            Column::right("retries").spare(1),
            Column::right("failed\nrequests").spare(2),
        ]);
        let mut probes: Vec<&Probe> = self.largest.probes.iter().collect();
        probes.sort_by_key(|probe| probe.batch);
        for probe in &probes {
            let mut cells: Vec<Cell> = vec![probe.batch.to_string().into()];
            match &probe.outcome {
                ProbeOutcome::Fits(figures) => {
                    cells.push(Cell::toned("fits", Tone::Good));
                    cells.extend(of_figures(figures).map(Cell::from));
                }
                ProbeOutcome::OutOfMemory { step, retries, .. } => {
                    let when = step.map_or_else(|| " making the model".to_owned(), |step| format!(", step {step}"));
                    cells.push(Cell::toned(format!("out of memory{when}"), Tone::Bad));
                    cells.extend(["", "", ""].map(Cell::from));
                    if step.is_some() {
                        cells.extend(
                            [retries.num_alloc_retries, retries.num_ooms].map(|count| count.to_string().into()),
                        );
                    }
                }
                ProbeOutcome::Refused { .. } => cells.push(Cell::toned("refused", Tone::Bad)),
                ProbeOutcome::Stopped => {}
            }
            table.row(cells);
        }
        table.print(out, self.paper)?;
        writeln!(out)?;
        match self.largest.batch {
            Some(batch) if self.largest.complete => {
                let largest = format!("largest batch: {batch}{}", self.simulated());
                writeln!(out, "{}", self.paper.toned(&largest, Tone::Strong))?;
                self.paper.command(out, &self.command(&self.of_batch(batch)), 2)?;
            }
            Some(batch) => writeln!(out, "largest batch so far: {batch}{}", self.simulated())?,
            None if self.largest.complete => writeln!(out, "no batch fits as it stands")?,
            None => writeln!(out, "no batch has fitted so far")?,
        }
        if let Some(beyond) = self.largest.beyond()
            && let Some(why) = reason(&beyond.outcome)
        {
            self.paper.paragraph(out, &format!("Batch {} does not fit: {why}", beyond.batch), 2, Tone::Plain)?;
        }
        if !self.largest.holes.is_empty() {
            let holes: Vec<String> = self.largest.holes.iter().map(usize::to_string).collect();
            let holes = format!(
                "Smaller batches that do not fit, because they fragment memory differently: {}",
                holes.join(", ")
            );
            self.paper.paragraph(out, &holes, 2, Tone::Plain)?;
        }
        Ok(())
    }

    fn write_front(&self, out: &mut impl Write) -> Result<()> {
        let front = self.pareto.front();
        let batch = self.spec.config.batch;
        let tried = self.pareto.tried.len();
        let fitting = self.pareto.tried.iter().filter(|costed| costed.figures().is_some()).count();
        if front.is_empty() {
            writeln!(out, "batch {batch}: none of {tried} combinations of switches fits")?;
            if let Some(nearest) = self.pareto.tried.iter().max_by_key(|costed| costed.candidate.changed.len())
                && let Some(why) = reason(&nearest.outcome)
            {
                let with = format!("With {} it does not fit: {why}", words(nearest));
                self.paper.paragraph(out, &with, 2, Tone::Plain)?;
            }
            return Ok(());
        }
        let heading = format!(
            "batch {batch}: {fitting} of {tried} combinations of switches fit; the best of them{}",
            self.simulated()
        );
        self.paper.paragraph(out, &heading, 0, Tone::Strong)?;
        let rows = &front[..front.len().min(ROWS)];
        let said_once = SaidOnce::of(rows);
        if let Some(all) = said_once.in_words() {
            self.paper.paragraph(out, &all, 0, Tone::Plain)?;
        }
        writeln!(out)?;
        let base = self.pareto.tried.first().and_then(CandidateCost::figures);
        let mut table = Table::new([
            Column::wraps("switches"),
            Column::right("peak\nreserved"),
            Column::right("change").spare(1),
            Column::right("step"),
            Column::right("change").spare(2),
            Column::wraps(""),
        ]);
        let best = best(&front);
        for costed in rows {
            let Some(figures) = costed.figures() else { continue };
            let compared =
                |of: fn(&ProbeFigures) -> u64| base.map_or_else(Cell::default, |base| changed(of(base), of(figures)));
            let named: Vec<&str> =
                best.iter().filter(|(_, one)| std::ptr::eq(*one, *costed)).map(|(name, _)| *name).collect();
            table.row(vec![
                said_once.words(costed).into(),
                figures.peak_reserved.to_string().into(),
                compared(|figures| figures.peak_reserved.get()),
                milliseconds(figures.step).into(),
                compared(|figures| figures.step.0),
                Cell::toned(named.join(", "), Tone::Strong),
            ]);
        }
        table.print(out, self.paper)?;
        if let Some(more) = front.len().checked_sub(ROWS).filter(|&more| more > 0) {
            writeln!(out, "and {more} more: see --json")?;
        }
        let mut printed: Vec<&CandidateCost> = Vec::new();
        for (_, costed) in &best {
            if printed.iter().any(|one| std::ptr::eq(*one, *costed)) {
                continue;
            }
            printed.push(costed);
            let names: Vec<&str> =
                best.iter().filter(|(_, one)| std::ptr::eq(*one, *costed)).map(|(name, _)| *name).collect();
            writeln!(out)?;
            self.paper.paragraph(out, &format!("{}: {}", names.join(", "), words(costed)), 0, Tone::Strong)?;
            self.paper.command(out, &self.command(&costed.candidate.setup), 2)?;
        }
        if let Some(why) = self.pareto.tried.first().and_then(|costed| reason(&costed.outcome)) {
            writeln!(out)?;
            self.paper.paragraph(out, &format!("As it stands it does not fit: {why}"), 0, Tone::Plain)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let row = |costed: &CandidateCost| {
            let switches: Map<String, Value> = costed
                .candidate
                .changed
                .iter()
                .map(|(switch, value)| (switch.word().to_owned(), json!(value)))
                .collect();
            let figures = costed.figures();
            json!({
                "switches": switches,
                "peak_reserved": figures.map(|figures| figures.peak_reserved),
                "peak_allocated": figures.map(|figures| figures.peak_allocated),
                "step_ms": figures.map(|figures| in_milliseconds(figures.step)),
                "num_alloc_retries": figures.map(|figures| figures.retries.num_alloc_retries),
                "num_ooms": figures.map(|figures| figures.retries.num_ooms),
                "command": self.command(&costed.candidate.setup),
            })
        };
        let front: Vec<Value> = self.pareto.front().into_iter().map(row).collect();
        let limit = limit_json(self.spec);
        json!({
            "units": { "sizes": "bytes", "step_ms": "milliseconds" },
            "workload": self.spec.workload.name,
            "device": self.spec.about(None).device,
            "simulated": self.is_simulated(),
            "limit": limit,
            "steps": self.args.steps,
            "largest_batch": self.largest.batch,
            "complete": self.largest.complete && (self.args.batch_only || self.pareto.complete),
            "interrupted": self.interrupted,
            "holes": self.largest.holes,
            "probes": self.largest.probes.iter().map(probe_json).collect::<Vec<_>>(),
            "command": self.largest.batch.map(|batch| self.command(&self.of_batch(batch))),
            "batch": self.spec.config.batch,
            "tried": self.pareto.tried.len(),
            "pareto": front,
            "other_ways": ways::document(&self.ways, |setup| self.command(setup)),
        })
    }
}

/// The combinations whose commands are printed: the fastest, the one with the fewest switches, and the one that takes least memory.
fn best<'a>(front: &[&'a CandidateCost]) -> Vec<(&'static str, &'a CandidateCost)> {
    let simplest = front.iter().min_by_key(|costed| costed.candidate.changed.len());
    let smallest = front.iter().min_by_key(|costed| costed.figures().map(|figures| figures.peak_reserved));
    [("fastest", front.first()), ("simplest", simplest), ("smallest", smallest)]
        .into_iter()
        .filter_map(|(name, costed)| Some((name, *costed?)))
        .collect()
}

fn of_figures(figures: &ProbeFigures) -> [String; 5] {
    [
        figures.peak_reserved.to_string(),
        figures.peak_allocated.to_string(),
        milliseconds(figures.step),
        figures.retries.num_alloc_retries.to_string(),
        figures.retries.num_ooms.to_string(),
    ]
}
