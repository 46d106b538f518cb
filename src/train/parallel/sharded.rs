//! `fully_shard` (FSDP2): parameters are gathered around their use, gradients reduced to shards.

use crate::context::Context;
use crate::error::OpResult;
use crate::hooks::Hooks;
use crate::memory::Memory;
use crate::shape::Shape;
use crate::tape::{Leaf, Shard};
use crate::tensor::Tensor;
use vramlab_allocator::units::{Address, StreamId};
use vramlab_device::{DType, kernels};
use vramlab_model::{ALL_GATHER, Category};

use crate::communicator::{Communicator, bytes_of};
use crate::member::World;

/// Bytes that one thread block of `split_with_sizes_copy` and of `_chunk_cat` copies.
const PIECE: u64 = 2048;

/// Parameters that are gathered and reduced together: those of one unit, or what is left for the root.
struct ShardGroup {
    parameters: Vec<usize>,
    state: ShardState,
}

/// What a rank has of a group's parameters.
enum ShardState {
    /// Shards alone.
    Sharded,
    /// The output of the all-gather that was started ahead.
    Gathering(Tensor),
    /// Whole parameters.
    Whole,
}

/// The sharded model of one rank.
pub(super) struct ShardedModel {
    gathering: Communicator,
    reducing: Communicator,
    /// The type of gathered parameters, and of gradients before they are reduced in f32; each has its own where there is none.
    lower: Option<DType>,
    /// Parameters are sharded again when their unit's forward has returned.
    reshards: bool,
    /// Units in order, the root last.
    groups: Vec<ShardGroup>,
    /// The last all-gather's output in a forward: it is kept until the next one has been copied out.
    last_gathered: Option<Tensor>,
    /// The last reduce-scatter's input.
    reduced: Option<Tensor>,
}

impl ShardedModel {
    /// Shards the units in order, then the root.
    pub fn wrap(cx: &mut Context, world: World, lower: Option<DType>, reshards: bool) -> OpResult<Self> {
        let units = cx.units.clone();
        let root = (0..cx.leaves.len()).filter(|parameter| !units.iter().any(|unit| unit.contains(parameter)));
        let groups: Vec<Vec<usize>> = units.iter().cloned().chain([root.collect()]).collect();
        let mut sharded = Self {
            gathering: Communicator::new(cx.memory(), world, cx.seat.as_ref())?,
            reducing: Communicator::new(cx.memory(), world, cx.seat.as_ref())?,
            lower,
            reshards,
            groups: Vec::new(),
            last_gathered: None,
            reduced: None,
        };
        for parameters in groups {
            cx.op("shard parameters", |cx| {
                let shards: Vec<Tensor> =
                    parameters.iter().map(|&parameter| shard(cx, world, parameter)).collect::<OpResult<_>>()?;
                for (&parameter, data) in parameters.iter().zip(shards) {
                    let leaf = &mut cx.leaves[parameter];
                    leaf.data.storage().empty();
                    leaf.shard = Some(Shard { data, gradient: None });
                }
                Ok(())
            })?;
            sharded.groups.push(ShardGroup { parameters, state: ShardState::Sharded });
        }
        Ok(sharded)
    }

    const fn world(&self) -> World {
        self.gathering.world()
    }

    const fn root(&self) -> usize {
        self.groups.len() - 1
    }

    /// Elements of every padded shard of a group.
    fn shard_elements(&self, cx: &Context, group: usize) -> Vec<usize> {
        self.groups[group].parameters.iter().map(|&p| padded(self.world(), &cx.leaves[p])).collect()
    }

    /// The type that a parameter is gathered in. Bytes of a matrix in 4 bits stay what they are.
    fn gathered(&self, cx: &Context, parameter: usize) -> DType {
        let leaf = &cx.leaves[parameter];
        self.lower.filter(|_| leaf.packed_in.is_none()).unwrap_or_else(|| leaf.trained().0.dtype())
    }

