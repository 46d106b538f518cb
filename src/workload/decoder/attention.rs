//! Attention of one layer: its projections, norms, rotation and mask.

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    BiasedAttention, Context, EagerScores, OpResult, PositionCount, PositionScale, Repeatable, RotaryTables,
    SideBySide, Tensor, Turn,
};

use super::super::llama::{Norm, NormKind};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::attention_inputs::{AttentionInputs, Mask};
use super::head_norms::NormsOfHeads;
use super::latent::LatentProjections;
use super::names::Names;
use super::projections::{Parts, Projections};
use super::sizes::{DecoderSizes, DropoutPlace, Dropouts};
use super::style::{Biases, HeadNorms, LayerFusion, LayerLocals, NormPlaces, Rotation};

/// When queries and keys are normalised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NormOrder {
    /// The heads of each right after its own projection.
    OneByOne,
    /// The heads of both after values are projected too (Gemma 3).
    Projected,
    /// The heads of both after all projections, each a view of its projection (Phi).
    Viewed,
    /// Both as a whole, or not at all; the heads are separated after values are projected too (OLMo, StableLM).
    Whole,
    /// The heads of both after the rotation (Hunyuan), if there is one.
    Turned,
}

/// Attention with queries and keys rotated by position; keys and values may serve several heads of queries.
pub(super) struct Attention {
    scope: NameId,
    projections: Projections,
    output: Adaptable,
    /// The sinks: one more logit for each head, if there are any.
    sinks: Option<Tensor>,
    /// The norms of queries and of keys.
    norms: Option<[Norm; 2]>,
    /// The norms of heads of queries and of keys with a weight for each head.
    apart: Option<[NormsOfHeads; 2]>,
    /// When queries and keys are normalised.
    order: NormOrder,
    rotation: Rotation,
    head_size: usize,
    /// The factor on products of queries and keys.
    scale: f64,
    /// The factor on queries before those products.
    query_scale: Option<f64>,
    /// The bound on queries, keys and values.
    clip: Option<f64>,
    /// The bound on eager scores.
    cap: Option<f64>,
    /// How queries are scaled by position.
    grows: Option<PositionScale>,
    /// The shares that dropout leaves out of weights and output.
    dropouts: Dropouts,
    names: Names,
    /// Cut and rotated tensors live to the end of the forward.
    keeps: bool,
    /// The softmax of eager attention runs in the type of the scores.
    plain: bool,
}

