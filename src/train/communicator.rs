//! One rank's side of its collectives: they run on a stream of their own.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{Collective, DType, DeviceEvent, GroupId};
use vramlab_model::Micros;

use super::error::{OpResult, TrainError};
use super::exchange::Seat;
use super::member::World;
use super::memory::{HeldMark, Memory};
use super::shape::Shape;
use super::tensor::Tensor;

/// When data from another simulated device arrives: this long after an event of this device.
pub(crate) type Arrival = (DeviceEvent, Micros);

/// An NCCL communicator as one rank sees it. None of its own memory comes from the allocator.
pub(crate) struct Communicator {
    world: World,
    stream: StreamId,
    /// How bytes reach the other ranks; without bytes on the device only time passes.
    path: Option<Path>,
    /// When the current exchange could begin on the stream; of several that are noted together, the first.
    begun: Cell<Option<HeldMark>>,
}

/// How bytes reach the other ranks.
enum Path {
    /// Through host memory.
    Host(Arc<Seat>),
    /// From device to device.
    Device(GroupId, Arc<Seat>),
}

/// Which gradients a rank has, some of them or a part of each, and how their squares are summed.
#[derive(Clone, Copy)]
pub(crate) struct GradientGroup<'a> {
    pub communicator: &'a Communicator,
    /// Each rank has a part of every gradient (`DTensor`) and the norms of these parts are reduced together; else the sum over
    /// all gradients is, as torchtitan does for stages.
    pub in_parts: bool,
}

impl Communicator {
    /// # Errors
    /// A device that opens no more streams, or can't reach the others.
    pub fn new(memory: &Memory, world: World, seat: Option<&Arc<Seat>>) -> OpResult<Self> {
        let stream = memory.with_device(|device| device.open_stream())?;
        let path = match seat.filter(|_| memory.holds_bytes()) {
            None => None,
            Some(seat) if memory.exchanges() => Some(Path::Device(join(memory, world, seat)?, Arc::clone(seat))),
            Some(seat) => Some(Path::Host(Arc::clone(seat))),
        };
        Ok(Self { world, stream, path, begun: Cell::default() })
    }

    /// How many ranks take part.
    pub const fn world(&self) -> World {
        self.world
    }

    /// The stream that its collectives run on and that their outputs are allocated for.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Gathers every rank's part into `output`, which already holds this rank's own part, after the work queued on the compute
    /// stream so far.
    pub fn all_gather(&self, memory: &Memory, output: &Tensor) -> OpResult<()> {
        let passed = self.others(output.bytes());
        if let Some(seat) = self.exchange(memory, passed, || Collective::AllGather(output.flat()))? {
            let elements = output.numel() / self.world.size();
            let own = output.window(Shape::new(&[elements]), elements * self.world.rank());
            memory.write(output, &seat.all(bytes_of(memory, &own)?)?.concat())?;
        }
        self.note(memory)
    }

    /// Averages `input` over all ranks and leaves each rank its part in `output`, after the work queued on the compute stream so far.
    pub fn reduce_scatter(&self, memory: &Memory, input: &Tensor, output: &Tensor) -> OpResult<()> {
        let passed = self.others(input.bytes());
        let collective = || Collective::ReduceScatter { given: input.flat(), own: output.flat() };
        if let Some(seat) = self.exchange(memory, passed, collective)? {
            let given = seat.all(bytes_of(memory, input)?)?;
            let (own, size) = (self.world.rank() * output.numel(), 1.0 / self.world.size() as f32);
            let mut sum = sum(&given, own..own + output.numel(), input.dtype());
            sum.iter_mut().for_each(|value| *value *= size);
            memory.write(output, &to_bytes(&sum, output.dtype()))?;
        }
        self.note(memory)
    }

    /// Sums a tensor over all ranks, after the work queued on the compute stream so far.
    pub fn all_reduce(&self, memory: &Memory, tensor: &Tensor) -> OpResult<()> {
        let passed = Bytes(2 * self.others(tensor.bytes()).get());
        if let Some(seat) = self.exchange(memory, passed, || Collective::AllReduce(tensor.flat()))? {
            let given = seat.all(bytes_of(memory, tensor)?)?;
            memory.write(tensor, &to_bytes(&sum(&given, 0..tensor.numel(), tensor.dtype()), tensor.dtype()))?;
        }
        self.note(memory)
    }

    /// Sums each of these tensors over all ranks on rank `to`, in place; the other ranks keep what they have.
    pub fn reduce(&self, memory: &Memory, tensors: &[Tensor], to: usize) -> OpResult<()> {
        for tensor in tensors {
            let collective = || Collective::Reduce { tensor: tensor.flat(), to };
            if let Some(seat) = self.exchange(memory, tensor.bytes(), collective)? {
                let given = seat.all(bytes_of(memory, tensor)?)?;
                if to == self.world.rank() {
                    memory.write(tensor, &to_bytes(&sum(&given, 0..tensor.numel(), tensor.dtype()), tensor.dtype()))?;
                }
            }
        }
        self.note(memory)
    }

    /// Gives each of these tensors the values it has on the rank that `owner` returns for it.
    pub fn broadcast(&self, memory: &Memory, tensors: &[Tensor], owner: impl Fn(usize) -> usize) -> OpResult<()> {
        for (number, tensor) in tensors.iter().enumerate() {
            let collective = || Collective::Broadcast { tensor: tensor.flat(), from: owner(number) };
            if let Some(seat) = self.exchange(memory, tensor.bytes(), collective)? {
                let mine = owner(number) == self.world.rank();
                let given = seat.all(if mine { bytes_of(memory, tensor)? } else { Vec::new() })?;
                if !mine && let Some(bytes) = given.get(owner(number)) {
                    memory.write(tensor, bytes)?;
                }
            }
        }
        self.note(memory)
    }

