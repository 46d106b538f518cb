//! The modules of a decoder and its forward pass, with the variables of transformers' own: what they hold lives as long.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, Checkpointing, Context, EagerScores, LossHead, MaskShape, Model, NextLabels, OpResult, PositionScale,
    Repeatable, RotaryTables, SdpaMask, Shape, Tensor, Turn, checkpoint,
};

use super::super::hash::Parameters;
use super::super::llama::{Norm, NormKind};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::modules::Linear;
use super::mlp::Mlp;
use super::names::Names;
use super::pattern::LayerPattern;
use super::rotary::{self, Frequencies};
use super::sizes::{
    Biases, DecoderSizes, DropoutPlace, Dropouts, HeadNorms, Multipliers, NormPlaces, Packing, Rotation,
    SlidingWindows, SoftCaps,
};

/// When queries and keys are normalised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NormOrder {
    /// The heads of each when they are there.
    OneByOne,
    /// The heads of both when values are there too (Gemma 3).
    Projected,
    /// Both as a whole, or not at all; heads are told apart when values are there too (OLMo, StableLM).
    Whole,
}

/// The layers that make queries, keys and values.
enum Projections {
    Apart(Box<[Adaptable; 3]>),
    /// One makes all three, side by side in each head (GPT-NeoX).
    Heads(Box<Adaptable>),
    /// One makes all three (Phi-3): columns of queries, then so many of keys and as many of values.
    Packed {
        all: Box<Adaptable>,
        widths: [usize; 2],
    },
}

/// Queries, keys and values of their own, rotated by position; keys and values may serve several heads of queries.
struct Attention {
    scope: NameId,
    projections: Projections,
    output: Adaptable,
    /// Of queries and of keys.
    norms: Option<[Norm; 2]>,
    /// When these come.
    order: NormOrder,
    rotation: Rotation,
    head_size: usize,
    /// Products of queries and keys are multiplied by this.
    scale: f64,
    /// What eager scores are kept within.
    cap: Option<f64>,
    /// How queries grow.
    grows: Option<PositionScale>,
    /// The shares of weights and of the output that are left out.
    dropouts: Dropouts,
    names: Names,
    /// What is cut and rotated lives to the end.
    keeps: bool,
}

