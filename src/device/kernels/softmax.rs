//! Softmax, its logarithm and their gradients, row by row.

use super::family::Family;
use crate::Operand;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work};

/// Softmax of rows of `cols`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Softmax {
    /// Row-wise softmax of (rows × cols).
    Forward { src: Operand, dst: Operand, cols: usize },
    /// `dst = output · (grad − Σ_row grad·output)`.
    Backward { output: Operand, grad: Operand, dst: Operand, cols: usize },
    /// Row-wise log-softmax of (rows × cols).
    Log { src: Operand, dst: Operand, cols: usize },
    /// `dst = grad − exp(output) · Σ_row grad`.
    LogBackward { output: Operand, grad: Operand, dst: Operand, cols: usize },
}

impl Family for Softmax {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "softmax", source: include_str!("softmax.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "softmax",
            Self::Backward { .. } => "softmax_backward",
            Self::Log { .. } => "log_softmax",
            Self::LogBackward { .. } => "log_softmax_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { src, dst, .. } | Self::Log { src, dst, .. } => tell.all([src, dst]),
            Self::Backward { output, grad, dst, .. } | Self::LogBackward { output, grad, dst, .. } => {
                tell.all([output, grad, dst]);
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { src, dst, .. } | Self::Log { src, dst, .. } => Work::pass(OpClass::Softmax, &[src, dst]),
            Self::Backward { output, grad, dst, .. } | Self::LogBackward { output, grad, dst, .. } => {
                Work::pass(OpClass::Softmax, &[output, grad, dst])
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { src, dst, cols } => cpu::softmax(on.cores, on.in_place(), src, dst, cols, false),
            Self::Backward { output, grad, dst, cols } => {
                cpu::softmax_backward(on.cores, on.in_place(), output, grad, dst, cols, false)
            }
            Self::Log { src, dst, cols } => cpu::softmax(on.cores, on.in_place(), src, dst, cols, true),
            Self::LogBackward { output, grad, dst, cols } => {
                cpu::softmax_backward(on.cores, on.in_place(), output, grad, dst, cols, true)
            }
        }
    }

    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        cuda::launch(queue, self)
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}

/// The processor's loops.
mod cpu {
    use crate::Operand;
    use crate::cpu::cores::Cores;
    use crate::cpu::dispatch::real;
    use crate::cpu::operand::{Access, KernelResult, View, require};
    use crate::cpu::real::{Real, max_of, sum_by};
    use crate::cpu::rows::{for_rows, rows_of};

    pub(super) fn softmax(
        cores: &Cores,
        mut access: Access<'_>,
        src: Operand,
        dst: Operand,
        cols: usize,
        log: bool,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2], log: bool) {
            for_rows(
                cores,
                [rows, cols],
                0.8,
                2 * cols,
                #[inline(always)]
                |row, scratch: &mut [R]| {
                    let (x, exps) = scratch.split_at_mut(cols);
                    R::load(&src, row * cols, x);
                    let max = max_of(x);
                    for (e, &x) in exps.iter_mut().zip(x.iter()) {
                        *e = (x - max).exp();
                    }
                    let sum = sum_by(
                        cols,
                        #[inline(always)]
                        |i| exps[i],
                    );
                    if log {
                        let shift = sum.ln();
                        x.iter_mut().for_each(|x| *x = (*x - max) - shift);
                        R::store(&dst, row * cols, x);
                    } else {
                        exps.iter_mut().for_each(|e| *e /= sum);
                        R::store(&dst, row * cols, exps);
                    }
                },
            );
        }
        let rows = rows_of(&src, cols)?;
        require(src.len == dst.len, || format!("source and result have {} and {} elements", src.len, dst.len))?;
        let (from, to) = (access.read(&src)?, access.write(&dst)?);
        real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols], log));
        Ok(())
    }

    pub(super) fn softmax_backward(
        cores: &Cores,
        mut access: Access<'_>,
        output: Operand,
        grad: Operand,
        dst: Operand,
        cols: usize,
        log: bool,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, [y, g]: [View<'_>; 2], dst: View<'_>, [rows, cols]: [usize; 2], log: bool) {
            for_rows(
                cores,
                [rows, cols],
                0.8,
                2 * cols,
                #[inline(always)]
                |row, scratch: &mut [R]| {
                    let (output, grad) = scratch.split_at_mut(cols);
                    R::load(&y, row * cols, output);
                    R::load(&g, row * cols, grad);
                    if log {
                        let sum = sum_by(
                            cols,
                            #[inline(always)]
                            |i| grad[i],
                        );
                        for (g, &y) in grad.iter_mut().zip(output.iter()) {
                            *g -= y.exp() * sum;
                        }
                    } else {
                        let dot = sum_by(
                            cols,
                            #[inline(always)]
                            |i| grad[i] * output[i],
                        );
                        for (g, &y) in grad.iter_mut().zip(output.iter()) {
                            *g = y * (*g - dot);
                        }
                    }
                    R::store(&dst, row * cols, grad);
                },
            );
        }
        let rows = rows_of(&output, cols)?;
        require(output.len == grad.len && grad.len == dst.len, || {
            format!("output, gradient and result have {}, {} and {} elements", output.len, grad.len, dst.len)
        })?;
        let operands = [access.read(&output)?, access.read(&grad)?];
        let to = access.write(&dst)?;
        real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to, [rows, cols], log));
        Ok(())
    }
}

