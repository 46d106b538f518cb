//! A rank's end of its collectives: they run on a stream of their own.

use vramlab_allocator::units::{Bytes, StreamId};

use super::error::OpResult;
use super::member::World;
use super::memory::Memory;
use super::tensor::Tensor;

/// An NCCL communicator as one rank sees it. None of its own memory comes from the allocator.
pub(crate) struct Communicator {
    world: World,
    stream: StreamId,
}

impl Communicator {
    /// # Errors
    /// A device that opens no more streams.
    pub fn new(memory: &Memory, world: World) -> OpResult<Self> {
        Ok(Self { world, stream: memory.with_device(|device| device.open_stream())? })
    }

    /// How many ranks take part.
    pub const fn world(&self) -> World {
        self.world
    }

    /// The stream that its collectives run on, and what they fill is allocated for.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Gathers `bytes`, all ranks' parts together, behind what the compute stream has to do so far.
    pub fn all_gather(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        self.exchange(memory, self.others(bytes))
    }

    /// Sums `bytes` over all ranks and leaves each its part, behind what the compute stream has to do so far.
    pub fn reduce_scatter(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        self.exchange(memory, self.others(bytes))
    }

    /// Sums `bytes` over all ranks, behind what the compute stream has to do so far.
    pub fn all_reduce(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        self.exchange(memory, Bytes(2 * self.others(bytes).get()))
    }

    /// Sends a tensor to another rank: its block waits for that once it is freed.
    pub fn send(&self, memory: &Memory, tensor: &Tensor) -> OpResult<()> {
        self.exchange(memory, tensor.bytes())?;
        Ok(memory.record_stream(tensor, self.stream)?)
    }

    /// Receives `bytes` from another rank before the compute stream goes on.
    pub fn receive(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        self.exchange(memory, bytes)?;
        self.join(memory)
    }

    /// Of `bytes` in equal parts, those of the other ranks: what passes a rank's link in a ring.
    fn others(&self, bytes: Bytes) -> Bytes {
        let ranks = self.world.size() as u64;
        Bytes(bytes.get() / ranks * (ranks - 1))
    }

    /// Passes `bytes` on, behind what the compute stream has to do so far.
    fn exchange(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        memory.with_device(|device| {
            let ready = device.record_event(StreamId::DEFAULT)?;
            device.wait_event(self.stream, ready)?;
            device.spend_exchange(bytes, self.stream)
        })?;
        Ok(())
    }

    /// Lets the compute stream wait for all collectives so far.
    pub fn join(&self, memory: &Memory) -> OpResult<()> {
        memory.with_device(|device| {
            let done = device.record_event(self.stream)?;
            device.wait_event(StreamId::DEFAULT, done)
        })?;
        Ok(())
    }
}