impl Attention {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, kv_heads, head_size, style, .. } = *sizes;
        let mut projection = |cx: &mut Context, part: &str, ends: [usize; 2], biased: bool| {
            let make = if biased { Adaptable::biased } else { Adaptable::plain };
            make(cx, all, &format!("{name}.{part}_proj"), ends)
        };
        let biased = style.biases != Biases::None;
        match style.packing {
            Packing::All => return Self::packed(cx, all, name, sizes),
            Packing::Heads => return Self::of_heads(cx, all, name, sizes),
            Packing::None | Packing::Gates => {}
        }
        let mut input =
            |cx: &mut Context, part: &str, heads: usize| projection(cx, part, [width, heads * head_size], biased);
        let projections = Projections::Apart(Box::new([
            input(cx, "q", heads)?,
            input(cx, "k", kv_heads)?,
            input(cx, "v", kv_heads)?,
        ]));
        let output = projection(cx, "o", [heads * head_size, width], style.biases == Biases::All)?;
        let mut norm = |part: &str, heads: usize| {
            let width = if style.heads == HeadNorms::Together { heads * head_size } else { head_size };
            let kinds = (style.norm, sizes.eps);
            if style.norm == NormKind::Unbiased {
                return Norm::of_heads(cx, all, &format!("{name}.{part}_norm"), [heads, head_size], kinds);
            }
            Norm::make(cx, all, &format!("{name}.{part}_norm"), width, kinds)
        };
        let norms = match style.heads {
            HeadNorms::None => None,
            HeadNorms::Each | HeadNorms::Together => Some([norm("q", heads)?, norm("k", kv_heads)?]),
        };
        Ok(Self::of(cx, name, sizes, projections, output, norms))
    }

    /// With one projection to queries, keys and values, which a module has behind that of the output.
    fn packed(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, kv_heads, head_size, .. } = *sizes;
        let widths = [heads * head_size, kv_heads * head_size];
        let output = Adaptable::plain(cx, all, &format!("{name}.o_proj"), [widths[0], width])?;
        let all = Adaptable::plain(cx, all, &format!("{name}.qkv_proj"), [width, widths[0] + 2 * widths[1]])?;
        let projections = Projections::Packed { all: Box::new(all), widths };
        Ok(Self::of(cx, name, sizes, projections, output, None))
    }

    /// With one projection, which makes queries, keys and values of a head side by side.
    fn of_heads(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, head_size, style, .. } = *sizes;
        let make = if style.biases == Biases::All { Adaptable::biased } else { Adaptable::plain };
        let ([whole, output], inner) =
            ([style.names.projections, style.names.output].map(Target::word), heads * head_size);
        let projections = make(cx, all, &format!("{name}.{whole}"), [width, 3 * inner])?;
        let output = make(cx, all, &format!("{name}.{output}"), [inner, width])?;
        Ok(Self::of(cx, name, sizes, Projections::Heads(Box::new(projections)), output, None))
    }

    fn of(
        cx: &Context,
        name: &str,
        sizes: &DecoderSizes,
        projections: Projections,
        output: Adaptable,
        norms: Option<[Norm; 2]>,
    ) -> Self {
        let DecoderSizes { head_size, style, .. } = *sizes;
        #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
        let scale = match sizes.multipliers {
            Some(multipliers) => multipliers.attention,
            None => 1.0 / sizes.query_scalar.unwrap_or(head_size as f64).sqrt(),
        };
        let cap = sizes.caps.scores;
        let order = match (style.heads, style.norm) {
            (HeadNorms::Together, _) | (_, NormKind::Bare) => NormOrder::Whole,
            _ if style.keeps => NormOrder::Whole,
            (_, NormKind::Centred | NormKind::Unbiased) => NormOrder::Projected,
            _ => NormOrder::OneByOne,
        };
        let scope = cx.memory().name(name);
        let (grows, dropouts) = (sizes.position_scale, sizes.dropouts);
        Self {
            scope,
            projections,
            output,
            norms,
            order,
            rotation: style.rotation,
            head_size,
            scale,
            cap,
            grows,
            dropouts,
            names: style.names,
            keeps: style.keeps,
        }
    }

    fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        match &mut self.projections {
            Projections::Apart(projections) => {
                for (projection, target) in projections.iter_mut().zip([Target::Query, Target::Key, Target::Value]) {
                    projection.adapt(cx, all, name, lora, target)?;
                }
                self.output.adapt(cx, all, name, lora, self.names.output)
            }
            Projections::Heads(projections) => {
                projections.adapt(cx, all, name, lora, self.names.projections)?;
                self.output.adapt(cx, all, name, lora, self.names.output)
            }
            Projections::Packed { all: packed, .. } => {
                self.output.adapt(cx, all, name, lora, self.names.output)?;
                packed.adapt(cx, all, name, lora, self.names.projections)
            }
        }
    }

    /// Queries, keys and values (batch, heads, rows, head size), where asked for with their norms.
    fn parts(&self, cx: &mut Context, input: &Tensor) -> OpResult<[Tensor; 3]> {
        let [q, k, v] = match &self.projections {
            Projections::Apart(projections) => &**projections,
            Projections::Heads(projections) => {
                let packed = projections.forward(cx, input)?;
                return Ok(cx.thirds_of_heads(&packed, self.head_size));
            }
            Projections::Packed { all, widths: [queries, keys] } => {
                let packed = all.forward(cx, input)?;
                let (key, value) = (*queries, queries + keys);
                let columns = [(0, *queries), (key, *keys), (value, *keys)];
                let parts = columns.map(|(start, width)| cx.columns(&packed, start, width));
                return Ok(parts.map(|part| cx.by_head_size(&part, self.head_size)));
            }
        };
        let by_head = |cx: &mut Context, projection: &Adaptable| {
            let made = projection.forward(cx, input)?;
            OpResult::Ok(cx.by_head_size(&made, self.head_size))
        };
        let Some([of_q, of_k]) = &self.norms else {
            if self.order == NormOrder::Whole {
                let parts = [q.forward(cx, input)?, k.forward(cx, input)?, v.forward(cx, input)?];
                return Ok(parts.map(|part| cx.by_head_size(&part, self.head_size)));
            }
            return Ok([by_head(cx, q)?, by_head(cx, k)?, by_head(cx, v)?]);
        };
        let apart = |cx: &mut Context, projection: &Adaptable| {
            let made = projection.forward(cx, input)?;
            OpResult::Ok(cx.heads_apart(&made, self.head_size))
        };
        let normalised = |cx: &mut Context, norm: &Norm, apart: Tensor| {
            let made = norm.forward(cx, &apart)?;
            drop(apart);
            OpResult::Ok(cx.by_head_size(&made, self.head_size))
        };
        match self.order {
            NormOrder::OneByOne => {
                let q = apart(cx, q).and_then(|q| normalised(cx, of_q, q))?;
                let k = apart(cx, k).and_then(|k| normalised(cx, of_k, k))?;
                Ok([q, k, by_head(cx, v)?])
            }
            NormOrder::Projected => {
                let (q, k) = (apart(cx, q)?, apart(cx, k)?);
                let v = by_head(cx, v)?;
                Ok([normalised(cx, of_q, q)?, normalised(cx, of_k, k)?, v])
            }
            NormOrder::Whole => {
                let whole = |cx: &mut Context, projection: &Adaptable, norm: &Norm| {
                    let made = projection.forward(cx, input)?;
                    norm.forward(cx, &made)
                };
                let parts = [whole(cx, q, of_q)?, whole(cx, k, of_k)?, v.forward(cx, input)?];
                Ok(parts.map(|part| cx.by_head_size(&part, self.head_size)))
            }
        }
    }

    fn rotated(&self, cx: &mut Context, q: Tensor, k: Tensor, tables: &RotaryTables) -> OpResult<[Tensor; 2]> {
        match self.projections {
            Projections::Packed { .. } => return cx.rotary_with_rest([&q, &k], tables),
            Projections::Heads(_) => return cx.rotary_before_rest([&q, &k], tables, Turn::default()),
            Projections::Apart(_) => {}
        }
        let (turn, tables) = match self.rotation {
            Rotation::Neighbours => {
                let tables = cx.tables_of_neighbours(tables)?;
                return cx.rotary_before_rest([&q, &k], &tables, Turn { neighbours: true, widens: false });
            }
            Rotation::WideNeighbours => (Turn { neighbours: true, widens: true }, &cx.tables_of_neighbours(tables)?),
            Rotation::CastNeighbours => {
                let (dtype, wide) = (q.dtype(), DType::F32);
                let widened = |cx: &mut Context, part: &Tensor, what| {
                    if dtype == wide { Ok(part.clone()) } else { cx.cast(part, wide, what) }
                };
                let (of_q, of_k) = (widened(cx, &q, "queries in f32")?, widened(cx, &k, "keys in f32")?);
                let turn = Turn { neighbours: true, widens: false };
                let both = [cx.rotary(&of_q, tables, turn)?, cx.rotary(&of_k, tables, turn)?];
                if dtype == wide {
                    return Ok(both);
                }
                return Ok([cx.cast(&both[0], dtype, "rotated queries")?, cx.cast(&both[1], dtype, "rotated keys")?]);
            }
            Rotation::Plain | Rotation::Wide => (Turn::default(), tables),
        };
        let both = [cx.rotary(&q, tables, turn)?, cx.rotary(&k, tables, turn)?];
        let dtype = q.dtype();
        if !self.rotation.is_wide() || both[0].dtype() == dtype {
            return Ok(both);
        }
        Ok([cx.cast(&both[0], dtype, "rotated queries")?, cx.cast(&both[1], dtype, "rotated keys")?])
    }

    /// The output, and the weights of attention where somebody has them.
    fn forward(&self, cx: &mut Context, input: &Tensor, call: &Call) -> OpResult<(Tensor, Option<Tensor>)> {
        let Call { tables, rotates, mask, caches, .. } = call;
        let [q, k, v] = self.parts(cx, input)?;
        // What all three were cut out of is a variable of its own.
        let _packed = (!matches!(self.projections, Projections::Apart(_))).then(|| v.clone());
        let mut _cut = None;
        // What was not rotated is nobody's any more once both are.
        let [q, k] = match tables {
            tables if *rotates && self.keeps => {
                let [whole, rotated] = cx.within(self.scope, |cx| cx.rotary_with_parts([&q, &k], tables))?;
                _cut = Some(([q, k], rotated));
                whole
            }
            tables if *rotates => cx.within(self.scope, |cx| self.rotated(cx, q, k, tables))?,
            _ => [q, k],
        };
        let q = match self.grows {
            Some(grows) => {
                let grown = cx.within(self.scope, |cx| cx.scale_by_position(&q, grows))?;
                drop(q);
                grown
            }
            None => q,
        };
        let [k, v] = if *caches {
            let both =
                cx.within(self.scope, |cx| OpResult::Ok([cx.cached(&k, k.dtype())?, cx.cached(&v, k.dtype())?]))?;
            drop((k, v));
            both
        } else {
            [k, v]
        };
        let dropout = self.dropouts.attention;
        let (attended, weights) = cx.within(self.scope, |cx| match mask {
            Some(Mask::Added(mask)) => {
                let by = EagerScores { scale: self.scale, cap: self.cap, mask, dropout };
                cx.eager_attention([&q, &k, &v], by).map(|(attended, weights)| (attended, Some(weights)))
            }
            #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
            Some(Mask::Sdpa(mask)) => Ok((cx.masked_attention([&q, &k, &v], mask, self.scale as f32, dropout)?, None)),
            None => {
                #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
                let attended = cx.grouped_attention([&q, &k, &v], Some(self.scale as f32), dropout)?;
                Ok((cx.merge_heads(&attended)?, None))
            }
        })?;
        let mut output = self.output.forward(cx, &attended)?;
        if self.dropouts.place == DropoutPlace::Within {
            output = cx.within(self.scope, |cx| cx.dropout(&output, self.dropouts.residual))?;
        }
        cx.put_out(self.scope, &output);
        Ok((output, weights))
    }
}

