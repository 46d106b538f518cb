//! Root mean square normalisation: y = x·rstd·weight with rstd = 1/√(mean(x²) + eps), per row.

use super::family::Family;
use crate::Operand;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work};

/// Normalisations of rows of `cols` by their squares.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum RmsNorm {
    /// `dst = weight · src · rstd` with `rstd = 1/√(mean(src²) + eps)` of each row of `cols`, stored in f32:
    /// transformers' models use seven ops for this.
    Forward { src: Operand, weight: Operand, dst: Operand, rstd: Operand, cols: usize, eps: f32 },
    /// Gradients of [`Self::Forward`] with respect to its source and weight; dsrc may be grad.
    Backward {
        grad: Operand,
        src: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        cols: usize,
    },
    /// `dst[r] = √(Σ_c src[r,c]²)` for rows of `cols`.
    RowNorm { src: Operand, dst: Operand, cols: usize },
}

impl Family for RmsNorm {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit {
        name: "rms_norm",
        source: concat!(include_str!("layer_norm/layer_norm.cuh"), include_str!("rms_norm.cu")),
    }];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "rms_norm",
            Self::Backward { .. } => "rms_norm_backward",
            Self::RowNorm { .. } => "row_norm",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { src, weight, dst, rstd, .. } => tell.all([src, weight, dst, rstd]),
            Self::Backward { grad, src, rstd, weight, dsrc, dweight, .. } => {
                tell.all([grad, src, rstd, weight, dsrc, dweight]);
            }
            Self::RowNorm { src, dst, .. } => tell.all([src, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { src, dst, .. } => Work::pass(OpClass::Norm, &[src, dst]),
            Self::Backward { grad, src, dsrc, .. } => {
                Work::pass(OpClass::NormBackward, &[grad, src, dsrc]).launches(2, 1.0)
            }
            Self::RowNorm { src, dst, .. } => Work::pass(OpClass::Reduction, &[src, dst]),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { src, weight, dst, rstd, cols, eps } => {
                cpu::forward(on.cores, on.in_place(), &cpu::RmsNormForward { src, weight, dst, rstd }, cols, eps)
            }
            Self::Backward { grad, src, rstd, weight, dsrc, dweight, cols } => {
                let operands = cpu::RmsNormBackward { grad, src, rstd, weight, dsrc, dweight };
                cpu::backward(on.cores, on.in_place(), &operands, cols)
            }
            Self::RowNorm { src, dst, cols } => cpu::row_norm(on.cores, on.apart(), src, dst, cols),
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
    use crate::cpu::partial::SumsOfBlocks;
    use crate::cpu::real::{Real, sum_by};
    use crate::cpu::rows::{for_rows, rows_of};

    /// The operands of [`RmsNorm::Forward`](crate::kernels::RmsNorm::Forward).
    pub(super) struct RmsNormForward<T> {
        pub(super) src: T,
        pub(super) weight: T,
        pub(super) dst: T,
        pub(super) rstd: T,
    }

    /// The operands of [`RmsNorm::Backward`](crate::kernels::RmsNorm::Backward).
    pub(super) struct RmsNormBackward<T> {
        pub(super) grad: T,
        pub(super) src: T,
        pub(super) rstd: T,
        pub(super) weight: T,
        pub(super) dsrc: T,
        pub(super) dweight: T,
    }

    pub(super) fn forward(
        cores: &Cores,
        mut access: Access<'_>,
        operands: &RmsNormForward<Operand>,
        cols: usize,
        eps: f32,
    ) -> KernelResult {
        let &RmsNormForward { src, weight, dst, rstd } = operands;
        let rows = rows_of(&src, cols)?;
        require(dst.len == src.len && weight.len == cols && rstd.len == rows, || {
            format!("operands don't fit {rows} rows of {cols}")
        })?;
        let views = RmsNormForward {
            src: access.read(&src)?,
            weight: access.read(&weight)?,
            dst: access.write(&dst)?,
            rstd: access.write(&rstd)?,
        };
        real!([src.dtype, weight.dtype, dst.dtype], forward_rows(cores, &views, [rows, cols], eps));
        Ok(())
    }

    fn forward_rows<R: Real>(cores: &Cores, views: &RmsNormForward<View<'_>>, [rows, cols]: [usize; 2], eps: f32) {
        cores.scratch(cols, |weight: &mut [R]| {
            R::load(&views.weight, 0, weight);
            let weight = &*weight;
            for_rows(
                cores,
                [rows, cols],
                0.4,
                cols,
                #[inline(always)]
                |row, x: &mut [R]| {
                    R::load(&views.src, row * cols, x);
                    let squares = sum_by(
                        cols,
                        #[inline(always)]
                        |i| x[i] * x[i],
                    );
                    let rstd = R::ONE / (squares / R::of(cols as f64) + R::of(f64::from(eps))).sqrt();
                    for (x, &w) in x.iter_mut().zip(weight) {
                        *x = *x * rstd * w;
                    }
                    R::store(&views.dst, row * cols, x);
                    R::store(&views.rstd, row, &[rstd]);
                },
            );
        });
    }

    /// The root of the sum of squares of each row.
    pub(super) fn row_norm(
        cores: &Cores,
        mut access: Access<'_>,
        src: Operand,
        dst: Operand,
        cols: usize,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2]) {
            for_rows(
                cores,
                [rows, cols],
                0.2,
                cols,
                #[inline(always)]
                |row, x: &mut [R]| {
                    R::load(&src, row * cols, x);
                    let squares = sum_by(
                        cols,
                        #[inline(always)]
                        |i| x[i] * x[i],
                    );
                    R::store(&dst, row, &[squares.sqrt()]);
                },
            );
        }
        let rows = rows_of(&src, cols)?;
        require(dst.len == rows, || format!("{} norms of {rows} rows of {cols}", dst.len))?;
        let (from, to) = (access.read(&src)?, access.write(&dst)?);
        real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols]));
        Ok(())
    }

    pub(super) fn backward(
        cores: &Cores,
        mut access: Access<'_>,
        operands: &RmsNormBackward<Operand>,
        cols: usize,
    ) -> KernelResult {
        let &RmsNormBackward { grad, src, rstd, weight, dsrc, dweight } = operands;
        let rows = rows_of(&src, cols)?;
        let fits = [grad.len, dsrc.len] == [src.len; 2] && rstd.len == rows && [weight.len, dweight.len] == [cols; 2];
        require(fits, || format!("operands don't fit {rows} rows of {cols}"))?;
        let views = RmsNormBackward {
            grad: access.read(&grad)?,
            src: access.read(&src)?,
            rstd: access.read(&rstd)?,
            weight: access.read(&weight)?,
            dsrc: access.write(&dsrc)?,
            dweight: access.write(&dweight)?,
        };
        real!(
            [grad.dtype, src.dtype, weight.dtype, dsrc.dtype, dweight.dtype],
            backward_rows(cores, &views, rows, cols)
        );
        Ok(())
    }

    fn backward_rows<R: Real>(cores: &Cores, views: &RmsNormBackward<View<'_>>, rows: usize, cols: usize) {
        // Blocks of rows whose weight gradients are summed separately, then in order. Only the shape decides them.
        let each = rows.div_ceil(32).max(16);
        let blocks = rows.div_ceil(each);
        let count = R::of(cols as f64);
        cores.scratch((blocks + 1) * cols, |scratch: &mut [R]| {
            let (weight, sums) = scratch.split_at_mut(cols);
            R::load(&views.weight, 0, weight);
            let weight = &*weight;
            let sums = SumsOfBlocks::new(sums, cols);
            cores.for_each(
                blocks,
                rows * cols,
                #[inline(always)]
                |block| {
                    sums.with(
                        block,
                        #[inline(always)]
                        |dweight| {
                            dweight.fill(R::ZERO);
                            cores.scratch(
                                2 * cols,
                                #[inline(always)]
                                |scratch: &mut [R]| {
                                    let (x, g) = scratch.split_at_mut(cols);
                                    for row in block * each..rows.min((block + 1) * each) {
                                        R::load(&views.src, row * cols, x);
                                        R::load(&views.grad, row * cols, g);
                                        let mut rstd = [R::ZERO];
                                        R::load(&views.rstd, row, &mut rstd);
                                        let [rstd] = rstd;
                                        for (x, (dw, (g, &w))) in
                                            x.iter_mut().zip(dweight.iter_mut().zip(g.iter_mut().zip(weight)))
                                        {
                                            *x *= rstd;
                                            *dw += *g * *x;
                                            *g *= w;
                                        }
                                        let both = sum_by(
                                            cols,
                                            #[inline(always)]
                                            |i| g[i] * x[i],
                                        ) / count;
                                        for (g, &x) in g.iter_mut().zip(x.iter()) {
                                            *g = rstd * (*g - x * both);
                                        }
                                        R::store(&views.dsrc, row * cols, g);
                                    }
                                },
                            );
                        },
                    );
                },
            );
            R::store(&views.dweight, 0, sums.total(blocks));
        });
    }
}

