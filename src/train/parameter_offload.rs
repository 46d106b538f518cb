//! Parameters that wait in host memory: they come to the device for the forward and backward of their layer.
//!
//! [`Offload::Parameters`](super::config::Offload::Parameters) is what ZeRO-3's `offload_param`, FSDP's `CPUOffloadPolicy` and
//! accelerate's `cpu_offload` do on one device, written with hooks. A forward pre-hook allocates a parameter's storage again
//! (`untyped_storage().resize_`) and copies the values in; a forward hook frees that memory. A hook on the output's gradient
//! brings the values back, and a hook behind the accumulation of the parameter's gradient (`register_post_accumulate_grad_hook`)
//! frees it again. A node that saved the parameter, or a view of it, shares its storage. The copy in host memory stays: only the
//! optimizer overwrites it.

use vramlab_model::Category;

use super::config::Config;
use super::context::Context;
use super::error::OpResult;
use super::parked::ParkedValues;
use super::tape::Leaf;
use super::tensor::{GradientTarget, Tensor};

impl Context {
    /// Puts parameters where `config` wants them between steps.
    ///
    /// # Errors
    /// Out of memory, on the device or on the host; a failed copy.
    pub(crate) fn place_parameters(&mut self, config: &Config) -> OpResult<()> {
        let parks = config.offload.parks_parameters();
        let placed = |leaf: &Leaf| match &leaf.parked {
            Some(parked) => parks && parked.is_pinned() == config.pinned,
            // Parameters of other stages don't exist here, and shards stay where they were made.
            None => !parks || !leaf.data.is_present() || leaf.shard.is_some(),
        };
        let misplaced: Vec<usize> = (0..self.leaves.len()).filter(|&index| !placed(&self.leaves[index])).collect();
        if misplaced.is_empty() {
            return Ok(());
        }
        let name = if parks { "park parameters" } else { "fetch parameters" };
        self.op(name, |cx| {
            for index in misplaced {
                cx.bring(index)?;
                cx.leaves[index].parked = None;
                if parks {
                    cx.park(index, config.pinned)?;
                }
            }
            Ok(())
        })?;
        self.memory().tell_host();
        Ok(())
    }

    /// Runs the forward of a layer with its `parameters` on the device; backward brings them there too.
    ///
    /// # Errors
    /// What `run` returns; out of memory, a failed copy.
    pub fn with_parameters<'a, T>(
        &mut self,
        parameters: impl IntoIterator<Item = &'a Tensor>,
        run: impl FnOnce(&mut Self) -> OpResult<T>,
    ) -> OpResult<T> {
        let parked: Vec<usize> = parameters.into_iter().filter_map(|parameter| self.parked(parameter)).collect();
        if parked.is_empty() {
            return run(self);
        }
        // A layer that is run again in backward finds its parameters on the device, and leaves them there.
        let absent: Vec<usize> =
            parked.iter().copied().filter(|&index| !self.leaves[index].data.is_present()).collect();
        let kept = self.tape.len();
        let result = self.bring_all(&absent).and_then(|()| run(self));
        for index in absent {
            self.leaves[index].let_go();
        }
        let result = result?;
        if self.tape.len() > kept {
            self.tape.need_parameters(parked);
        }
        Ok(result)
    }

    /// Copies those parameters to the device that are not there.
    pub(crate) fn bring_parameters(&mut self, indices: &[usize]) -> OpResult<()> {
        let absent: Vec<usize> =
            indices.iter().copied().filter(|&index| !self.leaves[index].data.is_present()).collect();
        self.bring_all(&absent)
    }

    /// Copies parameters that have changed on the device to host memory, and frees their blocks.
    pub(crate) fn return_parameters(&mut self, indices: &[usize], pinned: bool) -> OpResult<()> {
        self.op("park parameters", |cx| indices.iter().try_for_each(|&index| cx.park(index, pinned)))
    }

    /// Frees the block of every parameter whose values wait in host memory: no work that uses them is under way.
    pub(crate) fn let_parameters_go(&mut self) {
        self.leaves.iter().for_each(Leaf::let_go);
    }

    /// Backward reaches the layer that needs the `needed` parameters: frees all other frozen parameters, which no arriving
    /// gradient frees.
    pub(crate) fn let_frozen_go(&self, needed: &[usize]) {
        let others = self.leaves.iter().enumerate().filter(|(index, leaf)| leaf.frozen && !needed.contains(index));
        others.for_each(|(_, leaf)| leaf.let_go());
    }

    fn parked(&self, parameter: &Tensor) -> Option<usize> {
        let (GradientTarget::Leaf(index) | GradientTarget::Frozen(index)) = parameter.source() else { return None };
        self.leaves.get(index)?.parked.as_ref().map(|_| index)
    }

    fn bring_all(&mut self, absent: &[usize]) -> OpResult<()> {
        if absent.is_empty() {
            return Ok(());
        }
        self.op("fetch parameters", |cx| absent.iter().try_for_each(|&index| cx.bring(index)))
    }

    fn bring(&mut self, index: usize) -> OpResult<()> {
        let leaf = &self.leaves[index];
        let Some(parked) = leaf.parked.as_ref().filter(|_| !leaf.data.is_present()) else { return Ok(()) };
        let name = self.memory().name(&leaf.name);
        leaf.data.storage().refill(leaf.data.numel(), Category::Parameter, name)?;
        parked.give(&leaf.data)
    }

    fn park(&mut self, index: usize, pinned: bool) -> OpResult<()> {
        let data = self.leaves[index].data.clone();
        if let Some(parked) = &mut self.leaves[index].parked {
            parked.take(&data)?;
        } else {
            self.leaves[index].parked = Some(ParkedValues::new(self.memory(), &data, pinned)?);
        }
        self.leaves[index].let_go();
        Ok(())
    }
}