impl Attention {
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, sizes: &DecoderSizes) -> OpResult<Self> {
        let DecoderSizes { width, heads, kv_heads, head_size, style, .. } = *sizes;
        if let Some(latent) = sizes.latent {
            let projections = Projections::Latent(Box::new(LatentProjections::make(cx, all, name, sizes, latent)?));
            let make = if style.biases == Biases::All { Adaptable::biased } else { Adaptable::plain };
            let output = make(cx, all, &format!("{name}.o_proj"), [heads * latent.value, width])?;
            return Ok(Self::of(cx, name, sizes, projections, output, None));
        }
        let place = style.sinks.then(|| all.reserve());
        let biased = style.biases != Biases::None;
        let joined = match style.packing {
            LayerFusion::All => Some(Projections::packed(cx, all, name, sizes)?),
            LayerFusion::Heads | LayerFusion::Selected | LayerFusion::Thirds | LayerFusion::Groups => {
                Some(Projections::side_by_side(cx, all, name, sizes)?)
            }
            LayerFusion::None | LayerFusion::Gates => None,
        };
        if let Some((projections, output)) = joined {
            return Ok(Self::of(cx, name, sizes, projections, output, None));
        }
        let mut projection = |cx: &mut Context, part: &str, ends: [usize; 2], biased: bool| {
            let make = if biased { Adaptable::biased } else { Adaptable::plain };
            make(cx, all, &format!("{name}.{part}"), ends)
        };
        let mut input =
            |cx: &mut Context, part: &str, heads: usize| projection(cx, part, [width, heads * head_size], biased);
        let mut each = [(Target::Query, heads), (Target::Key, kv_heads), (Target::Value, kv_heads)]
            .map(|(target, heads)| (target.word(), heads));
        if style.scales_queries {
            each.rotate_left(1);
        }
        let [first, second, third] = each;
        let mut made = [input(cx, first.0, first.1)?, input(cx, second.0, second.1)?, input(cx, third.0, third.1)?];
        if style.scales_queries {
            made.rotate_right(1);
        }
        let projections = Projections::Apart(Box::new(made));
        let output =
            projection(cx, style.names.output.word(), [heads * head_size, width], style.biases == Biases::All)?;
        let sinks = place.map(|place| all.weight_in(place, cx, &format!("{name}.sinks"), &[heads])).transpose()?;
        let mut norm = |part: &str, heads: usize| {
            let width = if style.heads == HeadNorms::Together { heads * head_size } else { head_size };
            let kinds = (style.norm, sizes.eps);
            if style.norm == NormKind::Unbiased {
                return Norm::of_heads(cx, all, &format!("{name}.{part}"), [heads, head_size], kinds);
            }
            Norm::make(cx, all, &format!("{name}.{part}"), width, kinds)
        };
        let [of_queries, of_keys] = style.names.head_norms;
        let norms = match style.heads {
            HeadNorms::None | HeadNorms::Apart => None,
            HeadNorms::TurnedSquare => {
                let mut norm =
                    || Norm::make(cx, all, &format!("{name}.qk_norm"), head_size, (NormKind::Square, sizes.eps));
                Some([norm()?, norm()?])
            }
            HeadNorms::Each | HeadNorms::EachBehindValues | HeadNorms::Together | HeadNorms::Turned => {
                Some([norm(of_queries, heads)?, norm(of_keys, kv_heads)?])
            }
        };
        let norms = norms.map(|norms| norms.map(|norm| norm.of_split_heads(all.splits() && style.plan.norms)));
        let mut of_heads = |part: &str, heads| {
            NormsOfHeads::make(cx, all, &format!("{name}.{part}_layernorm"), [heads, head_size], sizes.eps)
        };
        let apart = match style.heads {
            HeadNorms::Apart => Some([of_heads("q", heads)?, of_heads("k", kv_heads)?]),
            _ => None,
        };
        Ok(Self { sinks, apart, ..Self::of(cx, name, sizes, projections, output, norms) })
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
        let query_scale = style.scales_queries.then_some(scale);
        let scale = if style.scales_queries { 1.0 } else { scale };
        let cap = sizes.caps.scores;
        let order = match (style.heads, style.norm) {
            (HeadNorms::Together, _) | (_, NormKind::Bare) => NormOrder::Whole,
            (HeadNorms::Turned | HeadNorms::TurnedSquare, _) => NormOrder::Turned,
            (HeadNorms::EachBehindValues, _) => NormOrder::Projected,
            // The norm of a view has the view's layout.
            (HeadNorms::Each, _) if style.places == NormPlaces::Behind => NormOrder::Projected,
            _ if style.kept == LayerLocals::Attention => NormOrder::Whole,
            (HeadNorms::Each, NormKind::Layer) => NormOrder::Viewed,
            (_, NormKind::Centred | NormKind::Unbiased) => NormOrder::Projected,
            _ => NormOrder::OneByOne,
        };
        let scope = cx.memory().name(name);
        let (grows, dropouts) = (sizes.position_scale, sizes.dropouts);
        Self {
            scope,
            projections,
            output,
            sinks: None,
            norms,
            apart: None,
            order,
            rotation: style.rotation,
            head_size,
            scale,
            query_scale,
            clip: sizes.clip,
            cap,
            grows,
            dropouts,
            names: style.names,
            keeps: style.kept.rotated(),
            plain: style.narrow_softmax,
        }
    }

    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        let of_output = (&mut self.output, self.names, self.query_scale.is_some());
        self.projections.adapt(cx, all, name, lora, of_output)
    }

    /// Queries, keys and values (batch, heads, rows, head size), normalised if the model does that here, and the tensors with
    /// variables of their own, such as the one that all three were cut from.
    fn parts(&self, cx: &mut Context, input: &Tensor, seen: &AttentionInputs) -> OpResult<Parts> {
        let of_heads = (self.scope, self.head_size);
        self.projections.parts(cx, input, of_heads, seen, |cx, each| self.projected(cx, input, each))
    }

    /// The same from projections apart.
    fn projected(&self, cx: &mut Context, input: &Tensor, [q, k, v]: &[Adaptable; 3]) -> OpResult<[Tensor; 3]> {
        let by_head = |cx: &mut Context, projection: &Adaptable| {
            let made = projection.forward(cx, input)?;
            OpResult::Ok(cx.by_head_size(&made, self.head_size))
        };
        let Some([of_q, of_k]) = self.norms.as_ref().filter(|_| self.order != NormOrder::Turned) else {
            if self.order == NormOrder::Whole {
                let [q, k, v] = [q.forward(cx, input)?, k.forward(cx, input)?, v.forward(cx, input)?];
                let parts = [self.clipped(cx, q)?, self.clipped(cx, k)?, self.clipped(cx, v)?];
                let [q, k, v] = parts.map(|part| cx.by_head_size(&part, self.head_size));
                let Some([of_q, of_k]) = &self.apart else { return Ok([q, k, v]) };
                return Ok([of_q.forward(cx, q)?, of_k.forward(cx, k)?, v]);
            }
            let q = match self.query_scale {
                Some(scale) => {
                    let made = q.forward(cx, input)?;
                    let scaled = cx.within(self.scope, |cx| cx.scale(&made, scale, "scaled queries"))?;
                    drop(made);
                    cx.by_head_size(&scaled, self.head_size)
                }
                None => by_head(cx, q)?,
            };
            return Ok([q, by_head(cx, k)?, by_head(cx, v)?]);
        };
        let apart = |cx: &mut Context, projection: &Adaptable| {
            let made = projection.forward(cx, input)?;
            let told = SideBySide::default();
            OpResult::Ok((cx.heads_apart(&made, self.head_size, &told), told))
        };
        let normalised = |cx: &mut Context, norm: &Norm, (apart, told): (Tensor, SideBySide)| {
            let made = norm.forward(cx, &apart)?;
            drop(apart);
            OpResult::Ok(cx.by_head_size_told(&made, self.head_size, &told))
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
            NormOrder::Viewed => {
                let (q, k, v) = (by_head(cx, q)?, by_head(cx, k)?, by_head(cx, v)?);
                let viewed = |cx: &mut Context, norm: &Norm, heads: Tensor| norm.forward(cx, &heads);
                Ok([viewed(cx, of_q, q)?, viewed(cx, of_k, k)?, v])
            }
            NormOrder::Whole | NormOrder::Turned => {
                let whole = |cx: &mut Context, projection: &Adaptable, norm: &Norm| {
                    let made = projection.forward(cx, input)?;
                    norm.forward(cx, &made)
                };
                let parts = [whole(cx, q, of_q)?, whole(cx, k, of_k)?, v.forward(cx, input)?];
                Ok(parts.map(|part| cx.by_head_size(&part, self.head_size)))
            }
        }
    }

    fn clipped(&self, cx: &mut Context, part: Tensor) -> OpResult<Tensor> {
        #[expect(clippy::cast_possible_truncation, reason = "f32 as the kernel wants it")]
        let most = self.clip.map(|most| most as f32);
        match most {
            Some(most) => cx.within(self.scope, |cx| cx.clamp_in_place(part, most)),
            None => Ok(part),
        }
    }

    fn rotated(
        &self,
        cx: &mut Context,
        q: Tensor,
        k: Tensor,
        (tables, told): (&RotaryTables, &[SideBySide; 2]),
    ) -> OpResult<[Tensor; 2]> {
        match self.projections {
            Projections::Packed { .. } => return cx.rotary_with_rest([&q, &k], tables),
            Projections::Heads(_) => return cx.rotary_before_rest([&q, &k], tables, Turn::default()),
            Projections::Apart(_)
            | Projections::Selected(_)
            | Projections::Thirds(_)
            | Projections::Groups { .. }
            | Projections::Latent(_) => {}
        }
        let (turn, tables) = match self.rotation {
            Rotation::Neighbours => {
                let tables = cx.tables_of_neighbours(tables)?;
                return cx.rotary_before_rest([&q, &k], &tables, Turn { neighbours: true, widens: false });
            }
            Rotation::GivingWay => return cx.rotary_before_rest([&q, &k], tables, Turn::default()),
            Rotation::BeforeRest => return cx.rotary_with_parts([&q, &k], tables).map(|[whole, _parts]| whole),
            Rotation::WholeNeighbours => (Turn { neighbours: true, widens: false }, &cx.tables_of_neighbours(tables)?),
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
            Rotation::Complex => {
                let told = self.norms.is_some().then_some(told);
                return cx.rotary_of_whole_complex([q, k], tables, told);
            }
            Rotation::Halves => return Ok([cx.rotary_by_halves(&q, tables)?, cx.rotary_by_halves(&k, tables)?]),
            Rotation::Plain | Rotation::Wide | Rotation::Never | Rotation::Pairs => (Turn::default(), tables),
        };
        let both = [cx.rotary(&q, tables, turn)?, cx.rotary(&k, tables, turn)?];
        let dtype = q.dtype();
        if !self.rotation.is_wide() || both[0].dtype() == dtype {
            return Ok(both);
        }
        Ok([cx.cast(&both[0], dtype, "rotated queries")?, cx.cast(&both[1], dtype, "rotated keys")?])
    }

    /// The sum of the residual stream and the output, and the weights, with a bias of positions (BLOOM).
    pub fn forward_onto(
        &self,
        cx: &mut Context,
        [input, residual]: [&Tensor; 2],
        seen: &AttentionInputs,
        dropout: f64,
    ) -> OpResult<(Tensor, Tensor)> {
        let AttentionInputs { mask: Some(Mask::Added(mask)), bias: Some(bias), caches, .. } = seen else {
            return Ok((residual.clone(), input.clone()));
        };
        let ([q, k, v], packed) = self.parts(cx, input, seen)?;
        let [k, v] = if *caches {
            cx.within(self.scope, |cx| OpResult::Ok([cx.cached(&k, k.dtype())?, cx.cached(&v, k.dtype())?]))?
        } else {
            [k, v]
        };
        let share = self.dropouts.attention;
        let by = EagerScores { scale: self.scale, cap: None, mask, dropout: share, plain: false, turned: false };
        let BiasedAttention { output, weights, variables } =
            cx.within(self.scope, |cx| cx.biased_attention([&q, &k, &v], by, bias))?;
        let made = self.output.forward(cx, &output)?;
        let sum = cx.within(self.scope, |cx| {
            let dropped = cx.dropout(&made, dropout)?;
            cx.add(residual, &dropped)
        })?;
        cx.put_out(self.scope, &sum);
        drop((made, output, variables, packed));
        Ok((sum, weights))
    }

    /// The output, and the weights of attention if something holds them.
    pub fn forward(
        &self,
        cx: &mut Context,
        input: &Tensor,
        seen: &AttentionInputs,
    ) -> OpResult<(Tensor, Option<Tensor>)> {
        let AttentionInputs { tables, rotates, mask, caches, windowed, .. } = seen;
        let ([q, k, v], _variables) = self.parts(cx, input, seen)?;
        // With latent vectors, these are what is rotated and cached.
        let latent = matches!(self.projections, Projections::Latent(_));
        let (rotates, caches) = (*rotates && !latent, *caches && !latent);
        let mut _cut = None;
        let told = [SideBySide::default(), SideBySide::default()];
        // The parts that are not rotated are freed once both are rotated.
        let [q, k] = match tables {
            Some(tables) if rotates && self.keeps => {
                let [whole, rotated] = cx.within(self.scope, |cx| cx.rotary_with_parts([&q, &k], tables))?;
                _cut = Some(([q, k], rotated));
                whole
            }
            Some(tables) if rotates => cx.within(self.scope, |cx| self.rotated(cx, q, k, (tables, &told)))?,
            _ => [q, k],
        };
        let [q, k] = match &self.norms {
            Some([of_q, of_k]) if self.order == NormOrder::Turned && rotates => {
                let normalised = |cx: &mut Context, norm: &Norm, turned: Tensor, told: &SideBySide| {
                    let rows = cx.rows_of_heads(&turned);
                    drop(turned);
                    let made = norm.forward(cx, &rows)?;
                    drop(rows);
                    OpResult::Ok(cx.by_head_size_told(&made, self.head_size, told))
                };
                [normalised(cx, of_q, q, &told[0])?, normalised(cx, of_k, k, &told[1])?]
            }
            _ => [q, k],
        };
        let (q, _positions) = match self.grows {
            Some(grows) if grows.count == PositionCount::Model || !rotates => {
                let grown = cx.within(self.scope, |cx| cx.scale_by_position(&q, grows))?;
                drop(q);
                grown
            }
            _ => (q, None),
        };
        if caches && *windowed {
            cx.within(self.scope, Context::cache_of_window)?;
        }
        let [k, v] = if caches {
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
                let turned = matches!(self.projections, Projections::Thirds(_));
                let by = EagerScores { scale: self.scale, cap: self.cap, mask, dropout, plain: self.plain, turned };
                let (attended, weights) = match &self.sinks {
                    _ if matches!(self.projections, Projections::Groups { .. }) => {
                        cx.eager_attention_in_place([&q, &k, &v], by, input.dtype())?
                    }
                    Some(sinks) => {
                        cx.with_parameters([sinks], |cx| cx.attention_with_sinks([&q, &k, &v], sinks, by))?
                    }
                    None => cx.eager_attention([&q, &k, &v], by)?,
                };
                Ok((attended, Some(weights)))
            }
            #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
            Some(Mask::Sdpa(mask)) if matches!(self.projections, Projections::Groups { groups: 1, .. }) => {
                Ok((cx.masked_attention_of_one_key([&q, &k, &v], mask, self.scale as f32)?, None))
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
        // The layer's output replaces it in the variable.
        drop(attended);
        if self.dropouts.place == DropoutPlace::Within {
            output = cx.within(self.scope, |cx| cx.dropout(&output, self.dropouts.residual))?;
        }
        cx.put_out(self.scope, &output);
        Ok((output, weights))
    }
}
