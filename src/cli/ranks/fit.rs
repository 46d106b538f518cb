//! `vramlab fit --parallel`: the fewest cards for a batch, and the largest batch of several cards.

use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use color_eyre::eyre::Result;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::cli::columns::{Cell, Column, Paper, Table, Tone};
use crate::cli::output::stdout;
use crate::cli::search::{Follower, limit_json, limit_of, milliseconds, reason, why, with_outcome, words_of};
use crate::cli::spec::SpecArgs;
use crate::cli::{Status, Usage, interrupt, reproduce};
use crate::fit::{self, Control, FitError, GroupEdge, GroupProbe, GroupSearch, ProbeOutcome, SearchNews, Terms};
use crate::session::{DeviceChoice, LabSpec, Parallel};
use crate::train::{Config, Parallelism};

/// In which ways the work is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Ways {
    /// In each of them.
    All,
    /// In this one.
    One(Parallelism),
}

impl FromStr for Ways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// The ways to try, if cards are to train together.
///
/// # Errors
/// [`Usage`] for several cards without a way, or for fewer than two cards.
pub(in crate::cli) fn ways(ways: Option<Ways>, cards: Option<usize>) -> Result<Option<Vec<Parallelism>>> {
    if let Some(cards @ (0 | 1)) = cards {
        return Err(Usage(format!("{cards} cards share nothing; give two or more, such as sim:h200x2")).into());
    }
    match (ways, cards) {
        (None, None) => Ok(None),
        (None, Some(_)) => super::parallel(None, cards).map(|_| None),
        (Some(Ways::All), _) => Ok(Some(Parallelism::ALL.to_vec())),
        (Some(Ways::One(way)), _) => Ok(Some(vec![way])),
    }
}

/// What the search is for.
#[derive(Debug)]
pub(in crate::cli) struct RankSearch<'a> {
    /// The run's arguments on the command line.
    pub given: &'a SpecArgs,
    /// The run of all ranks.
    pub spec: &'a LabSpec,
    /// The ways to try.
    pub ways: Vec<Parallelism>,
    /// The number of cards; `None`: as many as are needed.
    pub cards: Option<usize>,
    /// Steps of a probe.
    pub steps: u64,
    /// Print a JSON object.
    pub json: bool,
}

/// The result for one way.
#[derive(Debug)]
struct FitResult {
    way: Parallelism,
    /// The fewest cards for the batch.
    fewest: GroupEdge,
    /// The largest batch on the given cards.
    largest: Option<GroupEdge>,
}

struct Report<'a> {
    search: &'a RankSearch<'a>,
    /// The batch on one card.
    alone: ProbeOutcome,
    found: Vec<FitResult>,
    interrupted: bool,
    paper: Paper,
}

impl RankSearch<'_> {
    /// Searches and prints. Exit code 1 if nothing fits, 130 if Ctrl-C ended the search.
    ///
    /// # Errors
    /// [`Usage`], and errors that prevent a run from training.
    pub fn run(&self) -> Result<Status> {
        if !matches!(self.spec.device, DeviceChoice::Sim(_)) {
            let text = "ranks are tried on simulated cards; give --device sim:h200, or sim:h200x4 for four of them";
            return Err(Usage(text.to_owned()).into());
        }
        if self.spec.load.is_some() {
            return Err(Usage(super::WITHOUT_LOAD.to_owned()).into());
        }
        let stop = interrupt::flag()?;
        let follow = Follower::new(self.spec);
        let tell = |news: SearchNews<'_>| follow.hear(&news);
        let control = Control::new(&stop, &tell);
        let terms = Terms { why };
        let alone = fit::probe(self.spec, self.steps, terms, &control);
        let found: Result<Vec<FitResult>, FitError> =
            self.ways.par_iter().map(|way| self.found(*way, terms, &control)).collect();
        follow.end();
        let report = Report {
            search: self,
            alone: alone?,
            found: found?,
            interrupted: stop.load(Ordering::Relaxed),
            paper: Paper::stdout(),
        };
        if self.json {
            writeln!(stdout(), "{}", report.json())?;
        } else {
            report.write(&mut report.paper.out())?;
        }
        let fits = report.found.iter().any(|found| {
            found.fewest.best.is_some() || found.largest.as_ref().is_some_and(|largest| largest.best.is_some())
        });
        Ok(match (report.interrupted, fits) {
            (true, _) => Status::of_code(130),
            (false, true) => Status::DONE,
            (false, false) => Status::FAILED,
        })
    }

    fn found(&self, way: Parallelism, terms: Terms, control: &Control<'_>) -> Result<FitResult, FitError> {
        let search = GroupSearch { spec: self.spec, steps: self.steps, terms, control };
        let fewest = search.fewest_cards(way)?;
        let largest = self.cards.map(|ranks| search.largest_batch(Parallel { parallelism: way, ranks }));
        Ok(FitResult { way, fewest, largest: largest.transpose()? })
    }
}

