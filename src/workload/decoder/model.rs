//! The modules of a decoder and its forward pass, with the variables of transformers' own: what they hold lives as long.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, Checkpointing, Context, EagerScores, LossHead, MaskShape, Model, OpResult, Repeatable, RotaryTables,
    SdpaMask, Shape, Tensor, checkpoint,
};

use super::super::hash::Parameters;
use super::super::llama::{Gate, GatedMlp, RmsNorm};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::modules::Linear;
use super::rotary;
use super::sizes::{DecoderSizes, SlidingWindows, SoftCaps};

/// Queries, keys and values of their own, rotated by position; keys and values may serve several heads of queries.
struct Attention {
    scope: NameId,
    projections: [Adaptable; 3],
    output: Adaptable,
    /// Of queries and of keys, head by head.
    norms: Option<[RmsNorm; 2]>,
    head_size: usize,
    /// Products of queries and keys are multiplied by this.
    scale: f64,
    /// What eager scores are kept within.
    cap: Option<f64>,
}

impl Attention {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, kv_heads, head_size, .. } = *sizes;
        let mut projection = |cx: &mut Context, part: &str, heads: usize| {
            let (name, ends) = (format!("{name}.{part}_proj"), [width, heads * head_size]);
            let make = if sizes.style.biases { Adaptable::biased } else { Adaptable::plain };
            make(cx, all, &name, ends)
        };
        let projections = [projection(cx, "q", heads)?, projection(cx, "k", kv_heads)?, projection(cx, "v", kv_heads)?];
        let output = Adaptable::plain(cx, all, &format!("{name}.o_proj"), [heads * head_size, width])?;
        let mut norm = |part: &str| RmsNorm::make(cx, all, &format!("{name}.{part}_norm"), head_size, sizes.eps);
        let norms = if sizes.style.norms_heads { Some([norm("q")?, norm("k")?]) } else { None };
        #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
        let scale = 1.0 / sizes.query_scalar.unwrap_or(head_size as f64).sqrt();
        let cap = sizes.caps.scores;
        Ok(Self { scope: cx.memory().name(name), projections, output, norms, head_size, scale, cap })
    }

    fn adapt(&mut self, cx: &Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        for (projection, target) in self.projections.iter_mut().zip([Target::Query, Target::Key, Target::Value]) {
            projection.adapt(cx, all, name, lora, target)?;
        }
        self.output.adapt(cx, all, name, lora, Target::Output)
    }

    /// The output, and the weights of attention where somebody has them.
    fn forward(&self, cx: &mut Context, input: &Tensor, call: &Call) -> OpResult<(Tensor, Option<Tensor>)> {
        let Call { tables, mask, caches, .. } = call;
        let [q, k, v] = &self.projections;
        let heads = |cx: &mut Context, projection: &Adaptable, norm: Option<&RmsNorm>| {
            let mut heads = projection.forward(cx, input)?;
            if let Some(norm) = norm {
                heads = cx.heads_apart(&heads, self.head_size);
                heads = norm.forward(cx, &heads)?;
            }
            OpResult::Ok(cx.by_head_size(&heads, self.head_size))
        };
        let norms = self.norms.as_ref();
        let q = heads(cx, q, norms.map(|[q, _]| q))?;
        let k = heads(cx, k, norms.map(|[_, k]| k))?;
        let v = heads(cx, v, None)?;
        // What was not rotated is nobody's any more once both are.
        let [q, k] = {
            let rotated_q = cx.within(self.scope, |cx| cx.rotary(&q, tables))?;
            let rotated_k = cx.within(self.scope, |cx| cx.rotary(&k, tables))?;
            drop((q, k));
            [rotated_q, rotated_k]
        };
        let [k, v] = if *caches {
            let both =
                cx.within(self.scope, |cx| OpResult::Ok([cx.cached(&k, k.dtype())?, cx.cached(&v, k.dtype())?]))?;
            drop((k, v));
            both
        } else {
            [k, v]
        };
        let (attended, weights) = cx.within(self.scope, |cx| match mask {
            Some(Mask::Added(mask)) => {
                let by = EagerScores { scale: self.scale, cap: self.cap, mask };
                cx.eager_attention([&q, &k, &v], by).map(|(attended, weights)| (attended, Some(weights)))
            }
            #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
            Some(Mask::Sdpa(mask)) => Ok((cx.masked_attention([&q, &k, &v], mask, self.scale as f32)?, None)),
            None => {
                #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
                let attended = cx.grouped_attention([&q, &k, &v], Some(self.scale as f32))?;
                Ok((cx.merge_heads(&attended)?, None))
            }
        })?;
        let output = self.output.forward(cx, &attended)?;
        cx.put_out(self.scope, &output);
        Ok((output, weights))
    }
}

