//! Attention and its gradients, as the graphs that the library recognises as fused attention.

use std::fmt;

use cudarc::cudnn::sys::{
    cudnnDataType_t as Type, cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};

use super::binding::TensorBinding;
use super::graph::{Graph, Tensor, TensorLayout, TensorLocation, data_type};
use super::handle::{DnnHandle, Version, refused};
use super::plan::{ExecutionPlan, LARGEST_WORKSPACE, Rules};
use crate::cuda::refusal::Refusal;
use crate::{AttentionShape, DType, Earlier, HeadView};
use vramlab_allocator::units::Address;

/// The oldest library version that masks with minus infinity and has no known faults in the forward pass.
const OLDEST: Version = Version::new(9, 11);
/// Up to this library version, the backward pass requires whole tiles of keys.
const LAST_OF_WHOLE_TILES: Version = Version::new(9, 15);
const TILE: usize = 128;
/// From this compute capability on, the graph below does not tell engines to repeat shared heads.
const FIRST_OF_BLACKWELL: u32 = 100;
/// The least number of positions. Without training, the number must also be a multiple of this: it may grow with each
/// generated token, and making a plan for each would take longer than this crate's own kernels.
const POSITIONS: usize = 64;
const WIDEST: usize = 128;
/// Rows must start at multiples of this many elements.
const ALIGNMENT: usize = 8;

/// One attention call, with its kernel's views.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionCall<'a> {
    pub shape: &'a AttentionShape,
    /// Number of positions of keys and values.
    pub keys: usize,
    /// Queries, keys, values and output; for gradients also the output's gradient and those of the first three.
    pub views: &'a [HeadView],
    /// The logarithms of the sums of exponents, and their number per head.
    pub sums: Option<(Address, usize)>,
}

impl<'a> AttentionCall<'a> {
    /// The forward pass and its tensors; `None` if the library should not compute it.
    pub(super) fn forward(&self) -> Option<(AttentionKey, Vec<TensorBinding<'a>>)> {
        let &[q, k, v, out] = self.views else { return None };
        let key = AttentionKey::of(self)?;
        let at = |view: HeadView| TensorBinding::Device(view.address);
        let mut tensors = vec![at(q), at(k), at(v), TensorBinding::Host(&self.shape.scale)];
        tensors.extend(key.causal.then_some(TensorBinding::Host(&f32::NEG_INFINITY)));
        tensors.push(at(out));
        tensors.extend(self.sums.map(|(address, _)| TensorBinding::Device(address)));
        Some((key, tensors))
    }

    /// The backward pass and its tensors, on a device of this compute capability.
    pub(super) fn backward(&self, capability: u32) -> Option<(AttentionKey, Vec<TensorBinding<'a>>)> {
        let &[q, k, v, out, grad, dq, dk, dv] = self.views else { return None };
        let (key, (sums, _)) = (AttentionKey::of(self)?, self.sums?);
        if capability >= FIRST_OF_BLACKWELL {
            return None;
        }
        let at = |view: HeadView| TensorBinding::Device(view.address);
        let mut tensors = vec![at(q), at(k), at(v), at(out), at(grad), TensorBinding::Device(sums)];
        tensors.extend([TensorBinding::Host(&self.shape.scale), TensorBinding::Host(&1.0)]);
        tensors.extend(key.causal.then_some(TensorBinding::Host(&f32::NEG_INFINITY)));
        tensors.push(TensorBinding::Scratch(key.batch * key.heads * key.rows * size_of::<f32>()));
        tensors.extend([at(dq), at(dk), at(dv)]);
        Some((key, tensors))
    }
}

/// Everything on which the choice of an engine depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttentionKey {
    batch: usize,
    heads: usize,
    /// Query heads for each key head.
    group: usize,
    rows: usize,
    head_size: usize,
    causal: bool,
    keeps_sums: bool,
    dtype: DType,
    backward: bool,
    /// The strides of batch, head and row of each view.
    strides: [[u32; 3]; 8],
}

impl fmt::Display for AttentionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, heads, group, rows, head_size, causal, dtype, .. } = self;
        let pass = if self.backward { "backward" } else { "forward" };
        let causal = if *causal { "causal " } else { "" };
        let shared = if *group > 1 { format!(", {group} heads a key,") } else { String::new() };
        write!(f, "{causal}attention, {pass}, of {batch}×{heads}×{rows}×{head_size}{shared} in {dtype:?}")
    }
}

