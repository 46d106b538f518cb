//! The transformer of Stanford's CS336 (`BasicsTransformerLM`): its modules and its forward pass with the course's own variables,
//! which keep their tensors alive as long.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, BatchSource, Checkpointing, Context, Layouts, Model, OpResult, Repeatable, Shape, Task, Tensor, TrainError,
    Workload, checkpoint,
};

use super::bounds::{Extent, Repeats};
use super::data::Data;
use super::error::CatalogError;
use super::hash::{self, Cycle};
use super::parameters::{Parameters, Spread};
use super::sizes::{Size, Sizes};
use super::text::TextWindows;

const EPS: f64 = 1e-5;
const THETA: f32 = 10_000.0;

/// Sizes of the course's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cs336Sizes {
    /// Size of the vocabulary.
    pub vocab: Extent,
    /// Positions that it has tables for.
    pub context: Extent,
    /// Positions of a training sample, at most `context`.
    pub seq: Extent,
    /// `d_model`.
    pub width: Extent,
    /// `d_ff`.
    pub hidden: Extent,
    /// Blocks.
    pub layers: Repeats,
    /// Attention heads; they divide the width.
    pub heads: Extent,
}

impl Cs336Sizes {
    /// The sizes of the workload `name`; its MLP has `hidden` channels, or four times the width.
    pub(super) fn of(name: &str, sizes: Sizes, hidden: Option<Extent>) -> Result<Self, CatalogError> {
        let known = [Size::Layers, Size::Width, Size::Heads, Size::Seq, Size::Context, Size::Vocab];
        let checked = sizes.only(name, &known)?;
        let (seq, width) = (checked.need(Size::Seq)?, checked.need(Size::Width)?);
        Ok(Self {
            vocab: checked.need(Size::Vocab)?,
            context: sizes.context.unwrap_or(seq),
            seq,
            width,
            hidden: hidden.unwrap_or_else(|| Extent::nearest(width.get().saturating_mul(4))),
            layers: checked.layers()?,
            heads: checked.need(Size::Heads)?,
        })
    }

    const fn head_size(self) -> usize {
        self.width.get() / self.heads.get()
    }
}

/// The workload of the course's model: it learns each next token.
#[derive(Clone, Debug)]
pub struct Cs336 {
    name: String,
    sizes: Cs336Sizes,
    data: Data,
    seed: u64,
}

impl Cs336 {
    /// The course's model, trained on `data`; `seed` decides everything random in it.
    ///
    /// # Errors
    /// [`TrainError::Workload`]: a size with which there is no model, or data that it can't learn from.
    pub fn new(name: &str, sizes: Cs336Sizes, data: Data, seed: u64) -> Result<Self, TrainError> {
        let refused = |text: String| Err(TrainError::Workload(text));
        let Cs336Sizes { vocab, context, seq, width, heads, .. } = sizes;
        if !width.get().is_multiple_of(heads.get()) {
            return refused(format!("{heads} heads do not divide a width of {width}; choose a number that does"));
        }
        if !sizes.head_size().is_multiple_of(2) {
            let size = sizes.head_size();
            return refused(format!("heads of {size} elements are no pairs to rotate; choose an even number"));
        }
        if seq.get() > context.get() {
            return refused(format!("a sample of {seq} positions needs a context of as many; give --context {seq}"));
        }
        match data {
            Data::Text(_) if vocab.get() < 256 => refused(format!(
                "text has 256 different bytes and the vocabulary is {vocab}; use --vocab 256 or --data synthetic"
            )),
            Data::Lengths(_) => refused(format!("{name} has sequences of one length; leave --lengths out")),
            _ => Ok(Self { name: name.into(), sizes, data, seed }),
        }
    }
}

impl Workload for Cs336 {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let mut all = Parameters::in_place(Spread::Transformer, DType::F32);
        let model = LanguageModel::make(cx, &mut all, self.sizes)?;
        all.initialise(cx)?;
        Ok(Task::Supervised(Rc::new(model)))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _step: u64) -> OpResult<Batch> {
        hash::moved_tokens(cx, batch, samples, self.sizes.seq.get(), self.sizes.vocab.get())
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        self.data.token_layouts(samples, self.sizes.seq.get())
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(match &self.data {
            Data::Text(text) => Box::new(TextWindows::new(text.clone(), self.sizes.seq.get(), self.seed)?),
            _ => Box::new(Cycle::tokens(self.sizes.vocab.get())),
        })
    }

    fn items_per_sample(&self) -> usize {
        self.sizes.seq.get()
    }
}

