//! Optimizer steps over many tensors, and the kernels of gradient scaling and clipping.

pub(super) mod cpu;
pub(super) mod cuda;
mod selftest;

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work, count, size};
use crate::{DType, Operand};

/// The number of elements in one partial sum of squares for a norm, as in PyTorch's kernels for lists of tensors.
pub const NORM_RUN: usize = 65_536;
/// The approximate number of tensors whose addresses fit into the arguments of one multi-tensor kernel. It falls with
/// the number of lists.
const TENSORS_PER_LAUNCH: usize = 36;
/// A foreach op's cost on the host, in dispatches: the op itself, and each tensor in its lists.
const FOREACH: f64 = 0.3;
const FOREACH_TENSOR: f64 = 0.012;

/// Hyper-parameters of one Adam or AdamW update, with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParameters {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Decay the weight itself (AdamW) instead of adding to the gradient (Adam).
    pub decoupled: bool,
    /// Updates so far, this one included.
    pub step: u64,
}

/// One parameter of a multi-tensor optimizer kernel. All operands have the parameter's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParameterUpdate {
    /// The weights, f32.
    pub parameter: Operand,
    /// Their gradient, f32.
    pub gradient: Operand,
    /// Momentum buffer or first moment.
    pub first: Option<Operand>,
    /// Second moment.
    pub second: Option<Operand>,
}

/// How often PyTorch's form of an optimizer passes over memory. The result is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePasses {
    /// One elementary operation after another.
    #[default]
    Several,
    /// One kernel.
    One,
}

/// A gradient scaler's input to a fused optimizer kernel. If `found_inf` is not zero, the kernel changes nothing.
/// Otherwise it first divides the gradients by `scale`, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradScaling {
    /// The factor that the gradients contain: one element.
    pub scale: Operand,
    /// One element, which is not zero if a gradient is not finite.
    pub found_inf: Operand,
}

