//! Decoders for fine-tuning: Llama and similar models, as transformers builds and trains them.

mod attention;
mod attention_inputs;
mod config;
mod dropout_keys;
mod embeddings;
mod expert_keys;
mod experts;
mod falcon;
mod families;
mod family;
mod gpt2;
mod granite4;
mod harmless;
mod head_norms;
mod latent;
mod latent_keys;
mod layer;
mod llama4;
mod masks;
mod mlp;
mod model;
mod multiplier_keys;
mod names;
mod opt;
mod pattern;
mod pixtral;
mod projections;
mod rope;
#[cfg(test)]
mod rope_tests;
mod rotary;
mod rotary_scaling;
mod siglip;
mod sizes;
mod style;
mod tower;
mod windows;

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_train::{
    Batch, BatchLayout, BatchSource, Context, Layouts, OpResult, Task, TrainError, UnevenSplit, Workload, World,
};

use super::data::Data;
use super::hash::{self, Cycle};
use super::lora::{Lora, Target, Targets};
use super::parameters::{Parameters, Spread};
use super::plan::{TensorPair, TensorPlan};
use super::text::TextWindows;
use model::DecoderModel;
use sizes::ExpertSizes;

pub use config::ModelConfig;
pub use names::Names;
pub use pattern::LayerPattern;
pub use rotary_scaling::{DynamicScaling, Factors, Llama3Scaling, LongScaling, RotaryScaling, YarnScaling};
pub use sizes::{DecoderSizes, DropoutPlace, Dropouts, LatentSizes, Multipliers, SlidingWindows, SoftCaps, TowerSizes};
pub use style::{
    Biases, HeadNorms, LayerFusion, LayerLocals, MlpActivation, NormPlaces, NormsMade, PositionUse, Rotation, Style,
};

/// The workload of a decoder: it learns each next token. Labels are the tokens themselves; the loss shifts them.
#[derive(Clone, Debug)]
pub struct Decoder {
    name: String,
    sizes: DecoderSizes,
    data: Data,
    seed: u64,
}

impl Decoder {
    /// A decoder trained on `data`; `seed` decides everything random in it.
    ///
    /// # Errors
    /// [`TrainError::Workload`]: a size with which there is no model, or a text that it can't learn from.
    pub fn new(name: &str, sizes: DecoderSizes, data: Data, seed: u64) -> Result<Self, TrainError> {
        let refused = |text: String| Err(TrainError::Workload(text));
        let DecoderSizes { heads, kv_heads, head_size, vocab, .. } = sizes;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return refused(format!(
                "{kv_heads} heads of keys do not divide {heads} heads of queries; choose a number that does"
            ));
        }
        if head_size == 0 || sizes.positions.is_none() && !head_size.is_multiple_of(2) {
            return refused(format!(
                "heads of {head_size} elements have no two halves to rotate; choose an even number"
            ));
        }
        if matches!(data, Data::Text(_)) && vocab < 256 {
            return refused(format!(
                "text has 256 different bytes and the vocabulary is {vocab}; use --vocab 256 or --data synthetic"
            ));
        }
        if let (Some(most), Data::Lengths(lengths)) = (sizes.positions, &data)
            && let [_, longest] = lengths.rows()
            && longest as usize > most
        {
            return refused(format!(
                "the longest sample has {longest} positions, and there are embeddings of {most}; cut samples with --seq {most}"
            ));
        }
        if sizes.style.conv1d && sizes.lora.is_some_and(|lora| lora.quantization.is_some() || lora.dora) {
            let text = "layers of Conv1D are not there in 4 bits, nor with DoRA; leave --quantize and --dora out";
            return refused(text.to_owned());
        }
        // transformers would leave every layer of Falcon whole.
        if sizes.style.products && sizes.lora.is_some_and(|lora| lora.quantization.is_some()) {
            return refused("transformers quantises no layer of Falcon; leave --quantize out".to_owned());
        }
        // peft puts adapters beside experts and their router too, unless one more expert sees every position, of what a gate lets through.
        // Those that are no linear layers, all of these leave out.
        let none = sizes.experts.is_some_and(|experts| experts.rule.of_chosen);
        let reaches = |lora: Lora| {
            let named = [Target::Gate, Target::Up, Target::Down].iter().any(|part| lora.names(*part));
            named && !(none && lora.targets == Some(Targets::of(Target::ALL)))
        };
        let adapts_none = |lora: Lora| lora.of_model(sizes.style.names.adapted).is_none();
        if sizes.lora.is_some_and(adapts_none) {
            let some = match (sizes.latent, sizes.style.packing) {
                (Some(_), _) => "q_proj, q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj and o_proj",
                (None, LayerFusion::All) => "qkv_proj, o_proj, gate_up_proj and down_proj",
                (None, _) => "q_proj, k_proj, v_proj and o_proj",
            };
            return refused(format!("peft has no default targets for this family; name some of {some}"));
        }
        let beside = |experts: ExpertSizes| {
            experts.shared.is_none()
                || experts.in_groups.is_some()
                || experts.shared_of_layer
                || experts.least_sum.is_some()
        };
        if sizes.experts.is_some_and(beside) && sizes.lora.is_some_and(reaches) {
            return refused(
                "adapters beside experts are not there; name some of attention's layers as targets, such as q_proj and o_proj"
                    .to_owned(),
            );
        }
        let all = |lora: Lora| lora.targets == Some(Targets::of(Target::ALL));
        if sizes.experts.is_some_and(|experts| experts.of_all) && sizes.lora.is_some_and(all) {
            return refused(
                "all-linear gives the router of this family an adapter, and peft can't run that; name q_proj, k_proj, v_proj, o_proj, \
                 gate_proj, up_proj and down_proj, or some of them"
                    .to_owned(),
            );
        }
        Ok(Self { name: name.into(), sizes, data, seed })
    }
}

