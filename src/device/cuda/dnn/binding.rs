//! The addresses of a plan's tensors, which it gets when it is executed.

use super::descriptor::Pointer;
use super::handle::DnnHandle;
use super::plan::ExecutionPlan;
use crate::cuda::driver::Stream;
use crate::cuda::refusal::Refusal;
use crate::cuda::scratch::Scratch;
use vramlab_allocator::units::Address;

/// The location of a plan's tensor in one execution.
#[derive(Clone, Copy)]
pub(super) enum TensorBinding<'a> {
    Device(Address),
    Host(&'a f32),
    /// In scratch, with this size in bytes.
    Scratch(usize),
}

/// Queues a plan, with its workspace and the tensors in scratch. The driver refuses if memory is short.
pub(super) fn start(
    handle: &mut DnnHandle,
    plan: &ExecutionPlan,
    tensors: &[TensorBinding<'_>],
    scratch: &mut Scratch,
    stream: Stream,
) -> Result<(), Refusal> {
    let (offsets, bytes) = share(plan.workspace(), tensors);
    let area = if bytes == 0 { Address(0) } else { scratch.take(bytes)? };
    let place = |(tensor, offset): (&TensorBinding<'_>, &usize)| match *tensor {
        TensorBinding::Device(address) => address.into(),
        TensorBinding::Host(number) => Pointer::host(number),
        TensorBinding::Scratch(_) => Address(area.0 + *offset as u64).into(),
    };
    let pointers: Vec<Pointer> = tensors.iter().zip(&offsets).map(place).collect();
    handle.follow(stream)?;
    plan.execute(handle, &pointers, area)
}

/// The offsets of tensors in scratch, which follow the workspace, and the bytes of everything together.
fn share(workspace: usize, tensors: &[TensorBinding<'_>]) -> (Vec<usize>, usize) {
    let mut end = workspace;
    let offsets = tensors.iter().map(|tensor| {
        let TensorBinding::Scratch(bytes) = tensor else { return 0 };
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
        let tensors = [TensorBinding::Scratch(100), TensorBinding::Device(Address(512)), TensorBinding::Scratch(8)];
        assert_eq!(share(1000, &tensors), (vec![1024, 0, 1280], 1288));
        assert_eq!(share(0, &tensors[1..2]), (vec![0], 0));
    }
}
