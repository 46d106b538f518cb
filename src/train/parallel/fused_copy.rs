//! The kernels with which FSDP2 copies many tensors at once, and their requests: lists of addresses.

use super::rows::{Rows, copy_parts};
use crate::context::Context;
use crate::error::OpResult;
use crate::member::World;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// Bytes that one thread block of `split_with_sizes_copy` and of `_chunk_cat` copies.
pub(super) const PIECE: u64 = 2048;

/// Requests of `_chunk_cat` besides its output. Its fused kernel, which only casts from bfloat16 to f32, takes a list of
/// addresses, freed when it is launched. For other casts, gradients whose rows don't divide evenly among the ranks are padded
/// copies until they are put together.
pub(super) fn chunk_cat_room(
    cx: &Context,
    gradients: &[Tensor],
    elements: &[usize],
    (to, world): (DType, World),
) -> OpResult<Vec<Tensor>> {
    let from = gradients.first().map_or(to, Tensor::dtype);
    if from == to || (from, to) == (DType::Bf16, DType::F32) {
        let pieces: u64 = elements.iter().map(|&n| to.bytes(n).get().div_ceil(PIECE)).sum();
        return addresses_on_device(cx, 6 * elements.len() as u64 + 2 + pieces).map(|_| Vec::new());
    }
    let uneven = gradients.iter().zip(elements).filter(|(gradient, own)| gradient.numel() != *own * world.size());
    uneven
        .map(|(gradient, own)| cx.temporary(Shape::new(&[own * world.size()]), gradient.dtype(), "padded gradient"))
        .collect()
}

/// `_chunk_cat`: lays out each rank's rows of every gradient, padded with zeros, rank by rank.
pub(super) fn chunk_cat(cx: &mut Context, input: &Tensor, gradients: &[Tensor], elements: &[usize]) -> OpResult<()> {
    cx.launch(kernels::Elementwise::Fill { dst: input.flat(), value: 0.0 })?;
    let each: usize = elements.iter().sum();
    let mut offset = 0;
    for (gradient, &elements) in gradients.iter().zip(elements) {
        let (from, to) = (Rows::new(gradient, 0, elements), Rows::new(input, offset, each));
        copy_parts(cx, from, to, elements, gradient.numel())?;
        offset += elements;
    }
    Ok(())
}

/// A list of addresses that a fused copy reads; it lives as long as the copy takes.
pub(super) fn addresses_on_device(cx: &Context, addresses: u64) -> OpResult<Tensor> {
    let len = usize::try_from(addresses).unwrap_or(usize::MAX);
    cx.temporary(Shape::new(&[len]), DType::I64, "addresses of a fused copy")
}