/// Kernels over many tensors at once.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Optimizer<'a> {
    /// SGD, with momentum if `first` is given: `buf = momentum·buf + g` (or `buf = g` on the first update),
    /// `p −= lr·buf`.
    Sgd {
        updates: &'a [ParameterUpdate],
        lr: f64,
        momentum: f64,
        weight_decay: f64,
        first_step: bool,
        scaling: Option<GradScaling>,
        passes: UpdatePasses,
    },
    /// Adam and AdamW.
    Adam {
        updates: &'a [ParameterUpdate],
        parameters: AdamParameters,
        scaling: Option<GradScaling>,
        passes: UpdatePasses,
    },
    /// Multiplies every gradient by `inverse_scale`, and sets `found_inf` to 1 if a gradient is not finite.
    Unscale { gradients: &'a [Operand], inverse_scale: Operand, found_inf: Operand },
    /// Sums of squares over runs of [`NORM_RUN`] elements. `sums` (f32) has a row for each tensor, all as long as the
    /// longest tensor needs; unused elements of a shorter tensor's row keep their values.
    SquareSums { tensors: &'a [Operand], sums: Operand },
    /// `factor = min(1, most / (norm + 10⁻⁶))`, one element, where `norm` is the norm of the norms of `rows` tensors,
    /// whose partial sums of squares are in `sums`. Every intermediate number is rounded to the factor's type, as in
    /// `clip_grad_norm_`.
    ClipFactor { sums: Operand, rows: usize, factor: Operand, most: f64 },
    /// `dst[i] = 1 / src[i]`, computed in f64 as in GradScaler.
    Reciprocal { src: Operand, dst: Operand },
    /// GradScaler's update of scale (f32) and growth tracker (i32).
    UpdateScale { scale: Operand, tracker: Operand, found_inf: Operand, growth: f64, backoff: f64, interval: i32 },
}

impl Family for Optimizer<'_> {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "optimizer", source: include_str!("optimizer.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam { .. } => "adam",
            Self::Unscale { .. } => "unscale",
            Self::SquareSums { .. } => "square_sums",
            Self::ClipFactor { .. } => "clip_factor",
            Self::Reciprocal { .. } => "reciprocal",
            Self::UpdateScale { .. } => "update_scale",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Sgd { updates, scaling, .. } | Self::Adam { updates, scaling, .. } => {
                for update in *updates {
                    tell.all([&update.parameter, &update.gradient]);
                    tell.all([&update.first, &update.second].into_iter().flatten());
                }
                tell.all(scaling.iter().flat_map(|scaling| [&scaling.scale, &scaling.found_inf]));
            }
            Self::Unscale { gradients, inverse_scale, found_inf } => {
                tell.all([inverse_scale, found_inf]);
                tell.all(*gradients);
            }
            Self::SquareSums { tensors, sums } => {
                tell.all([sums]);
                tell.all(*tensors);
            }
            Self::ClipFactor { sums, factor, .. } => tell.all([sums, factor]),
            Self::Reciprocal { src, dst } => tell.all([src, dst]),
            Self::UpdateScale { scale, tracker, found_inf, .. } => tell.all([scale, tracker, found_inf]),
        }
    }

    fn work(&self) -> Work {
        match self {
            // Reads weights, gradients and state once, writes weights and state.
            Self::Sgd { updates, momentum, passes: UpdatePasses::One, .. } => {
                over(updates, 1, if *momentum == 0.0 { 12.0 } else { 20.0 })
            }
            Self::Adam { updates, passes: UpdatePasses::One, .. } => over(updates, 1, 28.0),
            Self::Sgd { updates, momentum, weight_decay, first_step, .. } => {
                // buf ·= μ, buf += g (a copy in the first step), p −= lr·buf; decay adds to the gradients.
                let decay = if *weight_decay == 0.0 { (0, 0.0) } else { (1, 12.0) };
                let (passes, bytes) = match (*momentum == 0.0, *first_step) {
                    (true, _) => (1, 12.0),
                    (false, true) => (2, 20.0),
                    (false, false) => (3, 32.0),
                };
                over(updates, passes + decay.0, bytes + decay.1)
            }
            Self::Adam { updates, parameters, .. } => {
                // p ·= 1 − lr·λ; m = lerp; v ·= β₂; v += g²; √v; ÷; + ε; p += m ÷ √v; and two lists of step counts.
                let decay = if parameters.weight_decay == 0.0 { (0, 0.0) } else { (1, 8.0) };
                over(updates, 10 + decay.0, 72.0 + decay.1)
            }
            Self::Unscale { gradients, .. } => {
                let bytes = gradients.iter().map(|gradient| 2.0 * size(gradient)).sum();
                let launches = u32::try_from(gradients.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
                let dispatches = 1.0 + FOREACH_TENSOR * count(gradients.len());
                Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }.launches(launches, dispatches)
            }
            Self::SquareSums { tensors, sums } => {
                let bytes = size(sums) + tensors.iter().map(size).sum::<f64>();
                let launches = u32::try_from(2 * tensors.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
                let dispatches = 1.0 + FOREACH_TENSOR * count(tensors.len());
                Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }.launches(launches, dispatches)
            }
            // Stack, norm, sum, reciprocal, product, clamp.
            Self::ClipFactor { sums, .. } => Work::pass(OpClass::Elementwise, &[sums]).launches(6, 6.0),
            Self::Reciprocal { src, dst } => Work::pass(OpClass::Elementwise, &[src, dst]).launches(3, 1.0),
            Self::UpdateScale { scale, .. } => Work::pass(OpClass::Elementwise, &[scale]),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Sgd { updates, lr, momentum, weight_decay, first_step, scaling, .. } => {
                let rule = cpu::SgdRule { lr, momentum, weight_decay, first_step };
                cpu::sgd(on.cores, on.arena, updates, rule, scaling)
            }
            Self::Adam { updates, ref parameters, scaling, .. } => {
                cpu::adam(on.cores, on.arena, updates, parameters, scaling)
            }
            Self::Unscale { gradients, inverse_scale, found_inf } => {
                cpu::unscale(on.cores, on.arena, gradients, inverse_scale, found_inf)
            }
            Self::SquareSums { tensors, sums } => cpu::square_sums(on.cores, on.arena, tensors, sums),
            Self::ClipFactor { sums, rows, factor, most } => cpu::clip_factor(on.apart(), sums, rows, factor, most),
            Self::Reciprocal { src, dst } => cpu::reciprocal(on.in_place(), src, dst),
            Self::UpdateScale { scale, tracker, found_inf, growth, backoff, interval } => {
                let rule = cpu::ScaleRule { growth, backoff, interval };
                cpu::update_scale(on.apart(), scale, tracker, found_inf, rule)
            }
        }
    }

    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        cuda::launch(queue, self)
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}

/// `passes` elementary operations over all parameters, which together move `bytes` per element.
fn over(updates: &[ParameterUpdate], passes: u32, bytes: f64) -> Work {
    let elements: f64 = updates.iter().map(|update| count(update.parameter.len)).sum();
    let launches = u32::try_from(updates.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
    Work { bytes: elements * bytes, ..Work::of(OpClass::Optimizer, DType::F32) }
        .launches(passes * launches, f64::from(passes) * (FOREACH + FOREACH_TENSOR * count(updates.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::Address;

    #[test]
    fn optimizers_reach_every_tensor_of_every_parameter() {
        let operand = |address| Operand { address: Address(address), dtype: DType::F32, len: 8 };
        let update = |at: u64| ParameterUpdate {
            parameter: operand(at),
            gradient: operand(at + 1),
            first: Some(operand(at + 2)),
            second: None,
        };
        let updates = [update(1000), update(2000)];
        let kernel = Optimizer::Sgd {
            updates: &updates,
            lr: 0.1,
            momentum: 0.9,
            weight_decay: 0.0,
            first_step: true,
            scaling: None,
            passes: UpdatePasses::One,
        };
        let mut starts = Vec::new();
        kernel.reach(&mut |span: Span| starts.push(span.start.0));
        assert_eq!(starts, [1000, 1001, 1002, 2000, 2001, 2002]);
    }
}
