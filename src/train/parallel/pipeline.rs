//! `torch.distributed.pipelining`: each rank has some blocks, and micro-batches pass from rank to rank.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::communicator::{Arrival, Communicator};
use crate::config::Checkpointing;
use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::graph::Graph;
use crate::member::{UnevenSplit, World};
use crate::memory::HeldMark;
use crate::scaler::Scaler;
use crate::schedule::{Action, order};
use crate::shape::Shape;
use crate::tensor::{GradientTarget, Tensor};
use crate::timetable::TimetableEntry;
use crate::workload::{Batch, Cut, Model, StagePart};
use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, kernels};
use vramlab_model::{Category, PipelineSchedule, STAGE};

/// Bytes of a pickled list of one tensor's shape, strides and type, which a stage sends to the next one to describe its output.
fn pickled(shape: Shape, dtype: DType) -> usize {
    // The type `torch.float32` without its name is in here: names differ in length.
    const ALL_BUT_NUMBERS: usize = 88;
    let name = match dtype {
        DType::Bf16 => "bfloat16".len(),
        DType::F16 => "float16".len(),
        _ => "float32".len(),
    };
    let bytes = |number: usize| match number {
        0..0x100 => 2,
        0x100..0x1_0000 => 3,
        0x1_0000..0x8000_0000 => 5,
        // Eight bytes of the number after their count.
        _ => 10,
    };
    let strides = shape.contiguous_strides();
    ALL_BUT_NUMBERS
        + name
        + shape.dims().iter().chain(&strides[..shape.dims().len()]).map(|&number| bytes(number)).sum::<usize>()
}

/// Parameters of layers in 4 bits: their weights and biases.
fn in_four_bit(cx: &Context) -> BTreeSet<usize> {
    let layer = |name: &str| name.rsplit_once('.').map(|(layer, _)| layer.to_owned());
    let packed = cx.leaves.iter().filter(|leaf| leaf.packed_in.is_some());
    let layers: BTreeSet<_> = packed.filter_map(|leaf| layer(&leaf.name)).collect();
    let is_of = |index: &usize| layer(&cx.leaves[*index].name).is_some_and(|layer| layers.contains(&layer));
    (0..cx.leaves.len()).filter(is_of).collect()
}

/// A micro-batch between forward and backward.
struct MicroBatch {
    graph: Graph,
    output: Tensor,
    loss: Option<Tensor>,
    /// Where the gradient of a received input arrives.
    input_gradient: Rc<RefCell<Option<Tensor>>>,
}

/// The pipeline stage of one rank: its part of the model, and the tensors it exchanges with its neighbours.
pub(crate) struct PipelineStage {
    schedule: PipelineSchedule,
    communicator: Communicator,
    /// For gradients to the stage before, if devices pass them on: a send may wait until it is received, and must not
    /// wait behind sends in the other direction.
    backwards: Option<Communicator>,
    part: StagePart,
    /// Which of its blocks the current step checkpoints.
    checkpointing: Checkpointing,
    /// Parameters of the stage, in the order of its modules.
    parameters: Vec<usize>,
    /// The shape of a micro-batch of tokens for which the tensors between stages were made.
    found: Option<Shape>,
    /// Buffers for received inputs, one for each micro-batch; empty on the first stage.
    inputs: Vec<Tensor>,
    /// Buffers for received gradients of outputs; empty on the last stage.
    output_gradients: Vec<Tensor>,
    passed: Vec<Option<MicroBatch>>,
    /// Outputs of the last stage, kept until the next step begins.
    outputs: Vec<Tensor>,
    losses: Vec<Tensor>,
    /// The gradient of an input on its way to the stage before.
    sent: Option<Tensor>,
    /// Tells when its data arrives, if ranks are simulated.
    entry: Option<TimetableEntry>,
}

impl PipelineStage {
    /// Frees the 4-bit layers of other stages. Each of their weights refers to its layer and the layer to it, so only Python's
    /// garbage collector frees them, which runs after the ranks have met.
    pub fn collect(&self, cx: &Context) {
        for index in in_four_bit(cx).into_iter().filter(|index| !self.parameters.contains(index)) {
            let leaf = &cx.leaves[index];
            leaf.beside.iter().chain([&leaf.data]).for_each(|tensor| tensor.storage().empty());
        }
    }

