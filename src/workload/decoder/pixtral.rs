//! Pixtral's vision tower in Mistral 3, and the projector of its output.

use vramlab_train::{Context, OpResult};

use super::super::llama::{Gate, GatedMlp, Norm, NormKind};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::rotary::OfTower;
use super::sizes::{PixtralSizes, TowerSizes};

/// The tower and the projector.
pub(super) struct Pixtral {
    layers: Vec<PixtralLayer>,
    frequencies: OfTower,
    /// The linear layers of the projector, by their modules.
    projector: [(&'static str, Target, Adaptable); 3],
}

/// The linear layers of a layer that may have adapters.
struct PixtralLayer {
    mlp: GatedMlp,
    attention: [(Target, Adaptable); 4],
}

/// The tower's module.
const NAME: &str = "model.vision_tower";
/// The projector's.
const PROJECTOR: &str = "model.multi_modal_projector";

impl Pixtral {
    /// Makes the tower and the projector, before the language model of this `width`.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        (sizes, special): (&TowerSizes, PixtralSizes),
        width: usize,
    ) -> OpResult<Self> {
        let &TowerSizes { width: own, hidden, layers, channels, patch, .. } = sizes;
        let PixtralSizes { frequencies, merged, biased, features } = special;
        let norm = |cx: &mut Context, all: &mut Parameters, name: &str| {
            Norm::make(cx, all, name, own, (NormKind::Plain, Norm::EPS)).map(drop)
        };
        all.weight(cx, &format!("{NAME}.patch_conv.weight"), &[own, channels, patch, patch])?;
        norm(cx, all, &format!("{NAME}.ln_pre"))?;
        let layer = |cx: &mut Context, all: &mut Parameters, number: usize| {
            let name = Self::layer(number);
            norm(cx, all, &format!("{name}.attention_norm"))?;
            let feed = format!("{name}.feed_forward");
            let mlp = GatedMlp::make(cx, all, &feed, [own, hidden], Gate::Gelu { tanh: false }, false)?;
            let mut linear = |target: Target| {
                let made = Adaptable::plain(cx, all, &format!("{name}.attention.{}", target.word()), [own, own])?;
                OpResult::Ok((target, made))
            };
            let attention =
                [linear(Target::Key)?, linear(Target::Value)?, linear(Target::Query)?, linear(Target::Output)?];
            norm(cx, all, &format!("{name}.ffn_norm"))?;
            OpResult::Ok(PixtralLayer { mlp, attention })
        };
        let layers = (0..layers).map(|number| layer(cx, all, number)).collect::<OpResult<_>>()?;
        let frequencies = OfTower::of(&format!("{NAME}.patch_positional_embedding"), frequencies);
        if !all.loads() {
            frequencies.make(cx)?;
        }
        norm(cx, all, &format!("{PROJECTOR}.norm"))?;
        let mut linear = |module: &'static str, target: Target, ends: [usize; 2], biased: bool| {
            let make = if biased { Adaptable::biased } else { Adaptable::plain };
            let made = make(cx, all, &format!("{PROJECTOR}{module}.{}", target.word()), ends)?;
            OpResult::Ok((module, target, made))
        };
        let projector = [
            linear(".patch_merger", Target::Merging, [own * merged, own], false)?,
            linear("", Target::FirstProjecting, [own * features, width], biased)?,
            linear("", Target::SecondProjecting, [width, width], biased)?,
        ];
        Ok(Self { layers, frequencies, projector })
    }

    /// Tensors that are not in the file come to the device after those that are.
    pub fn loaded(&self, cx: &mut Context) -> OpResult<()> {
        self.frequencies.load(cx)
    }

    /// Puts adapters on its layers: peft does so for every module with a target's name.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, lora: Lora) -> OpResult<()> {
        for (number, PixtralLayer { mlp, attention }) in self.layers.iter_mut().enumerate() {
            let name = Self::layer(number);
            mlp.adapt(cx, all, &format!("{name}.feed_forward"), lora)?;
            for (target, linear) in attention {
                linear.adapt(cx, all, &format!("{name}.attention"), lora, *target)?;
            }
        }
        for (module, target, linear) in &mut self.projector {
            linear.adapt(cx, all, &format!("{PROJECTOR}{module}"), lora, *target)?;
        }
        Ok(())
    }

    fn layer(number: usize) -> String {
        format!("{NAME}.transformer.layers.{number}")
    }
}
