//! Projections to a latent vector for each position, from which keys and values of all heads are expanded (multi-head latent
//! attention), as in DeepSeek.

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

use super::super::llama::{Norm, NormKind};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::attention_inputs::AttentionInputs;
use super::sizes::{DecoderSizes, LatentSizes};
use super::style::{Biases, Rotation};

/// The layers that make queries, keys and values.
pub(super) struct LatentProjections {
    scope: NameId,
    queries: LatentQueries,
    /// To the latent vector and the part of a key that is rotated.
    down: Adaptable,
    norm: Norm,
    /// From the latent vector to the other part of the keys and the values of all heads.
    up: Adaptable,
    sizes: LatentSizes,
    head_size: usize,
    rotation: Rotation,
}

/// The layers that make queries.
enum LatentQueries {
    Plain(Box<Adaptable>),
    /// Through a latent vector of their own, which is normalised.
    Latent(Box<(Adaptable, Norm, Adaptable)>),
}

impl LatentProjections {
    /// The projections of attention `name`.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        sizes: &DecoderSizes,
        latent: LatentSizes,
    ) -> OpResult<Self> {
        let DecoderSizes { width, heads, head_size, style, .. } = *sizes;
        let down = if style.biases == Biases::None { Adaptable::plain } else { Adaptable::biased };
        let norm = |cx: &mut Context, all: &mut Parameters, part: &str, width| {
            // These norms have the default addition, whatever the file says.
            Norm::make(cx, all, &format!("{name}.{part}"), width, (NormKind::Plain, Norm::EPS))
        };
        let of_queries = heads * head_size;
        let queries = match latent.query_rank {
            None => LatentQueries::Plain(Box::new(Adaptable::plain(
                cx,
                all,
                &format!("{name}.q_proj"),
                [width, of_queries],
            )?)),
            Some(rank) => {
                let first = down(cx, all, &format!("{name}.q_a_proj"), [width, rank])?;
                let norm = norm(cx, all, "q_a_layernorm", rank)?;
                let second = Adaptable::plain(cx, all, &format!("{name}.q_b_proj"), [rank, of_queries])?;
                LatentQueries::Latent(Box::new((first, norm, second)))
            }
        };
        let rotated = head_size - latent.plain;
        let down = down(cx, all, &format!("{name}.kv_a_proj_with_mqa"), [width, latent.rank + rotated])?;
        let norm = norm(cx, all, "kv_a_layernorm", latent.rank)?;
        let outputs = heads * (latent.plain + latent.value);
        let up = Adaptable::plain(cx, all, &format!("{name}.kv_b_proj"), [latent.rank, outputs])?;
        let scope = cx.memory().name(name);
        Ok(Self { scope, queries, down, norm, up, sizes: latent, head_size, rotation: style.rotation })
    }

    /// Puts adapters on its layers.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        match &mut self.queries {
            LatentQueries::Plain(queries) => queries.adapt(cx, all, name, lora, Target::Query)?,
            LatentQueries::Latent(queries) => {
                let (first, _, second) = &mut **queries;
                first.adapt(cx, all, name, lora, Target::LatentQuery)?;
                second.adapt(cx, all, name, lora, Target::FromLatentQuery)?;
            }
        }
        self.down.adapt(cx, all, name, lora, Target::Latent)?;
        self.up.adapt(cx, all, name, lora, Target::FromLatent)
    }

    /// Queries, keys and values (batch, heads, rows, …), rotated and from the cache, and the variables of the forward pass, which live
    /// until it returns.
    pub fn parts(
        &self,
        cx: &mut Context,
        input: &Tensor,
        seen: &AttentionInputs,
    ) -> OpResult<([Tensor; 3], Vec<Tensor>)> {
        let LatentSizes { rank, plain, value, .. } = self.sizes;
        let queries = match &self.queries {
            LatentQueries::Plain(queries) => queries.forward(cx, input)?,
            LatentQueries::Latent(queries) => {
                let (first, norm, second) = &**queries;
                let normalised = {
                    let low = first.forward(cx, input)?;
                    norm.forward(cx, &low)?
                };
                second.forward(cx, &normalised)?
            }
        };
        let [of_queries, turning] = cx.heads_in_two(&queries, self.head_size, plain);
        let compressed = self.down.forward(cx, input)?;
        let [latent, shared] = cx.latent_and_rest(&compressed, rank);
        let latent = self.norm.forward(cx, &latent)?;
        let [turned, shared] = match &seen.tables {
            Some(tables) => cx.within(self.scope, |cx| match self.rotation {
                Rotation::Complex => cx.rotary_of_complex([&turning, &shared], tables),
                _ => cx.rotary_of_pairs([&turning, &shared], tables),
            })?,
            None => [turning, shared],
        };
        let (latent, shared) = if seen.caches {
            let cached = cx.within(self.scope, |cx| {
                OpResult::Ok((cx.cached(&latent, latent.dtype())?, cx.cached(&shared, latent.dtype())?))
            })?;
            drop((latent, shared));
            cached
        } else {
            (latent, shared)
        };
        let q = cx.within(self.scope, |cx| cx.joined_heads(&of_queries, &turned))?;
        let expanded = self.up.forward(cx, &latent)?;
        let [of_keys, v] = cx.heads_in_two(&expanded, plain + value, plain);
        let k = cx.within(self.scope, |cx| cx.keys_of_latent(&of_keys, &shared))?;
        Ok(([q, k, v], vec![queries, turned, compressed, latent, shared]))
    }
}
