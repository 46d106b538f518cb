//! The layers that make queries, keys and values, and how these are cut out of what one layer makes.

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::attention_inputs::AttentionInputs;
use super::latent::LatentProjections;
use super::names::Names;
use super::sizes::DecoderSizes;
use super::style::{Biases, LayerFusion};

/// The layers that make queries, keys and values.
pub(super) enum Projections {
    Apart(Box<[Adaptable; 3]>),
    /// One layer makes all three, side by side in each head (GPT-NeoX).
    Heads(Box<Adaptable>),
    /// The same, each cut out of it for itself (BLOOM).
    Selected(Box<Adaptable>),
    /// One layer makes all three, side by side (GPT-2).
    Thirds(Box<Adaptable>),
    /// One layer makes all three, for groups of heads that share a key and a value (Falcon).
    Groups {
        all: Box<Adaptable>,
        groups: usize,
    },
    /// Queries, and keys and values by way of a latent vector (DeepSeek).
    Latent(Box<LatentProjections>),
    /// One layer makes all three (Phi-3): columns of queries, then of keys and as many of values.
    Packed {
        all: Box<Adaptable>,
        widths: [usize; 2],
    },
}

/// Queries, keys and values (batch, heads, rows, head size), and the tensors with variables of their own, such as the one that all
/// three were cut from.
pub(super) type Parts = ([Tensor; 3], Vec<Tensor>);

impl Projections {
    /// One projection to queries, keys and values, which comes after that of the output in the module; and the latter.
    pub fn packed(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        sizes: &DecoderSizes,
    ) -> OpResult<(Self, Adaptable)> {
        let DecoderSizes { width, heads, kv_heads, head_size, .. } = *sizes;
        let widths = [heads * head_size, kv_heads * head_size];
        let output = Adaptable::plain(cx, all, &format!("{name}.o_proj"), [widths[0], width])?;
        let all = Adaptable::plain(cx, all, &format!("{name}.qkv_proj"), [width, widths[0] + 2 * widths[1]])?;
        Ok((Self::Packed { all: Box::new(all), widths }, output))
    }

    /// One projection that makes queries, keys and values side by side, in each head or over all heads; and that of the output.
    pub fn side_by_side(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        sizes: &DecoderSizes,
    ) -> OpResult<(Self, Adaptable)> {
        let DecoderSizes { width, heads, kv_heads, head_size, style, .. } = *sizes;
        let make = match style.biases {
            Biases::All if style.conv1d => Adaptable::conv1d,
            Biases::All => Adaptable::biased,
            Biases::None | Biases::Inputs if style.products => Adaptable::product,
            Biases::None | Biases::Inputs => Adaptable::plain,
        };
        let ([whole, output], inner) =
            ([style.names.projections, style.names.output].map(Target::word), heads * head_size);
        let keys = if style.packing == LayerFusion::Groups { kv_heads * head_size } else { inner };
        let projections = make(cx, all, &format!("{name}.{whole}"), [width, inner + 2 * keys])?;
        let output = make(cx, all, &format!("{name}.{output}"), [inner, width])?;
        let projections = Box::new(projections);
        let projections = match style.packing {
            LayerFusion::Thirds => Self::Thirds(projections),
            LayerFusion::Selected => Self::Selected(projections),
            LayerFusion::Groups => Self::Groups { all: projections, groups: kv_heads },
            _ => Self::Heads(projections),
        };
        Ok((projections, output))
    }

    /// Puts adapters on its layers and on that of the `output`, in the module's order; the layer of queries may come after the others.
    pub fn adapt(
        &mut self,
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        lora: Lora,
        (output, names, keys_first): (&mut Adaptable, Names, bool),
    ) -> OpResult<()> {
        match self {
            Self::Apart(projections) => {
                let mut each: Vec<_> =
                    projections.iter_mut().zip([Target::Query, Target::Key, Target::Value]).collect();
                if keys_first {
                    each.rotate_left(1);
                }
                for (projection, target) in each {
                    projection.adapt(cx, all, name, lora, target)?;
                }
                output.adapt(cx, all, name, lora, names.output)
            }
            Self::Heads(projections)
            | Self::Selected(projections)
            | Self::Thirds(projections)
            | Self::Groups { all: projections, .. } => {
                projections.adapt(cx, all, name, lora, names.projections)?;
                output.adapt(cx, all, name, lora, names.output)
            }
            Self::Latent(projections) => {
                projections.adapt(cx, all, name, lora)?;
                output.adapt(cx, all, name, lora, names.output)
            }
            Self::Packed { all: packed, .. } => {
                output.adapt(cx, all, name, lora, names.output)?;
                packed.adapt(cx, all, name, lora, names.projections)
            }
        }
    }

    /// Queries, keys and values: cut out of what one layer makes, or made by `apart` from layers of their own.
    pub fn parts(
        &self,
        cx: &mut Context,
        input: &Tensor,
        (scope, head_size): (NameId, usize),
        seen: &AttentionInputs,
        apart: impl FnOnce(&mut Context, &[Adaptable; 3]) -> OpResult<[Tensor; 3]>,
    ) -> OpResult<Parts> {
        let (parts, packed) = match self {
            Self::Apart(each) => return Ok((apart(cx, each)?, Vec::new())),
            Self::Latent(projections) => return projections.parts(cx, input, seen),
            Self::Heads(projections) => {
                let packed = projections.forward(cx, input)?;
                (cx.thirds_of_heads(&packed, head_size), packed)
            }
            Self::Selected(projections) => {
                let packed = projections.forward(cx, input)?;
                (cx.selected_thirds(&packed, head_size), packed)
            }
            Self::Thirds(projections) => {
                let packed = projections.forward(cx, input)?;
                let [q, k, v] = cx.thirds(&packed);
                // In the order in which transformers separates the heads.
                let [k, v, q] = [k, v, q].map(|part| cx.by_head_size(&part, head_size));
                ([q, k, v], packed)
            }
            Self::Groups { all, groups } => {
                let packed = all.forward(cx, input)?;
                let parts = cx.within(scope, |cx| cx.parts_of_groups(&packed, head_size, *groups))?;
                (parts, packed)
            }
            Self::Packed { all, widths: [queries, keys] } => {
                let packed = all.forward(cx, input)?;
                let (key, value) = (*queries, queries + keys);
                let columns = [(0, *queries), (key, *keys), (value, *keys)];
                let parts = columns.map(|(start, width)| cx.columns(&packed, start, width));
                (parts.map(|part| cx.by_head_size(&part, head_size)), packed)
            }
        };
        Ok((parts, vec![packed]))
    }
}
