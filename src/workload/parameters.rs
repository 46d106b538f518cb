//! The parameters of a model: made in the order of `named_parameters`, loaded where files have them, given their first values from the
//! [hash](super::hash), or part of them where ranks split a model.

use serde::Deserialize;

use vramlab_allocator::units::StreamId;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, FourBitWeight, OpResult, Shape, Tensor, TensorRole, TrainError, UnevenSplit, World};

use super::hash::{Chain, unit_at, write_float};
use super::plan::{ExpertFiles, TensorPlan};
use super::quantization::Quantization;

/// What a parameter's first values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Init {
    /// All 0: biases, weights that are added to 1.
    Zero,
    /// All 1: the weights of norms.
    One,
    /// Uniform in (−bound, bound).
    Uniform(f64),
}

/// How far a model's first weights spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// As far as keeps the size of values from layer to layer: √(3 / inputs of an output).
    #[default]
    FanIn,
    /// A standard deviation of 0.02.
    Transformer,
}

impl Spread {
    /// The first values of a weight: those of a norm have one dimension.
    #[expect(clippy::cast_precision_loss, reason = "layer sizes are small")]
    fn init(self, shape: Shape) -> Init {
        match (self, shape.dims()) {
            (_, [_]) => Init::One,
            (Self::Transformer, _) => Init::Uniform(0.02 * 3.0_f64.sqrt()),
            (Self::FanIn, shape) => {
                let inputs = shape.iter().skip(1).fold(1, |inputs: usize, dim| inputs.saturating_mul(*dim));
                Init::Uniform((3.0 / inputs as f64).sqrt())
            }
        }
    }
}

/// A place among the parameters that is taken before the parameter is made.
pub(super) struct Slot(usize);

/// Parameters in the order of `named_parameters`: all are made first, then each gets its number and its values. One model is
/// finished before the next begins.
pub(super) struct Parameters {
    spread: Spread,
    dtype: DType,
    /// First values are written where they lie, as `torch.nn.init` does: no blocks but the parameters'.
    in_place: bool,
    /// They are not trained, unlike adapters.
    frozen: bool,
    /// They are made on the meta device, and come from a file, quantised on their way.
    quantization: Option<Quantization>,
    /// The ranks that load a part each.
    parts: Option<World>,
    /// Which modules they load parts of.
    plan: TensorPlan,
    made: Vec<Option<ParameterEntry>>,
}

struct ParameterEntry {
    name: String,
    data: Tensor,
    /// Of a parameter that is split over ranks: the shape of each one's part.
    part: Option<Shape>,
    /// Of a parameter that is loaded in parts: the shape of all of them together.
    whole: Option<Shape>,
    init: Init,
    kind: ParameterKind,
    /// What its bytes are part of, where they are a matrix in 4 bits.
    four_bit: Option<FourBitWeight>,
    /// It has its values.
    loaded: bool,
}

/// What becomes of a parameter in training.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Trained,
    Frozen,
    /// Trained beside frozen ones.
    Adapter,
}

impl Parameters {
    /// Parameters that spread so.
    pub const fn new(spread: Spread) -> Self {
        Self {
            spread,
            dtype: DType::F32,
            in_place: false,
            frozen: false,
            quantization: None,
            parts: None,
            plan: TensorPlan::LLAMA,
            made: Vec::new(),
        }
    }

    /// Parameters of a type, which get their values where they lie.
    pub const fn in_place(spread: Spread, dtype: DType) -> Self {
        let mut parameters = Self::new(spread);
        parameters.dtype = dtype;
        parameters.in_place = true;
        parameters
    }

    /// Those made from here on are not trained, where `frozen`.
    pub const fn frozen(mut self, frozen: bool) -> Self {
        self.frozen = frozen;
        self
    }

    /// Those made from here on are loaded by [`Parameters::load`], and quantised so, where they are.
    pub const fn quantized(mut self, quantization: Option<Quantization>) -> Self {
        self.quantization = quantization;
        self
    }

    /// Those made from here on are made on the meta device, and each of these ranks loads its part, where there are ranks.
    pub const fn in_parts(mut self, ranks: Option<World>) -> Self {
        self.parts = ranks;
        self
    }

    /// Ranks split modules by this plan.
    pub const fn planned(mut self, plan: TensorPlan) -> Self {
        self.plan = plan;
        self
    }

