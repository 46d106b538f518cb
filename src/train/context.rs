//! What an op needs to run: memory, the tape, what to do with saved tensors, autocast, library handles.

mod causal;
mod parameters;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use vramlab_device::{DType, Kernel};
use vramlab_model::{Category, EventKind, ModuleOutput, NameId};

use super::autocast::Autocast;
use super::communicator::Communicator;
use super::config::{AttentionKernel, Float8Recipe, LossHead, Tf32};
use super::error::OpResult;
use super::exchange::Seat;
use super::hooks::Hooks;
use super::kv_cache::KvCache;
use super::library::{Libraries, Library, Thread};
use super::member::{Member, World};
use super::memory::{BlockHandle, Memory};
use super::offload::{OffloadedTensor, Offloader};
use super::outputs::Outputs;
use super::retain::RetainedTensors;
use super::shape::Shape;
use super::split::{Likeness, TensorSplit};
use super::tape::{Backward, Gradients, INPUTS, Leaf, Tape};
use super::tensor::{GradientTarget, Tensor};
use super::timetable::Timetable;

/// What becomes of the tensors that ops save.
#[derive(Clone, Default)]
pub(crate) enum SavedTensorHooks {
    /// They are kept until their node has run.
    #[default]
    Keep,
    /// They are copied to host memory.
    Offload(Rc<Offloader>),
    /// Nothing is differentiated (`no_grad`).
    Nothing,
    /// They are dropped, and made again by running the segment once more.
    Placeholder(Rc<SecondRun>),
    /// This is that second run: they are handed to it, and no node is made.
    Recompute(Rc<SecondRun>),
}

/// A tensor that an op saved for its backward.
#[derive(Clone)]
pub(crate) enum SavedVariable {
    /// The tensor itself.
    Kept(Tensor),
    /// Its copy in host memory.
    Offloaded(Rc<OffloadedTensor>),
    /// The `index`-th tensor that a checkpointed segment saves.
    Dropped { run: Rc<SecondRun>, index: usize },
    /// Never read.
    Unused,
}

/// A part of a model that can be run again.
pub trait Repeatable {
    /// Runs it.
    ///
    /// # Errors
    /// What its ops return.
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor>;
}

/// A checkpointed segment: how to run it again and what the second run gave.
///
/// The placeholders of its saved tensors share it, so that it goes with the last of them.
pub(crate) struct SecondRun {
    pub(super) segment: Rc<dyn Repeatable>,
    pub(super) input: SavedVariable,
    /// Where the input's gradient goes; nowhere in particular in the second run.
    pub(super) source: GradientTarget,
    pub(super) autocast: Option<DType>,
    pub(super) scope: NameId,
    /// How often random numbers had been drawn.
    pub(super) generator: u64,
    /// Tensors that the first run saved.
    pub(super) saved: Cell<usize>,
    /// What the second run saved, each handed out once.
    pub(super) recomputed: RefCell<Vec<Option<Tensor>>>,
}

/// Which kernel a step asks for, and which one ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttentionChoice {
    pub(super) kernel: AttentionKernel,
    pub(super) ran: Option<&'static str>,
}

/// How a model of transformers is called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CausalChoice {
    pub(super) head: LossHead,
    pub(super) use_cache: bool,
    pub(super) tiled_mlp: bool,
    pub(super) attention_mask: bool,
    pub(super) float8: Float8Recipe,
}

/// State of a module that no gradient changes.
struct Buffer {
    name: NameId,
    data: Tensor,
}

