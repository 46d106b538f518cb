//! Activation checkpointing, non-reentrant: a segment's saved tensors are dropped in the forward pass and made again when
//! backward first needs one of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use vramlab_device::HostWork;

use super::context::{Context, Repeatable, SavedTensorHooks, SecondRun};
use super::error::{Interrupt, OpResult, TrainError};
use super::tensor::{GradientTarget, Tensor};

impl SecondRun {
    /// The first run saves one more tensor; returns its index.
    pub fn count(&self) -> usize {
        let index = self.saved.get();
        self.saved.set(index + 1);
        index
    }

    /// The second run saves its next tensor; the last one ends it.
    pub fn fill(&self, tensor: Tensor) -> OpResult<()> {
        self.fill_and_go_on(tensor);
        if self.recomputed.borrow().len() == self.saved.get() { Err(Interrupt::EarlyStop) } else { Ok(()) }
    }

    /// The same where the run goes on to its end.
    pub fn fill_and_go_on(&self, tensor: Tensor) {
        self.recomputed.borrow_mut().push(Some(tensor));
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
        if cx.autocasts_backward && self.autocast.is_some() {
            // Regions of autocast count by thread: that of the second run is the outermost on the engine's, so that its end empties
            // the cache that the program's own region keeps.
            cx.drop_copies();
            cx.weight_copies = Some(BTreeMap::new());
        }
        cx.generator = drawn;
        cx.memory().set_scope(scope);
        cx.saving = outer;
        match result {
            Ok(_) | Err(Interrupt::EarlyStop) => Ok(()),
            Err(other) => Err(other),
        }
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
