//! Experts with biases and clamped gates, op by op as in gpt-oss. Gate and up values alternate.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

use super::clamp::Bound;
use super::experts::{Lie, Routes};

/// The parameters of all experts of a layer.
#[derive(Clone, Copy, Debug)]
pub struct ClampedExperts<'a> {
    /// Gate and up matrices, alternating: (experts, width, twice as many hidden values).
    pub gate_up: &'a Tensor,
    /// Their biases, alternating too.
    pub gate_up_bias: &'a Tensor,
    /// The down matrices: (experts, hidden values, width).
    pub down: &'a Tensor,
    /// The down biases.
    pub down_bias: &'a Tensor,
}

/// Gates are clamped to at most this, up values to within this of 0.
const LIMIT: f32 = 7.0;
/// The factor on gates before their sigmoid.
const ALPHA: f64 = 1.702;

impl Context {
    /// The outputs of each row's experts, times their shares: `down((up(x) + 1) · gate(x) · sigmoid(1.702 gate(x)))` with gate
    /// and up clamped to 7.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn clamped_experts(&mut self, input: &Tensor, routes: &Routes, of: ClampedExperts<'_>) -> OpResult<Tensor> {
        let (shares, experts) = (routes.shares(), routes.experts());
        let ClampedExperts { gate_up, gate_up_bias, down, down_bias } = of;
        let count = gate_up.shape().dims().first().copied().unwrap_or(1);
        let mut sorted = self.sorted_by_expert(input, (shares, experts), count)?;
        let n = experts.numel();
        let biases = |cx: &mut Self, biases: &Tensor, experts: &Tensor| {
            let shape = Shape::new(&[n, biases.shape().last()]);
            cx.rows_at(biases, experts, shape, "biases by expert")
        };
        let of_gate_up = biases(self, gate_up_bias, &sorted.experts)?;
        self.fill_masked_in_place(&mut sorted)?;
        let hidden = {
            let both = self.grouped_product(&sorted.rows, (gate_up, Lie::Plain), &sorted.ends)?;
            let both = self.add_in_place(both, &of_gate_up)?;
            let both = self.without_masked(both, &sorted.mask)?;
            self.clamped_gate(&both)?
        };
        let of_down = {
            let _before = of_gate_up;
            biases(self, down_bias, &sorted.experts)?
        };
        let output = {
            let hidden = hidden;
            let output = self.grouped_product(&hidden, (down, Lie::Plain), &sorted.ends)?;
            self.add_in_place(output, &of_down)?
        };
        let output = self.without_masked(output, &sorted.mask)?;
        let sum = self.summed_by_shares(output, sorted, (input, shares.shape().last()))?;
        drop(of_down);
        Ok(sum)
    }

    /// `(up + 1) · gate · sigmoid(1.702 gate)` of alternating values, both clamped.
    fn clamped_gate(&mut self, both: &Tensor) -> OpResult<Tensor> {
        let [gate, up] = self.neighbours(both);
        let gate = {
            let whole = gate;
            self.clamped(&whole, Bound::Above, LIMIT)?
        };
        let up = {
            let whole = up;
            self.clamped(&whole, Bound::Both, LIMIT)?
        };
        let opened = {
            let scaled = self.scale(&gate, ALPHA, "scaled gate")?;
            self.sigmoid(&scaled)?
        };
        let gated = self.mul(&gate, &opened)?;
        drop(opened);
        let raised = self.add_number(&up, 1.0)?;
        self.mul(&raised, &gated)
    }

    /// Every second element of each row from the first on, and from the second on: views.
    fn neighbours(&mut self, both: &Tensor) -> [Tensor; 2] {
        let (shape, dtype) = (both.shape(), both.dtype());
        let of_part = shape.with_last(shape.last() / 2);
        let strides = [shape.last(), 2, 0, 0];
        [0, 1].map(|start| {
            let view = both.strided(of_part, strides, start);
            if !self.differentiates(&[both]) {
                return view;
            }
            let source = self.record("sliceBackward", [Some(both), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let whole = cx.temporary(shape, dtype, "gradient of the whole")?;
                cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
                cx.copy(&grad, &whole.strided(of_part, strides, start))?;
                Ok([Some(whole), None, None])
            });
            view.with_source(source)
        })
    }
}
