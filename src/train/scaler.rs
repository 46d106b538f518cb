//! The gradient scaler of fp16 training.

use std::ops::Range;

use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, GradScaling, Operand, kernels};
use vramlab_model::Category;

use super::communicator::GradientGroup;
use super::config::Skips;
use super::context::Context;
use super::error::{OpResult, TrainError};
use super::shape::Shape;
use super::tensor::Tensor;

const INITIAL_SCALE: f64 = 65536.0;
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i32 = 2000;

/// Multiplies losses by a scale that follows the overflows of the gradients.
#[derive(Default)]
pub(crate) struct Scaler {
    state: Option<ScalerState>,
    followed: ScaleEstimate,
}

/// The host's estimate of the scale on the device, from the steps that were skipped.
struct ScaleEstimate {
    scale: f64,
    /// Updates since the scale last changed.
    since: i32,
    updates: u64,
}

impl Default for ScaleEstimate {
    fn default() -> Self {
        Self { scale: INITIAL_SCALE, since: 0, updates: 0 }
    }
}

impl ScaleEstimate {
    fn update(&mut self, overflowed: bool) {
        self.updates += 1;
        self.since = if overflowed { 0 } else { self.since + 1 };
        if overflowed {
            self.scale *= BACKOFF;
        } else if self.since == GROWTH_INTERVAL {
            (self.scale, self.since) = (self.scale * GROWTH, 0);
        }
    }
}

/// The tensors for a fused optimizer kernel, and the flag for the scaler's update.
pub(crate) struct UnscaleFlags {
    scale: Tensor,
    summed: Tensor,
    pub found_inf: Tensor,
}

impl UnscaleFlags {
    pub fn scaling(&self) -> GradScaling {
        GradScaling { scale: self.scale.operand(), found_inf: self.summed.operand() }
    }
}

struct ScalerState {
    scale: Tensor,
    tracker: Tensor,
}

impl Scaler {
    /// The factor for losses; `None` before the first loss.
    pub fn current_scale(&self) -> Option<f64> {
        self.state.as_ref().map(|_| self.followed.scale)
    }

    /// Whether this step counts as an overflow in any case.
    pub const fn skips(&self, skips: Skips) -> bool {
        skips.has(self.followed.updates)
    }

    /// Creates the scale and the growth tracker, if they don't exist: a rank without a loss scales a zero,
    /// `scaler.scale(torch.zeros((), device="cuda"))`.
    pub fn prepare(&mut self, cx: &mut Context) -> OpResult<()> {
        if self.state.is_some() {
            return Ok(());
        }
        let zero = scalar(cx, DType::F32, "a zero")?;
        cx.launch(kernels::Elementwise::Fill { dst: zero.operand(), value: 0.0 })?;
        self.scale(cx, &zero).map(drop)
    }

    /// `loss · scale`. The first call creates the scale and the growth tracker.
    pub fn scale(&mut self, cx: &mut Context, loss: &Tensor) -> OpResult<Tensor> {
        if self.state.is_none() {
            let scalar = |dtype, name: &str| {
                let name = cx.memory().name(name);
                cx.memory().named_tensor(Shape::new(&[]), dtype, Category::OptimizerState, name, StreamId::DEFAULT)
            };
            let scale = scalar(DType::F32, "scaler scale")?;
            cx.launch(kernels::Elementwise::Fill { dst: scale.operand(), value: INITIAL_SCALE })?;
            let tracker = scalar(DType::I32, "scaler growth tracker")?;
            cx.launch(kernels::Elementwise::Fill { dst: tracker.operand(), value: 0.0 })?;
            self.state = Some(ScalerState { scale, tracker });
        }
        match &self.state {
            Some(state) => cx.multiply(loss, &state.scale, "scaled loss"),
            None => Ok(loss.clone()),
        }
    }

    /// Divides the gradients of `parameters` by the scale; returns the flag that tells of an overflow, on any rank if the
    /// gradients are `shared`. The flag is kept until the update.
    pub fn unscale(
        &self,
        cx: &mut Context,
        parameters: Range<usize>,
        skip: bool,
        shared: Option<GradientGroup<'_>>,
    ) -> OpResult<Option<Tensor>> {
        let Some(ScalerState { scale, .. }) = &self.state else { return Ok(None) };
        let is_half = |gradient: &Tensor| gradient.dtype() == DType::F16;
        if cx.leaves[parameters.clone()].iter().any(|leaf| leaf.trained().1.is_some_and(is_half)) {
            return Err(TrainError::Fp16Gradients.into());
        }
        cx.op("unscale", |cx| {
            let double = scalar(cx, DType::F64, "scale in f64")?;
            let reciprocal = scalar(cx, DType::F64, "reciprocal scale in f64")?;
            drop(double);
            let inverse = scalar(cx, DType::F32, "reciprocal scale")?;
            drop(reciprocal);
            cx.launch(kernels::Optimizer::Reciprocal { src: scale.operand(), dst: inverse.operand() })?;
            let found_inf = multiply_gradients(cx, parameters, &inverse, shared)?;
            overflow_where(skip, cx, &found_inf)?;
            Ok(Some(found_inf))
        })
    }

