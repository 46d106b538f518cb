//! The modules of a decoder and its forward pass, with the variables of transformers' own, which keep their tensors alive as long.

use std::ops::Range;
use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, Checkpointing, Context, CountedBias, Cut, Model, NextLabels, OpResult, Repeatable, RotaryTables, Shape,
    StagePart, Tensor, TrainError, checkpoint,
};

use super::super::llama::Norm;
use super::super::modules::Linear;
use super::super::parameters::Parameters;
use super::super::quantization::Preparation;
use super::attention_inputs::{AttentionInputs, Mask, ReturnedWeights};
use super::embeddings::Embeddings;
use super::layer::{Call, DecoderLayer, norm};
use super::masks::{ForwardInputs, MaskMaker};
use super::opt::OptKeys;
use super::pattern::LayerPattern;
use super::rotary::{self, Frequencies};
use super::sizes::{DecoderSizes, Dropouts, Multipliers, SlidingWindows, SoftCaps};
use super::style::{NormsMade, PositionUse, Rotation};
use super::tower::Tower;

/// How the layers are run.
#[derive(Clone, Copy)]
struct LayerRun<'a> {
    checkpointing: Checkpointing,
    caches: bool,
    /// The norm after them.
    norm: Option<&'a Norm>,
}

/// A decoder with its head.
pub(super) struct DecoderModel {
    scope: NameId,
    embeddings: Embeddings,
    /// The norm of embeddings (BLOOM).
    embedding_norm: Option<Norm>,
    layers: Vec<Rc<DecoderLayer>>,
    /// The number of each layer among the units that can be wrapped.
    units: Vec<usize>,
    norm: Norm,
    /// `None` if positions are learned.
    frequencies: Option<Frequencies>,
    /// The type of rotary tables, if it differs from that of embeddings.
    tables: Option<DType>,
    head: Linear,
    /// The head has the weight of the embedding.
    tied: bool,
    /// The factor on logits.
    logit_scale: Option<f64>,
    caps: SoftCaps,
    masks: MaskMaker,
    windows: SlidingWindows,
    unrotated: LayerPattern,
    dropouts: Dropouts,
    /// Heads of queries.
    heads: usize,
    /// What else gets the positions.
    told: PositionUse,
}

