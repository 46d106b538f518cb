//! A rank's end of its collectives: they run on a stream of their own.

use crate::error::OpResult;
use crate::memory::Memory;
use vramlab_allocator::units::{Bytes, StreamId};

use super::member::World;

/// An NCCL communicator as one rank sees it. None of its own memory comes from the allocator.
pub(super) struct Communicator {
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

    /// Sums `bytes` over all ranks, behind what the compute stream has to do so far.
    pub fn all_reduce(&self, memory: &Memory, bytes: Bytes) -> OpResult<()> {
        let _ = bytes;
        memory.with_device(|device| {
            let ready = device.record_event(StreamId::DEFAULT)?;
            device.wait_event(self.stream, ready)
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
