//! `vramlab folklore`: what articles and forums claim, measured here and now.

mod document;
mod interrupt;
mod text;

use std::borrow::Cow;
use std::io::Write;

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;

use super::columns::Paper;
use super::output::{stdout, warn};
use super::progress::ProgressLine;
use super::spec::{self, workloads};
use super::{Status, Usage, config};
use crate::folklore::{Bench, BenchOutcome, Claim, Folklore, FolkloreError, NotHere};
use crate::session::DeviceChoice;
use crate::user_input::config_folder;
use interrupt::Interrupt;

/// The device for claims about GPUs on a machine without one.
const SIMULATED: &str = "sim:h200";

/// Arguments of `vramlab folklore`.
#[derive(Debug, Args)]
pub(super) struct FolkloreArgs {
    /// Measure only these claims; a single claim is shown in full [default: all claims].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Where to measure: cuda (or cuda:1 …), cpu, or a simulated GPU such as sim:h200 [default: the GPU where CUDA works, else
    /// sim:h200].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Print one JSON object instead of a table.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The format of the table.
    #[arg(long, value_enum, default_value_t = ClaimsFormat::Text)]
    format: ClaimsFormat,
}

/// How the table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClaimsFormat {
    /// For a terminal.
    Text,
    /// For a Markdown page.
    Markdown,
}

/// A claim, and its outcome.
struct JudgedClaim<'a> {
    /// The claim as it was run: with smaller sides, if the original ones did not fit.
    claim: Cow<'a, Claim>,
    outcome: BenchOutcome,
}

/// Where it was measured.
struct MeasuredOn {
    /// `sim:h200`.
    device: String,
    /// Times and bytes come from a model.
    simulated: bool,
}

impl MeasuredOn {
    fn of(device: &DeviceChoice) -> Self {
        match device {
            DeviceChoice::Cpu => Self { device: "cpu".to_owned(), simulated: false },
            DeviceChoice::Cuda(ordinal) => Self { device: format!("cuda:{ordinal}"), simulated: false },
            DeviceChoice::Sim(card) => Self { device: format!("sim:{}", card.name), simulated: true },
        }
    }

    /// The device's name, and that it is simulated if it is.
    fn words(&self) -> String {
        if self.simulated { format!("{}, simulated", self.device) } else { self.device.clone() }
    }
}

/// Measures and prints. Exit code 0 with any verdicts; 130 if it was interrupted, after printing what was measured so far.
pub(super) fn run(args: &FolkloreArgs) -> Result<Status> {
    let mut settings = config::settings();
    let named = args.device.clone().or_else(|| settings.device());
    settings.told.iter().for_each(warn);
    let device = match named {
        Some(name) => spec::device(&name)?,
        None => match DeviceChoice::best() {
            DeviceChoice::Cpu => spec::device(SIMULATED)?,
            gpu => gpu,
        },
    };
    let place = MeasuredOn::of(&device);
    let bench = Bench { device, workloads: workloads() };
    let folder = config_folder(|name| std::env::var_os(name));
    let folklore = Folklore::with_user_claims(folder.as_deref(), &bench.workloads)?;
    folklore.warnings().iter().for_each(warn);
    let (chosen, not_here) = chosen(&folklore, &args.names)?;
    let interrupt = Interrupt::listen()?;
    let rows = measure(&bench, &chosen, &interrupt);
    let interrupted = rows.len() < chosen.len();
    let paper = Paper::stdout();
    match (args.json, args.format, &rows[..]) {
        (true, ..) => writeln!(stdout(), "{}", document::json(&place, &rows, &not_here))?,
        (false, ClaimsFormat::Markdown, rows) => document::markdown(&mut stdout(), &place, rows, &not_here)?,
        (false, ClaimsFormat::Text, [row]) if args.names.len() == 1 => {
            text::in_full(&mut paper.out(), &place, row, paper)?
        }
        (false, ClaimsFormat::Text, rows) => {
            let mut out = paper.out();
            if !rows.is_empty() {
                text::table(&mut out, &place, rows, paper)?;
            }
            // Claims that could have been measured and were not stand above everything else.
            if !interrupted {
                text::not_here(&mut out, &not_here, !rows.is_empty(), paper)?;
            }
        }
    }
    if interrupted {
        warn(format_args!("it was interrupted: {} of {} claims were measured", rows.len(), chosen.len()));
        return Ok(Status::INTERRUPTED);
    }
    Ok(Status::DONE)
}

/// The claims of these names, or all claims: those that can be run here, and those that can't.
fn chosen<'a>(folklore: &'a Folklore, names: &[String]) -> Result<(Vec<&'a Claim>, Vec<&'a NotHere>)> {
    if names.is_empty() {
        return Ok((folklore.claims().iter().collect(), folklore.not_here().iter().collect()));
    }
    let (mut run, mut not_here) = (Vec::new(), Vec::new());
    for name in names {
        match folklore.not_here().iter().find(|claim| claim.name == *name) {
            Some(claim) => not_here.push(claim),
            None => run.push(folklore.named(name).map_err(|error: FolkloreError| Usage(error.to_string()))?),
        }
    }
    Ok((run, not_here))
}

/// Measures the claims one after the other until it is interrupted.
fn measure<'a>(bench: &Bench, claims: &[&'a Claim], interrupt: &Interrupt) -> Vec<JudgedClaim<'a>> {
    let sides = |claims: &[&Claim]| claims.iter().map(|claim| claim.sides.len() as u64).sum::<u64>();
    let mut progress = ProgressLine::new("measuring", sides(claims));
    let mut rows = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let before = sides(&claims[..index]);
        let outcome = bench.measure(claim, |stage| {
            progress.of_few(before + stage.index as u64, sides(claims));
            !interrupt.came()
        });
        if outcome == BenchOutcome::Cancelled {
            break;
        }
        let reduced = match &outcome {
            BenchOutcome::Judged(judged) => judged.reduced.as_ref(),
            BenchOutcome::Unfit { .. } | BenchOutcome::Cancelled => None,
        };
        let smaller = reduced.map(|reduction| Cow::Owned(reduction.of(claim, &bench.workloads)));
        rows.push(JudgedClaim { claim: smaller.unwrap_or(Cow::Borrowed(*claim)), outcome });
    }
    rows
}
