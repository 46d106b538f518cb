//! Optimizer state, on the device or parked in host memory.

use crate::error::OpResult;
use crate::memory::{HostBlock, Memory};
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::DType;
use vramlab_model::{Category, NameId};

/// The most state that is on the device at once while the rest is parked.
const CHUNK: Bytes = Bytes::mib(64);

/// A tensor of optimizer state. Its bytes are contiguous: it is never a view with gaps.
pub(super) struct State {
    name: NameId,
    shape: Shape,
    dtype: DType,
    place: StatePlace,
}

enum StatePlace {
    /// Where kernels reach it: on the device, or on the host for a parameter that is stepped there.
    Reached(Tensor),
    /// In host memory, waiting for its step.
    Parked(HostBlock),
}

impl State {
    /// Uninitialised state of a parameter, on the device or the host like the parameter.
    pub fn new(memory: &Memory, parameter: &Tensor, dtype: DType, name: NameId) -> OpResult<Self> {
        let shape = parameter.shape();
        let tensor =
            if parameter.is_on_host() { memory.host_tensor(shape, dtype)? } else { room(memory, name, shape, dtype)? };
        Ok(Self { name, shape, dtype, place: StatePlace::Reached(tensor) })
    }

    /// The tensor, while kernels can reach it.
    pub const fn tensor(&self) -> Option<&Tensor> {
        match &self.place {
            StatePlace::Reached(tensor) => Some(tensor),
            StatePlace::Parked(_) => None,
        }
    }

    /// Brings the state to the device.
    pub fn fetch(&mut self, memory: &Memory) -> OpResult<()> {
        if let StatePlace::Parked(block) = &self.place {
            let tensor = room(memory, self.name, self.shape, self.dtype)?;
            block.give(&tensor, StreamId::DEFAULT)?;
            self.place = StatePlace::Reached(tensor);
        }
        Ok(())
    }

    /// Copies the state to host memory and frees its block.
    pub fn park(&mut self, memory: &Memory, pinned: bool) -> OpResult<()> {
        if let StatePlace::Reached(tensor) = &self.place {
            let mut block = HostBlock::new(memory, tensor.bytes(), pinned)?;
            block.take(tensor, StreamId::DEFAULT)?;
            self.place = StatePlace::Parked(block);
        }
        Ok(())
    }
}

fn room(memory: &Memory, name: NameId, shape: Shape, dtype: DType) -> OpResult<Tensor> {
    memory.named_tensor(shape, dtype, Category::OptimizerState, name, StreamId::DEFAULT)
}

/// Cuts a list of parameters into parts of at most [`CHUNK`], or of one parameter.
pub(super) fn chunks<T>(parameters: &[T], bytes: impl Fn(&T) -> Bytes) -> Vec<&[T]> {
    let (mut parts, mut begin, mut size) = (Vec::new(), 0, Bytes::ZERO);
    for (i, parameter) in parameters.iter().enumerate() {
        let more = bytes(parameter);
        if i > begin && size + more > CHUNK {
            parts.push(&parameters[begin..i]);
            (begin, size) = (i, Bytes::ZERO);
        }
        size += more;
    }
    if begin < parameters.len() {
        parts.push(&parameters[begin..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_what_fits_or_one_parameter() {
        let sizes = [10, 60, 4, 200, 1, 63].map(Bytes::mib);
        let parts = chunks(&sizes, |size| *size);
        let parts: Vec<usize> = parts.into_iter().map(<[Bytes]>::len).collect();
        assert_eq!(parts, [1, 2, 1, 2]);
        assert!(chunks(&[], |size: &Bytes| *size).is_empty());
    }
}
