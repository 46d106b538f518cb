//! What peft's DoRA computes besides LoRA: norms of adapted weights, and a scale for each output column.

use crate::context::{Context, SavedTensorHooks, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, MatrixView, kernels};
use vramlab_model::{Category, NameId};

/// A graph without a backward: its saved tensors live as long as it does.
#[derive(Default)]
pub struct DetachedGraph(Vec<SavedVariable>);

impl DetachedGraph {
    fn save(&mut self, cx: &Context, tensor: &Tensor) -> OpResult<()> {
        let saved = match &cx.saving {
            SavedTensorHooks::Keep | SavedTensorHooks::Recompute(_) => SavedVariable::Kept(tensor.detach()),
            SavedTensorHooks::Offload(offloader) => cx.offload(offloader, tensor)?,
            // A checkpoint's first run keeps nothing, and its second run passes on what backward asks for.
            SavedTensorHooks::Placeholder(_) | SavedTensorHooks::Nothing => return Ok(()),
        };
        self.0.push(saved);
        Ok(())
    }
}

/// PyTorch's promotion of two float types that are equal or of which one is f32.
fn wider(a: DType, b: DType) -> DType {
    if a.size() >= b.size() { a } else { b }
}

impl Context {
    /// `torch.eye(len)`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn identity(&mut self, len: usize, dtype: DType) -> OpResult<Tensor> {
        self.op("eye", |cx| {
            let output = cx.activation(Shape::new(&[len, len]), dtype, "identity")?;
            cx.launch(kernels::Elementwise::Identity { dst: output.operand(), cols: len })?;
            Ok(output)
        })
    }

    /// [`Context::linear`] without a bias; the result is detached, and its graph is kept in `aside`. If the input `wants` a
    /// gradient, the weight is saved too.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear_aside(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        wants: bool,
        aside: &mut DetachedGraph,
    ) -> OpResult<Tensor> {
        // If the weight requires a gradient, its copy serves the rest of the region.
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let input = self.cast_to_lower(input, "input copy")?;
        self.op("matmul", |cx| {
            aside.save(cx, &input)?;
            if wants {
                aside.save(cx, &weight.transpose())?;
            }
            cx.product(&input, &weight, None)
        })
    }

    /// `left @ right` of two matrices, without a gradient.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn matmul(&mut self, left: &Tensor, right: &Tensor) -> OpResult<Tensor> {
        let [m, n, k] = [left.shape().rows(), right.shape().last(), left.shape().last()];
        self.op("matmul", |cx| {
            let output = cx.temporary(Shape::new(&[m, n]), left.dtype(), "product")?;
            let memory = cx.memory().clone();
            cx.workspaces.gemm(&memory)?;
            let [a, b, c]: [MatrixView; 3] = [left, right, &output].map(Tensor::matrix);
            cx.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })?;
            Ok(output)
        })
    }

    /// `torch.linalg.norm(matrix, dim=1)` in the type of the matrix, without a gradient. Under autocast the result is f32.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn row_norms(&mut self, matrix: &Tensor) -> OpResult<Tensor> {
        let dtype = if self.autocasts() { DType::F32 } else { matrix.dtype() };
        let norms = self.op("linalg_vector_norm", |cx| {
            let norms = cx.activation(Shape::new(&[matrix.shape().rows()]), dtype, "norms of rows")?;
            cx.launch(kernels::RmsNorm::RowNorm {
                src: matrix.operand(),
                dst: norms.operand(),
                cols: matrix.shape().last(),
            })?;
            Ok(norms)
        })?;
        if norms.dtype() == matrix.dtype() { Ok(norms) } else { self.cast(&norms, matrix.dtype(), "norms of rows") }
    }

    /// Relabels `data` as the parameter `name`.
    pub fn becomes_parameter(&self, data: &Tensor, name: NameId) {
        self.memory().relabel(data, Category::Parameter, name);
    }

    /// `a / b` of equal shapes; `b` gets no gradient. Saves `b`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn quotient(&mut self, a: &Tensor, b: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("div", |cx| {
            let saved = if cx.differentiates(&[a]) { Some(cx.save(b)?) } else { None };
            let output = cx.activation(a.shape(), wider(a.dtype(), b.dtype()), what)?;
            cx.launch(kernels::Elementwise::Div { a: a.operand(), b: b.operand(), dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let dtype = a.dtype();
            let source = cx.record("divBackward", [Some(a), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let b = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of the dividend")?;
                cx.launch(kernels::Elementwise::Div { a: grad.operand(), b: b.operand(), dst: dst.operand() })?;
                drop(b);
                Ok([Some(cx.cast_gradient(&dst, dtype)?), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Subtracts the vector `columns`, which gets no gradient, from each row of `input`. Saves nothing.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn subtract_columns(&mut self, input: &Tensor, columns: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("sub", |cx| {
            let output = cx.activation(input.shape(), wider(input.dtype(), columns.dtype()), what)?;
            cx.launch(kernels::Elementwise::Sub { a: input.operand(), b: columns.operand(), dst: output.operand() })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let dtype = input.dtype();
            let source = cx.record("subBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                Ok([Some(cx.cast_gradient(&grad, dtype)?), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Multiplies each row of `input` by the vector `columns`. Saves each argument if the other requires a gradient.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn multiply_columns(&mut self, columns: &Tensor, input: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[columns, input]);
            let saved_columns = if differentiates && input.requires_grad() { Some(cx.save(columns)?) } else { None };
            let saved_input = if differentiates && columns.requires_grad() { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), wider(input.dtype(), columns.dtype()), what)?;
            cx.launch(kernels::Elementwise::Mul { a: input.operand(), b: columns.operand(), dst: output.operand() })?;
            if !differentiates {
                return Ok(output);
            }
            let (shape, dtype, rows) = (columns.shape(), input.dtype(), input.numel() / columns.numel().max(1));
            let wider_than_factors = input.shape().dims().len() > 2;
            let source = cx.record("mulBackward", [Some(columns), Some(input), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let [input, columns] = [&saved_input, &saved_columns]
                    .map(|saved| saved.as_ref().map(|saved| saved.unpack(cx)).transpose());
                let (input, columns) = (input?, columns?);
                let times = |factor: &Tensor, what| {
                    let dst = cx.temporary(grad.shape(), grad.dtype(), what)?;
                    cx.launch(kernels::Elementwise::Mul {
                        a: grad.operand(),
                        b: factor.operand(),
                        dst: dst.operand(),
                    })?;
                    OpResult::Ok(dst)
                };
                // The second factor's gradient comes first: its name (other) sorts before self. Both are computed before the
                // first is summed and the other one cast.
                let to_input = columns.as_ref().map(|columns| times(columns, "gradient of the input")).transpose()?;
                let products = input.as_ref().map(|input| times(input, "gradient of each factor")).transpose()?;
                // Recomputed tensors of a checkpoint are freed here; tensors that the node saved are freed with the node.
                drop((input, columns));
                let sum = |products| cx.sum_rows(&products, rows, shape, "gradient of the factors");
                // With more dimensions than the factors, the gradient of the factors is a view of the sum.
                let to_columns = match products.map(sum).transpose()? {
                    Some(to_columns) if wider_than_factors => Some(to_columns.marked_as_view()),
                    to_columns => to_columns,
                };
                let to_input = to_input.map(|to_input| cx.cast_gradient(&to_input, dtype)).transpose()?;
                drop((saved_input, saved_columns));
                Ok([to_columns, to_input, None])
            });
            Ok(output.with_source(source))
        })
    }
}
