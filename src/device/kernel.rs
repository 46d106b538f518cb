//! The kernels that ops launch, as data: a device maps each to loops, to a library call or to a cost.

use super::dropout::DropoutMask;
use super::operand::{DType, HeadView, MatrixView, Operand};
use super::rotary::{RotaryPass, RotaryShape};
use super::shape::{ChannelShape, ConvShape, PoolShape};
use vramlab_allocator::units::Address;

/// The largest magnitudes of the runs of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitudes {
    /// In f32.
    Plain(Operand),
    /// In 8 bits: `codes[bytes[i]] · absmax[i / 256] + offset`.
    Nested {
        /// A byte for each run.
        bytes: Operand,
        /// 256 values in f32.
        codes: Operand,
        /// The largest magnitude of each 256 of them, in f32.
        absmax: Operand,
        /// One element, in f32.
        offset: Operand,
    },
}

impl Magnitudes {
    /// Every operand of it.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let all = match self {
            Self::Plain(absmax) => [Some(absmax), None, None, None],
            Self::Nested { bytes, codes, absmax, offset } => [Some(bytes), Some(codes), Some(absmax), Some(offset)],
        };
        all.into_iter().flatten()
    }
}

/// Hyper-parameters of one Adam or AdamW update, with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParameters {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Decay the weight itself (AdamW) instead of adding to the gradient (Adam).
    pub decoupled: bool,
    /// Updates so far, this one included.
    pub step: u64,
}

/// Whose fused attention kernel PyTorch would launch. They compute the same; only a simulated card's times tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedAttention {
    /// cuDNN's.
    CuDnn,
    /// Flash attention's.
    Flash,
    /// The memory-efficient one.
    Efficient,
}

/// The shape of one attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of queries that share one of keys and values; 1 where each has its own.
    pub group: usize,
    /// Positions.
    pub rows: usize,
    /// Elements of one head.
    pub head_size: usize,
    /// Position i sees only positions up to i.
    pub causal: bool,
    /// Of those, it sees so many, itself included, where attention has a window; only causal attention has one.
    pub window: Option<usize>,
    /// PyTorch's kernel reads a mask of numbers for it, and so skips no position.
    pub masked: bool,
    /// Factor on q·k, usually 1/√head_size.
    pub scale: f32,
    /// Weights of (batch, heads, rows, positions) that are left out.
    pub dropout: Option<DropoutMask>,
}

impl AttentionShape {
    /// That of keys and values, which have fewer heads where queries share them.
    #[must_use]
    pub const fn of_keys(self) -> Self {
        // No group is as one of one head.
        let group = if self.group == 0 { 1 } else { self.group };
        Self { heads: self.heads / group, group: 1, ..self }
    }

    /// The first position that position `row` sees.
    #[must_use]
    pub const fn first_seen(self, row: usize) -> usize {
        match self.window {
            Some(window) if self.causal => (row + 1).saturating_sub(window),
            _ => 0,
        }
    }
}

/// One parameter of a multi-tensor optimizer kernel. All operands have the parameter's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParameterUpdate {
    /// The weights, f32.
    pub parameter: Operand,
    /// Their gradient, f32.
    pub gradient: Operand,
    /// Momentum buffer or first moment.
    pub first: Option<Operand>,
    /// Second moment.
    pub second: Option<Operand>,
}

/// A moment of an optimizer in 8 bits ([`Kernel::QuantizeBytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMoment {
    /// As many as elements of the parameter (u8).
    pub bytes: Operand,
    /// What they stand for: 256, ascending (f32).
    pub codes: Operand,
    /// The largest magnitude of each run of [`BYTES_RUN`](super::BYTES_RUN) (f32).
    pub absmax: Operand,
}

impl ByteMoment {
    /// All that it is made of.
    #[must_use]
    pub const fn operands(&self) -> [&Operand; 3] {
        [&self.bytes, &self.codes, &self.absmax]
    }
}

/// What bitsandbytes keeps of a parameter's two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMoments {
    /// In 8 bits.
    Bytes([ByteMoment; 2]),
    /// In f32, of small parameters.
    Wide([Operand; 2]),
}

