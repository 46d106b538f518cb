//! The share of a card's peaks that kernels reach.

use serde::Deserialize;

use crate::{DType, FusedAttention};

/// Whether a rate, or a share of one, is valid for computing times.
pub(super) fn is_rate(rate: f64) -> bool {
    (1e-9..=1e9).contains(&rate)
}

/// Whether a call can take this many µs.
pub(super) fn is_time(time: f64) -> bool {
    (0.0..=1e9).contains(&time)
}

/// A figure for each type of factors.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByPrecision {
    /// f32 outside of tensor cores.
    pub fp32: f64,
    /// f32 rounded to TensorFloat-32.
    pub tf32: f64,
    /// IEEE half precision, summed in f32.
    pub fp16: f64,
    /// bfloat16.
    pub bf16: f64,
}

impl ByPrecision {
    const fn half(fp32: f64, tf32: f64, half: f64) -> Self {
        Self { fp32, tf32, fp16: half, bf16: half }
    }

    pub(super) fn all(&self, holds: fn(f64) -> bool) -> bool {
        [self.fp32, self.tf32, self.fp16, self.bf16].into_iter().all(holds)
    }

    /// The figure for factors of `dtype`, with TF32 if `tf32` is set; 8-bit floats have that of bfloat16.
    pub(super) const fn of(&self, dtype: DType, tf32: bool) -> f64 {
        match dtype {
            DType::F16 => self.fp16,
            DType::Bf16 | DType::E4M3 | DType::E5M2 => self.bf16,
            _ if tf32 => self.tf32,
            _ => self.fp32,
        }
    }
}

/// The share of a peak that each of PyTorch's fused attention kernels reaches.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByKernel {
    /// cuDNN's, in 16 bits.
    pub cudnn: f64,
    /// Flash attention's, in 16 bits.
    pub flash: f64,
    /// The memory-efficient kernel's, in 16 bits.
    pub efficient: f64,
    /// The same in f32.
    pub efficient_fp32: f64,
}

impl ByKernel {
    /// The shares of one kernel. Only the memory-efficient kernel takes f32.
    pub(super) const fn of(&self, by: FusedAttention) -> ByPrecision {
        let half = match by {
            FusedAttention::CuDnn => self.cudnn,
            FusedAttention::Flash => self.flash,
            FusedAttention::Efficient => self.efficient,
        };
        ByPrecision::half(self.efficient_fp32, self.efficient_fp32, half)
    }

    fn is_possible(&self) -> bool {
        [self.cudnn, self.flash, self.efficient, self.efficient_fp32].into_iter().all(is_rate)
    }
}

/// The share of the rate of long, aligned products that remains for the layout of a 16-bit or TF32 product.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmShape {
    /// The cost of filling and draining the pipeline, as a number of inner elements, in 16 bits.
    pub lead: f64,
    /// The same in TF32.
    pub lead_tf32: f64,
    /// The share that remains if rows begin only at multiples of 8 bytes.
    pub by_8: f64,
    /// The same for 4 bytes.
    pub by_4: f64,
    /// The same for 2 bytes: an odd width, such as GPT-2's vocabulary of 50,257.
    pub by_2: f64,
}

impl GemmShape {
    fn is_possible(&self) -> bool {
        [self.by_8, self.by_4, self.by_2].into_iter().all(is_rate)
            && [self.lead, self.lead_tf32].into_iter().all(is_time)
    }
}

/// The share of a peak that kernels of each class reach.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Efficiency {
    /// Of the bandwidth: runs of elements of one type.
    pub elementwise: f64,
    /// Of the bandwidth: between types.
    pub convert: f64,
    /// Of the bandwidth: between layouts.
    pub transpose: f64,
    /// Of the bandwidth: sums over rows.
    pub reduction: f64,
    /// Of the bandwidth: layer norm.
    pub norm: f64,
    /// Of the bandwidth: its gradients.
    pub norm_backward: f64,
    /// Of the bandwidth: batch norm with enough channels.
    pub batch_norm: f64,
    /// Of the bandwidth: softmax.
    pub softmax: f64,
    /// Of the bandwidth: sums of rows by index.
    pub scatter: f64,
    /// Of the bandwidth: pooling.
    pub pool: f64,
    /// Of the bandwidth: multi-tensor optimizers.
    pub optimizer: f64,
    /// Of the arithmetic peak: long matrix products.
    pub gemm: ByPrecision,
    /// Of the arithmetic peak: convolutions.
    pub convolution: ByPrecision,
    /// Of the arithmetic peak: their gradients.
    pub convolution_backward: ByPrecision,
    /// Of the rate of long products: what their layout leaves.
    pub gemm_shape: GemmShape,
    /// Of the arithmetic peak: attention. Its f32 kernels use no tensor cores.
    pub attention: ByKernel,
    /// Of the arithmetic peak: its gradients.
    pub attention_backward: ByKernel,
}

impl Default for Efficiency {
    /// Fitted to times of PyTorch 2.11's kernels on an H200.
    fn default() -> Self {
        Self {
            elementwise: 0.9,
            convert: 0.62,
            transpose: 0.25,
            reduction: 0.4,
            norm: 0.46,
            norm_backward: 0.29,
            batch_norm: 0.42,
            softmax: 0.56,
            scatter: 0.2,
            pool: 0.2,
            optimizer: 0.76,
            gemm: ByPrecision::half(0.775, 0.81, 0.89),
            convolution: ByPrecision::half(0.52, 0.31, 0.25),
            convolution_backward: ByPrecision::half(0.4, 0.235, 0.23),
            gemm_shape: GemmShape { lead: 190.0, lead_tf32: 30.0, by_8: 0.5, by_4: 0.29, by_2: 0.14 },
            attention: ByKernel { cudnn: 0.31, flash: 0.22, efficient: 0.107, efficient_fp32: 0.47 },
            attention_backward: ByKernel { cudnn: 0.25, flash: 0.18, efficient: 0.086, efficient_fp32: 0.5 },
        }
    }
}

impl Efficiency {
    pub(super) fn is_possible(&self) -> bool {
        let of_bandwidth = [
            self.elementwise,
            self.convert,
            self.transpose,
            self.reduction,
            self.norm,
            self.norm_backward,
            self.batch_norm,
            self.softmax,
            self.scatter,
            self.pool,
            self.optimizer,
        ];
        let of_arithmetic = [self.gemm, self.convolution, self.convolution_backward];
        of_bandwidth.into_iter().all(is_rate)
            && of_arithmetic.iter().all(|share| share.all(is_rate))
            && [self.attention, self.attention_backward].iter().all(ByKernel::is_possible)
            && self.gemm_shape.is_possible()
    }
}
