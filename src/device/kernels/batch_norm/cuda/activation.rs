//! Batch normalisation fused with the operations after it: a sum, and ReLU or leaky ReLU.

use super::columns::{Columns, ColumnsBackward, ColumnsForward};
use super::plain::{ChannelLaunch, room, valued};
use crate::cuda::queue::{Arguments, Queue, Refusal};
use crate::kernels::BatchNorm;
use crate::kernels::family::Family;
use crate::{DType, Operand};

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    match kernel {
        BatchNorm::Activation { .. } => forward(queue, kernel),
        BatchNorm::ActivationBackward { .. } => backward(queue, kernel),
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

fn forward(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    let BatchNorm::Activation {
        src,
        residual,
        weight,
        bias,
        dst,
        mean,
        rstd,
        running_mean,
        running_var,
        shape,
        eps,
        momentum,
        slope,
    } = kernel
    else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let values = [weight, bias, mean, rstd, running_mean, running_var];
    let arrays: Vec<&Operand> = [src, dst].into_iter().chain(residual).collect();
    let plan = ChannelLaunch::of(&arrays, &values, shape).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
    if shape.per_channel() < 2 || [mean, rstd].iter().any(|value| value.dtype != DType::F32) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if shape.is_empty() {
        return Ok(());
    }
    if let Some(columns) = Columns::of(&arrays, &values, shape, queue.multiprocessors()) {
        let operands = ColumnsForward {
            arrays: [src, dst],
            residual: residual.as_ref(),
            values: [weight, bias],
            statistics: [mean, rstd],
            running: [running_mean, running_var],
            eps: *eps,
            momentum: *momentum,
            slope: *slope,
        };
        return columns.forward(queue, &operands);
    }
    let arguments = Arguments::new().operand(src).optional(residual.as_ref()).operand(dst);
    let arguments = valued(arguments, &[weight, bias]).operand(mean).operand(rstd);
    let arguments = valued(arguments, &[running_mean, running_var]).float(*eps).float(*momentum).float(*slope);
    let arguments = plan.shaped(arguments);
    if plan.is_whole() {
        let names = ["batch_norm_activation_whole_wide", "batch_norm_activation_whole_single"];
        return plan.launch(queue, names, plan.whole(), arguments);
    }
    let grid = plan.parts(queue);
    let parts = room(queue, grid)?;
    let of_parts = plan.shaped(Arguments::new().operand(src).at(parts));
    plan.launch(queue, ["batch_norm_part_wide", "batch_norm_part_single"], grid, of_parts)?;
    let names = ["batch_norm_activation_joined_wide", "batch_norm_activation_joined_single"];
    plan.launch(queue, names, grid, arguments.at(parts))
}

fn backward(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    let BatchNorm::ActivationBackward {
        grad,
        src,
        residual,
        mean,
        rstd,
        weight,
        bias,
        dsrc,
        dweight,
        dbias,
        shape,
        slope,
    } = kernel
    else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let (output, dresidual) = residual.as_ref().map(|residual| (&residual.output, &residual.dresidual)).unzip();
    let arrays: Vec<&Operand> = [grad, src, dsrc].into_iter().chain(output).chain(dresidual).collect();
    let values = [mean, rstd, weight, bias, dweight, dbias];
    let plan = ChannelLaunch::of(&arrays, &values, shape).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
    if shape.is_empty() {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if let Some(columns) = Columns::of(&arrays, &values, shape, queue.multiprocessors()) {
        let operands = ColumnsBackward {
            arrays: [grad, src, dsrc],
            output,
            dresidual,
            values: [mean, rstd, weight, bias],
            gradients: [dweight, dbias],
            slope: *slope,
        };
        return columns.backward(queue, &operands);
    }
    let arguments = || {
        let pointers = Arguments::new().operand(grad).operand(src).optional(output).optional(dresidual).operand(dsrc);
        plan.shaped(valued(pointers, &values).float(*slope))
    };
    if plan.is_whole() {
        let names = ["batch_norm_activation_backward_whole_wide", "batch_norm_activation_backward_whole_single"];
        return plan.launch(queue, names, plan.whole(), arguments());
    }
    let grid = plan.parts(queue);
    let parts = room(queue, grid)?;
    let names = ["batch_norm_activation_backward_part_wide", "batch_norm_activation_backward_part_single"];
    plan.launch(queue, names, grid, arguments().at(parts))?;
    let names = ["batch_norm_activation_backward_joined_wide", "batch_norm_activation_backward_joined_single"];
    plan.launch(queue, names, grid, arguments().at(parts))
}
