//! `vramlab run --parallel`: several simulated ranks, their figures side by side.

use std::io::Write;

use color_eyre::eyre::{Report, Result};
use serde_json::{Value, json};

use super::flags;
use super::followers::Followers;
use super::row::{Between, Peaks, Steps, bytes, object};
use super::{Status, Usage};
use crate::model::{Phase, View};
use crate::session::{DeviceChoice, GroupError, Headless, LabSpec, Parallel, ProcessGroup};
use crate::source::Recorder;
use crate::train::Parallelism;
use crate::tui;

/// The card of `sim:h200x4`, and how many there are; another device as it is.
pub(super) fn split_count(device: Option<String>) -> (Option<String>, Option<usize>) {
    let split = device.as_deref().and_then(|device| {
        let (card, count) = device.strip_prefix("sim:")?.rsplit_once('x')?;
        Some((format!("sim:{card}"), count.parse().ok()?))
    });
    match split {
        Some((card, count)) => (Some(card), Some(count)),
        None => (device, None),
    }
}

/// Which ranks train together, where any do.
///
/// # Errors
/// [`Usage`] where a way is given and one device, or several devices and no way.
pub(super) fn parallel(way: Option<Parallelism>, ranks: Option<usize>) -> Result<Option<Parallel>> {
    match (way, ranks) {
        (None, None) => Ok(None),
        (Some(parallelism), Some(ranks)) => Ok(Some(Parallel { parallelism, ranks })),
        (Some(way), None) => Err(Usage(format!(
            "{way} shares the work of a step among simulated cards; give --device sim:h200x2 or more"
        ))
        .into()),
        (None, Some(ranks)) => {
            let ways: Vec<&str> = Parallelism::ALL.iter().map(|way| way.word()).collect();
            Err(Usage(format!("{ranks} cards need a way to share the work; give --parallel {}", ways.join(", ")))
                .into())
        }
    }
}

/// Trains on all ranks and prints a table of them, or one JSON object.
pub(super) fn run(
    out: &mut dyn Write,
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    as_json: bool,
    recorder: Option<Recorder>,
) -> Result<Status> {
    if spec.load.is_some() {
        return Err(Usage("a checkpoint is loaded on one device; leave --load out with --parallel".to_owned()).into());
    }
    let followers = Followers::new(recorder, None);
    let mut group = ProcessGroup::start(spec, parallel, Some(followers.listener())).map_err(|error| match error {
        error @ GroupError::Build { .. } => Report::new(error),
        error => Usage(error.to_string()).into(),
    })?;
    let mut steps: Vec<Steps> = group.runs().iter().map(|_| Steps::new(count, as_json)).collect();
    let mut ended = None;
    for number in 0..count {
        match group.step() {
            Ok(reports) => steps.iter_mut().zip(&reports).for_each(|(steps, report)| steps.push(report)),
            Err(failed) => {
                ended = Some(Report::new(failed).wrap_err(format!("training ended in step {number}")));
                break;
            }
        }
    }
    group.finish();
    let table = Table::of(&mut group, steps);
    followers.finish()?;
    if as_json {
        writeln!(out, "{}", table.json(spec, parallel))?;
    } else {
        if let Some(failed) = ended.as_ref().and(table.failed()) {
            for line in tui::autopsy_lines(&failed.view, 100, flags::flag) {
                writeln!(out, "{line}")?;
            }
        }
        table.write(out, spec, parallel)?;
    }
    ended.map_or(Ok(Status::DONE), Err)
}

/// What is known of a run that stands for ranks which do the same.
struct Row {
    /// Their numbers.
    ranks: Vec<usize>,
    view: View,
    between: Between,
    peaks: Peaks,
    steps: Steps,
    object: Value,
}

/// All of them.
struct Table {
    rows: Vec<Row>,
    /// By rank, its row.
    of_rank: Vec<usize>,
}

impl Table {
    fn of(group: &mut ProcessGroup, steps: Vec<Steps>) -> Self {
        let of_rank = group.of_rank().to_vec();
        let row = |(number, (run, steps)): (usize, (&mut Headless, Steps))| {
            let view = run.view();
            let (spec, trainer) = (run.spec(), run.trainer());
            Row {
                ranks: (0..of_rank.len()).filter(|rank| of_rank[*rank] == number).collect(),
                between: Between::of(trainer, &view),
                peaks: steps.peaks(&trainer.statistics()),
                object: object(spec, trainer, &steps, &view),
                steps,
                view,
            }
        };
        let rows = group.runs().iter_mut().zip(steps).enumerate().map(row).collect();
        Self { rows, of_rank }
    }