impl KeptMoments {
    /// All that they are made of.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (bytes, wide) = match self {
            Self::Bytes(moments) => (Some(moments), None),
            Self::Wide(moments) => (None, Some(moments)),
        };
        bytes.into_iter().flatten().flat_map(ByteMoment::operands).chain(wide.into_iter().flatten())
    }
}

/// How often PyTorch's form of an optimizer goes through memory; the result is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePasses {
    /// One elementary operation after the other.
    #[default]
    Several,
    /// One kernel.
    One,
}

/// What a gradient scaler hands to a fused optimizer kernel. Where `found_inf` is not zero nothing is changed; else the
/// gradients are divided by `scale` first, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradScaling {
    /// What the gradients are multiples of: one element.
    pub scale: Operand,
    /// One element: not zero where a gradient is not finite.
    pub found_inf: Operand,
}

/// What the backward pass of a sum needs beside the gradient of its positive part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualGradient {
    /// The result of the forward pass: its sign tells which elements passed.
    pub output: Operand,
    /// Becomes the gradient of the sum, and so of what was added; may be that of the output.
    pub dresidual: Operand,
}

/// Which elements of a matrix have a scale together, by its rows as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleGroups {
    /// All of them.
    All,
    /// Those of a row.
    Rows,
    /// Those of a column.
    Columns,
}

impl ScaleGroups {
    /// How many groups `len` elements in rows of `cols` make.
    #[must_use]
    pub fn count(self, len: usize, cols: usize) -> usize {
        match self {
            Self::All => 1,
            Self::Rows => len.checked_div(cols).unwrap_or(0),
            Self::Columns => cols,
        }
    }
}

