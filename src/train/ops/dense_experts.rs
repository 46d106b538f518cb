//! Experts that all see every row, scaled by shares of which most are zero, op by op as in Llama 4: a batch of products, one for each.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, MatrixView, Operand, kernels};

impl Context {
    /// The shares of all experts from `logits` (rows, experts): sigmoids of the `k` largest of each row, and zeros elsewhere, in
    /// the type of the logits: `sigmoid(full_like(logits, -inf).scatter_(1, indices, topk(logits, k)))`, in f32 meanwhile.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn shares_of_all_experts(&mut self, logits: &Tensor, k: usize) -> OpResult<Tensor> {
        let (values, indices) = self.top_k(logits, k)?;
        let (shape, narrow, cols) = (logits.shape(), logits.dtype(), logits.shape().last());
        let wide = if narrow == DType::F64 { DType::F64 } else { DType::F32 };
        let scores = self.op("scatter_", |cx| {
            let saved_indices = if cx.differentiates(&[&values]) { Some(cx.save(&indices)?) } else { None };
            let scattered = cx.activation(shape, narrow, "largest logits alone")?;
            let widened = (narrow != wide).then(|| cx.temporary(shape, wide, "those in f32")).transpose()?;
            let output = cx.activation(shape, wide, "shares of all")?;
            // Zeros take the place of the sigmoids of minus infinity; what is scattered is never read.
            let room = Operand { len: values.numel(), ..widened.as_ref().unwrap_or(&scattered).operand() };
            cx.launch(kernels::Elementwise::Cast { src: values.operand(), dst: room })?;
            cx.launch(kernels::Elementwise::Sigmoid { src: room, dst: room })?;
            let (indices, dst) = (indices.operand(), output.operand());
            cx.launch(kernels::Routing::TopKBackward { grad: room, indices, dst, cols, k })?;
            drop(widened);
            let saved_output = saved_indices.is_some().then(|| cx.save(&output)).transpose()?;
            let result = if narrow == wide {
                output
            } else {
                let result = cx.activation(shape, narrow, "shares in the type of logits")?;
                cx.launch(kernels::Elementwise::Cast { src: output.operand(), dst: result.operand() })?;
                result
            };
            drop(scattered);
            let (Some(saved_indices), Some(saved_output)) = (saved_indices, saved_output) else { return Ok(result) };
            let of_values = values.shape();
            let source = cx.record("scatter_Backward", [Some(&values), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let given = cx.cast_gradient(&grad, wide)?;
                drop(grad);
                let (output, saved) = (saved_output.unpack(cx)?, saved_output);
                let slopes = cx.temporary(shape, wide, "gradient of logits in f32")?;
                cx.arrange(&given, &slopes)?;
                drop(given);
                let (output_of, dst) = (output.operand(), slopes.operand());
                cx.launch(kernels::Elementwise::SigmoidBackward { output: output_of, grad: dst, dst })?;
                drop((output, saved));
                let narrowed = cx.cast_gradient(&slopes, narrow)?;
                drop(slopes);
                let indices = saved_indices.unpack(cx)?;
                let gathered = cx.temporary(of_values, narrow, "gradient of the largest logits")?;
                let [src, indices, dst] = [&narrowed, &indices, &gathered].map(Tensor::operand);
                cx.launch(kernels::Routing::Gather { src, indices, dst, cols, k })?;
                drop(narrowed);
                Ok([Some(gathered), None, None])
            });
            Ok(result.with_source(source))
        })?;
        drop(values);
        Ok(scores)
    }

    /// The outputs of all experts for all rows of `input` (rows, width), scaled by `shares` (rows, experts) before the first
    /// product: `down(up(x) · silu(gate(x)))`, (experts × rows, width). `gate_up` is (experts, width, twice as many hidden values)
    /// with gates first, `down` (experts, hidden values, width).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rows_for_all_experts(&mut self, input: &Tensor, shares: &Tensor) -> OpResult<Tensor> {
        let (rows, count) = (input.shape().rows(), shares.shape().last());
        let repeated = self.op("repeat", |cx| cx.repeated_rows(input, count))?;
        let by_expert = self.op("reshape", |cx| {
            let [of_rows, of_experts] = [[rows, count], [count, rows]].map(|dims| Shape::new(&dims));
            let output = cx.activation(Shape::new(&[count * rows]), shares.dtype(), "shares by expert")?;
            let turned = shares.strided(of_experts, [1, count, 0, 0], 0);
            cx.copy(&turned, &output.strided(of_experts, [rows, 1, 0, 0], 0))?;
            if !cx.differentiates(&[shares]) {
                return Ok(output);
            }
            let source = cx.record("reshapeBackward", [Some(shares), None, None], move |_, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                Ok([Some(grad.strided(of_rows, [1, rows, 0, 0], 0)), None, None])
            });
            Ok(output.with_source(source))
        })?;
        self.times_shares(&repeated, &by_expert)
    }

    /// The same rows through every expert: (experts × rows, width).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn all_experts(&mut self, rows: &Tensor, [gate_up, down]: [&Tensor; 2]) -> OpResult<Tensor> {
        let both = self.product_of_each(rows, gate_up)?;
        let [gate, up] = self.halves(&both);
        let activated = self.silu(&gate)?;
        let hidden = self.mul(&up, &activated)?;
        drop((activated, both));
        self.product_of_each(&hidden, down)
    }

    /// The sum of the outputs of all experts (experts × rows, width): `view(experts, rows, width).sum(dim=0)`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn sum_over_experts(&mut self, outputs: &Tensor, count: usize) -> OpResult<Tensor> {
        let (all, width) = (outputs.shape(), outputs.shape().last());
        let rows = all.rows() / count.max(1);
        // Autocast sums in f32.
        let narrow = outputs.dtype();
        let wide = if self.autocasts() && narrow != DType::F64 { DType::F32 } else { narrow };
        self.op("sum", |cx| {
            let output = cx.sum_of_copies((outputs, wide), count, Shape::new(&[rows, width]), "sum over experts")?;
            if !cx.differentiates(&[outputs]) {
                return Ok(output);
            }
            let source = cx.record("sumBackward", [Some(outputs), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let spread = cx.temporary(all, narrow, "gradient of each expert")?;
                cx.fill_with_copies(&grad, &spread, count)?;
                Ok([Some(spread), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `input.repeat(count, 1)`.
    fn repeated_rows(&mut self, input: &Tensor, count: usize) -> OpResult<Tensor> {
        let (shape, width) = (input.shape(), input.shape().last());
        let output =
            self.activation(Shape::new(&[count * shape.rows(), width]), input.dtype(), "rows for all experts")?;
        self.fill_with_copies(input, &output, count)?;
        if !self.differentiates(&[input]) {
            return Ok(output);
        }
        let source = self.record("repeatBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            Ok([Some(cx.sum_of_copies((&grad, grad.dtype()), count, shape, "gradient of rows")?), None, None])
        });
        Ok(output.with_source(source))
    }

    fn fill_with_copies(&self, from: &Tensor, to: &Tensor, count: usize) -> OpResult<()> {
        (0..count).try_for_each(|copy| self.arrange(from, &to.window(from.shape(), copy * from.numel())))
    }

    fn sum_of_copies(
        &self,
        (copies, dtype): (&Tensor, DType),
        count: usize,
        shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        let output = self.activation(shape, dtype, what)?;
        let (src, dst) = (copies.operand(), output.operand());
        self.launch(kernels::Sums::Mean { src, dst, outer: 1, middle: count, inner: shape.numel() })?;
        #[expect(clippy::cast_precision_loss, reason = "experts are few")]
        self.launch(kernels::Elementwise::Scale { src: dst, dst, factor: count as f64 })?;
        Ok(output)
    }

    /// The rows of each expert times its matrix, (inputs, outputs): `bmm(rows.view(experts, -1, inputs), weight)`, with the rows of
    /// one after those of the other. Saves the rows if the weight requires a gradient, and the weight if the rows do.
    fn product_of_each(&mut self, rows: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        let &[count, inputs, outputs] = weight.shape().dims() else { return Ok(rows.clone()) };
        // Autocast casts arguments from the last to the first.
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let rows = self.cast_to_lower(rows, "rows copy")?;
        let n = rows.shape().rows() / count.max(1);
        self.op("bmm", |cx| {
            let differentiates = cx.differentiates(&[&rows, &weight]);
            let saved_rows = if differentiates && weight.requires_grad() { Some(cx.save(&rows)?) } else { None };
            let saved_weight = if differentiates && rows.requires_grad() { Some(cx.save(&weight)?) } else { None };
            let output = cx.activation(Shape::new(&[count * n, outputs]), rows.dtype(), "products of experts")?;
            let of_rows = move |tensor: &Tensor, cols| matrices(tensor, [cols, 1], n * cols);
            let of_weight = move |tensor: &Tensor, strides| matrices(tensor, strides, inputs * outputs);
            let (a, b) = (of_rows(&rows, inputs), of_weight(&weight, [outputs, 1]));
            cx.products([n, outputs, inputs], count, [a, b, of_rows(&output, outputs)])?;
            if !differentiates {
                return Ok(output);
            }
            let (shape_of_rows, shape_of_weight) = (rows.shape(), weight.shape());
            let source = cx.record("bmmBackward", [Some(&rows), Some(&weight), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The second argument comes first: names are unpacked in alphabetical order, and mat2 sorts before self.
                let weight = saved_weight.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let rows = saved_rows.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let mut to_weight = None;
                if let Some(rows) = &rows {
                    let dst = cx.temporary(shape_of_weight, grad.dtype(), "weight gradient")?;
                    let (a, b) = (matrices(rows, [1, inputs], n * inputs), of_rows(&grad, outputs));
                    cx.products([inputs, outputs, n], count, [a, b, of_weight(&dst, [outputs, 1])])?;
                    to_weight = Some(dst);
                }
                let mut to_rows = None;
                if let Some(weight) = &weight {
                    let dst = cx.temporary(shape_of_rows, grad.dtype(), "rows gradient")?;
                    let (a, b) = (of_rows(&grad, outputs), of_weight(weight, [1, outputs]));
                    cx.products([n, inputs, outputs], count, [a, b, of_rows(&dst, inputs)])?;
                    to_rows = Some(dst);
                }
                Ok([to_rows, to_weight, None])
            });
            Ok(output.with_source(source))
        })
    }

    fn products(&mut self, [m, n, k]: [usize; 3], batch: usize, [a, b, c]: [MatrixView; 3]) -> OpResult<()> {
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        self.launch(kernels::Gemm { m, n, k, batch, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })
    }
}

/// The matrices of a tensor that lie `batch_stride` elements apart.
fn matrices(tensor: &Tensor, [row_stride, col_stride]: [usize; 2], batch_stride: usize) -> MatrixView {
    MatrixView { row_stride, col_stride, batch_stride, ..tensor.matrix() }
}
