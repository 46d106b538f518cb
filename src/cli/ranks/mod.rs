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
use crate::train::{Parallelism, Seat, TrainError};
use crate::tui;
use crate::units::Bytes;
use crate::workload::Data;

/// The device of `sim:h200x4` or `cpux4`, and how many there are; another one as it is.
pub(super) fn split_count(device: Option<String>) -> (Option<String>, Option<usize>) {
    let split = device.as_deref().and_then(|device| {
        let (one, count) = device.rsplit_once('x')?;
        let is_device = one == "cpu" || one.starts_with("sim:");
        is_device.then(|| Some((one.to_owned(), count.parse().ok()?)))?
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
            "{way} shares the work of a step among ranks; give --device sim:h200x2 or more, or cpux2"
        ))
        .into()),
        (None, Some(ranks)) => {
            let ways: Vec<&str> = Parallelism::ALL.iter().map(|way| way.word()).collect();
            Err(Usage(format!("{ranks} ranks need a way to share the work; give --parallel {}", ways.join(", ")))
                .into())
        }
    }
}

/// Batches that a workload streams by itself stay on the devices, as they did on those that were measured.
pub(super) fn keep_batches(spec: &mut LabSpec) {
    if matches!(spec.data, Data::Streamed) {
        spec.data = Data::Reference;
        spec.config.data = spec.data.path();
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
    let (table, ended) = match spec.device {
        DeviceChoice::Cpu => on_threads(spec, parallel, count, recorder.is_some())?,
        DeviceChoice::Cuda(_) => {
            let text = "ranks train on simulated cards or on the processor; give --device sim:h200x2 or cpux2";
            return Err(Usage(text.to_owned()).into());
        }
        DeviceChoice::Sim(_) => simulated(spec, parallel, count, recorder)?,
    };
    if as_json {
        writeln!(out, "{}", table.json(spec, parallel))?;
    } else {
        if let Some(failed) = ended.as_ref().and(table.failed()) {
            // What would have made it fit is tried on one device only.
            let lines = tui::autopsy_lines(&failed.view, 100, flags::flag);
            for line in lines.iter().filter(|line| !line.starts_with("fits:")) {
                writeln!(out, "{line}")?;
            }
        }
        table.write(out, spec, parallel)?;
    }
    ended.map_or(Ok(Status::DONE), Err)
}

/// Ranks of simulated cards; why they ended before the last step, where they did.
fn simulated(
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    recorder: Option<Recorder>,
) -> Result<(Table, Option<Report>)> {
    let followers = Followers::new(recorder, None);
    let mut group = ProcessGroup::start(spec, parallel, Some(followers.listener())).map_err(refused)?;
    let mut steps: Vec<Steps> = group.runs().iter().map(|_| Steps::new(count, true)).collect();
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
    let of_rank = group.of_rank().to_vec();
    let ranks_of = |run| (0..of_rank.len()).filter(|rank| of_rank[*rank] == run).collect();
    let rows = group.runs().iter_mut().zip(steps).enumerate();
    let rows = rows.map(|(run, (headless, steps))| Row::of(headless, steps, ranks_of(run))).collect();
    followers.finish()?;
    Ok((Table { rows, of_rank }, ended))
}

/// Ranks on the processor, each on a thread of its own; they compute, and wait for each other.
fn on_threads(spec: &LabSpec, parallel: Parallel, count: u64, records: bool) -> Result<(Table, Option<Report>)> {
    const MOST: usize = 16;
    if !(2..=MOST).contains(&parallel.ranks) {
        let text = format!("{} ranks can't share the processor; give from 2 to {MOST}", parallel.ranks);
        return Err(Usage(text).into());
    }
    if records {
        let text = "ranks on the processor are not recorded; give simulated cards, such as --device sim:h200x2";
        return Err(Usage(text.to_owned()).into());
    }
    let mut specs = Vec::with_capacity(parallel.ranks);
    for (rank, seat) in Seat::for_all(parallel.ranks).into_iter().enumerate() {
        let index = u16::try_from(rank).unwrap_or(u16::MAX);
        specs.push(LabSpec { seat: Some(seat), ..parallel.of_rank(spec, rank, index).map_err(refused)? });
    }
    let train = |rank: usize, spec: LabSpec| -> Result<(Row, Option<TrainError>), GroupError> {
        let mut run = Headless::start(spec).map_err(|error| GroupError::of(rank, error))?;
        let (mut steps, mut ended) = (Steps::new(count, true), None);
        for _ in 0..count {
            match run.step() {
                Ok(report) => steps.push(&report),
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        run.finish();
        Ok((Row::of(&mut run, steps, vec![rank]), ended))
    };
    let trained: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            specs.into_iter().enumerate().map(|(rank, spec)| scope.spawn(move || train(rank, spec))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let (mut rows, mut ended) = (Vec::new(), Vec::new());
    for (rank, trained) in trained.into_iter().enumerate() {
        let (row, error) = match trained {
            Ok(trained) => trained.map_err(refused)?,
            Err(panicked) => std::panic::resume_unwind(panicked),
        };
        let step = row.steps.finished;
        ended.extend(error.map(|error| (rank, step, error)));
        rows.push(row);
    }
    // Who only waited for another that has ended is not the reason.
    let cause = ended.iter().position(|(_, _, error)| !matches!(error, TrainError::RankEnded(_))).unwrap_or_default();
    let ended = (cause < ended.len()).then(|| {
        let (rank, step, error) = ended.swap_remove(cause);
        Report::new(error).wrap_err(format!("training ended in step {step} of rank {rank}"))
    });
    let of_rank = (0..rows.len()).collect();
    Ok((Table { rows, of_rank }, ended))
}

/// What is wrong with what was asked for is told as such.
fn refused(error: GroupError) -> Report {
    match error {
        error @ GroupError::Build { .. } => Report::new(error),
        error => Usage(error.to_string()).into(),
    }
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

impl Row {
    fn of(run: &mut Headless, steps: Steps, ranks: Vec<usize>) -> Self {
        let view = run.view();
        let (spec, trainer) = (run.spec(), run.trainer());
        Self {
            ranks,
            between: Between::of(trainer, &view),
            peaks: steps.peaks(&trainer.statistics()),
            object: object(spec, trainer, &steps, &view),
            steps,
            view,
        }
    }
}

/// All of them.
struct Table {
    rows: Vec<Row>,
    /// By rank, its row.
    of_rank: Vec<usize>,
}

impl Table {
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
            DeviceChoice::Cpu | DeviceChoice::Cuda(_) => "cpu".to_owned(),
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
            match row.steps.finished {
                0 => writeln!(out, "{:>12}", "–")?,
                _ => writeln!(out, "{:>12.2}", row.steps.times.median())?,
            }
        }
        writeln!(out)?;
        match (&self.rows[..], self.worst()) {
            ([only], _) => writeln!(out, "  All ranks do the same; rank {} was computed.", numbers(&only.ranks[..1]))?,
            (_, Some(worst)) => {
                let reserved = self.rows.iter().map(|row| row.peaks.reserved);
                let (rank, most) = (numbers(&worst.ranks), bytes(worst.peaks.reserved));
                match reserved.min().map(|least| bytes(worst.peaks.reserved - least)) {
                    None | Some(Bytes::ZERO) => {
                        let peak = bytes(worst.peaks.allocated);
                        writeln!(
                            out,
                            "  All ranks reserve {most}; the highest peak of allocated memory is {peak}, of rank {rank}."
                        )?;
                    }
                    Some(more) => {
                        writeln!(out, "  The worst is rank {rank}: {most} reserved, {more} more than the least.")?;
                    }
                }
            }
            (_, None) => {}
        }
        let losses = self.rows.iter().filter_map(|row| Some([row.steps.first_loss?, row.steps.last_loss?]));
        let losses: Vec<[f32; 2]> = losses.collect();
        if losses.is_empty() {
            return writeln!(out, "  Times are simulated, and a rank's own: it waits for no other.");
        }
        let mean = |which: usize| losses.iter().map(|losses| losses[which]).sum::<f32>() / losses.len() as f32;
        writeln!(out, "  Mean loss of the ranks that have one, first → last: {:.4} → {:.4}.", mean(0), mean(1))
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
        assert_eq!(split("cpux4"), (Some("cpu".to_owned()), Some(4)));
        assert_eq!(split("cuda:0x2"), (Some("cuda:0x2".to_owned()), None));
    }
}