impl DecoderModel {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &DecoderSizes) -> OpResult<Self> {
        let names = sizes.style.names;
        let mut tower = sizes.tower.as_ref().map(|tower| Tower::make(cx, all, tower, sizes.width)).transpose()?;
        let embedding = format!("{}.{}", names.model, names.embedding);
        let table_name = format!("{embedding}.weight");
        let splits = all.splits() && sizes.tied;
        let table = if splits {
            all.table(cx, &table_name, [sizes.vocab, sizes.width])?
        } else {
            all.weight(cx, &table_name, &[sizes.vocab, sizes.width])?
        };
        let embedding = (cx.memory().name(&embedding), table.clone());
        let norm_of_embeddings = format!("{}.{}_layernorm", names.model, names.embedding);
        let embedding_norm = sizes.style.alibi.then(|| norm(cx, all, &norm_of_embeddings, sizes)).transpose()?;
        let mut of_positions = |rows: usize| {
            let name = format!("{}.{}", names.model, names.positions);
            let table = all.weight(cx, &format!("{name}.weight"), &[rows, sizes.width])?;
            OpResult::Ok((cx.memory().name(&name), table))
        };
        let before = if sizes.style.counts_mask { OptKeys::BEFORE } else { 0 };
        let positions = sizes.positions.map(|most| of_positions(most + before)).transpose()?;
        let rotates = positions.is_none() && sizes.style.rotation != Rotation::Never;
        #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
        let root = (sizes.width as f64).sqrt();
        let scale_name = format!("{}.{}.embed_scale", names.model, names.embedding);
        let scale = |cx: &mut Context| cx.buffer(&scale_name, Shape::new(&[]), sizes.weights, root);
        let loads = all.loads();
        let made_scale = (sizes.style.gemma && !loads).then(|| scale(cx)).transpose()?;
        let norm_name = format!("{}.{}", names.model, names.norm);
        let early_norm = sizes.style.norms_made == NormsMade::BehindEach;
        let early_norm = early_norm.then(|| norm(cx, all, &norm_name, sizes)).transpose()?;
        let mut layers: Vec<DecoderLayer> =
            (0..sizes.layers).map(|layer| DecoderLayer::make(cx, all, layer, sizes)).collect::<OpResult<_>>()?;
        let mut made = None;
        if rotates && !loads && sizes.style.norms_made == NormsMade::VeryLast {
            made = Some(rotary::frequencies(cx, sizes)?);
        }
        let norm = early_norm.map_or_else(|| norm(cx, all, &norm_name, sizes), Ok)?;
        if rotates && !loads {
            if made.is_none() {
                made = Some(rotary::frequencies(cx, sizes)?);
            }
            rotary::initialise(cx, sizes)?;
        }
        let head_bias = sizes.style.head_bias;
        let head = if sizes.tied {
            // PyTorch first makes the head with a weight of its own.
            let own = || all.unused(cx, "lm_head.weight", &[sizes.vocab, sizes.width]);
            let own = (!loads).then(own).transpose()?;
            let head = if splits { Linear::gathered(cx, "lm_head", table) } else { Linear::tied(cx, "lm_head", table) };
            let head = if head_bias { head.biased(cx, all, "lm_head", sizes.vocab)? } else { head };
            drop(own);
            head
        } else {
            let make = if head_bias { Linear::make } else { Linear::plain };
            make(cx, all, "lm_head", [sizes.width, sizes.vocab])?
        };
        let (frequencies, embedding_scale) = match loads {
            false => (made, made_scale),
            true => {
                all.load(cx)?;
                if let Some(tower) = &tower {
                    tower.loaded(cx)?;
                }
                let embedding_scale = sizes.style.gemma.then(|| scale(cx)).transpose()?;
                let frequencies = rotates.then(|| rotary::loaded(cx, sizes)).transpose()?;
                // Programs that shard keep everything in one type, and store the 4-bit bytes in that type too.
                let prepares =
                    sizes.lora.is_none_or(|lora| lora.prepare != Preparation::Nothing) && !cx.shards_parameters();
                if all.quantization().is_some() && prepares {
                    all.prepare_for_training(cx)?;
                }
                (frequencies, embedding_scale)
            }
        };
        if let Some(lora) = sizes.lora.and_then(|lora| lora.of_model(names.adapted)) {
            if let Some(tower) = &mut tower {
                tower.adapt(cx, all, lora)?;
            }
            for (number, layer) in layers.iter_mut().enumerate() {
                layer.adapt(cx, all, number, (sizes.style, lora))?;
            }
            if all.quantization().is_none() || !cx.shards_parameters() {
                all.widen_adapters(cx)?;
            }
            if all.quantization().is_some() && lora.prepare == Preparation::Trl && !cx.shards_parameters() {
                cx.convert(&embedding.1, DType::Bf16, &table_name)?;
                cx.convert(head.weight(), DType::Bf16, "lm_head.weight")?;
            }
        }
        let units = (0..sizes.layers).map(|layer| cx.unit(all.of_module(cx, &names.layer(layer)))).collect();
        let layers = layers.into_iter().map(Rc::new).collect();
        let DecoderSizes { caps, windows, padding, multipliers, unrotated, .. } = *sizes;
        let scope = cx.memory().name(names.model);
        let counts_mask = sizes.style.counts_mask;
        let embeddings = Embeddings {
            scope,
            tokens: embedding,
            positions,
            padding,
            splits,
            scale: embedding_scale,
            multipliers,
            counts_mask,
        };
        Ok(Self {
            scope,
            embeddings,
            embedding_norm,
            layers,
            units,
            norm,
            frequencies,
            tables: sizes.style.rotation.is_wide().then_some(DType::F32),
            head,
            tied: sizes.tied,
            logit_scale: sizes.logit_scale.or(multipliers.map(|multipliers| 1.0 / multipliers.logits)),
            caps,
            masks: MaskMaker::new(sizes),
            windows,
            unrotated,
            dropouts: sizes.dropouts,
            heads: sizes.heads,
            told: sizes.style.told,
        })
    }
}

