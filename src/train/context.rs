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

/// What happens to the tensors that ops save.
#[derive(Clone, Default)]
pub(crate) enum SavedTensorHooks {
    /// They are kept until their node has run.
    #[default]
    Keep,
    /// They are copied to host memory.
    Offload(Rc<Offloader>),
    /// Nothing is differentiated (`no_grad`).
    Nothing,
    /// They are dropped, and recomputed by running the segment once more.
    Placeholder(Rc<SecondRun>),
    /// This is that second run: it receives the tensors, and no node is recorded.
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

/// A checkpointed segment: how to run it again, and the tensors that the second run saved.
///
/// The placeholders of its saved tensors share it: it is dropped with the last of them.
pub(crate) struct SecondRun {
    pub(super) segment: Rc<dyn Repeatable>,
    pub(super) input: SavedVariable,
    /// Where the input's gradient goes; the second run ignores it.
    pub(super) source: GradientTarget,
    pub(super) autocast: Option<DType>,
    pub(super) scope: NameId,
    /// How many random numbers had been drawn before the segment.
    pub(super) generator: u64,
    /// Tensors that the first run saved.
    pub(super) saved: Cell<usize>,
    /// What the second run saved, each handed out once.
    pub(super) recomputed: RefCell<Vec<Option<Tensor>>>,
}

/// Which attention kernel a step asks for, and which one ran.
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
    /// Tensors of modules that are no parameters.
    buffers: Vec<Buffer>,
    pub(crate) saving: SavedTensorHooks,
    /// Checkpoints run backward within backward.
    pub(crate) reenters: bool,
    /// Segments of such checkpoints, which nodes of the graph hold until the graph is dropped with the loss.
    pub(crate) held_by_graph: Vec<Rc<dyn Repeatable>>,
    /// What the segment of such a checkpoint returned beside its output, while it runs.
    returned: Option<Vec<Tensor>>,
    pub(crate) retained: RetainedTensors<SavedVariable>,
    /// Batch norm normalises by the statistics of the batch and updates its running ones; else it normalises by the running ones.
    pub(crate) training: bool,
    pub(crate) autocast: Autocast,
    /// Which f32 products may be rounded to TensorFloat-32.
    pub(crate) tf32: Tf32,
    pub(crate) workspaces: Library,
    pub(crate) attention: AttentionChoice,
    /// Choices of programs around transformers' models.
    pub(crate) causal: CausalChoice,
    /// Tensors in the object that a model returned, besides its logits.
    in_output: Vec<Tensor>,
    /// Fused ops replace chains of PyTorch's eager ops.
    pub(crate) fused: bool,
    /// The gates of MLPs are not fused.
    pub(crate) gates_as_written: bool,
    /// 16-bit copies of parameters that last a whole step, because its fused ops ask for them several times.
    pub(crate) weight_copies: Option<BTreeMap<usize, Tensor>>,
    /// Leaves of the graph that are no parameters, by storage: autocast caches their 16-bit copies too, and each cached
    /// copy keeps its leaf.
    pub(crate) inputs: BTreeMap<u64, Option<[Tensor; 2]>>,
    /// The op that runs now makes logits that only a loss will read.
    pub(crate) classifying: bool,
    pub(crate) cache: Option<KvCache>,
    /// The gradient for the op that runs backward, in the second type that it asked for.
    pub(crate) gradient_copy: Option<Tensor>,
    /// How many random numbers were drawn; a checkpoint's second run draws the same as its first.
    pub(crate) generator: u64,
    /// Tensors that are no longer needed, held by local variables of the model's forward.
    locals: Vec<Tensor>,
    /// Blocks in the frames of failed steps, if the program keeps their exceptions.
    frames: Vec<BlockHandle>,
    pub(super) outputs: Outputs,
    /// What training over several devices does beside the ops.
    pub(crate) hooks: Option<Box<dyn Hooks<Self>>>,
    /// This pass averages its gradients with those of the other ranks (`require_backward_grad_sync`).
    pub(crate) synchronises: bool,
    /// Parts of the model that may be wrapped by themselves, each by its parameters.
    pub(crate) units: Vec<Vec<usize>>,
    /// This rank's place, if it is one of several.
    pub(crate) member: Option<Member>,
    /// The ranks among which layers are split.
    pub(crate) tensor_ranks: Option<Communicator>,
    /// Where this rank meets the others, on a device that holds bytes.
    pub(crate) seat: Option<Arc<Seat>>,
    /// When the stages of a simulated pipeline run.
    pub(crate) timetable: Option<Arc<Timetable>>,
    /// Parameters that are created whole and split afterwards, in order.
    pub(crate) splits: Vec<(TensorSplit, [usize; 2])>,
    /// Parameters were loaded as this rank's parts.
    pub(crate) in_parts: bool,
    /// Whether PyTorch has already asked what a copy of a part would look like.
    pub(crate) likeness: Likeness,
    /// The model is a stage of a pipeline, which runs another program.
    pub(crate) in_stage: bool,
    /// Backward runs within the autocast region, as in the step of a pipeline schedule.
    pub(crate) autocasts_backward: bool,
    /// bitsandbytes' table of 8-bit values, which it keeps once it was needed.
    pub(crate) byte_codes: Option<Tensor>,
    /// Tensors that live until the program ends.
    kept: Vec<Tensor>,
    /// Where the model reads whole frozen weights outside its layers' own products, which layers' hooks don't see.
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
            returned: None,
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

