//! Activation checkpointing. Non-reentrant: a segment's saved tensors are dropped in the forward pass and recomputed when
//! backward first needs one of them. Reentrant: a segment runs without a graph, as one autograd function of its input; its
//! backward runs the segment again with a graph of its own, and backpropagates through that graph within the function.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use vramlab_device::{DType, HostWork, kernels};

use super::context::{Context, Repeatable, SavedTensorHooks, SecondRun};
use super::error::{Interrupt, OpResult, TrainError};
use super::tape::Gradients;
use super::tensor::{GradientTarget, Tensor};

impl SecondRun {
    /// The first run saves one more tensor; returns its index.
    pub fn count(&self) -> usize {
        let index = self.saved.get();
        self.saved.set(index + 1);
        index
    }

    /// The second run saves its next tensor; the last one that is needed ends the run.
    pub fn fill(&self, tensor: Tensor) -> OpResult<()> {
        self.fill_and_go_on(tensor);
        if self.recomputed.borrow().len() == self.saved.get() { Err(Interrupt::EarlyStop) } else { Ok(()) }
    }

    /// As [`Self::fill`], but the run goes on to its end.
    pub fn fill_and_go_on(&self, tensor: Tensor) {
        self.recomputed.borrow_mut().push(Some(tensor));
    }

    /// The second run saves its next tensor, which backward never asks for: in the first run it was gone with its graph.
    pub fn pass_over(&self) {
        self.recomputed.borrow_mut().push(None);
    }

    /// The `index`-th saved tensor; the first call runs the segment again.
    pub fn unpack(this: &Rc<Self>, cx: &mut Context, index: usize) -> OpResult<Tensor> {
        if this.recomputed.borrow().is_empty() {
            this.recompute(this, cx)?;
        }
        let tensor = this.recomputed.borrow_mut().get_mut(index).and_then(Option::take);
        tensor.ok_or_else(|| {
            Interrupt::Failed(TrainError::Workload(
                "a checkpointed segment saved other tensors when it was run again; make its forward deterministic"
                    .into(),
            ))
        })
    }

    fn recompute(&self, this: &Rc<Self>, cx: &mut Context) -> OpResult<()> {
        let outer = std::mem::replace(&mut cx.saving, SavedTensorHooks::Recompute(Rc::clone(this)));
        let scope = cx.memory().set_scope(self.scope);
        let drawn = std::mem::replace(&mut cx.generator, self.generator);
        let result = self.input.unpack(cx).and_then(|input| {
            let input = input.with_source(self.source);
            cx.autocast(self.autocast, |cx| self.segment.forward(cx, &input))
        });
        empty_outer_cache(cx, self.autocast);
        cx.generator = drawn;
        cx.memory().set_scope(scope);
        cx.saving = outer;
        match result {
            Ok(_) | Err(Interrupt::EarlyStop) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// A second run in a region of autocast to `dtype` is over. PyTorch counts nested regions per thread: this one was the outermost
/// on the engine's thread, so its end empties the cache of the program's own region, if that region encloses backward.
fn empty_outer_cache(cx: &mut Context, dtype: Option<DType>) {
    if cx.autocasts_backward && dtype.is_some() {
        cx.drop_copies();
        cx.weight_copies = Some(BTreeMap::new());
    }
}

/// Runs `segment` without keeping what it saves; backward runs it again.
///
/// # Errors
/// What its ops return.
pub fn checkpoint(cx: &mut Context, segment: &Rc<dyn Repeatable>, input: &Tensor) -> OpResult<Tensor> {
    if matches!(cx.saving, SavedTensorHooks::Nothing) {
        return segment.forward(cx, input);
    }
    cx.memory().with_device(|device| device.spend_host(HostWork::Checkpoint));
    if cx.reenters {
        return reentrant(cx, segment, input);
    }
    let again = Rc::new(SecondRun {
        segment: Rc::clone(segment),
        input: cx.save(input)?,
        source: match input.source() {
            GradientTarget::Node { .. } => GradientTarget::Recomputed,
            other => other,
        },
        autocast: cx.autocast.dtype(),
        scope: cx.memory().scope(),
        generator: cx.generator,
        saved: Cell::new(0),
        recomputed: RefCell::default(),
    });
    let outer = std::mem::replace(&mut cx.saving, SavedTensorHooks::Placeholder(again));
    let result = segment.forward(cx, input);
    cx.saving = outer;
    result
}

/// As `CheckpointFunction` of `torch.utils.checkpoint`: an input that requires no gradient leads to an output that requires none,
/// so the segment's parameters get no gradients.
fn reentrant(cx: &mut Context, segment: &Rc<dyn Repeatable>, input: &Tensor) -> OpResult<Tensor> {
    let (autocast, generator) = (cx.autocast.dtype(), cx.generator);
    let (output, beside) = cx.with_returned(|cx| cx.no_grad(|cx| segment.forward(cx, input)));
    let output = output?.detach();
    let beside: Vec<_> = beside.iter().map(|tensor| (tensor.shape(), tensor.dtype())).collect();
    if !cx.differentiates(&[input]) {
        return Ok(output);
    }
    let (saved, segment) = (cx.save_within_function(input)?, Rc::clone(segment));
    cx.held_by_graph.push(Rc::clone(&segment));
    let source = cx.record("CheckpointFunctionBackward", [Some(input), None, None], move |cx, grads| {
        let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
        // What the segment returns beside its output gets no gradient, so the function gets zeros.
        let zeros = |(shape, dtype)| {
            let zeros = cx.temporary(shape, dtype, "zeros for what nothing reads")?;
            cx.launch(kernels::Elementwise::Fill { dst: zeros.operand(), value: 0.0 })?;
            Ok(zeros)
        };
        let zeros = beside.into_iter().map(zeros).collect::<OpResult<Vec<_>>>()?;
        let input = saved.unpack(cx)?;
        // The input of the second run is a leaf, whose gradient is this function's.
        let received = Rc::new(RefCell::new(None));
        let leaf = Rc::clone(&received);
        let kept = cx.tape.len();
        let leaf = cx.record("AccumulateGrad", [None; 3], move |_, [grad, ..]| {
            leaf.replace(grad);
            Ok(Gradients::default())
        });
        let saving = std::mem::replace(&mut cx.saving, SavedTensorHooks::Keep);
        let drawn = std::mem::replace(&mut cx.generator, generator);
        let run = |cx: &mut Context| cx.autocast(autocast, |cx| segment.forward(cx, &input.detach().with_source(leaf)));
        let (made, beside) = cx.with_returned(run);
        cx.generator = drawn;
        empty_outer_cache(cx, autocast);
        // The second run's output and the incoming gradient are a variable and an argument of the function: both live
        // until backward has run.
        let ran = made.and_then(|made| {
            let _output = made.detach();
            cx.backward_within(kept, std::iter::once((&made, &grad)).chain(beside.iter().zip(&zeros)))
        });
        cx.saving = saving;
        ran?;
        Ok([received.take(), None, None])
    });
    Ok(output.with_source(source))
}