impl DecoderModel {
    /// The output of the last norm.
    fn hidden(
        &self,
        cx: &mut Context,
        tokens: &Tensor,
        given: ForwardInputs<'_>,
        checkpointing: Checkpointing,
        caches: bool,
    ) -> OpResult<Tensor> {
        let embedded = self.embeddings.of_tokens(cx, tokens, checkpointing)?;
        let passing = LayerRun { checkpointing, caches, norm: Some(&self.norm) };
        self.through(cx, embedded, given, &(0..self.layers.len()), passing)
    }

    /// The output of some of the layers, and its norm.
    fn through(
        &self,
        cx: &mut Context,
        input: Tensor,
        given: ForwardInputs<'_>,
        layers: &Range<usize>,
        LayerRun { checkpointing, caches, norm: last }: LayerRun<'_>,
    ) -> OpResult<Tensor> {
        let dtype = input.dtype();
        let early =
            self.masks.within_another.then(|| cx.within(self.scope, |cx| self.masks.make(cx, given, dtype, caches)));
        let early = early.transpose()?;
        if let Some(norm) = &self.embedding_norm {
            return self.through_biased(
                cx,
                (input, norm),
                given,
                layers,
                LayerRun { checkpointing, caches, norm: last },
            );
        }
        let (positions, own_mask) = if self.embeddings.counts_mask {
            let counted = cx.within(self.scope, |cx| cx.positions_of_mask(given.mask, given.tokens))?;
            (counted.positions, Some(counted.mask))
        } else {
            (cx.within(self.scope, |cx| cx.positions(given.tokens[1]))?, None)
        };
        // Positions from a mask are computed before the attention mask, and looked up after it.
        let early = match (early, &own_mask) {
            (None, Some(mask)) => {
                let given = ForwardInputs { mask: Some(mask), ..given };
                Some(cx.within(self.scope, |cx| self.masks.make(cx, given, dtype, caches))?)
            }
            (early, _) => early,
        };
        let placed = self.embeddings.placed(cx, &input, &positions)?;
        let (mut x, placed) = match placed {
            Some([sum, placed]) => (sum, Some(placed)),
            None => (input.clone(), None),
        };
        let masks = match early {
            Some(masks) => masks,
            None => cx.within(self.scope, |cx| self.masks.make(cx, given, dtype, caches))?,
        };
        let late = self.embeddings.multipliers.filter(|multipliers| multipliers.late);
        if let Some(Multipliers { embedding, .. }) = late {
            x = cx.within(self.scope, |cx| cx.scale(&x, embedding, "scaled embedding"))?;
        }
        x = cx.within(self.scope, |cx| cx.dropout(&x, self.dropouts.embedding))?;
        let embedded = {
            let embedded = input;
            if self.dropouts.replaces || late.is_some() { x.clone() } else { embedded }
        };
        let dtype = self.tables.unwrap_or(dtype);
        let made = self.frequencies.as_ref().map(|made| cx.within(self.scope, |cx| made.tables(cx, &positions, dtype)));
        let tables = made.transpose()?;
        let returned = Rc::new(ReturnedWeights::default());
        for number in layers.clone() {
            let windowed = self.windows.has(number);
            let tables = tables.as_ref().map(|tables| tables.of(windowed).clone());
            let told = (self.told != PositionUse::Neither).then(|| positions.clone());
            let call = self.call(number, tables, (self.masks.of(&masks, number), caches), (told, &returned));
            x = self.run_layer(cx, &x, call, (number, checkpointing.of(number - layers.start)))?;
        }
        if let Some(norm) = last {
            x = norm.forward(cx, &x)?;
        }
        // Variables of the forward pass, which live until it returns.
        drop((embedded, positions, own_mask, placed, masks, tables));
        returned.end();
        Ok(x)
    }

