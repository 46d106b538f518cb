//! Layer normalisation fused with the operations around it in a residual network.

use super::plain::{backward_forms, column_parts, fits_backward, forms, join, room, vectors};
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal};
use crate::cuda::rows::{Rows, threads_of};
use crate::kernels::LayerNorm;
use crate::kernels::family::Family;
use crate::{DType, Operand};

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Result<(), Refusal> {
    let launched = match kernel {
        LayerNorm::Add { .. } => forward(queue, kernel),
        LayerNorm::AddBackward { .. } => backward(queue, kernel),
        _ => None,
    };
    launched.unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
}

/// Two tensors of the residual stream's length, either of which may be absent, in the kernels' order: first the one of
/// the stream's type, then the one of the products' type. `None` if the types are different.
fn by_type<'o>(
    src: &Operand,
    [one, other]: [Option<&'o Operand>; 2],
    lower: DType,
) -> Option<[Option<&'o Operand>; 2]> {
    let fits = |operand: Option<&Operand>, dtype| operand.is_none_or(|x| (x.dtype, x.len) == (dtype, src.len));
    let as_is = fits(one, src.dtype) && fits(other, lower);
    let exchanged = fits(other, src.dtype) && fits(one, lower);
    if as_is { Some([one, other]) } else { exchanged.then_some([other, one]) }
}

/// The products' type among `operands`: the type that differs from the stream's.
fn lower<'o>(src: &Operand, operands: impl IntoIterator<Item = Option<&'o Operand>>) -> DType {
    let mut types = operands.into_iter().flatten().map(|operand| operand.dtype);
    types.find(|dtype| *dtype != src.dtype).unwrap_or(src.dtype)
}

/// `None` if there is no kernel for these operands.
fn forward(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Option<Result<(), Refusal>> {
    let LayerNorm::Add { src, add, weight, bias, dst, copy, mean, rstd, cols, eps } = kernel else { return None };
    let rows = Rows::of(src, *cols)?;
    let (add, sum) = (add.as_ref().map(|(add, _)| add), add.as_ref().map(|(_, sum)| sum));
    let lower = lower(src, [add, Some(dst), copy.as_ref()]);
    let [wide, narrow] = by_type(src, [Some(dst), copy.as_ref()], lower)?;
    if add.is_some_and(|add| (add.dtype, add.len) != (lower, src.len))
        || sum.is_some_and(|sum| (sum.dtype, sum.len) != (src.dtype, src.len))
        || [weight, bias].iter().any(|x| (x.dtype, x.len) != (src.dtype, rows.cols))
        || [mean, rstd].iter().any(|x| (x.dtype, x.len) != (DType::F32, rows.rows))
    {
        return None;
    }
    if rows.rows == 0 {
        return Some(Ok(()));
    }
    let all: Vec<_> = [Some(src), add, sum, Some(weight), Some(bias), wide, narrow].into_iter().flatten().collect();
    let names = ["add_layer_norm_warp", "add_layer_norm_block", "add_layer_norm_any"];
    let (name, grid) = forms(&rows, vectors(&rows, &all), names);
    let arguments = Arguments::new().operand(src).optional(add).optional(sum).operand(weight).operand(bias);
    let arguments = arguments.optional(wide).optional(narrow).operand(mean).operand(rstd);
    let arguments = &mut arguments.count(rows.rows).int(rows.width).float(*eps);
    Some(queue.launch(name, &[src.dtype, lower], grid, arguments))
}

/// `None` if there is no kernel for these operands.
fn backward(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Option<Result<(), Refusal>> {
    let LayerNorm::AddBackward { grad, second, residual, src, mean, rstd, weight, dsrc, copy, dweight, dbias, cols } =
        kernel
    else {
        return None;
    };
    let rows = Rows::of(src, *cols)?;
    let lower = lower(src, [Some(grad), second.as_ref(), copy.as_ref()]);
    let [wide, narrow] = by_type(src, [Some(grad), second.as_ref()], lower)?;
    if copy.is_some_and(|copy| (copy.dtype, copy.len) != (lower, src.len))
        || [Some(dsrc), residual.as_ref()].iter().flatten().any(|x| (x.dtype, x.len) != (src.dtype, src.len))
        || [weight, dweight, dbias].iter().any(|x| (x.dtype, x.len) != (src.dtype, rows.cols))
        || [mean, rstd].iter().any(|x| (x.dtype, x.len) != (DType::F32, rows.rows))
    {
        return None;
    }
    let gradients = |arguments: Arguments| arguments.optional(wide).optional(narrow);
    let (residual, copy) = (residual.as_ref(), copy.as_ref());
    let all: Vec<_> =
        [Some(src), wide, narrow, residual, Some(weight), Some(dsrc), copy].into_iter().flatten().collect();
    let types = [src.dtype, lower];
    let all_of_a_row = |arguments: Arguments| {
        let arguments = gradients(arguments).optional(residual).operand(src).operand(mean).operand(rstd);
        arguments.operand(weight).operand(dsrc).optional(copy)
    };
    let mut summed = || {
        if rows.rows == 0 {
            return Ok((queue.scratch(0)?, 0));
        }
        if vectors(&rows, &all) && fits_backward(&rows) {
            let names = ["add_layer_norm_backward_warp", "add_layer_norm_backward_block"];
            let (name, grid) = backward_forms(&rows, queue.multiprocessors() as usize, names);
            let parts = grid.blocks[0];
            let partial = room(queue, parts, &rows)?;
            let arguments = &mut all_of_a_row(Arguments::new()).at(partial).count(rows.rows).int(rows.width);
            queue.launch(name, &types, grid, arguments)?;
            return Ok((partial, parts));
        }
        let (each, grid) = column_parts(&rows);
        let parts = grid.blocks[1];
        let partial = room(queue, parts, &rows)?;
        // Launched first, because the source's gradient may overwrite its inputs.
        let arguments = gradients(Arguments::new()).operand(src).operand(mean).operand(rstd).at(partial);
        let arguments = &mut arguments.count(rows.rows).count(each).int(rows.width);
        queue.launch("add_layer_norm_columns", &types, grid, arguments)?;
        let grid = Grid::row(rows.grid, threads_of(rows.cols));
        let arguments = &mut all_of_a_row(Arguments::new()).int(rows.width);
        queue.launch("add_layer_norm_backward_any", &types, grid, arguments)?;
        Ok((partial, parts))
    };
    let summed = summed();
    Some(summed.and_then(|summed| join(queue, &rows, summed, [dweight, dbias])))
}