impl AttentionKey {
    /// `None` if the library should not compute it.
    fn of(attention: &AttentionCall<'_>) -> Option<Self> {
        let &AttentionCall { shape, keys, views, sums } = attention;
        let &AttentionShape { batch, heads, group, rows, head_size, causal, .. } = shape;
        let dtype = views.first()?.dtype;
        let known =
            matches!(dtype, DType::F16 | DType::Bf16) && shape.earlier == Earlier::All && shape.dropout.is_none();
        let sized = keys == rows
            && rows >= POSITIONS
            && (sums.is_some() || rows.is_multiple_of(POSITIONS))
            && head_size.is_multiple_of(ALIGNMENT)
            && head_size <= WIDEST
            && shape.value_size == head_size
            && heads.is_multiple_of(group.max(1))
            && batch * heads * group * rows * head_size > 0;
        let aligned = views.iter().all(|view| {
            let strides = [view.batch_stride, view.head_stride, view.row_stride];
            view.dtype == dtype
                && view.address.0.is_multiple_of(ALIGNMENT as u64 * dtype.size())
                && strides.iter().all(|stride| stride.is_multiple_of(ALIGNMENT))
        });
        let packed = sums.is_none_or(|(address, stride)| stride == rows && address.0.is_multiple_of(16));
        let mut strides = [[0; 3]; 8];
        for (strides, view) in strides.iter_mut().zip(views) {
            for (to, from) in strides.iter_mut().zip([view.batch_stride, view.head_stride, view.row_stride]) {
                *to = u32::try_from(from).ok()?;
            }
        }
        (known && sized && aligned && packed).then_some(Self {
            batch,
            heads,
            group,
            rows,
            head_size,
            causal,
            keeps_sums: sums.is_some(),
            dtype,
            backward: views.len() > 4,
            strides,
        })
    }

    /// True if this version of the library computes it correctly.
    fn is_sound(&self, version: Version) -> bool {
        let tiles = !self.backward || version > LAST_OF_WHOLE_TILES || self.rows.is_multiple_of(TILE);
        version >= OLDEST && tiles
    }

    /// The layout of one view (batch, heads, rows, head size). Keys and values (the second and third view) may have
    /// fewer heads, which a product repeats for the queries that share them.
    fn layout(&self, view: usize) -> TensorLayout {
        let [batch, head, row] = self.strides[view].map(i64::from);
        let heads = if matches!(view, 1 | 2) { self.heads / self.group } else { self.heads };
        TensorLayout {
            strides: [batch, head, row, 1],
            ..TensorLayout::packed([self.batch, heads, self.rows, self.head_size])
        }
    }

    /// The layout of scores, query by key.
    fn scores(&self) -> TensorLayout {
        TensorLayout::packed([self.batch, self.heads, self.rows, self.rows])
    }

    /// The layout of one number for each query.
    fn per_row(&self) -> TensorLayout {
        TensorLayout::packed([self.batch, self.heads, self.rows, 1])
    }

    /// Sets up an engine for it.
    pub fn plan(&self, handle: &DnnHandle) -> Result<ExecutionPlan, Refusal> {
        if !self.is_sound(handle.version()) {
            return Err(refused(format!("wrongly in version {}, and was not asked", handle.version())));
        }
        let graph = if self.backward { self.backward()? } else { self.forward()? };
        let rules = Rules { tensor_cores: true, rough_sums: true, workspace: LARGEST_WORKSPACE };
        ExecutionPlan::choose(handle, graph.finish(handle)?, rules)
    }