    /// The same with a norm of the embeddings, and with a bias in place of positions (BLOOM).
    fn through_biased(
        &self,
        cx: &mut Context,
        (embedded, of_embeddings): (Tensor, &Norm),
        given: ForwardInputs<'_>,
        layers: &Range<usize>,
        LayerRun { checkpointing, caches, norm }: LayerRun<'_>,
    ) -> OpResult<Tensor> {
        let mut x = of_embeddings.forward(cx, &embedded)?;
        let dtype = x.dtype();
        let CountedBias { bias, mask } =
            cx.within(self.scope, |cx| cx.bias_of_positions(given.mask, (given.tokens, self.heads), dtype))?;
        let given = ForwardInputs { mask: Some(&mask), ..given };
        let masks = cx.within(self.scope, |cx| self.masks.make(cx, given, dtype, caches))?;
        let returned = Rc::new(ReturnedWeights::default());
        for number in layers.clone() {
            let (layer, mask) = (Rc::clone(&self.layers[number]), self.masks.of(&masks, number));
            let bias = Some(bias.clone());
            let seen = AttentionInputs { tables: None, rotates: false, mask, bias, caches, windowed: false };
            let call = Rc::new(Call { layer, seen, _positions: None, returned: Rc::clone(&returned) });
            x = self.run_layer(cx, &x, call, (number, checkpointing.of(number - layers.start)))?;
        }
        if let Some(norm) = norm {
            x = norm.forward(cx, &x)?;
        }
        // Variables of the forward pass, which live until it returns.
        drop((embedded, mask, bias, masks));
        returned.end();
        Ok(x)
    }

    /// The output of some of the layers for the output of an earlier stage, with layers called one by one: the model around them
    /// would add the embeddings of positions again, and apply dropout to the sum.
    fn through_layers_alone(
        &self,
        cx: &mut Context,
        batch: &Batch,
        layers: &Range<usize>,
        LayerRun { checkpointing, norm, .. }: LayerRun<'_>,
    ) -> OpResult<Tensor> {
        let mut x = batch.input.clone();
        let masked = batch.mask.is_some() || self.masks.is_eager(cx);
        let dtype = x.dtype();
        let masks =
            masked.then(|| cx.within(self.scope, |cx| self.masks.make(cx, ForwardInputs::of(batch), dtype, false)));
        let masks = masks.transpose()?.unwrap_or_default();
        for number in layers.clone() {
            let call = self.call(number, None, (self.masks.of(&masks, number), false), (None, &Rc::default()));
            x = self.run_layer(cx, &x, call, (number, checkpointing.of(number - layers.start)))?;
        }
        if let Some(norm) = norm {
            x = norm.forward(cx, &x)?;
        }
        drop(masks);
        Ok(x)
    }

    /// The call of a layer, which a checkpoint may run again.
    fn call(
        &self,
        number: usize,
        tables: Option<RotaryTables>,
        (mask, caches): (Option<Mask>, bool),
        (positions, returned): (Option<Tensor>, &Rc<ReturnedWeights>),
    ) -> Rc<dyn Repeatable> {
        let (windowed, rotates) = (self.windows.has(number), !self.unrotated.has(number));
        let seen = AttentionInputs { tables, rotates, mask, bias: None, caches, windowed };
        let returned = Rc::clone(returned);
        Rc::new(Call { layer: Rc::clone(&self.layers[number]), seen, _positions: positions, returned })
    }

    fn run_layer(
        &self,
        cx: &mut Context,
        x: &Tensor,
        call: Rc<dyn Repeatable>,
        (number, again): (usize, bool),
    ) -> OpResult<Tensor> {
        cx.unit_forward(
            self.units[number],
            x,
            |cx, x| if again { checkpoint(cx, &call, x) } else { call.forward(cx, x) },
        )
    }