/// A product with a matrix, without a bias.
struct CourseLinear {
    scope: NameId,
    weight: Tensor,
}

impl CourseLinear {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, [inputs, outputs]: [usize; 2]) -> OpResult<Self> {
        let weight = all.weight(cx, &format!("{name}.weight"), &[outputs, inputs])?;
        Ok(Self { scope: cx.memory().name(name), weight })
    }

    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.einsum_linear(input, &self.weight);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }
}

/// RMSNorm.
struct CourseNorm {
    scope: NameId,
    weight: Tensor,
}

impl CourseNorm {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, width: usize) -> OpResult<Self> {
        let weight = all.weight(cx, &format!("{name}.weight"), &[width])?;
        Ok(Self { scope: cx.memory().name(name), weight })
    }

    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.rms_norm_by_hand(input, &self.weight, EPS);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }
}

/// Cosines and sines by position, one buffer of the model for all of its blocks: (2, positions, head size / 2).
#[derive(Clone)]
struct CosineTable {
    both: Tensor,
    context: usize,
    half: usize,
}

impl CosineTable {
    fn make(cx: &mut Context, context: usize, head_size: usize) -> OpResult<Self> {
        let half = head_size / 2;
        let shape = Shape::new(&[2, context, half]);
        let both = cx.buffer("positional_encoder._freq_cis_cache", shape, DType::F32, 0.0)?;
        #[expect(clippy::cast_precision_loss, reason = "positions and elements of a head are small")]
        cx.memory().fill(&both, |first, bytes| {
            for (i, element) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                let (row, pair) = ((first + i) / half, (first + i) % half);
                let frequency = THETA.powf(-((2 * pair) as f32 / head_size as f32));
                let angle = (row % context) as f32 * frequency;
                *element = if row < context { angle.cos() } else { angle.sin() }.to_le_bytes();
            }
        })?;
        Ok(Self { both, context, half })
    }

    /// Cosines and sines of the first `rows` positions.
    fn of(&self, rows: usize) -> [Tensor; 2] {
        let shape = Shape::new(&[rows, self.half]);
        [0, self.context * self.half].map(|start| self.both.window(shape, start))
    }
}

struct CourseAttention {
    scope: NameId,
    projections: [CourseLinear; 3],
    output: CourseLinear,
    tables: CosineTable,
    head_size: usize,
}

impl CourseAttention {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let [q, k, v] = &self.projections;
        let made = [q.forward(cx, input)?, k.forward(cx, input)?, v.forward(cx, input)?];
        let [q, k, v] = made.map(|made| cx.by_head_size(&made, self.head_size));
        let output = {
            let [cos, sin] = self.tables.of(input.shape().dims().get(1).copied().unwrap_or(1));
            let rotated =
                |cx: &mut Context, heads: Tensor| cx.within(self.scope, |cx| cx.rotary_by_hand(&heads, [&cos, &sin]));
            let (q, k) = (rotated(cx, q)?, rotated(cx, k)?);
            let attended = cx.within(self.scope, |cx| cx.attention_by_hand([&q, &k, &v]))?;
            self.output.forward(cx, &attended.merged)?
        };
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}

struct SwiGlu {
    scope: NameId,
    w1: CourseLinear,
    w2: CourseLinear,
    w3: CourseLinear,
}

impl SwiGlu {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // The argument of a function lives until it has returned.
        let product = {
            let activated = {
                let gate = self.w1.forward(cx, input)?;
                cx.within(self.scope, |cx| cx.silu_by_hand(&gate))?
            };
            let up = self.w3.forward(cx, input)?;
            cx.within(self.scope, |cx| cx.mul(&activated, &up))?
        };
        let output = self.w2.forward(cx, &product)?;
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}

struct Block {
    scope: NameId,
    attention: CourseAttention,
    mlp: SwiGlu,
    ln1: CourseNorm,
    ln2: CourseNorm,
}

