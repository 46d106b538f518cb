//! Convolutions and attention through cuDNN's graphs. The library is optional: vramlab's own kernels compute whatever
//! it does not compute, or does not compute by the rules.

mod attention;
mod binding;
mod convolution;
mod descriptor;
mod graph;
mod handle;
mod library;
mod plan;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::driver::Stream;
use super::refusal::Refusal;
use super::scratch::Scratch;
use attention::AttentionKey;
use binding::TensorBinding;
use descriptor::Pointer;
use handle::Version;
use library::Library;
use vramlab_allocator::units::Address;

pub(crate) use attention::AttentionCall;
pub(crate) use convolution::{ConvolutionCall, ConvolutionKey};
pub(crate) use graph::Role;
pub(super) use library::usable;
pub(crate) use plan::{Engines, ExecutionPlan};

/// The library if it is available, and the plans made so far.
#[derive(Default)]
pub(crate) struct Dnn {
    /// `None` for attention that the library doesn't compute. Plans refer to the library's handle, which is dropped
    /// last.
    plans: HashMap<AttentionKey, Option<ExecutionPlan>>,
    notes: Vec<String>,
    cudnn: Library,
}

impl Dnn {
    /// Notes on how much the library computes and why own kernels compute the rest, in the order in which this became
    /// known.
    pub fn notes(&self) -> Vec<String> {
        let computed = self.plans.values().flatten().count();
        let summary = match &self.cudnn {
            Library::Open(handle) => Some(format!(
                "cuDNN {} computes {computed} of the {} attentions that it was asked for",
                handle.version(),
                self.plans.len()
            )),
            Library::Unasked | Library::Absent => None,
        };
        summary.into_iter().chain(self.notes.iter().cloned()).collect()
    }
}

/// The engines of convolutions. The choice among them is made elsewhere.
impl Dnn {
    /// The library's version; `None` if it is not available.
    pub fn version(&mut self) -> Option<Version> {
        self.cudnn.handle(&mut self.notes).map(|handle| handle.version())
    }

    /// Engines for a convolution; `None` if the library is not available or refuses the graph.
    pub fn engines(&mut self, key: &ConvolutionKey) -> Option<Engines> {
        let handle = self.cudnn.handle(&mut self.notes)?;
        key.engines(handle).map_err(|refusal| self.notes.push(format!("{key}: {refusal}"))).ok()
    }

    /// The next of `engines`, restricted to the engine with `tag` if one is given.
    pub fn next(&mut self, engines: &mut Engines, tag: Option<u64>) -> Option<ExecutionPlan> {
        engines.next(self.cudnn.handle(&mut self.notes)?, tag)
    }

    /// Computes attention; false if own kernels must compute it.
    pub fn attend(
        &mut self,
        attention: &AttentionCall<'_>,
        scratch: &mut Scratch,
        stream: Stream,
    ) -> Result<bool, Refusal> {
        attention.forward().map_or(Ok(false), |(key, tensors)| self.execute(key, &tensors, scratch, stream))
    }

    /// Computes gradients of attention on a device of this compute capability; false if own kernels must compute them.
    pub fn attend_backward(
        &mut self,
        attention: &AttentionCall<'_>,
        capability: u32,
        scratch: &mut Scratch,
        stream: Stream,
    ) -> Result<bool, Refusal> {
        attention.backward(capability).map_or(Ok(false), |(key, tensors)| self.execute(key, &tensors, scratch, stream))
    }

    /// Executes the plan of `key`, which is made on first use. False if the library has no plan or memory is short. If
    /// the library itself fails, own kernels compute this key from then on.
    fn execute(
        &mut self,
        key: AttentionKey,
        tensors: &[TensorBinding<'_>],
        scratch: &mut Scratch,
        stream: Stream,
    ) -> Result<bool, Refusal> {
        let Self { plans, notes, cudnn } = self;
        let Some(handle) = cudnn.handle(notes) else { return Ok(false) };
        let entry = match plans.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let made = key.plan(handle).map_err(|refusal| notes.push(format!("{key}: {refusal}")));
                entry.insert(made.ok())
            }
        };
        let Some(plan) = entry else { return Ok(false) };
        match binding::start(handle, plan, tensors, scratch, stream) {
            Ok(()) => Ok(true),
            Err(Refusal::Driver(failure)) if failure.lost() => Err(failure.into()),
            // Out of memory: own kernels need less.
            Err(Refusal::Driver(_)) => Ok(false),
            Err(refusal) => {
                notes.push(format!("{key}: {refusal}"));
                *entry = None;
                Ok(false)
            }
        }
    }

    /// Queues a convolution between source, weight and result at `addresses`, with the plan's workspace.
    pub fn convolve(
        &mut self,
        plan: &ExecutionPlan,
        addresses: [Address; 3],
        workspace: Address,
        stream: Stream,
    ) -> Result<(), Refusal> {
        let Some(handle) = self.cudnn.handle(&mut self.notes) else {
            return Err(handle::refused("nothing: it is not open".into()));
        };
        handle.follow(stream)?;
        plan.execute(handle, &addresses.map(Pointer::from), workspace)
    }
}
