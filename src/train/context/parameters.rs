//! What a model registers: parameters, for which gradients are collected, and buffers.

use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, kernels};
use vramlab_model::Category;

use super::{Buffer, Context};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Leaf;
use crate::tensor::{GradientTarget, Tensor};

impl Context {
    /// Makes `data` a parameter: the gradients of its uses are added up in `<name>.grad`.
    pub fn parameter(&mut self, data: Tensor, name: &str) -> Tensor {
        let leaf = Self::future_parameter(&data, self.leaves.len());
        self.adopt(data, name);
        leaf
    }

    /// A handle of `data` as parameter number `index`, not to be used before [`Context::adopt`] has registered it.
    #[must_use]
    pub fn future_parameter(data: &Tensor, index: usize) -> Tensor {
        data.detach().with_source(GradientTarget::Leaf(index))
    }

    /// The same for a frozen parameter: it gets no gradient, and no optimizer updates it.
    #[must_use]
    pub fn future_frozen_parameter(data: &Tensor, index: usize) -> Tensor {
        data.detach().with_source(GradientTarget::Frozen(index))
    }

    /// Registers `data` as the next parameter, a frozen one.
    pub fn adopt_frozen(&mut self, data: Tensor, name: &str) {
        self.adopt(data, name);
        if let Some(leaf) = self.leaves.last_mut() {
            leaf.frozen = true;
        }
    }

    /// Registers `data` as the next parameter.
    pub fn adopt(&mut self, data: Tensor, name: &str) {
        let gradient = self.memory.name(&format!("{name}.grad"));
        self.leaves.push(Leaf::new(name, data, gradient));
    }

    /// A tensor filled with `value` that a module keeps besides its parameters, as batch norm keeps its running statistics.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn buffer(&mut self, name: &str, shape: Shape, dtype: DType, value: f64) -> OpResult<Tensor> {
        let name = self.memory.name(name);
        let data = self.memory.named_tensor(shape, dtype, Category::Other, name, StreamId::DEFAULT)?;
        self.launch(kernels::Elementwise::Fill { dst: data.operand(), value })?;
        self.buffers.push(Buffer { name, data: data.clone() });
        Ok(data)
    }

    /// Takes a block for a buffer on the meta device, fills it with zeros and registers it.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn materialise_buffer(&mut self, data: &Tensor, name: &str) -> OpResult<()> {
        let name = self.memory.name(name);
        data.storage().refill(data.numel(), Category::Other, name)?;
        self.launch(kernels::Elementwise::Fill { dst: data.operand(), value: 0.0 })?;
        self.buffers.push(Buffer { name, data: data.clone() });
        Ok(())
    }

    /// Unregisters a buffer that the module has replaced by another tensor.
    pub fn forget_buffer(&mut self, buffer: &Tensor) {
        self.buffers.retain(|kept| !kept.data.shares_storage(buffer));
    }

    /// Unregisters a buffer whose module is gone and frees its memory, even if other handles remain.
    pub fn let_go(&mut self, buffer: &Tensor) {
        self.forget_buffer(buffer);
        buffer.storage().empty();
    }

    /// How many parameters there are.
    pub const fn parameter_count(&self) -> usize {
        self.leaves.len()
    }

    /// Replaces every parameter and every floating-point buffer by a copy in `dtype`, one after the other in order of
    /// creation (`model.half()`). Tensors that already have the type stay.
    ///
    /// # Errors
    /// Out of memory, a failed kernel. Tensors before the failure are replaced.
    pub fn convert_model(&mut self, dtype: DType) -> OpResult<()> {
        let parameters = self.leaves.iter().map(|leaf| (&leaf.data, self.memory.name(&leaf.name), Category::Parameter));
        let buffers = self.buffers.iter().map(|buffer| (&buffer.data, buffer.name, Category::Other));
        let mut all: Vec<_> = parameters.chain(buffers).collect();
        all.sort_by_key(|(data, ..)| data.storage().number());
        for (data, name, category) in all {
            if !data.dtype().is_float() || data.dtype() == dtype {
                continue;
            }
            let copy = self.memory.named_tensor(data.shape(), dtype, category, name, StreamId::DEFAULT)?;
            self.launch(kernels::Elementwise::Cast { src: data.operand(), dst: copy.operand() })?;
            data.replace(&copy);
        }
        Ok(())
    }

    /// Replaces `data`, which fills the block of a parameter, by a copy in `dtype`; it stays if it already has the type.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn convert(&self, data: &Tensor, dtype: DType, name: &str) -> OpResult<()> {
        if data.dtype() == dtype {
            return Ok(());
        }
        let name = self.memory.name(name);
        let copy = self.memory.named_tensor(data.shape(), dtype, Category::Parameter, name, StreamId::DEFAULT)?;
        self.launch(kernels::Elementwise::Cast { src: data.operand(), dst: copy.operand() })?;
        data.replace(&copy);
        Ok(())
    }

    /// The buffers, in order of creation.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = Tensor> {
        self.buffers.iter().map(|buffer| buffer.data.clone())
    }

    /// Every parameter and buffer with its name, in order of creation.
    pub(crate) fn state(&self) -> Vec<(String, Tensor)> {
        let parameters = self.leaves.iter().map(|leaf| (leaf.name.to_string(), leaf.data.clone()));
        let buffers =
            self.buffers.iter().map(|buffer| (self.memory.text(buffer.name).to_string(), buffer.data.clone()));
        let mut all: Vec<_> = parameters.chain(buffers).collect();
        all.sort_by_key(|(_, data)| data.storage().number());
        all
    }

    /// Unregisters all parameters and buffers: without another owner the model is freed.
    pub fn drop_model(&mut self) {
        self.needs_whole = None;
        self.leaves.clear();
        self.buffers.clear();
        self.units.clear();
        self.splits.clear();
    }

    /// The gradient of a parameter of this context.
    #[must_use]
    pub fn gradient(&self, parameter: &Tensor) -> Option<&Tensor> {
        match parameter.source() {
            GradientTarget::Leaf(index) => self.leaves[index].gradient.as_ref(),
            _ => None,
        }
    }
}