/// A unit of device work. 16-bit operands are read and written as such; arithmetic is in f32 (f64 where any
/// float operand is f64).
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Kernel<'a> {
    /// Every element of `dst` becomes `value`.
    Fill { dst: Operand, value: f64 },
    /// `dst[i] = i`.
    Arange { dst: Operand },
    /// Rows of `cols` zeros but for `dst[r,r] = 1`.
    Identity { dst: Operand, cols: usize },
    /// `dst[i] = src[i]` in dst's type; lengths equal.
    Cast { src: Operand, dst: Operand },
    /// Copies a four-dimensional array between layouts, and from one of f32, f16 and bf16 to another; of every type to the
    /// same. Strides in elements.
    CastStrided {
        src: Address,
        src_dtype: DType,
        dst: Address,
        dst_dtype: DType,
        shape: [usize; 4],
        src_strides: [usize; 4],
        dst_strides: [usize; 4],
    },
    /// [`Kernel::CastStrided`] within one type: nothing is rounded or computed.
    CopyStrided {
        src: Address,
        dst: Address,
        dtype: DType,
        shape: [usize; 4],
        src_strides: [usize; 4],
        dst_strides: [usize; 4],
    },
    /// `c[m,n] = alpha · a[m,k] b[k,n] (+ bias[n]) (+ c)` for each matrix of the batch.
    Gemm {
        m: usize,
        n: usize,
        k: usize,
        batch: usize,
        a: MatrixView,
        b: MatrixView,
        c: MatrixView,
        bias: Option<Operand>,
        alpha: f32,
        accumulate: bool,
    },
    /// The largest magnitude of each of the `groups` that elements in rows of `cols` make, in src's type; NaN where one is. `copied`: the
    /// elements don't lie in the order of their matrix, so that PyTorch puts the magnitudes in order first.
    AbsMax { src: Operand, dst: Operand, cols: usize, groups: ScaleGroups, copied: bool },
    /// `dst[i] = most / max(amax[i], 10⁻¹²)`, through f64: the scale under which a largest magnitude becomes `most`; rounded down to a power
    /// of two where that is asked for, through f32 as PyTorch does it.
    Float8Scale { amax: Operand, dst: Operand, most: f64, power: bool },
    /// `dst[i] = src[i] · scale` in an 8-bit float, kept within its largest values: the scale, f32, of its group of the elements in rows
    /// of `cols`.
    QuantizeFloat8 { src: Operand, scale: Operand, dst: Operand, cols: usize, groups: ScaleGroups },
    /// `c[m,n] = a[m,k] b[k,n] · inverse[0] · inverse[1]`, where a and b are 8-bit floats. Each factor is one element, f32, or one for
    /// each row of a and for each column of b: powers of two then, which round nothing. `fast`: sums may be kept with fewer bits
    /// (`use_fast_accum`).
    ScaledGemm {
        m: usize,
        n: usize,
        k: usize,
        a: MatrixView,
        b: MatrixView,
        c: MatrixView,
        inverse: [Operand; 2],
        fast: bool,
    },
    /// `dst[c] = Σ_r src[r,c]`.
    ColumnSum { src: Operand, dst: Operand, rows: usize, cols: usize },
    /// `dst[i] = a[i] + b[i % b.len]`; dst may be a.
    Add { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] − b[i % b.len]`; dst may be a.
    Sub { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] · b[i % b.len]`; dst may be a.
    Mul { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] / b[i % b.len]`; dst may be a.
    Div { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = factor · src[i]`; dst may be src.
    Scale { src: Operand, dst: Operand, factor: f64 },
    /// `dst[i]` is 0 where the mask leaves it out, else `src[i]` times the mask's factor.
    Dropout { src: Operand, dst: Operand, mask: DropoutMask },
    /// `dst[i] = max(src[i], 0)`; dst may be src.
    Relu { src: Operand, dst: Operand },
    /// `dst[i] = output[i] > 0 ? grad[i] : 0`.
    ReluBackward { output: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = src[i] / (1 + exp(−src[i]))`; dst may be src.
    Silu { src: Operand, dst: Operand },
    /// `dst = grad · silu'(src)`; dst may be grad.
    SiluBackward { src: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = 1 / √src[i]`; dst may be src.
    Rsqrt { src: Operand, dst: Operand },
    /// `dst[i] = a[i] · b[i / cols]`: every row of `cols` elements times a factor of its own; dst may be a.
    MulRows { a: Operand, b: Operand, dst: Operand, cols: usize },
    /// `dst[i] = silu(gate[i]) · up[i]`: two of PyTorch's ops.
    GatedSilu { gate: Operand, up: Operand, dst: Operand },
    /// Gradients of [`Kernel::GatedSilu`].
    GatedSiluBackward { grad: Operand, gate: Operand, up: Operand, dgate: Operand, dup: Operand },
    /// GELU, exact (erf) or its tanh form.
    Gelu { src: Operand, dst: Operand, tanh: bool },
    /// `dst = grad · gelu'(src)`.
    GeluBackward { src: Operand, grad: Operand, dst: Operand, tanh: bool },
    /// [`Kernel::GeluBackward`] of rows of `cols`, and `sums[c] = Σ_r dst[r,c]`; dst may be grad.
    GeluBackwardSum { src: Operand, grad: Operand, dst: Operand, sums: Operand, cols: usize, tanh: bool },
    /// `dst = weight · src · rstd` with `rstd = 1/√(mean(src²) + eps)` of each row of `cols`, kept in f32: what models of transformers
    /// write as seven ops.
    RmsNorm { src: Operand, weight: Operand, dst: Operand, rstd: Operand, cols: usize, eps: f32 },
    /// Gradients of [`Kernel::RmsNorm`] with respect to its source and weight; dsrc may be grad.
    RmsNormBackward {
        grad: Operand,
        src: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        cols: usize,
    },
    /// `dst[r] = √(Σ_c src[r,c]²)` of rows of `cols`.
    RowNorm { src: Operand, dst: Operand, cols: usize },
    /// Normalises each row of `cols` elements; `mean` and `rstd` are f32, one per row. A weight and a bias without elements are ones and
    /// zeros.
    LayerNorm {
        src: Operand,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        cols: usize,
        eps: f32,
    },
    /// Gradients of [`Kernel::LayerNorm`] with respect to its source, weight and bias; the latter two are not made where they have no
    /// elements.
    LayerNormBackward {
        grad: Operand,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        cols: usize,
    },
    /// [`Kernel::LayerNorm`] of `src`, or of the sum of `src` and `add` that it writes to `sum` in src's type: eager's add,
    /// norm and cast in one. What is normalised goes to `dst` and, where given, once more to `copy` in another type.
    AddLayerNorm {
        src: Operand,
        add: Option<(Operand, Operand)>,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        copy: Option<Operand>,
        mean: Operand,
        rstd: Operand,
        cols: usize,
        eps: f32,
    },
    /// Gradients of [`Kernel::AddLayerNorm`] with respect to what was normalised (`src`: the source or the sum), weight
    /// and bias. The gradient of the result is `grad`, plus `second` where given; `residual` is added to dsrc and may be
    /// it; `copy` gets dsrc in another type.
    AddLayerNormBackward {
        grad: Operand,
        second: Option<Operand>,
        residual: Option<Operand>,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        copy: Option<Operand>,
        dweight: Operand,
        dbias: Operand,
        cols: usize,
    },
    /// `dst[i, :] = weight[indices[i], :]`.
    Embedding { weight: Operand, indices: Operand, dst: Operand, width: usize },
    /// `dst` (rows × width) becomes the sum of `grad` rows by index; rows without index become zero.
    EmbeddingBackward { grad: Operand, indices: Operand, dst: Operand, width: usize },
    /// The `k` largest of each row of `cols`, largest first and of equal ones the first, and where they stand in it.
    TopK { src: Operand, values: Operand, indices: Operand, cols: usize, k: usize },
    /// Rows of `cols` zeros but for `dst[r, indices[r, i]] = grad[r, i]`, `k` of each row.
    TopKBackward { grad: Operand, indices: Operand, dst: Operand, cols: usize, k: usize },
    /// Sorts positions by the group (below `count`) that `groups` says of each, and within one by themselves: `order` lists
    /// them, `sorted` their groups, `rows[i] = order[i] / each`.
    GroupRows { groups: Operand, sorted: Operand, order: Operand, rows: Operand, count: usize, each: usize },
    /// Where each group ends when positions are sorted by them: `ends[g]` (i32) is how many are of group g or one before.
    GroupEnds { groups: Operand, ends: Operand },
    /// `dst[order[i]] = i`.
    Invert { order: Operand, dst: Operand },
    /// Products of runs of rows with matrices of their own: `dst[r, :] = a[r, :] b[g]` for the rows r of group g, which ends
    /// before `ends[g]`; `a` has rows of `k`, each matrix is k × n.
    GroupedGemm { n: usize, k: usize, a: Operand, b: MatrixView, dst: Operand, ends: Operand },
    /// `dst[g] = Σ_r a[r, :]ᵀ b[r, :]` over the rows r of group g: m × n each, zeros where it has none.
    GroupedGemmOuter { m: usize, n: usize, a: Operand, b: Operand, dst: Operand, ends: Operand },
    /// Scaled dot-product attention. `logsumexp` is f32 of (batch, heads, `lse_stride`), rows beyond
    /// [`AttentionShape::rows`] unused.
    Attention {
        by: FusedAttention,
        shape: AttentionShape,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
        logsumexp: Operand,
        lse_stride: usize,
    },
    /// The same where no gradients will be asked for, of [`AttentionShape::rows`] queries over `keys` positions of keys
    /// and values; causal only where there are as many of both.
    AttentionInference {
        by: FusedAttention,
        shape: AttentionShape,
        keys: usize,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
    },
    /// Gradients of [`Kernel::Attention`]. Those of keys and values (`dk`, `dv`) are of every head of queries, also where heads share
    /// them: who needs their sum makes it.
    AttentionBackward {
        by: FusedAttention,
        shape: AttentionShape,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
        logsumexp: Operand,
        lse_stride: usize,
        grad: HeadView,
        dq: HeadView,
        dk: HeadView,
        dv: HeadView,
    },
    /// The tables of a rotary embedding, (rows, copies × frequencies) each: `cos[r, i] = scaling · cos(r · f[i mod n])`, and `sin` alike,
    /// where `f` are the n `frequencies` (f32).
    RotaryTables { frequencies: Operand, cos: Operand, sin: Operand, scaling: f64, copies: usize },
    /// Rotates queries or keys by their positions, the first half of a head paired with the second, or each even element with the one
    /// behind it: `dst[i] = src[i] · cos[p] + turned[i] · sin[p]` with `turned` being the second of each pair, negated, in the place of
    /// the first, and the first in that of the second; `p` is the number of the pair, and in the tables half of them further on for its second.
    Rotary { shape: RotaryShape, src: HeadView, dst: HeadView, pass: RotaryPass },
    /// Two elements a byte of `dst` (u8), the first in its high half: the place in [`NF4`](super::NF4) of what is nearest to each of
    /// `src` over the largest magnitude of its run of [`NF4_RUN`](super::NF4_RUN), which `absmax` (f32) becomes.
    QuantizeNf4 { src: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = NF4[half i of src] · absmax[i / NF4_RUN]`.
    DequantizeNf4 { src: Operand, absmax: Operand, dst: Operand },
    /// Each byte of `dst` is the place in `codes` (256, ascending) of what is nearest to each of `src` over the largest magnitude of
    /// its run of [`BYTES_RUN`](super::BYTES_RUN), which `absmax` (f32) becomes.
    QuantizeBytes { src: Operand, codes: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = codes[src[i]] · absmax[i / BYTES_RUN]`.
    DequantizeBytes { src: Operand, codes: Operand, absmax: Operand, dst: Operand },
    /// `dst[m,n] = a[m,k] w[n,k]ᵀ (+ bias[n])`, where `w` is packed as [`Kernel::QuantizeNf4`] leaves it; rows of whole runs.
    GemmNf4 {
        m: usize,
        n: usize,
        k: usize,
        a: Operand,
        w: Operand,
        magnitudes: Magnitudes,
        bias: Option<Operand>,
        dst: Operand,
    },
    /// Row-wise softmax of (rows × cols).
    Softmax { src: Operand, dst: Operand, cols: usize },
    /// `dst = output · (grad − Σ_row grad·output)`.
    SoftmaxBackward { output: Operand, grad: Operand, dst: Operand, cols: usize },
    /// Row-wise log-softmax of (rows × cols).
    LogSoftmax { src: Operand, dst: Operand, cols: usize },
    /// `dst = grad − exp(output) · Σ_row grad`.
    LogSoftmaxBackward { output: Operand, grad: Operand, dst: Operand, cols: usize },
    /// Mean negative log-likelihood of `targets` (i64) under `logp` (rows × cols): `loss` and `total_weight`
    /// are one element each.
    NllLoss { logp: Operand, targets: Operand, loss: Operand, total_weight: Operand, cols: usize },
    /// `dst[r, targets[r]] = −grad / total_weight`, everything else 0.
    NllLossBackward { grad: Operand, targets: Operand, total_weight: Operand, dst: Operand, cols: usize },
    /// Mean cross-entropy of rows of `cols` logits, `stride` elements from one to the next, against `targets` (i64; -100
    /// does not count). `loss` and `total_weight` (rows that count) are one f32 element each, `logsumexp` (f32) one per
    /// row. What lies between the rows is not read.
    CrossEntropy {
        logits: Operand,
        targets: Operand,
        loss: Operand,
        total_weight: Operand,
        logsumexp: Operand,
        cols: usize,
        stride: usize,
    },
    /// Gradient of [`Kernel::CrossEntropy`] with respect to its logits, in their place:
    /// `(exp(logits − logsumexp) − [column = target]) · grad / total_weight`, and zero between the rows; `grad` is one f32
    /// element.
    CrossEntropyBackward {
        grad: Operand,
        logits: Operand,
        targets: Operand,
        total_weight: Operand,
        logsumexp: Operand,
        cols: usize,
        stride: usize,
    },
    /// `dst[i] = src[i] + value`; dst may be src.
    AddScalar { src: Operand, dst: Operand, value: f64 },
    /// `dst[i] = src[i] > 0 ? src[i] : slope · src[i]`; dst may be src.
    LeakyRelu { src: Operand, dst: Operand, slope: f32 },
    /// `dst[i] = output[i] > 0 ? grad[i] : slope · grad[i]`, for slopes ≥ 0; dst may be grad.
    LeakyReluBackward { output: Operand, grad: Operand, dst: Operand, slope: f32 },
    /// `dst = min(src, most)`; what is no number stays.
    AtMost { src: Operand, dst: Operand, most: f32 },
    /// `dst = grad` where `src` is at most `most`, 0 elsewhere.
    AtMostBackward { src: Operand, grad: Operand, dst: Operand, most: f32 },
    /// `dst[i] = 1 / (1 + exp(−src[i]))`; dst may be src.
    Sigmoid { src: Operand, dst: Operand },
    /// `dst[i] = grad[i] · output[i] · (1 − output[i])`; dst may be grad.
    SigmoidBackward { output: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = tanh(src[i])`; dst may be src.
    Tanh { src: Operand, dst: Operand },
    /// `dst[i] = grad[i] · (1 − output[i]²)`; dst may be grad.
    TanhBackward { output: Operand, grad: Operand, dst: Operand },
    /// `dst[n,o,y,x] = bias[o] + Σ_{i,u,v} weight[o,i,u,v] · src[n, i, y·stride + u − padding, x·stride + v − padding]`,
    /// with zeros around the source. `src` is (batch, in, height, width), `weight` (out, in, kernel, kernel), `bias`
    /// (out), `dst` (batch, out, height, width). [`ConvShape`] tells how transposed convolutions are made of it.
    Conv2d { shape: ConvShape, src: Operand, weight: Operand, bias: Option<Operand>, dst: Operand },
    /// Gradient of [`Kernel::Conv2d`] with respect to its source: `grad` has the output's shape, `dst` the source's.
    Conv2dBackwardInput { shape: ConvShape, grad: Operand, weight: Operand, dst: Operand },
    /// Gradient of [`Kernel::Conv2d`] with respect to its weight: `grad` has the output's shape, `dst` the weight's.
    Conv2dBackwardWeight { shape: ConvShape, grad: Operand, src: Operand, dst: Operand },
    /// `dst[c] = Σ_{n,i} src[n,c,i]`: the gradient of a convolution's bias.
    ChannelSum { src: Operand, dst: Operand, shape: ChannelShape },
    /// Normalises each channel over images and area, `dst = (src − mean) · rstd · weight + bias` with
    /// `rstd = 1/√(variance + eps)` and the variance of the population, as in training. `mean` and `rstd` (f32, one
    /// per channel) are kept for the backward pass. The running statistics move by `momentum` towards the mean and
    /// the variance of the sample (divided by one less). All but `src` and `dst` have one element per channel.
    BatchNorm {
        src: Operand,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        running_mean: Operand,
        running_var: Operand,
        shape: ChannelShape,
        eps: f32,
        momentum: f32,
    },
    /// [`Kernel::BatchNorm`] and what follows it in one pass: the sum with `residual`, where there is one, then
    /// `x > 0 ? x : slope · x`; a slope of 1 leaves everything as it is.
    BatchNormActivation {
        src: Operand,
        residual: Option<Operand>,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        running_mean: Operand,
        running_var: Operand,
        shape: ChannelShape,
        eps: f32,
        momentum: f32,
        slope: f32,
    },
    /// Gradients of [`Kernel::BatchNormActivation`] with respect to its source, weight and bias, and to what was added.
    /// Without a residual the sign of the output is made again from the source, and `dsrc` may be `grad`.
    BatchNormActivationBackward {
        grad: Operand,
        src: Operand,
        residual: Option<ResidualGradient>,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        bias: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
        slope: f32,
    },
    /// Normalises each channel by its running statistics, as when evaluating.
    BatchNormInference {
        src: Operand,
        weight: Operand,
        bias: Operand,
        running_mean: Operand,
        running_var: Operand,
        dst: Operand,
        shape: ChannelShape,
        eps: f32,
    },
    /// Gradients of [`Kernel::BatchNorm`] with respect to its source, weight and bias.
    BatchNormBackward {
        grad: Operand,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
    },
    /// Gradients of [`Kernel::BatchNormInference`] with respect to its source, weight and bias.
    BatchNormInferenceBackward {
        grad: Operand,
        src: Operand,
        weight: Operand,
        running_mean: Operand,
        running_var: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
        eps: f32,
    },
    /// The largest element of each window and its place in the plane (i64, row · in_width + column; the first of equal
    /// ones, NaN above all).
    MaxPool { src: Operand, dst: Operand, indices: Operand, shape: PoolShape },
    /// Gradient of [`Kernel::MaxPool`]: `dst` (planes × input area) is the sum of `grad` at the places in `indices`.
    MaxPoolBackward { grad: Operand, indices: Operand, dst: Operand, shape: PoolShape },
    /// `dst[o,i] = Σ_m src[o,m,i] / middle`.
    Mean { src: Operand, dst: Operand, outer: usize, middle: usize, inner: usize },
    /// Gradient of [`Kernel::Mean`]: `dst[o,m,i] = grad[o,i] / middle`.
    MeanBackward { grad: Operand, dst: Operand, outer: usize, middle: usize, inner: usize },
    /// Mean over all elements of `−t·ln σ(x) − (1 − t)·ln(1 − σ(x))` for `x` of `logits` and `t` of `targets`, in a
    /// form that does not overflow; `loss` is one element.
    BceWithLogits { logits: Operand, targets: Operand, loss: Operand },
    /// Gradient of [`Kernel::BceWithLogits`] with respect to its logits: `dst = grad · (σ(logits) − targets) / len`;
    /// `grad` is one element.
    BceWithLogitsBackward { grad: Operand, logits: Operand, targets: Operand, dst: Operand },
    /// SGD, with momentum where `first` is given: `buf = momentum·buf + g` (or `buf = g` on the first update),
    /// `p −= lr·buf`.
    Sgd {
        updates: &'a [ParameterUpdate],
        lr: f64,
        momentum: f64,
        weight_decay: f64,
        first_step: bool,
        scaling: Option<GradScaling>,
        passes: UpdatePasses,
    },
    /// Adam and AdamW.
    Adam {
        updates: &'a [ParameterUpdate],
        parameters: AdamParameters,
        scaling: Option<GradScaling>,
        passes: UpdatePasses,
    },
    /// AdamW of one parameter as bitsandbytes has it: weights decay behind their update, rounded to their type in between. The byte
    /// that is nearest to a first moment keeps its sign.
    AdamOfBytes { parameter: Operand, gradient: Operand, moments: KeptMoments, rule: AdamParameters },
    /// Multiplies every gradient by `inverse_scale` and sets `found_inf` to 1 where one is not finite.
    Unscale { gradients: &'a [Operand], inverse_scale: Operand, found_inf: Operand },
    /// Sums of squares of runs of [`NORM_RUN`] elements: `sums` (f32) has a row for each tensor, all as long as the longest needs;
    /// what a shorter one has no run for stays.
    SquareSums { tensors: &'a [Operand], sums: Operand },
    /// `factor = min(1, most / (norm + 10⁻⁶))`, one element, where `norm` is that of the norms of `rows` tensors, whose squares are
    /// summed in `sums`. Every number on the way is rounded to the type of the factor, as `clip_grad_norm_` does.
    ClipFactor { sums: Operand, rows: usize, factor: Operand, most: f64 },
    /// `dst[i] = 1 / src[i]`, through f64 as GradScaler does.
    Reciprocal { src: Operand, dst: Operand },
    /// GradScaler's update of scale (f32) and growth tracker (i32).
    UpdateScale { scale: Operand, tracker: Operand, found_inf: Operand, growth: f64, backoff: f64, interval: i32 },
}

/// Elements whose squares are summed together for a norm, as PyTorch's kernels for lists of tensors do.
pub const NORM_RUN: usize = 65_536;

impl Kernel<'_> {
    /// The kernel's name in errors and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fill { .. } => "fill",
            Self::Arange { .. } => "arange",
            Self::Identity { .. } => "identity",
            Self::Cast { .. } => "cast",
            Self::CastStrided { .. } => "cast_strided",
            Self::CopyStrided { .. } => "copy_strided",
            Self::Gemm { .. } => "gemm",
            Self::AbsMax { .. } => "abs_max",
            Self::Float8Scale { .. } => "float8_scale",
            Self::QuantizeFloat8 { .. } => "quantize_float8",
            Self::ScaledGemm { .. } => "scaled_gemm",
            Self::ColumnSum { .. } => "column_sum",
            Self::Add { .. } => "add",
            Self::Sub { .. } => "sub",
            Self::Mul { .. } => "mul",
            Self::Div { .. } => "div",
            Self::Scale { .. } => "scale",
            Self::Dropout { .. } => "dropout",
            Self::Relu { .. } => "relu",
            Self::ReluBackward { .. } => "relu_backward",
            Self::Silu { .. } => "silu",
            Self::SiluBackward { .. } => "silu_backward",
            Self::Rsqrt { .. } => "rsqrt",
            Self::MulRows { .. } => "mul_rows",
            Self::GatedSilu { .. } => "gated_silu",
            Self::GatedSiluBackward { .. } => "gated_silu_backward",
            Self::Gelu { .. } => "gelu",
            Self::GeluBackward { .. } => "gelu_backward",
            Self::GeluBackwardSum { .. } => "gelu_backward_sum",
            Self::RmsNorm { .. } => "rms_norm",
            Self::RmsNormBackward { .. } => "rms_norm_backward",
            Self::RowNorm { .. } => "row_norm",
            Self::LayerNorm { .. } => "layer_norm",
            Self::LayerNormBackward { .. } => "layer_norm_backward",
            Self::AddLayerNorm { .. } => "add_layer_norm",
            Self::AddLayerNormBackward { .. } => "add_layer_norm_backward",
            Self::Embedding { .. } => "embedding",
            Self::EmbeddingBackward { .. } => "embedding_backward",
            Self::TopK { .. } => "top_k",
            Self::TopKBackward { .. } => "top_k_backward",
            Self::GroupRows { .. } => "group_rows",
            Self::GroupEnds { .. } => "group_ends",
            Self::Invert { .. } => "invert",
            Self::GroupedGemm { .. } => "grouped_gemm",
            Self::GroupedGemmOuter { .. } => "grouped_gemm_outer",
            Self::Attention { .. } => "attention",
            Self::AttentionInference { .. } => "attention_inference",
            Self::AttentionBackward { .. } => "attention_backward",
            Self::RotaryTables { .. } => "rotary_tables",
            Self::Rotary { .. } => "rotary",
            Self::QuantizeNf4 { .. } => "quantize_nf4",
            Self::DequantizeNf4 { .. } => "dequantize_nf4",
            Self::QuantizeBytes { .. } => "quantize_bytes",
            Self::DequantizeBytes { .. } => "dequantize_bytes",
            Self::GemmNf4 { .. } => "gemm_nf4",
            Self::Softmax { .. } => "softmax",
            Self::SoftmaxBackward { .. } => "softmax_backward",
            Self::LogSoftmax { .. } => "log_softmax",
            Self::LogSoftmaxBackward { .. } => "log_softmax_backward",
            Self::NllLoss { .. } => "nll_loss",
            Self::NllLossBackward { .. } => "nll_loss_backward",
            Self::CrossEntropy { .. } => "cross_entropy",
            Self::CrossEntropyBackward { .. } => "cross_entropy_backward",
            Self::AddScalar { .. } => "add_scalar",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::LeakyReluBackward { .. } => "leaky_relu_backward",
            Self::AtMost { .. } => "at_most",
            Self::AtMostBackward { .. } => "at_most_backward",
            Self::Tanh { .. } => "tanh",
            Self::TanhBackward { .. } => "tanh_backward",
            Self::Sigmoid { .. } => "sigmoid",
            Self::SigmoidBackward { .. } => "sigmoid_backward",
            Self::Conv2d { .. } => "conv2d",
            Self::Conv2dBackwardInput { .. } => "conv2d_backward_input",
            Self::Conv2dBackwardWeight { .. } => "conv2d_backward_weight",
            Self::ChannelSum { .. } => "channel_sum",
            Self::BatchNorm { .. } => "batch_norm",
            Self::BatchNormActivation { .. } => "batch_norm_activation",
            Self::BatchNormActivationBackward { .. } => "batch_norm_activation_backward",
            Self::BatchNormInference { .. } => "batch_norm_inference",
            Self::BatchNormBackward { .. } => "batch_norm_backward",
            Self::BatchNormInferenceBackward { .. } => "batch_norm_inference_backward",
            Self::MaxPool { .. } => "max_pool",
            Self::MaxPoolBackward { .. } => "max_pool_backward",
            Self::Mean { .. } => "mean",
            Self::MeanBackward { .. } => "mean_backward",
            Self::BceWithLogits { .. } => "bce_with_logits",
            Self::BceWithLogitsBackward { .. } => "bce_with_logits_backward",
            Self::Sgd { .. } => "sgd",
            Self::Adam { .. } => "adam",
            Self::AdamOfBytes { .. } => "adam_of_bytes",
            Self::Unscale { .. } => "unscale",
            Self::SquareSums { .. } => "square_sums",
            Self::ClipFactor { .. } => "clip_factor",
            Self::Reciprocal { .. } => "reciprocal",
            Self::UpdateScale { .. } => "update_scale",
        }
    }
}
