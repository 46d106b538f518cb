//! Rows of a table, selected by index.

use super::family::Family;
use crate::Operand;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work};

/// Rows of `width` by index.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Embedding {
    /// `dst[i, :] = weight[indices[i], :]`.
    Forward { weight: Operand, indices: Operand, dst: Operand, width: usize },
    /// `dst` (rows × width) becomes the sum of `grad` rows by index; rows that no index names become zero.
    Backward { grad: Operand, indices: Operand, dst: Operand, width: usize },
}

impl Family for Embedding {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "embedding", source: include_str!("embedding.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "embedding",
            Self::Backward { .. } => "embedding_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { weight, indices, dst, .. } => tell.all([weight, indices, dst]),
            Self::Backward { grad, indices, dst, .. } => tell.all([grad, indices, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { dst, .. } => Work::pass(OpClass::Elementwise, &[dst, dst]),
            Self::Backward { grad, indices, dst, .. } => {
                let work = Work::pass(OpClass::Scatter, &[grad, dst]);
                // Many indices are sorted first: passes of a radix sort, then the distinct indices and their segments.
                if indices.len > 3072 { work.launches(16, 1.5) } else { work.launches(2, 1.2) }
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { weight, indices, dst, width } => {
                cpu::forward(on.cores, on.apart(), weight, indices, dst, width)
            }
            Self::Backward { grad, indices, dst, width } => {
                cpu::backward(on.cores, on.apart(), grad, indices, dst, width)
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
    use crate::cpu::dispatch::real;
    use crate::cpu::operand::{Access, KernelResult, View, require};
    use crate::cpu::real::Real;
    use crate::cpu::rows::{for_rows, rows_of};
    use crate::{DType, Operand};

    /// Indices that were checked to lie within a table.
    #[derive(Clone, Copy)]
    struct Positions<'a>(&'a [i64]);

    impl<'a> Positions<'a> {
        /// The indices in `view`, for a table of `rows` rows.
        fn in_table(view: &'a View<'_>, rows: usize) -> KernelResult<Self> {
            require(view.dtype() == DType::I64, || format!("indices are {:?}, and must be I64", view.dtype()))?;
            let indices = view.slice::<i64>(0, view.len());
            let wild = indices.iter().find(|&&index| usize::try_from(index).map_or(true, |index| index >= rows));
            require(wild.is_none(), || format!("index {} is outside the {rows} rows there are", wild.unwrap_or(&0)))?;
            Ok(Self(indices))
        }

        fn len(&self) -> usize {
            self.0.len()
        }

        #[inline(always)]
        fn at(&self, i: usize) -> usize {
            self.0[i] as usize
        }
    }

    pub(super) fn forward(
        cores: &Cores,
        mut access: Access<'_>,
        weight: Operand,
        indices: Operand,
        dst: Operand,
        width: usize,
    ) -> KernelResult {
        fn go<R: Real>(cores: &Cores, weight: View<'_>, indices: Positions<'_>, dst: View<'_>, width: usize) {
            for_rows(
                cores,
                [indices.len(), width],
                0.3,
                width,
                #[inline(always)]
                |row, x: &mut [R]| {
                    R::load(&weight, indices.at(row) * width, x);
                    R::store(&dst, row * width, x);
                },
            );
        }
        let table = rows_of(&weight, width)?;
        require(dst.len == indices.len * width, || format!("the result is not {} × {width}", indices.len))?;
        let (from, at, to) = (access.read(&weight)?, access.read(&indices)?, access.write(&dst)?);
        let positions = Positions::in_table(&at, table)?;
        real!([weight.dtype, dst.dtype], go(cores, from, positions, to, width));
        Ok(())
    }

    pub(super) fn backward(
        cores: &Cores,
        mut access: Access<'_>,
        grad: Operand,
        indices: Operand,
        dst: Operand,
        width: usize,
    ) -> KernelResult {
        /// `order` lists gradient rows sorted by index: those of table row r are at `[starts[r], starts[r + 1])`.
        fn go<R: Real>(cores: &Cores, grad: View<'_>, order: &[usize], starts: &[usize], dst: View<'_>, width: usize) {
            for_rows(
                cores,
                [starts.len() - 1, width],
                0.5,
                2 * width,
                #[inline(always)]
                |row, scratch: &mut [R]| {
                    let (sum, x) = scratch.split_at_mut(width);
                    sum.fill(R::ZERO);
                    for &source in &order[starts[row]..starts[row + 1]] {
                        R::load(&grad, source * width, x);
                        for (sum, &x) in sum.iter_mut().zip(x.iter()) {
                            *sum += x;
                        }
                    }
                    R::store(&dst, row * width, sum);
                },
            );
        }
        let table = rows_of(&dst, width)?;
        require(grad.len == indices.len * width, || format!("the gradient is not {} × {width}", indices.len))?;
        let (from, at, to) = (access.read(&grad)?, access.read(&indices)?, access.write(&dst)?);
        let positions = Positions::in_table(&at, table)?;
        // A stable counting sort: each row's gradients are added in the order of their positions. After all positions
        // are placed, an index's range ends where the next one's begins.
        let mut starts = cores.vec::<usize>(table + 2)?;
        let mut order = cores.vec::<usize>(positions.len())?;
        (0..positions.len()).for_each(|i| starts[positions.at(i) + 2] += 1);
        (1..starts.len()).for_each(|row| starts[row] += starts[row - 1]);
        for source in 0..positions.len() {
            let next = &mut starts[positions.at(source) + 1];
            order[*next] = source;
            *next += 1;
        }
        let starts = &starts[..=table];
        real!([grad.dtype, dst.dtype], go(cores, from, &order, starts, to, width));
        Ok(())
    }
}

/// Launches of the CUDA kernels.
mod cuda {
    use super::Embedding;
    use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
    use crate::kernels::elementwise::cuda::zero;
    use crate::kernels::family::Family;
    use crate::{DType, Operand};
    use vramlab_allocator::units::Address;

    const THREADS: u32 = 256;
    /// Loads that a thread has in flight at the same time.
    const UNROLL: usize = 4;
    /// Positions that are stored for each table row. Rows with more are called crowded.
    const KEPT: usize = 16;
    /// The least and the most positions that one block adds for a crowded row.
    const SEGMENT: (usize, usize) = (128, 1024);
    /// The most segments of a crowded row.
    const MOST_SEGMENTS: usize = 4096;

    /// Launches a kernel of this family.
    pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Embedding) -> Result<(), Refusal> {
        let computes = |operand: Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16);
        match *kernel {
            Embedding::Forward { weight, indices, dst, width }
                if computes(weight) && computes(dst) && indices.dtype == DType::I64 =>
            {
                forward(queue, &weight, &indices, &dst, width)
            }
            Embedding::Backward { grad, indices, dst, width }
                if computes(grad)
                    && computes(dst)
                    && indices.dtype == DType::I64
                    && indices.len <= SEGMENT.1 * MOST_SEGMENTS =>
            {
                backward(queue, &grad, &indices, &dst, width)
            }
            _ => Err(Refusal::unsupported(kernel.name())),
        }
    }

    /// True if four elements can be loaded or stored at once at every multiple of four in each row of `width`.
    fn packed(operands: [&Operand; 2], width: usize) -> bool {
        let aligned = |operand: &Operand| operand.address.0.is_multiple_of(4 * operand.dtype.size());
        width.is_multiple_of(4) && operands.into_iter().all(aligned)
    }

    fn forward(
        queue: &mut Queue<'_>,
        weight: &Operand,
        indices: &Operand,
        dst: &Operand,
        width: usize,
    ) -> Result<(), Refusal> {
        if dst.len == 0 {
            return Ok(());
        }
        let (name, at_once) = if packed([weight, dst], width) { ("embedding", 4) } else { ("embedding_unaligned", 1) };
        let packs = dst.len / at_once;
        let grid = Grid::row(blocks_of(packs, THREADS as usize * UNROLL), THREADS);
        let arguments = Arguments::new().operand(weight).operand(indices).operand(dst);
        let arguments = arguments.count(weight.len / width).count(width).count(packs);
        queue.launch(name, &[weight.dtype, dst.dtype], grid, &mut { arguments })
    }

    /// The gradient's data in scratch: the sizes of its parts and their offsets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ScratchLayout {
        /// Positions that one block adds for a crowded row.
        segment: usize,
        /// The most segments of crowded rows.
        most_items: usize,
        /// Bytes of the number of items and of the counts of positions, which must be zeroed first.
        zeros: usize,
        row_of: usize,
        kept: usize,
        item: usize,
        shares: usize,
        bytes: usize,
    }

    impl ScratchLayout {
        /// The offset of the counts; the number of items precedes them.
        const COUNTS: usize = 256;

        /// For `n` positions in a table of `rows` rows of `width`.
        fn new(n: usize, rows: usize, width: usize) -> Self {
            let segment = n.div_ceil(SEGMENT.1).clamp(SEGMENT.0, SEGMENT.1);
            // A crowded row has more positions than are stored, and each of its segments except the first follows a
            // whole one.
            let most_items = n / (KEPT + 1) + n / segment;
            let mut bytes = 0;
            let mut part = |size: usize| {
                let start = bytes;
                bytes += size.next_multiple_of(256);
                start
            };
            let zeros = Self::COUNTS + 4 * rows;
            part(zeros);
            let row_of = part(4 * n.next_multiple_of(16));
            let kept = part(4 * KEPT * rows);
            let item = part(8 * most_items);
            let shares = part(4 * width * most_items);
            Self { segment, most_items, zeros, row_of, kept, item, shares, bytes }
        }
    }

    fn backward(
        queue: &mut Queue<'_>,
        grad: &Operand,
        indices: &Operand,
        dst: &Operand,
        width: usize,
    ) -> Result<(), Refusal> {
        if dst.len == 0 {
            return Ok(());
        }
        let (n, rows) = (indices.len, dst.len / width);
        let layout = ScratchLayout::new(n, rows, width);
        let scratch = queue.scratch(layout.bytes)?;
        let part = |start: usize| scratch.0 + start as u64;
        let places = [layout.row_of, ScratchLayout::COUNTS, layout.kept, layout.item, 0].map(part);
        let shares = Address(part(layout.shares));
        zero(queue, scratch, layout.zeros)?;
        if n > 0 {
            let grid = Grid::row(blocks_of(n, THREADS as usize), THREADS);
            let arguments = Arguments::new().operand(indices).count(n).count(rows).int(layout.segment as u32);
            queue.launch("embedding_places", &[], grid, &mut arguments.structure(&places))?;
        }
        let name = if packed([grad, dst], width) { "embedding_backward" } else { "embedding_backward_unaligned" };
        let blocks = layout.most_items + rows.div_ceil(THREADS as usize / 32);
        let arguments = Arguments::new().operand(grad).operand(dst).at(shares).count(n).count(rows).count(width);
        let arguments = arguments.int(layout.segment as u32).int(layout.most_items as u32).structure(&places);
        queue.launch(name, &[grad.dtype, dst.dtype], Grid::row(blocks_of(blocks, 1), THREADS), &mut { arguments })?;
        if n <= layout.segment {
            return Ok(());
        }
        let arguments = Arguments::new().at(shares).operand(dst).count(width).int(layout.segment as u32);
        let grid = Grid::row(blocks_of(layout.most_items, 1), THREADS);
        queue.launch("embedding_shares", &[dst.dtype], grid, &mut arguments.structure(&places))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn items_suffice_however_positions_are_crowded() {
            for n in [0, 1, 17, 128, 129, 5000, 16_384, 200_000, 4 << 20] {
                let layout = ScratchLayout::new(n, 50_257, 8);
                assert!(n.div_ceil(layout.segment) <= MOST_SEGMENTS, "{n} in one row");
                for crowd in [17, 127, 128, 129, 300, 5000] {
                    let items = n / crowd * crowd.div_ceil(layout.segment);
                    assert!(items <= layout.most_items, "{n} positions, {crowd} in each row");
                }
            }
        }

        #[test]
        fn parts_follow_each_other_aligned() {
            let layout = ScratchLayout::new(16_384, 50_257, 768);
            let starts = [0, layout.row_of, layout.kept, layout.item, layout.shares, layout.bytes];
            assert!(starts.is_sorted() && starts.iter().all(|start| start % 256 == 0), "{layout:?}");
            assert_eq!(layout.row_of, (256 + 4 * 50_257_usize).next_multiple_of(256));
            assert_eq!((layout.segment, layout.most_items), (128, 963 + 128));
        }
    }
}

/// Test cases.
mod selftest {
    use super::Embedding;
    use crate::DType;
    use crate::selftest::bound::ErrorBound;
    use crate::selftest::case::{Case, Precision, Skew};
    use crate::selftest::session::Session;
    use crate::selftest::values::Values;

