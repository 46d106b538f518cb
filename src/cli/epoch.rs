//! `vramlab run --lengths`: an epoch of samples of several lengths, with the figures of other batches and other settings.

use std::cmp::Reverse;
use std::io::{self, Write};

use color_eyre::eyre::Result;
use serde_json::{Value, json};

use super::{Status, Usage};
use crate::epoch::{self, Epoch, EpochRequest, MOST_STEPS, Quantiles};
use crate::session::LabSpec;
use crate::units::Bytes;
use crate::whatif::Conditions;
use crate::workload::{Data, Epochs, LengthPolicy, Lengths, PlannedBatch};

/// Allocator settings tried besides the run's own.
const SETTINGS: [&str; 3] = [COLLECTING, "empty_cache_every:100", "empty_cache_every:1"];
/// PyTorch collects garbage only if the process has a limit.
const COLLECTING: &str = "garbage_collection_threshold:0.8";
/// The limit for garbage collection if the run has none: per cent of the card.
const SHARE: u64 = 95;

/// Steps of an epoch of the lengths that `spec` trains on; `None` if it trains on no lengths.
pub(super) fn steps(spec: &LabSpec) -> Option<u64> {
    steps_of(spec, 1)
}

/// The same if `ranks` ranks share the work: each has batches of its own in turn.
pub(super) fn steps_of(spec: &LabSpec, ranks: usize) -> Option<u64> {
    let lengths = lengths(spec)?;
    let ranks = ranks.max(1);
    let batch = (spec.config.micro_batch() / ranks).max(1);
    let in_step = spec.config.accumulation.max(1) as u64 * ranks as u64;
    Some(Epochs::new(&lengths, batch).per_epoch().div_ceil(in_step))
}

/// The lengths that `spec` trains on; packed ones fill rows of the model's length.
fn lengths(spec: &LabSpec) -> Option<Lengths> {
    let Data::Lengths(lengths) = &spec.data else { return None };
    Some(spec.workload.packed(lengths.clone(), spec.sizes))
}