    /// Keeps this rank's part of a whole model, and drops the rest.
    pub fn keep(cx: &mut Context, world: World, schedule: PipelineSchedule, model: &dyn Model) -> OpResult<Self> {
        let (ranks, blocks) = (world.size(), cx.units.len());
        let (Some(first), Some(cut)) = (cx.units.first().and_then(|unit| unit.first().copied()), model.cut()) else {
            let text =
                "a pipeline cuts a model between its transformer blocks, and this one has none that it knows; use ddp";
            return Err(TrainError::Workload(text.into()).into());
        };
        if !blocks.is_multiple_of(ranks) {
            let remedy = format!("give --layers {} or another multiple", blocks.next_multiple_of(ranks));
            return Err(
                TrainError::Workload(UnevenSplit { count: blocks, what: "blocks", ranks, remedy }.to_string()).into()
            );
        }
        let each = blocks / ranks;
        let units = each * world.rank()..each * (world.rank() + 1);
        let part = StagePart { units: units.clone(), first: world.rank() == 0, last: world.rank() + 1 == ranks };
        let in_blocks: BTreeSet<usize> = cx.units.iter().flatten().copied().collect();
        let around = (0..cx.leaves.len()).filter(|parameter| !in_blocks.contains(parameter));
        let (front, back): (Vec<usize>, Vec<usize>) = around.partition(|&parameter| parameter < first);
        let mut parameters: Vec<usize> = units.flat_map(|unit| cx.units[unit].clone()).collect();
        if part.first {
            parameters.extend(front);
        }
        if part.last {
            parameters.extend(back);
        }
        let borrows = part.last && !part.first;
        if let Cut::Reduced { tied } = cut {
            parameters.extend((tied && borrows).then_some(0));
            parameters.sort_unstable();
        }
        cx.in_stage = true;
        cx.op("keep a stage", |cx| {
            // With `Cut::Rebuilt`, the last stage has a head of its own: a clone of the table that the model's head shares.
            let head = if cut == Cut::Rebuilt && borrows { Some(own_head(cx)?) } else { None };
            let later = in_four_bit(cx);
            for index in (0..cx.leaves.len()).filter(|index| !parameters.contains(index) && !later.contains(index)) {
                if let (0, Some(head)) = (index, &head) {
                    cx.leaves[0].data.replace(head);
                } else {
                    cx.leaves[index].data.storage().empty();
                }
            }
            model.keep_part(cx, &part);
            Ok(())
        })?;
        if cut == Cut::Rebuilt && borrows {
            parameters.push(0);
        }
        let new = || Communicator::new(cx.memory(), world, cx.seat.as_ref());
        let communicator = new()?;
        let backwards = if cx.memory().exchanges() { Some(new()?) } else { None };
        let (inputs, output_gradients, passed) = (Vec::new(), Vec::new(), Vec::new());
        let (outputs, losses, sent) = (Vec::new(), Vec::new(), None);
        let entry = cx.timetable.clone().map(|table| TimetableEntry::new(table, world));
        Ok(Self {
            schedule,
            communicator,
            backwards,
            part,
            checkpointing: Checkpointing::Off,
            parameters,
            found: None,
            inputs,
            output_gradients,
            passed,
            outputs,
            losses,
            sent,
            entry,
        })
    }

    /// The parameters of the stage, in the order of its modules.
    pub fn parameters(&self) -> &[usize] {
        &self.parameters
    }

    /// The communicator between the ranks.
    pub const fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The communicator for gradients.
    fn backwards(&self) -> &Communicator {
        self.backwards.as_ref().unwrap_or(&self.communicator)
    }

    const fn rank(&self) -> usize {
        self.communicator.world().rank()
    }

    /// Its actions in a step.
    pub fn actions(&self, micro_batches: usize) -> Vec<Action> {
        order(self.schedule, self.communicator.world(), micro_batches)
    }

    /// Whether it is the last stage, which has the loss.
    pub const fn is_last(&self) -> bool {
        self.part.last
    }

    /// Begins a step, which drops the outputs of the last one. Before the first, stages run once to find the shapes that they exchange.
    pub fn begin(
        &mut self,
        cx: &mut Context,
        model: &dyn Model,
        micro_batches: &[Batch],
        checkpointing: Checkpointing,
    ) -> OpResult<()> {
        self.checkpointing = checkpointing;
        self.outputs.clear();
        self.passed = micro_batches.iter().map(|_| None).collect();
        if let Some(entry) = &mut self.entry {
            entry.begin(cx.memory(), self.schedule, micro_batches.len())?;
        }
        let Some(first) = micro_batches.first() else { return Ok(()) };
        let (shape, found) = (first.input.shape(), self.found);
        if found == Some(shape) && self.inputs.len().max(self.output_gradients.len()) == micro_batches.len() {
            return Ok(());
        }
        // `PipelineStage` compares its inputs with the first, and raises an error. Another batch size belongs to another program.
        if found.is_some_and(|found| found.dims().first() == shape.dims().first() && found != shape) {
            let text = "a stage passes on rows of the length alone that it found in the first step; give rows of one length, or ddp";
            return Err(TrainError::Workload(text.into()).into());
        }
        (self.inputs, self.output_gradients) = (Vec::new(), Vec::new());
        self.found = Some(shape);
        cx.op(STAGE, |cx| {
            let one = |what| cx.temporary(Shape::new(&[1]), DType::F32, what);
            let neighbours = [one("a neighbour's number")?, one("own number")?];
            let output = self.infer_shapes(cx, model, first)?;
            let rooms = |cx: &mut Context, like: &(Shape, DType), what| -> OpResult<Vec<Tensor>> {
                micro_batches
                    .iter()
                    .map(|_| cx.memory().tensor(like.0, like.1, Category::Communication, what))
                    .collect()
            };
            let [input, output] = output;
            self.inputs = if self.part.first { Vec::new() } else { rooms(cx, &input, "received input")? };
            self.output_gradients = if self.part.last { Vec::new() } else { rooms(cx, &output, "received gradient")? };
            for number in &neighbours {
                cx.memory().record_stream(number, self.communicator.stream())?;
            }
            drop(neighbours);
            Ok(())
        })
    }

