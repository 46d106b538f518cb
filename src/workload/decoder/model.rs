//! The modules of a decoder and its forward pass, with the variables of transformers' own: what they hold lives as long.

use std::rc::Rc;

use vramlab_model::NameId;
use vramlab_train::{Batch, Context, Model, OpResult, Repeatable, RotaryTables, Tensor, checkpoint};

use super::super::hash::Parameters;
use super::super::llama::{GatedMlp, RmsNorm};
use super::super::modules::Linear;
use super::rotary;
use super::sizes::DecoderSizes;

/// Queries, keys and values of their own, rotated by position; keys and values may serve several heads of queries.
struct Attention {
    scope: NameId,
    projections: [Linear; 3],
    output: Linear,
    /// Of queries and of keys, head by head.
    norms: Option<[RmsNorm; 2]>,
    head_size: usize,
}

impl Attention {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, kv_heads, head_size, .. } = *sizes;
        let mut projection = |cx: &mut Context, part: &str, heads: usize| {
            let (name, ends) = (format!("{name}.{part}_proj"), [width, heads * head_size]);
            if sizes.style.biases { Linear::make(cx, all, &name, ends) } else { Linear::plain(cx, all, &name, ends) }
        };
        let projections = [projection(cx, "q", heads)?, projection(cx, "k", kv_heads)?, projection(cx, "v", kv_heads)?];
        let output = Linear::plain(cx, all, &format!("{name}.o_proj"), [heads * head_size, width])?;
        let mut norm = |part: &str| RmsNorm::make(cx, all, &format!("{name}.{part}_norm"), head_size, sizes.eps);
        let norms = if sizes.style.norms_heads { Some([norm("q")?, norm("k")?]) } else { None };
        Ok(Self { scope: cx.memory().name(name), projections, output, norms, head_size })
    }

    fn forward(&self, cx: &mut Context, input: &Tensor, tables: &RotaryTables) -> OpResult<Tensor> {
        let [q, k, v] = &self.projections;
        let heads = |cx: &mut Context, projection: &Linear, norm: Option<&RmsNorm>| {
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
        let attended = cx.within(self.scope, |cx| {
            let attended = cx.grouped_attention([&q, &k, &v])?;
            cx.merge_heads(&attended)
        })?;
        let output = self.output.forward(cx, &attended)?;
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}

/// Attention and an MLP, each behind a norm and beside a residual connection.
struct Layer {
    scope: NameId,
    attention: Attention,
    mlp: GatedMlp,
    before_attention: RmsNorm,
    before_mlp: RmsNorm,
}

impl Layer {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let attention = Attention::make(cx, all, &format!("{name}.self_attn"), sizes)?;
        let mlp = GatedMlp::make(cx, all, &format!("{name}.mlp"), [sizes.width, sizes.hidden])?;
        let mut norm = |part: &str| RmsNorm::make(cx, all, &format!("{name}.{part}"), sizes.width, sizes.eps);
        let [before_attention, before_mlp] = [norm("input_layernorm")?, norm("post_attention_layernorm")?];
        Ok(Self { scope: cx.memory().name(name), attention, mlp, before_attention, before_mlp })
    }
}

/// One call of a layer, which holds its arguments as long as a checkpoint may repeat it.
struct Call {
    layer: Rc<Layer>,
    tables: RotaryTables,
    /// Handed to every layer, and read by none.
    _positions: Tensor,
}

impl Repeatable for Call {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let Layer { scope, attention, mlp, before_attention, before_mlp } = &*self.layer;
        let x = {
            let attended = {
                let normalised = before_attention.forward(cx, input)?;
                attention.forward(cx, &normalised, &self.tables)?
            };
            cx.within(*scope, |cx| cx.add(input, &attended))?
        };
        let output = {
            let y = {
                let normalised = before_mlp.forward(cx, &x)?;
                mlp.forward(cx, &normalised)?
            };
            cx.within(*scope, |cx| cx.add(&x, &y))?
        };
        cx.put_out(*scope, &output);
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
}

impl DecoderModel {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &DecoderSizes) -> OpResult<Self> {
        let table = all.weight(cx, "model.embed_tokens.weight", &[sizes.vocab, sizes.width])?;
        let embedding = (cx.memory().name("model.embed_tokens"), table.clone());
        let layers = (0..sizes.layers)
            .map(|i| Layer::make(cx, all, &format!("model.layers.{i}"), sizes).map(Rc::new))
            .collect::<OpResult<_>>()?;
        let norm = RmsNorm::make(cx, all, "model.norm", sizes.width, sizes.eps)?;
        let frequencies = rotary::frequencies(cx, sizes)?;
        let head = if sizes.tied {
            // The head is made with a weight of its own first.
            drop(all.unused(cx, "lm_head.weight", &[sizes.vocab, sizes.width])?);
            Linear::tied(cx, "lm_head", table)
        } else {
            Linear::plain(cx, all, "lm_head", [sizes.width, sizes.vocab])?
        };
        Ok(Self { scope: cx.memory().name("model"), embedding, layers, norm, frequencies, head })
    }
}

impl DecoderModel {
    /// What the last norm puts out.
    fn hidden(&self, cx: &mut Context, tokens: &Tensor, checkpointing: bool) -> OpResult<Tensor> {
        let (scope, table) = &self.embedding;
        let embedded = cx.module(*scope, |cx| cx.with_parameters([table], |cx| cx.embedding(table, tokens)))?;
        let positions = cx.within(self.scope, |cx| cx.positions(tokens))?;
        let dtype = embedded.dtype();
        let tables = cx.within(self.scope, |cx| cx.rotary_tables(&positions, &self.frequencies, dtype, 1.0))?;
        let mut x = embedded.clone();
        for layer in &self.layers {
            let (layer, tables) = (Rc::clone(layer), tables.clone());
            let call: Rc<dyn Repeatable> = Rc::new(Call { layer, tables, _positions: positions.clone() });
            x = if checkpointing { checkpoint(cx, &call, &x)? } else { call.forward(cx, &x)? };
        }
        let hidden = self.norm.forward(cx, &x)?;
        // Variables of the forward pass, which live until it returns.
        drop((embedded, positions, tables));
        Ok(hidden)
    }

    fn logits(&self, cx: &mut Context, hidden: &Tensor) -> OpResult<Tensor> {
        let logits = cx.classify(|cx| self.head.forward(cx, hidden))?;
        cx.put_out(NameId::NONE, &logits);
        Ok(logits)
    }
}

impl Model for DecoderModel {
    fn forward(&self, cx: &mut Context, tokens: &Tensor, checkpointing: bool) -> OpResult<Tensor> {
        let hidden = self.hidden(cx, tokens, checkpointing)?;
        self.logits(cx, &hidden)
    }

    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: bool) -> OpResult<(Tensor, Tensor)> {
        let hidden = self.hidden(cx, &batch.input, checkpointing)?;
        let logits = self.logits(cx, &hidden)?;
        let loss = cx.causal_loss(&logits, &batch.target)?;
        Ok((logits, loss))
    }
}