impl Decoder {
    /// The ranks that load a part of each matrix, if they do: for models whose plan (`tp_plan="auto"` of transformers) is Llama's.
    fn parts(&self, cx: &Context) -> OpResult<Option<World>> {
        let Some(world) = cx.tensor_world() else { return Ok(None) };
        let DecoderSizes { style, heads, kv_heads, .. } = self.sizes;
        let refused = |text: String| Err(TrainError::Workload(text).into());
        let uneven = |count, what| {
            let remedy = "take as many ranks as divide them".to_owned();
            UnevenSplit { count, what, ranks: world.size(), remedy }.to_string()
        };
        let norms = match style.heads {
            HeadNorms::None => true,
            HeadNorms::Apart | HeadNorms::TurnedSquare => false,
            HeadNorms::Each | HeadNorms::EachBehindValues | HeadNorms::Turned => style.plan.norms,
            HeadNorms::Together => style.plan.attention == TensorPair::Gathered,
        };
        // An untied table is split too if the plan has it.
        let table = self.sizes.tied || !style.plan.table;
        if style.plan.none {
            return refused(
                "transformers splits no layers of this family, whose tp_plan names none; use ddp or fsdp".to_owned(),
            );
        }
        let shared = self
            .sizes
            .experts
            .is_some_and(|experts| experts.in_groups.is_some() || experts.of_all || experts.least_sum.is_some());
        if !norms || !table || shared {
            return refused("tp does not split what this family has beside Llama's layers; use ddp or fsdp".to_owned());
        }
        if self.sizes.tied && cx.memory().holds_bytes() {
            let text = "tp splits a table that is the head's weight too on simulated cards alone; use ddp or fsdp";
            return refused(text.to_owned());
        }
        if self.sizes.lora.is_some() {
            let text = "peft makes adapters for whole layers, and those that transformers' tp splits fail beside them; use ddp or fsdp";
            return refused(text.to_owned());
        }
        // Heads that are gathered are no rank's alone.
        let split = style.plan.attention == TensorPair::Split;
        for (count, what) in [(heads, "attention heads"), (kv_heads, "heads of keys")] {
            if split && !count.is_multiple_of(world.size()) {
                return refused(uneven(count, what));
            }
        }
        Ok(Some(world))
    }
}

