//! The modules of a decoder and its forward pass, with the variables of transformers' own, which keep their tensors alive as long.

use std::ops::Range;
use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, Checkpointing, Context, CountedBias, Cut, MaskShape, Model, NextLabels, OpResult, Repeatable, RotaryTables,
    Shape, StagePart, Tensor, TrainError, checkpoint,
};

use super::super::llama::Norm;
use super::super::lora::Lora;
use super::super::modules::Linear;
use super::super::parameters::Parameters;
use super::super::quantization::Preparation;
use super::attention_inputs::{AttentionInputs, Mask, ReturnedWeights};
use super::layer::{Call, DecoderLayer, norm};
use super::opt::OptKeys;
use super::pattern::LayerPattern;
use super::rotary::{self, Frequencies};
use super::sizes::{DecoderSizes, Dropouts, Multipliers, SlidingWindows, SoftCaps};
use super::style::{LayerFusion, NormsMade, PositionUse, Rotation};
use super::tower::Tower;

/// Inputs of a forward pass besides the tokens.
#[derive(Clone, Copy)]
struct ForwardInputs<'a> {
    /// Samples, and tokens per sample.
    tokens: [usize; 2],
    /// The program's mask of padding, if it passes one.
    mask: Option<&'a Tensor>,
    /// Whether there is padding.
    pads: bool,
}

impl<'a> ForwardInputs<'a> {
    /// Tokens, or hidden states, without padding.
    fn whole(batch: &Tensor) -> Self {
        let dims = batch.shape();
        let [samples, tokens] = [0, 1].map(|dim| dims.dims().get(dim).copied().unwrap_or(1));
        Self { tokens: [samples, tokens], mask: None, pads: false }
    }

