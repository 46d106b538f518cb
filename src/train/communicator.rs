//! A rank's end of its collectives: they run on a stream of their own.

use std::ops::Range;
use std::sync::Arc;

use vramlab_allocator::units::{Bytes, StreamId};

use super::error::OpResult;
use super::exchange::Seat;
use super::member::World;
use super::memory::Memory;
use super::tensor::Tensor;

/// An NCCL communicator as one rank sees it. None of its own memory comes from the allocator.
pub(crate) struct Communicator {
    world: World,
    stream: StreamId,
    /// Where bytes are passed on; a device without bytes passes time alone.
    seat: Option<Arc<Seat>>,
}

impl Communicator {
    /// # Errors
    /// A device that opens no more streams.
    pub fn new(memory: &Memory, world: World, seat: Option<&Arc<Seat>>) -> OpResult<Self> {
        let seat = seat.filter(|_| memory.holds_bytes()).cloned();
        Ok(Self { world, stream: memory.with_device(|device| device.open_stream())?, seat })
    }

    /// How many ranks take part.
    pub const fn world(&self) -> World {
        self.world
    }

    /// The stream that its collectives run on, and what they fill is allocated for.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Gathers every rank's part into `output`, behind what the compute stream has to do so far; `own` makes this rank's bytes.
    pub fn all_gather(
        &self,
        memory: &Memory,
        output: &Tensor,
        own: impl FnOnce() -> OpResult<Vec<u8>>,
    ) -> OpResult<()> {
        self.exchange(memory, self.others(output.bytes()))?;
        let Some(seat) = &self.seat else { return Ok(()) };
        memory.write(output, &seat.all(own()?)?.concat())
    }

    /// Averages `input` over all ranks and leaves each its part in `output`, behind what the compute stream has to do so far.
    pub fn reduce_scatter(&self, memory: &Memory, input: &Tensor, output: &Tensor) -> OpResult<()> {
        self.exchange(memory, self.others(input.bytes()))?;
        let Some(seat) = &self.seat else { return Ok(()) };
        let given = seat.all(bytes_of(memory, input)?)?;
        let (own, size) = (self.world.rank() * output.numel(), 1.0 / self.world.size() as f32);
        let mut sum = sum(&given, own..own + output.numel());
        sum.iter_mut().for_each(|value| *value *= size);
        memory.write(output, &to_bytes(&sum))
    }

    /// Sums a tensor over all ranks, behind what the compute stream has to do so far.
    pub fn all_reduce(&self, memory: &Memory, tensor: &Tensor) -> OpResult<()> {
        self.exchange(memory, Bytes(2 * self.others(tensor.bytes()).get()))?;
        let Some(seat) = &self.seat else { return Ok(()) };
        let given = seat.all(bytes_of(memory, tensor)?)?;
        memory.write(tensor, &to_bytes(&sum(&given, 0..tensor.numel())))
    }

    /// Makes tensors what they are on the rank that `owner` says, each of them.
    pub fn broadcast(&self, memory: &Memory, tensors: &[Tensor], owner: impl Fn(usize) -> usize) -> OpResult<()> {
        for (number, tensor) in tensors.iter().enumerate() {
            self.exchange(memory, tensor.bytes())?;
            let Some(seat) = &self.seat else { continue };
            let mine = owner(number) == self.world.rank();
            let given = seat.all(if mine { bytes_of(memory, tensor)? } else { Vec::new() })?;
            if !mine && let Some(bytes) = given.get(owner(number)) {
                memory.write(tensor, bytes)?;
            }
        }
        Ok(())
    }

    /// Sends a tensor to another rank: its block waits for that once it is freed.
    pub fn send(&self, memory: &Memory, tensor: &Tensor, to: usize) -> OpResult<()> {
        self.exchange(memory, tensor.bytes())?;
        if let Some(seat) = &self.seat {
            seat.send(to, bytes_of(memory, tensor)?);
        }
        Ok(memory.record_stream(tensor, self.stream)?)
    }

    /// Receives a tensor from another rank before the compute stream goes on.
    pub fn receive(&self, memory: &Memory, tensor: &Tensor, from: usize) -> OpResult<()> {
        self.exchange(memory, tensor.bytes())?;
        if let Some(seat) = &self.seat {
            memory.write(tensor, &seat.receive(from)?)?;
        }
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

/// The bytes of a contiguous tensor.
pub(crate) fn bytes_of(memory: &Memory, tensor: &Tensor) -> OpResult<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(tensor.bytes().get()).unwrap_or(usize::MAX)];
    memory.read(tensor, &mut bytes)?;
    Ok(bytes)
}

/// Elements of f32 that every rank gave, added in the order of the ranks.
fn sum(given: &[Vec<u8>], elements: Range<usize>) -> Vec<f32> {
    let mut sum = vec![0.0; elements.len()];
    for bytes in given {
        let all = bytes.as_chunks().0.iter().skip(elements.start);
        sum.iter_mut().zip(all).for_each(|(sum, bytes)| *sum += f32::from_le_bytes(*bytes));
    }
    sum
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