/// A norm of the residual stream.
fn norm(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Norm> {
    Norm::make(cx, all, name, sizes.width, (sizes.style.norm, sizes.eps))
}

/// Attention and an MLP, each beside a residual connection.
struct Layer {
    scope: NameId,
    attention: Attention,
    mlp: Mlp,
    /// Before attention and the MLP, which stand side by side.
    once: Option<Norm>,
    /// Before attention and before the MLP.
    before: Option<[Norm; 2]>,
    /// Behind attention and behind the MLP.
    behind: Option<[Norm; 2]>,
    /// What both add is multiplied by it, where it is.
    multiplier: Option<f64>,
    /// The MLP is given what goes into the layer, not what attention made of it.
    beside: bool,
    /// The shares of what attention and the MLP returned that are left out.
    dropouts: [f64; 2],
    /// What goes into attention and what comes out of it live to the end.
    keeps: bool,
}

impl Layer {
    fn make(cx: &mut Context, all: &mut Parameters, number: usize, sizes: &DecoderSizes) -> OpResult<Self> {
        let name = sizes.style.names.layer(number);
        let pair = |cx: &mut Context, all: &mut Parameters| {
            let [first, second] = ["input_layernorm", "post_attention_layernorm"].map(|part| format!("{name}.{part}"));
            OpResult::Ok([norm(cx, all, &first, sizes)?, norm(cx, all, &second, sizes)?])
        };
        let early = sizes.style.norms_first.then(|| pair(cx, all)).transpose()?;
        let attention = Attention::make(cx, all, &format!("{name}.{}", sizes.style.names.attention), sizes)?;
        let mlp = Mlp::make(cx, all, &format!("{name}.mlp"), number, sizes)?;
        let late = match sizes.style.places {
            NormPlaces::Before | NormPlaces::Beside if early.is_none() => Some(pair(cx, all)?),
            _ => None,
        };
        let mut norm = |part: &str| norm(cx, all, &format!("{name}.{part}"), sizes);
        let mut once = None;
        let (before, behind) = match sizes.style.places {
            NormPlaces::Once => {
                once = Some(norm("input_layernorm")?);
                (None, None)
            }
            NormPlaces::Before | NormPlaces::Beside => (early.or(late), None),
            NormPlaces::Around => {
                let (first, second) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
                let third = norm("pre_feedforward_layernorm")?;
                (Some([first, third]), Some([second, norm("post_feedforward_layernorm")?]))
            }
            NormPlaces::AroundParts => {
                let before = [norm("input_layernorm")?, norm("post_attention_layernorm")?];
                (Some(before), Some([norm("post_self_attn_layernorm")?, norm("post_mlp_layernorm")?]))
            }
            NormPlaces::Behind => {
                (None, Some([norm("post_attention_layernorm")?, norm("post_feedforward_layernorm")?]))
            }
        };
        let multiplier = sizes.multipliers.map(|multipliers| multipliers.residual);
        let beside = sizes.style.places == NormPlaces::Beside;
        let dropouts = match (sizes.dropouts.place, sizes.dropouts.residual) {
            (DropoutPlace::Within, _) => [0.0; 2],
            (DropoutPlace::Behind, share) => [share; 2],
            (DropoutPlace::BehindMlp, share) => [0.0, share],
        };
        let keeps = sizes.style.keeps;
        Ok(Self {
            scope: cx.memory().name(&name),
            attention,
            mlp,
            once,
            before,
            behind,
            multiplier,
            beside,
            dropouts,
            keeps,
        })
    }

    /// What a part of the layer returned, without a share of it.
    fn dropped(&self, cx: &mut Context, made: Tensor, share: f64) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.dropout(&made, share))
    }

    /// The residual stream with what a part of the layer adds.
    fn add(&self, cx: &mut Context, stream: &Tensor, added: &Tensor) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| match self.multiplier {
            Some(factor) => {
                let scaled = cx.scale(added, factor, "scaled addition")?;
                cx.add(stream, &scaled)
            }
            None => cx.add(stream, added),
        })
    }
}