impl Report<'_> {
    /// The command that runs a probe.
    fn command(&self, probe: &GroupProbe) -> String {
        let RankSearch { given, spec, .. } = self.search;
        let mut setup = spec.setup();
        setup.config = Config { batch: probe.batch, ..setup.config };
        reproduce::command(given, spec, &setup, Some(probe.parallel))
    }

    fn write(&self, out: &mut impl Write) -> Result<()> {
        let RankSearch { spec, steps, cards, .. } = self.search;
        let (name, device, limit) = (&spec.workload.name, spec.about(None).device, limit_of(spec));
        let data = words_of(spec.config.data);
        let heading = format!(
            "{name} on cards of {device}, each within {limit}: {steps} steps a probe, each from a clean state; {data}, simulated"
        );
        self.paper.paragraph(out, &heading, 0, Tone::Plain)?;
        if self.interrupted {
            writeln!(out, "\nInterrupted: this is what was known so far.")?;
        }
        let batch = spec.config.batch;
        let alone = match &self.alone {
            ProbeOutcome::Fits(figures) => {
                format!("One card holds batch {batch}: it reserves {}.", figures.peak_reserved)
            }
            outcome => format!("One card does not hold batch {batch}: {}", reason(outcome).unwrap_or("not tried")),
        };
        writeln!(out)?;
        self.paper.paragraph(out, &alone, 0, Tone::Plain)?;
        writeln!(out)?;
        let heading = format!("batch {batch} of all ranks: the fewest cards");
        let fewest = self.found.iter().map(|found| (found.way, &found.fewest));
        self.write_table(out, &heading, fewest.collect(), |probe| probe.parallel.ranks, "cards")?;
        if let Some(cards) = cards {
            writeln!(out)?;
            let heading = format!("{cards} cards: the largest batch of all ranks");
            let largest = self.found.iter().filter_map(|found| Some((found.way, found.largest.as_ref()?)));
            self.write_table(out, &heading, largest.collect(), |probe| probe.batch, "batch")?;
        }
        writeln!(out)?;
        let note =
            "Peaks are those of the worst rank. Times are simulated; only stages of a pipeline wait for each other.";
        Ok(self.paper.paragraph(out, note, 0, Tone::Dim)?)
    }

    /// One row for the search in each way, and the command of the best way: the fewest cards or the largest batch, then
    /// the least memory.
    fn write_table(
        &self,
        out: &mut impl Write,
        heading: &str,
        found: Vec<(Parallelism, &GroupEdge)>,
        answer: fn(&GroupProbe) -> usize,
        unit: &'static str,
    ) -> Result<()> {
        self.paper.paragraph(out, heading, 0, Tone::Strong)?;
        writeln!(out)?;
        let mut table = Table::new([
            Column::left("way"),
            Column::right(unit),
            Column::right("peak reserved"),
            Column::right("peak allocated"),
            Column::right("worst rank"),
            Column::right("step").spare(1),
            Column::wraps("does not fit"),
        ]);
        for (way, found) in &found {
            let mut cells: Vec<Cell> = vec![way.word().into()];
            match found.best.as_ref().map(|best| (best, &best.outcome)) {
                Some((best, ProbeOutcome::Fits(figures))) => cells.extend([
                    Cell::toned(answer(best).to_string(), Tone::Good),
                    figures.peak_reserved.to_string().into(),
                    figures.peak_allocated.to_string().into(),
                    best.rank.to_string().into(),
                    milliseconds(figures.step).into(),
                ]),
                _ => {
                    let none = if found.complete { "none" } else { "not known" };
                    cells.push(Cell::toned(none, Tone::Bad));
                    cells.extend(["", "", "", ""].map(Cell::from));
                }
            }
            cells
                .push(found.beyond.as_ref().map(|probe| beyond(probe, answer(probe), unit)).unwrap_or_default().into());
            table.row(cells);
        }
        table.print(out, self.paper)?;
        let bests = found.iter().filter_map(|(_, found)| found.best.as_ref());
        let reserved = |probe: &GroupProbe| match &probe.outcome {
            ProbeOutcome::Fits(figures) => figures.peak_reserved,
            _ => crate::units::Bytes::ZERO,
        };
        let best = if unit == "cards" {
            bests.min_by_key(|probe| (answer(probe), reserved(probe)))
        } else {
            bests.max_by_key(|probe| (answer(probe), std::cmp::Reverse(reserved(probe))))
        };
        if let Some(best) = best {
            self.paper.command(out, &self.command(best), 2)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let RankSearch { spec, steps, cards, .. } = self.search;
        let probe = |probe: &GroupProbe| {
            let row = json!({
                "cards": probe.parallel.ranks,
                "batch": probe.batch,
                "rank": probe.rank,
                "fits": probe.fits(),
                "command": probe.fits().then(|| self.command(probe)),
            });
            with_outcome(row, &probe.outcome)
        };
        let of = |found: &GroupEdge| {
            json!({
                "best": found.best.as_ref().map(probe),
                "beyond": found.beyond.as_ref().map(probe),
                "complete": found.complete,
            })
        };
        let ways = self.found.iter().map(|found| {
            json!({
                "parallel": found.way.word(),
                "fewest_cards": of(&found.fewest),
                "largest_batch": found.largest.as_ref().map(of),
            })
        });
        json!({
            "units": { "sizes": "bytes", "step_ms": "milliseconds" },
            "workload": spec.workload.name,
            "device": spec.about(None).device,
            "simulated": true,
            "limit": limit_json(spec),
            "steps": steps,
            "batch": spec.config.batch,
            "cards": cards,
            "interrupted": self.interrupted,
            "one_card": with_outcome(json!({ "fits": matches!(self.alone, ProbeOutcome::Fits(_)) }), &self.alone),
            "ways": ways.collect::<Vec<_>>(),
        })
    }
}

/// Why `answer`, the nearest batch or number of cards that does not fit, fails.
fn beyond(probe: &GroupProbe, answer: usize, unit: &str) -> String {
    match &probe.outcome {
        ProbeOutcome::OutOfMemory { .. } => {
            let what = if unit == "cards" { format!("{answer} cards") } else { format!("{unit} {answer}") };
            format!("{what}: rank {} out of memory", probe.rank)
        }
        ProbeOutcome::Refused { why } => why.clone(),
        ProbeOutcome::Fits(_) | ProbeOutcome::Stopped => String::new(),
    }
}