impl Block {
    fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        sizes: Cs336Sizes,
        tables: &CosineTable,
    ) -> OpResult<Self> {
        let (width, hidden) = (sizes.width.get(), sizes.hidden.get());
        let mut linear = |part: &str, ends: [usize; 2]| CourseLinear::make(cx, all, &format!("{name}.{part}"), ends);
        let projections = [
            linear("attn.q_proj", [width, width])?,
            linear("attn.k_proj", [width, width])?,
            linear("attn.v_proj", [width, width])?,
        ];
        let output = linear("attn.output_proj", [width, width])?;
        let w1 = linear("ffn.w1", [width, hidden])?;
        let w2 = linear("ffn.w2", [hidden, width])?;
        let w3 = linear("ffn.w3", [width, hidden])?;
        let ln1 = CourseNorm::make(cx, all, &format!("{name}.ln1"), width)?;
        let ln2 = CourseNorm::make(cx, all, &format!("{name}.ln2"), width)?;
        let part = |part: &str| cx.memory().name(&format!("{name}.{part}"));
        let (scope, head_size, tables) = (part("attn"), sizes.head_size(), tables.clone());
        let attention = CourseAttention { scope, projections, output, tables, head_size };
        let mlp = SwiGlu { scope: part("ffn"), w1, w2, w3 };
        Ok(Self { scope: cx.memory().name(name), attention, mlp, ln1, ln2 })
    }
}

impl Repeatable for Block {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        // Both parts' outputs, and their first sum, are variables of the block's forward.
        let attended = {
            let normalised = self.ln1.forward(cx, x)?;
            self.attention.forward(cx, &normalised)?
        };
        let sum = cx.within(self.scope, |cx| cx.add(x, &attended))?;
        let made = {
            let normalised = self.ln2.forward(cx, &sum)?;
            self.mlp.forward(cx, &normalised)?
        };
        let output = cx.within(self.scope, |cx| cx.add(&sum, &made))?;
        drop((attended, sum, made));
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}

struct LanguageModel {
    embedding: (NameId, Tensor),
    layers: Vec<Rc<Block>>,
    /// The number of each layer among the units that can be wrapped.
    units: Vec<usize>,
    norm: CourseNorm,
    head: CourseLinear,
}

impl LanguageModel {
    fn make(cx: &mut Context, all: &mut Parameters, sizes: Cs336Sizes) -> OpResult<Self> {
        let (vocab, width) = (sizes.vocab.get(), sizes.width.get());
        // No program shows what sharded gradients of transposed views request.
        cx.need_whole_weights("CS336's model");
        let table = all.weight(cx, "token_embeddings.weight", &[vocab, width])?;
        let embedding = (cx.memory().name("token_embeddings"), table);
        let tables = CosineTable::make(cx, sizes.context.get(), sizes.head_size())?;
        let name = |layer: usize| format!("layers.{layer}");
        let layers: Vec<_> = (0..sizes.layers.get())
            .map(|layer| Block::make(cx, all, &name(layer), sizes, &tables).map(Rc::new))
            .collect::<OpResult<_>>()?;
        let norm = CourseNorm::make(cx, all, "ln_final", width)?;
        let head = CourseLinear::make(cx, all, "lm_head", [width, vocab])?;
        let units = (0..layers.len()).map(|layer| cx.unit(all.of_module(cx, &name(layer)))).collect();
        Ok(Self { embedding, layers, units, norm, head })
    }
}

impl Model for LanguageModel {
    fn forward(&self, cx: &mut Context, tokens: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        cx.run_as_written();
        let (scope, table) = &self.embedding;
        let embedded = cx.module(*scope, |cx| cx.with_parameters([table], |cx| cx.indexed_rows(table, tokens)))?;
        let mut x = embedded.clone();
        for (number, (layer, unit)) in self.layers.iter().zip(&self.units).enumerate() {
            x = cx.unit_forward(*unit, &x, |cx, x| {
                if checkpointing.of(number) {
                    let layer: Rc<dyn Repeatable> = Rc::clone(layer) as _;
                    checkpoint(cx, &layer, x)
                } else {
                    layer.forward(cx, x)
                }
            })?;
        }
        x = self.norm.forward(cx, &x)?;
        let logits = self.head.forward(cx, &x)?;
        // The embedded tokens are a variable of the model's forward.
        drop((embedded, x));
        cx.put_out(NameId::NONE, &logits);
        Ok(logits)
    }

    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: Checkpointing) -> OpResult<(Tensor, Tensor)> {
        let logits = self.forward(cx, &batch.input, checkpointing)?;
        let [logits, scores] = cx.leave_model(logits)?;
        let loss = cx.cross_entropy_by_hand(&scores, &batch.target)?;
        Ok((logits, loss))
    }
}