/// Who sees whom, where attention is given that.
#[derive(Clone)]
enum Mask {
    /// Added to the scores of eager attention.
    Added(Tensor),
    /// Given to SDPA.
    Sdpa(SdpaMask),
}

/// One call of a layer, which holds its arguments as long as a checkpoint may repeat it.
struct Call {
    layer: Rc<Layer>,
    tables: RotaryTables,
    /// Queries and keys are rotated.
    rotates: bool,
    mask: Option<Mask>,
    /// Keys and values go into a cache.
    caches: bool,
    /// Handed to every layer, and read by none.
    _positions: Tensor,
}

impl Repeatable for Call {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let Layer { scope, attention, mlp, once, before, behind, beside, keeps, dropouts, .. } = &*self.layer;
        let [of_attention, of_mlp] = *dropouts;
        if let Some(once) = once {
            let normalised = once.forward(cx, input)?;
            let (attended, weights) = attention.forward(cx, &normalised, self)?;
            let y = mlp.forward(cx, &normalised)?;
            let y = self.layer.dropped(cx, y, of_mlp)?;
            let x = self.layer.add(cx, input, &attended)?;
            let output = self.layer.add(cx, &x, &y)?;
            cx.put_out(*scope, &output);
            drop(weights);
            return Ok(output);
        }
        let [before_attention, before_mlp] = before.as_ref().map_or([None; 2], |before| before.each_ref().map(Some));
        let [behind_attention, behind_mlp] = behind.as_ref().map_or([None; 2], |behind| behind.each_ref().map(Some));
        if let ([Some(before_attention), Some(before_mlp)], true) = ([before_attention, before_mlp], *beside) {
            let (attended, weights) = {
                let normalised = before_attention.forward(cx, input)?;
                attention.forward(cx, &normalised, self)?
            };
            let attended = self.layer.dropped(cx, attended, of_attention)?;
            let y = {
                let normalised = before_mlp.forward(cx, input)?;
                mlp.forward(cx, &normalised)?
            };
            let y = self.layer.dropped(cx, y, of_mlp)?;
            let output = {
                let both = self.layer.add(cx, &y, &attended)?;
                self.layer.add(cx, &both, input)?
            };
            cx.put_out(*scope, &output);
            drop(weights);
            return Ok(output);
        }
        let first = |cx: &mut Context, norm: Option<&Norm>, input: &Tensor| match norm {
            Some(norm) => norm.forward(cx, input),
            None => Ok(input.clone()),
        };
        // What a norm was made of goes when it is there.
        let then = |cx: &mut Context, norm: Option<&Norm>, made: Tensor| match norm {
            Some(norm) => norm.forward(cx, &made),
            None => Ok(made),
        };
        let (x, weights, _kept) = {
            let (attended, weights, normalised) = {
                let normalised = first(cx, before_attention, input)?;
                let (attended, weights) = attention.forward(cx, &normalised, self)?;
                (attended, weights, keeps.then_some(normalised))
            };
            let attended = self.layer.dropped(cx, attended, of_attention)?;
            let attended = then(cx, behind_attention, attended)?;
            (self.layer.add(cx, input, &attended)?, weights, keeps.then_some((normalised, attended)))
        };
        let output = {
            let y = {
                let normalised = first(cx, before_mlp, &x)?;
                mlp.forward(cx, &normalised)?
            };
            let y = self.layer.dropped(cx, y, of_mlp)?;
            let y = then(cx, behind_mlp, y)?;
            self.layer.add(cx, &x, &y)?
        };
        cx.put_out(*scope, &output);
        drop(weights);
        Ok(output)
    }
}