    pub(super) fn run(session: &mut Session<'_>) {
        for precision in Precision::FLOATS {
            for (rows, width, tokens, skew) in [
                (1, 1, 1, Skew::Aligned),
                (10, 7, 1, Skew::Aligned),
                (257, 32, 128, Skew::Aligned),
                (50, 33, 1000, Skew::Together(1)),
                (1000, 10, 300, Skew::Aligned),
                (30_522, 64, 512, Skew::Aligned),
                (50_257, 16, 4097, Skew::Aligned),
                (1000, 64, 30_000, Skew::Aligned),
                (3, 768, 5000, Skew::Aligned),
                (100, 770, 333, Skew::Together(2)),
            ] {
                let what = format!("{tokens} of {rows} × {width}");
                table(session, precision, [rows, width, tokens], what, skew, Values::Below(rows));
            }
            let what = "600 times the last of 40 × 65".to_owned();
            table(session, precision, [40, 65, 600], what, Skew::Aligned, Values::Constant(39.0));
            let what = "30000 times the first of 5 × 24".to_owned();
            table(session, precision, [5, 24, 30_000], what, Skew::Aligned, Values::Constant(0.0));
            let what = "positions of 1024 × 96".to_owned();
            table(session, precision, [1024, 96, 1024], what, Skew::Aligned, Values::Each(|i| i as f64));
        }
    }

    fn table(
        session: &mut Session<'_>,
        precision: Precision,
        [rows, width, tokens]: [usize; 3],
        what: String,
        skew: Skew,
        values: Values,
    ) {
        let dtype = precision.dtype();
        let mut case = Case::new("embedding", precision, what.clone()).skewed(skew);
        let weight = case.input("weight", dtype, rows * width, Values::STANDARD);
        let indices = case.input("indices", DType::I64, tokens, values.clone());
        let dst = case.output("dst", dtype, tokens * width, ErrorBound::Exact);
        session.check(&case, |at| Embedding::Forward { weight: at[weight], indices: at[indices], dst: at[dst], width });
        let mut case = Case::new("embedding_backward", precision, what).skewed(skew);
        let grad = case.input("grad", dtype, tokens * width, Values::STANDARD);
        let indices = case.input("indices", DType::I64, tokens, values);
        let dst = case.output("dst", dtype, rows * width, ErrorBound::Sum(tokens));
        session.check(&case, |at| Embedding::Backward { grad: at[grad], indices: at[indices], dst: at[dst], width });
    }
}
