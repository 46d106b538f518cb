//! Scaled dot-product attention, with the kernel that PyTorch picks on a Hopper GPU and that kernel's blocks.
//!
//! The arithmetic is one fused kernel whichever is picked; what differs is what is saved, copied and asked for.

use crate::device::{AttentionShape, DType, Kernel};
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tape::Gradients;
use crate::train::tensor::{Shape, Source, Tensor};

/// PyTorch's attention kernels, in the order in which it tries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    /// 16-bit, head sizes that are multiples of 8.
    CuDnn,
    /// 16-bit otherwise: heads are padded to a multiple of 8.
    Flash,
    /// f32, head sizes that are multiples of 4; 16-bit, large head sizes that are multiples of 8.
    Efficient,
    /// Everything else: matrix products and a softmax of rows × rows.
    Math,
}

impl Backend {
    const fn choose(dtype: DType, head_size: usize) -> Self {
        match dtype {
            DType::F16 | DType::Bf16 if head_size <= 256 => {
                if head_size.is_multiple_of(8) {
                    Self::CuDnn
                } else {
                    Self::Flash
                }
            }
            DType::F32 if head_size.is_multiple_of(4) => Self::Efficient,
            DType::F16 | DType::Bf16 if head_size.is_multiple_of(8) => Self::Efficient,
            _ => Self::Math,
        }
    }
}

impl Backend {
    /// Which of the three gradients lie head by head, so that they are copied on their way to the packed projection.
    const fn copied_gradients(self) -> [bool; 3] {
        match self {
            Self::CuDnn | Self::Efficient => [false, false, false],
            Self::Flash => [true, true, true],
            Self::Math => [true, false, true],
        }
    }
}

/// Queries, keys and values of one attention.
#[derive(Clone)]
pub(super) struct Heads {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
}

impl Heads {
    fn all(&self) -> [&Tensor; 3] {
        [&self.q, &self.k, &self.v]
    }
}

/// What the kernel computed beside the output.
struct Computed {
    out: Tensor,
    logsumexp: Tensor,
    lse_stride: usize,
}

