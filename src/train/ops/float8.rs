//! Linear layers that multiply in 8 bits, as torchao's `Float8Linear` in eager mode: every product first scales and rounds both
//! of its factors, by the largest magnitude of each; tensors are saved for backward in their original type.

use super::linear::viewed;
use super::reduce::{Scratch, row_sum_scratch, sum_scratch};
use crate::config::Float8Recipe;
use crate::context::Context;
use crate::error::{Interrupt, OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, DeviceError, MatrixView, ScaleGroups, kernels};

/// Sizes of factors must be multiples of this.
const STEP: usize = 16;
/// The first compute capability with 8-bit products.
const FIRST: u32 = 89;
/// The only compute capability whose products with row scales are cuBLASLt's.
const HOPPER: u32 = 90;

/// A matrix in 8 bits with its scales, in the layout of the original.
struct Float8Matrix {
    data: Tensor,
    scale: Tensor,
}

/// A tensor to convert to 8 bits: the length of its rows in memory, and which rows share a scale.
#[derive(Clone, Copy)]
struct ScaledTensor<'a> {
    tensor: &'a Tensor,
    cols: usize,
    groups: ScaleGroups,
}

impl<'a> ScaledTensor<'a> {
    /// `groups` only applies to the recipe with row scales.
    const fn new(recipe: Float8Recipe, tensor: &'a Tensor, cols: usize, groups: ScaleGroups) -> Self {
        let groups = if matches!(recipe, Float8Recipe::Rowwise) { groups } else { ScaleGroups::All };
        Self { tensor, cols, groups }
    }
}

/// A factor of a product: its layout and its scale.
struct Factor<'a> {
    data: Tensor,
    view: MatrixView,
    scale: &'a Tensor,
}

/// A matrix stored column by column, with `rows` elements each.
fn by_columns(data: &Tensor, rows: usize) -> MatrixView {
    MatrixView { row_stride: 1, col_stride: rows, ..data.matrix() }
}

impl Context {
    /// Whether a linear layer of these sizes is converted: layers that torchao's README excludes are not.
    #[must_use]
    pub fn converts_to_float8(&self, sizes: [usize; 2]) -> bool {
        self.float8_recipe() != Float8Recipe::Off && sizes.iter().all(|size| size.is_multiple_of(STEP))
    }