/// Launches of the CUDA kernels.
mod cuda {
    use super::RmsNorm;
    use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
    use crate::cuda::rows::{Rows, threads_of};
    use crate::kernels::family::Family;
    use crate::kernels::layer_norm::cuda::{column_parts, vectors};
    use crate::kernels::sums::cuda::add_shares;
    use crate::{DType, Operand};

    /// Threads in a block if each warp has its own row.
    const THREADS: u32 = 256;
    /// The longest row that one warp handles.
    const WARP_ROW: usize = 1024;

    /// Launches a kernel of this family.
    pub(super) fn launch(queue: &mut Queue<'_>, kernel: &RmsNorm) -> Result<(), Refusal> {
        let launched = match kernel {
            RmsNorm::Forward { .. } => forward(queue, kernel),
            RmsNorm::Backward { .. } => backward(queue, kernel),
            RmsNorm::RowNorm { .. } => row_norm(queue, kernel),
        };
        launched.unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
    }

    /// The kernel for these rows: by warps, by blocks, or for rows of any length and alignment.
    fn form(rows: &Rows, vectors: bool, [warp, block, any]: [&'static str; 3]) -> (&'static str, Grid) {
        if !vectors {
            (any, Grid::row(rows.grid, threads_of(rows.cols)))
        } else if rows.cols <= WARP_ROW {
            (warp, Grid::row(blocks_of(rows.rows, THREADS as usize / 32), THREADS))
        } else {
            (block, Grid::row(rows.grid, threads_of(rows.cols / rows.vector)))
        }
    }

    /// `None` if there is no kernel for these operands.
    fn forward(queue: &mut Queue<'_>, kernel: &RmsNorm) -> Option<Result<(), Refusal>> {
        let RmsNorm::Forward { src, weight, dst, rstd, cols, eps } = kernel else { return None };
        let rows = Rows::of(src, *cols)?;
        let fits = dst == &(Operand { address: dst.address, ..*src })
            && weight.len == rows.cols
            && (rstd.dtype, rstd.len) == (DType::F32, rows.rows);
        if !fits {
            return None;
        }
        if rows.rows == 0 {
            return Some(Ok(()));
        }
        let vectors = vectors(&rows, &[src, weight, dst]);
        let (name, grid) = form(&rows, vectors, ["rms_norm_warp", "rms_norm_block", "rms_norm_any"]);
        let operands = [src, weight, dst, rstd];
        let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
        let arguments = &mut arguments.count(rows.rows).int(rows.width).float(*eps);
        Some(queue.launch(name, &[src.dtype, weight.dtype], grid, arguments))
    }

    /// `None` if there is no kernel for these operands.
    fn row_norm(queue: &mut Queue<'_>, kernel: &RmsNorm) -> Option<Result<(), Refusal>> {
        let RmsNorm::RowNorm { src, dst, cols } = kernel else { return None };
        let rows = Rows::of(src, *cols)?;
        if dst.len != rows.rows || !(src.dtype == dst.dtype || [src.dtype, dst.dtype].contains(&DType::F32)) {
            return None;
        }
        if rows.rows == 0 {
            return Some(Ok(()));
        }
        let (name, grid) = form(&rows, vectors(&rows, &[src]), ["row_norm_warp", "row_norm_block", "row_norm_any"]);
        let arguments = &mut Arguments::new().operand(src).operand(dst).count(rows.rows).int(rows.width);
        Some(queue.launch(name, &[src.dtype, dst.dtype], grid, arguments))
    }

    /// `None` if there is no kernel for these operands.
    fn backward(queue: &mut Queue<'_>, kernel: &RmsNorm) -> Option<Result<(), Refusal>> {
        let RmsNorm::Backward { grad, src, rstd, weight, dsrc, dweight, cols } = kernel else { return None };
        let rows = Rows::of(src, *cols)?;
        let fits = [grad, dsrc].iter().all(|x| (x.dtype, x.len) == (src.dtype, src.len))
            && [weight, dweight].iter().all(|x| (x.dtype, x.len) == (weight.dtype, rows.cols))
            && (rstd.dtype, rstd.len) == (DType::F32, rows.rows);
        if !fits || rows.rows == 0 {
            return None;
        }
        // The weight's gradient comes first, because the source's gradient may overwrite the inputs of both.
        let summed = to_weight(queue, &rows, [grad, src, rstd], dweight);
        Some(summed.and_then(|()| to_source(queue, &rows, [grad, src, rstd, weight, dsrc])))
    }

    fn to_weight(
        queue: &mut Queue<'_>,
        rows: &Rows,
        [grad, src, rstd]: [&Operand; 3],
        dweight: &Operand,
    ) -> Result<(), Refusal> {
        let (each, grid) = column_parts(rows);
        let parts = grid.blocks[1] as usize;
        let len = parts * rows.cols;
        let partial = Operand { address: queue.scratch(4 * len)?, dtype: DType::F32, len };
        let arguments = Arguments::new().operand(grad).operand(src).operand(rstd).operand(&partial);
        let arguments = &mut arguments.count(rows.rows).count(each).int(rows.width);
        queue.launch("rms_norm_columns", &[src.dtype], grid, arguments)?;
        add_shares(queue, &partial, dweight, parts, 1.0)
    }

    fn to_source(queue: &mut Queue<'_>, rows: &Rows, operands: [&Operand; 5]) -> Result<(), Refusal> {
        let [grad, src, _, weight, dsrc] = operands;
        let names = ["rms_norm_backward_warp", "rms_norm_backward_block", "rms_norm_backward_any"];
        let (name, grid) = form(rows, vectors(rows, &[grad, src, weight, dsrc]), names);
        let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
        let arguments = &mut arguments.count(rows.rows).int(rows.width);
        queue.launch(name, &[src.dtype, weight.dtype], grid, arguments)
    }
}

/// Test cases.
mod selftest {
    use super::RmsNorm;
    use crate::DType;
    use crate::selftest::bound::ErrorBound;
    use crate::selftest::case::{Case, Precision, Skew};
    use crate::selftest::session::Session;
    use crate::selftest::values::Values;

