//! The figures of a run, under the keys of the PyTorch reference.

use serde_json::{Map, Value, json};

use super::flags;
use super::times::Times;
use crate::allocator::Statistics;
use crate::export;
use crate::model::{Boundaries, Micros, Phase, StepReport, View};
use crate::session::{Headless, LabSpec};
use crate::train::{Amp, Checkpointing, OptimizerKind, Tf32, Trainer};
use crate::units::Bytes;

/// The figures of a run's steps.
pub(super) struct Steps {
    /// The planned number of steps.
    pub wanted: u64,
    pub finished: u64,
    /// Steps that the gradient scaler skipped.
    pub skipped: u64,
    /// Times of the later half of the steps.
    pub times: Times,
    pub shortest: Option<Micros>,
    pub first_loss: Option<f32>,
    pub last_loss: Option<f32>,
    /// Every step's loss, if the losses are to be listed.
    pub losses: Option<Vec<f32>>,
    /// The number of steps after which peaks are reset.
    pub reset_after: Option<u64>,
    /// Peaks before they were reset.
    pub before_reset: Option<Peaks>,
}

/// Highest allocated and reserved, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    pub allocated: i64,
    pub reserved: i64,
}

impl Peaks {
    pub fn of(statistics: &Statistics) -> Self {
        Self { allocated: statistics.allocated_bytes.all.peak, reserved: statistics.reserved_bytes.all.peak }
    }
}

impl Steps {
    pub fn new(wanted: u64, list_losses: bool) -> Self {
        Self {
            wanted,
            finished: 0,
            skipped: 0,
            times: Times::default(),
            shortest: None,
            first_loss: None,
            last_loss: None,
            losses: list_losses.then(Vec::new),
            reset_after: None,
            before_reset: None,
        }
    }

    pub fn resetting_after(self, reset_after: Option<u64>) -> Self {
        Self { reset_after, ..self }
    }

    /// Peaks of the whole run, across resets.
    pub fn peaks(&self, statistics: &Statistics) -> Peaks {
        let (before, now) = (self.before_reset.unwrap_or_default(), Peaks::of(statistics));
        Peaks { allocated: before.allocated.max(now.allocated), reserved: before.reserved.max(now.reserved) }
    }

    pub fn reset_if_due(&mut self, run: &mut Headless) {
        if self.reset_after == Some(self.finished) {
            self.before_reset = Some(Peaks::of(&run.statistics()));
            run.reset_peaks();
        }
    }

    pub fn push(&mut self, report: &StepReport) {
        if self.finished >= self.wanted / 2 {
            self.times.add(report.total);
        }
        self.finished += 1;
        self.skipped += u64::from(!report.optimizer_ran);
        self.shortest = Some(self.shortest.map_or(report.total, |shortest| shortest.min(report.total)));
        self.first_loss = self.first_loss.or(report.loss);
        self.last_loss = report.loss;
        if let (Some(losses), Some(loss)) = (&mut self.losses, report.loss) {
            losses.push(loss);
        }
    }
}