    /// The allocator, device and observer.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether fused ops replace chains of PyTorch's eager ops.
    #[must_use]
    pub const fn is_fused(&self) -> bool {
        self.fused
    }

    /// Whether the gates of MLPs are fused.
    #[must_use]
    pub const fn fuses_gates(&self) -> bool {
        self.fused && !self.gates_as_written
    }

    /// Turns fused ops off for this step: the model has none.
    pub fn run_as_written(&mut self) {
        self.fused = false;
        self.weight_copies = None;
    }

    /// Runs the ops that make the model's logits.
    pub fn classify<T>(&mut self, run: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        self.classifying = true;
        let logits = run(self);
        self.classifying = false;
        logits
    }

    /// Keeps a tensor until the program ends.
    pub(crate) fn keep(&mut self, tensor: Tensor) {
        self.kept.push(tensor);
    }

    /// Whether the model is a stage of a pipeline.
    #[must_use]
    pub const fn is_stage(&self) -> bool {
        self.in_stage
    }

    /// Whether each rank holds a shard of every parameter.
    #[must_use]
    pub const fn shards_parameters(&self) -> bool {
        matches!(self.member, Some(member) if member.parallelism.shards_parameters())
    }

    /// This rank's place, if it is one of several.
    #[must_use]
    pub fn world(&self) -> Option<World> {
        self.member.map(|member| member.world)
    }

    /// Notes that the model reads whole frozen weights for `what`.
    pub const fn need_whole_weights(&mut self, what: &'static str) {
        self.needs_whole = Some(what);
    }

    /// Drops the 16-bit copies that last a whole step.
    pub(crate) fn drop_copies(&mut self) {
        self.weight_copies = None;
        self.inputs.values_mut().for_each(|copy| *copy = None);
    }

    /// Drops the 16-bit copies and the leaves of the pass, which is over.
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
                // Backward ops are in no frame of the program; the frames of the pass as a whole are caught when it ends.
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

    /// Runs the forward of a module: names of its ops begin with `scope`, and its output is noted.
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

    /// Ends the step, `whole` or abandoned: reports the modules' outputs if they have changed.
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

    /// Runs a model's forward: tensors from [`keep_local`](Self::keep_local) are released when it returns.
    ///
    /// # Errors
    /// What `forward` returns.
    pub fn model_forward<T>(&mut self, forward: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = std::mem::take(&mut self.locals);
        let result = forward(self);
        self.locals = outer;
        result
    }

    /// Says that a unit returns `tensor` beside its output, which nobody reads: a reentrant checkpoint's function returns it too.
    pub fn returns_beside(&mut self, tensor: &Tensor) {
        if let Some(returned) = &mut self.returned {
            returned.push(tensor.clone());
        }
    }

    /// What `run` makes, and what is returned beside it.
    pub(crate) fn with_returned<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> (T, Vec<Tensor>) {
        let before = self.returned.replace(Vec::new());
        let made = run(self);
        (made, std::mem::replace(&mut self.returned, before).unwrap_or_default())
    }

    /// Keeps a tensor until the model's forward returns, as a local variable of `forward` does.
    pub fn keep_local(&mut self, tensor: Tensor) {
        self.locals.push(tensor);
    }

    /// Keeps a tensor as long as the object that the model returns: until [`Context::drop_output`].
    pub fn keep_in_output(&mut self, tensor: Tensor) {
        self.in_output.push(tensor);
    }

    /// Drops the model's output, as the program does.
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

    /// `input` as a tensor that requires a gradient, though none of the ops that made it does: `requires_grad_(True)`. It is a
    /// leaf of the graph; it and its gradient live as long as the graph.
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

    /// A tensor of the backward pass, or one that is freed within the op.
    pub(crate) fn temporary(&self, shape: Shape, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        self.memory.tensor(shape, dtype, Category::Temporary, what)
    }

    /// A temporary on the host if the tensors beside it lie on the host, else on the device.
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

    /// Keeps everything that the frames of the failed step hold, because the program keeps its exception. Gradients are in no
    /// frame, and the copies of weights are dropped with the autocast region that is left.
    pub(crate) fn catch_frames(&mut self) {
        self.autocast = Autocast::default();
        self.forget_copies();
        for leaf in &mut self.leaves {
            leaf.reset();
        }
        self.frames.append(&mut self.memory.catch_frames());
    }

    /// Drops the exceptions of failed steps and everything that their frames hold.
    pub(crate) fn drop_frames(&mut self) {
        self.memory.begin_frames(false);
        self.frames.clear();
    }

    /// Drops everything that an abandoned step left: tape, gradients, cached copies of weights.
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
