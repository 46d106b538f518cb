//! GPT-2: learned positions, pre-norm blocks, a head tied to the token embedding.

use std::rc::Rc;

use crate::device::{DType, Kernel};
use crate::model::{Category, NameId};
use crate::train::{
    Batch, BatchLayout, BatchSource, Context, Model, OpResult, Segment, Shape, Task, Tensor, TrainError, Workload,
    checkpoint,
};

use super::catalog::Data;
use super::hash::{self, Cycle, Init, Parameters};
use super::text::Windows;
use super::writing;

/// Sizes of a GPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GptSizes {
    /// Tokens that it knows.
    pub vocab: usize,
    /// Positions that it has embeddings for.
    pub context: usize,
    /// Positions of a training sample, at most `context`.
    pub seq: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Attention heads; they divide the width.
    pub heads: usize,
}

/// The GPT workload.
#[derive(Clone, Debug)]
pub struct Gpt {
    name: String,
    sizes: GptSizes,
    data: Data,
    seed: u64,
    writes_every: Option<u64>,
}

const EPS: f32 = 1e-5;

impl Gpt {
    /// A workload of these sizes.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for sizes of which no model can be made.
    pub fn new(name: &str, sizes: GptSizes) -> Result<Self, TrainError> {
        let refused = |text: String| Err(TrainError::Workload(text));
        if [sizes.vocab, sizes.context, sizes.seq, sizes.width, sizes.heads].contains(&0) {
            return refused("a size of 0 makes no model; give sizes of at least 1".into());
        }
        if !sizes.width.is_multiple_of(sizes.heads) {
            return refused(format!(
                "{} heads do not divide a width of {}; choose a width that is a multiple of the heads",
                sizes.heads, sizes.width
            ));
        }
        if sizes.seq > sizes.context {
            return refused(format!(
                "sequences of {} are longer than the model's context of {}; choose a shorter sequence",
                sizes.seq, sizes.context
            ));
        }
        Ok(Self { name: name.into(), sizes, data: Data::Reference, seed: 0, writes_every: None })
    }

    /// Trains on `data`; `seed` decides what is random in it.
    #[must_use]
    pub fn with_data(mut self, data: Data, seed: u64) -> Self {
        (self.data, self.seed) = (data, seed);
        self
    }

    /// Writes a piece of text after every so many steps, where it trains on text.
    #[must_use]
    pub fn writing_every(mut self, steps: Option<u64>) -> Self {
        self.writes_every = steps;
        self
    }

    /// Its sizes.
    #[must_use]
    pub const fn sizes(&self) -> GptSizes {
        self.sizes
    }
}

/// Scope, weight and bias of a linear layer or a norm.
struct Affine {
    scope: NameId,
    weight: Tensor,
    bias: Tensor,
}

fn bound() -> f64 {
    0.02 * 3.0_f64.sqrt()
}

impl Affine {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, shape: &[usize]) -> OpResult<Self> {
        let init = if shape.len() == 1 { Init::One } else { Init::Uniform(bound()) };
        Ok(Self {
            scope: cx.memory().name(name),
            weight: all.make(cx, &format!("{name}.weight"), shape, init)?,
            bias: all.make(cx, &format!("{name}.bias"), &shape[..1], Init::Zero)?,
        })
    }

    fn linear(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.linear(input, &self.weight, Some(&self.bias)))
    }

    fn norm(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.layer_norm(input, &self.weight, &self.bias, EPS))
    }
}

/// A pre-norm transformer block.
struct Block {
    scope: NameId,
    ln1: Affine,
    ln2: Affine,
    qkv: Affine,
    proj: Affine,
    fc: Affine,
    out: Affine,
    heads: usize,
}

