//! Batch normalisation.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::cuda::rows::{VECTOR, place, threads_of};
use crate::kernels::BatchNorm;
use crate::kernels::family::Family;
use crate::{ChannelShape, DType, Operand};
use vramlab_allocator::units::Address;

/// The largest channel, in bytes, that one block handles alone: it fits into the nearest cache.
const WHOLE: usize = 64 << 10;
/// Threads of a block that handles a part of a channel.
const PART_THREADS: u32 = 512;
/// The least number of vectors in a part, for each of its threads.
const PART_VECTORS: usize = 4;
/// Blocks per multiprocessor into which channels are divided.
const BLOCKS: u32 = 16;
/// The most parts of a channel.
const PARTS: u32 = 512;
/// Bytes of a part's results.
const PART_BYTES: usize = 12;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    match kernel {
        BatchNorm::Forward { .. } => forward(queue, kernel),
        BatchNorm::Inference { .. } => inference(queue, kernel),
        BatchNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape } => {
            let values = [mean, rstd, weight, dweight, dbias];
            backward(queue, kernel, [grad, src, dsrc], values, shape, None)
        }
        BatchNorm::InferenceBackward {
            grad,
            src,
            weight,
            running_mean,
            running_var,
            dsrc,
            dweight,
            dbias,
            shape,
            eps,
        } => {
            let values = [running_mean, running_var, weight, dweight, dbias];
            backward(queue, kernel, [grad, src, dsrc], values, shape, Some(*eps))
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

/// How kernels iterate over the channels of arrays.
pub(super) struct ChannelLaunch {
    dtype: DType,
    /// True for vectors of 16 bytes, false for single elements.
    wide: bool,
    /// Vectors (or elements) in a channel.
    vectors: usize,
    bytes: usize,
    /// Batch, channels and area.
    shape: [u32; 3],
}

impl ChannelLaunch {
    /// `None` if the operands do not match the shape or there is no kernel for them.
    pub fn of(arrays: &[&Operand], values: &[&Operand], shape: &ChannelShape) -> Option<Self> {
        let dtype = arrays.first()?.dtype;
        if arrays.iter().any(|array| (array.dtype, array.len) != (dtype, shape.len()))
            || values.iter().any(|value| value.len != shape.channels || code(value.dtype).is_none())
        {
            return None;
        }
        let size = usize::try_from(dtype.size()).ok()?;
        let vector = VECTOR / size;
        let wide = shape.area.is_multiple_of(vector) && arrays.iter().all(|array| place(array) == 0);
        let of_channel = usize::try_from(i32::try_from(shape.per_channel()).ok()?).ok()?;
        let sides = [shape.batch, shape.channels, shape.area];
        if sides.iter().any(|&side| i32::try_from(side).is_err()) {
            return None;
        }
        Some(Self {
            dtype,
            wide,
            vectors: if wide { of_channel / vector } else { of_channel },
            bytes: of_channel * size,
            shape: sides.map(|side| blocks_of(side, 1)),
        })
    }

    /// True if one block handles a whole channel.
    pub const fn is_whole(&self) -> bool {
        self.bytes <= WHOLE
    }

    /// One block for each channel.
    pub fn whole(&self) -> Grid {
        Grid::row(self.shape[1], threads_of(self.vectors))
    }

    /// Enough blocks per channel to fill the device.
    pub fn parts(&self, queue: &Queue<'_>) -> Grid {
        let filling = (BLOCKS * queue.multiprocessors()).div_ceil(self.shape[1]);
        let worthwhile = blocks_of(self.vectors, PART_VECTORS * PART_THREADS as usize);
        let threads = threads_of(self.vectors).min(PART_THREADS);
        Grid { blocks: [self.shape[1], filling.min(worthwhile).clamp(1, PARTS), 1], threads, shared: 0 }
    }

    /// Adds the last arguments of every kernel.
    pub fn shaped(&self, arguments: Arguments) -> Arguments {
        self.shape.iter().fold(arguments, |arguments, &side| arguments.int(side))
    }

    /// Launches one of the kernels `[wide, single]`, depending on the vectors.
    pub fn launch(
        &self,
        queue: &mut Queue<'_>,
        [wide, single]: [&'static str; 2],
        grid: Grid,
        mut arguments: Arguments,
    ) -> Result<(), Refusal> {
        queue.launch(if self.wide { wide } else { single }, &[self.dtype], grid, &mut arguments)
    }
}

/// The kernels' number for the type of per-channel values.
pub(super) const fn code(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(1),
        DType::Bf16 => Some(2),
        _ => None,
    }
}

/// Adds per-channel values, and their type.
pub(super) fn valued(arguments: Arguments, values: &[&Operand]) -> Arguments {
    let with_type =
        |arguments: Arguments, value: &&Operand| arguments.operand(value).int(code(value.dtype).unwrap_or_default());
    values.iter().fold(arguments, with_type)
}

fn forward(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    let BatchNorm::Forward { src, weight, bias, dst, mean, rstd, running_mean, running_var, shape, eps, momentum } =
        kernel
    else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let values = [weight, bias, mean, rstd, running_mean, running_var];
    let plan = ChannelLaunch::of(&[src, dst], &values, shape).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
    if shape.per_channel() < 2 || [mean, rstd].iter().any(|value| value.dtype != DType::F32) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if shape.is_empty() {
        return Ok(());
    }
    let arguments = valued(Arguments::new().operand(src).operand(dst), &[weight, bias]).operand(mean).operand(rstd);
    let arguments = plan.shaped(valued(arguments, &[running_mean, running_var]).float(*eps).float(*momentum));
    if plan.is_whole() {
        let names = ["batch_norm_whole_wide", "batch_norm_whole_single"];
        return plan.launch(queue, names, plan.whole(), arguments);
    }
    let grid = plan.parts(queue);
    let parts = room(queue, grid)?;
    let of_parts = plan.shaped(Arguments::new().operand(src).at(parts));
    plan.launch(queue, ["batch_norm_part_wide", "batch_norm_part_single"], grid, of_parts)?;
    plan.launch(queue, ["batch_norm_joined_wide", "batch_norm_joined_single"], grid, arguments.at(parts))
}

/// Scratch for the results of the parts of `grid`.
pub(super) fn room(queue: &mut Queue<'_>, grid: Grid) -> Result<Address, Refusal> {
    let [channels, parts, _] = grid.blocks;
    queue.scratch(channels as usize * parts as usize * PART_BYTES)
}

fn inference(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    let BatchNorm::Inference { src, weight, bias, running_mean, running_var, dst, shape, eps } = kernel else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let values = [weight, bias, running_mean, running_var];
    let plan = ChannelLaunch::of(&[src, dst], &values, shape).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
    if shape.is_empty() {
        return Ok(());
    }
    let arguments = valued(Arguments::new().operand(src).operand(dst), &values).float(*eps);
    let names = ["batch_norm_inference_wide", "batch_norm_inference_single"];
    plan.launch(queue, names, plan.parts(queue), plan.shaped(arguments))
}

/// Computes gradients through a normalisation with `[mean, deviation, …]`: reciprocal deviations, or running variances
/// if `eps` is given.
fn backward(
    queue: &mut Queue<'_>,
    kernel: &BatchNorm,
    arrays: [&Operand; 3],
    values: [&Operand; 5],
    shape: &ChannelShape,
    eps: Option<f32>,
) -> Result<(), Refusal> {
    let plan = ChannelLaunch::of(&arrays, &values, shape).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
    if shape.is_empty() {
        return Err(Refusal::unsupported(kernel.name()));
    }
    let [mean, deviation, ref gradients @ ..] = values;
    let arguments = arrays.iter().fold(Arguments::new(), |arguments, array| arguments.operand(array));
    let arguments = valued(arguments, &[mean, deviation]).int(u32::from(eps.is_some())).float(eps.unwrap_or_default());
    let arguments = plan.shaped(valued(arguments, gradients));
    if plan.is_whole() {
        let names = ["batch_norm_backward_whole_wide", "batch_norm_backward_whole_single"];
        return plan.launch(queue, names, plan.whole(), arguments);
    }
    let grid = plan.parts(queue);
    let parts = room(queue, grid)?;
    let [grad, src, _] = arrays;
    let sums = valued(Arguments::new().operand(grad).operand(src), &[mean]).at(parts);
    let names = ["batch_norm_backward_part_wide", "batch_norm_backward_part_single"];
    plan.launch(queue, names, grid, plan.shaped(sums))?;
    let names = ["batch_norm_backward_joined_wide", "batch_norm_backward_joined_single"];
    plan.launch(queue, names, grid, arguments.at(parts))
}
