//! Parameters that files have: loaded in the order and with the blocks that transformers takes.

use vramlab_allocator::units::StreamId;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, OpResult, Shape, Tensor, World};

use super::{LoadedBuffer, ParameterEntry, Parameters};

impl Parameters {
    /// Loads the parameters on the meta device as transformers does: a block of all bytes is allocated and freed, then the
    /// weights come one after the other in the order of their names, and a matrix in 4 bits is quantised before the next one
    /// comes.
    pub fn load(&mut self, cx: &mut Context) -> OpResult<()> {
        // With several ranks, everything in the plan counts as a part, even what they load whole.
        let ranks = cx.world().map_or(1, World::size) as u64;
        let size = |made: &ParameterEntry| {
            let whole = match (&made.four_bit, made.whole) {
                (Some(weight), _) => weight.shape().numel() as u64 / 2,
                (None, Some(whole)) => made.data.dtype().bytes(whole.numel()).get(),
                (None, None) => made.data.bytes().get(),
            };
            if self.plan.has(&made.name) { whole / ranks } else { whole }
        };
        let sizes = self.made.iter().flatten().map(size);
        let buffers = self.buffers.iter().map(|buffer| buffer.bytes);
        let bytes = sizes.chain(buffers).fold(0_u64, u64::saturating_add);
        let shape = Shape::new(&[usize::try_from(bytes).unwrap_or(usize::MAX)]);
        drop(cx.memory().tensor(shape, DType::U8, Category::Temporary, "caching_allocator_warmup")?);
        let parameters = self.made.iter_mut().flatten().enumerate();
        let parameters = parameters.map(|(number, made)| FileEntry::Parameter(number, made));
        let buffers = self.buffers.drain(..).map(FileEntry::Buffer);
        let mut order: Vec<_> = parameters.chain(buffers).collect();
        order.sort_by_cached_key(|entry| natural_key(&self.plan.in_files(entry.name())));
        for entry in order {
            let (number, made) = match entry {
                FileEntry::Parameter(number, made) => (number, made),
                FileEntry::Buffer(LoadedBuffer { name, data, .. }) => {
                    cx.materialise_buffer(&data, &name)?;
                    continue;
                }
            };
            let ParameterEntry { name, data, init, four_bit, whole, .. } = made;
            match four_bit {
                Some(weight) => {
                    let id = cx.memory().name(name);
                    let (shape, dtype) = (weight.shape(), self.dtype);
                    let whole = cx.memory().named_tensor(shape, dtype, Category::Parameter, id, StreamId::DEFAULT)?;
                    init.write(cx, &whole, number)?;
                    cx.quantize(whole, weight, name)?;
                }
                None => {
                    match data.shape().dims() {
                        &[count, _, _] if self.plan.experts.are_apart() => load_experts(cx, data, name, count)?,
                        _ => cx.memory().materialise(data, name)?,
                    }
                    match (self.parts, whole) {
                        (Some(world), Some(whole)) => init.write_part(cx, data, number, (*whole, world))?,
                        _ => init.write(cx, data, number)?,
                    }
                }
            }
            made.loaded = true;
        }
        Ok(())
    }
}

/// Something that files have.
enum FileEntry<'a> {
    /// A parameter with its number.
    Parameter(usize, &'a mut ParameterEntry),
    Buffer(LoadedBuffer),
}

impl FileEntry<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Parameter(_, made) => &made.name,
            Self::Buffer(buffer) => &buffer.name,
        }
    }
}

/// Allocates the block of a matrix of all experts as transformers does from a file with one matrix per expert: the parts of each,
/// then stacks of them, then gate and up projections joined.
fn load_experts(cx: &Context, data: &Tensor, name: &str, count: usize) -> OpResult<()> {
    let stacks = if name.ends_with("gate_up_proj") { 2 } else { 1 };
    let block = |parts: usize, what| {
        cx.memory().tensor(Shape::new(&[data.numel() / parts]), data.dtype(), Category::Temporary, what)
    };
    let parts = |_| (0..count).map(|_| block(stacks * count, "part of an expert")).collect::<OpResult<Vec<_>>>();
    let mut of_stacks = (0..stacks).map(parts).collect::<OpResult<Vec<_>>>()?;
    if let [only] = &mut of_stacks[..] {
        cx.memory().materialise(data, name)?;
        while only.pop().is_some() {}
        return Ok(());
    }
    let mut stacked = Vec::new();
    for mut parts in of_stacks {
        stacked.push(block(stacks, "parts of all experts")?);
        while parts.pop().is_some() {}
    }
    cx.memory().materialise(data, name)
}

/// One part of a name between dots, as transformers sorts them (`dot_natural_key`): numbers come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NamePart {
    Number(u64),
    Text(String),
}

fn natural_key(name: &str) -> Vec<NamePart> {
    name.split('.').map(|part| part.parse().map_or_else(|_| NamePart::Text(part.into()), NamePart::Number)).collect()
}