/// Launches of the CUDA kernels.
mod cuda {
    use super::Softmax;
    use crate::Operand;
    use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
    use crate::cuda::rows::{Rows, VECTOR, place, threads_of};
    use crate::kernels::family::Family;

    /// Threads in a block if several rows share one.
    const THREADS: u32 = 128;
    /// The longest row that a warp holds in registers.
    const WARP_ROW: usize = 1024;

    /// The four kernels of one of the functions.
    struct Variants {
        /// One slot per thread, for rows of up to 32 slots.
        slot: &'static str,
        /// Rows of up to [`WARP_ROW`] elements.
        warp: &'static str,
        /// Rows that fit into shared memory.
        held: &'static str,
        /// All other rows.
        any: &'static str,
    }

    macro_rules! names {
        ($name:literal) => {
            &Variants {
                slot: concat!($name, "_slot"),
                warp: concat!($name, "_warp"),
                held: concat!($name, "_held"),
                any: concat!($name, "_any"),
            }
        };
    }

    /// Launches a kernel of this family.
    pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Softmax) -> Result<(), Refusal> {
        let (names, operands, cols): (_, &[&Operand], _) = match kernel {
            Softmax::Forward { src, dst, cols } => (names!("softmax"), &[src, dst], *cols),
            Softmax::Log { src, dst, cols } => (names!("log_softmax"), &[src, dst], *cols),
            Softmax::Backward { output, grad, dst, cols } => (names!("softmax_backward"), &[output, grad, dst], *cols),
            Softmax::LogBackward { output, grad, dst, cols } => {
                (names!("log_softmax_backward"), &[output, grad, dst], *cols)
            }
        };
        rows(queue, names, operands, cols).unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
    }

    /// Launches the kernel for rows of this length; `None` if there is none for these operands.
    fn rows(
        queue: &mut Queue<'_>,
        names: &Variants,
        operands: &[&Operand],
        cols: usize,
    ) -> Option<Result<(), Refusal>> {
        let first = *operands.first()?;
        let rows = Rows::of(first, cols)?;
        if operands.iter().any(|x| (x.dtype, x.len) != (first.dtype, first.len)) {
            return None;
        }
        if rows.rows == 0 {
            return Some(Ok(()));
        }
        let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
        let each = rows.vector;
        let aligned = place(first) == 0 && cols.is_multiple_of(each);
        // The most slots that a row touches, wherever it starts.
        let slots = if aligned { cols / each } else { (cols + 2 * (each - 1)) / each };
        let shared = (cols + each) * VECTOR / each;
        let (name, grid, mut arguments) = if operands.iter().any(|x| place(x) != place(first)) {
            (names.any, Grid::row(rows.grid, threads_of(cols)), arguments.int(rows.width))
        } else if slots <= WARP_ROW / each {
            let lanes = slots.next_power_of_two().min(32);
            let name = if slots <= 32 { names.slot } else { names.warp };
            let grid = Grid::row(blocks_of(rows.rows * lanes, THREADS as usize), THREADS);
            (name, grid, arguments.count(rows.rows).int(rows.width).int(blocks_of(lanes, 1)))
        } else if shared <= shared_memory(queue.capability()) {
            let grid = Grid::row(rows.grid, threads_of(slots)).with_shared(blocks_of(shared, 1));
            (names.held, grid, arguments.int(rows.width))
        } else {
            (names.any, Grid::row(rows.grid, threads_of(cols)), arguments.int(rows.width))
        };
        Some(queue.launch(name, &[first.dtype], grid, &mut arguments))
    }

    /// The dynamic shared memory that a block may use.
    const fn shared_memory(capability: u32) -> usize {
        let all = match capability {
            75 => 64,
            80 | 87 => 163,
            86 | 88 | 89 | 120.. => 99,
            90..120 => 227,
            _ => 48,
        };
        // Subtract the kernels' own share.
        (all << 10) - 1024
    }
}

/// Test cases.
mod selftest {
    use super::Softmax;
    use crate::DType;
    use crate::selftest::bound::ErrorBound;
    use crate::selftest::case::{Case, CaseOperands, Precision, Skew, Slot};
    use crate::selftest::session::Session;
    use crate::selftest::values::Values;

