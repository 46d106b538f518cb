//! SigLIP as the vision tower of Gemma 3, and the projector of its output.

use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, OpResult, Shape};

use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::sizes::TowerSizes;

/// The linear layers of a layer that may have adapters, by module.
struct SiglipLayer([(&'static str, Target, Adaptable); 6]);

/// The tower and the projector.
pub(super) struct Siglip {
    layers: Vec<SiglipLayer>,
    /// The shape of the positions of patches.
    positions: Shape,
}

/// The tower's module.
const NAME: &str = "model.vision_tower";

impl Siglip {
    /// Makes the tower and the projector, before the language model of this `width`.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        (sizes, positions): (&TowerSizes, usize),
        width: usize,
    ) -> OpResult<Self> {
        let norm = |cx: &Context, all: &mut Parameters, name: &str| {
            all.weight(cx, &format!("{name}.weight"), &[sizes.width])?;
            all.bias(cx, &format!("{name}.bias"), sizes.width).map(drop)
        };
        let embeddings = format!("{NAME}.embeddings");
        let pixels = [sizes.width, sizes.channels, sizes.patch, sizes.patch];
        all.weight(cx, &format!("{embeddings}.patch_embedding.weight"), &pixels)?;
        all.bias(cx, &format!("{embeddings}.patch_embedding.bias"), sizes.width)?;
        all.weight(cx, &format!("{embeddings}.position_embedding.weight"), &[positions, sizes.width])?;
        let positions = Shape::new(&[1, positions]);
        if !all.loads() {
            Self::place(cx, positions)?;
        }
        let layer = |cx: &mut Context, all: &mut Parameters, number: usize| {
            let name = Self::layer(number);
            norm(cx, all, &format!("{name}.layer_norm1"))?;
            let (width, hidden) = (sizes.width, sizes.hidden);
            let linear = |cx: &mut Context, all: &mut Parameters, module: &'static str, target: Target, ends| {
                let layer = Adaptable::biased(cx, all, &format!("{name}.{module}.{}", target.word()), ends)?;
                OpResult::Ok((module, target, layer))
            };
            let [key, value, query, output] = [Target::Key, Target::Value, Target::Query, Target::OutputOfTower]
                .map(|target| linear(cx, all, "self_attn", target, [width, width]));
            let attention = [key?, value?, query?, output?];
            norm(cx, all, &format!("{name}.layer_norm2"))?;
            let first = linear(cx, all, "mlp", Target::Wider, [width, hidden])?;
            let second = linear(cx, all, "mlp", Target::Narrower, [hidden, width])?;
            let [key, value, query, output] = attention;
            OpResult::Ok(SiglipLayer([key, value, query, output, first, second]))
        };
        let layers = (0..sizes.layers).map(|number| layer(cx, all, number)).collect::<OpResult<_>>()?;
        norm(cx, all, &format!("{NAME}.post_layernorm"))?;
        // The positions are computed again when the tower is complete.
        if !all.loads() {
            drop(cx.memory().tensor(positions, DType::I64, Category::Temporary, "positions of patches")?);
        }
        let projector = "model.multi_modal_projector";
        all.weight(cx, &format!("{projector}.mm_input_projection_weight"), &[sizes.width, width])?;
        all.centred(cx, &format!("{projector}.mm_soft_emb_norm.weight"), sizes.width)?;
        Ok(Self { layers, positions })
    }

    /// Tensors that are not in the file come to the device after those that are.
    pub fn loaded(&self, cx: &mut Context) -> OpResult<()> {
        Self::place(cx, self.positions)
    }

    fn place(cx: &mut Context, positions: Shape) -> OpResult<()> {
        cx.buffer(&format!("{NAME}.embeddings.position_ids"), positions, DType::I64, 0.0).map(drop)
    }

    /// Puts adapters on its layers: peft does so for every module with a target's name.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, lora: Lora) -> OpResult<()> {
        for (number, SiglipLayer(linears)) in self.layers.iter_mut().enumerate() {
            for (module, target, linear) in linears {
                linear.adapt(cx, all, &format!("{}.{module}", Self::layer(number)), lora, *target)?;
            }
        }
        Ok(())
    }

    fn layer(number: usize) -> String {
        format!("{NAME}.encoder.layers.{number}")
    }
}
