//! The figures of all ranks: a table, or one JSON object.

use std::io::Write;

use serde_json::{Value, json};

use super::row::RankRow;
use crate::cli::flags;
use crate::export;
use crate::model::{Level, Parallelism};
use crate::session::{DeviceChoice, LabSpec, Parallel};
use crate::source::RankFigures;
use crate::units::Bytes;

/// The figures of all ranks.
pub(super) struct RankTable {
    pub rows: Vec<RankRow>,
    /// For each rank, the index of its row.
    pub of_rank: Vec<usize>,
}

impl RankTable {
    /// Why memory ran out, if it did.
    pub fn autopsy(&self) -> Option<&[String]> {
        self.rows.iter().find_map(|row| row.autopsy.as_deref())
    }

    fn figures(&self) -> Vec<RankFigures> {
        self.rows.iter().map(RankRow::figures).collect()
    }

    /// The rank that matters most: the rank whose memory ran out, else the rank with the most reserved memory; the
    /// lowest of several equal ones.
    fn worst(&self) -> Option<&RankRow> {
        self.rows.get(RankFigures::worst(&self.figures()).unwrap_or_default())
    }

    pub fn json(&self, spec: &LabSpec, parallel: Parallel) -> Value {
        let Parallel { parallelism, ranks } = parallel;
        let splits = parallelism.splits_batch();
        let rows = self.of_rank.iter().enumerate().filter_map(|(rank, &place)| {
            let row = self.rows.get(place)?;
            let mut value = row.object.clone();
            let alike = usize::from(row.first());
            let object = value.as_object_mut()?;
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
            Some(value)
        });
        let found = RankFigures::findings(&self.figures());
        json!({
            "workload": spec.workload.name,
            "mode": parallelism.word(),
            "world": ranks,
            "batch": spec.config.batch,
            "steps": self.finished(),
            "worst": self.worst().map(RankRow::first),
            "findings": found.iter().map(|finding| export::finding(finding, &flags::WORDS)).collect::<Vec<_>>(),
            "ranks": rows.collect::<Vec<_>>(),
        })
    }

    /// Steps that all ranks finished.
    fn finished(&self) -> u64 {
        self.rows.iter().map(|row| row.finished).min().unwrap_or_default()
    }

    pub fn write(&self, out: &mut dyn Write, spec: &LabSpec, parallel: Parallel) -> std::io::Result<()> {
        let Parallel { parallelism, ranks } = parallel;
        let card = match &spec.device {
            DeviceChoice::Sim(card) => format!("sim:{} ({})", card.name, card.title),
            DeviceChoice::Cpu => "cpu".to_owned(),
            DeviceChoice::Cuda(_) => "cuda".to_owned(),
        };
        let (name, batch, finished) = (&spec.workload.name, spec.config.batch, self.finished());
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
            write!(out, "  {:<10}", row.alike.numbers())?;
            let sizes = row.sizes.iter().chain([&row.peak_allocated, &row.peak_reserved]);
            sizes.into_iter().try_for_each(|size| write!(out, "{:>12}", size.to_string()))?;
            match row.finished {
                0 => writeln!(out, "{:>12}", "–")?,
                _ => writeln!(out, "{:>12.2}", row.step_ms)?,
            }
        }
        writeln!(out)?;
        let Some(worst) = self.worst() else { return Ok(()) };
        self.write_worst(out, worst)?;
        for finding in RankFigures::findings(&self.figures()).iter().filter(|found| found.level >= Level::Warning) {
            writeln!(out, "  {finding}.")?;
        }
        for said in &worst.said {
            writeln!(out, "  Of rank {}: {said}", worst.first())?;
        }
        let losses: Vec<[f32; 2]> = self.rows.iter().filter_map(|row| row.losses).collect();
        if losses.is_empty() && !matches!(spec.device, DeviceChoice::Sim(_)) {
            return Ok(());
        }
        if losses.is_empty() {
            let waits = match self.rows.first().and_then(|row| row.alike.parallelism) {
                Some(Parallelism::Pipeline(_)) => "stages wait for each other",
                _ => "a rank waits for no other",
            };
            return writeln!(out, "  Times are simulated; {waits}.");
        }
        let mean = |which: usize| losses.iter().map(|losses| losses[which]).sum::<f32>() / losses.len() as f32;
        writeln!(out, "  Mean loss of the ranks that have one, first → last: {:.4} → {:.4}.", mean(0), mean(1))
    }

    /// Writes how the worst rank differs from the others.
    fn write_worst(&self, out: &mut dyn Write, worst: &RankRow) -> std::io::Result<()> {
        if let [only] = &self.rows[..]
            && only.alike.ranks.len() > 1
        {
            return writeln!(out, "  All ranks do the same; rank {} was computed.", only.first());
        }
        let (rank, most) = (worst.alike.numbers(), worst.peak_reserved);
        let Some(least) = self.rows.iter().min_by_key(|row| row.peak_reserved) else { return Ok(()) };
        match most.saturating_sub(least.peak_reserved) {
            Bytes::ZERO => writeln!(
                out,
                "  All ranks reserve {most}; the highest peak of allocated memory is {}, of rank {rank}.",
                worst.peak_allocated
            ),
            more => {
                writeln!(out, "  The worst is rank {rank}: {most} reserved, {more} more than {}.", least.alike.words())
            }
        }
    }
}
