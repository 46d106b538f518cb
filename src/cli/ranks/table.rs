//! The figures of all ranks: a table, or one JSON object.

use std::io::Write;

use serde_json::{Value, json};

use crate::cli::row::{Between, Peaks, Steps, bytes, object};
use crate::model::{Evidence, Finding, Phase, View};
use crate::session::{DeviceChoice, Headless, LabSpec, Parallel};
use crate::units::Bytes;

/// What is known of a run that stands for ranks which do the same.
pub(super) struct Row {
    /// Their numbers.
    ranks: Vec<usize>,
    pub view: View,
    between: Between,
    peaks: Peaks,
    pub steps: Steps,
    object: Value,
}

impl Row {
    pub fn of(run: &mut Headless, steps: Steps, ranks: Vec<usize>) -> Self {
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
pub(super) struct Table {
    pub rows: Vec<Row>,
    /// By rank, its row.
    pub of_rank: Vec<usize>,
}

impl Table {
    /// The run that ran out of memory, where one did.
    pub fn failed(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.view.autopsy.is_some())
    }

    /// The rank that matters most: where memory ran out, else where most was reserved.
    fn worst(&self) -> Option<&Row> {
        let need = |row: &&Row| (row.view.autopsy.is_some(), row.peaks.reserved, row.peaks.allocated);
        self.rows.iter().rev().max_by_key(need)
    }

    pub fn json(&self, spec: &LabSpec, parallel: Parallel) -> Value {
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

    pub fn write(&self, out: &mut dyn Write, spec: &LabSpec, parallel: Parallel) -> std::io::Result<()> {
        let Parallel { parallelism, ranks } = parallel;
        let card = match &spec.device {
            DeviceChoice::Sim(card) => format!("sim:{} ({})", card.name, card.title),
            DeviceChoice::Cpu => "cpu".to_owned(),
            DeviceChoice::Cuda(_) => "cuda".to_owned(),
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
        let shared =
            |finding: &&Finding| matches!(finding.evidence, Evidence::Gathered { .. } | Evidence::Buckets { .. });
        if let Some(worst) = self.worst()
            && let Some(finding) = worst.view.findings.iter().find(shared)
        {
            writeln!(out, "  Of rank {}: {finding}.", numbers(&worst.ranks[..1]))?;
        }
        let losses = self.rows.iter().filter_map(|row| Some([row.steps.first_loss?, row.steps.last_loss?]));
        let losses: Vec<[f32; 2]> = losses.collect();
        if losses.is_empty() && !matches!(spec.device, DeviceChoice::Sim(_)) {
            return Ok(());
        }
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
}
