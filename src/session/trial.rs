//! Trains a workload under one combination of switches after the other, and reports what went wrong.
//!
//! A step runs with the workload's own switches, then the combination is put in force as keys would do it, then two
//! more steps run. Meanwhile nothing may access memory outside live blocks. If the losses are known, from a processor
//! that computes the same without the switches that only move memory, they must be equal.

use std::collections::HashMap;

use serde::Serialize;

use super::combinations::Combination;
use super::{BuildError, DeviceChoice, LabSpec};
use vramlab_device::Device;
use vramlab_train::{
    Amp, AttentionKernel, Checkpointing, Config, Libraries, LossHead, Offload, OnOom, Retain, Tf32, TrainError,
    Trainer, ZeroGrad,
};
use vramlab_workload::Architecture;

/// Steps per combination.
const STEPS: usize = 2;

/// The results for a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trials {
    /// The workload.
    pub workload: String,
    /// The number of combinations that trained.
    pub trained: usize,
    /// How many of these had their losses compared.
    pub compared: usize,
    /// The number of combinations that ran out of memory, which is a valid result.
    pub out_of_memory: usize,
    /// The number of combinations that were refused: a batch too small for batch norm, or an attention kernel or a
    /// product in 8 bits that does not accept the inputs.
    pub refused: usize,
    /// The largest deviation of a loss, relative to the tolerance of its precision: up to 1 is correct.
    pub worst: f64,
    /// Failures: the combination, and a sentence.
    pub failures: Vec<(String, String)>,
    /// Why the rest was not tried.
    pub ended: Option<String>,
}

/// The relative tolerance of losses compared with the processor's: sums in another order, in the precision of the products.
const fn tolerance(config: &Config) -> f64 {
    match (config.amp, config.tf32) {
        (Amp::Off, Tf32::Off) => 1e-3,
        (Amp::Off, _) => 5e-3,
        (Amp::Fp16 | Amp::Bf16, _) => 3e-2,
    }
}

/// How many values a norm over the batch must have per channel for losses to be compared. With fewer, rounding alone
/// decides the signs of the results. (Two equal values are normalised to 0, two nearly equal ones to ±1.)
const STEADY_NORM: usize = 16;

/// True if a norm over the samples of a batch amplifies rounding no more than other ops do. TF32, which the processor
/// does not have, is an exception.
fn is_steady(config: &Config, device: &DeviceChoice) -> bool {
    let same = matches!(device, DeviceChoice::Cpu) || config.tf32 == Tf32::Off || config.amp != Amp::Off;
    same && config.micro_batch() >= STEADY_NORM
}

/// `config` without the switches that move memory and don't change the arithmetic. Page-locking stays, because it
/// decides how many batches are made ahead, and so which ones a flip drops. The form of the optimizer stays, because
/// another form begins with another state.
///
/// Fused ops round less often, and a norm over the samples of a batch (`norms_samples`) amplifies that. A reentrant
/// checkpoint around a block that takes the data itself (`blocks_take_data`) trains nothing in it, as in PyTorch.
fn arithmetic_of(config: &Config, norms_samples: bool, blocks_take_data: bool) -> Config {
    let trains_less = blocks_take_data && config.checkpointing.is_reentrant();
    Config {
        checkpointing: if trains_less { config.checkpointing } else { Checkpointing::Off },
        zero_grad: ZeroGrad::SetToNone,
        offload: Offload::Off,
        attention: AttentionKernel::Auto,
        loss_head: LossHead::Labels,
        drop_output: false,
        use_cache: false,
        tiled_mlp: false,
        tf32: Tf32::Off,
        fuse: config.fuse && norms_samples,
        retain: Retain::Off,
        on_oom: OnOom::Stop,
        ..*config
    }
}

