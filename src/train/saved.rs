//! What ops save for their backward: where it waits, and how it comes back.

use std::rc::Rc;

use super::context::{Context, SavedTensorHooks, SavedVariable, SecondRun};
use super::error::{Interrupt, OpResult};
use super::memory::BlockHandle;
use super::offload::Offloader;
use super::tensor::Tensor;

impl SavedVariable {
    /// The saved tensor. A recomputed tensor is moved out: it has no other owner.
    pub fn unpack(&self, cx: &mut Context) -> OpResult<Tensor> {
        match self {
            Self::Kept(tensor) => {
                if cx.memory().watches_frames() {
                    cx.memory().unpacked(&(tensor.hold() as BlockHandle));
                }
                Ok(tensor.clone())
            }
            Self::Offloaded(packed) => packed.unpack(cx.memory()),
            Self::Dropped { run, index } => SecondRun::unpack(run, cx, *index),
            Self::Unused => Err(Interrupt::EarlyStop),
        }
    }
}

impl Context {
    /// Runs ops whose saved tensors wait in host memory; without an `offloader` they stay on the device.
    ///
    /// # Errors
    /// What `run` returns.
    pub(crate) fn offloading<T>(
        &mut self,
        offloader: Option<Rc<Offloader>>,
        run: impl FnOnce(&mut Self) -> OpResult<T>,
    ) -> OpResult<T> {
        let Some(offloader) = offloader else { return run(self) };
        let outer = std::mem::replace(&mut self.saving, SavedTensorHooks::Offload(offloader));
        let result = run(self);
        self.saving = outer;
        self.memory().tell_host();
        result
    }

    /// Saves a tensor for backward.
    ///
    /// # Errors
    /// [`Interrupt::EarlyStop`] when a recomputed segment has saved its last tensor.
    pub(crate) fn save(&mut self, tensor: &Tensor) -> OpResult<SavedVariable> {
        let saved = match &self.saving {
            SavedTensorHooks::Keep => SavedVariable::Kept(tensor.detach()),
            SavedTensorHooks::Offload(offloader) => self.offload(offloader, tensor)?,
            SavedTensorHooks::Nothing => return Ok(SavedVariable::Unused),
            SavedTensorHooks::Placeholder(run) => SavedVariable::Dropped { run: Rc::clone(run), index: run.count() },
            SavedTensorHooks::Recompute(run) => {
                run.fill(tensor.detach())?;
                return Ok(SavedVariable::Unused);
            }
        };
        self.retained.saved(&saved);
        Ok(saved)
    }

    /// Saves a slice of a wider tensor, whose values lie side by side here although PyTorch's have gaps between them: on its way to
    /// the host it is copied beside itself first.
    ///
    /// # Errors
    /// See [`Context::save`].
    pub(crate) fn save_slice(&mut self, slice: &Tensor) -> OpResult<SavedVariable> {
        if !matches!(self.saving, SavedTensorHooks::Offload(_)) {
            return self.save(slice);
        }
        let copy = self.temporary(slice.shape(), slice.dtype(), "contiguous copy")?;
        self.copy(slice, &copy)?;
        self.save(&copy)
    }

    /// Saves a tensor for a gradient that never comes, in a graph that leads to no loss: it lives until the handle is dropped. In
    /// a second run only that graph holds it.
    ///
    /// # Errors
    /// See [`Context::save`].
    pub(crate) fn save_in_vain(&mut self, tensor: &Tensor) -> OpResult<SavedVariable> {
        let SavedTensorHooks::Recompute(run) = &self.saving else { return self.save(tensor) };
        run.pass_over();
        Ok(SavedVariable::Kept(tensor.detach()))
    }

    /// Saves a tensor in an autograd function of the program's own, within which a checkpoint must not stop its second run early:
    /// PyTorch fails there, and programs turn the early stop off (`set_checkpoint_early_stop(False)`).
    pub(crate) fn save_within_function(&mut self, tensor: &Tensor) -> OpResult<SavedVariable> {
        let SavedTensorHooks::Recompute(run) = &self.saving else { return self.save(tensor) };
        run.fill_and_go_on(tensor.detach());
        Ok(SavedVariable::Unused)
    }

    /// Notes a model's output, which the program may keep by mistake.
    pub(crate) fn retain_output(&mut self, output: &Tensor) {
        self.retained.output(|| SavedVariable::Kept(output.detach()));
    }

    /// Notes a loss, which the program may keep by mistake.
    pub(crate) fn retain_loss(&mut self, loss: &Tensor) {
        self.retained.loss(|| SavedVariable::Kept(loss.detach()));
    }

    /// Copies a saved tensor to host memory; copies it on the device first if it has other strides there.
    pub(crate) fn offload(&self, offloader: &Rc<Offloader>, tensor: &Tensor) -> OpResult<SavedVariable> {
        let (shape, strides) = (tensor.shape(), offloader.strides_of(tensor));
        let whole = if tensor.has_layout(strides) {
            tensor.clone()
        } else {
            let copy = self.temporary(shape, tensor.dtype(), "contiguous copy")?.strided(shape, strides, 0);
            self.copy(tensor, &copy)?;
            copy
        };
        let packed = Offloader::pack(offloader, self.memory(), &whole, strides, self.tape.len())?;
        Ok(SavedVariable::Offloaded(packed))
    }
}