/// Simulates an epoch and prints it; `None` if that is impossible and every step must be run.
pub(super) fn run(out: &mut dyn Write, spec: &LabSpec, count: u64, as_json: bool) -> Result<Option<Status>> {
    let Some(lengths) = lengths(spec) else { return Ok(None) };
    if count > MOST_STEPS {
        return Err(Usage(format!("an epoch is simulated up to {MOST_STEPS} steps; give --steps {MOST_STEPS}")).into());
    }
    let asked = asked(spec, &lengths)?;
    let epochs = match epoch::simulate(spec, &lengths, count, &asked) {
        Ok(epochs) => epochs,
        Err(epoch::EpochError::NotRepeated(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some((first, _)) = epochs.split_first() else { return Ok(None) };
    let report = EpochReport { spec, lengths: &lengths, count, asked: &asked, epochs: &epochs, first };
    if as_json {
        writeln!(out, "{}", report.json())?;
    } else {
        report.write(out)?;
    }
    Ok(Some(if first.is_whole(count) { Status::DONE } else { Status::FAILED }))
}

/// The requests: the run itself first, then its batches under other settings, then other batches.
fn asked(spec: &LabSpec, lengths: &Lengths) -> Result<Vec<EpochRequest>> {
    let own = spec.alloc_conf.trim();
    let conditions = |more: &str| -> Result<Conditions> {
        let text = if own.is_empty() || more.is_empty() { format!("{own}{more}") } else { format!("{own},{more}") };
        let mut conditions = Conditions::parse_for(spec.settings.torch(), &text, spec.memory())
            .map_err(|error| Usage(error.to_string()))?;
        let memory = spec.memory().map(|memory| memory.total);
        conditions.limit = spec.limit.zip(memory).map(|(limit, memory)| limit.of(memory));
        if more == COLLECTING && !conditions.bounds_memory() {
            conditions.limit = memory.map(|memory| Bytes(memory.get() / 100 * SHARE));
        }
        Ok(conditions)
    };
    let expandable = if spec.settings.expandable_segments { "False" } else { "True" };
    let expandable = format!("expandable_segments:{expandable}");
    let policy = lengths.policy;
    let mut asked = vec![EpochRequest { policy, conditions: conditions("")? }];
    for more in [&*expandable].into_iter().chain(SETTINGS) {
        asked.push(EpochRequest { policy, conditions: conditions(more)? });
    }
    for other in LengthPolicy::ALL.into_iter().filter(|other| *other != policy) {
        asked.push(EpochRequest { policy: other, conditions: conditions("")? });
    }
    Ok(asked)
}

/// Everything that is printed.
struct EpochReport<'a> {
    spec: &'a LabSpec,
    lengths: &'a Lengths,
    count: u64,
    asked: &'a [EpochRequest],
    epochs: &'a [Epoch],
    /// The run itself.
    first: &'a Epoch,
}

impl EpochReport<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (spec, lengths, first) = (self.spec, self.lengths, self.first);
        let about = spec.about(None);
        let epoch = match steps(spec) {
            Some(epoch) if epoch < self.count => format!("{} steps, {epoch} of them an epoch of samples", self.count),
            _ => format!("{} steps of an epoch of samples", self.count),
        };
        writeln!(out, "{} on {}: {epoch}", about.workload, about.device)?;
        let [shortest, longest] = lengths.under(LengthPolicy::Pad).rows();
        writeln!(out, "\n  samples               {}, {shortest} to {longest} tokens each", lengths.count())?;
        if lengths.cut_samples() > 0 {
            writeln!(out, "  of them cut           {}, to {longest} tokens", lengths.cut_samples())?;
        }
        writeln!(out, "  batches               {}: {}", lengths.policy.label(), sentence(lengths.policy))?;
        writeln!(out, "  padding               {:.1} % of {} positions", first.padding() * 100.0, first.positions[0])?;
        writeln!(out, "\n  peaks of a step   {:>12}{:>12}{:>12}{:>12}", "max", "p99", "p50", "mean")?;
        for (label, figures) in [("allocated", first.allocated()), ("reserved", first.reserved())] {
            let [mean, p50, p99, max] = cells(figures);
            writeln!(out, "    {label:<16}{max:>12}{p99:>12}{p50:>12}{mean:>12}")?;
        }
        writeln!(out, "\n  {}", self.outcome(first))?;
        if let Some((step, batch)) = largest(first).filter(|_| first.failed.is_none()) {
            writeln!(out, "  step {step} takes most: {}", in_words(batch))?;
        }
        let (settings, policies): (Vec<_>, Vec<_>) =
            self.asked.iter().zip(self.epochs).partition(|(asked, _)| asked.policy == lengths.policy);
        let columns = format!("{:>13}{:>15}  outcome", "max reserved", "mean reserved");
        writeln!(out, "\n  {:<34}{columns}", "the same batches under")?;
        let (own, others) = settings.split_at(settings.len().min(1));
        for (asked, epoch) in own.iter().copied().chain(worst_first(others)) {
            self.row(out, &format!("{:<32}", asked.conditions), epoch)?;
        }
        if !policies.is_empty() {
            writeln!(out, "\n  {:<25}{:>9}{columns}", "other batches", "padding")?;
            for (asked, epoch) in worst_first(&policies) {
                let label = match asked.policy {
                    LengthPolicy::Pack => format!("pack, rows of {}", lengths.under(LengthPolicy::Pack).rows()[1]),
                    policy => policy.label().to_owned(),
                };
                self.row(out, &format!("{label:<23}{:>7.1} %", epoch.padding() * 100.0), epoch)?;
            }
        }
        let mut limits = self.asked.iter().map(|asked| asked.conditions.limit);
        let own = limits.next();
        if limits.any(|limit| Some(limit) != own) {
            writeln!(out, "\n  {COLLECTING} is with set_per_process_memory_fraction")?;
            writeln!(out, "  of 0.{SHARE}: PyTorch collects garbage only where the process has a limit")?;
        }
        Ok(())
    }

    fn row(&self, out: &mut dyn Write, label: &str, epoch: &Epoch) -> io::Result<()> {
        let [mean, .., max] = cells(epoch.reserved());
        writeln!(out, "    {label}{max:>13}{mean:>15}  {}", self.short_outcome(epoch))
    }

    /// Whether all steps fit, in a few words.
    fn short_outcome(&self, epoch: &Epoch) -> String {
        match &epoch.failed {
            _ if epoch.is_whole(self.count) => "fits".to_owned(),
            Some(_) => format!("step {} fails", epoch.steps.len()),
            None => "the model fails".to_owned(),
        }
    }

    /// Whether all steps fit, in a sentence.
    fn outcome(&self, epoch: &Epoch) -> String {
        if epoch.is_whole(self.count) {
            return "every step fits".to_owned();
        }
        let Some(batches) = &epoch.failed else { return "the model does not fit".to_owned() };
        let Some(batch) = longest(batches) else { return "a step does not fit".to_owned() };
        format!("step {} is out of memory: {}", epoch.steps.len(), in_words(batch))
    }

    fn json(&self) -> Value {
        let (spec, lengths) = (self.spec, self.lengths);
        let [all, alternatives] = [&self.asked[..1], self.asked.get(1..).unwrap_or_default()];
        let one = |(asked, epoch): (&EpochRequest, &Epoch)| self.object(asked, epoch);
        let run = all.iter().zip(self.epochs).map(one).next();
        let peaks = self.first.steps.iter();
        json!({
            "units": { "sizes": "bytes", "lengths": "tokens" },
            "workload": spec.workload.name,
            "device": spec.about(None).device,
            "simulated": true,
            "batch": spec.config.batch,
            "steps": self.count,
            "samples": lengths.count(),
            "samples_cut": lengths.cut_samples(),
            "tokens": lengths.tokens(),
            "run": run,
            "step_peaks": {
                "allocated": peaks.clone().map(|step| step.allocated).collect::<Vec<_>>(),
                "reserved": peaks.map(|step| step.reserved).collect::<Vec<_>>(),
            },
            "alternatives": alternatives.iter().zip(self.epochs.iter().skip(1)).map(one).collect::<Vec<_>>(),
        })
    }

    fn object(&self, asked: &EpochRequest, epoch: &Epoch) -> Value {
        let failed = epoch.failed.as_deref().and_then(longest).map(|batch| (epoch.steps.len(), batch));
        let of_step = |(step, batch): (usize, PlannedBatch)| {
            json!({
                "step": step,
                "samples": batch.samples,
                "length": batch.length,
                "sample": batch.longest.map(|sample| u64::from(sample) + 1),
            })
        };
        json!({
            "policy": asked.policy.label(),
            "alloc_conf": asked.conditions.text(),
            "limit": asked.conditions.limit,
            "allocated": epoch.allocated(),
            "reserved": epoch.reserved(),
            "positions": epoch.positions[0],
            "padding": epoch.padding(),
            "fits": epoch.is_whole(self.count),
            "finished": epoch.steps.len(),
            "largest": largest(epoch).map(of_step),
            "failed": failed.map(of_step),
        })
    }
}

