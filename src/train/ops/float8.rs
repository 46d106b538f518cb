//! Linear layers that multiply in 8 bits, as torchao's `Float8Linear` does it in eager mode: every product scales and rounds both of
//! its factors first, by the largest magnitude of each, and what backward needs is saved as it was.

use super::linear::viewed;
use super::reduce::{Scratch, sum_scratch};
use crate::config::Float8 as Recipe;
use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Kernel, MatrixView};

/// What the sizes of factors are multiples of.
const STEP: usize = 16;
/// The first compute capability with such products.
const FIRST: u32 = 89;

/// A matrix in 8 bits under one scale, with the layout of what it was made of.
struct Float8 {
    data: Tensor,
    scale: Tensor,
}

/// A factor of a product: where it lies, and the scale that it has.
struct Factor<'a> {
    data: Tensor,
    view: MatrixView,
    scale: &'a Tensor,
}

/// A matrix whose columns lie one after the other, of `rows` elements each.
fn by_columns(data: &Tensor, rows: usize) -> MatrixView {
    MatrixView { row_stride: 1, col_stride: rows, ..data.matrix() }
}

impl Context {
    /// Whether a linear layer of these sizes is converted: what the README of torchao leaves out is left out.
    #[must_use]
    pub fn converts_to_float8(&self, sizes: [usize; 2]) -> bool {
        self.float8_recipe() != Recipe::Off && sizes.iter().all(|size| size.is_multiple_of(STEP))
    }