/// The state of a forward or backward pass. Ops are methods of it, one file each in `ops/`.
pub struct Context {
    memory: Memory,
    pub(crate) tape: Tape<Self>,
    pub(crate) leaves: Vec<Leaf>,
    /// What modules keep besides parameters.
    buffers: Vec<Buffer>,
    pub(crate) saving: SavedTensorHooks,
    /// Checkpoints go backward within backward.
    pub(crate) reenters: bool,
    /// Segments of such, which nodes of the graph hold as long as something holds them: until the loss goes.
    pub(crate) held_by_graph: Vec<Rc<dyn Repeatable>>,
    pub(crate) retained: RetainedTensors<SavedVariable>,
    /// Batch norm uses, and follows, the statistics of the batch; else its running ones.
    pub(crate) training: bool,
    pub(crate) autocast: Autocast,
    /// Which f32 products may be rounded.
    pub(crate) tf32: Tf32,
    pub(crate) workspaces: Library,
    pub(crate) attention: AttentionChoice,
    /// What programs around models of transformers choose.
    pub(crate) causal: CausalChoice,
    /// What the object that a model returned holds beside its logits.
    in_output: Vec<Tensor>,
    /// Ops run as the fused ones that replace several of PyTorch's eager mode.
    pub(crate) fused: bool,
    /// But for the gates of MLPs.
    pub(crate) gates_as_written: bool,
    /// 16-bit copies of parameters that serve a whole step, where its ops are fused and ask for them several times.
    pub(crate) weight_copies: Option<BTreeMap<usize, Tensor>>,
    /// Leaves of the graph that are no parameters, by storage: autocast keeps their copies in 16 bit too, and these them.
    pub(crate) inputs: BTreeMap<u64, Option<[Tensor; 2]>>,
    /// What runs now makes logits that only a loss will read.
    pub(crate) classifying: bool,
    pub(crate) cache: Option<KvCache>,
    /// The gradient of the op that goes backward, in the type that it wanted besides its own.
    pub(crate) gradient_copy: Option<Tensor>,
    /// How often random numbers were drawn; a checkpoint's second run draws those of its first.
    pub(crate) generator: u64,
    /// Tensors that are no longer needed, held by local variables of the model's forward.
    locals: Vec<Tensor>,
    /// What frames of failed steps hold, where the program keeps their exceptions.
    frames: Vec<BlockHandle>,
    pub(super) outputs: Outputs,
    /// What training over several devices does beside the ops.
    pub(crate) hooks: Option<Box<dyn Hooks<Self>>>,
    /// This pass's gradients are averaged with those of the other ranks (`require_backward_grad_sync`).
    pub(crate) synchronises: bool,
    /// Parts of the model that may be wrapped by themselves: their parameters.
    pub(crate) units: Vec<Vec<usize>>,
    /// The rank that this is, where it is one of several.
    pub(crate) member: Option<Member>,
    /// The ranks among which layers are split.
    pub(crate) tensor_ranks: Option<Communicator>,
    /// Where this rank meets the others, on a device that holds bytes.
    pub(crate) seat: Option<Arc<Seat>>,
    /// When the stages of a simulated pipeline work.
    pub(crate) timetable: Option<Arc<Timetable>>,
    /// Parameters that are made whole and split then, in order.
    pub(crate) splits: Vec<(TensorSplit, [usize; 2])>,
    /// Parameters were loaded as this rank's parts.
    pub(crate) in_parts: bool,
    /// Whether PyTorch has asked yet what a copy of a part would look like.
    pub(crate) likeness: Likeness,
    /// The model is a stage of a pipeline, whose program is another one.
    pub(crate) in_stage: bool,
    /// Backward runs within the region of autocast, as a schedule's step does.
    pub(crate) autocasts_backward: bool,
    /// bitsandbytes' table of values in 8 bits, which it keeps once it was needed.
    pub(crate) byte_codes: Option<Tensor>,
    /// Tensors that last as long as the program.
    kept: Vec<Tensor>,
    /// What the model does with whole frozen weights beside its layers' own products, which hooks of layers know nothing of.
    pub(crate) needs_whole: Option<&'static str>,
}