/// A norm of the residual stream.
fn norm(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<RmsNorm> {
    let make = if sizes.style.gemma { RmsNorm::centred } else { RmsNorm::make };
    make(cx, all, name, sizes.width, sizes.eps)
}

/// Attention and an MLP, each behind a norm and beside a residual connection.
struct Layer {
    scope: NameId,
    attention: Attention,
    mlp: GatedMlp,
    before_attention: RmsNorm,
    before_mlp: RmsNorm,
    /// Behind attention and behind the MLP.
    behind: Option<[RmsNorm; 2]>,
}

impl Layer {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let attention = Attention::make(cx, all, &format!("{name}.self_attn"), sizes)?;
        let gate = if sizes.style.gemma { Gate::Gelu } else { Gate::Silu };
        let mlp = GatedMlp::make(cx, all, &format!("{name}.mlp"), [sizes.width, sizes.hidden], gate)?;
        let mut norm = |part: &str| norm(cx, all, &format!("{name}.{part}"), sizes);
        let (before_attention, second) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let (before_mlp, behind) = if sizes.style.gemma {
            (norm("pre_feedforward_layernorm")?, Some([second, norm("post_feedforward_layernorm")?]))
        } else {
            (second, None)
        };
        Ok(Self { scope: cx.memory().name(name), attention, mlp, before_attention, before_mlp, behind })
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
    mask: Option<Mask>,
    /// Keys and values go into a cache.
    caches: bool,
    /// Handed to every layer, and read by none.
    _positions: Tensor,
}

impl Repeatable for Call {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let Layer { scope, attention, mlp, before_attention, before_mlp, behind } = &*self.layer;
        let [behind_attention, behind_mlp] = behind.as_ref().map_or([None; 2], |behind| behind.each_ref().map(Some));
        // What a norm was made of goes when it is there.
        let then = |cx: &mut Context, norm: Option<&RmsNorm>, made: Tensor| match norm {
            Some(norm) => norm.forward(cx, &made),
            None => Ok(made),
        };
        let (x, weights) = {
            let (attended, weights) = {
                let normalised = before_attention.forward(cx, input)?;
                attention.forward(cx, &normalised, self)?
            };
            let attended = then(cx, behind_attention, attended)?;
            (cx.within(*scope, |cx| cx.add(input, &attended))?, weights)
        };
        let output = {
            let y = {
                let normalised = before_mlp.forward(cx, &x)?;
                mlp.forward(cx, &normalised)?
            };
            let y = then(cx, behind_mlp, y)?;
            cx.within(*scope, |cx| cx.add(&x, &y))?
        };
        cx.put_out(*scope, &output);
        drop(weights);
        Ok(output)
    }
}

/// A decoder with its head.
pub(super) struct DecoderModel {
    scope: NameId,
    embedding: (NameId, Tensor),
    layers: Vec<Rc<Layer>>,
    norm: RmsNorm,
    frequencies: Tensor,
    head: Linear,
    /// Embeddings are multiplied by it, where they are.
    embedding_scale: Option<Tensor>,
    padding: Option<usize>,
    caps: SoftCaps,
    windows: SlidingWindows,
}

impl DecoderModel {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &DecoderSizes) -> OpResult<Self> {
        let table = all.weight(cx, "model.embed_tokens.weight", &[sizes.vocab, sizes.width])?;
        let embedding = (cx.memory().name("model.embed_tokens"), table.clone());
        #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
        let root = (sizes.width as f64).sqrt();
        let scale =
            |cx: &mut Context| cx.buffer("model.embed_tokens.embed_scale", Shape::new(&[]), sizes.weights, root);
        let embedding_scale = sizes.style.gemma.then(|| scale(cx)).transpose()?;
        let name = |layer: usize| format!("model.layers.{layer}");
        let mut layers: Vec<Layer> =
            (0..sizes.layers).map(|layer| Layer::make(cx, all, &name(layer), sizes)).collect::<OpResult<_>>()?;
        let norm = norm(cx, all, "model.norm", sizes)?;
        let loads = all.quantization().is_some();
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
        let frequencies = match made {
            Some(made) => made,
            None => {
                all.load(cx)?;
                let frequencies = rotary::loaded(cx, sizes)?;
                all.prepare_for_training(cx)?;
                frequencies
            }
        };
        if let Some(lora) = sizes.lora {
            for (number, layer) in layers.iter_mut().enumerate() {
                let name = name(number);
                layer.attention.adapt(cx, all, &format!("{name}.self_attn"), lora)?;
                layer.mlp.adapt(cx, all, &format!("{name}.mlp"), lora)?;
            }
            all.widen_adapters(cx)?;
        }
        let layers = layers.into_iter().map(Rc::new).collect();
        let DecoderSizes { caps, windows, padding, .. } = *sizes;
        let scope = cx.memory().name("model");
        Ok(Self { scope, embedding, layers, norm, frequencies, head, embedding_scale, padding, caps, windows })
    }
}

