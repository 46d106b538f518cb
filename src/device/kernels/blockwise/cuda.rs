//! 4-bit and 8-bit values, as bitsandbytes quantises them.

use super::Blockwise;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::kernels::optimizer::cuda::{adam_rule, narrow};
use crate::{BYTES_RUN, ByteMoment, DType, KeptMoment, KeptMoments, Magnitudes, NF4_RUN, Operand};

const THREADS: u32 = 256;
/// Runs (or results of a product) per thread block: each warp has one.
const WARPS: usize = THREADS as usize / 32;

/// The most thread blocks in an optimizer's step.
const BLOCKS: usize = 2048;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Blockwise) -> Result<(), Refusal> {
    let launched = match kernel {
        Blockwise::QuantizeNf4 { src, dst, absmax } => {
            let fits = is_packed(dst, absmax, src.len) && computes(src);
            fits.then(|| {
                let arguments = &mut Arguments::new().operand(src).count(src.len).operand(dst).operand(absmax);
                run(queue, "quantize_nf4", &[src.dtype], absmax.len.div_ceil(WARPS), arguments)
            })
        }
        Blockwise::DequantizeNf4 { src, absmax, dst } => {
            let fits = is_packed(src, absmax, dst.len) && computes(dst);
            fits.then(|| {
                let arguments = &mut Arguments::new().operand(src).operand(absmax).operand(dst).count(dst.len);
                run(queue, "dequantize_nf4", &[dst.dtype], src.len.div_ceil(THREADS as usize), arguments)
            })
        }
        Blockwise::QuantizeBytes { src, codes, dst, absmax } => {
            let fits = are_bytes([dst, codes, absmax], src.len) && src.dtype == DType::F32;
            fits.then(|| {
                let arguments = Arguments::new().operand(src).count(src.len).operand(codes);
                let arguments = &mut arguments.operand(dst).operand(absmax);
                run(queue, "quantize_bytes", &[], absmax.len.div_ceil(WARPS), arguments)
            })
        }
        Blockwise::DequantizeBytes { src, codes, absmax, dst } => {
            let fits = are_bytes([src, codes, absmax], dst.len) && dst.dtype == DType::F32;
            fits.then(|| {
                let arguments = Arguments::new().operand(src).operand(codes).operand(absmax);
                let arguments = &mut arguments.operand(dst).count(dst.len);
                run(queue, "dequantize_bytes", &[], dst.len.div_ceil(THREADS as usize), arguments)
            })
        }
        Blockwise::AdamOfBytes { parameter, gradient, moments, rule } => {
            let len = parameter.len;
            let wide = |moment: &Operand| (moment.dtype, moment.len) == (DType::F32, len);
            let (name, known) = match moments {
                KeptMoments::Bytes(moments) => {
                    ("adam_of_bytes", moments.iter().all(|moment: &ByteMoment| are_bytes(moment.operands(), len)))
                }
                KeptMoments::Wide(moments) => ("adam_of_f32", moments.iter().all(wide)),
            };
            let alike = (gradient.dtype, gradient.len) == (parameter.dtype, len);
            let fits = computes(parameter) && alike && rule.decoupled && rule.step > 0 && known;
            fits.then(|| {
                let arguments = Arguments::new().operand(parameter).operand(gradient).count(len);
                let arguments = moments.operands().fold(arguments, Arguments::operand);
                let rule = adam_rule(rule);
                let arguments = &mut rule.iter().fold(arguments, |arguments, &x| arguments.float(narrow(x)));
                // Blocks that process several runs read the codes once.
                let blocks = len.div_ceil(BYTES_RUN * WARPS).min(BLOCKS);
                run(queue, name, &[parameter.dtype], blocks, arguments)
            })
        }
        Blockwise::Lion { parameter, gradient, moment, rule } => {
            let len = parameter.len;
            let (name, known) = match moment {
                KeptMoment::Bytes(moment) => ("lion_of_bytes", are_bytes(moment.operands(), len)),
                KeptMoment::Wide(moment) => ("lion_of_f32", (moment.dtype, moment.len) == (DType::F32, len)),
            };
            let alike = (gradient.dtype, gradient.len) == (parameter.dtype, len);
            (computes(parameter) && alike && known).then(|| {
                let arguments = Arguments::new().operand(parameter).operand(gradient).count(len);
                let arguments = moment.operands().fold(arguments, Arguments::operand);
                let rule = [rule.lr, rule.beta1, rule.beta2, rule.weight_decay];
                let arguments = &mut rule.iter().fold(arguments, |arguments, &x| arguments.float(narrow(x)));
                let blocks = len.div_ceil(BYTES_RUN * WARPS).min(BLOCKS);
                run(queue, name, &[parameter.dtype], blocks, arguments)
            })
        }
        Blockwise::GemmNf4 { m, n, k, a, w, magnitudes, bias, dst } => {
            let types = computes(a) && a.dtype == dst.dtype && bias.is_none_or(|bias| bias.dtype == a.dtype);
            let fits = a.len == m * k && dst.len == m * n && bias.is_none_or(|bias| bias.len == *n);
            let runs = n * k / NF4_RUN;
            let known = match magnitudes {
                Magnitudes::Plain(absmax) => is_packed(w, absmax, n * k),
                Magnitudes::Nested { bytes, codes, absmax, offset } => {
                    are_bytes([bytes, codes, absmax], runs) && (offset.dtype, offset.len) == (DType::F32, 1)
                }
            };
            let fits = types && fits && known && k.is_multiple_of(NF4_RUN) && w.len == n * k / 2;
            fits.then(|| {
                let arguments = Arguments::new().operand(a).operand(w);
                let arguments = match magnitudes {
                    Magnitudes::Plain(absmax) => arguments.operand(absmax).optional(None).optional(None).optional(None),
                    Magnitudes::Nested { bytes, codes, absmax, offset } => {
                        arguments.operand(absmax).operand(bytes).operand(codes).operand(offset)
                    }
                };
                let arguments = &mut arguments.optional(bias.as_ref()).operand(dst).count(*m).count(*n).count(*k);
                run(queue, "gemm_nf4", &[a.dtype], (m * n).div_ceil(WARPS), arguments)
            })
        }
    };
    launched.unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
}

fn run(
    queue: &mut Queue<'_>,
    name: &'static str,
    types: &[DType],
    blocks: usize,
    arguments: &mut Arguments,
) -> Result<(), Refusal> {
    if blocks == 0 {
        return Ok(());
    }
    queue.launch(name, types, Grid::row(blocks_of(blocks, 1), THREADS), arguments)
}

const fn computes(operand: &Operand) -> bool {
    matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16)
}

fn is_packed(packed: &Operand, absmax: &Operand, len: usize) -> bool {
    (packed.dtype, packed.len) == (DType::U8, len.div_ceil(2))
        && (absmax.dtype, absmax.len) == (DType::F32, len.div_ceil(NF4_RUN))
}

fn are_bytes([bytes, codes, absmax]: [&Operand; 3], len: usize) -> bool {
    (bytes.dtype, bytes.len) == (DType::U8, len)
        && (codes.dtype, codes.len) == (DType::F32, 256)
        && (absmax.dtype, absmax.len) == (DType::F32, len.div_ceil(BYTES_RUN))
}
