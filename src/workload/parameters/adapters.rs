//! Parameters of adapters, and how peft prepares a model for them.

use vramlab_device::DType;
use vramlab_train::{Context, OpResult, Shape, Tensor};

use super::init::Init;
use super::{ParameterEntry, ParameterKind, Parameters};

impl Parameters {
    /// peft's `prepare_model_for_kbit_training` before it freezes the model: parameters that are not quantised become f32, one
    /// after the other, then the cache is emptied.
    pub fn prepare_for_training(&self, cx: &Context) -> OpResult<()> {
        let whole = self.made.iter().flatten().filter(|made| made.four_bit.is_none());
        whole.into_iter().try_for_each(|made| cx.convert(&made.data, DType::F32, &made.name))?;
        cx.memory().release_cached();
        Ok(())
    }

    /// A trained matrix of an adapter: initialised like `nn.Linear` if it is the first of two, else with zeros.
    #[expect(clippy::cast_precision_loss, reason = "layer sizes are small")]
    pub fn adapter(&mut self, cx: &Context, name: &str, dims: &[usize; 2], first: bool) -> OpResult<Tensor> {
        let init = if first { Init::Uniform(1.0 / (dims[1] as f64).sqrt()) } else { Init::Zero };
        let slot = self.reserve();
        let shape = Shape::new(dims);
        self.make_as(ParameterKind::Adapter, slot, cx, name, [shape, shape], init)
    }

    /// A parameter of an adapter that was computed from others: it already has its values.
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

    /// Adapters become f32, one after the other.
    pub fn widen_adapters(&self, cx: &Context) -> OpResult<()> {
        let adapters = self.made.iter().flatten().filter(|made| made.kind == ParameterKind::Adapter);
        adapters.into_iter().try_for_each(|made| cx.convert(&made.data, DType::F32, &made.name))
    }
}
