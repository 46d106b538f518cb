//! Optimizer steps and a gradient scaler's kernels: one launch for as many tensors as its arguments have room for.

use super::Optimizer;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::{AdamParameters, DType, GradScaling, NORM_RUN, Operand, ParameterUpdate};

const THREADS: u32 = 256;
/// Tensors of one launch.
const ENTRIES: usize = 80;
/// Words of a tensor's entry.
const WORDS: usize = 6;
/// Elements of one block.
const CHUNK: usize = 4096;
/// The supported types of tensors.
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Optimizer<'_>) -> Result<(), Refusal> {
    match kernel {
        Optimizer::Sgd { updates, lr, momentum, weight_decay, first_step, scaling, .. } => {
            let tensors = entries(updates, *scaling, false).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
            let rule = [*lr, *momentum, *weight_decay];
            for_lists(queue, "sgd", &tensors, CHUNK, || {
                let arguments = rule.iter().fold(scaled(*scaling), |arguments, &x| arguments.float(narrow(x)));
                arguments.int(u32::from(*first_step))
            })
        }
        Optimizer::Adam { updates, parameters, scaling, .. } => {
            let tensors = entries(updates, *scaling, true).filter(|_| parameters.step > 0);
            let tensors = tensors.ok_or_else(|| Refusal::unsupported(kernel.name()))?;
            let rule = adam_rule(parameters);
            for_lists(queue, "adam", &tensors, CHUNK, || {
                rule.iter().fold(scaled(*scaling), |arguments, &x| arguments.float(narrow(x)))
            })
        }
        Optimizer::Unscale { gradients, inverse_scale, found_inf } => {
            if ![inverse_scale, found_inf].into_iter().all(is_number)
                || !gradients.iter().all(|gradient| TYPES.contains(&gradient.dtype))
            {
                return Err(Refusal::unsupported(kernel.name()));
            }
            let entry = |gradient: &Operand| TensorEntry {
                dtype: gradient.dtype,
                addresses: [0, gradient.address.0, 0, 0],
                len: gradient.len,
            };
            let tensors: Vec<TensorEntry> = gradients.iter().map(entry).collect();
            for_lists(queue, "unscale", &tensors, CHUNK, || Arguments::new().operand(inverse_scale).operand(found_inf))
        }
        Optimizer::SquareSums { tensors, sums } => {
            let row = sums.len.checked_div(tensors.len()).unwrap_or(0);
            let fits = |tensor: &Operand| TYPES.contains(&tensor.dtype) && tensor.len.div_ceil(NORM_RUN) <= row;
            if sums.dtype != DType::F32 || !tensors.iter().all(fits) {
                return Err(Refusal::unsupported(kernel.name()));
            }
            let entry = |(number, tensor): (usize, &Operand)| {
                let of_tensor = sums.address.offset(DType::F32.bytes(number * row));
                TensorEntry { dtype: tensor.dtype, addresses: [0, tensor.address.0, of_tensor.0, 0], len: tensor.len }
            };
            let tensors: Vec<TensorEntry> = tensors.iter().enumerate().map(entry).collect();
            for_lists(queue, "square_sums", &tensors, NORM_RUN, Arguments::new)
        }
        Optimizer::ClipFactor { sums, rows, factor, most }
            if sums.dtype == DType::F32 && *rows > 0 && TYPES.contains(&factor.dtype) && factor.len == 1 =>
        {
            let arguments = Arguments::new().operand(sums).operand(factor);
            let arguments = arguments.int(blocks_of(*rows, 1)).int(blocks_of(sums.len / rows, 1)).float(narrow(*most));
            queue.launch("clip_factor", &[factor.dtype], Grid::row(1, 1024), &mut { arguments })
        }
        Optimizer::Reciprocal { src, dst }
            if src.dtype == DType::F32 && dst.dtype == DType::F32 && src.len == dst.len =>
        {
            let arguments = Arguments::new().operand(src).operand(dst).int(blocks_of(src.len, 1));
            let grid = Grid::row(blocks_of(src.len, THREADS as usize), THREADS);
            queue.launch("reciprocal", &[DType::F32], grid, &mut { arguments })
        }
        Optimizer::UpdateScale { scale, tracker, found_inf, growth, backoff, interval }
            if is_number(scale) && is_number(found_inf) && (tracker.dtype, tracker.len) == (DType::I32, 1) =>
        {
            let arguments = Arguments::new().operand(scale).operand(tracker).operand(found_inf);
            let arguments = arguments.double(*growth).double(*backoff).int(interval.cast_unsigned());
            queue.launch("update_scale", &[], Grid::row(1, 1), &mut { arguments })
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

/// True for one f32 element.
fn is_number(operand: &Operand) -> bool {
    (operand.dtype, operand.len) == (DType::F32, 1)
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
pub(in crate::kernels) const fn narrow(x: f64) -> f32 {
    x as f32
}

/// Adam's scalars for one step in the order of the kernel's parameters, computed as PyTorch does.
pub(in crate::kernels) fn adam_rule(parameters: &AdamParameters) -> [f64; 8] {
    let &AdamParameters { lr, beta1, beta2, eps, weight_decay, decoupled, step } = parameters;
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2⁵³ steps")]
    let step = step as f64;
    let (keep, decay) = if decoupled { (1.0 - lr * weight_decay, 0.0) } else { (1.0, weight_decay) };
    let root_correction = (1.0 - beta2.powf(step)).sqrt();
    [keep, decay, 1.0 - beta1, beta2, 1.0 - beta2, root_correction, eps, lr / (1.0 - beta1.powf(step))]
}

/// The first arguments of a step: scale and flag, or null pointers.
fn scaled(scaling: Option<GradScaling>) -> Arguments {
    let [scale, found_inf] = [scaling.map(|scaling| scaling.scale), scaling.map(|scaling| scaling.found_inf)];
    Arguments::new().optional(scale.as_ref()).optional(found_inf.as_ref())
}

/// One tensor in a list: a parameter with its state, or only a gradient.
struct TensorEntry {
    dtype: DType,
    /// Parameter, gradient, first and second moment; 0 for absent ones.
    addresses: [u64; 4],
    len: usize,
}

/// The tensors that an optimizer updates; `None` if there is no kernel for them.
fn entries(updates: &[ParameterUpdate], scaling: Option<GradScaling>, with_moments: bool) -> Option<Vec<TensorEntry>> {
    if !scaling.iter().all(|scaling| is_number(&scaling.scale) && is_number(&scaling.found_inf)) {
        return None;
    }
    let entry = |update: &ParameterUpdate| {
        let &ParameterUpdate { parameter: Operand { dtype, len, .. }, .. } = update;
        let all = [Some(update.parameter), Some(update.gradient), update.first, update.second];
        let alike = all.iter().flatten().all(|operand| (operand.dtype, operand.len) == (dtype, len));
        let complete = !with_moments || all.iter().all(Option::is_some);
        let addresses = all.map(|operand| operand.map_or(0, |operand| operand.address.0));
        (alike && complete && TYPES.contains(&dtype)).then_some(TensorEntry { dtype, addresses, len })
    };
    updates.iter().map(entry).collect()
}

/// Launches `name` for all tensors, type by type, with a block for each chunk, and in as few launches as possible.
fn for_lists(
    queue: &mut Queue<'_>,
    name: &'static str,
    tensors: &[TensorEntry],
    chunk: usize,
    arguments: impl Fn() -> Arguments,
) -> Result<(), Refusal> {
    for dtype in TYPES {
        let alike: Vec<&TensorEntry> = tensors.iter().filter(|entry| entry.dtype == dtype && entry.len > 0).collect();
        for list in alike.chunks(ENTRIES) {
            let (mut words, mut blocks) = (Vec::with_capacity(ENTRIES * WORDS), 0);
            for entry in list {
                words.extend(entry.addresses);
                words.extend([entry.len as u64, u64::from(blocks)]);
                blocks += blocks_of(entry.len, chunk);
            }
            words.resize(ENTRIES * WORDS, 0);
            let mut arguments = arguments().int(blocks_of(list.len(), 1)).structure(&words);
            queue.launch(name, &[dtype], Grid::row(blocks, THREADS), &mut arguments)?;
        }
    }
    Ok(())
}