    /// Runs the stage once without gradients, on an empty tensor in place of this micro-batch's input; returns shapes and types
    /// of its input and output.
    fn infer_shapes(&self, cx: &mut Context, model: &dyn Model, batch: &Batch) -> OpResult<[(Shape, DType); 2]> {
        let tokens = &batch.input;
        let bytes = |cx: &Context, len, what| cx.temporary(Shape::new(&[len]), DType::U8, what);
        let size = |cx: &Context, what| cx.temporary(Shape::new(&[1]), DType::I64, what);
        let input = if self.part.first {
            cx.temporary(tokens.shape(), tokens.dtype(), "empty micro-batch")?
        } else {
            let Some((shape, dtype)) = model.stage_input(tokens) else {
                return Err(TrainError::Workload("a pipeline cuts models of tokens; use ddp".into()).into());
            };
            let sizes = size(cx, "sizes of objects")?;
            drop(size(cx, "size of an object")?);
            let object = bytes(cx, pickled(shape, dtype), "shapes of the stage before")?;
            drop(size(cx, "rank of the sender")?);
            drop(size(cx, "rank of the sender")?);
            drop((sizes, object));
            cx.temporary(shape, dtype, "empty micro-batch")?
        };
        if cx.memory().holds_bytes() {
            let bytes = usize::try_from(input.bytes().get()).unwrap_or(usize::MAX);
            cx.memory().write(&input, &vec![0; bytes])?;
        }
        let empty = Batch { input, ..batch.clone() };
        let output = cx.no_grad(|cx| model.stage_forward(cx, &empty, &self.part, self.checkpointing))?;
        let shapes = [&empty.input, &output].map(|tensor| (tensor.shape(), tensor.dtype()));
        if !self.part.last {
            let object = bytes(cx, pickled(output.shape(), output.dtype()), "shapes for the next stage")?;
            let sent = [size(cx, "size of an object")?, size(cx, "sizes of objects")?];
            for tensor in sent.iter().chain([&object]) {
                cx.memory().record_stream(tensor, self.communicator.stream())?;
            }
            drop((sent, object));
        }
        Ok(shapes)
    }

    /// Forward of one micro-batch, and its loss on the last stage, which a `scaler` multiplies.
    pub fn forward(
        &mut self,
        cx: &mut Context,
        model: &dyn Model,
        (number, batch): (usize, &Batch),
        scaler: Option<&mut Scaler>,
    ) -> OpResult<()> {
        let input_gradient = Rc::new(RefCell::new(None));
        cx.begin_graph();
        let arrival = self.arrival(cx)?;
        let input = match self.inputs.get(number) {
            None => batch.input.clone(),
            Some(received) => {
                self.communicator.receive(cx.memory(), received, self.rank() - 1, arrival)?;
                cx.inputs.insert(received.storage().number(), None);
                let arrives = Rc::clone(&input_gradient);
                let source = cx.record("stage input", [None::<&Tensor>], move |_, [gradient, ..]| {
                    *arrives.borrow_mut() = gradient;
                    Ok([None])
                });
                received.clone().with_source(source)
            }
        };
        let begun = cx.memory().mark(StreamId::DEFAULT)?;
        let given = Batch { input, ..batch.clone() };
        let output = model.stage_forward(cx, &given, &self.part, self.checkpointing)?;
        let loss = match (self.part.last, scaler) {
            (false, _) => None,
            (true, None) => Some(model.stage_loss(cx, &output, &given)?),
            (true, Some(scaler)) => {
                let loss = model.stage_loss(cx, &output, &given)?;
                Some(scaler.scale(cx, &loss)?)
            }
        };
        if self.part.last {
            self.outputs.push(output.detach());
        } else {
            self.communicator.send(cx.memory(), &output, self.rank() + 1)?;
        }
        self.losses.extend(loss.as_ref().map(Tensor::detach));
        let graph = cx.end_graph();
        if let Some(place) = self.passed.get_mut(number) {
            *place = Some(MicroBatch { graph, output, loss, input_gradient });
        }
        self.done(cx, begun)
    }

