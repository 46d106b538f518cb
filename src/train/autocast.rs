//! The current autocast region: its type, and its cache of weight copies.

use std::collections::BTreeMap;

use vramlab_device::DType;

use super::tensor::{GradientTarget, Tensor};

/// The current autocast region.
#[derive(Default)]
pub(crate) struct Autocast {
    dtype: Option<DType>,
    /// 16-bit copies of f32 parameters, by parameter; they live until the region ends.
    copies: BTreeMap<usize, Tensor>,
    /// The 16-bit copy that a fused op wrote beside its result, until the next fused op writes one.
    twin: Option<Twin>,
}

/// A 16-bit copy of a tensor's values.
struct Twin {
    /// The tensor that was copied: its block, and where its gradient goes.
    of: (u64, GradientTarget),
    copy: Tensor,
}

impl Autocast {
    /// A region of this type, without copies; off when `None`.
    pub fn region(dtype: Option<DType>) -> Self {
        Self { dtype, ..Self::default() }
    }

    /// The type of the ops that run in 16 bit.
    pub const fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Keeps `twin`, the values of `tensor` in 16 bits, for the ops that ask for them in 16 bits.
    pub fn keep_twin(&mut self, tensor: &Tensor, twin: Tensor) {
        self.twin = Some(Twin { of: (tensor.storage().number(), tensor.source()), copy: twin });
    }

    /// The 16-bit copy that a fused op wrote beside `tensor`.
    pub fn twin_of(&self, tensor: &Tensor) -> Option<Tensor> {
        let twin = self.twin.as_ref().filter(|twin| twin.of == (tensor.storage().number(), tensor.source()))?;
        (twin.copy.shape() == tensor.shape()).then(|| twin.copy.clone())
    }

    /// The copy of a parameter that serves the region.
    pub fn copy_of(&self, parameter: usize) -> Option<&Tensor> {
        self.copies.get(&parameter)
    }

    /// Keeps the 16-bit copy of a parameter until the region ends.
    pub fn keep_copy(&mut self, parameter: usize, copy: &Tensor) {
        self.copies.insert(parameter, copy.clone());
    }
}
