//! Rotary position embeddings of parts of heads whose neighbours are pairs, op by op as in DeepSeek.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, RotaryPass, RotaryShape, kernels};

use super::rotary::RotaryTables;
use super::rotary_halves::TableKind;

impl Context {
    /// Parts of queries and of keys (batch, heads, rows, size) rotated by their positions, in the wider of their type and the tables'
    /// ([`Context::rotary_tables_of_pairs`]): neighbours are pairs, whose elements lie in two halves behind it, as in
    /// [`Context::rotary_by_halves`]. Both are sliced before either is rotated.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_of_pairs(&mut self, parts: [&Tensor; 2], tables: &RotaryTables) -> OpResult<[Tensor; 2]> {
        let [q, k] = parts.map(|part| self.every_second(part));
        let kind = TableKind::Slice;
        Ok([self.rotated_halves(&q, tables, kind)?, self.rotated_halves(&k, tables, kind)?])
    }

    /// `x[..., 0::2]` and `x[..., 1::2]`, views: the gradient of each is a tensor of the whole size, with zeros between.
    fn every_second(&mut self, input: &Tensor) -> [Tensor; 2] {
        let (shape, dtype) = (input.shape(), input.dtype());
        let half = shape.with_last(shape.last() / 2);
        let twice = |[by_batch, by_head, by_row, by_element]: [usize; 4]| [by_batch, by_head, by_row, 2 * by_element];
        let parts = [0, 1].map(|start| input.strided(half, twice(input.layout()), start));
        if !self.differentiates(&[input]) {
            return parts;
        }
        let source = self.record("sliceBackward", [Some(input), None, None], move |cx, [first, second, _]| {
            let spread = |cx: &Self, grad: Option<Tensor>, start| {
                let whole = cx.temporary(shape, dtype, "gradient of every second element")?;
                cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
                if let Some(grad) = grad {
                    cx.copy(&grad, &whole.strided(half, twice(shape.contiguous_strides()), start))?;
                }
                OpResult::Ok(whole)
            };
            let sum = spread(cx, second, 1)?;
            let other = spread(cx, first, 0)?;
            cx.launch(kernels::Elementwise::Add { a: sum.operand(), b: other.operand(), dst: sum.operand() })?;
            Ok([Some(sum), None, None])
        });
        let mut slots = 0..;
        parts.map(|part| part.with_source(source).with_slot(slots.next().unwrap_or_default()))
    }

    /// Parts of queries and of keys (batch, heads, rows, size) as complex numbers, of which neighbours are both parts, times those of
    /// [`Context::rotary_tables_of_complex`]: in f32, cast back.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_of_complex(&mut self, parts: [&Tensor; 2], tables: &RotaryTables) -> OpResult<[Tensor; 2]> {
        let narrow = parts.map(Tensor::dtype);
        let wide = |cx: &mut Self, part: &Tensor| match part.dtype() {
            DType::F16 | DType::Bf16 => cx.cast(part, DType::F32, "complex numbers"),
            _ => Ok(part.clone()),
        };
        // Variables of the function, which live until it returns.
        let [q, k] = [wide(self, parts[0])?, wide(self, parts[1])?];
        Ok([self.times_complex(&q, tables, narrow[0])?, self.times_complex(&k, tables, narrow[1])?])
    }

    fn times_complex(&mut self, input: &Tensor, tables: &RotaryTables, narrow: DType) -> OpResult<Tensor> {
        let &[batch, heads, rows, head_size] = input.shape().dims() else { return Ok(input.clone()) };
        let shape = RotaryShape { batch, heads, rows, head_size, neighbours: true };
        let (of_parts, wide) = (input.shape(), input.dtype());
        let RotaryTables { cos, sin } = tables;
        // One tensor of complex numbers has both.
        let both = cos.window(cos.shape().with_last(2 * cos.shape().last()), 0);
        self.op("rotary", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(&both)?) } else { None };
            let product = cx.activation(of_parts, wide, "rotated")?;
            let pass = RotaryPass::Forward([cos.operand(), sin.operand()]);
            cx.launch(kernels::Rotary::Rotate { shape, src: input.heads(), dst: product.heads(), pass })?;
            let output = if wide == narrow {
                product
            } else {
                let output = cx.activation(of_parts, narrow, "rotated in the narrower type")?;
                cx.launch(kernels::Elementwise::Cast { src: product.operand(), dst: output.operand() })?;
                output
            };
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("rotaryBackward", [Some(input), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let grad = {
                    let given = grad;
                    let wide = cx.cast_gradient(&given, wide)?;
                    cx.contiguous(&wide, "contiguous gradient")?
                };
                let both = saved.unpack(cx)?;
                let conjugate = cx.temporary(both.shape(), wide, "conjugate numbers")?;
                let product = cx.temporary(of_parts, wide, "gradient times the conjugate")?;
                let half = both.shape().with_last(both.shape().last() / 2);
                let [cos, sin] = [0, half.numel()].map(|start| both.window(half, start));
                for pass in [RotaryPass::BackwardOfSine(sin.operand()), RotaryPass::BackwardOfCosine(cos.operand())] {
                    cx.launch(kernels::Rotary::Rotate { shape, src: grad.heads(), dst: product.heads(), pass })?;
                }
                drop((conjugate, grad));
                Ok([Some(product), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