pub(super) fn milliseconds(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

/// Allocated memory between the phases of the last step.
pub(super) struct PhaseMemory {
    pub before: Bytes,
    /// Allocated memory of an inference pass while its result was alive.
    pub forward: Bytes,
    pub boundaries: Boundaries,
}

impl PhaseMemory {
    pub fn of(trainer: &Trainer, view: &View) -> Self {
        let boundaries = view.boundaries;
        let after_forward = boundaries.after(Phase::Forward).unwrap_or_default();
        Self {
            before: boundaries.before_first_step().unwrap_or_else(|| view.ledger.allocated()),
            forward: trainer.outcome().allocated.unwrap_or(after_forward),
            boundaries,
        }
    }

    /// Allocated memory after a phase; 0 if no step got that far.
    pub fn after(&self, phase: Phase) -> Bytes {
        self.boundaries.after(phase).unwrap_or_default()
    }
}

/// One object with the reference's keys; sizes in bytes, times in milliseconds.
pub(super) fn object(spec: &LabSpec, trainer: &Trainer, steps: &Steps, view: &View) -> Value {
    let between = PhaseMemory::of(trainer, view);
    let stats: Map<String, Value> =
        trainer.statistics().entries().into_iter().map(|(key, value)| (key, json!(value))).collect();
    let peaks = steps.peaks(&trainer.statistics());
    let stat = |key: &str| stats.get(key).cloned().unwrap_or(Value::Null);
    let amp = match spec.config.amp {
        Amp::Off => Value::Null,
        Amp::Fp16 => json!("fp16"),
        Amp::Bf16 => json!("bf16"),
    };
    let opt = match spec.config.optimizer {
        OptimizerKind::Sgd => "sgd",
        OptimizerKind::Momentum => "momentum",
        OptimizerKind::Adam => "adam",
        OptimizerKind::AdamW => "adamw",
        OptimizerKind::Muon => "muon",
        OptimizerKind::AdamW8bit => "adamw_8bit",
        OptimizerKind::PagedAdamW8bit => "paged_adamw_8bit",
        OptimizerKind::PagedAdamW => "paged_adamw_32bit",
        OptimizerKind::Lion => "lion_32bit",
        OptimizerKind::Lion8bit => "lion_8bit",
        OptimizerKind::PagedLion => "paged_lion_32bit",
        OptimizerKind::PagedLion8bit => "paged_lion_8bit",
    };
    let ckpt = match spec.config.checkpointing {
        Checkpointing::Off => json!(false),
        Checkpointing::ALL => json!(true),
        every => json!(every.to_string()),
    };
    let config = &spec.config;
    let mut row = json!({
        "workload": spec.workload.name,
        "amp": amp,
        "ckpt": ckpt,
        "accum": spec.config.accumulation,
        "opt": opt,
        "tf32": config.tf32 == Tf32::On,
        "tf32_mode": config.tf32,
        "opt_form": config.form,
        "weight_decay": config.hyper.decay(config.optimizer),
        "schedule": config.schedule,
        "zero_grad": config.zero_grad,
        "offload": config.offload,
        "attention": config.attention,
        "fuse": config.fuse,
        "retain": config.retain,
        "pinned": config.pinned,
        "limit": spec.limit.map(|limit| limit.of(trainer.device_info().memory)),
        "alloc_conf": spec.alloc_conf,
        "torch": spec.settings.torch(),
        "batch": trainer.config().batch,
        "steps": steps.finished,
        "step_ms": steps.times.median(),
        "min_ms": steps.shortest.map(milliseconds),
        "losses": steps.losses,
        "allocated_before_step": between.before,
        "allocated_after": {
            "forward": between.forward,
            "backward": between.after(Phase::Backward),
            "optimizer": between.after(Phase::Optimizer),
            "zero_grad": between.after(Phase::ZeroGrad),
        },
        "peak_allocated": peaks.allocated,
        "peak_reserved": peaks.reserved,
        "reserved": stat("reserved_bytes.all.current"),
        "inactive_split": stat("inactive_split_bytes.all.current"),
        "segments": stat("segment.all.current"),
        "allocations": stat("allocation.all.allocated"),
        "device": trainer.device_info().name,
        "simulated": trainer.device_info().simulated,
        "stats": stats,
        "findings": view.findings.iter().map(|finding| export::finding(finding, &flags::WORDS)).collect::<Vec<_>>(),
        "effects": view.effects.iter().map(|effect| json!(**effect)).collect::<Vec<_>>(),
        "readings": view.gpu.as_deref(),
        "oom": view.autopsy.as_deref().map(|autopsy| export::out_of_memory(autopsy, view, &flags::WORDS)),
    });
    if let Some(row) = row.as_object_mut() {
        row.insert("attention_ran".into(), json!(trainer.attention_ran()));
        row.insert("on_oom".into(), json!(config.on_oom));
        row.insert("loss_head".into(), json!(config.loss_head));
        row.insert("drop_output".into(), json!(config.drop_output));
        row.insert("use_cache".into(), json!(config.use_cache));
        row.insert("tiled_mlp".into(), json!(config.tiled_mlp));
        row.insert("attention_mask".into(), json!(config.attention_mask));
        row.insert("fp8".into(), json!(config.float8));
        row.insert("clip".into(), json!(config.hyper.clip));
        row.insert("max_memory_allocated".into(), stat("allocated_bytes.all.peak"));
        row.insert("max_memory_reserved".into(), stat("reserved_bytes.all.peak"));
        row.insert("skipped".into(), json!(steps.skipped));
        row.insert("scale".into(), json!(trainer.loss_scale()));
    }
    let managed = trainer.memory().managed();
    if let (true, Some(row)) = (managed > Bytes::ZERO, row.as_object_mut()) {
        row.insert("unified_memory".into(), json!(managed));
    }
    if let (Some(plan), Some(row)) = (spec.inference, row.as_object_mut()) {
        // A forward pass has one phase boundary and no loss.
        row.insert("mode".into(), json!(plan.mode.label()));
        row.insert("half".into(), json!(plan.half));
        row.insert("losses".into(), json!([]));
        row.insert("allocated_before".into(), json!(between.before));
        row.insert("allocated_after".into(), json!(between.forward));
        row.insert("output".into(), json!(trainer.outcome().output));
    }
    row
}

/// A count of the allocator as bytes.
pub(super) fn bytes(count: i64) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or(0))
}