    const SHAPES: [(usize, usize, Skew); 14] = [
        (3, 1, Skew::Aligned),
        (1, 7, Skew::Aligned),
        (100, 7, Skew::Together(1)),
        (128, 32, Skew::Aligned),
        (33, 100, Skew::Together(1)),
        (513, 768, Skew::Aligned),
        (60, 770, Skew::Together(2)),
        (70_000, 16, Skew::Aligned),
        (9000, 128, Skew::Aligned),
        (1024, 1024, Skew::Aligned),
        (9, 1600, Skew::Aligned),
        (300, 2048, Skew::Aligned),
        (12, 4096, Skew::Aligned),
        (7, 5001, Skew::Together(1)),
    ];

    pub(super) fn run(session: &mut Session<'_>) {
        for precision in Precision::FLOATS {
            for (rows, cols, skew) in SHAPES {
                for parameters in [DType::F32, precision.dtype()] {
                    forward(session, precision, parameters, [rows, cols], skew);
                    row_norm(session, precision, parameters, [rows, cols], skew);
                    backward(session, precision, parameters, [rows, cols], skew);
                    if precision == Precision::F32 {
                        break;
                    }
                }
            }
        }
    }

    fn case(name: &'static str, precision: Precision, parameters: DType, [rows, cols]: [usize; 2], skew: Skew) -> Case {
        let alike = if parameters == precision.dtype() { "" } else { ", parameters in f32" };
        Case::new(name, precision, format!("{rows} × {cols}{alike}")).skewed(skew)
    }