    /// When the data for the next action arrives, if ranks are simulated.
    fn arrival(&mut self, cx: &Context) -> OpResult<Option<Arrival>> {
        self.entry.as_mut().map_or(Ok(None), |entry| entry.arrival(cx.memory()))
    }

    /// Ends an action that began at `begun`.
    fn done(&mut self, cx: &Context, begun: HeldMark) -> OpResult<()> {
        self.entry.as_mut().map_or(Ok(()), |entry| entry.done(cx.memory(), begun))
    }

    /// Backward of one micro-batch.
    pub fn backward(&mut self, cx: &mut Context, number: usize) -> OpResult<()> {
        let Some(MicroBatch { graph, output, loss, input_gradient }) =
            self.passed.get_mut(number).and_then(Option::take)
        else {
            return Ok(());
        };
        cx.resume_graph(graph);
        let arrival = self.arrival(cx)?;
        let mut begun = cx.memory().mark(StreamId::DEFAULT)?;
        if let Some(loss) = loss {
            drop(output);
            let one = cx.temporary(loss.shape(), loss.dtype(), "gradient of the loss")?;
            cx.launch(kernels::Elementwise::Fill { dst: one.operand(), value: 1.0 })?;
            cx.on_backward_thread(|cx| cx.backward(&loss, &one))?;
        } else if let Some(gradient) = self.output_gradients.get(number).cloned() {
            self.backwards().receive(cx.memory(), &gradient, self.rank() + 1, arrival)?;
            begun = cx.memory().mark(StreamId::DEFAULT)?;
            cx.on_backward_thread(|cx| cx.backward(&output, &gradient))?;
        }
        cx.drop_output();
        let gradient = input_gradient.borrow_mut().take();
        if let Some(gradient) = gradient {
            self.backwards().send(cx.memory(), &gradient, self.rank() - 1)?;
            // The schedule waits for a send before the next one, or immediately.
            self.sent = match self.schedule {
                PipelineSchedule::GPipe => None,
                PipelineSchedule::OneForwardOneBackward => Some(gradient),
            };
        }
        self.done(cx, begun)
    }

    /// Ends a step: the last stage concatenates its outputs, though they are not used. Returns the losses.
    pub fn end(&mut self, cx: &mut Context) -> OpResult<Vec<Tensor>> {
        self.sent = None;
        #[expect(clippy::cast_precision_loss, reason = "a handful of micro-batches")]
        let factor = 1.0 / self.passed.len().max(1) as f64;
        for gradient in self.parameters.iter().filter_map(|&parameter| cx.leaves[parameter].gradient.as_ref()) {
            cx.launch(kernels::Elementwise::Scale { src: gradient.flat(), dst: gradient.flat(), factor })?;
        }
        if let Some(first) = self.outputs.first() {
            let elements = self.outputs.iter().map(Tensor::numel).sum();
            drop(cx.activation(Shape::new(&[elements]), first.dtype(), "outputs of all micro-batches")?);
        }
        Ok(std::mem::take(&mut self.losses))
    }

    /// Drops what the abandoned step left.
    pub fn abandon(&mut self) {
        self.passed.clear();
        self.losses.clear();
        self.outputs.clear();
        self.sent = None;
        if let Some(entry) = &mut self.entry {
            entry.abandon();
        }
    }
}

/// Allocates a linear layer's weight of the table's shape, and the clone of the table that replaces it.
fn own_head(cx: &mut Context) -> OpResult<Tensor> {
    let Some(table) = cx.leaves.first().map(|leaf| leaf.data.clone()) else {
        return Err(TrainError::Workload("a pipeline ends in a head like the table of tokens; use ddp".into()).into());
    };
    debug_assert_eq!(table.source(), GradientTarget::Constant);
    let (memory, shape, dtype) = (cx.memory(), table.shape(), table.dtype());
    let name = memory.name("head.weight");
    let new = |memory: &crate::memory::Memory| {
        memory.named_tensor(shape, dtype, Category::Parameter, name, StreamId::DEFAULT)
    };
    let made = new(memory)?;
    let clone = new(memory)?;
    drop(made);
    cx.launch(kernels::Elementwise::Scale { src: table.operand(), dst: clone.operand(), factor: 1.0 })?;
    cx.leaves[0].name = "head.weight".into();
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes for gpt-mini and GPT-2, and for Llama in 16 bits.
    #[test]
    fn shapes_are_as_long_as_pytorchs() {
        assert_eq!(pickled(Shape::new(&[1, 32, 32]), DType::F32), 108);
        assert_eq!(pickled(Shape::new(&[4, 1024, 768]), DType::F32), 113);
        assert_eq!(pickled(Shape::new(&[1, 64, 64]), DType::Bf16), 109);
    }
}