    /// Whether they are made on the meta device, and loaded from a file.
    pub const fn loads(&self) -> bool {
        self.quantization.is_some() || self.parts.is_some()
    }

    /// Whether ranks load a part each.
    pub const fn splits(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether they load some hidden values of every expert.
    pub fn splits_experts(&self) -> bool {
        self.splits() && self.plan.experts != ExpertFiles::Whole
    }

    /// Some rows of a table, where ranks load parts.
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

    /// What the linear layer `name` does with its part, and the part's inputs and outputs, where ranks load parts: what
    /// transformers' plan of a model (`base_model_tp_plan`) has for it.
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

    /// The type of those that are made.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The matrices of all experts, of `hidden` values each: gates and what they let through in one, and the way back. Ranks that load
    /// parts have some of the hidden values.
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

    /// The same with biases, inputs by outputs: gates and what they let through in turns, their biases, the way back, its biases. They are
    /// whole on every rank.
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

    /// How matrices of layers are quantised, where they are.
    pub const fn quantization(&self) -> Option<Quantization> {
        self.quantization
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

    /// Loads what is on the meta device as transformers does: a block of all bytes is taken and given back, then the weights come one
    /// after the other in the order of their names, and a matrix in 4 bits is quantised before the next one comes.
    pub fn load(&mut self, cx: &mut Context) -> OpResult<()> {
        // Among ranks whatever the plan has is counted as a part, what they load whole too.
        let ranks = cx.world().map_or(1, World::size) as u64;
        let size = |made: &ParameterEntry| {
            let whole = match (&made.four_bit, made.whole) {
                (Some(weight), _) => weight.shape().numel() as u64 / 2,
                (None, Some(whole)) => made.data.dtype().bytes(whole.numel()).get(),
                (None, None) => made.data.bytes().get(),
            };
            if self.plan.has(&made.name) { whole / ranks } else { whole }
        };
        let bytes = self.made.iter().flatten().fold(0_u64, |sum, made| sum.saturating_add(size(made)));
        let shape = Shape::new(&[usize::try_from(bytes).unwrap_or(usize::MAX)]);
        drop(cx.memory().tensor(shape, DType::U8, Category::Temporary, "caching_allocator_warmup")?);
        let mut order: Vec<_> = self.made.iter_mut().flatten().enumerate().collect();
        order.sort_by_cached_key(|(_, made)| natural_key(&self.plan.in_files(&made.name)));
        for (number, made) in order {
            let ParameterEntry { name, data, init, four_bit, whole, .. } = made;
            match four_bit {
                Some(weight) => {
                    let id = cx.memory().name(name);
                    let (shape, dtype) = (weight.shape(), self.dtype);
                    let whole = cx.memory().named_tensor(shape, dtype, Category::Parameter, id, StreamId::DEFAULT)?;
                    init.write(cx, &whole, number)?;
                    cx.quantize(whole, weight, name)?;
                }
                None => {
                    match data.shape().dims() {
                        &[count, ..] if data.shape().dims().len() == 3 => load_experts(cx, data, name, count)?,
                        _ => cx.memory().materialise(data, name)?,
                    }
                    match (self.parts, whole) {
                        (Some(world), Some(whole)) => init.write_part(cx, data, number, (*whole, world))?,
                        _ => init.write(cx, data, number)?,
                    }
                }
            }
            made.loaded = true;
        }
        Ok(())
    }

    /// What peft's `prepare_model_for_kbit_training` does before it freezes the model: what is not quantised becomes f32, one after
    /// the other, then the cache is emptied.
    pub fn prepare_for_training(&self, cx: &Context) -> OpResult<()> {
        let whole = self.made.iter().flatten().filter(|made| made.four_bit.is_none());
        whole.into_iter().try_for_each(|made| cx.convert(&made.data, DType::F32, &made.name))?;
        cx.memory().release_cached();
        Ok(())
    }

    /// A matrix of an adapter, which is trained: of values as `nn.Linear` has them where it is the first of two, else of zeros.
    #[expect(clippy::cast_precision_loss, reason = "layer sizes are small")]
    pub fn adapter(&mut self, cx: &Context, name: &str, dims: &[usize; 2], first: bool) -> OpResult<Tensor> {
        let init = if first { Init::Uniform(1.0 / (dims[1] as f64).sqrt()) } else { Init::Zero };
        let slot = self.reserve();
        let shape = Shape::new(dims);
        self.make_as(ParameterKind::Adapter, slot, cx, name, [shape, shape], init)
    }

    /// A parameter of an adapter that was computed of others: it has its values.
    pub fn computed_adapter(&mut self, cx: &Context, name: &str, data: Tensor) -> Tensor {
        let (slot, shape) = (self.reserve(), data.shape());
        cx.becomes_parameter(&data, cx.memory().name(name));
        let parameter = Context::future_parameter(&data, cx.parameter_count() + slot.0);
        self.made[slot.0] = Some(ParameterEntry {
            name: name.into(),
            data,
            part: None,
            whole: None,
            init: self.spread.init(shape),
            kind: ParameterKind::Adapter,
            four_bit: None,
            loaded: true,
        });
        parameter
    }

    /// What is made so far gets its first values now, because others are computed of them.
    pub fn settle(&mut self, cx: &Context) -> OpResult<()> {
        for (number, made) in self.made.iter_mut().flatten().enumerate().filter(|(_, made)| !made.loaded) {
            made.init.write(cx, &made.data, number)?;
            made.loaded = true;
        }
        Ok(())
    }

    /// Adapters become f32, one after the other.
    pub fn widen_adapters(&self, cx: &Context) -> OpResult<()> {
        let adapters = self.made.iter().flatten().filter(|made| made.kind == ParameterKind::Adapter);
        adapters.into_iter().try_for_each(|made| cx.convert(&made.data, DType::F32, &made.name))
    }

    /// Numbers of the parameters of the module `name` as they are listed: those of an adapter behind the layer that it stands beside.
    pub fn of_module(&self, cx: &Context, name: &str) -> Vec<usize> {
        let (before, prefix) = (cx.parameter_count(), format!("{name}."));
        let made = || self.made.iter().flatten().enumerate().map(move |(number, made)| (before + number, made));
        let layer =
            |made: &ParameterEntry| made.name.rsplit_once('.').map_or(String::new(), |(layer, _)| format!("{layer}."));
        let mut own =
            made().filter(|(_, made)| made.kind != ParameterKind::Adapter && made.name.starts_with(&prefix)).peekable();
        let mut numbers = Vec::new();
        while let Some((number, whole)) = own.next() {
            numbers.push(number);
            let of = layer(whole);
            if own.peek().is_some_and(|(_, next)| layer(next) == of) {
                continue;
            }
            let beside =
                |made: &ParameterEntry| made.name.strip_prefix(&of).is_some_and(|rest| rest.starts_with("lora_"));
            numbers
                .extend(made().filter(|(_, made)| made.kind == ParameterKind::Adapter && beside(made)).map(|(n, _)| n));
        }
        self.behind_those_within(before, numbers)
    }

    /// The same with what a module has of its own behind what the modules in it have, as FSDP visits them.
    fn behind_those_within(&self, before: usize, mut numbers: Vec<usize>) -> Vec<usize> {
        // Adapters stand in modules of their own behind the weight beside which they are.
        let names: Vec<Option<&str>> = self
            .made
            .iter()
            .flatten()
            .map(|made| (made.kind != ParameterKind::Adapter).then_some(&*made.name))
            .collect();
        let module = |number: usize| Some(names.get(number - before).copied()??.rsplit_once('.')?.0);
        for place in (0..numbers.len()).rev() {
            let Some(own) = module(numbers[place]) else { continue };
            let within = |&number: &usize| {
                module(number).and_then(|of| of.strip_prefix(own)).is_some_and(|rest| rest.starts_with('.'))
            };
            if let Some(last) = numbers[place..].iter().rposition(within) {
                numbers[place..=place + last].rotate_left(1);
            }
        }
        numbers
    }

    /// How many places are taken.
    pub const fn len(&self) -> usize {
        self.made.len()
    }

    /// Takes the next place for a parameter that is made later: those of a module come before its children's, and move to the
    /// device after them.
    pub fn reserve(&mut self) -> Slot {
        self.made.push(None);
        Slot(self.made.len() - 1)
    }

    /// Makes a parameter; it gets its values in [`Parameters::initialise`].
    fn make(&mut self, cx: &Context, name: &str, shape: Shape, init: Init) -> OpResult<Tensor> {
        let slot = self.reserve();
        self.make_in(slot, cx, name, [shape, shape], init)
    }

    /// A weight, spread as the model's are; one of a single dimension is a norm's.
    pub fn weight<const RANK: usize>(&mut self, cx: &Context, name: &str, dims: &[usize; RANK]) -> OpResult<Tensor> {
        let shape = Shape::new(dims);
        self.make(cx, name, shape, self.spread.init(shape))
    }

    /// The same in a place taken before.
    pub fn weight_in<const RANK: usize>(
        &mut self,
        slot: Slot,
        cx: &Context,
        name: &str,
        dims: &[usize; RANK],
    ) -> OpResult<Tensor> {
        let shape = Shape::new(dims);
        self.make_in(slot, cx, name, [shape, shape], self.spread.init(shape))
    }

    /// A parameter that is made and not used.
    pub fn unused<const RANK: usize>(&self, cx: &Context, name: &str, dims: &[usize; RANK]) -> OpResult<Tensor> {
        let (shape, id) = (Shape::new(dims), cx.memory().name(name));
        cx.memory().named_tensor(shape, self.dtype, Category::Parameter, id, StreamId::DEFAULT)
    }

    /// A bias.
    pub fn bias(&mut self, cx: &Context, name: &str, len: usize) -> OpResult<Tensor> {
        self.make(cx, name, Shape::new(&[len]), Init::Zero)
    }

    /// The weight of a norm that adds it to 1.
    pub fn centred(&mut self, cx: &Context, name: &str, len: usize) -> OpResult<Tensor> {
        self.make(cx, name, Shape::new(&[len]), Init::Zero)
    }

    /// A weight of shape `whole` that is split over ranks once the model is made: the tensor is of shape `part` all along.
    pub fn split_weight<const RANK: usize>(
        &mut self,
        cx: &Context,
        name: &str,
        whole: [usize; RANK],
        part: [usize; RANK],
    ) -> OpResult<Tensor> {
        let slot = self.reserve();
        let shape = Shape::new(&whole);
        self.make_in(slot, cx, name, [shape, Shape::new(&part)], self.spread.init(shape))
    }

    /// The same for a bias.
    pub fn split_bias(&mut self, cx: &Context, name: &str, whole: usize, part: usize) -> OpResult<Tensor> {
        let slot = self.reserve();
        self.make_in(slot, cx, name, [Shape::new(&[whole]), Shape::new(&[part])], Init::Zero)
    }

    fn make_in(&mut self, slot: Slot, cx: &Context, name: &str, shapes: [Shape; 2], init: Init) -> OpResult<Tensor> {
        let kind = if self.frozen { ParameterKind::Frozen } else { ParameterKind::Trained };
        self.make_as(kind, slot, cx, name, shapes, init)
    }

    fn make_as(
        &mut self,
        kind: ParameterKind,
        slot: Slot,
        cx: &Context,
        name: &str,
        [shape, part]: [Shape; 2],
        init: Init,
    ) -> OpResult<Tensor> {
        let id = cx.memory().name(name);
        let data = match (self.quantization, kind) {
            (Some(quantization), ParameterKind::Adapter) => {
                let dtype = quantization.compute;
                cx.memory().named_tensor(shape, dtype, Category::Parameter, id, StreamId::DEFAULT)?
            }
            (Some(_), _) => cx.memory().meta(shape, self.dtype),
            (None, _) if self.parts.is_some() => cx.memory().meta(part, self.dtype),
            (None, _) => cx.memory().named_tensor(shape, self.dtype, Category::Parameter, id, StreamId::DEFAULT)?,
        };
        let whole = (part != shape && self.parts.is_some()).then_some(shape);
        let part = (part != shape && self.parts.is_none()).then_some(part);
        let held = part.map_or_else(|| data.clone(), |part| data.window(part, 0));
        let number = cx.parameter_count() + slot.0;
        let parameter = match kind {
            ParameterKind::Frozen => Context::future_frozen_parameter(&held, number),
            ParameterKind::Trained | ParameterKind::Adapter => Context::future_parameter(&held, number),
        };
        let name = name.into();
        self.made[slot.0] = Some(ParameterEntry { name, data, part, whole, init, kind, four_bit: None, loaded: false });
        Ok(parameter)
    }

    /// Numbers the parameters and gives every one its first values. Places that nothing was made in fall away.
    pub fn initialise(self, cx: &mut Context) -> OpResult<()> {
        let in_place = self.in_place;
        for (p, ParameterEntry { name, data, part, init, kind, four_bit, loaded, .. }) in
            self.made.into_iter().flatten().enumerate()
        {
            let n = data.numel();
            let held = part.map_or_else(|| data.clone(), |part| data.window(part, 0));
            match (four_bit, kind) {
                (Some(weight), _) => cx.adopt_four_bit(&weight, &name),
                (None, ParameterKind::Frozen) => cx.adopt_frozen(held, &name),
                (None, ParameterKind::Trained | ParameterKind::Adapter) => cx.adopt(held, &name),
            }
            if loaded {
                continue;
            }
            let chain = || Chain::new(cx, n).unit()?.then(DType::F64)?.then(DType::F64)?.then(DType::F64);
            let _temporaries = match init {
                Init::Uniform(_) if !in_place => Some(chain()?),
                _ => None,
            };
            init.write(cx, &data, p)?;
        }
        Ok(())
    }
}

/// Takes the block of a matrix of all experts as transformers does, which files have one by one: the parts of each, then stacks of these,
/// and of gates and what they let through both behind each other.
fn load_experts(cx: &Context, data: &Tensor, name: &str, count: usize) -> OpResult<()> {
    let stacks = if name.ends_with("gate_up_proj") { 2 } else { 1 };
    let block = |parts: usize, what| {
        cx.memory().tensor(Shape::new(&[data.numel() / parts]), data.dtype(), Category::Temporary, what)
    };
    let parts = |_| (0..count).map(|_| block(stacks * count, "part of an expert")).collect::<OpResult<Vec<_>>>();
    let mut of_stacks = (0..stacks).map(parts).collect::<OpResult<Vec<_>>>()?;
    if let [only] = &mut of_stacks[..] {
        cx.memory().materialise(data, name)?;
        while only.pop().is_some() {}
        return Ok(());
    }
    let mut stacked = Vec::new();
    for mut parts in of_stacks {
        stacked.push(block(stacks, "parts of all experts")?);
        while parts.pop().is_some() {}
    }
    cx.memory().materialise(data, name)
}

impl Init {
    /// Writes the values of parameter `number`.
    #[expect(clippy::cast_possible_truncation, reason = "f32 weights; a model has few parameters")]
    fn write(self, cx: &Context, data: &Tensor, number: usize) -> OpResult<()> {
        match self {
            Self::Zero => write_float(cx, data, |_| 0.0),
            Self::One => write_float(cx, data, |_| 1.0),
            Self::Uniform(bound) => {
                write_float(cx, data, |i| ((2.0 * unit_at(1000 + number as u32, i) - 1.0) * bound) as f32)
            }
        }
    }
}

impl Init {
    /// Writes a rank's part of the values of parameter `number`, which is of shape `whole`: some rows, or some columns.
    #[expect(clippy::cast_possible_truncation, reason = "f32 weights; a model has few parameters")]
    fn write_part(self, cx: &Context, data: &Tensor, number: usize, (whole, world): (Shape, World)) -> OpResult<()> {
        let Self::Uniform(bound) = self else { return self.write(cx, data, number) };
        let (part, columns) = (data.shape().last(), whole.last());
        // Rows of a matrix, or of experts those of each gate and of each of what it lets through.
        let stretches = if let &[experts, _, _] = whole.dims() { 2 * experts } else { 1 };
        let (stretch, run) = match part == columns {
            true => (whole.numel() / stretches, whole.numel() / stretches / world.size()),
            false => (columns, part),
        };
        let of_whole = move |i: usize| i / run.max(1) * stretch + world.rank() * run + i % run.max(1);
        write_float(cx, data, |i| ((2.0 * unit_at(1000 + number as u32, of_whole(i)) - 1.0) * bound) as f32)
    }
}

/// One part of a name between dots, as transformers sorts them (`dot_natural_key`): numbers come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NamePart {
    Number(u64),
    Text(String),
}

fn natural_key(name: &str) -> Vec<NamePart> {
    name.split('.').map(|part| part.parse().map_or_else(|_| NamePart::Text(part.into()), NamePart::Number)).collect()
}