    fn forward(session: &mut Session<'_>, precision: Precision, parameters: DType, shape: [usize; 2], skew: Skew) {
        let [rows, cols] = shape;
        let mut case = case("rms_norm", precision, parameters, shape, skew);
        let src = case.input("src", precision.dtype(), rows * cols, Values::Normal(0.3, 1.2));
        let weight = case.input("weight", parameters, cols, Values::Normal(1.0, 0.2));
        let dst = case.output("dst", precision.dtype(), rows * cols, ErrorBound::Sum(cols));
        let rstd = case.output("rstd", DType::F32, rows, ErrorBound::Sum(cols));
        session.check(&case, |at| RmsNorm::Forward {
            src: at[src],
            weight: at[weight],
            dst: at[dst],
            rstd: at[rstd],
            cols,
            eps: 1e-6,
        });
    }

    /// Of rows that differ in size.
    fn row_norm(session: &mut Session<'_>, precision: Precision, to: DType, [rows, cols]: [usize; 2], skew: Skew) {
        let into = if to == precision.dtype() { "" } else { ", norms in f32" };
        let mut case = Case::new("row_norm", precision, format!("{rows} × {cols}{into}")).skewed(skew);
        let values = Values::Each(|i| ((i * 7919 % 1009) as f64 / 504.5 - 1.0) * (1 + i % 5) as f64);
        let src = case.input("src", precision.dtype(), rows * cols, values);
        let dst = case.output("dst", to, rows, ErrorBound::Sum(cols));
        session.check(&case, |at| RmsNorm::RowNorm { src: at[src], dst: at[dst], cols });
    }

    fn backward(session: &mut Session<'_>, precision: Precision, parameters: DType, shape: [usize; 2], skew: Skew) {
        let [rows, cols] = shape;
        let mut case = case("rms_norm_backward", precision, parameters, shape, skew);
        let grad = case.input("grad", precision.dtype(), rows * cols, Values::STANDARD);
        let src = case.input("src", precision.dtype(), rows * cols, Values::Normal(0.3, 1.2));
        let rstd = case.input("rstd", DType::F32, rows, Values::Uniform(0.7, 0.95));
        let weight = case.input("weight", parameters, cols, Values::Normal(1.0, 0.2));
        let dsrc = case.output("dsrc", precision.dtype(), rows * cols, ErrorBound::Sum(cols));
        let dweight = case.output("dweight", parameters, cols, ErrorBound::Sum(rows));
        session.check(&case, |at| RmsNorm::Backward {
            grad: at[grad],
            src: at[src],
            rstd: at[rstd],
            weight: at[weight],
            dsrc: at[dsrc],
            dweight: at[dweight],
            cols,
        });
    }
}
