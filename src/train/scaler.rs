//! The gradient scaler of fp16 training.

use std::ops::Range;

use crate::device::{DType, Kernel, Operand};
use crate::model::Category;
use crate::units::StreamId;

use super::context::Context;
use super::error::OpResult;
use super::tensor::{Shape, Tensor};

const INITIAL_SCALE: f64 = 65536.0;
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i32 = 2000;

/// Multiplies losses by a scale that follows the overflows of the gradients.
#[derive(Default)]
pub(crate) struct Scaler {
    state: Option<ScalerState>,
}

struct ScalerState {
    scale: Tensor,
    tracker: Tensor,
}

impl Scaler {
    /// `loss · scale`. The first call makes the scale and the growth tracker.
    pub fn scale(&mut self, cx: &mut Context, loss: &Tensor) -> OpResult<Tensor> {
        if self.state.is_none() {
            let scalar = |dtype, name: &str| {
                let name = cx.memory().name(name);
                cx.memory().named_tensor(Shape::new(&[]), dtype, Category::OptimizerState, name, StreamId::DEFAULT)
            };
            let scale = scalar(DType::F32, "scaler scale")?;
            cx.launch(&Kernel::Fill { dst: scale.operand(), value: INITIAL_SCALE })?;
            let tracker = scalar(DType::I32, "scaler growth tracker")?;
            cx.launch(&Kernel::Fill { dst: tracker.operand(), value: 0.0 })?;
            self.state = Some(ScalerState { scale, tracker });
        }
        match &self.state {
            Some(state) => cx.multiply(loss, &state.scale, "scaled loss"),
            None => Ok(loss.clone()),
        }
    }

    /// Divides the gradients of `parameters` by the scale; returns the flag that tells of an overflow. It is kept until the update.
    pub fn unscale(&self, cx: &mut Context, parameters: Range<usize>) -> OpResult<Option<Tensor>> {
        let Some(ScalerState { scale, .. }) = &self.state else { return Ok(None) };
        cx.op("unscale", |cx| {
            let scalar = |dtype, what| cx.temporary(Shape::new(&[]), dtype, what);
            let double = scalar(DType::F64, "scale in f64")?;
            let reciprocal = scalar(DType::F64, "reciprocal scale in f64")?;
            drop(double);
            let inverse = scalar(DType::F32, "reciprocal scale")?;
            drop(reciprocal);
            cx.launch(&Kernel::Reciprocal { src: scale.operand(), dst: inverse.operand() })?;
            let found_inf = scalar(DType::F32, "found_inf")?;
            cx.launch(&Kernel::Fill { dst: found_inf.operand(), value: 0.0 })?;
            // One copy of either per device that has gradients.
            let found_inf_here = scalar(DType::F32, "found_inf")?;
            cx.launch(&Kernel::Fill { dst: found_inf_here.operand(), value: 0.0 })?;
            let inverse_here = scalar(DType::F32, "reciprocal scale")?;
            cx.launch(&Kernel::Cast { src: inverse.operand(), dst: inverse_here.operand() })?;
            let leaves = &cx.leaves[parameters];
            let gradients: Vec<Operand> =
                leaves.iter().filter_map(|leaf| leaf.gradient.as_ref()).map(Tensor::operand).collect();
            cx.launch(&Kernel::Unscale {
                gradients: &gradients,
                inverse_scale: inverse_here.operand(),
                found_inf: found_inf_here.operand(),
            })?;
            drop(inverse_here);
            Ok(Some(found_inf_here))
        })
    }

    /// Adjusts the scale after the optimizer's step.
    pub fn update(&self, cx: &mut Context, found_inf: Tensor) -> OpResult<()> {
        let Some(ScalerState { scale, tracker }) = &self.state else { return Ok(()) };
        cx.op("update_scale", |cx| {
            cx.launch(&Kernel::UpdateScale {
                scale: scale.operand(),
                tracker: tracker.operand(),
                found_inf: found_inf.operand(),
                growth: GROWTH,
                backoff: BACKOFF,
                interval: GROWTH_INTERVAL,
            })
        })?;
        drop(found_inf);
        Ok(())
    }
}
