//! Convolutions and attention through cuDNN's graphs. What it does not compute, or not by the rules, own kernels do: all
//! of it is optional.

mod attention;
mod convolution;
mod descriptor;
mod graph;
mod handle;
mod plan;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::driver::Stream;
use super::libraries::{self, Needed};
use super::queue::Queue;
use super::refusal::Refusal;
use super::scratch::Scratch;
use crate::units::{Address, Bytes};
use attention::AttentionKey;
use descriptor::Pointer;
use handle::{Handle, Version};

pub(super) use attention::{Attention, backward as attend_backward, forward as attend};
pub(super) use convolution::{Convolution, ConvolutionKey};
pub(super) use graph::Role;
pub(super) use plan::{Engines, Plan};

/// The oldest library whose descriptors are those of the bindings.
const OLDEST: Version = Version::new(9, 1);

/// An own variable: `off` leaves everything to own kernels.
const VARIABLE: &str = "VRAMLAB_CUDNN";

/// The largest workspace that is asked of an engine: it is memory that PyTorch's curve may not have.
const LARGEST_WORKSPACE: Bytes = Bytes::gib(1);

/// The library where there is one, and the plans made so far.
#[derive(Default)]
pub(super) struct Dnn {
    /// `None` for what the library doesn't compute. Plans refer to the library's handle, which goes last.
    plans: HashMap<AttentionKey, Option<Plan>>,
    notes: Vec<String>,
    cudnn: Library,
}

impl Dnn {
    /// How much the library computes; why own kernels compute the rest, in the order in which it was found out.
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

/// The engines of convolutions: which of them is taken is not decided here.
impl Dnn {
    /// The library's version; `None` where there is none.
    pub fn version(&mut self) -> Option<Version> {
        self.cudnn.handle(&mut self.notes).map(|handle| handle.version())
    }

    /// Engines for a convolution; `None` where there is no library, or it refuses the whole of it.
    pub fn engines(&mut self, key: &ConvolutionKey) -> Option<Engines> {
        let handle = self.cudnn.handle(&mut self.notes)?;
        key.engines(handle).map_err(|refusal| self.notes.push(format!("{key}: {refusal}"))).ok()
    }

    /// The next of `engines`; of those with a certain tag if one is given.
    pub fn next(&mut self, engines: &mut Engines, tag: Option<u64>) -> Option<Plan> {
        engines.next(self.cudnn.handle(&mut self.notes)?, tag)
    }

    /// Queues a convolution between the tensors at `addresses`, source, weight and result, with the plan's workspace.
    pub fn convolve(
        &mut self,
        plan: &Plan,
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

/// The library: opened when it is first asked for, since that takes time and memory.
#[derive(Default)]
enum Library {
    #[default]
    Unasked,
    Open(Handle),
    Absent,
}

impl Library {
    fn handle(&mut self, notes: &mut Vec<String>) -> Option<&mut Handle> {
        if matches!(self, Self::Unasked) {
            *self = match open() {
                Ok(handle) => Self::Open(handle),
                Err(reason) => {
                    notes.push(reason);
                    Self::Absent
                }
            };
        }
        match self {
            Self::Open(handle) => Some(handle),
            Self::Unasked | Self::Absent => None,
        }
    }
}

/// Opens the library for the present context.
fn open() -> Result<Handle, String> {
    usable()?;
    Handle::new().map_err(|refusal| refusal.to_string())
}

/// Whether the library is there and may be used, as far as that can be told without a context.
///
/// # Errors
/// The sentence that says why not, without a full stop.
pub(super) fn usable() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
        return Err(format!("cuDNN is not used: {VARIABLE} is off"));
    }
    libraries::load(Needed::Cudnn)?;
    match Version::of_library() {
        version if version < OLDEST => Err(format!("cuDNN {version} is not used: it is older than {OLDEST}")),
        _ => Ok(()),
    }
}

/// Where a tensor of a plan is this time.
#[derive(Clone, Copy)]
enum Bound<'a> {
    Device(Address),
    Host(&'a f32),
    /// In scratch, so many bytes.
    Scratch(usize),
}

/// Executes the plan of `key`, made by `make` where it is asked for the first time. False where the library has none, or
/// where it failed: then, and ever after, it is the own kernels' turn.
fn execute(
    queue: &mut Queue<'_>,
    key: AttentionKey,
    make: impl FnOnce(&Handle) -> Result<Plan, Refusal>,
    tensors: &[Bound<'_>],
) -> Result<bool, Refusal> {
    let Dnn { plans, notes, cudnn } = &mut queue.gpu.dnn;
    let Some(handle) = cudnn.handle(notes) else { return Ok(false) };
    let entry = match plans.entry(key) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let made = make(handle).map_err(|refusal| notes.push(format!("{key}: {refusal}")));
            entry.insert(made.ok())
        }
    };
    let Some(plan) = entry else { return Ok(false) };
    match start(handle, plan, tensors, &mut queue.gpu.scratch, queue.stream) {
        Ok(()) => Ok(true),
        Err(Refusal::Driver(failure)) if failure.lost() => Err(failure.into()),
        // Out of memory: own kernels get along with less.
        Err(Refusal::Driver(_)) => Ok(false),
        Err(refusal) => {
            notes.push(format!("{key}: {refusal}"));
            *entry = None;
            Ok(false)
        }
    }
}

/// Queues a plan, with its workspace and the tensors that are in scratch. The driver refuses where memory is short.
fn start(
    handle: &mut Handle,
    plan: &Plan,
    tensors: &[Bound<'_>],
    scratch: &mut Scratch,
    stream: Stream,
) -> Result<(), Refusal> {
    let (offsets, bytes) = share(plan.workspace(), tensors);
    let area = if bytes == 0 { Address(0) } else { scratch.take(bytes)? };
    let place = |(tensor, offset): (&Bound<'_>, &usize)| match *tensor {
        Bound::Device(address) => address.into(),
        Bound::Host(number) => Pointer::host(number),
        Bound::Scratch(_) => Address(area.0 + *offset as u64).into(),
    };
    let pointers: Vec<Pointer> = tensors.iter().zip(&offsets).map(place).collect();
    handle.follow(stream)?;
    plan.execute(handle, &pointers, area)
}

/// Where tensors in scratch begin behind a workspace, and the bytes of all together.
fn share(workspace: usize, tensors: &[Bound<'_>]) -> (Vec<usize>, usize) {
    let mut end = workspace;
    let offsets = tensors.iter().map(|tensor| {
        let Bound::Scratch(bytes) = tensor else { return 0 };
        let start = end.next_multiple_of(256);
        end = start + bytes;
        start
    });
    (offsets.collect(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_in_scratch_lie_behind_the_workspace() {
        let tensors = [Bound::Scratch(100), Bound::Device(Address(512)), Bound::Scratch(8)];
        assert_eq!(share(1000, &tensors), (vec![1024, 0, 1280], 1288));
        assert_eq!(share(0, &tensors[1..2]), (vec![0], 0));
    }
}