impl Block {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &GptSizes) -> OpResult<Self> {
        let d = sizes.width;
        Ok(Self {
            scope: cx.memory().name(name),
            ln1: Affine::make(cx, all, &format!("{name}.ln1"), &[d])?,
            ln2: Affine::make(cx, all, &format!("{name}.ln2"), &[d])?,
            qkv: Affine::make(cx, all, &format!("{name}.qkv"), &[3 * d, d])?,
            proj: Affine::make(cx, all, &format!("{name}.proj"), &[d, d])?,
            fc: Affine::make(cx, all, &format!("{name}.fc"), &[4 * d, d])?,
            out: Affine::make(cx, all, &format!("{name}.out"), &[d, 4 * d])?,
            heads: sizes.heads,
        })
    }

    fn attention(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        // Queries, keys and values are views held by local variables: the packed projection lives to the end.
        let qkv = self.qkv.linear(cx, x)?;
        let y = cx.within(self.scope, |cx| cx.attention(&qkv, self.heads, true))?;
        let merged = cx.within(self.scope, |cx| cx.merge_heads(&y))?;
        self.proj.linear(cx, &merged)
    }

    fn mlp(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let hidden = self.fc.linear(cx, x)?;
        let activated = cx.within(self.scope, |cx| cx.gelu(&hidden, true))?;
        // The argument of gelu is nobody's variable; that of the next layer lives until the layer has returned.
        drop(hidden);
        self.out.linear(cx, &activated)
    }

    /// `x + sublayer(norm(x))`. The norm's output is an argument: it lives until the sublayer has returned, and the
    /// sublayer's output until the sum is there.
    fn residual(
        &self,
        cx: &mut Context,
        x: &Tensor,
        norm: &Affine,
        sublayer: impl Fn(&Self, &mut Context, &Tensor) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let output = {
            let normalised = norm.norm(cx, x)?;
            sublayer(self, cx, &normalised)?
        };
        cx.within(self.scope, |cx| cx.add(x, &output))
    }
}

impl Segment for Block {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let x = self.residual(cx, x, &self.ln1, Self::attention)?;
        self.residual(cx, &x, &self.ln2, Self::mlp)
    }
}

struct Network {
    tokens: NameId,
    positions: NameId,
    head: NameId,
    wte: Tensor,
    wpe: Tensor,
    blocks: Vec<Rc<dyn Segment>>,
    ln_f: Affine,
}

impl Network {
    fn embed(&self, cx: &mut Context, tokens: &Tensor) -> OpResult<Tensor> {
        let rows = tokens.shape().last();
        let positions = cx.memory().tensor(Shape::new(&[rows]), DType::I64, Category::Activation, "positions")?;
        cx.memory().launch(&Kernel::Arange { dst: positions.operand() })?;
        let by_token = cx.within(self.tokens, |cx| cx.embedding(&self.wte, tokens))?;
        let by_position = cx.within(self.positions, |cx| cx.embedding(&self.wpe, &positions))?;
        cx.add(&by_token, &by_position)
    }
}

impl Model for Network {
    fn forward(&self, cx: &mut Context, tokens: &Tensor, checkpointing: bool) -> OpResult<Tensor> {
        let mut x = self.embed(cx, tokens)?;
        for block in &self.blocks {
            x = if checkpointing { checkpoint(cx, block, &x)? } else { block.forward(cx, &x)? };
        }
        let x = self.ln_f.norm(cx, &x)?;
        cx.within(self.head, |cx| cx.linear(&x, &self.wte, None))
    }
}

impl Workload for Gpt {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let (sizes, mut all) = (&self.sizes, Parameters::new());
        let wte = all.make(cx, "wte.weight", &[sizes.vocab, sizes.width], Init::Uniform(bound()))?;
        let wpe = all.make(cx, "wpe.weight", &[sizes.context, sizes.width], Init::Uniform(bound()))?;
        let mut blocks = Vec::with_capacity(sizes.layers);
        for i in 0..sizes.layers {
            blocks.push(hash::segment(Block::make(cx, &mut all, &format!("blocks.{i}"), sizes)?));
        }
        let ln_f = Affine::make(cx, &mut all, "ln_f", &[sizes.width])?;
        all.initialise(cx)?;
        let scope = |name: &str| cx.memory().name(name);
        Ok(Task::Supervised(Rc::new(Network {
            tokens: scope("wte"),
            positions: scope("wpe"),
            head: scope("head"),
            wte,
            wpe,
            blocks,
            ln_f,
        })))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _: u64) -> OpResult<Batch> {
        hash::tokens(cx, batch, samples, self.sizes.seq, self.sizes.vocab)
    }

    fn batch_layout(&self, samples: usize) -> BatchLayout {
        let tokens = (Shape::new(&[samples, self.sizes.seq]), DType::I64);
        BatchLayout { input: tokens, target: tokens }
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(match &self.data {
            Data::Text(text) => Box::new(Windows::new(text.clone(), self.sizes.seq, self.seed)?),
            Data::Reference | Data::Streamed => Box::new(Cycle::tokens(self.sizes.seq, self.sizes.vocab)),
        })
    }

    fn items_per_sample(&self) -> usize {
        self.sizes.seq
    }

    fn writes_every(&self) -> Option<u64> {
        self.writes_every
    }

    fn write(&self, cx: &mut Context, model: &dyn Model, step: u64) -> OpResult<Option<String>> {
        if !matches!(self.data, Data::Text(_)) {
            return Ok(None);
        }
        writing::write(cx, model, [self.sizes.seq, self.sizes.vocab], self.seed ^ step).map(Some)
    }
}
