//! Optimizer state, on the device or parked in host memory.

use crate::error::OpResult;
use crate::memory::{HostBlock, Memory};
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::DType;
use vramlab_model::{Category, NameId};

/// Parameters whose state is on the device at once while the rest of it is parked.
const CHUNK: Bytes = Bytes::mib(64);

/// A tensor of optimizer state. It never has views with gaps: its bytes lie together.
pub(super) struct State {
    name: NameId,
    shape: Shape,
    dtype: DType,
    place: StatePlace,
}

enum StatePlace {
    Device(Tensor),
    Host(HostBlock),
}

impl State {
    /// State on the device, not initialised.
    pub fn new(memory: &Memory, shape: Shape, dtype: DType, name: NameId) -> OpResult<Self> {
        Ok(Self { name, shape, dtype, place: StatePlace::Device(room(memory, name, shape, dtype)?) })
    }

    /// The tensor, while it is on the device.
    pub const fn tensor(&self) -> Option<&Tensor> {
        match &self.place {
            StatePlace::Device(tensor) => Some(tensor),
            StatePlace::Host(_) => None,
        }
    }

    /// Brings it to the device.
    pub fn fetch(&mut self, memory: &Memory) -> OpResult<()> {
        if let StatePlace::Host(block) = &self.place {
            let tensor = room(memory, self.name, self.shape, self.dtype)?;
            block.give(&tensor, StreamId::DEFAULT)?;
            self.place = StatePlace::Device(tensor);
        }
        Ok(())
    }

    /// Sends it to host memory and frees its block.
    pub fn park(&mut self, memory: &Memory, pinned: bool) -> OpResult<()> {
        if let StatePlace::Device(tensor) = &self.place {
            let mut block = HostBlock::new(memory, tensor.bytes(), pinned)?;
            block.take(tensor, StreamId::DEFAULT)?;
            self.place = StatePlace::Host(block);
        }
        Ok(())
    }
}

fn room(memory: &Memory, name: NameId, shape: Shape, dtype: DType) -> OpResult<Tensor> {
    memory.named_tensor(shape, dtype, Category::OptimizerState, name, StreamId::DEFAULT)
}

/// Parameters one after the other, in parts of at most [`CHUNK`] or of one parameter.
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
