//! Converts work to time: a roofline, with the share of each peak that kernels of a class reach.

use super::card::Card;
use super::clock::Nanos;
use super::efficiency::GemmShape;
use crate::{DType, HostWork, MatrixPrecision, OpClass, Work};
use vramlab_allocator::units::Bytes;

/// Time of `work` on the device.
pub(super) fn device_time(card: &Card, work: &Work, precision: MatrixPrecision) -> Nanos {
    let bytes = work.bytes / (card.bandwidth * 1e3 * bandwidth_share(card, work));
    let flops = match arithmetic_rate(card, work, precision) {
        Some(rate) => work.flops / (rate * 1e6),
        None => 0.0,
    };
    nanos(f64::from(work.kernels) * card.launch.kernel + bytes.max(flops))
}

/// Time of the host's Python code that launches no kernels.
pub(super) fn python_time(card: &Card, work: HostWork) -> Nanos {
    nanos(match work {
        HostWork::Checkpoint => card.launch.checkpoint,
        HostWork::OptimizerStep => card.launch.optimizer,
    })
}

/// Time that the host takes to launch it.
pub(super) fn host_time(card: &Card, work: &Work) -> Nanos {
    nanos(work.dispatches * card.launch.op)
}

/// Time of a copy at `rate` GB/s.
pub(super) fn copy_time(bytes: Bytes, rate: f64) -> Nanos {
    #[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
    nanos(bytes.get() as f64 / (rate * 1e3))
}

/// Whole nanoseconds of microseconds.
pub(super) fn nanos(micros: f64) -> Nanos {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and saturate")]
    let nanos = (micros * 1e3).round() as Nanos;
    nanos
}

/// Share of the multiprocessors that `blocks` thread blocks keep busy.
fn occupancy(card: &Card, blocks: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a hundred or so")]
    let all = card.multiprocessors as f64;
    (blocks / all).min(1.0)
}

/// Share of the multiprocessors that the tiles of a matrix product keep busy: an incomplete last wave takes as long as
/// a full one. Long inner products are split, and sooner if there are few tiles.
fn waves(card: &Card, tiles: f64, inner: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a hundred or so")]
    let all = card.multiprocessors as f64;
    let shortest = if tiles < all { 1024 } else { 2048 };
    #[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
    let waves = tiles * (inner / shortest).max(1) as f64 / all;
    if waves < 1.0 { waves } else { waves / waves.ceil() }
}

fn bandwidth_share(card: &Card, work: &Work) -> f64 {
    let efficiency = &card.efficiency;
    match work.class {
        OpClass::Elementwise => efficiency.elementwise,
        OpClass::Convert => efficiency.convert,
        OpClass::Transpose => efficiency.transpose,
        OpClass::Reduction => efficiency.reduction,
        OpClass::Norm => efficiency.norm,
        OpClass::NormBackward => efficiency.norm_backward,
        // One thread block per channel. More blocks than multiprocessors hide each other's latency.
        OpClass::BatchNorm => native(work) * efficiency.batch_norm * occupancy(card, work.blocks / 1.2),
        OpClass::BatchNormBackward => native(work) * efficiency.batch_norm * occupancy(card, work.blocks / 2.0),
        OpClass::Softmax => efficiency.softmax,
        OpClass::Scatter => efficiency.scatter,
        OpClass::Pool => efficiency.pool,
        OpClass::Optimizer => efficiency.optimizer,
        OpClass::Gemm { .. } | OpClass::Convolution { .. } | OpClass::Attention(_) | OpClass::AttentionBackward(_) => {
            efficiency.elementwise
        }
    }
}

/// In PyTorch, cuDNN has no batch norm for bf16, and PyTorch's own kernel is slower.
const fn native(work: &Work) -> f64 {
    if matches!(work.dtype, DType::Bf16) { 0.7 } else { 1.0 }
}

/// TFLOP/s that matrix products of `work` reach; `None` for work without them.
fn arithmetic_rate(card: &Card, work: &Work, precision: MatrixPrecision) -> Option<f64> {
    let (efficiency, peak) = (&card.efficiency, &card.peak);
    let busy = occupancy(card, work.blocks);
    match work.class {
        OpClass::Gemm { alignment, inner_contiguous, inner } => {
            let tf32 = precision.products_in_tf32 && has_tf32(card);
            let share = efficiency.gemm.of(work.dtype, tf32);
            let shape = gemm_shape(&efficiency.gemm_shape, work.dtype, tf32, (alignment, inner_contiguous), inner);
            // According to every data sheet of such a card, tensor cores are twice as fast in 8 bits as in 16.
            let doubled = if work.dtype.float8_max().is_some() { 2.0 } else { 1.0 };
            Some(doubled * peak.of(work.dtype, tf32) * share * shape * waves(card, work.blocks, inner))
        }
        OpClass::Convolution { backward, pointwise, channels } => {
            let tf32 = precision.convolutions_in_tf32 && has_tf32(card);
            let share = if backward { efficiency.convolution_backward } else { efficiency.convolution };
            let shape = convolution_shape(work.dtype, tf32, backward, pointwise, channels);
            Some(peak.of(work.dtype, tf32) * share.of(work.dtype, tf32) * shape * busy)
        }
        OpClass::Attention(by) => {
            Some(peak.of(work.dtype, false) * efficiency.attention.of(by).of(work.dtype, false) * busy)
        }
        OpClass::AttentionBackward(by) => {
            Some(peak.of(work.dtype, false) * efficiency.attention_backward.of(by).of(work.dtype, false) * busy)
        }
        _ => None,
    }
}

/// TF32 was introduced with Ampere: on older cards the switch changes nothing.
const fn has_tf32(card: &Card) -> bool {
    card.compute_capability >= 80
}

/// The share of a product's rate that remains for its layout.
fn gemm_shape(
    shares: &GemmShape,
    dtype: DType,
    tf32: bool,
    (alignment, inner_contiguous): (u64, u8),
    inner: usize,
) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
    let inner = inner as f64;
    match dtype {
        // Tensor cores require rows that start at multiples of 16 bytes; otherwise, other kernels run.
        DType::F16 | DType::Bf16 | DType::E4M3 | DType::E5M2 => match alignment {
            16.. => inner / (inner + shares.lead),
            8..16 => shares.by_8,
            4..8 => shares.by_4,
            _ => shares.by_2,
        },
        // Tensor cores read TF32 only along the inner dimension: other layouts are transposed first.
        _ if tf32 => match (alignment, inner_contiguous) {
            (16.., 2..) => inner / (inner + shares.lead_tf32),
            (16.., 1) => 0.87,
            (16.., 0) => 0.62,
            _ => 0.31,
        },
        _ => 1.0,
    }
}

/// The share of a convolution's rate that remains for its shape. Measured with PyTorch 2.11 on an H200.
fn convolution_shape(dtype: DType, tf32: bool, backward: bool, pointwise: bool, channels: usize) -> f64 {
    let tensor_cores = tf32 || matches!(dtype, DType::F16 | DType::Bf16);
    #[expect(clippy::cast_precision_loss, reason = "channels of an image")]
    let channels = channels as f64;
    let used = (channels / if tensor_cores { 16.0 } else { 6.0 }).min(1.0);
    let window = match (pointwise, backward) {
        (false, _) => 1.0,
        (true, false) => {
            if tensor_cores {
                0.74
            } else {
                0.9
            }
        }
        (true, true) => {
            if tensor_cores {
                0.75
            } else {
                0.68
            }
        }
    };
    used * window
}