    const SHAPES: [(usize, usize, Skew); 20] = [
        (1, 1, Skew::Aligned),
        (5, 1, Skew::Aligned),
        (1, 2, Skew::Aligned),
        (1000, 7, Skew::Aligned),
        (33, 10, Skew::Aligned),
        (64, 31, Skew::Together(1)),
        (64, 32, Skew::Aligned),
        (100, 33, Skew::Aligned),
        (37, 100, Skew::Apart),
        (128, 197, Skew::Aligned),
        (16, 257, Skew::Aligned),
        (70, 512, Skew::Aligned),
        (9, 1000, Skew::Together(1)),
        (256, 1024, Skew::Aligned),
        (5, 1025, Skew::Aligned),
        (3, 4099, Skew::Aligned),
        (4, 8192, Skew::Aligned),
        (2, 30_522, Skew::Aligned),
        (17, 50_257, Skew::Aligned),
        (3, 131_073, Skew::Aligned),
    ];

    pub(super) fn run(session: &mut Session<'_>) {
        type Map = fn(&CaseOperands, [Slot; 2], usize) -> Softmax;
        type Derivative = fn(&CaseOperands, [Slot; 3], usize) -> Softmax;
        let softmax: Map = |at, [src, dst], cols| Softmax::Forward { src: at[src], dst: at[dst], cols };
        let log_softmax: Map = |at, [src, dst], cols| Softmax::Log { src: at[src], dst: at[dst], cols };
        let softmax_backward: Derivative = |at, [output, grad, dst], cols| Softmax::Backward {
            output: at[output],
            grad: at[grad],
            dst: at[dst],
            cols,
        };
        let log_softmax_backward: Derivative = |at, [output, grad, dst], cols| Softmax::LogBackward {
            output: at[output],
            grad: at[grad],
            dst: at[dst],
            cols,
        };
        for precision in Precision::FLOATS {
            let dtype = precision.dtype();
            for (kernel, make) in [("softmax", softmax), ("log_softmax", log_softmax)] {
                for (rows, cols, skew) in SHAPES {
                    let case = Case::new(kernel, precision, format!("{rows} × {cols}")).skewed(skew);
                    forward(session, case, [rows, cols], Values::Normal(0.0, 3.0), make);
                }
                for (rows, cols, what, values) in special(kernel == "softmax", dtype) {
                    let case = Case::new(kernel, precision, format!("{rows} × {cols} {what}"));
                    forward(session, case, [rows, cols], values, make);
                }
                let mut case = Case::new(kernel, precision, "19 × 65, in place");
                let dst = case.update("dst", dtype, 19 * 65, Values::Normal(0.0, 3.0), ErrorBound::Sum(65));
                session.check(&case, |at| make(at, [dst, dst], 65));
            }
            for (kernel, make) in
                [("softmax_backward", softmax_backward), ("log_softmax_backward", log_softmax_backward)]
            {
                for (rows, cols, skew) in SHAPES {
                    let mut case = Case::new(kernel, precision, format!("{rows} × {cols}")).skewed(skew);
                    let outputs = if kernel == "softmax_backward" {
                        Values::Uniform(0.0, 2.0 / cols as f64)
                    } else {
                        Values::Uniform(-8.0, -1.0)
                    };
                    let output = case.input("output", dtype, rows * cols, outputs);
                    let grad = case.input("grad", dtype, rows * cols, Values::STANDARD);
                    let dst = case.output("dst", dtype, rows * cols, ErrorBound::Sum(cols));
                    session.check(&case, |at| make(at, [output, grad, dst], cols));
                }
                let mut case = Case::new(kernel, precision, "19 × 65, in place");
                let output = case.input("output", dtype, 19 * 65, Values::Uniform(0.0, 0.03));
                let dst = case.update("dst", dtype, 19 * 65, Values::STANDARD, ErrorBound::Sum(65));
                session.check(&case, |at| make(at, [output, dst, dst], 65));
            }
        }
    }

    fn forward(
        session: &mut Session<'_>,
        mut case: Case,
        [rows, cols]: [usize; 2],
        values: Values,
        make: fn(&CaseOperands, [Slot; 2], usize) -> Softmax,
    ) {
        let dtype = case.main_type();
        let src = case.input("src", dtype, rows * cols, values);
        let dst = case.output("dst", dtype, rows * cols, ErrorBound::Sum(cols));
        session.check(&case, |at| make(at, [src, dst], cols));
    }

    /// Rows of equal values, rows far from zero, and masked rows.
    fn special(softmax: bool, dtype: DType) -> Vec<(usize, usize, &'static str, Values)> {
        let far = if dtype == DType::F16 { 6e4 } else { 1e30 };
        let mut rows = vec![
            (3, 1000, "equal", Values::Constant(1.5)),
            (3, 50_257, "equal", Values::Constant(-7.0)),
            (2, 500, "far from zero", Values::Constant(far)),
            (2, 500, "far below zero", Values::Constant(-far)),
        ];
        if softmax {
            let causal = Values::Each(|i| if i % 64 > i / 64 { f64::NEG_INFINITY } else { (i % 11) as f64 * 0.3 });
            rows.push((64, 64, "masked", causal));
            let last = Values::Each(|i| if i % 2048 == 2047 { 0.25 } else { f64::NEG_INFINITY });
            rows.push((2, 2048, "masked but for the last", last));
        }
        rows
    }
}
