//! Parameters of which each rank makes or loads a part, and parameters of layers in 4 bits.

use vramlab_device::DType;
use vramlab_train::{Context, FourBitWeight, OpResult, Shape, Tensor, TensorRole, TrainError, UnevenSplit, World};

use super::init::Init;
use super::{ParameterEntry, ParameterKind, Parameters};
use crate::quantization::Quantization;

impl Parameters {
    /// A rank's rows of a table, if ranks load parts.
    pub fn table(&mut self, cx: &mut Context, name: &str, [rows, width]: [usize; 2]) -> OpResult<Tensor> {
        let ranks = self.parts.map_or(1, World::size);
        cx.loads_in_parts();
        if !rows.is_multiple_of(ranks) {
            let remedy = "give --vocab a multiple, or take other ranks".to_owned();
            return Err(
                TrainError::Workload(UnevenSplit { count: rows, what: "tokens", ranks, remedy }.to_string()).into()
            );
        }
        self.split_weight(cx, name, [rows, width], [rows / ranks, width])
    }

    /// The role of the linear layer `name` in transformers' plan of a model (`base_model_tp_plan`), and the inputs and
    /// outputs of the part, if ranks load parts.
    pub fn part_of(
        &self,
        cx: &mut Context,
        name: &str,
        ends: [usize; 2],
    ) -> OpResult<Option<(TensorRole, [usize; 2])>> {
        let Some(world) = self.parts else { return Ok(None) };
        let Some(role) = self.plan.role(name) else { return Ok(None) };
        cx.loads_in_parts();
        let split = usize::from(!matches!(role, TensorRole::Rows | TensorRole::RowsOfWhole));
        let mut part = ends;
        if !ends[split].is_multiple_of(world.size()) {
            let (count, ranks) = (ends[split], world.size());
            let what = if split == 1 { "outputs" } else { "inputs" };
            let remedy = format!("{name} has so many; choose sizes that can, or another world");
            return Err(TrainError::Workload(UnevenSplit { count, what, ranks, remedy }.to_string()).into());
        }
        part[split] /= world.size();
        Ok(Some((role, part)))
    }

    /// The matrices of all experts, with `hidden` values each: gate and up projections in one, and the down projections. If ranks
    /// load parts, each has some of the hidden values.
    pub fn experts(
        &mut self,
        cx: &mut Context,
        name: &str,
        [count, hidden, width]: [usize; 3],
    ) -> OpResult<[Tensor; 2]> {
        let ranks = self.parts.filter(|_| self.splits_experts()).map_or(1, World::size);
        if ranks > 1 {
            cx.loads_in_parts();
        }
        if !hidden.is_multiple_of(ranks) {
            let remedy = "take other ranks".to_owned();
            let uneven = UnevenSplit { count: hidden, what: "hidden values of an expert", ranks, remedy };
            return Err(TrainError::Workload(uneven.to_string()).into());
        }
        let own = hidden / ranks;
        let (gate_up, down) = (format!("{name}.gate_up_proj"), format!("{name}.down_proj"));
        Ok([
            self.split_weight(cx, &gate_up, [count, 2 * hidden, width], [count, 2 * own, width])?,
            self.split_weight(cx, &down, [count, width, hidden], [count, width, own])?,
        ])
    }

    /// The same stored inputs by outputs. Every rank has all of them.
    pub fn turned_experts(
        &mut self,
        cx: &Context,
        name: &str,
        [count, hidden, width]: [usize; 3],
    ) -> OpResult<[Tensor; 2]> {
        Ok([
            self.weight(cx, &format!("{name}.gate_up_proj"), &[count, width, 2 * hidden])?,
            self.weight(cx, &format!("{name}.down_proj"), &[count, hidden, width])?,
        ])
    }

    /// The same with biases, stored inputs by outputs: alternating gate and up projections, their biases, the down projections,
    /// their biases. Every rank has all of them.
    pub fn biased_experts(
        &mut self,
        cx: &Context,
        name: &str,
        [count, hidden, width]: [usize; 3],
    ) -> OpResult<[Tensor; 4]> {
        let biases = |all: &mut Self, part: &str, len: usize| {
            all.make(cx, &format!("{name}.{part}_bias"), Shape::new(&[count, len]), Init::Zero)
        };
        Ok([
            self.weight(cx, &format!("{name}.gate_up_proj"), &[count, width, 2 * hidden])?,
            biases(self, "gate_up_proj", 2 * hidden)?,
            self.weight(cx, &format!("{name}.down_proj"), &[count, hidden, width])?,
            biases(self, "down_proj", width)?,
        ])
    }

    /// The weight of a linear layer in 4 bits.
    pub fn four_bit_weight(
        &mut self,
        cx: &Context,
        name: &str,
        dims: &[usize; 2],
        quantization: Quantization,
    ) -> FourBitWeight {
        let shape = Shape::new(dims);
        let storage = quantization.storage.unwrap_or(if cx.shards_parameters() { self.dtype } else { DType::U8 });
        let weight = FourBitWeight::meta(cx, shape, [self.dtype, storage], quantization.nested);
        let number = cx.parameter_count() + self.reserve().0;
        let parameter = Context::future_frozen_parameter(weight.packed(), number);
        if let Some(place) = self.made.last_mut() {
            *place = Some(ParameterEntry {
                name: name.into(),
                data: weight.packed().clone(),
                part: None,
                whole: None,
                init: self.spread.init(shape),
                kind: ParameterKind::Frozen,
                four_bit: Some(weight.clone()),
                loaded: false,
            });
        }
        weight.of_parameter(parameter)
    }
}