    /// The forward graph. Tensors: queries, keys, values, the scores' factor, the mask's value if there is a mask, the
    /// output, and the sums if they are kept.
    fn forward(&self) -> Result<Graph, Refusal> {
        let mut draft = Draft::new(self)?;
        let q = draft.view(self.layout(0))?;
        let k = draft.view(self.layout(1).transposed())?;
        let v = draft.view(self.layout(2))?;
        let scale = draft.number()?;
        let mask = self.causal.then(|| draft.number()).transpose()?;
        let out = draft.view(self.layout(3))?;
        let sums = self.keeps_sums.then(|| draft.numbers(self.per_row())).transpose()?;

        let (scores, per_row) = (self.scores(), self.per_row());
        let products = draft.matmul(q, k, scores)?;
        let mut scaled = draft.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[products, scale], scores)?;
        if let Some(mask) = mask {
            scaled = draft.mask(scaled, mask, scores)?;
        }
        let largest = draft.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, scaled, per_row)?;
        let shifted = draft.pointwise(Pointwise::CUDNN_POINTWISE_SUB, &[scaled, largest], scores)?;
        let exponents = draft.pointwise(Pointwise::CUDNN_POINTWISE_EXP, &[shifted], scores)?;
        let sum = draft.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, exponents, per_row)?;
        if let Some(sums) = sums {
            let logarithm = draft.pointwise(Pointwise::CUDNN_POINTWISE_LOG, &[sum], per_row)?;
            draft.graph.pointwise(Pointwise::CUDNN_POINTWISE_ADD, &[largest, logarithm], sums)?;
        }
        let weights = draft.between(scores, draft.dtype)?;
        draft.graph.pointwise(Pointwise::CUDNN_POINTWISE_DIV, &[exponents, sum], weights)?;
        draft.graph.matmul(weights, v, out)?;
        Ok(draft.graph)
    }

    /// The backward graph. Tensors: queries, keys, values, output, the output's gradient, the sums, the scores' factor,
    /// one, the mask's value if there is a mask, a scratch number for each query, and the gradients of queries, keys
    /// and values. The queries' gradient is a separate product, not a sum to which blocks of keys add in any order. It
    /// takes a workspace for all scores.
    fn backward(&self) -> Result<Graph, Refusal> {
        let mut draft = Draft::new(self)?;
        let q = draft.view(self.layout(0))?;
        let k = draft.view(self.layout(1).transposed())?;
        let v = draft.view(self.layout(2).transposed())?;
        let out = draft.view(self.layout(3))?;
        let grad = draft.view(self.layout(4))?;
        let sums = draft.numbers(self.per_row())?;
        let scale = draft.number()?;
        let one = draft.number()?;
        let mask = self.causal.then(|| draft.number()).transpose()?;
        let delta = draft.numbers(self.per_row())?;
        let dq = draft.view(self.layout(5))?;
        let dk = draft.view(self.layout(6))?;
        let dv = draft.view(self.layout(7))?;

        let (scores, per_row) = (self.scores(), self.per_row());
        let heads = TensorLayout::packed([self.batch, self.heads, self.rows, self.head_size]);
        let products = draft.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[grad, out], heads)?;
        let dots = draft.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, products, per_row)?;
        draft.graph.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[dots, one], delta)?;

        let products = draft.matmul(q, k, scores)?;
        let scaled = draft.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[products, scale], scores)?;
        let mut shifted = draft.pointwise(Pointwise::CUDNN_POINTWISE_SUB, &[scaled, sums], scores)?;
        if let Some(mask) = mask {
            shifted = draft.mask(shifted, mask, scores)?;
        }
        let weights = draft.pointwise(Pointwise::CUDNN_POINTWISE_EXP, &[shifted], scores)?;
        let by_key = draft.reshape(weights, self.by_key(), draft.dtype)?;
        draft.graph.matmul(by_key, grad, dv)?;

        let dweights = draft.matmul(grad, v, scores)?;
        let centred = draft.pointwise(Pointwise::CUDNN_POINTWISE_SUB, &[dweights, delta], scores)?;
        let dscaled = draft.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[centred, weights], scores)?;
        let dscores = draft.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[dscaled, scale], scores)?;
        let by_key = draft.reshape(dscores, self.by_key(), draft.dtype)?;
        draft.graph.matmul(by_key, q, dk)?;

        let by_row = draft.reshape(k, self.layout(1), Type::CUDNN_DATA_FLOAT)?;
        draft.graph.matmul(dscores, by_row, dq)?;
        Ok(draft.graph)
    }

    /// The transposed view of the scores, key by query.
    fn by_key(&self) -> TensorLayout {
        self.scores().transposed()
    }
}

/// A graph under construction, with the types of one attention: its operands' type, and f32 for everything between
/// operations.
struct Draft {
    graph: Graph,
    dtype: Type,
}

impl Draft {
    fn new(key: &AttentionKey) -> Result<Self, Refusal> {
        let dtype = data_type(key.dtype).ok_or_else(|| refused(format!("no type {:?}", key.dtype)))?;
        Ok(Self { graph: Graph::default(), dtype })
    }

    /// Adds an operand.
    fn view(&mut self, layout: TensorLayout) -> Result<Tensor, Refusal> {
        self.graph.tensor(layout, self.dtype, TensorLocation::Device(16))
    }

    /// Adds an f32 tensor in device memory.
    fn numbers(&mut self, layout: TensorLayout) -> Result<Tensor, Refusal> {
        self.graph.tensor(layout, Type::CUDNN_DATA_FLOAT, TensorLocation::Device(16))
    }

    /// Adds one f32 on the host.
    fn number(&mut self) -> Result<Tensor, Refusal> {
        self.graph.tensor(TensorLayout::SCALAR, Type::CUDNN_DATA_FLOAT, TensorLocation::Host)
    }

    fn between(&mut self, layout: TensorLayout, dtype: Type) -> Result<Tensor, Refusal> {
        self.graph.tensor(layout, dtype, TensorLocation::Between)
    }

    fn matmul(&mut self, a: Tensor, b: Tensor, layout: TensorLayout) -> Result<Tensor, Refusal> {
        let c = self.between(layout, Type::CUDNN_DATA_FLOAT)?;
        self.graph.matmul(a, b, c)?;
        Ok(c)
    }