    /// Shards in the type that is gathered, where that is not their own, then the all-gather into one flat tensor of all ranks.
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
        // Parts of several types are gathered as bytes.
        let dtype = shards.first().map_or(DType::F32, |(_, dtype, _)| *dtype);
        let (dtype, elements) = if shards.iter().all(|(_, other, _)| *other == dtype) {
            (dtype, shards.iter().map(|(.., elements)| elements).sum::<usize>())
        } else {
            let bytes: u64 = shards.iter().map(|(_, dtype, elements)| dtype.bytes(*elements).get()).sum();
            (DType::U8, usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        let lower = self.lower.unwrap_or(DType::F32);
        cx.op(ALL_GATHER, |cx| {
            let memory = cx.memory();
            let cast = if cast == 0 {
                None
            } else {
                let name = memory.name_here("shards in lower precision");
                Some(memory.named_tensor(Shape::new(&[cast]), lower, Category::Communication, name, stream)?)
            };
            let (shape, name) = (Shape::new(&[elements * self.world().size()]), memory.name_here("all-gather output"));
            let output = memory.named_tensor(shape, dtype, Category::Communication, name, stream)?;
            drop(cast);
            if memory.holds_bytes() {
                self.copy_in(cx, group, &output)?;
            }
            self.gathering.all_gather(cx.memory(), &output)?;
            Ok(output)
        })
    }

    /// Copies a group's shards to this rank's place in `output`, each with room for as many elements as the first rank has.
    fn copy_in(&self, cx: &mut Context, group: usize, output: &Tensor) -> OpResult<()> {
        let mut offset = output.numel() / self.world().size() * self.world().rank();
        for (&parameter, elements) in self.groups[group].parameters.iter().zip(self.shard_elements(cx, group)) {
            let (shard, dtype) = (cx.leaves[parameter].trained().0.clone(), self.gathered(cx, parameter));
            let each = size_as(output.dtype(), dtype);
            let to = Rows::new(output, offset, each * elements);
            if shard.dtype() == dtype {
                copy(cx, Rows::new(&shard, 0, each * elements).as_part_of(output), to, [1, each * shard.numel()])?;
            } else {
                copy(cx, Rows::new(&shard, 0, elements), Rows { dtype, ..to }, [1, shard.numel()])?;
            }
            offset += each * elements;
        }
        Ok(())
    }

    /// Copies what was gathered into whole parameters.
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

    /// The arithmetic of that: of each parameter all ranks' shards, one behind the other.
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

    /// How often a thread block of the copy goes round, where there are more pieces than the device runs at once.
    fn rounds(&self, cx: &Context, pieces: u64) -> u64 {
        const THREADS: usize = 128;
        let libraries = cx.workspaces.policy;
        let at_once = libraries.multiprocessors * (libraries.threads_per_multiprocessor() / THREADS) * 2;
        let ranks = self.world().size() as u64;
        let over = (ranks * pieces).div_ceil(at_once as u64).max(1);
        let across = over.isqrt() + u64::from(over.isqrt().pow(2) < over);
        over.div_ceil(across.min(ranks))
    }

    /// Parameters are whole behind this; where an all-gather was run for it, its output.
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

    /// Lets go of whole parameters.
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
        // Mixed precision reduces in f32; else gradients are reduced in their own type.
        let own = gradients.first().map_or(DType::F32, Tensor::dtype);
        let reduced_in = self.lower.map_or(own, |_| DType::F32);
        let kept_in = parameters.first().map_or(own, |&parameter| cx.leaves[parameter].trained().0.dtype());
        let output = cx.op("reduce-scatter", |cx| {
            let (room, name) = (Shape::new(&[whole * world.size()]), cx.memory().name_here("reduce-scatter input"));
            let input = cx.memory().named_tensor(room, reduced_in, Category::Communication, name, StreamId::DEFAULT)?;
            let pieces: u64 = elements.iter().map(|&n| reduced_in.bytes(n).get().div_ceil(PIECE)).sum();
            drop(addresses_on_device(cx, 6 * elements.len() as u64 + 2 + pieces)?);
            if cx.memory().holds_bytes() {
                chunk_cat(cx, &input, &gradients, &elements)?;
            }
            // The variable of PyTorch's loop keeps the last one.
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
                // What is cast has to be there.
                self.reducing.join(cx.memory())?;
            }
            cx.launch(kernels::Elementwise::Cast { src: output.operand(), dst: kept.operand() })?;
            Ok(kept)
        })?;
        let accumulates = parameters.iter().any(|&parameter| cx.leaves[parameter].trained().1.is_some());
        if accumulates && cx.memory().exchanges() {
            // What is added has to be there.
            self.reducing.join(cx.memory())?;
        }
        let mut offset = 0;
        for (parameter, elements) in parameters.into_iter().zip(elements) {
            let leaf = &mut cx.leaves[parameter];
            let (data, sum) = leaf.trained();
            let view = output.window(data.shape(), offset);
            offset += elements;
            match sum.cloned() {
                // A program that reduces in every micro-batch accumulates shards.
                Some(sum) => {
                    cx.launch(kernels::Elementwise::Add { a: sum.operand(), b: view.operand(), dst: sum.operand() })?;
                }
                None => leaf.shard_gradient(view),
            }
        }
        Ok(())
    }
}

impl Hooks<Context> for ShardedModel {
    fn enter_model(&mut self, cx: &mut Context, input: Tensor) -> OpResult<Tensor> {
        let input = match self.lower {
            Some(lower) if input.dtype() == DType::F32 => cx.cast(&input, lower, "input in lower precision")?,
            _ => input,
        };
        let root = self.root();
        self.last_gathered = self.gather(cx, root)?;
        Ok(input)
    }