    /// [`Context::linear`] by products in 8 bits.
    ///
    /// # Errors
    /// Out of memory, a failed kernel; a card without such products, or a number of tokens that they don't take.
    pub fn float8_linear(&mut self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> OpResult<Tensor> {
        let input = self.cast_to_lower(input, "input copy")?;
        let output = self.op("float8_linear", |cx| cx.float8_product(&input, weight))?;
        let Some(bias) = bias else { return Ok(output) };
        let bias = match bias.dtype() == output.dtype() {
            true => bias.clone(),
            false => self.cast(bias, output.dtype(), "bias copy")?,
        };
        self.add(&output, &bias)
    }

    fn float8_product(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        let capability = self.workspaces.policy.compute_capability;
        if capability < FIRST {
            let (major, minor) = (capability / 10, capability % 10);
            let text = format!(
                "needs compute capability 8.9, this card has {major}.{minor}; leave --fp8 off, or take a \
                 card of Ada, Hopper or later"
            );
            return Err(TrainError::NoFloat8(text).into());
        }
        let (shape, tokens) = (input.shape(), input.shape().rows());
        let (inputs, outputs) = (shape.last(), weight.shape().rows());
        let transposed = weight.transpose();
        let output = {
            let x = self.float8(input, DType::E4M3)?;
            let w = self.float8(&transposed, DType::E4M3)?;
            let a = Factor { view: x.data.matrix(), data: x.data.clone(), scale: &x.scale };
            let b = Factor { view: by_columns(&w.data, inputs), data: w.data.clone(), scale: &w.scale };
            let output = self.scaled_product([tokens, outputs, inputs], [a, b], true, |cx| {
                cx.activation(shape.with_last(outputs), input.dtype(), "output")
            })?;
            drop(w);
            output
        };
        if !self.differentiates(&[input, weight]) {
            return Ok(output);
        }
        // A function of Python's saves what it saves when it has returned.
        let saved = [self.save(input)?, self.save(&transposed)?];
        let to_parameter = weight.dtype();
        let source = self.record("Float8LinearBackward", [Some(input), Some(weight), None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let (to_input, to_weight) = {
                // What a checkpoint recomputed is nobody else's and goes when Python's function returns.
                let (x, w) = (saved[0].unpack(cx)?, saved[1].unpack(cx)?);
                cx.float8_gradients(&grad, &x, &w, [tokens, outputs, inputs], shape)?
            };
            let to_weight = cx.cast_gradient(&to_weight, to_parameter)?.marked_as_view();
            Ok([Some(viewed(shape, to_input)), Some(to_weight), None])
        });
        Ok(output.with_source(source))
    }

    /// The gradients of the input, of this shape, and of the weight. Both factors of either product are made anew.
    fn float8_gradients(
        &mut self,
        grad: &Tensor,
        x: &Tensor,
        w: &Tensor,
        [tokens, outputs, inputs]: [usize; 3],
        shape: Shape,
    ) -> OpResult<(Tensor, Tensor)> {
        let first = self.float8(grad, DType::E5M2)?;
        let w = self.float8(w, DType::E4M3)?;
        let to_input = {
            let a = Factor { view: first.data.matrix(), data: first.data.clone(), scale: &first.scale };
            let copy = self.transposed_bytes(&w, [outputs, inputs])?;
            let b = Factor { view: by_columns(&copy, outputs), data: copy, scale: &w.scale };
            let output = |cx: &Self| cx.temporary(shape, grad.dtype(), "input gradient");
            self.scaled_product([tokens, inputs, outputs], [a, b], false, output)?
        };
        let second = self.float8(grad, DType::E5M2)?;
        let x = self.float8(x, DType::E4M3)?;
        if !tokens.is_multiple_of(STEP) {
            let text = format!(
                "takes inner dimensions that are multiples of {STEP}, and a batch has {tokens} tokens with \
                 its padding; choose --batch, --accum and --seq so that it has a multiple of {STEP}"
            );
            return Err(TrainError::NoFloat8(text).into());
        }
        let to_weight = {
            let copy = self.transposed_bytes(&second, [tokens, outputs])?;
            let a = Factor { view: copy.matrix(), data: copy, scale: &second.scale };
            let copy = self.transposed_bytes(&x, [tokens, inputs])?;
            let b = Factor { view: by_columns(&copy, tokens), data: copy, scale: &x.scale };
            let output = |cx: &Self| cx.temporary(Shape::new(&[outputs, inputs]), grad.dtype(), "weight gradient");
            self.scaled_product([outputs, inputs, tokens], [a, b], false, output)?
        };
        drop((first, w, second, x));
        Ok((to_input, to_weight))
    }

    /// A tensor in 8 bits, with the blocks of `hp_tensor_to_float8_dynamic`.
    fn float8(&self, tensor: &Tensor, dtype: DType) -> OpResult<Float8> {
        let scale = self.float8_scale(tensor, dtype)?;
        let (shape, f32) = (tensor.shape(), DType::F32);
        let data = {
            let wide = match tensor.dtype() {
                DType::F32 => None,
                _ => Some(self.temporary(shape, f32, "values in f32")?),
            };
            let scaled = self.temporary(shape, f32, "scaled values")?;
            drop(wide);
            let kept = self.temporary(shape, f32, "scaled values within bounds")?;
            let data = self.temporary(shape, dtype, "values in 8 bits")?.restrided(tensor.layout());
            self.launch(&Kernel::QuantizeFloat8 { src: tensor.flat(), scale: scale.operand(), dst: data.flat() })?;
            drop(kept);
            drop(scaled);
            data
        };
        Ok(Float8 { data, scale })
    }

    /// What a tensor is multiplied by so that its largest magnitude becomes that of `dtype`.
    fn float8_scale(&self, tensor: &Tensor, dtype: DType) -> OpResult<Tensor> {
        let one = Shape::new(&[]);
        let copied = !tensor.is_row_major();
        let amax = {
            let magnitudes = self.temporary(tensor.shape(), tensor.dtype(), "magnitudes")?;
            let amax = self.temporary(one, tensor.dtype(), "largest magnitude")?;
            let ordered = match copied {
                true => Some(self.temporary(tensor.shape(), tensor.dtype(), "magnitudes in order")?),
                false => None,
            };
            let bytes = usize::try_from(tensor.dtype().size()).unwrap_or_default();
            if let Some(Scratch { partials, semaphores }) = sum_scratch(tensor.numel(), bytes, self.workspaces.policy) {
                let partials = self.scratch(partials, "largest of parts")?;
                let semaphores = self.scratch(semaphores, "largest magnitude semaphores")?;
                drop((semaphores, partials));
            }
            self.launch(&Kernel::AbsMax { src: tensor.flat(), dst: amax.operand(), copied })?;
            drop(ordered);
            drop(magnitudes);
            amax
        };
        let wide = self.temporary(one, DType::F64, "largest magnitude in f64")?;
        let bounded = self.temporary(one, DType::F64, "largest magnitude from 1e-12 on")?;
        let inverse = self.temporary(one, DType::F64, "its reciprocal")?;
        let product = self.temporary(one, DType::F64, "scale in f64")?;
        drop((inverse, bounded));
        let scale = self.temporary(one, DType::F32, "scale")?;
        let most = f64::from(dtype.float8_max().unwrap_or(1.0));
        self.launch(&Kernel::Float8Scale { amax: amax.operand(), dst: scale.operand(), most })?;
        drop((product, wide, amax));
        Ok(scale)
    }

    /// The bytes of a matrix of `rows × cols`, whose rows lie one after the other, column by column.
    fn transposed_bytes(&self, matrix: &Float8, [rows, cols]: [usize; 2]) -> OpResult<Tensor> {
        let shape = Shape::new(&[cols, rows]);
        let copy = self.temporary(shape, matrix.data.dtype(), "transposed copy in 8 bits")?;
        self.copy(&matrix.data.strided(shape, [1, cols, 0, 0], 0), &copy)?;
        Ok(copy)
    }

    /// `torch._scaled_mm` of an (m, k) and a (k, n) matrix; copies that were made for it go when it has run.
    fn scaled_product(
        &mut self,
        [m, n, k]: [usize; 3],
        [a, b]: [Factor<'_>; 2],
        fast: bool,
        output: impl FnOnce(&Self) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let inverse = |cx: &Self, scale: &Tensor| {
            let inverse = cx.temporary(scale.shape(), scale.dtype(), "inverse scale")?;
            cx.launch(&Kernel::Reciprocal { src: scale.operand(), dst: inverse.operand() })?;
            OpResult::Ok(inverse)
        };
        let (of_a, of_b) = (inverse(self, a.scale)?, inverse(self, b.scale)?);
        let output = output(self)?;
        let memory = self.memory().clone();
        self.workspaces.gemm_with_bias(&memory)?;
        let (c, inverse) = (output.matrix(), [of_a.operand(), of_b.operand()]);
        self.launch(&Kernel::ScaledGemm { m, n, k, a: a.view, b: b.view, c, inverse, fast })?;
        drop((of_a, of_b, a.data, b.data));
        Ok(output)
    }
}