/// What a forward pass is given.
#[derive(Clone, Copy)]
struct Given<'a> {
    tokens: &'a Tensor,
    /// What the program says of padding, where it does.
    mask: Option<&'a Tensor>,
    /// There is padding.
    pads: bool,
}

/// A decoder with its head.
pub(super) struct DecoderModel {
    scope: NameId,
    embedding: (NameId, Tensor),
    layers: Vec<Rc<Layer>>,
    /// By layer, its number among what can be wrapped by itself.
    units: Vec<usize>,
    norm: Norm,
    frequencies: Frequencies,
    /// The type of rotary tables, where it is not that of embeddings.
    tables: Option<DType>,
    head: Linear,
    /// Embeddings are multiplied by it, where they are.
    embedding_scale: Option<Tensor>,
    multipliers: Option<Multipliers>,
    /// Logits are multiplied by it.
    logit_scale: Option<f64>,
    padding: Option<usize>,
    caps: SoftCaps,
    windows: SlidingWindows,
    unrotated: LayerPattern,
    /// The share of embeddings that is left out.
    dropout: f64,
}

impl DecoderModel {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &DecoderSizes) -> OpResult<Self> {
        let names = sizes.style.names;
        let embedding = format!("{}.{}", names.model, names.embedding);
        let table = all.weight(cx, &format!("{embedding}.weight"), &[sizes.vocab, sizes.width])?;
        let embedding = (cx.memory().name(&embedding), table.clone());
        #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
        let root = (sizes.width as f64).sqrt();
        let scale =
            |cx: &mut Context| cx.buffer("model.embed_tokens.embed_scale", Shape::new(&[]), sizes.weights, root);
        let loads = all.quantization().is_some();
        let made_scale = (sizes.style.gemma && !loads).then(|| scale(cx)).transpose()?;
        let mut layers: Vec<Layer> =
            (0..sizes.layers).map(|layer| Layer::make(cx, all, layer, sizes)).collect::<OpResult<_>>()?;
        let norm = norm(cx, all, &format!("{}.{}", names.model, names.norm), sizes)?;
        let made = if loads { None } else { Some(rotary::frequencies(cx, sizes)?) };
        let head = if sizes.tied {
            // The head is made with a weight of its own first.
            if !loads {
                drop(all.unused(cx, "lm_head.weight", &[sizes.vocab, sizes.width])?);
            }
            Linear::tied(cx, "lm_head", table)
        } else {
            Linear::plain(cx, all, "lm_head", [sizes.width, sizes.vocab])?
        };
        let (frequencies, embedding_scale) = match made {
            Some(made) => (made, made_scale),
            None => {
                all.load(cx)?;
                let embedding_scale = sizes.style.gemma.then(|| scale(cx)).transpose()?;
                let frequencies = rotary::loaded(cx, sizes)?;
                all.prepare_for_training(cx)?;
                (frequencies, embedding_scale)
            }
        };
        if let Some(lora) = sizes.lora {
            let packs = matches!(sizes.style.packing, Packing::All | Packing::Heads);
            let lora = Lora { targets: lora.targets.of_model(packs.then_some(names.projections)), ..lora };
            for (number, layer) in layers.iter_mut().enumerate() {
                let name = names.layer(number);
                layer.attention.adapt(cx, all, &format!("{name}.{}", names.attention), lora)?;
                layer.mlp.adapt(cx, all, &format!("{name}.mlp"), lora)?;
            }
            all.widen_adapters(cx)?;
        }
        let units = (0..sizes.layers).map(|layer| cx.unit(all.of_module(cx, &names.layer(layer)))).collect();
        let layers = layers.into_iter().map(Rc::new).collect();
        let DecoderSizes { caps, windows, padding, multipliers, unrotated, .. } = *sizes;
        Ok(Self {
            scope: cx.memory().name(names.model),
            embedding,
            layers,
            units,
            norm,
            frequencies,
            tables: sizes.style.rotation.is_wide().then_some(DType::F32),
            head,
            embedding_scale,
            multipliers,
            logit_scale: sizes.logit_scale.or(multipliers.map(|multipliers| 1.0 / multipliers.logits)),
            padding,
            caps,
            windows,
            unrotated,
            dropout: sizes.dropouts.embedding,
        })
    }
}