impl Context {
    /// A context without parameters.
    #[must_use]
    pub fn new(memory: Memory, workspaces: Libraries) -> Self {
        Self {
            memory,
            tape: Tape::default(),
            leaves: Vec::new(),
            buffers: Vec::new(),
            saving: SavedTensorHooks::Keep,
            reenters: false,
            held_by_graph: Vec::new(),
            retained: RetainedTensors::default(),
            training: true,
            autocast: Autocast::default(),
            tf32: Tf32::Off,
            workspaces: Library::new(workspaces),
            attention: AttentionChoice::default(),
            causal: CausalChoice::default(),
            in_output: Vec::new(),
            fused: false,
            gates_as_written: false,
            weight_copies: None,
            inputs: BTreeMap::new(),
            classifying: false,
            cache: None,
            gradient_copy: None,
            generator: 0,
            locals: Vec::new(),
            frames: Vec::new(),
            outputs: Outputs::default(),
            hooks: None,
            synchronises: true,
            units: Vec::new(),
            member: None,
            tensor_ranks: None,
            seat: None,
            timetable: None,
            splits: Vec::new(),
            in_parts: false,
            likeness: Likeness::default(),
            in_stage: false,
            autocasts_backward: false,
            byte_codes: None,
            kept: Vec::new(),
            needs_whole: None,
        }
    }

    /// Allocator, device and observer.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether ops run as the fused ones that replace several of PyTorch's eager mode.
    #[must_use]
    pub const fn is_fused(&self) -> bool {
        self.fused
    }

    /// Whether gates of MLPs are.
    #[must_use]
    pub const fn fuses_gates(&self) -> bool {
        self.fused && !self.gates_as_written
    }

    /// The model has no fused ops: this step runs them as they are written.
    pub fn run_as_written(&mut self) {
        self.fused = false;
        self.weight_copies = None;
    }

    /// Runs what makes the logits of a model.
    pub fn classify<T>(&mut self, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        self.classifying = true;
        let logits = run(self);
        self.classifying = false;
        logits
    }

    /// Keeps a tensor to the end of the program.
    pub(crate) fn keep(&mut self, tensor: Tensor) {
        self.kept.push(tensor);
    }

    /// Whether the model is a stage of a pipeline.
    #[must_use]
    pub const fn is_stage(&self) -> bool {
        self.in_stage
    }

    /// Whether each rank has a shard of every parameter.
    #[must_use]
    pub const fn shards_parameters(&self) -> bool {
        matches!(self.member, Some(member) if member.parallelism.shards_parameters())
    }

    /// This rank's place among all, where it is one of several.
    #[must_use]
    pub fn world(&self) -> Option<World> {
        self.member.map(|member| member.world)
    }

    /// The model reads whole frozen weights for `what`.
    pub const fn need_whole_weights(&mut self, what: &'static str) {
        self.needs_whole = Some(what);
    }

    /// The copies in 16 bit that serve a whole step go.
    pub(crate) fn drop_copies(&mut self) {
        self.weight_copies = None;
        self.inputs.values_mut().for_each(|copy| *copy = None);
    }

    /// The same, and the pass with its leaves is over.
    pub(crate) fn forget_copies(&mut self) {
        self.drop_copies();
        self.inputs.clear();
    }

    /// Drops the graph of a forward pass that will not be differentiated.
    pub fn drop_graph(&mut self) {
        self.tape.clear();
        self.held_by_graph.clear();
        for leaf in &mut self.leaves {
            leaf.reset();
        }
    }

    /// Runs one op under a name: events around it, a safe point after it.
    ///
    /// # Errors
    /// What `run` fails with, or an interrupt at the safe point.
    pub fn op<T>(&mut self, name: &'static str, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        self.memory.begin_op(name);
        match run(self) {
            Ok(result) => {
                self.memory.end_op()?;
                Ok(result)
            }
            Err(interrupt) => {
                self.memory.emit(EventKind::OpEnd);
                // What runs backward is no frame of the program; the pass as a whole is caught when it ends.
                if self.memory.watches_frames() && self.workspaces.thread == Thread::Main {
                    self.catch_frames();
                }
                Err(interrupt)
            }
        }
    }

    /// Runs the ops of a module: their names begin with `scope`.
    pub fn within<T>(&mut self, scope: NameId, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = self.memory.set_scope(scope);
        let result = run(self);
        self.memory.set_scope(outer);
        result
    }