impl Workload for Decoder {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let DecoderSizes { weights, lora, .. } = self.sizes;
        if self.sizes.tower.is_some() && cx.world().is_some() {
            let text = "ranks wait for gradients that a vision tower does not get from text; train it on one card, or its text_config alone";
            return Err(TrainError::Workload(text.to_owned()).into());
        }
        let all = Parameters::in_place(Spread::Transformer, weights).frozen(lora.is_some());
        let quantization = lora.and_then(|lora| lora.quantization);
        if cx.shards_parameters()
            && let Some(storage) = quantization.and_then(|quantization| quantization.storage)
            && storage != weights
        {
            let (is, needed) = (storage.label(), weights.label());
            let text = format!(
                "weights in 4 bits are sharded as what the others are, and bnb_4bit_quant_storage is {is} here; make it {needed}"
            );
            return Err(TrainError::Workload(text).into());
        }
        if cx.shards_parameters() && quantization.is_some() && self.sizes.experts.is_some() {
            let text = "experts beside layers in 4 bits are not sharded here; use ddp, or leave --quantize out";
            return Err(TrainError::Workload(text.to_owned()).into());
        }
        // fully_shard reduces the gradients of a unit in one type.
        let router_in_f32 = self.sizes.experts.is_some_and(|experts| experts.least_sum.is_some());
        if cx.shards_parameters() && router_in_f32 && weights != DType::F32 && lora.is_none() {
            let given = weights.label();
            let text = format!(
                "gradients of weights in {given} are not sharded beside those of routers in float32; use --weights fp32 or ddp"
            );
            return Err(TrainError::Workload(text).into());
        }
        // A table that is also the head's weight is split like the head.
        let plan = self.sizes.style.plan;
        let plan = TensorPlan { table: plan.table || self.sizes.tied && !plan.none, ..plan };
        let mut all = all.quantized(quantization).planned(plan).in_parts(self.parts(cx)?);
        let model = DecoderModel::make(cx, &mut all, &self.sizes)?;
        all.initialise(cx)?;
        Ok(Task::Supervised(Rc::new(model)))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _step: u64) -> OpResult<Batch> {
        hash::own_tokens(cx, batch, samples, self.sizes.seq, self.sizes.vocab)
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        self.data.token_layouts(samples, self.sizes.seq)
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        let tokens: Box<dyn BatchSource> = match &self.data {
            Data::Text(text) => Box::new(TextWindows::new(text.clone(), self.sizes.seq, self.seed)?),
            _ => Box::new(Cycle::tokens(self.sizes.vocab)),
        };
        Ok(Box::new(OwnLabels(tokens)))
    }

    fn takes_attention_mask(&self) -> bool {
        true
    }

    fn takes_float8(&self) -> bool {
        self.sizes.lora.is_none()
    }

    fn items_per_sample(&self) -> usize {
        self.data.mean_length(self.sizes.seq)
    }
}

/// Batches whose labels are the tokens themselves, except for padding, which is not learned.
struct OwnLabels(Box<dyn BatchSource>);

/// The label of padding: PyTorch's default `ignore_index`, which collators put there.
const IGNORED: i64 = -100;

impl BatchSource for OwnLabels {
    fn fill(&mut self, layout: &BatchLayout, input: &mut [u8], target: &mut [u8]) -> Result<(), String> {
        self.0.fill(layout, input, target)?;
        target.copy_from_slice(input);
        let row = 8 * layout.input.0.last().max(1);
        let padded = layout.lengths.iter().flat_map(|lengths| lengths.iter());
        for ((input, target), length) in input.chunks_mut(row).zip(target.chunks_mut(row)).zip(padded) {
            let tokens = row.min(8 * *length as usize);
            input[tokens..].fill(0);
            target[tokens..].as_chunks_mut().0.fill(IGNORED.to_le_bytes());
        }
        Ok(())
    }

    fn skip(&mut self, batches: u64, layout: &BatchLayout) {
        self.0.skip(batches, layout);
    }
}

#[cfg(test)]
mod tests {
    use vramlab_device::DType;
    use vramlab_train::Shape;

    use super::*;

    #[test]
    fn nothing_is_learned_of_padding() {
        let tokens = (Shape::new(&[2, 4]), DType::I64);
        let layout = BatchLayout { lengths: Some([4, 3].into()), ..BatchLayout::new(tokens, tokens) };
        let (mut input, mut target) = (vec![0; 64], vec![0; 64]);
        OwnLabels(Box::new(Cycle::tokens(512))).fill(&layout, &mut input, &mut target).unwrap();
        assert_eq!(input[..56], target[..56]);
        assert_ne!(target[48..56], [0; 8]);
        assert_eq!((&input[56..], &target[56..]), (&[0; 8][..], &IGNORED.to_le_bytes()[..]));
    }
}