    /// A batch and its padding.
    fn of(batch: &'a Batch) -> Self {
        Self { mask: batch.mask.as_ref(), pads: batch.lengths.is_some(), ..Self::whole(&batch.input) }
    }
}

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
    embedding: (NameId, Tensor),
    /// The norm of embeddings (BLOOM).
    embedding_norm: Option<Norm>,
    /// The table of positions, if they are learned.
    positions: Option<(NameId, Tensor)>,
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
    /// Each rank has some rows of that weight.
    splits: bool,
    /// The factor on embeddings, if there is one.
    embedding_scale: Option<Tensor>,
    multipliers: Option<Multipliers>,
    /// The factor on logits.
    logit_scale: Option<f64>,
    padding: Option<usize>,
    caps: SoftCaps,
    windows: SlidingWindows,
    unrotated: LayerPattern,
    dropouts: Dropouts,
    /// Attention is always eager.
    eager: bool,
    /// Heads of queries.
    heads: usize,
    /// What else gets the positions.
    told: PositionUse,
    /// Positions are computed from a mask.
    counts_mask: bool,
    /// SDPA always gets a mask.
    always_masks: bool,
    /// The model is part of a larger one, which makes the masks before there are positions.
    within_another: bool,
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
        if let Some(lora) = sizes.lora {
            let own = if sizes.style.packing == LayerFusion::All { &[names.projections] } else { names.adapted };
            let lora = Lora { targets: lora.targets.of_model(own), ..lora };
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
        let within_another = sizes.tower.is_some_and(|tower| tower.kind.makes_masks());
        let DecoderSizes { caps, windows, padding, multipliers, unrotated, .. } = *sizes;
        Ok(Self {
            scope: cx.memory().name(names.model),
            embedding,
            embedding_norm,
            positions,
            layers,
            units,
            norm,
            frequencies,
            tables: sizes.style.rotation.is_wide().then_some(DType::F32),
            head,
            tied: sizes.tied,
            splits,
            embedding_scale,
            multipliers,
            logit_scale: sizes.logit_scale.or(multipliers.map(|multipliers| 1.0 / multipliers.logits)),
            padding,
            caps,
            windows,
            unrotated,
            dropouts: sizes.dropouts,
            eager: sizes.style.sinks || sizes.style.alibi,
            heads: sizes.heads,
            told: sizes.style.told,
            counts_mask: sizes.style.counts_mask,
            always_masks: sizes.style.always_masks,
            within_another,
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
        let embedded = self.embedded(cx, tokens, checkpointing)?;
        let passing = LayerRun { checkpointing, caches, norm: Some(&self.norm) };
        self.through(cx, embedded, given, &(0..self.layers.len()), passing)
    }

    /// The input of the layers.
    fn embedded(&self, cx: &mut Context, tokens: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        let (scope, table) = &self.embedding;
        let scaled = |cx: &mut Context, embedded: Tensor| {
            let Some(factor) = &self.embedding_scale else { return Ok(embedded) };
            let dtype = embedded.dtype();
            let factor = if factor.dtype() == dtype { factor } else { &cx.cast(factor, dtype, "embed_scale")? };
            cx.multiply(&embedded, factor, "scaled embedding")
        };
        let embedded = if self.splits {
            let look_up = |cx: &mut Context| cx.split_embedding(table, tokens, scaled);
            cx.module(*scope, |cx| cx.with_parameters([table], look_up))?
        } else {
            let look_up = |cx: &mut Context| cx.padded_embedding(table, tokens, self.padding);
            let embedded = cx.module(*scope, |cx| cx.with_parameters([table], look_up))?;
            cx.within(*scope, |cx| scaled(cx, embedded))?
        };
        // A hook on a frozen embedding (`enable_input_require_grads`): a checkpoint only recomputes tensors that get gradients.
        let mut embedded = embedded;
        if checkpointing.is_on() {
            embedded = cx.want_gradient(&embedded);
        }
        if let Some(Multipliers { embedding, late: false, .. }) = self.multipliers {
            embedded = cx.within(self.scope, |cx| cx.scale(&embedded, embedding, "scaled embedding"))?;
        }
        Ok(embedded)
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
        let early = self.within_another.then(|| cx.within(self.scope, |cx| self.masks(cx, given, dtype, caches)));
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
        let (positions, own_mask) = if self.counts_mask {
            let counted = cx.within(self.scope, |cx| cx.positions_of_mask(given.mask, given.tokens))?;
            (counted.positions, Some(counted.mask))
        } else {
            (cx.within(self.scope, |cx| cx.positions(given.tokens[1]))?, None)
        };
        // Positions from a mask are computed before the attention mask, and looked up after it.
        let early = match (early, &own_mask) {
            (None, Some(mask)) => {
                let given = ForwardInputs { mask: Some(mask), ..given };
                Some(cx.within(self.scope, |cx| self.masks(cx, given, dtype, caches))?)
            }
            (early, _) => early,
        };
        let placed = self.positions.as_ref().map(|table| self.placed(cx, &input, table, &positions)).transpose()?;
        let (mut x, placed) = match placed {
            Some([sum, placed]) => (sum, Some(placed)),
            None => (input.clone(), None),
        };
        let masks = match early {
            Some(masks) => masks,
            None => cx.within(self.scope, |cx| self.masks(cx, given, dtype, caches))?,
        };
        let late = self.multipliers.filter(|multipliers| multipliers.late);
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
            let call = self.call(number, tables, (self.mask_of(&masks, number), caches), (told, &returned));
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
        let masks = cx.within(self.scope, |cx| self.masks(cx, given, dtype, caches))?;
        let returned = Rc::new(ReturnedWeights::default());
        for number in layers.clone() {
            let (layer, mask) = (Rc::clone(&self.layers[number]), self.mask_of(&masks, number));
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
        let masked = batch.mask.is_some() || self.eager || cx.attends_eagerly();
        let dtype = x.dtype();
        let masks = masked.then(|| cx.within(self.scope, |cx| self.masks(cx, ForwardInputs::of(batch), dtype, false)));
        let masks = masks.transpose()?.unwrap_or_default();
        for number in layers.clone() {
            let call = self.call(number, None, (self.mask_of(&masks, number), false), (None, &Rc::default()));
            x = self.run_layer(cx, &x, call, (number, checkpointing.of(number - layers.start)))?;
        }
        if let Some(norm) = norm {
            x = norm.forward(cx, &x)?;
        }
        drop(masks);
        Ok(x)
    }

    fn mask_of(&self, masks: &[(Option<usize>, Mask)], layer: usize) -> Option<Mask> {
        masks.iter().find(|(window, _)| *window == self.windows.of(layer)).map(|(_, mask)| mask.clone())
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

    /// Embeddings of tokens plus those of their positions, and the latter.
    fn placed(
        &self,
        cx: &mut Context,
        embedded: &Tensor,
        (scope, table): &(NameId, Tensor),
        positions: &Tensor,
    ) -> OpResult<[Tensor; 2]> {
        if self.counts_mask {
            let look_up = |cx: &mut Context| {
                let rows = cx.shifted_positions(positions, OptKeys::BEFORE)?;
                cx.with_parameters([table], |cx| cx.embedding(table, &rows))
            };
            let placed = cx.module(*scope, look_up)?;
            return Ok([cx.within(self.scope, |cx| cx.add(embedded, &placed))?, placed]);
        }
        // The embeddings of positions are a batch of one: the gradient of a single sample is theirs unchanged.
        let single = embedded.shape().dims().first() == Some(&1);
        let row = positions.window(Shape::new(&[1, positions.numel()]), 0);
        let positions = if single { &row } else { positions };
        let look_up = |cx: &mut Context| cx.embedding(table, positions);
        let placed = cx.module(*scope, |cx| cx.with_parameters([table], look_up))?;
        Ok([cx.within(self.scope, |cx| cx.add(embedded, &placed))?, placed])
    }

    /// The masks of the layers by window: `None` if SDPA needs none.
    fn masks(
        &self,
        cx: &mut Context,
        ForwardInputs { tokens: [batch, rows], mask, pads }: ForwardInputs<'_>,
        dtype: DType,
        caches: bool,
    ) -> OpResult<Vec<(Option<usize>, Mask)>> {
        let mut masks = Vec::new();
        for window in self.windows.kinds() {
            let with_token = mask.map(|mask| cx.boolean_mask(mask)).transpose()?;
            if !caches && mask.is_none() && self.told == PositionUse::Both && !self.within_another {
                cx.find_sequences([batch, rows])?;
            }
            let shape = MaskShape { batch, rows, window, padding: mask.is_some() };
            if self.eager || cx.attends_eagerly() {
                masks.push((window, Mask::Added(cx.attention_mask(shape, dtype)?)));
                continue;
            }
            let mut needed = self.always_masks || window.is_some_and(|window| window <= rows);
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
        let hidden = if self.positions.is_some() && !part.first {
            self.through_layers_alone(cx, batch, &part.units, passing)?
        } else {
            let embedded = if part.first { self.embedded(cx, input, checkpointing)? } else { input.clone() };
            self.through(cx, embedded, ForwardInputs::of(batch), &part.units, passing)?
        };
        // The head belongs to a fused loss.
        if part.last && !cx.loss_head().is_fused() { self.logits(cx, &hidden) } else { Ok(hidden) }
    }

    /// `None` for models that do more with embeddings: every stage would repeat that on its input.
    fn cut(&self) -> Option<Cut> {
        let plain = self.multipliers.is_none()
            && !self.counts_mask
            && self.embedding_norm.is_none()
            && (self.dropouts.embedding == 0.0 || self.positions.is_some());
        plain.then_some(Cut::Reduced { tied: self.tied })
    }

    fn unit_kind(&self, unit: usize) -> usize {
        2 * usize::from(self.windows.has(unit)) + usize::from(self.unrotated.has(unit))
    }

    fn keep_part(&self, cx: &mut Context, part: &StagePart) {
        let embeds = part.first || self.tied && part.last;
        if let Some(scale) = self.embedding_scale.as_ref().filter(|_| !embeds) {
            cx.let_go(scale);
        }
    }

    fn stage_input(&self, tokens: &Tensor) -> Option<(Shape, DType)> {
        let table = &self.embedding.1;
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