impl DecoderModel {
    /// What the last norm puts out.
    fn hidden(
        &self,
        cx: &mut Context,
        given: Given<'_>,
        checkpointing: Checkpointing,
        caches: bool,
    ) -> OpResult<Tensor> {
        let tokens = given.tokens;
        let (scope, table) = &self.embedding;
        let embedded =
            cx.module(*scope, |cx| cx.with_parameters([table], |cx| cx.padded_embedding(table, tokens, self.padding)))?;
        let embedded = match &self.embedding_scale {
            Some(factor) => {
                let scaled = cx.within(*scope, |cx| {
                    let dtype = embedded.dtype();
                    let factor = if factor.dtype() == dtype { factor } else { &cx.cast(factor, dtype, "embed_scale")? };
                    cx.multiply(&embedded, factor, "scaled embedding")
                })?;
                drop(embedded);
                scaled
            }
            None => embedded,
        };
        // A hook on a frozen embedding (`enable_input_require_grads`): a checkpoint recomputes what gets gradients.
        let mut embedded = embedded;
        if checkpointing.is_on() {
            embedded = cx.want_gradient(&embedded);
        }
        if let Some(Multipliers { embedding, .. }) = self.multipliers {
            embedded = cx.within(self.scope, |cx| cx.scale(&embedded, embedding, "scaled embedding"))?;
        }
        let dtype = embedded.dtype();
        let positions = cx.within(self.scope, |cx| cx.positions(tokens))?;
        let masks = cx.within(self.scope, |cx| self.masks(cx, given, dtype, caches))?;
        let mut x = cx.within(self.scope, |cx| cx.dropout(&embedded, self.dropout))?;
        let tables =
            cx.within(self.scope, |cx| self.frequencies.tables(cx, &positions, self.tables.unwrap_or(dtype)))?;
        for (number, (layer, unit)) in self.layers.iter().zip(&self.units).enumerate() {
            let tables = tables.of(self.windows.has(number)).clone();
            let (layer, rotates, _positions) = (Rc::clone(layer), !self.unrotated.has(number), positions.clone());
            let mask =
                masks.iter().find(|(window, _)| *window == self.windows.of(number)).map(|(_, mask)| mask.clone());
            let call: Rc<dyn Repeatable> = Rc::new(Call { layer, tables, rotates, mask, caches, _positions });
            x = cx.unit_forward(*unit, &x, |cx, x| {
                if checkpointing.of(number) { checkpoint(cx, &call, x) } else { call.forward(cx, x) }
            })?;
        }
        let hidden = self.norm.forward(cx, &x)?;
        // Variables of the forward pass, which live until it returns.
        drop((embedded, positions, masks, tables));
        Ok(hidden)
    }