    fn pointwise(&mut self, mode: Pointwise, inputs: &[Tensor], layout: TensorLayout) -> Result<Tensor, Refusal> {
        let y = self.between(layout, Type::CUDNN_DATA_FLOAT)?;
        self.graph.pointwise(mode, inputs, y)?;
        Ok(y)
    }

    fn reduce(&mut self, mode: Reduction, x: Tensor, layout: TensorLayout) -> Result<Tensor, Refusal> {
        let y = self.between(layout, Type::CUDNN_DATA_FLOAT)?;
        self.graph.reduce(mode, x, y)?;
        Ok(y)
    }

    fn reshape(&mut self, x: Tensor, layout: TensorLayout, dtype: Type) -> Result<Tensor, Refusal> {
        let y = self.between(layout, dtype)?;
        self.graph.reshape(x, y)?;
        Ok(y)
    }

    /// The `scores` of queries with keys up to their own position, and `masked` elsewhere.
    fn mask(&mut self, scores: Tensor, masked: Tensor, layout: TensorLayout) -> Result<Tensor, Refusal> {
        let row = self.between(layout, Type::CUDNN_DATA_INT32)?;
        self.graph.index(2, scores, row)?;
        let column = self.between(layout, Type::CUDNN_DATA_INT32)?;
        self.graph.index(3, scores, column)?;
        let visible = self.between(layout, Type::CUDNN_DATA_BOOLEAN)?;
        self.graph.pointwise(Pointwise::CUDNN_POINTWISE_CMP_GE, &[row, column], visible)?;
        self.pointwise(Pointwise::CUDNN_POINTWISE_BINARY_SELECT, &[scores, masked, visible], layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: AttentionShape = AttentionShape {
        batch: 2,
        heads: 3,
        group: 1,
        rows: 192,
        head_size: 64,
        value_size: 64,
        causal: true,
        earlier: Earlier::All,
        masked: false,
        scale: 0.125,
        dropout: None,
    };

    /// A view into packed queries, keys and values.
    fn view(part: u64) -> HeadView {
        HeadView {
            address: Address(512 + part * 3 * 64 * 2),
            dtype: DType::Bf16,
            batch_stride: 192 * 9 * 64,
            head_stride: 64,
            row_stride: 9 * 64,
        }
    }

    fn key(shape: &AttentionShape, views: &[HeadView], lse_stride: usize) -> Option<AttentionKey> {
        AttentionKey::of(&AttentionCall { shape, keys: shape.rows, views, sums: Some((Address(512), lse_stride)) })
    }

    #[test]
    fn packed_projections_are_taken_as_they_lie() {
        let views = [0, 1, 2, 0].map(view);
        let layouts = key(&SHAPE, &views, 192).map(|key| (key.layout(0), key.layout(1).transposed()));
        let strides = layouts.map(|(q, k)| (q.sides, q.strides, k.sides, k.strides));
        let [batch, row] = [192 * 9 * 64, 9 * 64];
        let expected = ([2, 3, 192, 64], [batch, 64, row, 1], [2, 3, 64, 192], [batch, 64, 1, row]);
        assert_eq!(strides, Some(expected));
    }

    #[test]
    fn what_the_library_computes_wrongly_or_slowly_is_left_to_own_kernels() {
        let views = [0, 1, 2, 0].map(view);
        assert_eq!(key(&SHAPE, &views, 224), None, "sums with gaps");
        assert_eq!(key(&AttentionShape { rows: 33, ..SHAPE }, &views, 33), None, "few positions");
        let grown = AttentionShape { rows: 197, ..SHAPE };
        assert!(key(&grown, &views, 197).is_some(), "any number of positions in training");
        let inference = AttentionCall { shape: &grown, keys: 197, views: &views, sums: None };
        assert_eq!(AttentionKey::of(&inference), None, "lengths that may grow");
        assert_eq!(key(&AttentionShape { head_size: 60, ..SHAPE }, &views, 192), None, "unaligned heads");
        let shifted = views.map(|view| HeadView { address: Address(view.address.0 + 2), ..view });
        assert_eq!(key(&SHAPE, &shifted, 192), None, "unaligned addresses");
        let single = views.map(|view| HeadView { dtype: DType::F32, ..view });
        assert_eq!(key(&SHAPE, &single, 192), None, "f32");
    }

    #[test]
    fn old_libraries_go_backward_over_whole_tiles_of_keys_only() {
        let views = [0, 1, 2, 0, 0, 0, 1, 2].map(view);
        let sound = |rows, version| {
            let shape = AttentionShape { rows, ..SHAPE };
            key(&shape, &views, rows).is_some_and(|key| key.backward && key.is_sound(version))
        };
        let [oldest, old, new] = [9, 14, 19].map(|minor| Version::new(9, minor));
        assert!(!sound(192, old) && sound(192, new) && sound(256, old) && !sound(256, oldest));
    }
}