    /// Runs the forward of a module: names of its ops begin with `scope`, and what it puts out is noted.
    ///
    /// # Errors
    /// What `run` returns.
    pub fn module(&mut self, scope: NameId, run: impl FnOnce(&mut Self) -> OpResult<Tensor>) -> OpResult<Tensor> {
        let output = self.within(scope, run)?;
        self.put_out(scope, &output);
        Ok(output)
    }

    /// Notes what a module's forward returned, as a hook on it would.
    pub fn put_out(&mut self, module: NameId, output: &Tensor) {
        self.outputs.note((module, output.shape(), output.dtype()));
    }

    /// The step is over, `whole` or abandoned: tells what modules put out, where that is something new.
    pub(super) fn tell_outputs(&mut self, whole: bool) {
        let Some(outputs) = self.outputs.end_step(whole) else { return };
        let mut rows: Vec<ModuleOutput> = Vec::new();
        let mut places = BTreeMap::new();
        for &(module, shape, dtype) in outputs {
            let dims: Vec<u64> = shape.dims().iter().map(|&dim| dim as u64).collect();
            let dtype_name = self.memory.name(dtype.label());
            let place = *places.entry((module, dims.clone(), dtype_name)).or_insert(rows.len());
            match rows.get_mut(place) {
                Some(row) => row.calls += 1,
                None => rows.push(ModuleOutput {
                    module,
                    shape: dims.into(),
                    dtype: dtype_name,
                    bytes: dtype.bytes(shape.numel()),
                    calls: 1,
                }),
            }
            if rows.len() == ModuleOutput::MOST {
                break;
            }
        }
        self.memory.emit(EventKind::Modules(rows.into()));
    }

    /// Runs a model's forward: what it [keeps](Self::keep_local) goes when it returns.
    ///
    /// # Errors
    /// What `forward` returns.
    pub fn model_forward<T>(&mut self, forward: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = std::mem::take(&mut self.locals);
        let result = forward(self);
        self.locals = outer;
        result
    }

    /// Keeps a tensor until the model's forward returns, as a local variable of it does.
    pub fn keep_local(&mut self, tensor: Tensor) {
        self.locals.push(tensor);
    }

    /// Keeps a tensor as long as the object that the model returns: until [`Context::drop_output`].
    pub fn keep_in_output(&mut self, tensor: Tensor) {
        self.in_output.push(tensor);
    }

    /// The program lets go of what the model returned.
    pub fn drop_output(&mut self) {
        self.in_output.clear();
    }

    /// Runs ops that are never differentiated.
    ///
    /// # Errors
    /// What `run` returns.
    pub fn no_grad<T>(&mut self, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = std::mem::replace(&mut self.saving, SavedTensorHooks::Nothing);
        let result = run(self);
        self.saving = outer;
        result
    }

    /// Runs ops of a model in evaluation mode (`model.eval()`).
    pub fn evaluating<T>(&mut self, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = std::mem::replace(&mut self.training, false);
        let result = run(self);
        self.training = outer;
        result
    }

    /// Runs `work` as PyTorch's backward thread, which owns library handles of its own.
    pub(crate) fn on_backward_thread<T>(&mut self, work: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        self.workspaces.thread = Thread::Backward;
        let result = work(self);
        self.workspaces.thread = Thread::Main;
        result
    }

    /// True when an op on these inputs will be differentiated.
    pub(crate) fn differentiates(&self, inputs: &[&Tensor]) -> bool {
        !matches!(self.saving, SavedTensorHooks::Nothing) && inputs.iter().any(|t| t.requires_grad())
    }

