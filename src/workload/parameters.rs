//! The parameters of a model: created in the order of `named_parameters`, loaded if files have them, initialised from the
//! [hash](super::hash); or parts of them if ranks split a model.

mod adapters;
mod init;
mod load;
mod order;
mod parts;

use vramlab_allocator::units::StreamId;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, FourBitWeight, OpResult, Shape, Tensor, World};

use super::hash::Chain;
use super::plan::TensorPlan;
use super::quantization::Quantization;

use init::Init;
pub use init::Spread;

/// A place among the parameters, reserved before the parameter is created.
pub(super) struct Slot(usize);

/// Parameters in the order of `named_parameters`: all are made first, then each gets its number and its values. One model is
/// finished before the next begins.
pub(super) struct Parameters {
    spread: Spread,
    dtype: DType,
    /// First values are written in place, as `torch.nn.init` does: no blocks but the parameters'.
    in_place: bool,
    /// Parameters are not trained, unlike adapters.
    frozen: bool,
    /// Parameters are made on the meta device, and loaded from a file, quantised on the way.
    quantization: Option<Quantization>,
    /// The ranks that each load a part.
    parts: Option<World>,
    /// The modules of which ranks load parts.
    plan: TensorPlan,
    made: Vec<Option<ParameterEntry>>,
    /// Buffers that are loaded with the parameters.
    buffers: Vec<LoadedBuffer>,
}

struct ParameterEntry {
    name: String,
    data: Tensor,
    /// For a parameter that is split over ranks: the shape of each part.
    part: Option<Shape>,
    /// For a parameter that is loaded in parts: the shape of the whole.
    whole: Option<Shape>,
    init: Init,
    kind: ParameterKind,
    /// The 4-bit matrix that its bytes belong to, if there is one.
    four_bit: Option<FourBitWeight>,
    /// It already has its values.
    loaded: bool,
}

/// A buffer on the meta device until it is loaded.
struct LoadedBuffer {
    name: String,
    data: Tensor,
    /// Its bytes in the type in which it was made.
    bytes: u64,
}

/// How a parameter takes part in training.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Trained,
    Frozen,
    /// Trained beside frozen ones.
    Adapter,
}

impl Parameters {
    /// Parameters with first values of this spread.
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
            buffers: Vec::new(),
        }
    }

    /// Parameters of this type, initialised in place.
    pub const fn in_place(spread: Spread, dtype: DType) -> Self {
        let mut parameters = Self::new(spread);
        parameters.dtype = dtype;
        parameters.in_place = true;
        parameters
    }

    /// Parameters created from here on are not trained, if `frozen`.
    pub const fn frozen(mut self, frozen: bool) -> Self {
        self.frozen = frozen;
        self
    }

    /// Parameters created from here on are loaded by [`Parameters::load`], and quantised like this, if it is given.
    pub const fn quantized(mut self, quantization: Option<Quantization>) -> Self {
        self.quantization = quantization;
        self
    }

    /// Parameters created from here on are on the meta device, and each of these ranks loads its part, if there are ranks.
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

    /// Whether ranks load some hidden values of every expert.
    pub fn splits_experts(&self) -> bool {
        self.splits() && self.plan.splits_experts
    }

    /// The type of parameters that are created.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// How matrices of layers are quantised, where they are.
    pub const fn quantization(&self) -> Option<Quantization> {
        self.quantization
    }

    /// Initialises the parameters created so far, because others are computed from them.
    pub fn settle(&mut self, cx: &Context) -> OpResult<()> {
        for (number, made) in self.made.iter_mut().flatten().enumerate().filter(|(_, made)| !made.loaded) {
            made.init.write(cx, &made.data, number)?;
            made.loaded = true;
        }
        Ok(())
    }

    /// How many places are taken.
    pub const fn len(&self) -> usize {
        self.made.len()
    }

    /// Reserves the next place for a parameter that is created later: a module's own parameters come before its children's,
    /// and move to the device after them.
    pub fn reserve(&mut self) -> Slot {
        self.made.push(None);
        Slot(self.made.len() - 1)
    }

    /// Makes a parameter; it gets its values in [`Parameters::initialise`].
    fn make(&mut self, cx: &Context, name: &str, shape: Shape, init: Init) -> OpResult<Tensor> {
        let slot = self.reserve();
        self.make_in(slot, cx, name, [shape, shape], init)
    }

    /// A weight with the model's spread; a weight of one dimension belongs to a norm.
    pub fn weight<const RANK: usize>(&mut self, cx: &Context, name: &str, dims: &[usize; RANK]) -> OpResult<Tensor> {
        let shape = Shape::new(dims);
        self.make(cx, name, shape, self.spread.init(shape))
    }

    /// The same in f32, whatever the type of the others.
    pub fn weight_in_f32(&mut self, cx: &Context, name: &str, dims: &[usize; 2]) -> OpResult<Tensor> {
        let dtype = std::mem::replace(&mut self.dtype, DType::F32);
        let made = self.weight(cx, name, dims);
        self.dtype = dtype;
        made
    }

    /// The same in a reserved place.
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

    /// A parameter that is created and not used.
    pub fn unused<const RANK: usize>(&self, cx: &Context, name: &str, dims: &[usize; RANK]) -> OpResult<Tensor> {
        let (shape, id) = (Shape::new(dims), cx.memory().name(name));
        cx.memory().named_tensor(shape, self.dtype, Category::Parameter, id, StreamId::DEFAULT)
    }

    /// A tensor of zeros that a module keeps beside its parameters and that files have. The types are those in which it is
    /// made and loaded.
    pub fn buffer(
        &mut self,
        cx: &mut Context,
        name: &str,
        shape: Shape,
        [made, loaded]: [DType; 2],
    ) -> OpResult<Tensor> {
        if !self.loads() {
            return cx.buffer(name, shape, made, 0.0);
        }
        let data = cx.memory().meta(shape, loaded);
        let bytes = made.bytes(shape.numel()).get();
        self.buffers.push(LoadedBuffer { name: name.to_owned(), data: data.clone(), bytes });
        Ok(data)
    }

    /// A bias.
    pub fn bias(&mut self, cx: &Context, name: &str, len: usize) -> OpResult<Tensor> {
        self.make(cx, name, Shape::new(&[len]), Init::Zero)
    }

    /// The weight of a norm that adds 1 to it.
    pub fn centred(&mut self, cx: &Context, name: &str, len: usize) -> OpResult<Tensor> {
        self.make(cx, name, Shape::new(&[len]), Init::Zero)
    }

    /// A weight of shape `whole` that is split over ranks once the model is made: the tensor always has the shape `part`.
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

    /// Numbers the parameters and gives each its first values. Empty places are dropped.
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
