//! Rotary position embeddings of parts of heads whose neighbours are pairs, op by op as in DeepSeek.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, RotaryPass, RotaryShape, kernels};

use super::attention::SideBySide;
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
        let mut turned = |part: &Tensor, narrow| {
            let product = self.times_complex(part, tables, HeadOrder::Apart)?;
            self.converted(product, narrow, "rotated in the narrower type")
        };
        Ok([turned(&q, narrow[0])?, turned(&k, narrow[1])?])
    }

    /// The same for whole queries and keys whose heads lie side by side: both are multiplied before either is cast back (Llama 4).
    /// If a norm of heads follows, backward tells through `told` how the gradient of its result lies: so lies that of its input in
    /// PyTorch, which is copied here unless it lies side by side.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_of_whole_complex(
        &mut self,
        heads: [Tensor; 2],
        tables: &RotaryTables,
        told: Option<&[SideBySide; 2]>,
    ) -> OpResult<[Tensor; 2]> {
        let narrow = heads.each_ref().map(Tensor::dtype);
        let widens = |dtype| matches!(dtype, DType::F16 | DType::Bf16);
        let wide = |cx: &mut Self, part: &Tensor| match widens(part.dtype()) {
            true => cx.cast(part, DType::F32, "complex numbers"),
            false => Ok(part.clone()),
        };
        // Variables of the function, which live until it returns.
        let numbers = [wide(self, &heads[0])?, wide(self, &heads[1])?];
        let told = [0, 1].map(|part| HeadOrder::SideBySide(told.map(|told| told[part].clone())));
        let [of_q, of_k] = told;
        let products = [self.times_complex(&numbers[0], tables, of_q)?, self.times_complex(&numbers[1], tables, of_k)?];
        let [q, k] = &products;
        let turned = [
            self.converted(q.clone(), narrow[0], "rotated queries")?,
            self.converted(k.clone(), narrow[1], "rotated keys")?,
        ];
        drop((numbers, products, heads));
        Ok(turned)
    }

    /// Heads (batch, heads, rows, size) as complex numbers times those of the tables, in their type. Saves the tables.
    fn times_complex(&mut self, input: &Tensor, tables: &RotaryTables, order: HeadOrder) -> OpResult<Tensor> {
        let &[batch, heads, rows, head_size] = input.shape().dims() else { return Ok(input.clone()) };
        let shape = RotaryShape { batch, heads, rows, head_size, neighbours: true };
        let (of_parts, wide) = (input.shape(), input.dtype());
        let RotaryTables { cos, sin } = tables;
        // One tensor of complex numbers has both.
        let both = cos.window(cos.shape().with_last(2 * cos.shape().last()), 0);
        self.op("rotary", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(&both)?) } else { None };
            let product = order.view(&cx.activation(of_parts, wide, "rotated")?, of_parts);
            let pass = RotaryPass::Forward([cos.operand(), sin.operand()]);
            cx.launch(kernels::Rotary::Rotate { shape, src: input.heads(), dst: product.heads(), pass })?;
            let Some(saved) = saved else { return Ok(product) };
            let source = cx.record("rotaryBackward", [Some(input), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let grad = order.contiguous(cx, grad, of_parts)?;
                let both = saved.unpack(cx)?;
                let conjugate = cx.temporary(both.shape(), wide, "conjugate numbers")?;
                let product = order.view(&cx.temporary(of_parts, wide, "gradient times the conjugate")?, of_parts);
                let half = both.shape().with_last(both.shape().last() / 2);
                let [cos, sin] = [0, half.numel()].map(|start| both.window(half, start));
                for pass in [RotaryPass::BackwardOfSine(sin.operand()), RotaryPass::BackwardOfCosine(cos.operand())] {
                    cx.launch(kernels::Rotary::Rotate { shape, src: grad.heads(), dst: product.heads(), pass })?;
                }
                drop((conjugate, grad));
                Ok([Some(product), None, None])
            });
            Ok(product.with_source(source))
        })
    }
}

/// How the elements of rotated heads lie.
enum HeadOrder {
    /// Head by head.
    Apart,
    /// The heads of a position after each other, as a projection leaves them; and whether a gradient does so in PyTorch, if a norm
    /// lies between.
    SideBySide(Option<SideBySide>),
}

impl HeadOrder {
    /// A tensor with as many elements as (batch, heads, rows, size).
    fn view(&self, tensor: &Tensor, shape: Shape) -> Tensor {
        let &[_, heads, rows, size] = shape.dims() else { return tensor.clone() };
        let strides = match self {
            Self::Apart => return tensor.clone(),
            Self::SideBySide(_) => [rows * heads * size, size, heads * size, 1],
        };
        tensor.clone().restrided(strides)
    }

    /// The gradient of heads of this `shape` without gaps in this order, copied if it lies otherwise.
    fn contiguous(&self, cx: &Context, heads: Tensor, shape: Shape) -> OpResult<Tensor> {
        // Kernels leave gradients of heads side by side as (batch, rows, width).
        let heads = match (self, heads.shape().dims()) {
            (Self::SideBySide(_), &[_, _, _]) => self.view(&heads.reshaped(shape), shape),
            _ => heads,
        };
        let &[_, count, rows, size] = heads.shape().dims() else { return Ok(heads) };
        let [of_batch, of_head, of_row, of_element] = heads.layout();
        let [by_head, by_row] = match self {
            Self::Apart => return cx.contiguous(&heads, "contiguous gradient"),
            Self::SideBySide(_) => [size, count * size],
        };
        let fits = of_element == 1
            && (count == 1 || of_head == by_head)
            && (rows == 1 || of_row == by_row)
            && (heads.numel() == count * rows * size || of_batch == rows * by_row);
        let lies = match self {
            Self::SideBySide(Some(told)) => count == 1 || rows == 1 || told.is_told(),
            Self::SideBySide(None) | Self::Apart => true,
        };
        if fits && lies {
            return Ok(heads);
        }
        let copy = self.view(&cx.temporary(heads.shape(), heads.dtype(), "contiguous gradient")?, heads.shape());
        cx.arrange(&heads, &copy)?;
        Ok(copy)
    }
}