    fn leave_model(&mut self, cx: &mut Context) -> OpResult<()> {
        if self.reshards {
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
        if self.reshards {
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
        // Units whose input wants no gradient, because all before them is frozen.
        for unit in 0..self.root() {
            if !matches!(self.groups[unit].state, ShardState::Sharded) {
                self.reduce(cx, unit)?;
            }
        }
        self.reducing.join(cx.memory())?;
        self.reduced = None;
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

/// Elements of a shard of a parameter, padded to as many rows as the first rank has.
fn padded(world: World, leaf: &Leaf) -> usize {
    leaf.shard_rows().div_ceil(world.size()) * leaf.shard_row()
}

/// How many elements of what is gathered an element of type `dtype` is: its bytes, where several types are gathered as bytes.
fn size_as(gathered: DType, dtype: DType) -> usize {
    if gathered == DType::U8 { usize::try_from(dtype.size()).unwrap_or(1) } else { 1 }
}

/// A rank's rows of a parameter, in a block with room for as many as the first rank has.
fn shard(cx: &Context, world: World, parameter: usize) -> OpResult<Tensor> {
    let leaf = &cx.leaves[parameter];
    let (memory, shape): (&Memory, Shape) = (cx.memory(), leaf.data.shape());
    let each = padded(world, leaf);
    let rows = match leaf.packed_in {
        // What they are said to be may be longer than they are.
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
    Ok(shard)
}

/// `_chunk_cat`: for each rank its rows of every gradient, padded with zeros.
fn chunk_cat(cx: &mut Context, input: &Tensor, gradients: &[Tensor], elements: &[usize]) -> OpResult<()> {
    cx.launch(kernels::Elementwise::Fill { dst: input.flat(), value: 0.0 })?;
    let each: usize = elements.iter().sum();
    let mut offset = 0;
    for (gradient, &elements) in gradients.iter().zip(elements) {
        let (from, to) = (Rows::new(gradient, 0, elements), Rows::new(input, offset, each));
        copy_parts(cx, from, to, elements, gradient.numel())?;
        offset += elements;
    }
    Ok(())
}

/// Rows in a tensor, one row's start behind the other by a stride.
#[derive(Clone, Copy)]
struct Rows {
    first: Address,
    dtype: DType,
    /// In elements.
    stride: usize,
}

impl Rows {
    /// Those of `tensor` from element `offset` on.
    fn new(tensor: &Tensor, offset: usize, stride: usize) -> Self {
        let dtype = tensor.dtype();
        Self { first: tensor.address().offset(dtype.bytes(offset)), dtype, stride }
    }

    /// The same bytes as elements of `whole`, whose type is theirs, or bytes.
    fn as_part_of(self, whole: &Tensor) -> Self {
        Self { dtype: whole.dtype(), ..self }
    }

    /// From row `number` on.
    fn from(self, number: usize) -> Self {
        Self { first: self.first.offset(self.dtype.bytes(self.stride * number)), ..self }
    }
}

/// Copies `count` elements in rows of `length`, of which the last may be shorter.
fn copy_parts(cx: &mut Context, from: Rows, to: Rows, length: usize, count: usize) -> OpResult<()> {
    let (whole, rest) = (count / length.max(1), count % length.max(1));
    copy(cx, from, to, [whole, length])?;
    copy(cx, from.from(whole), to.from(whole), [1, rest])
}

/// Copies `[rows, length]` elements, in the type of where they go.
fn copy(cx: &mut Context, from: Rows, to: Rows, [rows, length]: [usize; 2]) -> OpResult<()> {
    if rows * length == 0 {
        return Ok(());
    }
    let strides = |of: Rows| [rows * of.stride, rows * of.stride, of.stride, 1];
    if from.dtype == to.dtype {
        return cx.launch(kernels::Strided::Copy {
            src: from.first,
            dst: to.first,
            dtype: from.dtype,
            shape: [1, 1, rows, length],
            src_strides: strides(from),
            dst_strides: strides(to),
        });
    }
    cx.launch(kernels::Strided::Cast {
        src: from.first,
        src_dtype: from.dtype,
        dst: to.first,
        dst_dtype: to.dtype,
        shape: [1, 1, rows, length],
        src_strides: strides(from),
        dst_strides: strides(to),
    })
}

/// A list of addresses that a fused copy reads, for as long as it takes.
fn addresses_on_device(cx: &Context, addresses: u64) -> OpResult<Tensor> {
    let len = usize::try_from(addresses).unwrap_or(usize::MAX);
    cx.temporary(Shape::new(&[len]), DType::I64, "addresses of a fused copy")
}
