//! Muon's operations besides matrix products.

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work, size};
use crate::{MatrixView, Operand};

/// Muon's update of one parameter. Numbers are rounded to their type wherever PyTorch's ops round.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Muon {
    /// `buffer = lerp(buffer, gradient, 1 − momentum)`, `update = lerp(gradient, buffer, momentum)`, with momentum of
    /// at least ½.
    Nesterov { buffer: Operand, gradient: Operand, update: Operand, momentum: f64 },
    /// `matrix[i] /= max(norm, least)`, where `norm` has one element.
    Normalise { matrix: Operand, norm: Operand, least: f32 },
    /// `parameter[r,c] = keep · parameter[r,c] − step · update[r,c]` for rows of `cols`.
    Step { parameter: Operand, update: MatrixView, cols: usize, keep: f64, step: f64 },
}

impl Family for Muon {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "muon", source: include_str!("muon.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Nesterov { .. } => "muon_nesterov",
            Self::Normalise { .. } => "muon_normalise",
            Self::Step { .. } => "muon_step",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Nesterov { buffer, gradient, update, .. } => tell.all([buffer, gradient, update]),
            Self::Normalise { matrix, norm, .. } => tell.all([matrix, norm]),
            Self::Step { parameter, update, cols, .. } => {
                tell.all([parameter]);
                tell.span(Span::matrix(update, [1, parameter.len.checked_div(*cols).unwrap_or(0), *cols]));
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Nesterov { buffer, gradient, update, .. } => {
                // The buffer is read, written and read again, the gradient read twice.
                let bytes = 3.0 * size(buffer) + 2.0 * size(gradient) + size(update);
                Work { bytes, ..Work::of(OpClass::Elementwise, buffer.dtype) }.launches(2, 2.0)
            }
            Self::Normalise { matrix, .. } => Work::elementwise(&[matrix, matrix]).launches(2, 2.0),
            Self::Step { parameter, update, .. } => {
                let read = Operand { dtype: update.dtype, ..*parameter };
                let bytes = 4.0 * size(parameter) + size(&read);
                Work { bytes, ..Work::of(OpClass::Elementwise, parameter.dtype) }.launches(2, 2.0)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Nesterov { buffer, gradient, update, momentum } => {
                cpu::nesterov(on.cores, on.apart(), [buffer, gradient, update], momentum)
            }
            Self::Normalise { matrix, norm, least } => cpu::normalise(on.cores, on.apart(), matrix, norm, least),
            Self::Step { parameter, update, cols, keep, step } => {
                cpu::step(on.cores, on.apart(), parameter, (update, cols), [keep, step])
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
    use crate::cpu::cores::Cores;
    use crate::cpu::dispatch::{real, scalar};
    use crate::cpu::map::{CHUNK, chunks, same_length};
    use crate::cpu::operand::{Access, KernelResult, View, require};
    use crate::cpu::real::Real;
    use crate::cpu::rows::{for_rows, rows_of};
    use crate::{MatrixView, Operand};

    pub(super) fn nesterov(
        cores: &Cores,
        mut access: Access<'_>,
        [buffer, gradient, update]: [Operand; 3],
        momentum: f64,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, [buffer, gradient, update]: [View<'_>; 3], momentum: f64) {
            let rest = R::of(1.0 - momentum);
            chunks(cores, buffer.len(), 1.0, |start, len, [b, g, u]: &mut [[R; CHUNK]; 3]| {
                let [b, g, u] = [&mut b[..len], &mut g[..len], &mut u[..len]];
                R::load(&buffer, start, b);
                R::load(&gradient, start, g);
                b.iter_mut().zip(&*g).for_each(|(b, &g)| *b += rest * (g - *b));
                R::store(&buffer, start, b);
                // Continue with the stored (rounded) values.
                R::load(&buffer, start, b);
                u.iter_mut().zip(&*b).zip(&*g).for_each(|((u, &b), &g)| *u = b - (b - g) * rest);
                R::store(&update, start, u);
            });
        }
        require(momentum >= 0.5, || format!("a momentum of {momentum} is less than a half"))?;
        same_length(&buffer, &gradient)?;
        same_length(&buffer, &update)?;
        let views = [access.write(&buffer)?, access.read(&gradient)?, access.write(&update)?];
        real!([buffer.dtype, gradient.dtype, update.dtype], go(cores, views, momentum));
        Ok(())
    }

    pub(super) fn normalise(
        cores: &Cores,
        mut access: Access<'_>,
        matrix: Operand,
        norm: Operand,
        least: f32,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, matrix: View<'_>, norm: f64) {
            let norm = R::of(norm);
            chunks(cores, matrix.len(), 1.0, |start, len, [x]: &mut [[R; CHUNK]; 1]| {
                let x = &mut x[..len];
                R::load(&matrix, start, x);
                x.iter_mut().for_each(|x| *x /= norm);
                R::store(&matrix, start, x);
            });
        }
        require(norm.len == 1, || "a norm is one element".into())?;
        let (to, norm) = (access.write(&matrix)?, scalar(&access.read(&norm)?));
        // NaN stays NaN.
        let least = f64::from(least);
        real!([matrix.dtype], go(cores, to, if norm < least { least } else { norm }));
        Ok(())
    }

    pub(super) fn step(
        cores: &Cores,
        mut access: Access<'_>,
        parameter: Operand,
        (update, cols): (MatrixView, usize),
        factors: [f64; 2],
    ) -> KernelResult {
        fn go<R: Real>(
            cores: &Cores,
            [parameter, update]: [View<'_>; 2],
            [row_stride, col_stride]: [usize; 2],
            [rows, cols]: [usize; 2],
            factors: [f64; 2],
        ) {
            let [keep, step] = factors.map(R::of);
            for_rows(cores, [rows, cols], 1.0, 2 * cols, |row, scratch: &mut [R]| {
                let (p, u) = scratch.split_at_mut(cols);
                if col_stride == 1 {
                    R::load(&update, row * row_stride, u);
                } else {
                    for (col, x) in u.iter_mut().enumerate() {
                        R::load(&update, row * row_stride + col * col_stride, std::slice::from_mut(x));
                    }
                }
                R::load(&parameter, row * cols, p);
                p.iter_mut().for_each(|p| *p *= keep);
                R::store(&parameter, row * cols, p);
                R::load(&parameter, row * cols, p);
                p.iter_mut().zip(&*u).for_each(|(p, &u)| *p -= step * u);
                R::store(&parameter, row * cols, p);
            });
        }
        let rows = rows_of(&parameter, cols)?;
        let views = [access.write(&parameter)?, access.matrix(&update, [1, rows, cols], false)?];
        let strides = [update.row_stride, update.col_stride];
        real!([parameter.dtype, update.dtype], go(cores, views, strides, [rows, cols], factors));
        Ok(())
    }
}

/// Launches of the CUDA kernels.
mod cuda {
    use super::Muon;
    use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
    use crate::kernels::family::Family;
    use crate::kernels::optimizer::cuda::narrow;
    use crate::{DType, Operand};

    const THREADS: u32 = 256;
    /// The most thread blocks; each processes further elements if there are more.
    const BLOCKS: usize = 2048;
    /// Rows and columns that one thread block of a step updates.
    const TILE: usize = 32;

    const fn computes(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
    }

    fn grid(len: usize) -> Grid {
        Grid::row(blocks_of(len.div_ceil(THREADS as usize).min(BLOCKS), 1), THREADS)
    }

    /// Launches a kernel of this family.
    pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Muon) -> Result<(), Refusal> {
        let refused = || Err(Refusal::unsupported(kernel.name()));
        match kernel {
            Muon::Nesterov { buffer, gradient, update, momentum } => {
                let like = |other: &Operand| (other.dtype, other.len) == (buffer.dtype, buffer.len);
                if !(computes(buffer.dtype) && like(gradient) && like(update) && *momentum >= 0.5) {
                    return refused();
                }
                if buffer.len == 0 {
                    return Ok(());
                }
                let arguments = Arguments::new().operand(buffer).operand(gradient).operand(update);
                let arguments = &mut arguments.count(buffer.len).float(narrow(1.0 - momentum));
                queue.launch("muon_nesterov", &[buffer.dtype], grid(buffer.len), arguments)
            }
            Muon::Normalise { matrix, norm, least } => {
                if !computes(matrix.dtype) || (norm.dtype, norm.len) != (matrix.dtype, 1) {
                    return refused();
                }
                if matrix.len == 0 {
                    return Ok(());
                }
                let arguments = &mut Arguments::new().operand(matrix).operand(norm).count(matrix.len).float(*least);
                queue.launch("muon_normalise", &[matrix.dtype], grid(matrix.len), arguments)
            }
            Muon::Step { parameter, update, cols, keep, step } => {
                let types = [parameter.dtype, update.dtype];
                // The supported pairs of types: equal ones, or any with f32.
                let paired = types[0] == types[1] || types.contains(&DType::F32);
                if !types.into_iter().all(computes) || !paired || *cols == 0 || !parameter.len.is_multiple_of(*cols) {
                    return refused();
                }
                if parameter.len == 0 {
                    return Ok(());
                }
                let rows = parameter.len / cols;
                let arguments = Arguments::new().operand(parameter).at(update.address).count(update.row_stride);
                let arguments = arguments.count(update.col_stride).count(rows).count(*cols);
                let arguments = &mut arguments.float(narrow(*keep)).float(narrow(*step));
                let tiles = rows.div_ceil(TILE) * cols.div_ceil(TILE);
                queue.launch("muon_step", &types, Grid::row(blocks_of(tiles, 1), THREADS), arguments)
            }
        }
    }
}

/// Test cases.
mod selftest {
    use super::Muon;
    use crate::DType;
    use crate::selftest::bound::ErrorBound;
    use crate::selftest::case::{Case, Precision};
    use crate::selftest::session::Session;
    use crate::selftest::values::Values;

    /// Rounded twice.
    const TWICE: ErrorBound = ErrorBound::Sum(4);

    pub(super) fn run(session: &mut Session<'_>) {
        for precision in Precision::FLOATS {
            let dtype = precision.dtype();
            for len in [1, 255, 257, 5000, 1_100_000] {
                let mut case = Case::new("muon_nesterov", precision, format!("{len} elements"));
                let buffer = case.update("buffer", dtype, len, Values::Normal(0.0, 0.1), ErrorBound::Formula);
                let gradient = case.input("gradient", dtype, len, Values::Normal(0.0, 0.1));
                let update = case.output("update", dtype, len, TWICE);
                session.check(&case, |at| Muon::Nesterov {
                    buffer: at[buffer],
                    gradient: at[gradient],
                    update: at[update],
                    momentum: 0.95,
                });
                for norm in [0.0, 7.0] {
                    let mut case = Case::new("muon_normalise", precision, format!("{len} elements by {norm}"));
                    let matrix = case.update("matrix", dtype, len, Values::Normal(0.0, 0.1), ErrorBound::Formula);
                    let norm = case.input("norm", dtype, 1, Values::Constant(norm));
                    session.check(&case, |at| Muon::Normalise { matrix: at[matrix], norm: at[norm], least: 1e-2 });
                }
            }
            for ([rows, cols], turned) in
                [[1, 1], [33, 65], [64, 32], [700, 1030]].into_iter().flat_map(|sizes| [(sizes, false), (sizes, true)])
            {
                for of_update in [dtype, DType::Bf16] {
                    if of_update != dtype && dtype != DType::F32 {
                        continue;
                    }
                    let what = if turned { ", turned" } else { "" };
                    let title = format!("{rows} × {cols}{what}, update in {of_update:?}");
                    let mut case = Case::new("muon_step", precision, title);
                    let parameter = case.update("parameter", dtype, rows * cols, Values::Normal(0.0, 0.5), TWICE);
                    let update = case.input("update", of_update, rows * cols, Values::Normal(0.0, 0.1));
                    let strides = if turned { [1, rows, 0] } else { [cols, 1, 0] };
                    session.check(&case, |at| Muon::Step {
                        parameter: at[parameter],
                        update: at.matrix(update, 0, strides),
                        cols,
                        keep: 0.9999,
                        step: 0.05,
                    });
                }
            }
        }
    }
}
