//! A model's state dict: its parameters and buffers as in a file, and the ways to load them into a model.

use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, kernels};
use vramlab_model::Category;

use super::context::Context;
use super::error::OpResult;
use super::memory::HostBlock;
use super::shape::Shape;
use super::tensor::Tensor;

/// The content of a file from `torch.save(model.state_dict(), file)`, in host memory and in order of creation.
pub struct StateDict(Vec<SavedTensor>);

struct SavedTensor {
    name: String,
    shape: Shape,
    dtype: DType,
    bytes: HostBlock,
}

impl Context {
    /// Copies every parameter and buffer to the host, one after the other. This allocates nothing on the device.
    ///
    /// # Errors
    /// Out of host memory, a failed copy.
    pub fn save_state(&mut self) -> OpResult<StateDict> {
        self.op("torch.save", |cx| {
            let mut entries = Vec::new();
            for (name, data) in cx.state() {
                let mut bytes = HostBlock::new(cx.memory(), data.bytes(), false)?;
                bytes.take(&data, StreamId::DEFAULT)?;
                entries.push(SavedTensor { name, shape: data.shape(), dtype: data.dtype(), bytes });
            }
            Ok(StateDict(entries))
        })
    }

    /// `torch.load(file, map_location="cuda")`: allocates a block on the device for every tensor of the file.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    pub fn load_on_device(&mut self, file: &StateDict) -> OpResult<Vec<Tensor>> {
        self.op("torch.load", |cx| {
            let load = |entry: &SavedTensor| {
                let name = cx.memory().name(&format!("state_dict.{}", entry.name));
                let (shape, dtype) = (entry.shape, entry.dtype);
                let tensor = cx.memory().named_tensor(shape, dtype, Category::Other, name, StreamId::DEFAULT)?;
                entry.bytes.give(&tensor, StreamId::DEFAULT)?;
                Ok(tensor)
            };
            file.0.iter().map(load).collect()
        })
    }

    /// `model.load_state_dict(state)` with a state on the device: copies it into the parameters and buffers.
    ///
    /// # Errors
    /// A failed kernel.
    pub fn load_state(&mut self, state: &[Tensor]) -> OpResult<()> {
        self.op("load_state_dict", |cx| {
            for ((_, data), loaded) in cx.state().iter().zip(state) {
                cx.launch(kernels::Elementwise::Cast { src: loaded.operand(), dst: data.operand() })?;
            }
            Ok(())
        })
    }

    /// The same with a state that was loaded with `map_location="cpu"`: copies from host memory.
    ///
    /// # Errors
    /// A failed copy.
    pub fn load_state_from_host(&mut self, file: &StateDict) -> OpResult<()> {
        self.op("load_state_dict", |cx| {
            for ((_, data), entry) in cx.state().iter().zip(&file.0) {
                entry.bytes.give(data, StreamId::DEFAULT)?;
            }
            Ok(())
        })
    }
}