    /// The masks of its layers by their windows: none where SDPA does without.
    fn masks(
        &self,
        cx: &mut Context,
        Given { tokens, mask, pads }: Given<'_>,
        dtype: DType,
        caches: bool,
    ) -> OpResult<Vec<(Option<usize>, Mask)>> {
        let (batch, rows) = (tokens.shape().rows(), tokens.shape().last());
        let mut masks = Vec::new();
        for window in self.windows.kinds() {
            let with_token = mask.map(|mask| cx.boolean_mask(mask)).transpose()?;
            if !caches && mask.is_none() {
                cx.find_sequences(tokens)?;
            }
            let shape = MaskShape { batch, rows, window, padding: mask.is_some() };
            if cx.attends_eagerly() {
                masks.push((window, Mask::Added(cx.attention_mask(shape, dtype)?)));
                continue;
            }
            let mut needed = window.is_some_and(|window| window <= rows);
            if let (Some(with_token), false) = (&with_token, needed) {
                cx.find_padding(with_token, pads)?;
                needed = pads;
            }
            if needed {
                masks.push((window, Mask::Sdpa(cx.sdpa_mask(shape)?)));
            }
        }
        Ok(masks)
    }

    fn logits(&self, cx: &mut Context, hidden: &Tensor) -> OpResult<Tensor> {
        let mut logits = cx.classify(|cx| self.head.forward(cx, hidden))?;
        if let Some(scale) = self.logit_scale {
            logits = cx.scale(&logits, scale, "scaled logits")?;
        }
        if let Some(cap) = self.caps.logits {
            logits = cx.capped(logits, cap)?;
        }
        cx.put_out(NameId::NONE, &logits);
        Ok(logits)
    }
}