impl DecoderModel {
    /// What the last norm puts out.
    fn hidden(
        &self,
        cx: &mut Context,
        tokens: &Tensor,
        checkpointing: Checkpointing,
        caches: bool,
    ) -> OpResult<Tensor> {
        let (scope, table) = &self.embedding;
        let embedded =
            cx.module(*scope, |cx| cx.with_parameters([table], |cx| cx.padded_embedding(table, tokens, self.padding)))?;
        let embedded = match &self.embedding_scale {
            Some(factor) => {
                let scaled = cx.within(*scope, |cx| cx.multiply(&embedded, factor, "scaled embedding"))?;
                drop(embedded);
                scaled
            }
            None => embedded,
        };
        let dtype = embedded.dtype();
        let positions = cx.within(self.scope, |cx| cx.positions(tokens))?;
        let masks = cx.within(self.scope, |cx| self.masks(cx, tokens, dtype, caches))?;
        let tables = cx.within(self.scope, |cx| cx.rotary_tables(&positions, &self.frequencies, dtype, 1.0))?;
        // A hook on a frozen embedding (`enable_input_require_grads`): a checkpoint recomputes what gets gradients.
        let mut x = if checkpointing.is_on() { cx.want_gradient(&embedded) } else { embedded.clone() };
        for (number, layer) in self.layers.iter().enumerate() {
            let (layer, tables, _positions) = (Rc::clone(layer), tables.clone(), positions.clone());
            let mask =
                masks.iter().find(|(window, _)| *window == self.windows.of(number)).map(|(_, mask)| mask.clone());
            let call: Rc<dyn Repeatable> = Rc::new(Call { layer, tables, mask, caches, _positions });
            x = if checkpointing.of(number) { checkpoint(cx, &call, &x)? } else { call.forward(cx, &x)? };
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
        tokens: &Tensor,
        dtype: DType,
        caches: bool,
    ) -> OpResult<Vec<(Option<usize>, Mask)>> {
        let (batch, rows) = (tokens.shape().rows(), tokens.shape().last());
        let mut masks = Vec::new();
        for window in self.windows.kinds() {
            if !caches {
                cx.find_sequences(tokens)?;
            }
            let shape = MaskShape { batch, rows, window };
            if cx.attends_eagerly() {
                masks.push((window, Mask::Added(cx.attention_mask(shape, dtype)?)));
            } else if window.is_some_and(|window| window <= rows) {
                masks.push((window, Mask::Sdpa(cx.sdpa_mask(shape)?)));
            }
        }
        Ok(masks)
    }

    fn logits(&self, cx: &mut Context, hidden: &Tensor) -> OpResult<Tensor> {
        let mut logits = cx.classify(|cx| self.head.forward(cx, hidden))?;
        if let Some(cap) = self.caps.logits {
            logits = cx.capped(logits, cap)?;
        }
        cx.put_out(NameId::NONE, &logits);
        Ok(logits)
    }
}

impl Model for DecoderModel {
    fn forward(&self, cx: &mut Context, tokens: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        let hidden = self.hidden(cx, tokens, checkpointing, false)?;
        self.logits(cx, &hidden)
    }

    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: Checkpointing) -> OpResult<(Tensor, Tensor)> {
        // One checkpointed layer is enough for transformers to leave the cache out.
        let caches = cx.uses_cache() && !checkpointing.is_on();
        let hidden = self.hidden(cx, &batch.input, checkpointing, caches)?;
        if cx.loss_head() == LossHead::Fused {
            let loss = self.head.fused_loss(cx, &hidden, &batch.target, self.caps.logits)?;
            return Ok((loss.detach(), loss));
        }
        let logits = self.logits(cx, &hidden)?;
        // A loss by hand comes when the model has returned.
        let hidden = Some(hidden).filter(|_| cx.loss_head() == LossHead::Labels);
        let loss = cx.loss_of_next(&logits, &batch.target)?;
        drop(hidden);
        Ok((logits, loss))
    }
}
