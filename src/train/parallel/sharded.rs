//! `fully_shard` (FSDP2): parameters are gathered for their use, gradients are reduced to shards.

use crate::context::Context;
use crate::error::OpResult;
use crate::hooks::Hooks;
use crate::memory::Memory;
use crate::shape::Shape;
use crate::tape::{Leaf, Shard};
use crate::tensor::Tensor;
use vramlab_allocator::units::StreamId;
use vramlab_device::{CopyPath, DType, kernels};
use vramlab_model::{ALL_GATHER, Category};

use super::fused_copy::{PIECE, addresses_on_device, chunk_cat, chunk_cat_room};
use super::policy::{Policy, Residence};
use super::rows::{Rows, copy, copy_parts};
use crate::communicator::{Communicator, bytes_of};
use crate::member::World;

/// Parameters that are gathered and reduced together: those of one unit, or the remaining ones for the root.
struct ShardGroup {
    parameters: Vec<usize>,
    state: ShardState,
}

/// What a rank holds of a group's parameters.
enum ShardState {
    /// Only shards.
    Sharded,
    /// The output of an all-gather that was started ahead.
    Gathering(Tensor),
    /// Whole parameters.
    Whole,
}

/// The sharded model of one rank.
pub(super) struct ShardedModel {
    gathering: Communicator,
    reducing: Communicator,
    policy: Policy,
    /// Units in order, the root last.
    groups: Vec<ShardGroup>,
    /// The output of the last all-gather in forward, kept until the next output has been copied out.
    last_gathered: Option<Tensor>,
    /// The last reduce-scatter's input.
    reduced: Option<Tensor>,
}

impl ShardedModel {
    /// Shards the units in order, then the root.
    pub fn wrap(cx: &mut Context, world: World, policy: Policy) -> OpResult<Self> {
        let units = cx.units.clone();
        let root = (0..cx.leaves.len()).filter(|parameter| !units.iter().any(|unit| unit.contains(parameter)));
        let groups: Vec<Vec<usize>> = units.iter().cloned().chain([root.collect()]).collect();
        let mut sharded = Self {
            gathering: Communicator::new(cx.memory(), world, cx.seat.as_ref())?,
            reducing: Communicator::new(cx.memory(), world, cx.seat.as_ref())?,
            policy,
            groups: Vec::new(),
            last_gathered: None,
            reduced: None,
        };
        for parameters in groups {
            cx.op("shard parameters", |cx| {
                let shards: Vec<Tensor> =
                    parameters.iter().map(|&parameter| sharded.shard(cx, parameter)).collect::<OpResult<_>>()?;
                for (&parameter, data) in parameters.iter().zip(shards) {
                    let leaf = &mut cx.leaves[parameter];
                    leaf.data.storage().empty();
                    leaf.shard = Some(Shard { data, gradient: None, room: None });
                }
                Ok(())
            })?;
            sharded.groups.push(ShardGroup { parameters, state: ShardState::Sharded });
        }
        cx.memory().tell_host();
        Ok(sharded)
    }

    const fn world(&self) -> World {
        self.gathering.world()
    }

    const fn root(&self) -> usize {
        self.groups.len() - 1
    }

    /// Elements of each padded shard of a group.
    fn shard_elements(&self, cx: &Context, group: usize) -> Vec<usize> {
        self.groups[group].parameters.iter().map(|&p| padded(self.world(), &cx.leaves[p])).collect()
    }

    /// The type in which a parameter is gathered. The bytes of a 4-bit matrix keep their type.
    fn gathered(&self, cx: &Context, parameter: usize) -> DType {
        let leaf = &cx.leaves[parameter];
        self.policy.lower.filter(|_| leaf.packed_in.is_none()).unwrap_or_else(|| leaf.trained().0.dtype())
    }