    /// [`Context::linear`] with 8-bit products.
    ///
    /// # Errors
    /// Out of memory, a failed kernel; a card without 8-bit products, or a number of tokens that they don't take.
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
        let (transposed, recipe) = (weight.transpose(), self.float8_recipe());
        let (major, minor) = (capability / 10, capability % 10);
        let refused = |text| Err(TrainError::NoFloat8(text).into());
        if capability < FIRST {
            return refused(format!(
                "needs compute capability 8.9, this card has {major}.{minor}; leave --fp8 off, or take a card of Ada, \
                 Hopper or later"
            ));
        }
        // On other cards the product is CUTLASS's, whose workspaces have not been recorded.
        if recipe == Float8Recipe::Rowwise && capability != HOPPER {
            return refused(format!(
                "with scales of rows is known here of compute capability 9.0, this card has {major}.{minor}; use \
                 --fp8 tensorwise"
            ));
        }
        let (shape, tokens) = (input.shape(), input.shape().rows());
        let (inputs, outputs) = (shape.last(), weight.shape().rows());
        let output = {
            // Row scales are per token, and per output of the weight, whose rows are the outputs in memory.
            let x = self.float8(ScaledTensor::new(recipe, input, inputs, ScaleGroups::Rows), DType::E4M3)?;
            let w = self.float8(ScaledTensor::new(recipe, &transposed, inputs, ScaleGroups::Rows), DType::E4M3)?;
            let a = Factor { view: x.data.matrix(), data: x.data.clone(), scale: &x.scale };
            let b = Factor { view: by_columns(&w.data, inputs), data: w.data.clone(), scale: &w.scale };
            let output = |cx: &Self, dtype| cx.activation(shape.with_last(outputs), dtype, "output");
            let output = self.scaled_product([tokens, outputs, inputs], [a, b], (true, input.dtype()), output)?;
            drop(w);
            output
        };
        if !self.differentiates(&[input, weight]) {
            return Ok(output);
        }
        // A Python autograd function saves its tensors when it has returned.
        let saved = [self.save(input)?, self.save(&transposed)?];
        let to_parameter = weight.dtype();
        let source = self.record("Float8LinearBackward", [Some(input), Some(weight), None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let (to_input, to_weight) = {
                // Tensors that a checkpoint recomputed have no other owner and are freed when Python's function returns.
                let (x, w) = (saved[0].unpack(cx)?, saved[1].unpack(cx)?);
                cx.float8_gradients(recipe, [&grad, &x, &w], [tokens, outputs, inputs], shape)?
            };
            let to_weight = cx.cast_gradient(&to_weight, to_parameter)?.marked_as_view();
            Ok([Some(viewed(shape, to_input)), Some(to_weight), None])
        });
        Ok(output.with_source(source))
    }

    /// The gradients of the input, of this shape, and of the weight. Both factors of each product are converted again.
    fn float8_gradients(
        &mut self,
        recipe: Float8Recipe,
        [grad, x, w]: [&Tensor; 3],
        [tokens, outputs, inputs]: [usize; 3],
        shape: Shape,
    ) -> OpResult<(Tensor, Tensor)> {
        let of_gradients = if recipe == Float8Recipe::Rowwise { DType::E4M3 } else { DType::E5M2 };
        let first = self.float8(ScaledTensor::new(recipe, grad, outputs, ScaleGroups::Rows), of_gradients)?;
        let w = self.float8(ScaledTensor::new(recipe, w, inputs, ScaleGroups::Columns), DType::E4M3)?;
        let to_input = {
            let a = Factor { view: first.data.matrix(), data: first.data.clone(), scale: &first.scale };
            let copy = self.transposed_bytes(&w, [outputs, inputs])?;
            let b = Factor { view: by_columns(&copy, outputs), data: copy, scale: &w.scale };
            let output = |cx: &Self, dtype| cx.temporary(shape, dtype, "input gradient");
            self.scaled_product([tokens, inputs, outputs], [a, b], (false, grad.dtype()), output)?
        };
        let second = self.float8(ScaledTensor::new(recipe, grad, outputs, ScaleGroups::Columns), of_gradients)?;
        let x = self.float8(ScaledTensor::new(recipe, x, inputs, ScaleGroups::Columns), DType::E4M3)?;
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
            let output = |cx: &Self, dtype| cx.temporary(Shape::new(&[outputs, inputs]), dtype, "weight gradient");
            self.scaled_product([outputs, inputs, tokens], [a, b], (false, grad.dtype()), output)?
        };
        drop((first, w, second, x));
        Ok((to_input, to_weight))
    }

    /// A tensor in 8 bits, with the blocks of `hp_tensor_to_float8_dynamic`.
    fn float8(&self, scaled: ScaledTensor<'_>, dtype: DType) -> OpResult<Float8Matrix> {
        let scale = self.float8_scale(scaled, dtype)?;
        let ScaledTensor { tensor, cols, groups } = scaled;
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
            let (src, dst) = (tensor.flat(), data.flat());
            self.launch(kernels::Float8::Quantize { src, scale: scale.operand(), dst, cols, groups })?;
            drop(kept);
            drop(scaled);
            data
        };
        Ok(Float8Matrix { data, scale })
    }

    /// The factor on elements with which the largest magnitude of each group becomes that of `dtype`, or close to it if scales
    /// are powers of two.
    fn float8_scale(&self, scaled: ScaledTensor<'_>, dtype: DType) -> OpResult<Tensor> {
        let ScaledTensor { tensor, cols, groups } = scaled;
        let (amax, shape) = self.largest_magnitudes(scaled)?;
        let wide = self.temporary(shape, DType::F64, "largest magnitude in f64")?;
        let bounded = self.temporary(shape, DType::F64, "largest magnitude from 1e-12 on")?;
        let inverse = self.temporary(shape, DType::F64, "its reciprocal")?;
        let product = self.temporary(shape, DType::F64, "scale in f64")?;
        drop((inverse, bounded));
        let made = self.temporary(shape, DType::F32, "scale")?;
        drop(product);
        let power = groups != ScaleGroups::All;
        let scale = if power {
            let logarithm = self.temporary(shape, DType::F32, "logarithm of the scale")?;
            let whole = self.temporary(shape, DType::F32, "exponent of the scale")?;
            drop(logarithm);
            let scale = self.temporary(shape, DType::F32, "scale that is a power of two")?;
            drop(whole);
            scale
        } else {
            made.clone()
        };
        let most = f64::from(dtype.float8_max().unwrap_or(1.0));
        self.launch(kernels::Float8::Scale { amax: amax.operand(), dst: scale.operand(), most, power })?;
        drop((made, wide, amax));
        debug_assert_eq!(shape.numel(), groups.count(tensor.numel(), cols), "a scale for each group");
        Ok(scale)
    }

    /// The largest magnitude of each group, and the shape of one number per group.
    fn largest_magnitudes(&self, scaled: ScaledTensor<'_>) -> OpResult<(Tensor, Shape)> {
        let ScaledTensor { tensor, cols, groups } = scaled;
        let whole = groups == ScaleGroups::All;
        let shape = if whole { Shape::new(&[]) } else { Shape::new(&[groups.count(tensor.numel(), cols)]) };
        // `torch.max` of a whole tensor needs its elements in order, `torch.amax` along a dimension does not.
        let copied = whole && !tensor.is_row_major();
        let bytes = usize::try_from(tensor.dtype().size()).unwrap_or_default();
        let scratch = match groups {
            ScaleGroups::All => sum_scratch(tensor.numel(), bytes, self.workspaces.policy),
            // At least a warp works on a row.
            ScaleGroups::Rows => None,
            ScaleGroups::Columns => row_sum_scratch(tensor.numel() / cols.max(1), cols, bytes, self.workspaces.policy),
        };
        let magnitudes = self.temporary(tensor.shape(), tensor.dtype(), "magnitudes")?;
        let amax = self.temporary(shape, tensor.dtype(), "largest magnitude")?;
        let ordered = match copied {
            true => Some(self.temporary(tensor.shape(), tensor.dtype(), "magnitudes in order")?),
            false => None,
        };
        if let Some(Scratch { partials, semaphores }) = scratch {
            let partials = self.scratch(partials, "largest of parts")?;
            let semaphores = self.scratch(semaphores, "largest magnitude semaphores")?;
            drop((semaphores, partials));
        }
        let launched =
            self.launch(kernels::Float8::AbsMax { src: tensor.flat(), dst: amax.operand(), cols, groups, copied });
        launched.map_err(|interrupt| match interrupt {
            Interrupt::Failed(TrainError::Device(DeviceError::Unsupported { device, .. })) if !whole => {
                let text = format!("with scales of rows has no kernels on {device} here; use --fp8 tensorwise");
                TrainError::NoFloat8(text).into()
            }
            other => other,
        })?;
        drop((ordered, magnitudes));
        Ok((amax, shape))
    }

    /// The bytes of a row-major matrix of `rows × cols` in column-major order.
    fn transposed_bytes(&self, matrix: &Float8Matrix, [rows, cols]: [usize; 2]) -> OpResult<Tensor> {
        let shape = Shape::new(&[cols, rows]);
        let copy = self.temporary(shape, matrix.data.dtype(), "transposed copy in 8 bits")?;
        self.copy(&matrix.data.strided(shape, [1, cols, 0, 0], 0), &copy)?;
        Ok(copy)
    }

    /// `torch._scaled_mm` of an (m, k) and a (k, n) matrix into a type, `fast` or not; copies for it are freed after it has run.
    /// With row scales it writes bf16, and unless it is fast torchao multiplies the scales in afterwards.
    fn scaled_product(
        &mut self,
        sizes: [usize; 3],
        [a, b]: [Factor<'_>; 2],
        (fast, dtype): (bool, DType),
        output: impl Fn(&Self, DType) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let inverse = |cx: &Self, scale: &Tensor| {
            let inverse = cx.temporary(scale.shape(), scale.dtype(), "inverse scale")?;
            cx.launch(kernels::Optimizer::Reciprocal { src: scale.operand(), dst: inverse.operand() })?;
            OpResult::Ok(inverse)
        };
        let (of_a, of_b) = (inverse(self, a.scale)?, inverse(self, b.scale)?);
        let by_rows = self.float8_recipe() == Float8Recipe::Rowwise;
        let (of_a, of_b, behind) = if by_rows && !fast { self.scales_behind(of_a, of_b)? } else { (of_a, of_b, None) };
        let made = output(self, if by_rows { DType::Bf16 } else { dtype })?;
        let memory = self.memory().clone();
        self.workspaces.gemm_with_bias(&memory)?;
        let ([m, n, k], c, inverse) = (sizes, made.matrix(), [of_a.operand(), of_b.operand()]);
        self.launch(kernels::Float8::Gemm { m, n, k, a: a.view, b: b.view, c, inverse, fast })?;
        if let Some(behind) = &behind {
            self.launch(kernels::Elementwise::Mul { a: made.operand(), b: behind.operand(), dst: made.operand() })?;
        }
        let made = if made.dtype() == dtype {
            made
        } else {
            let cast = output(self, dtype)?;
            self.launch(kernels::Elementwise::Cast { src: made.operand(), dst: cast.operand() })?;
            cast
        };
        drop((of_a, of_b, behind, a.data, b.data));
        Ok(made)
    }

    /// Scales of 1 for a product, and the matrix it is multiplied by afterwards: for each element the scales of its row and its column.
    fn scales_behind(&self, of_a: Tensor, of_b: Tensor) -> OpResult<(Tensor, Tensor, Option<Tensor>)> {
        let (m, n) = (of_a.numel(), of_b.numel());
        let behind = self.temporary(Shape::new(&[m, n]), DType::F32, "scales of the product")?;
        let (rows, columns) = (of_a.reshaped(Shape::new(&[m, 1])), of_b.reshaped(Shape::new(&[1, n])));
        let (a, b, c) = (rows.matrix(), columns.matrix(), behind.matrix());
        let (batch, bias, alpha, beta) = (1, None, 1.0, 0.0);
        self.launch(kernels::Gemm { m, n, k: 1, batch, a, b, c, bias, alpha, beta })?;
        drop((rows, columns));
        let one = |cx: &Self, scales: Tensor| {
            let one = cx.temporary(Shape::new(&[]), DType::F32, "scale of 1")?;
            cx.launch(kernels::Elementwise::Fill { dst: one.operand(), value: 1.0 })?;
            drop(scales);
            OpResult::Ok(one)
        };
        Ok((one(self, of_a)?, one(self, of_b)?, Some(behind)))
    }
}