    /// Puts an op on the tape and returns where the gradient of its (first) output goes.
    pub(crate) fn record<const N: usize>(
        &mut self,
        name: &'static str,
        inputs: [Option<&Tensor>; N],
        backward: impl FnOnce(&mut Self, Gradients) -> OpResult<[Option<Tensor>; N]> + 'static,
    ) -> GradientTarget {
        const { assert!(N <= INPUTS) };
        match self.saving {
            SavedTensorHooks::Nothing => GradientTarget::Constant,
            SavedTensorHooks::Recompute(_) => GradientTarget::Recomputed,
            SavedTensorHooks::Keep | SavedTensorHooks::Offload(_) | SavedTensorHooks::Placeholder(_) => {
                let mut sources = [GradientTarget::Constant; INPUTS];
                for (source, input) in sources.iter_mut().zip(inputs) {
                    *source = input.map_or(GradientTarget::Constant, Tensor::source);
                }
                for source in sources {
                    if let GradientTarget::Leaf(index) = source {
                        self.leaves[index].used();
                    }
                }
                let backward: Backward<Self> = Box::new(move |cx, gradients| {
                    let mut all = [const { None }; INPUTS];
                    all.iter_mut().zip(backward(cx, gradients)?).for_each(|(slot, gradient)| *slot = gradient);
                    Ok(all)
                });
                self.tape.push(name, self.memory.scope(), sources, backward)
            }
        }
    }

    /// `input` as a tensor that wants a gradient, though nothing that made it does: `requires_grad_(True)`. It and its gradient live as
    /// long as the graph, whose leaf it is.
    pub fn want_gradient(&mut self, input: &Tensor) -> Tensor {
        if input.requires_grad() {
            return input.clone();
        }
        self.inputs.insert(input.storage().number(), None);
        let held = input.detach();
        let source = self.record("AccumulateGrad", [None, None, None], move |cx, [gradient, ..]| {
            cx.keep_in_output(held);
            gradient.into_iter().for_each(|gradient| cx.keep_in_output(gradient));
            Ok(Gradients::default())
        });
        input.clone().with_source(source)
    }

    /// A tensor that lives on after the op: an activation.
    pub(crate) fn activation(&self, shape: Shape, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        self.memory.tensor(shape, dtype, Category::Activation, what)
    }

    /// A tensor of the backward pass, or one that dies within the op.
    pub(crate) fn temporary(&self, shape: Shape, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        self.memory.tensor(shape, dtype, Category::Temporary, what)
    }

    /// The same beside tensors that may lie on the host: then it lies there too.
    pub(crate) fn temporary_beside(
        &self,
        on_host: bool,
        shape: Shape,
        dtype: DType,
        what: &'static str,
    ) -> OpResult<Tensor> {
        if on_host { self.memory.host_tensor(shape, dtype) } else { self.temporary(shape, dtype, what) }
    }

    /// Scratch of a library or of a reduction, in bytes.
    pub(crate) fn scratch(&self, bytes: usize, what: &'static str) -> OpResult<Tensor> {
        self.memory.scratch(bytes, what)
    }

    /// Launches a kernel.
    pub(crate) fn launch<'k>(&self, kernel: impl Into<Kernel<'k>>) -> OpResult<()> {
        self.memory.launch(kernel)
    }

    /// A step failed here, and its exception is kept: so is all that its frames hold. Gradients are not theirs, and the copies of
    /// weights go with the autocast region that is left.
    pub(crate) fn catch_frames(&mut self) {
        self.autocast = Autocast::default();
        self.forget_copies();
        for leaf in &mut self.leaves {
            leaf.reset();
        }
        self.frames.append(&mut self.memory.catch_frames());
    }

    /// The exceptions of failed steps are gone, and what their frames held.
    pub(crate) fn drop_frames(&mut self) {
        self.memory.begin_frames(false);
        self.frames.clear();
    }

    /// Drops everything that an abandoned step left: tape, gradients, cached casts.
    pub(crate) fn abandon(&mut self) {
        self.saving = SavedTensorHooks::Keep;
        self.training = true;
        self.tape.clear();
        self.held_by_graph.clear();
        self.retained.abandon();
        self.autocast = Autocast::default();
        self.forget_copies();
        self.cache = None;
        self.gradient_copy = None;
        self.locals.clear();
        self.drop_output();
        self.tell_outputs(false);
        self.workspaces.thread = Thread::Main;
        self.memory.set_scope(NameId::NONE);
        for leaf in &mut self.leaves {
            leaf.reset();
        }
        self.let_parameters_go();
        self.synchronises = true;
        if let Some(mut hooks) = self.hooks.take() {
            hooks.abandon(self);
            self.hooks = Some(hooks);
        }
    }
}