/// Tries `combinations` of `spec`, and reports each to `progress`. If `compares`, losses are compared with the processor's.
///
/// # Errors
/// The error if the device or the workload can't be used at all.
pub fn try_all(
    spec: &LabSpec,
    combinations: &[Combination],
    compares: bool,
    mut progress: impl FnMut(&str),
) -> Result<Trials, BuildError> {
    let mut trials = Trials { workload: spec.workload.name.clone(), ..Trials::default() };
    let reference = LabSpec { device: DeviceChoice::Cpu, ..spec.clone() };
    let mut known: HashMap<String, Vec<f32>> = HashMap::new();
    let norms_samples = spec.workload.workload(spec.sizes, spec.data.clone(), spec.seed)?.least_micro_batch() > 1;
    let blocks_take_data = spec.workload.model == Architecture::Mlp;
    let mut open = OpenDevice::new(spec)?;
    let mut processor = None;
    for combination in combinations {
        progress(&format!("{}: {combination}", spec.workload.name));
        let config = combination.config(&spec.config);
        let losses = match open.losses(spec, &config) {
            Ok(losses) => losses,
            Err(BuildError::Train(TrainError::OutOfMemory { .. }) | BuildError::TooSmall { .. }) => {
                trials.out_of_memory += 1;
                continue;
            }
            Err(BuildError::Train(error)) if error.is_refusal() => {
                trials.refused += 1;
                continue;
            }
            Err(error) => {
                trials.failures.push((combination.to_string(), error.to_string()));
                if error.lost() {
                    trials.ended = Some(error.to_string());
                    return Ok(trials);
                }
                continue;
            }
        };
        trials.trained += 1;
        if !compares || losses.is_empty() || norms_samples && !is_steady(&config, &spec.device) {
            continue;
        }
        let computed = arithmetic_of(&config, norms_samples, blocks_take_data);
        let key = format!("{computed:?}");
        let expected = match known.get(&key) {
            Some(losses) => losses,
            None => {
                let processor = match &mut processor {
                    Some(open) => open,
                    None => processor.insert(OpenDevice::new(&reference)?),
                };
                let losses = processor.losses(&reference, &computed)?;
                known.entry(key).or_insert(losses)
            }
        };
        trials.compared += 1;
        // If training diverges on the processor too, later losses can't be compared.
        let sane = expected.iter().zip(&losses).take_while(|(expected, _)| expected.is_finite());
        let share = sane.map(|(expected, found)| {
            let difference = f64::from((expected - found).abs()) / f64::from(expected.abs()).max(1e-3);
            if difference.is_nan() { f64::INFINITY } else { difference / tolerance(&config) }
        });
        let share = share.fold(0.0, f64::max);
        trials.worst = trials.worst.max(share);
        if share > 1.0 || losses.len() != expected.len() {
            let sentence = format!("losses {losses:?} where the processor has {expected:?}");
            trials.failures.push((combination.to_string(), sentence));
        }
    }
    Ok(trials)
}

/// A device that one trainer after the other uses, because opening a GPU takes long.
struct OpenDevice {
    device: Option<Box<dyn Device>>,
    libraries: Libraries,
}

impl OpenDevice {
    fn new(spec: &LabSpec) -> Result<Self, BuildError> {
        let (device, libraries) = spec.device.open()?;
        Ok(Self { device: Some(device), libraries })
    }

    /// The losses of a usual step and of [`STEPS`] steps under `config`; empty if nothing is computed.
    fn losses(&mut self, spec: &LabSpec, config: &Config) -> Result<Vec<f32>, BuildError> {
        let device = match self.device.take() {
            Some(device) => device,
            None => spec.device.open()?.0,
        };
        let mut trainer = spec.build_on(device, self.libraries, Box::new(()), true)?;
        let result = train(&mut trainer, config);
        // A failed trainer may have left work behind that fails again.
        self.device = trainer.into_device().filter(|_| result.is_ok());
        result.map_err(BuildError::Train)
    }
}

fn train(trainer: &mut Trainer, config: &Config) -> Result<Vec<f32>, TrainError> {
    let mut losses = Vec::new();
    losses.extend(trainer.step()?.loss);
    trainer.configure(*config)?;
    for _ in 0..STEPS {
        losses.extend(trainer.step()?.loss);
    }
    Ok(losses)
}

/// Tries `combinations` one after the other in one run, as keys would flip them. Nothing is compared.
///
/// # Errors
/// The same as for [`try_all`].
pub fn flip_through(
    spec: &LabSpec,
    combinations: &[Combination],
    mut progress: impl FnMut(&str),
) -> Result<Trials, BuildError> {
    let mut trials = Trials { workload: spec.workload.name.clone(), ..Trials::default() };
    let mut open = OpenDevice::new(spec)?;
    let Some(device) = open.device.take() else { return Ok(trials) };
    let mut trainer = spec.build_on(device, open.libraries, Box::new(()), true)?;
    for combination in combinations {
        progress(&format!("{}: {combination}", spec.workload.name));
        let stepped = trainer.configure(combination.config(&spec.config)).and_then(|()| trainer.step());
        match stepped {
            Ok(_) => trials.trained += 1,
            Err(TrainError::OutOfMemory { .. }) => trials.out_of_memory += 1,
            Err(error) if error.is_refusal() => trials.refused += 1,
            Err(error) => {
                trials.failures.push((combination.to_string(), error.to_string()));
                if let Err(lost) = trainer.check_device() {
                    trials.ended = Some(lost.to_string());
                    return Ok(trials);
                }
            }
        }
    }
    Ok(trials)
}