    /// For an optimizer whose kernel unscales by itself: looks for an overflow in a pass that multiplies by one. The flag
    /// for the kernel is a sum over all devices; the flag kept until the update is the device's own.
    pub fn check(
        &self,
        cx: &mut Context,
        parameters: Range<usize>,
        skip: bool,
        shared: Option<GradientGroup<'_>>,
    ) -> OpResult<Option<UnscaleFlags>> {
        let Some(ScalerState { scale, .. }) = &self.state else { return Ok(None) };
        cx.op("check_inf", |cx| {
            let one = scalar(cx, DType::F32, "scale of one")?;
            cx.launch(kernels::Elementwise::Fill { dst: one.operand(), value: 1.0 })?;
            let found_inf = multiply_gradients(cx, parameters, &one, shared)?;
            overflow_where(skip, cx, &found_inf)?;
            drop(one);
            let summed = scalar(cx, DType::F32, "summed found_inf")?;
            cx.launch(kernels::Elementwise::Cast { src: found_inf.operand(), dst: summed.operand() })?;
            // The product of all scales that the optimizer was given: this scale alone.
            let product = scalar(cx, DType::F32, "scale for the kernel")?;
            cx.launch(kernels::Elementwise::Cast { src: scale.operand(), dst: product.operand() })?;
            Ok(Some(UnscaleFlags { scale: product, summed, found_inf }))
        })
    }

    /// Adjusts the scale after the step by the flags of all its optimizers: whether one of them `overflowed`.
    pub fn update(&mut self, cx: &mut Context, found: Vec<Tensor>, overflowed: bool) -> OpResult<()> {
        let Some(ScalerState { scale, tracker }) = &self.state else { return Ok(()) };
        let Some((found_inf, others)) = found.split_first() else { return Ok(()) };
        cx.op("update_scale", |cx| {
            // A flag of gradients in host memory is copied to the device.
            let arrived = if found_inf.is_on_host() { Some(scalar(cx, DType::F32, "found_inf")?) } else { None };
            if let Some(arrived) = &arrived {
                cx.launch(kernels::Elementwise::Cast { src: found_inf.operand(), dst: arrived.operand() })?;
            }
            let found_inf = arrived.as_ref().unwrap_or(found_inf);
            for other in others {
                let (sum, other) = (found_inf.operand(), other.operand());
                cx.launch(kernels::Elementwise::Add { a: sum, b: other, dst: sum })?;
            }
            cx.launch(kernels::Optimizer::UpdateScale {
                scale: scale.operand(),
                tracker: tracker.operand(),
                found_inf: found_inf.operand(),
                growth: GROWTH,
                backoff: BACKOFF,
                interval: GROWTH_INTERVAL,
            })
        })?;
        drop(found);
        self.followed.update(overflowed);
        Ok(())
    }
}

/// Sets the flag that a gradient overflowed if `skip` is set.
fn overflow_where(skip: bool, cx: &Context, found_inf: &Tensor) -> OpResult<()> {
    if skip { cx.launch(kernels::Elementwise::Fill { dst: found_inf.operand(), value: 1.0 }) } else { Ok(()) }
}

fn scalar(cx: &Context, dtype: DType, what: &'static str) -> OpResult<Tensor> {
    cx.temporary(Shape::new(&[]), dtype, what)
}

/// Multiplies the gradients of `parameters` by `factor`; returns the flag that tells whether one is not finite, on any rank if
/// they are `shared`.
fn multiply_gradients(
    cx: &Context,
    parameters: Range<usize>,
    factor: &Tensor,
    shared: Option<GradientGroup<'_>>,
) -> OpResult<Tensor> {
    let found_inf = scalar(cx, DType::F32, "found_inf")?;
    cx.launch(kernels::Elementwise::Fill { dst: found_inf.operand(), value: 0.0 })?;
    let gradients: Vec<&Tensor> = cx.leaves[parameters].iter().filter_map(|leaf| leaf.trained().1).collect();
    let on_host = gradients.iter().any(|gradient| gradient.is_on_host());
    // A copy of each for every device that has gradients, the host included.
    let beside_gradients = |what| cx.temporary_beside(on_host, Shape::new(&[]), DType::F32, what);
    let found_inf_here = beside_gradients("found_inf")?;
    cx.launch(kernels::Elementwise::Fill { dst: found_inf_here.operand(), value: 0.0 })?;
    let factor_here = beside_gradients("reciprocal scale")?;
    cx.launch(kernels::Elementwise::Cast { src: factor.operand(), dst: factor_here.operand() })?;
    let gradients: Vec<Operand> = gradients.into_iter().map(Tensor::operand).collect();
    cx.launch(kernels::Optimizer::Unscale {
        gradients: &gradients,
        inverse_scale: factor_here.operand(),
        found_inf: found_inf_here.operand(),
    })?;
    if let Some(GradientGroup { communicator, in_parts }) = shared {
        // For `DTensor`s a clone is reduced and copied back; `ShardedGradScaler` reduces the flag itself.
        let clone = if in_parts { Some(beside_gradients("found_inf of all ranks")?) } else { None };
        communicator.all_reduce(cx.memory(), &found_inf_here)?;
        communicator.join(cx.memory())?;
        drop(clone);
    }
    Ok(found_inf_here)
}
