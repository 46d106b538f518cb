//! Saved tensors that wait in host memory between forward and backward.
//!
//! [`Offload::Activations`], and with it [`Offload::ParametersAndActivations`], is PyTorch's `save_on_cpu`: every tensor that an
//! op saves, views of parameters included, is copied to host memory at once and comes back when its node runs. With pageable
//! memory the host waits for both copies; with page-locked memory it waits for the copy to the host only. PyTorch makes the
//! page-locked tensor contiguous, but gives the pageable one the order of strides of the original. So a transposed view is first
//! copied on the device in the page-locked case only; a view with gaps in both cases.
//!
//! [`Offload::Overlapped`] copies on the copy stream, beside the computation. While a node runs, it fetches what the
//! next node needs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, DeviceEvent};
use vramlab_model::Category;

use super::config::{Config, Offload};
use super::error::{Interrupt, OpResult, TrainError};
use super::memory::{HostBlock, Memory};
use super::shape::Shape;
use super::tensor::Tensor;

/// How saved tensors are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Pageable,
    Pinned,
    /// From page-locked memory on the copy stream.
    Overlapped,
}

/// The copies of one forward pass.
pub(crate) struct Offloader {
    style: Style,
    /// Offloaded tensors, by the node that saved them: fetching ahead finds the next node's tensors here.
    waiting: RefCell<BTreeMap<usize, Vec<Weak<OffloadedTensor>>>>,
}

impl Offloader {
    /// An offloader as `config` asks for; `None` if saved tensors stay on the device.
    pub fn new(config: &Config) -> Option<Rc<Self>> {
        let style = match (config.offload, config.pinned) {
            (Offload::Activations | Offload::ParametersAndActivations, false) => Style::Pageable,
            (Offload::Activations | Offload::ParametersAndActivations, true) => Style::Pinned,
            (Offload::Overlapped, _) => Style::Overlapped,
            (Offload::Off | Offload::Optimizer | Offload::Parameters, _) => return None,
        };
        Some(Rc::new(Self { style, waiting: RefCell::default() }))
    }

    /// The strides with which `tensor` is copied.
    pub fn strides_of(&self, tensor: &Tensor) -> [usize; 4] {
        match self.style {
            Style::Pageable => tensor.compact_strides(),
            Style::Pinned | Style::Overlapped => tensor.shape().contiguous_strides(),
        }
    }

    /// Copies `whole`, which has `strides` and which node number `node` of the tape saves, to the host.
    pub fn pack(
        this: &Rc<Self>,
        memory: &Memory,
        whole: &Tensor,
        strides: [usize; 4],
        node: usize,
    ) -> OpResult<Rc<OffloadedTensor>> {
        let mut block = HostBlock::new(memory, whole.bytes(), this.style != Style::Pageable)?;
        if this.style == Style::Overlapped {
            let stream = after_computation(memory)?;
            block.take(whole, stream)?;
            memory.record_stream(whole, stream)?;
        } else {
            block.take(whole, StreamId::DEFAULT)?;
        }
        let packed = Rc::new(OffloadedTensor {
            block,
            dtype: whole.dtype(),
            shape: whole.shape(),
            strides,
            offloader: Rc::clone(this),
            node,
            ahead: RefCell::default(),
            fetched: Cell::new(false),
        });
        if this.style == Style::Overlapped {
            this.waiting.borrow_mut().entry(node).or_default().push(Rc::downgrade(&packed));
        }
        Ok(packed)
    }

    /// Starts the copies of what the node before `node`, which backward runs next, has saved.
    fn fetch_ahead(&self, memory: &Memory, node: usize) -> OpResult<()> {
        let next: Vec<Rc<OffloadedTensor>> = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.split_off(&node);
            loop {
                let Some((_, saved)) = waiting.last_key_value() else { break Vec::new() };
                let saved: Vec<Rc<OffloadedTensor>> = saved.iter().filter_map(Weak::upgrade).collect();
                if !saved.is_empty() {
                    break saved;
                }
                waiting.pop_last();
            }
        };
        next.iter().try_for_each(|packed| packed.start(memory))
    }
}

/// A saved tensor in host memory, with the layout in which it comes back.
pub(crate) struct OffloadedTensor {
    block: HostBlock,
    dtype: DType,
    shape: Shape,
    strides: [usize; 4],
    offloader: Rc<Offloader>,
    node: usize,
    /// A copy back that was started ahead.
    ahead: RefCell<Option<(Tensor, DeviceEvent)>>,
    fetched: Cell<bool>,
}

impl OffloadedTensor {
    /// The tensor on the device again, in a block of its own.
    pub fn unpack(&self, memory: &Memory) -> OpResult<Tensor> {
        if self.offloader.style != Style::Overlapped {
            let tensor = self.room(memory, StreamId::DEFAULT)?;
            self.block.give(&tensor, StreamId::DEFAULT)?;
            return Ok(tensor);
        }
        self.start(memory)?;
        let begun = self.ahead.borrow_mut().take();
        let (tensor, event) = begun.ok_or_else(|| {
            Interrupt::Failed(TrainError::Workload("a saved tensor was fetched from the host twice".into()))
        })?;
        memory.with_device(|device| device.wait_event(StreamId::DEFAULT, event))?;
        // The block belongs to the copy stream; when freed, it waits for the computation that reads it.
        memory.record_stream(&tensor, StreamId::DEFAULT)?;
        self.fetched.set(true);
        self.offloader.fetch_ahead(memory, self.node)?;
        Ok(tensor)
    }

    /// Starts the copy back on the copy stream, once.
    fn start(&self, memory: &Memory) -> OpResult<()> {
        if self.fetched.get() || self.ahead.borrow().is_some() {
            return Ok(());
        }
        let stream = memory.with_device(|device| device.copy_stream());
        let tensor = self.room(memory, stream)?;
        self.block.give(&tensor, stream)?;
        let event = memory.with_device(|device| device.record_event(stream))?;
        *self.ahead.borrow_mut() = Some((tensor, event));
        Ok(())
    }

    fn room(&self, memory: &Memory, stream: StreamId) -> OpResult<Tensor> {
        let name = memory.name_here("saved tensor, fetched");
        let tensor = memory.named_tensor(self.shape, self.dtype, Category::Activation, name, stream)?;
        Ok(if self.strides == self.shape.contiguous_strides() {
            tensor
        } else {
            tensor.strided(self.shape, self.strides, 0)
        })
    }
}

/// The copy stream, after it waits for everything queued on the compute stream so far.
fn after_computation(memory: &Memory) -> OpResult<StreamId> {
    memory.with_device(|device| {
        let stream = device.copy_stream();
        let event = device.record_event(StreamId::DEFAULT)?;
        device.wait_event(stream, event)?;
        Ok(stream)
    })
}