    /// The loss without logits, fused with the head.
    fn fused_loss(&self, cx: &mut Context, hidden: &Tensor, labels: NextLabels<'_>) -> OpResult<Tensor> {
        if self.head.bias().is_some() {
            let text = "the fused loss of a head with a bias is not there; choose another --loss".to_owned();
            return Err(TrainError::Workload(text).into());
        }
        // The fused loss takes no factor on logits; the same factor on the hidden states is equivalent.
        let hidden = match self.logit_scale {
            Some(scale) => &cx.scale(hidden, scale, "scaled hidden values")?,
            None => hidden,
        };
        self.head.fused_loss(cx, hidden, labels, self.caps.logits)
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
        let hidden = self.hidden(cx, tokens, ForwardInputs::whole(tokens), checkpointing, false)?;
        self.logits(cx, &hidden)
    }

    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: Checkpointing) -> OpResult<(Tensor, Tensor)> {
        // A single checkpointed layer makes transformers turn the cache off.
        let caches = cx.uses_cache() && !checkpointing.is_on();
        let hidden = self.hidden(cx, &batch.input, ForwardInputs::of(batch), checkpointing, caches)?;
        if hidden.dtype() != self.head.dtype() && !cx.autocasts() && !cx.shards_parameters() {
            let (head, given) = (self.head.dtype().label(), hidden.dtype().label());
            let text = format!(
                "the head is in {head} and is given {given}, which autocast alone makes one type; use --amp bf16"
            );
            return Err(TrainError::Workload(text).into());
        }
        let labels = NextLabels { labels: &batch.target, lengths: batch.lengths.as_deref() };
        if cx.loss_head().is_fused() {
            let loss = self.fused_loss(cx, &hidden, labels)?;
            let [loss, _] = cx.leave_model(loss)?;
            return Ok((loss.detach(), loss));
        }
        let logits = self.logits(cx, &hidden)?;
        // A loss outside of the model is computed after the model has returned.
        let hidden = Some(hidden).filter(|_| cx.loss_head().is_within_model());
        let loss = cx.loss_of_next(&logits, labels)?;
        drop(hidden);
        let [loss, _] = cx.leave_model(loss)?;
        Ok((logits, loss))
    }

    /// A stage is the model of transformers without the modules of other stages: it is called with tokens, or with the output of
    /// the stage before as embeddings (`inputs_embeds=`). If positions are learned, the stages after the first call the layers
    /// directly.
    fn stage_forward(
        &self,
        cx: &mut Context,
        batch: &Batch,
        part: &StagePart,
        checkpointing: Checkpointing,
    ) -> OpResult<Tensor> {
        let input = &batch.input;
        let norm = part.last.then_some(&self.norm);
        let passing = LayerRun { checkpointing, caches: false, norm };
        let hidden = if self.embeddings.positions.is_some() && !part.first {
            self.through_layers_alone(cx, batch, &part.units, passing)?
        } else {
            let embedded =
                if part.first { self.embeddings.of_tokens(cx, input, checkpointing)? } else { input.clone() };
            self.through(cx, embedded, ForwardInputs::of(batch), &part.units, passing)?
        };
        // The head belongs to a fused loss.
        if part.last && !cx.loss_head().is_fused() { self.logits(cx, &hidden) } else { Ok(hidden) }
    }

    /// `None` for models that do more with embeddings: every stage would repeat that on its input.
    fn cut(&self) -> Option<Cut> {
        let plain = self.embeddings.multipliers.is_none()
            && !self.embeddings.counts_mask
            && self.embedding_norm.is_none()
            && (self.dropouts.embedding == 0.0 || self.embeddings.positions.is_some());
        plain.then_some(Cut::Reduced { tied: self.tied })
    }

    fn unit_kind(&self, unit: usize) -> usize {
        2 * usize::from(self.windows.has(unit)) + usize::from(self.unrotated.has(unit))
    }

    fn keep_part(&self, cx: &mut Context, part: &StagePart) {
        let embeds = part.first || self.tied && part.last;
        if let Some(scale) = self.embeddings.scale.as_ref().filter(|_| !embeds) {
            cx.let_go(scale);
        }
    }

    fn stage_input(&self, tokens: &Tensor) -> Option<(Shape, DType)> {
        let table = &self.embeddings.tokens.1;
        tokens.shape().with_appended(table.shape().last()).map(|shape| (shape, table.dtype()))
    }

    fn stage_loss(&self, cx: &mut Context, output: &Tensor, batch: &Batch) -> OpResult<Tensor> {
        let labels = NextLabels { labels: &batch.target, lengths: batch.lengths.as_deref() };
        if cx.loss_head().is_fused() {
            return self.fused_loss(cx, output, labels);
        }
        cx.loss_of_next(output, labels)
    }
}
