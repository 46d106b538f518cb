//! A layer of a decoder, with the variables of transformers' own, which keep their tensors alive as long.

use std::rc::Rc;

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Shape, Tensor};

use super::super::llama::Norm;
use super::super::lora::Lora;
use super::super::parameters::Parameters;
use super::attention::Attention;
use super::attention_inputs::{AttentionInputs, ReturnedWeights};
use super::mlp::Mlp;
use super::sizes::{DecoderSizes, DropoutPlace};
use super::style::{LayerLocals, NormPlaces, NormsMade, Style};

/// A norm of the residual stream.
pub(super) fn norm(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Norm> {
    Norm::make(cx, all, name, sizes.width, (sizes.style.norm, sizes.eps))
}

/// Attention and an MLP, each beside a residual connection.
pub(super) struct DecoderLayer {
    scope: NameId,
    attention: Attention,
    mlp: Mlp,
    /// Before attention and the MLP, which run side by side.
    once: Option<Norm>,
    /// Before attention and before the MLP.
    before: Option<[Norm; 2]>,
    /// After attention and after the MLP.
    behind: Option<[Norm; 2]>,
    /// The factor on what attention and the MLP add, if there is one.
    multiplier: Option<f64>,
    /// The MLP gets the layer's input, not the output of attention.
    beside: bool,
    /// The outputs of attention and MLP are added to each other first.
    pairs: bool,
    /// The output of attention is added to that of the MLP in place.
    in_place: bool,
    /// Attention and MLP add to the residual stream themselves.
    onto: bool,
    /// The shares that dropout leaves out of the outputs of attention and MLP.
    dropouts: [f64; 2],
    /// Which tensors live to the end of the layer.
    kept: LayerLocals,
    /// The MLP is no module of its own: no variable holds its input.
    inline: bool,
}

impl DecoderLayer {
    pub fn make(cx: &mut Context, all: &mut Parameters, number: usize, sizes: &DecoderSizes) -> OpResult<Self> {
        let name = sizes.style.names.layer(number);
        let names = sizes.style.names;
        let one = |cx: &mut Context, all: &mut Parameters, part: &str| norm(cx, all, &format!("{name}.{part}"), sizes);
        let pair = |cx: &mut Context, all: &mut Parameters| {
            let [first, second] = names.norms;
            OpResult::Ok([one(cx, all, first)?, one(cx, all, second)?])
        };
        let made = sizes.style.norms_made;
        let early = matches!(made, NormsMade::First | NormsMade::BeforeMlp).then(|| pair(cx, all)).transpose()?;
        let behind_attention = names.mlp_of(&name);
        let mlp = |cx: &mut Context, all: &mut Parameters| Mlp::make(cx, all, &behind_attention, number, sizes);
        let made_first = (made == NormsMade::BeforeMlp).then(|| mlp(cx, all)).transpose()?;
        let first = (made == NormsMade::InTurn).then(|| one(cx, all, names.norms[0])).transpose()?;
        let attention = Attention::make(cx, all, &format!("{name}.{}", names.attention), sizes)?;
        let behind_each = (made == NormsMade::BehindEach).then(|| one(cx, all, names.norms[0])).transpose()?;
        let in_turn = first.map(|first| OpResult::Ok([first, one(cx, all, names.norms[1])?])).transpose()?;
        let between = (made == NormsMade::Between).then(|| pair(cx, all)).transpose()?;
        let early = early.or(in_turn).or(between);
        let mlp = made_first.map_or_else(|| mlp(cx, all), Ok)?;
        let behind_each = behind_each.map(|first| OpResult::Ok([first, one(cx, all, names.norms[1])?])).transpose()?;
        let early = early.or(behind_each);
        let late = match sizes.style.places {
            NormPlaces::Before | NormPlaces::Beside | NormPlaces::BothInPlace if early.is_none() => {
                Some(pair(cx, all)?)
            }
            _ => None,
        };
        let mut norm = |part: &str| norm(cx, all, &format!("{name}.{part}"), sizes);
        let mut once = None;
        let (before, behind) = match sizes.style.places {
            NormPlaces::Once | NormPlaces::OncePaired | NormPlaces::OnceInPlace => {
                once = Some(norm("input_layernorm")?);
                (None, None)
            }
            NormPlaces::Before | NormPlaces::Beside | NormPlaces::BothInPlace => (early.or(late), None),
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
        let pairs = sizes.style.places == NormPlaces::OncePaired;
        let in_place = matches!(sizes.style.places, NormPlaces::OnceInPlace | NormPlaces::BothInPlace);
        let dropouts = match (sizes.dropouts.place, sizes.dropouts.residual) {
            (DropoutPlace::Within, _) => [0.0; 2],
            (DropoutPlace::Behind, share) => [share; 2],
            (DropoutPlace::BehindMlp, share) => [0.0, share],
        };
        let kept = sizes.style.kept;
        Ok(Self {
            scope: cx.memory().name(&name),
            attention,
            mlp,
            once,
            before,
            behind,
            multiplier,
            beside,
            pairs,
            in_place,
            onto: sizes.style.alibi,
            dropouts,
            kept,
            inline: names.mlp_of_layer.is_empty(),
        })
    }

    /// Puts adapters on its linear layers, in the layer's order.
    pub fn adapt(
        &mut self,
        cx: &mut Context,
        all: &mut Parameters,
        number: usize,
        (style, lora): (Style, Lora),
    ) -> OpResult<()> {
        let name = style.names.layer(number);
        let mlp = style.names.mlp_of(&name);
        let first = style.norms_made == NormsMade::BeforeMlp;
        if first {
            self.mlp.adapt(cx, all, &mlp, lora)?;
        }
        self.attention.adapt(cx, all, &format!("{name}.{}", style.names.attention), lora)?;
        if first { Ok(()) } else { self.mlp.adapt(cx, all, &mlp, lora) }
    }

    /// The output of a part of the layer after dropout.
    fn dropped(&self, cx: &mut Context, made: Tensor, share: f64) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.dropout(&made, share))
    }

    /// The residual stream plus the output of a part of the layer.
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

/// One call of a layer; it holds its arguments as long as a checkpoint may run it again.
pub(super) struct Call {
    pub layer: Rc<DecoderLayer>,
    pub seen: AttentionInputs,
    /// Passed to every layer, and never read.
    pub _positions: Option<Tensor>,
    /// Where the model holds what the layer returns beside its output.
    pub returned: Rc<ReturnedWeights>,
}

impl Call {
    /// Attention and MLP side by side after one norm or one each, as in Falcon: `mlp += attention`.
    fn summed_in_place(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let DecoderLayer { scope, attention, mlp, once, before, dropouts: [_, share], .. } = &*self.layer;
        let [of_attention, of_mlp] = match (once, before) {
            (_, Some([first, second])) => [first.forward(cx, input)?, second.forward(cx, input)?],
            (Some(once), None) => {
                let normalised = once.forward(cx, input)?;
                [normalised.clone(), normalised]
            }
            (None, None) => [input.clone(), input.clone()],
        };
        let (attended, weights) = attention.forward(cx, &of_attention, &self.seen)?;
        let (y, _) = mlp.forward(cx, of_mlp.clone())?;
        let sum = cx.within(*scope, |cx| cx.add_in_place(y, &attended))?;
        let dropped = self.layer.dropped(cx, sum.clone(), *share)?;
        let output = self.layer.add(cx, input, &dropped)?;
        cx.put_out(*scope, &output);
        drop((of_attention, of_mlp, attended, sum));
        self.keep(cx, weights);
        Ok(output)
    }
}

impl Call {
    /// Returns the weights to the model.
    fn keep(&self, cx: &mut Context, weights: Option<Tensor>) {
        if let Some(weights) = &weights {
            cx.returns_beside(weights);
        }
        self.returned.replace(weights);
    }

    /// Attention, then the MLP, each of which adds to the residual stream within its own function, as in BLOOM.
    fn added_within(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let DecoderLayer { scope, attention, mlp, before, dropouts: [of_attention, of_mlp], .. } = &*self.layer;
        let Some([first, second]) = before else { return Ok(input.clone()) };
        let mut normalised = first.forward(cx, input)?;
        let (x, weights) = attention.forward_onto(cx, [&normalised, input], &self.seen, *of_attention)?;
        normalised = second.forward(cx, &x)?;
        let output = {
            let (y, _activated) = mlp.forward(cx, normalised.clone())?;
            let dropped = self.layer.dropped(cx, y.clone(), *of_mlp)?;
            self.layer.add(cx, &x, &dropped)?
        };
        cx.put_out(*scope, &output);
        drop((normalised, x));
        self.keep(cx, Some(weights));
        Ok(output)
    }
}

impl Repeatable for Call {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let DecoderLayer { scope, attention, mlp, once, before, behind, beside, pairs, kept, dropouts, .. } =
            &*self.layer;
        let [of_attention, of_mlp] = *dropouts;
        if self.layer.in_place {
            return self.summed_in_place(cx, input);
        }
        if self.layer.onto {
            return self.added_within(cx, input);
        }
        let keeps_attention = *kept == LayerLocals::AttentionOutput;
        if let Some(once) = once {
            let normalised = once.forward(cx, input)?;
            let (attended, weights) = attention.forward(cx, &normalised, &self.seen)?;
            let attended = self.layer.dropped(cx, attended, of_attention)?;
            let (y, _) = mlp.forward(cx, normalised.clone())?;
            let y = self.layer.dropped(cx, y, of_mlp)?;
            let output = if *pairs {
                let both = self.layer.add(cx, &attended, &y)?;
                self.layer.add(cx, &both, input)?
            } else {
                let x = self.layer.add(cx, input, &attended)?;
                self.layer.add(cx, &x, &y)?
            };
            cx.put_out(*scope, &output);
            drop(weights);
            return Ok(output);
        }
        let [before_attention, before_mlp] = before.as_ref().map_or([None; 2], |before| before.each_ref().map(Some));
        let [behind_attention, behind_mlp] = behind.as_ref().map_or([None; 2], |behind| behind.each_ref().map(Some));
        if let ([Some(before_attention), Some(before_mlp)], true) = ([before_attention, before_mlp], *beside) {
            let (attended, weights) = {
                let normalised = before_attention.forward(cx, input)?;
                attention.forward(cx, &normalised, &self.seen)?
            };
            let attended = self.layer.dropped(cx, attended, of_attention)?;
            let (y, _) = {
                let normalised = before_mlp.forward(cx, input)?;
                mlp.forward(cx, normalised.clone())?
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
        // The input of a norm is freed after it.
        let then = |cx: &mut Context, norm: Option<&Norm>, made: Tensor| match norm {
            Some(norm) => norm.forward(cx, &made),
            None => Ok(made),
        };
        let (x, mut weights, kept_of_attention) = {
            let (attended, weights, normalised) = {
                let normalised = first(cx, before_attention, input)?;
                let (attended, weights) = attention.forward(cx, &normalised, &self.seen)?;
                (attended, weights, kept.outputs().then_some(normalised))
            };
            let attended = self.layer.dropped(cx, attended, of_attention)?;
            let attended = then(cx, behind_attention, attended)?;
            let x = self.layer.add(cx, input, &attended)?;
            let normalised = normalised.filter(|_| *kept == LayerLocals::Attention);
            (x, weights, kept.outputs().then_some((normalised, attended)))
        };
        // If the MLP is no module of its own, it works on rows, and so does the addition (OPT).
        let of_layer = x.shape();
        let x = if self.layer.inline { cx.view(&x, Shape::new(&[of_layer.rows(), of_layer.last()])) } else { x };
        let (output, _kept_too) = {
            let ((y, beside), _normalised) = {
                let normalised = first(cx, before_mlp, &x)?;
                let held = (!self.layer.inline).then(|| normalised.clone());
                (mlp.forward(cx, normalised)?, held.filter(|_| *kept == LayerLocals::Outputs))
            };
            // The MLP's extra output takes over the variable of attention's.
            weights = beside.or(weights);
            let y = self.layer.dropped(cx, y, of_mlp)?;
            let y = then(cx, behind_mlp, y)?;
            (self.layer.add(cx, &x, &y)?, (*kept == LayerLocals::Outputs).then_some(y))
        };
        let output = if self.layer.inline { cx.view(&output, of_layer) } else { output };
        cx.put_out(*scope, &output);
        if keeps_attention {
            drop((x, kept_of_attention, weights));
        } else {
            drop(weights);
        }
        Ok(output)
    }
}