/// The step that allocated most, and the batch with the longest rows in it.
fn largest(epoch: &Epoch) -> Option<(usize, PlannedBatch)> {
    let (step, batches) = epoch.largest.as_ref()?;
    Some((*step, longest(batches)?))
}

/// `4 × 3796 tokens, sample 165 of the file`.
fn in_words(PlannedBatch { samples, length, longest, .. }: PlannedBatch) -> String {
    let sample = longest.map_or_else(String::new, |sample| format!(", sample {} of the file", u64::from(sample) + 1));
    format!("{samples} × {length} tokens{sample}")
}

/// Orders the epochs: the earliest failure first; of equally long epochs, the highest reserved memory first.
fn worst_first<'a>(rows: &[(&'a EpochRequest, &'a Epoch)]) -> impl Iterator<Item = (&'a EpochRequest, &'a Epoch)> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|(_, epoch)| {
        (epoch.steps.len(), Reverse(epoch.reserved().map(|reserved| (reserved.max, reserved.mean))))
    });
    rows.into_iter()
}

/// The batch of a step with the longest rows.
fn longest(batches: &[PlannedBatch]) -> Option<PlannedBatch> {
    batches.iter().copied().max_by_key(|batch| batch.length)
}

/// Mean, p50, p99 and maximum as text.
fn cells(figures: Option<Quantiles>) -> [String; 4] {
    let cell = |bytes: Option<Bytes>| bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string());
    [figures.map(|f| f.mean), figures.map(|f| f.p50), figures.map(|f| f.p99), figures.map(|f| f.max)].map(cell)
}

/// Says how samples become batches.
const fn sentence(policy: LengthPolicy) -> &'static str {
    match policy {
        LengthPolicy::Pad => "in the order of the file, padded to the longest",
        LengthPolicy::Shuffle => "in random order, padded to the longest",
        LengthPolicy::Bucket => "like lengths together, padded to the longest",
        LengthPolicy::LongestFirst => "in falling order, padded to the longest",
        LengthPolicy::Pack => "one after the other in rows of one length",
    }
}