impl Model for DecoderModel {
    fn forward(&self, cx: &mut Context, tokens: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        let hidden = self.hidden(cx, Given { tokens, mask: None, pads: false }, checkpointing, false)?;
        self.logits(cx, &hidden)
    }

    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: Checkpointing) -> OpResult<(Tensor, Tensor)> {
        // One checkpointed layer is enough for transformers to leave the cache out.
        let caches = cx.uses_cache() && !checkpointing.is_on();
        let given = Given { tokens: &batch.input, mask: batch.mask.as_ref(), pads: batch.lengths.is_some() };
        let hidden = self.hidden(cx, given, checkpointing, caches)?;
        let labels = NextLabels { labels: &batch.target, lengths: batch.lengths.as_deref() };
        if cx.loss_head() == LossHead::Fused {
            // The fused loss knows no factor of logits; one of what they are made of is the same.
            let hidden = match self.logit_scale {
                Some(scale) => cx.scale(&hidden, scale, "scaled hidden values")?,
                None => hidden,
            };
            let loss = self.head.fused_loss(cx, &hidden, labels, self.caps.logits)?;
            let [loss, _] = cx.leave_model(loss)?;
            return Ok((loss.detach(), loss));
        }
        let logits = self.logits(cx, &hidden)?;
        // A loss by hand comes when the model has returned.
        let hidden = Some(hidden).filter(|_| cx.loss_head() == LossHead::Labels);
        let loss = cx.loss_of_next(&logits, labels)?;
        drop(hidden);
        let [loss, _] = cx.leave_model(loss)?;
        Ok((logits, loss))
    }
}