    /// Sends a tensor to another rank. If its block is freed, it is not reused before it is sent.
    pub fn send(&self, memory: &Memory, tensor: &Tensor, to: usize) -> OpResult<()> {
        let collective = || Collective::Send { tensor: tensor.flat(), to };
        if let Some(seat) = self.exchange(memory, tensor.bytes(), collective)? {
            seat.send(to, bytes_of(memory, tensor)?);
        }
        self.note(memory)?;
        Ok(memory.record_stream(tensor, self.stream)?)
    }

    /// Receives a tensor from another rank before the compute stream goes on; on a simulated device it is there from its `arrival` on.
    pub fn receive(&self, memory: &Memory, tensor: &Tensor, from: usize, arrival: Option<Arrival>) -> OpResult<()> {
        if let Some((since, behind)) = arrival {
            self.begins(memory)?;
            memory.with_device(|device| device.delay(self.stream, since, Duration::from_micros(behind.0)))?;
        }
        let collective = || Collective::Receive { tensor: tensor.flat(), from };
        if let Some(seat) = self.exchange(memory, tensor.bytes(), collective)? {
            memory.write(tensor, &seat.receive(from)?)?;
        }
        self.note(memory)?;
        self.join(memory)
    }

    /// The bytes of the other ranks' parts if `bytes` are cut into equal parts: a rank's link carries this much in a ring.
    fn others(&self, bytes: Bytes) -> Bytes {
        let ranks = self.world.size() as u64;
        Bytes(bytes.get() / ranks * (ranks - 1))
    }

    /// Begins an exchange after the work queued on the compute stream so far.
    fn begins(&self, memory: &Memory) -> OpResult<()> {
        memory.with_device(|device| {
            let ready = device.record_event(StreamId::DEFAULT)?;
            device.wait_event(self.stream, ready)
        })?;
        if self.begun.get().is_none() {
            self.begun.set(Some(memory.mark(self.stream)?));
        }
        Ok(())
    }

    /// Exchanges `bytes` after the work queued on the compute stream so far, on the device if it can. Otherwise they go through
    /// host memory: the seat for that is returned, and the caller does the exchange.
    fn exchange(
        &self,
        memory: &Memory,
        bytes: Bytes,
        collective: impl FnOnce() -> Collective,
    ) -> OpResult<Option<&Arc<Seat>>> {
        self.begins(memory)?;
        memory.with_device(|device| device.spend_exchange(bytes, self.stream))?;
        match &self.path {
            None => Ok(None),
            Some(Path::Host(seat)) => Ok(Some(seat)),
            Some(Path::Device(group, seat)) => {
                let queued = memory.with_device(|device| device.exchange(*group, &collective(), self.stream));
                match (queued, seat.failed()) {
                    (Ok(()), _) => Ok(None),
                    // NCCL's error for an aborted communicator is not the cause; the rank that ended is.
                    (Err(_), Some(rank)) => Err(TrainError::RankEnded(rank).into()),
                    (Err(error), None) => Err(error.into()),
                }
            }
        }
    }

    /// Notes how long the exchanges since the last call take: from when the stream could begin until it is done with them.
    fn note(&self, memory: &Memory) -> OpResult<()> {
        if let Some(begun) = self.begun.take() {
            memory.note_exchange(begun, memory.mark(self.stream)?);
        }
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

/// Joins a group of the devices of all ranks: rank 0 names it.
fn join(memory: &Memory, world: World, seat: &Seat) -> OpResult<GroupId> {
    let first = world.rank() == 0;
    let name = if first { memory.with_device(|device| device.name_group())? } else { Vec::new() };
    let names = seat.all(name)?;
    let name = names.first().map_or(&[][..], Vec::as_slice);
    let (group, abort) = memory.with_device(|device| device.join_group(name, world.size(), world.rank()))?;
    seat.abort_on_failure(abort);
    Ok(group)
}

/// Reads the bytes of a contiguous tensor.
pub(crate) fn bytes_of(memory: &Memory, tensor: &Tensor) -> OpResult<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(tensor.bytes().get()).unwrap_or(usize::MAX)];
    memory.read(tensor, &mut bytes)?;
    Ok(bytes)
}

/// Adds elements from every rank in f32, in the order of the ranks.
fn sum(given: &[Vec<u8>], elements: Range<usize>, dtype: DType) -> Vec<f32> {
    fn add<const N: usize>(sum: &mut [f32], bytes: &[u8], first: usize, value: fn([u8; N]) -> f32) {
        let all = bytes.as_chunks().0.iter().skip(first);
        sum.iter_mut().zip(all).for_each(|(sum, bytes)| *sum += value(*bytes));
    }
    let mut sum = vec![0.0; elements.len()];
    for bytes in given {
        match dtype {
            DType::Bf16 => add(&mut sum, bytes, elements.start, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            DType::F16 => add(&mut sum, bytes, elements.start, |bytes| f16::from_le_bytes(bytes).to_f32()),
            _ => add(&mut sum, bytes, elements.start, f32::from_le_bytes),
        }
    }
    sum
}

fn to_bytes(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bf16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}