impl Context {
    /// Self-attention of `heads` heads over `qkv` (batch, rows, 3 × width), the three parts side by side; where it is
    /// `causal`, a position sees only itself and those before. The result is (batch, heads, rows, head size), in the layout
    /// that the kernel leaves it in; see [`Context::merge_heads`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn attention(&mut self, qkv: &Tensor, heads: usize, causal: bool) -> OpResult<Tensor> {
        let [batch, rows, packed] = *qkv.shape().dims() else { return Ok(qkv.clone()) };
        let head_size = packed / 3 / heads;
        let backend = Backend::choose(qkv.dtype(), head_size);
        let parts = self.split_heads(qkv, heads, backend.copied_gradients());
        #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
        let scale = 1.0 / (head_size as f32).sqrt();
        let shape = AttentionShape { batch, heads, rows, head_size, causal, scale };
        match backend {
            Backend::CuDnn => self.cudnn_attention(&parts, shape),
            Backend::Efficient => self.efficient_attention(&parts, shape),
            Backend::Flash => self.flash_attention(&parts, shape),
            Backend::Math => self.math_attention(&parts, shape),
        }
    }

    /// Heads side by side, as `transpose(1, 2).contiguous().view(batch, rows, width)`: a view where the layout permits.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn merge_heads(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *input.shape().dims() else { return Ok(input.clone()) };
        let width = heads * head_size;
        let shape = Shape::new(&[batch, rows, width]);
        let &[by_batch, by_head, by_row, by_element] = input.strides() else { return Ok(input.clone()) };
        if [by_batch, by_head, by_row, by_element] == [rows * width, head_size, width, 1] {
            return Ok(input.reshaped(shape));
        }
        self.op("contiguous", |cx| {
            let output = cx.activation(shape, input.dtype(), "attention output")?;
            let side_by_side = [rows * width, head_size, width, 1];
            cx.copy(input, &output.strided(input.shape(), side_by_side, 0))?;
            Ok(output.with_source(input.source()))
        })
    }

    /// Views of a packed projection as (batch, heads, rows, head size); backward packs the three gradients.
    fn split_heads(&mut self, qkv: &Tensor, heads: usize, copied: [bool; 3]) -> Heads {
        let [batch, rows, packed] = *qkv.shape().dims() else {
            return Heads { q: qkv.clone(), k: qkv.clone(), v: qkv.clone() };
        };
        let width = packed / 3;
        let head_size = width / heads;
        let source = if self.differentiates(&[qkv]) {
            let (shape, dtype) = (qkv.shape(), qkv.dtype());
            self.record("splitBackward", [Some(qkv), None, None], move |cx, gradients| {
                let output = cx.temporary(shape, dtype, "packed gradient")?;
                for (part, gradient) in gradients.iter().flatten().enumerate() {
                    // Gradients lie side by side or head by head.
                    let layout = match gradient.shape().dims().len() {
                        4 => [rows * packed, head_size, packed, 1],
                        _ => [rows * packed, packed, 1, 0],
                    };
                    let destination = output.strided(gradient.shape(), layout, part * width);
                    cx.copy(gradient, &destination)?;
                }
                Ok([Some(output), None, None])
            })
        } else {
            Source::Constant
        };
        let mut part = |slot: u8| {
            let view = qkv
                .strided(
                    Shape::new(&[batch, heads, rows, head_size]),
                    [rows * packed, head_size, packed, 1],
                    usize::from(slot) * width,
                )
                .with_source(source)
                .with_slot(slot);
            if !copied[usize::from(slot)] || !self.differentiates(&[&view]) {
                return view;
            }
            let source = self.record("viewBackward", [Some(&view), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let copy = cx.temporary(Shape::new(&[batch, rows, width]), grad.dtype(), "gradient side by side")?;
                let by_heads = [rows * width, head_size, width, 1];
                match grad.shape().dims().len() {
                    4 => cx.copy(&grad, &copy.strided(grad.shape(), by_heads, 0))?,
                    _ => cx.copy(&grad, &copy)?,
                }
                Ok([Some(copy), None, None])
            });
            view.with_source(source)
        };
        Heads { q: part(0), k: part(1), v: part(2) }
    }

    /// Copies elements between layouts of one shape.
    pub(super) fn copy(&self, from: &Tensor, to: &Tensor) -> OpResult<()> {
        let pad = |tensor: &Tensor| {
            let (dims, strides) = (tensor.shape(), tensor.strides());
            let mut shape = [1; 4];
            let mut steps = [0; 4];
            let front = 4 - strides.len();
            shape[front..].copy_from_slice(dims.dims());
            steps[front..].copy_from_slice(strides);
            (shape, steps)
        };
        let ((shape, src_strides), (_, dst_strides)) = (pad(from), pad(to));
        self.launch(&Kernel::CopyStrided {
            src: from.address(),
            dst: to.address(),
            dtype: from.dtype(),
            shape,
            src_strides,
            dst_strides,
        })
    }

    /// A (batch, heads, rows, head size) view of a contiguous (batch, rows, heads × head size) tensor.
    fn by_heads(tensor: &Tensor, shape: AttentionShape, head_size: usize) -> Tensor {
        let width = shape.heads * head_size;
        tensor.strided(
            Shape::new(&[shape.batch, shape.heads, shape.rows, shape.head_size]),
            [shape.rows * width, head_size, width, 1],
            0,
        )
    }

    fn statistics_dtype(dtype: DType) -> DType {
        if dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    fn attend(&self, shape: AttentionShape, parts: &Heads, computed: &Computed) -> OpResult<()> {
        self.launch(&Kernel::Attention {
            shape,
            q: parts.q.heads(),
            k: parts.k.heads(),
            v: parts.v.heads(),
            out: computed.out.heads(),
            logsumexp: computed.logsumexp.operand(),
            lse_stride: computed.lse_stride,
        })
    }

    fn attend_backward(
        &self,
        shape: AttentionShape,
        parts: &Heads,
        computed: &Computed,
        grad: &Tensor,
        [dq, dk, dv]: [&Tensor; 3],
    ) -> OpResult<()> {
        self.launch(&Kernel::AttentionBackward {
            shape,
            q: parts.q.heads(),
            k: parts.k.heads(),
            v: parts.v.heads(),
            out: computed.out.heads(),
            logsumexp: computed.logsumexp.operand(),
            lse_stride: computed.lse_stride,
            grad: grad.heads(),
            dq: dq.heads(),
            dk: dk.heads(),
            dv: dv.heads(),
        })
    }

    fn cudnn_attention(&mut self, parts: &Heads, shape: AttentionShape) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, head_size, .. } = shape;
        let dtype = parts.q.dtype();
        self.op("attention", |cx| {
            let differentiates = cx.differentiates(&parts.all());
            let saved =
                if differentiates { Some([cx.save(&parts.q)?, cx.save(&parts.k)?, cx.save(&parts.v)?]) } else { None };
            let seed = cx.activation(Shape::new(&[]), DType::I64, "seed")?;
            let offset = cx.activation(Shape::new(&[]), DType::I64, "offset")?;
            let output = cx.activation(Shape::new(&[batch, rows, heads * head_size]), dtype, "attention output")?;
            let logsumexp = cx.activation(Shape::new(&[batch, heads, rows]), DType::F32, "logsumexp")?;
            drop(cx.scratch(256, "attention workspace")?);
            let computed = Computed { out: Self::by_heads(&output, shape, head_size), logsumexp, lse_stride: rows };
            cx.attend(shape, parts, &computed)?;
            let Some([q, k, v]) = saved else { return Ok(computed.out) };
            let results = [cx.save(&output)?, cx.save(&computed.logsumexp)?, cx.save(&seed)?, cx.save(&offset)?];
            let inputs = [Some(&parts.q), Some(&parts.k), Some(&parts.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let parts = Heads { q: q.unpack(cx)?, k: k.unpack(cx)?, v: v.unpack(cx)? };
                let [out, logsumexp, seed, offset] = &results;
                let out = Self::by_heads(&out.unpack(cx)?, shape, head_size);
                let computed = Computed { out, logsumexp: logsumexp.unpack(cx)?, lse_stride: rows };
                let _generator = (seed.unpack(cx)?, offset.unpack(cx)?);
                let gradients = cx.part_gradients(grad.shape(), dtype)?;
                let elements = batch * heads * rows;
                drop(cx.scratch(4 * elements * head_size + 4 * elements + 256, "attention workspace")?);
                let views = gradients.each_ref().map(|g| Self::by_heads(g, shape, head_size));
                let grad = Self::by_heads(&grad, shape, head_size);
                cx.attend_backward(shape, &parts, &computed, &grad, views.each_ref())?;
                Ok(gradients.map(Some))
            });
            Ok(computed.out.with_source(source))
        })
    }

    /// Gradients of queries, keys and values: three tensors apart, asked for in this order.
    fn part_gradients(&self, shape: Shape, dtype: DType) -> OpResult<[Tensor; 3]> {
        Ok([
            self.temporary(shape, dtype, "query gradient")?,
            self.temporary(shape, dtype, "key gradient")?,
            self.temporary(shape, dtype, "value gradient")?,
        ])
    }

    fn efficient_attention(&mut self, parts: &Heads, shape: AttentionShape) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, head_size, .. } = shape;
        let dtype = parts.q.dtype();
        // The kernel aligns each head's statistics.
        let lse_stride = rows.next_multiple_of(32);
        self.op("attention", |cx| {
            let differentiates = cx.differentiates(&parts.all());
            let saved =
                if differentiates { Some([cx.save(&parts.q)?, cx.save(&parts.k)?, cx.save(&parts.v)?]) } else { None };
            let output = cx.activation(Shape::new(&[batch, rows, heads * head_size]), dtype, "attention output")?;
            let logsumexp =
                cx.activation(Shape::new(&[batch, heads, lse_stride]), Self::statistics_dtype(dtype), "logsumexp")?;
            if dtype.size() < 4 {
                drop(cx.scratch(4 * output.numel(), "attention accumulator")?);
            }
            let computed = Computed { out: Self::by_heads(&output, shape, head_size), logsumexp, lse_stride };
            cx.attend(shape, parts, &computed)?;
            let Some([q, k, v]) = saved else { return Ok(computed.out) };
            let results = [cx.save(&output)?, cx.save(&computed.logsumexp)?];
            let inputs = [Some(&parts.q), Some(&parts.k), Some(&parts.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let parts = Heads { q: q.unpack(cx)?, k: k.unpack(cx)?, v: v.unpack(cx)? };
                let [out, logsumexp] = &results;
                let out = Self::by_heads(&out.unpack(cx)?, shape, head_size);
                let computed = Computed { out, logsumexp: logsumexp.unpack(cx)?, lse_stride };
                let gradients = cx.part_gradients(grad.shape(), dtype)?;
                // Row sums of gradient · output: in f32 by two ops and a copy into the layout that the kernel reads, in
                // 16 bit by the kernel.
                let per_row = Shape::new(&[batch, heads, rows]);
                let by_ops = if dtype == DType::F32 {
                    let product = cx.temporary(grad.shape(), DType::F32, "gradient times output")?;
                    Some((cx.temporary(per_row, DType::F32, "row sums")?, product))
                } else {
                    None
                };
                let delta = cx.temporary(per_row, DType::F32, "row sums by head")?;
                drop(by_ops);
                drop(cx.scratch(efficient_workspace(shape, dtype), "attention workspace")?);
                drop(delta);
                let views = gradients.each_ref().map(|g| Self::by_heads(g, shape, head_size));
                let grad = Self::by_heads(&grad, shape, head_size);
                cx.attend_backward(shape, &parts, &computed, &grad, views.each_ref())?;
                Ok(gradients.map(Some))
            });
            Ok(computed.out.with_source(source))
        })
    }

    fn flash_attention(&mut self, parts: &Heads, shape: AttentionShape) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, head_size, .. } = shape;
        let dtype = parts.q.dtype();
        let padded_size = head_size.next_multiple_of(8);
        let padded_shape = Shape::new(&[batch, rows, heads * padded_size]);
        let mut padded = Vec::with_capacity(3);
        for (part, what) in parts.all().into_iter().zip(["padded queries", "padded keys", "padded values"]) {
            padded.push(self.pad_heads(part, shape, padded_shape, what)?);
        }
        let [q, k, v] = <[Tensor; 3]>::try_from(padded).map_err(|_| crate::train::Interrupt::EarlyStop)?;
        let padded = Heads { q, k, v };
        let output = self.op("attention", |cx| {
            let differentiates = cx.differentiates(&padded.all());
            let saved = if differentiates {
                Some([cx.save(&padded.q)?, cx.save(&padded.k)?, cx.save(&padded.v)?])
            } else {
                None
            };
            let output = cx.activation(padded_shape, dtype, "padded attention output")?;
            let logsumexp = cx.activation(Shape::new(&[batch, heads, rows]), DType::F32, "logsumexp")?;
            let seed = cx.activation(Shape::new(&[2]), DType::I64, "generator state")?;
            let unused = cx.activation(Shape::new(&[]), DType::I64, "generator offset")?;
            let views = [&padded.q, &padded.k, &padded.v].map(|t| Self::by_heads(t, shape, padded_size));
            let [q, k, v] = views;
            let computed = Computed { out: Self::by_heads(&output, shape, padded_size), logsumexp, lse_stride: rows };
            cx.attend(shape, &Heads { q, k, v }, &computed)?;
            let Some([q, k, v]) = saved else { return Ok(output) };
            let results = [cx.save(&output)?, cx.save(&computed.logsumexp)?, cx.save(&seed)?, cx.save(&unused)?];
            let inputs = [Some(&padded.q), Some(&padded.k), Some(&padded.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let parts = [q.unpack(cx)?, k.unpack(cx)?, v.unpack(cx)?];
                let [q, k, v] = parts.each_ref().map(|t| Self::by_heads(t, shape, padded_size));
                let [out, logsumexp, seed, unused] = &results;
                let out = Self::by_heads(&out.unpack(cx)?, shape, padded_size);
                let computed = Computed { out, logsumexp: logsumexp.unpack(cx)?, lse_stride: rows };
                let _generator = (seed.unpack(cx)?, unused.unpack(cx)?);
                let copies = (
                    cx.temporary(padded_shape, dtype, "gradient copy")?,
                    cx.temporary(padded_shape, dtype, "output copy")?,
                );
                let gradients = cx.part_gradients(padded_shape, dtype)?;
                let padded_rows = batch * heads * rows.next_multiple_of(128);
                let sums = cx.scratch(4 * padded_rows, "row sums")?;
                let partial = cx.scratch(flash_accumulator(padded_rows, padded_size), "query gradient partials")?;
                drop((partial, sums, copies));
                let views = gradients.each_ref().map(|g| Self::by_heads(g, shape, padded_size));
                let grad = Self::by_heads(&grad, shape, padded_size);
                cx.attend_backward(shape, &Heads { q, k, v }, &computed, &grad, views.each_ref())?;
                Ok(gradients.map(Some))
            });
            Ok(output.with_source(source))
        })?;
        Ok(self.unpad_heads(&output, shape, padded_size))
    }

    /// A copy whose heads have room for a multiple of 8 elements; backward copies the used ones out again.
    fn pad_heads(
        &mut self,
        part: &Tensor,
        shape: AttentionShape,
        padded_shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        let padded_size = padded_shape.last() / shape.heads;
        self.op("pad", |cx| {
            let output = cx.activation(padded_shape, part.dtype(), what)?;
            cx.copy(part, &Self::by_heads(&output, shape, padded_size))?;
            if !cx.differentiates(&[part]) {
                return Ok(output);
            }
            let source = cx.record("padBackward", [Some(part), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let width = shape.heads * shape.head_size;
                let output =
                    cx.temporary(Shape::new(&[shape.batch, shape.rows, width]), grad.dtype(), "part gradient")?;
                cx.copy(&Self::by_heads(&grad, shape, padded_size), &Self::by_heads(&output, shape, shape.head_size))?;
                Ok([Some(output), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The used elements of padded heads: a view; backward gives the padding a gradient of zero.
    fn unpad_heads(&mut self, padded: &Tensor, shape: AttentionShape, padded_size: usize) -> Tensor {
        let view = Self::by_heads(padded, shape, padded_size);
        if !self.differentiates(&[padded]) {
            return view;
        }
        let padded_shape = padded.shape();
        let source = self.record("sliceBackward", [Some(padded), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let output = cx.temporary(padded_shape, grad.dtype(), "padded gradient")?;
            cx.launch(&Kernel::Fill { dst: output.operand(), value: 0.0 })?;
            cx.copy(&Self::by_heads(&grad, shape, shape.head_size), &Self::by_heads(&output, shape, padded_size))?;
            Ok([Some(output), None, None])
        });
        view.with_source(source)
    }
}

/// Bytes that PyTorch's memory-efficient kernel accumulates gradients in: a lock, a counter and a tile of f32 for every
/// 64 columns of a head and every 64 queries, or 128 where heads or elements are too large for registers. In 16 bit
/// the gradients of one block of keys and values are accumulated in f32 as well.
const fn efficient_workspace(shape: AttentionShape, dtype: DType) -> usize {
    const COLUMNS: usize = 64;
    const KEYS: usize = 64;
    let small = shape.head_size <= 64 && dtype.size() >= 4;
    let queries = if small { 64 } else { 128 };
    let tile = 16 + 4 * queries * COLUMNS;
    let of_queries = shape.rows.div_ceil(queries) * shape.head_size.div_ceil(COLUMNS) * tile;
    let of_keys = if dtype.size() >= 4 { 0 } else { 2 * 4 * KEYS * shape.head_size.next_multiple_of(128) };
    shape.batch * shape.heads * (of_queries + of_keys)
}

/// Bytes that the flash kernel accumulates query gradients in: rows and columns are rounded up.
const fn flash_accumulator(padded_rows: usize, padded_size: usize) -> usize {
    let columns = if padded_size <= 192 { padded_size.next_multiple_of(32) } else { 256 };
    4 * padded_rows * columns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from histories of PyTorch 2.11 on an H200: 2 sequences, 3 heads.
    #[test]
    fn workspaces_are_what_pytorch_asked_for() {
        let shape = |rows, head_size| AttentionShape { batch: 2, heads: 3, rows, head_size, causal: true, scale: 1.0 };
        for (rows, head_size, bytes) in [
            (130, 64, 295_200),
            (64, 64, 98_400),
            (130, 68, 786_816),
            (64, 128, 393_408),
            (130, 160, 1_180_224),
            (64, 256, 786_816),
            (130, 320, 1_967_040),
        ] {
            assert_eq!(efficient_workspace(shape(rows, head_size), DType::F32), bytes, "{rows} × {head_size}");
        }
        assert_eq!(efficient_workspace(shape(40, 264), DType::F16), 2_163_168);
        assert_eq!(flash_accumulator(2 * 3 * 128, 16), 98_304);
    }
}
