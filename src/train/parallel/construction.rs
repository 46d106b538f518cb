//! What ranks exchange before the first step.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::DType;
use vramlab_model::Category;

use crate::member::World;

/// Size at which a coalesced broadcast closes a buffer.
const BROADCAST_BUFFER: Bytes = Bytes::mib(250);
/// Buffers of a coalesced broadcast that are under way at once.
const IN_FLIGHT: usize = 2;

/// A list of i64 that lives for a call.
fn list(cx: &Context, len: usize, what: &'static str) -> OpResult<Tensor> {
    cx.temporary(Shape::new(&[len]), DType::I64, what)
}

/// `_verify_param_shape_across_processes`: all ranks exchange how many parameters they have, then rank 0 sends sizes and strides.
pub(super) fn verify_shapes(cx: &mut Context, world: World) -> OpResult<()> {
    cx.op("verify parameter shapes", |cx| {
        let _own = list(cx, 1, "number of parameters")?;
        let _all: Vec<Tensor> =
            (0..world.size()).map(|_| list(cx, 1, "a rank's number of parameters")).collect::<OpResult<_>>()?;
        drop(list(cx, world.size(), "gathered numbers")?);
        let trained = cx.leaves.iter().filter(|leaf| !leaf.frozen);
        let dims: usize = trained.map(|leaf| leaf.data.shape().dims().len()).sum();
        drop(list(cx, 2 * dims, "sizes and strides")?);
        Ok(())
    })
}

/// `_broadcast_coalesced`: puts tensors of one type together in buffers, with two buffers under way at once. Takes the type and
/// element count of each tensor.
pub(super) fn broadcast(cx: &mut Context, tensors: &[(DType, usize)]) -> OpResult<()> {
    cx.op("broadcast", |cx| {
        let mut in_flight = std::collections::VecDeque::new();
        for (dtype, elements) in buffers(tensors.iter().copied()) {
            while in_flight.len() >= IN_FLIGHT {
                in_flight.pop_front();
            }
            in_flight.push_back(cx.temporary(Shape::new(&[elements]), dtype, "broadcast buffer")?);
        }
        Ok(())
    })
}

/// A buffer of a coalesced broadcast: tensors of one type.
struct BroadcastBuffer {
    /// The number of its first tensor.
    first: usize,
    dtype: DType,
    elements: usize,
}

/// Types and element counts of the buffers of a coalesced broadcast, ordered by the first tensor in each.
fn buffers(tensors: impl Iterator<Item = (DType, usize)>) -> Vec<(DType, usize)> {
    let (mut open, mut closed): (Vec<BroadcastBuffer>, Vec<BroadcastBuffer>) = (Vec::new(), Vec::new());
    for (first, (dtype, elements)) in tensors.enumerate() {
        let place = open.iter().position(|buffer| buffer.dtype == dtype).unwrap_or_else(|| {
            open.push(BroadcastBuffer { first, dtype, elements: 0 });
            open.len() - 1
        });
        open[place].elements += elements;
        if dtype.bytes(open[place].elements) >= BROADCAST_BUFFER {
            closed.push(open.remove(place));
        }
    }
    closed.append(&mut open);
    closed.sort_unstable_by_key(|buffer| buffer.first);
    closed.into_iter().map(|BroadcastBuffer { dtype, elements, .. }| (dtype, elements)).collect()
}

/// `dist.barrier()`: allocates one byte that stays and four that are freed.
pub(super) fn barrier(cx: &mut Context) -> OpResult<()> {
    let memory = cx.memory().clone();
    let name = memory.name("barrier");
    let byte = memory.named_tensor(Shape::new(&[1]), DType::U8, Category::Other, name, StreamId::DEFAULT)?;
    cx.op("barrier", |cx| cx.temporary(Shape::new(&[1]), DType::F32, "barrier sum").map(drop))?;
    cx.keep(byte);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_close_at_250_mib() {
        let gpt2 =
            [(DType::F32, 38_597_376), (DType::F32, 786_432), (DType::F32, 28_350_720), (DType::F32, 56_704_512)];
        let bytes: Vec<u64> = buffers(gpt2.into_iter()).iter().map(|(dtype, n)| dtype.bytes(*n).get()).collect();
        assert_eq!(bytes, [270_938_112, 226_818_048]);
        let mixed = [(DType::F32, 8), (DType::I64, 1), (DType::F32, 8), (DType::I64, 1)];
        assert_eq!(buffers(mixed.into_iter()), [(DType::F32, 16), (DType::I64, 2)]);
    }
}