    /// The run that ran out of memory, where one did.
    fn failed(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.view.autopsy.is_some())
    }

    /// The rank that matters most: where memory ran out, else where most was reserved.
    fn worst(&self) -> Option<&Row> {
        let need = |row: &&Row| (row.view.autopsy.is_some(), row.peaks.reserved, row.peaks.allocated);
        self.rows.iter().rev().max_by_key(need)
    }

    fn json(&self, spec: &LabSpec, parallel: Parallel) -> Value {
        let Parallel { parallelism, ranks } = parallel;
        let splits = parallelism.splits_batch();
        let rows = self.of_rank.iter().enumerate().map(|(rank, &place)| {
            let row = &self.rows[place];
            let mut value = row.object.clone();
            if let Some(object) = value.as_object_mut() {
                let alike = row.ranks.first().copied().unwrap_or(rank);
                // What is advised to one device is not tried with several.
                object.remove("findings");
                if alike != rank {
                    object.remove("stats");
                }
                object.insert("mode".into(), json!(parallelism.word()));
                object.insert("rank".into(), json!(rank));
                object.insert("world".into(), json!(ranks));
                object.insert("alike".into(), json!(alike));
                object.insert("batch".into(), json!(spec.config.batch));
                let each = if splits { spec.config.batch / ranks } else { spec.config.batch };
                object.insert("per_rank_batch".into(), json!(each));
            }
            value
        });
        json!({
            "workload": spec.workload.name,
            "mode": parallelism.word(),
            "world": ranks,
            "batch": spec.config.batch,
            "steps": self.rows.iter().map(|row| row.steps.finished).min(),
            "worst": self.worst().and_then(|row| row.ranks.first()),
            "ranks": rows.collect::<Vec<_>>(),
        })
    }

    fn write(&self, out: &mut dyn Write, spec: &LabSpec, parallel: Parallel) -> std::io::Result<()> {
        let Parallel { parallelism, ranks } = parallel;
        let card = match &spec.device {
            DeviceChoice::Sim(card) => format!("sim:{} ({})", card.name, card.title),
            DeviceChoice::Cpu | DeviceChoice::Cuda(_) => String::new(),
        };
        let finished = self.rows.iter().map(|row| row.steps.finished).min().unwrap_or_default();
        let (name, batch) = (&spec.workload.name, spec.config.batch);
        writeln!(
            out,
            "{name} on {ranks} × {card}, {parallelism}, {finished} steps, {batch} samples a step of all ranks"
        )?;
        let heads =
            ["rank", "at first", "forward", "backward", "optimizer", "zero_grad", "peak", "reserved", "step, ms"];
        let [first, others @ ..] = heads;
        write!(out, "\n  {first:<10}")?;
        others.iter().try_for_each(|head| write!(out, "{head:>12}"))?;
        writeln!(out)?;
        for row in &self.rows {
            let after = |phase| row.between.after(phase);
            let sizes = [
                row.between.before,
                row.between.forward,
                after(Phase::Backward),
                after(Phase::Optimizer),
                after(Phase::ZeroGrad),
                bytes(row.peaks.allocated),
                bytes(row.peaks.reserved),
            ];
            write!(out, "  {:<10}", numbers(&row.ranks))?;
            sizes.iter().try_for_each(|size| write!(out, "{:>12}", size.to_string()))?;
            writeln!(out, "{:>12.2}", row.steps.times.median())?;
        }
        writeln!(out)?;
        match (&self.rows[..], self.worst()) {
            ([only], _) => writeln!(out, "  All ranks do the same; rank {} was computed.", numbers(&only.ranks[..1]))?,
            (_, Some(worst)) => {
                let least = self.rows.iter().map(|row| row.peaks.reserved).min().unwrap_or_default();
                let more = bytes(worst.peaks.reserved - least);
                writeln!(
                    out,
                    "  Rank {} is the worst: it reserves {}, {more} more than the least.",
                    numbers(&worst.ranks),
                    bytes(worst.peaks.reserved)
                )?;
            }
            (_, None) => {}
        }
        writeln!(out, "  Times are simulated, and a rank's own: it waits for no other.")
    }
}

/// Ranks in words: `0`, `1–3`, `0, 2`.
fn numbers(ranks: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = ranks;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(rank, expected)| *rank == expected).count();
        match run {
            1 => parts.push(first.to_string()),
            _ => parts.push(format!("{first}–{}", first + run - 1)),
        }
        rest = &rest[run..];
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_in_runs() {
        assert_eq!(numbers(&[0]), "0");
        assert_eq!(numbers(&[0, 1, 2, 5, 7, 8]), "0–2, 5, 7–8");
    }

    #[test]
    fn the_number_of_cards_is_behind_the_last_x() {
        let split = |device: &str| split_count(Some(device.to_owned()));
        assert_eq!(split("sim:h200x2"), (Some("sim:h200".to_owned()), Some(2)));
        assert_eq!(split("sim:rtx-3090"), (Some("sim:rtx-3090".to_owned()), None));
        assert_eq!(split("cpu"), (Some("cpu".to_owned()), None));
    }
}