    /// Casts shards to the type in which they are gathered, if it differs, then starts the all-gather into one flat tensor of all ranks.
    fn start_gather(&self, cx: &mut Context, group: usize) -> OpResult<Tensor> {
        let stream = self.gathering.stream();
        let shards: Vec<(usize, DType, usize)> = self.groups[group]
            .parameters
            .iter()
            .zip(self.shard_elements(cx, group))
            .map(|(&parameter, elements)| (parameter, self.gathered(cx, parameter), elements))
            .collect();
        let is_cast =
            |&&(parameter, dtype, _): &&(usize, DType, usize)| cx.leaves[parameter].trained().0.dtype() != dtype;
        let cast: usize = shards.iter().filter(is_cast).map(|(.., elements)| elements).sum();
        // Shards of several types are gathered as bytes.
        let dtype = shards.first().map_or(DType::F32, |(_, dtype, _)| *dtype);
        let (dtype, elements) = if shards.iter().all(|(_, other, _)| *other == dtype) {
            (dtype, shards.iter().map(|(.., elements)| elements).sum::<usize>())
        } else {
            let bytes: u64 = shards.iter().map(|(_, dtype, elements)| dtype.bytes(*elements).get()).sum();
            (DType::U8, usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        let lower = self.policy.lower.unwrap_or(DType::F32);
        cx.op(ALL_GATHER, |cx| {
            let fetched = self.fetch(cx, &shards)?;
            let memory = cx.memory();
            let cast = if cast == 0 || !fetched.is_empty() {
                None
            } else {
                let name = memory.name_here("shards in lower precision");
                Some(memory.named_tensor(Shape::new(&[cast]), lower, Category::Communication, name, stream)?)
            };
            let (shape, name) = (Shape::new(&[elements * self.world().size()]), memory.name_here("all-gather output"));
            let output = memory.named_tensor(shape, dtype, Category::Communication, name, stream)?;
            drop(cast);
            if memory.holds_bytes() {
                self.copy_in(cx, (&shards, &fetched), &output)?;
            }
            drop(fetched);
            self.gathering.all_gather(cx.memory(), &output)?;
            Ok(output)
        })
    }

    /// Copies shards that wait in host memory to the device, in the type in which they are gathered; empty if they are on the device.
    fn fetch(&self, cx: &mut Context, shards: &[(usize, DType, usize)]) -> OpResult<Vec<Tensor>> {
        let Residence::Host { pinned } = self.policy.residence else { return Ok(Vec::new()) };
        let stream = self.gathering.stream();
        let fetched = shards.iter().map(|&(parameter, dtype, elements)| {
            let shard = cx.leaves[parameter].trained().0.clone();
            let room = Shape::new(&[elements]);
            let new = |cx: &Context, dtype, what| {
                let memory = cx.memory();
                memory.named_tensor(room, dtype, Category::Communication, memory.name_here(what), stream)
            };
            let arrived = new(cx, shard.dtype(), "shard from host memory")?;
            let path = CopyPath { to_host: false, pinned };
            cx.memory().spend_host_copy(path, arrived.bytes(), stream)?;
            copy_bytes(cx, &shard, &arrived)?;
            if shard.dtype() == dtype {
                return Ok(arrived);
            }
            let lower = new(cx, dtype, "shard in lower precision")?;
            copy(cx, Rows::new(&arrived, 0, elements), Rows::new(&lower, 0, elements), [1, shard.numel()])?;
            Ok(lower)
        });
        fetched.collect()
    }

    /// Copies a group's shards, or their `fetched` copies, to this rank's place in `output`; each shard has room for as many
    /// elements as the first rank has.
    fn copy_in(
        &self,
        cx: &mut Context,
        (shards, fetched): (&[(usize, DType, usize)], &[Tensor]),
        output: &Tensor,
    ) -> OpResult<()> {
        let mut offset = output.numel() / self.world().size() * self.world().rank();
        for (number, &(parameter, dtype, elements)) in shards.iter().enumerate() {
            let own = cx.leaves[parameter].trained().0;
            let shard = fetched.get(number).map_or_else(|| own.clone(), |fetched| fetched.window(own.shape(), 0));
            let each = size_as(output.dtype(), dtype);
            let to = Rows::new(output, offset, each * elements);
            if shard.dtype() == dtype {
                copy(cx, Rows::new(&shard, 0, each * elements).as_part_of(output), to, [1, each * shard.numel()])?;
            } else {
                copy(cx, Rows::new(&shard, 0, elements), to.of_type(dtype), [1, shard.numel()])?;
            }
            offset += each * elements;
        }
        Ok(())
    }

    /// Copies the gathered shards into whole parameters.
    fn finish_gather(&mut self, cx: &mut Context, group: usize, gathered: &Tensor) -> OpResult<()> {
        let world = self.world();
        let elements = self.shard_elements(cx, group);
        let dtypes: Vec<DType> = self.groups[group].parameters.iter().map(|&p| self.gathered(cx, p)).collect();
        cx.op("copy out", |cx| {
            self.gathering.join(cx.memory())?;
            for ((&parameter, elements), dtype) in self.groups[group].parameters.iter().zip(&elements).zip(&dtypes) {
                let leaf = &cx.leaves[parameter];
                let name = cx.memory().name(&leaf.name);
                leaf.data.storage().refill_as(*dtype, elements * world.size(), Category::Parameter, name)?;
            }
            let pieces = |of: u64| {
                elements.iter().zip(&dtypes).map(|(&n, dtype)| dtype.bytes(n).get().div_ceil(of)).sum::<u64>()
            };
            let addresses = 4 * elements.len() as u64 + 1 + pieces(PIECE * self.rounds(cx, pieces(PIECE)));
            drop(addresses_on_device(cx, addresses)?);
            if cx.memory().holds_bytes() {
                self.copy_out(cx, group, (&elements, &dtypes), gathered)?;
            }
            Ok(())
        })?;
        self.groups[group].state = ShardState::Whole;
        Ok(())
    }

    /// Moves the elements for `finish_gather`: for each parameter the shards of all ranks, one after the other.
    fn copy_out(
        &self,
        cx: &mut Context,
        group: usize,
        (elements, dtypes): (&[usize], &[DType]),
        gathered: &Tensor,
    ) -> OpResult<()> {
        let own = |(&elements, &dtype): (&usize, &DType)| elements * size_as(gathered.dtype(), dtype);
        let lengths: Vec<usize> = elements.iter().zip(dtypes).map(own).collect();
        let each: usize = lengths.iter().sum();
        let mut offset = 0;
        for ((&parameter, length), &dtype) in self.groups[group].parameters.iter().zip(lengths).zip(dtypes) {
            let whole = cx.leaves[parameter].data.clone();
            let from = Rows::new(gathered, offset, each);
            let to = Rows::new(&whole, 0, length).as_part_of(gathered);
            copy_parts(cx, from, to, length, whole.numel() * size_as(gathered.dtype(), dtype))?;
            offset += length;
        }
        Ok(())
    }

    /// How many rounds a thread block of the copy makes if there are more pieces than the device runs at once.
    fn rounds(&self, cx: &Context, pieces: u64) -> u64 {
        const THREADS: usize = 128;
        let libraries = cx.workspaces.policy;
        let at_once = libraries.multiprocessors * (libraries.threads_per_multiprocessor() / THREADS) * 2;
        let ranks = self.world().size() as u64;
        let over = (ranks * pieces).div_ceil(at_once as u64).max(1);
        let across = over.isqrt() + u64::from(over.isqrt().pow(2) < over);
        over.div_ceil(across.min(ranks))
    }

    /// Makes parameters whole; returns the output of the all-gather if one was run.
    fn gather(&mut self, cx: &mut Context, group: usize) -> OpResult<Option<Tensor>> {
        let output = match std::mem::replace(&mut self.groups[group].state, ShardState::Sharded) {
            ShardState::Whole => {
                self.groups[group].state = ShardState::Whole;
                return Ok(None);
            }
            ShardState::Gathering(output) => output,
            ShardState::Sharded => self.start_gather(cx, group)?,
        };
        self.finish_gather(cx, group, &output)?;
        Ok(Some(output))
    }

    /// Frees whole parameters.
    fn reshard(&mut self, cx: &Context, group: usize) {
        for &parameter in &self.groups[group].parameters {
            cx.leaves[parameter].data.storage().empty();
        }
        self.groups[group].state = ShardState::Sharded;
    }

    /// Reduces the gradients of a group to shards.
    fn reduce(&mut self, cx: &mut Context, group: usize) -> OpResult<()> {
        self.reshard(cx, group);
        let gradients: Vec<(usize, Tensor)> = self.groups[group]
            .parameters
            .iter()
            .filter_map(|&parameter| Some((parameter, cx.leaves[parameter].gradient.take()?)))
            .collect();
        if gradients.is_empty() {
            return Ok(());
        }
        let world = self.world();
        let elements: Vec<usize> =
            gradients.iter().map(|&(parameter, _)| padded(world, &cx.leaves[parameter])).collect();
        let whole: usize = elements.iter().sum();
        if self.reduced.is_some() && cx.memory().exchanges() {
            self.reducing.join(cx.memory())?;
        }
        self.reduced = None;
        let (parameters, mut gradients): (Vec<usize>, Vec<Tensor>) = gradients.into_iter().unzip();
        // Mixed precision reduces in f32; otherwise gradients are reduced in their own type.
        let own = gradients.first().map_or(DType::F32, Tensor::dtype);
        let reduced_in = self.policy.lower.map_or(own, |_| DType::F32);
        let kept_in = parameters.first().map_or(own, |&parameter| cx.leaves[parameter].trained().0.dtype());
        let output = cx.op("reduce-scatter", |cx| {
            let (room, name) = (Shape::new(&[whole * world.size()]), cx.memory().name_here("reduce-scatter input"));
            let input = cx.memory().named_tensor(room, reduced_in, Category::Communication, name, StreamId::DEFAULT)?;
            let padded = chunk_cat_room(cx, &gradients, &elements, (reduced_in, world))?;
            if cx.memory().holds_bytes() {
                chunk_cat(cx, &input, &gradients, &elements)?;
            }
            drop(padded);
            // The variable of PyTorch's loop keeps the last gradient.
            let last = gradients.pop();
            gradients.clear();
            let memory = cx.memory();
            let (shape, name) = (Shape::new(&[whole]), memory.name_here("reduced gradients"));
            let stream = self.reducing.stream();
            let output = memory.named_tensor(shape, reduced_in, Category::Gradient, name, stream)?;
            self.reducing.reduce_scatter(memory, &input, &output)?;
            self.reduced = Some(input);
            if kept_in == reduced_in {
                return Ok(output);
            }
            let name = cx.memory().name_here("reduced gradients in the type of the parameters");
            let kept = cx.memory().named_tensor(shape, kept_in, Category::Gradient, name, stream)?;
            drop(last);
            if cx.memory().exchanges() {
                // The cast needs the result of the reduce-scatter.
                self.reducing.join(cx.memory())?;
            }
            cx.launch(kernels::Elementwise::Cast { src: output.operand(), dst: kept.operand() })?;
            Ok(kept)
        })?;
        let accumulates = parameters.iter().any(|&parameter| cx.leaves[parameter].trained().1.is_some());
        let on_host = self.policy.residence != Residence::Device;
        if (accumulates || on_host) && cx.memory().exchanges() {
            // The addition, or the copy to the host, needs the result of the reduce-scatter.
            self.reducing.join(cx.memory())?;
        }
        let mut offset = 0;
        for (parameter, elements) in parameters.into_iter().zip(elements) {
            let leaf = &mut cx.leaves[parameter];
            let (data, sum) = leaf.trained();
            let view = output.window(data.shape(), offset);
            offset += elements;
            match (sum.cloned(), self.policy.residence) {
                // A program that reduces in every micro-batch adds up shards.
                (Some(sum), residence) => {
                    if residence != Residence::Device {
                        // The addition on the host waits for the copy, pinned or not.
                        let path = CopyPath { to_host: true, pinned: false };
                        cx.memory().spend_host_copy(path, view.bytes(), self.reducing.stream())?;
                    }
                    cx.launch(kernels::Elementwise::Add { a: sum.operand(), b: view.operand(), dst: sum.operand() })?;
                }
                (None, Residence::Device) => leaf.shard_gradient(view),
                (None, Residence::Host { pinned }) => self.send_gradient(cx, parameter, &view, pinned)?,
            }
        }
        Ok(())
    }

    /// Copies a shard's gradient to host memory and makes it the gradient of the shard there.
    fn send_gradient(&self, cx: &mut Context, parameter: usize, gradient: &Tensor, pinned: bool) -> OpResult<()> {
        let memory = cx.memory();
        memory.spend_host_copy(CopyPath { to_host: true, pinned }, gradient.bytes(), self.reducing.stream())?;
        let kept = cx.leaves[parameter].shard.as_ref().and_then(|shard| shard.room.clone());
        let room = kept.map_or_else(|| memory.host_tensor(gradient.shape(), gradient.dtype()), Ok)?;
        copy_bytes(cx, gradient, &room)?;
        if let Some(shard) = &mut cx.leaves[parameter].shard {
            (shard.gradient, shard.room) = (Some(room.clone()), Some(room));
        }
        Ok(())
    }

    /// A rank's rows of a parameter, in a block with room for as many rows as the first rank has.
    fn shard(&self, cx: &mut Context, parameter: usize) -> OpResult<Tensor> {
        let world = self.world();
        let leaf = &cx.leaves[parameter];
        let (memory, shape): (&Memory, Shape) = (cx.memory(), leaf.data.shape());
        let each = padded(world, leaf);
        let rows = match leaf.packed_in {
            // The elements that the bytes are stored as may cover more bytes than there are.
            Some(_) => each.min(shape.numel().saturating_sub(each * world.rank())),
            None => world.chunk(leaf.shard_rows()),
        };
        let room = Shape::new(&[each]);
        let name = memory.name(&leaf.name);
        let block = memory.named_tensor(room, leaf.data.dtype(), Category::Parameter, name, StreamId::DEFAULT)?;
        let shard = block.window(shape.with_first(rows), 0);
        if memory.holds_bytes() && rows > 0 {
            let own = leaf.data.window(shard.shape(), each * world.rank());
            memory.write(&shard, &bytes_of(memory, &own)?)?;
        }
        let Residence::Host { .. } = self.policy.residence else { return Ok(shard) };
        let parked = memory.host_tensor(room, leaf.data.dtype())?.window(shard.shape(), 0);
        memory.spend_host_copy(CopyPath { to_host: true, pinned: false }, block.bytes(), StreamId::DEFAULT)?;
        copy_bytes(cx, &shard, &parked)?;
        Ok(parked)
    }
}

impl Hooks<Context> for ShardedModel {
    fn enter_model(&mut self, cx: &mut Context, input: Tensor) -> OpResult<Tensor> {
        let input = match self.policy.lower {
            Some(lower) if input.dtype() == DType::F32 => cx.cast(&input, lower, "input in lower precision")?,
            _ => input,
        };
        let root = self.root();
        self.last_gathered = self.gather(cx, root)?;
        Ok(input)
    }

    fn leave_model(&mut self, cx: &mut Context) -> OpResult<()> {
        if self.policy.reshards {
            self.reshard(cx, self.root());
        }
        self.last_gathered = None;
        Ok(())
    }

    fn wraps_units(&self) -> bool {
        true
    }

    fn enter_unit(&mut self, cx: &mut Context, unit: usize) -> OpResult<()> {
        let gathered = self.gather(cx, unit)?;
        if gathered.is_some() {
            self.last_gathered = gathered;
        }
        Ok(())
    }

    fn leave_unit(&mut self, cx: &mut Context, unit: usize) -> OpResult<()> {
        if self.policy.reshards {
            self.reshard(cx, unit);
        }
        Ok(())
    }

    fn enter_backward(&mut self, cx: &mut Context, unit: Option<usize>) -> OpResult<()> {
        let group = unit.unwrap_or_else(|| self.root());
        drop(self.gather(cx, group)?);
        if let Some(next) = group.checked_sub(1)
            && matches!(self.groups[next].state, ShardState::Sharded)
        {
            self.groups[next].state = ShardState::Gathering(self.start_gather(cx, next)?);
        }
        Ok(())
    }

    fn leave_backward(&mut self, cx: &mut Context, unit: usize) -> OpResult<()> {
        self.reduce(cx, unit)
    }

    fn after_backward(&mut self, cx: &mut Context) -> OpResult<()> {
        self.reduce(cx, self.root())?;
        // Units whose input requires no gradient, because everything before them is frozen.
        for unit in 0..self.root() {
            if !matches!(self.groups[unit].state, ShardState::Sharded) {
                self.reduce(cx, unit)?;
            }
        }
        self.reducing.join(cx.memory())?;
        self.reduced = None;
        if self.policy.residence != Residence::Device {
            // Gradients must have arrived on the host before anything there reads them.
            cx.memory().synchronize();
            cx.memory().tell_host();
        }
        Ok(())
    }

    fn gradients_in_parts(&self) -> Option<&Communicator> {
        Some(&self.reducing)
    }

    fn abandon(&mut self, cx: &mut Context) {
        for group in 0..self.groups.len() {
            self.reshard(cx, group);
        }
        self.last_gathered = None;
        self.reduced = None;
    }
}

/// Elements of a parameter's shard, padded to as many rows as the first rank has.
fn padded(world: World, leaf: &Leaf) -> usize {
    leaf.shard_rows().div_ceil(world.size()) * leaf.shard_row()
}

/// How many gathered elements an element of type `dtype` takes: its bytes if shards of several types are gathered as bytes, else one.
fn size_as(gathered: DType, dtype: DType) -> usize {
    if gathered == DType::U8 { usize::try_from(dtype.size()).unwrap_or(1) } else { 1 }
}

/// Copies the elements of `from` to the front of `to`, between device and host, if the device has bytes: the copy's time is
/// already spent.
fn copy_bytes(cx: &mut Context, from: &Tensor, to: &Tensor) -> OpResult<()> {
    let count = from.numel();
    if !cx.memory().holds_bytes() {
        return Ok(());
    }
    copy(cx, Rows::new(from, 0, count), Rows::new(to, 0, count), [1, count])
}
