//! Rotary position embeddings.

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work, count, count_bytes};
use crate::{HeadView, Operand, RotaryPass, RotaryShape};

/// Rotary position embeddings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Rotary {
    /// The tables of a rotary embedding, (rows, copies × frequencies) each: `cos[r, i] = scaling · cos(r · f[i mod n])`, and `sin` alike,
    /// where `f` are the n `frequencies` (f32).
    Tables { frequencies: Operand, cos: Operand, sin: Operand, scaling: f64, copies: usize },
    /// Rotates queries or keys by their positions: `dst[i] = src[i] · cos[p] + turned[i] · sin[p]`. The elements of a
    /// pair are at the same place in the two halves of a head, or adjacent. `turned` exchanges the elements of each
    /// pair and negates the one that moves to the first place. `p` is the pair's number; for the pair's second element,
    /// it is half a table row further on, unless the tables have one value per pair.
    Rotate { shape: RotaryShape, src: HeadView, dst: HeadView, pass: RotaryPass },
}

impl Family for Rotary {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "rotary", source: include_str!("rotary.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Tables { .. } => "rotary_tables",
            Self::Rotate { .. } => "rotary",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Tables { frequencies, cos, sin, .. } => tell.all([frequencies, cos, sin]),
            Self::Rotate { shape, src, dst, pass } => {
                tell.all(pass.tables().iter().flatten());
                for view in [src, dst] {
                    tell.span(Span::strided(view.address, view.dtype, &shape.dims(view)));
                }
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            // A product of positions and frequencies, concatenated; sine and cosine, each scaled and rounded.
            Self::Tables { cos, sin, .. } => Work::elementwise(&[cos, sin, cos, sin, cos, sin]).launches(8, 9.0),
            // Products with both tables, a negated half, a concatenation of halves, and a sum. Backward fills two
            // tensors with zeros and copies a half into each; one of these is a copy here too.
            Self::Rotate { shape, src, pass, .. } => {
                let (passes, launches, dispatches) = match pass {
                    RotaryPass::Forward(_) => (10.0, 5, 6.0),
                    RotaryPass::BackwardOfSine(_) => (9.0, 7, 4.0),
                    RotaryPass::BackwardOfCosine(_) => (3.0, 1, 1.0),
                };
                let bytes = passes * count(shape.len()) * count_bytes(src.dtype);
                Work { bytes, ..Work::of(OpClass::Elementwise, src.dtype) }.launches(launches, dispatches)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Tables { frequencies, cos, sin, scaling, copies } => {
                cpu::tables(on.cores, on.apart(), frequencies, [cos, sin], (scaling, copies))
            }
            Self::Rotate { shape, src, dst, pass } => cpu::rotate(on.cores, on.apart(), shape, [src, dst], pass),
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
    use crate::{HeadView, Operand, RotaryPass, RotaryShape};

    /// Positions of one task.
    const ROWS: usize = 16;

    /// Cosine and sine of every position times every frequency, in f32 as PyTorch computes them.
    pub(super) fn tables(
        cores: &Cores,
        mut access: Access<'_>,
        frequencies: Operand,
        [cos, sin]: [Operand; 2],
        (scaling, copies): (f64, usize),
    ) -> KernelResult {
        let cols = copies * frequencies.len;
        let rows = cos.len.checked_div(cols).unwrap_or(0);
        require(cos.len == rows * cols && sin.len == cos.len, || {
            format!("{} frequencies make no tables of {} and {} elements", frequencies.len, cos.len, sin.len)
        })?;
        let from = access.read(&frequencies)?;
        let to = [access.write(&cos)?, access.write(&sin)?];
        #[expect(clippy::cast_possible_truncation, reason = "tables are computed in f32")]
        let scaling = scaling as f32;
        let half = frequencies.len;
        cores.for_each(rows.div_ceil(ROWS), rows * cols * 8, |task| {
            let mut frequencies = vec![0.0_f32; half];
            f32::load(&from, 0, &mut frequencies);
            let mut values = vec![0.0_f32; half];
            for row in task * ROWS..rows.min((task + 1) * ROWS) {
                #[expect(clippy::cast_precision_loss, reason = "positions are f32 in PyTorch too")]
                let position = row as f32;
                for (table, function) in to.iter().zip([f32::cos as fn(f32) -> f32, f32::sin]) {
                    for (value, frequency) in values.iter_mut().zip(&frequencies) {
                        *value = function(position * frequency) * scaling;
                    }
                    for copy in 0..copies {
                        f32::store(table, row * cols + copy * half, &values);
                    }
                }
            }
        });
        Ok(())
    }

    /// Rotates every head of every position, or computes the part of its gradient given by `pass`. An absent table
    /// counts as zeros.
    pub(super) fn rotate(
        cores: &Cores,
        mut access: Access<'_>,
        shape: RotaryShape,
        [src, dst]: [HeadView; 2],
        pass: RotaryPass,
    ) -> KernelResult {
        fn go<R: Real>(
            cores: &Cores,
            shape: RotaryShape,
            [(from, src), (to, dst)]: [(View<'_>, HeadView); 2],
            tables: [Option<View<'_>>; 2],
            (pass, once): (RotaryPass, bool),
        ) {
            let RotaryShape { batch, heads, rows, head_size, neighbours } = shape;
            let tasks = rows.div_ceil(ROWS);
            cores.for_each(batch * tasks, shape.len(), |task| {
                cores.scratch(5 * head_size, |scratch: &mut [R]| {
                    let (c, rest) = scratch.split_at_mut(head_size);
                    let (s, rest) = rest.split_at_mut(head_size);
                    let (x, rest) = rest.split_at_mut(head_size);
                    let (y, held) = rest.split_at_mut(head_size);
                    let (b, first) = (task / tasks, task % tasks * ROWS);
                    for row in first..rows.min(first + ROWS) {
                        for (table, values) in tables.iter().zip([&mut *c, &mut *s]) {
                            match table {
                                // A value for each pair serves both of its elements.
                                Some(table) if once => {
                                    let (first, second) = values.split_at_mut(head_size / 2);
                                    R::load(table, row * head_size / 2, first);
                                    second.copy_from_slice(first);
                                }
                                Some(table) => R::load(table, row * head_size, values),
                                None => values.fill(R::ZERO),
                            }
                        }
                        for h in 0..heads {
                            let at =
                                |view: &HeadView| b * view.batch_stride + h * view.head_stride + row * view.row_stride;
                            R::load(&from, at(&src), x);
                            turn(x, [c, s], y, neighbours, pass.is_backward());
                            if pass.adds() {
                                R::load(&to, at(&dst), held);
                                y.iter_mut().zip(&*held).for_each(|(y, held)| *y += *held);
                            }
                            R::store(&to, at(&dst), y);
                        }
                    }
                });
            });
        }
        require(shape.head_size.is_multiple_of(2), || format!("heads of {} elements have no halves", shape.head_size))?;
        let operands = pass.tables();
        for table in operands.iter().flatten() {
            require(shape.is_table(table.len), || format!("a table of {} elements doesn't fit {shape:?}", table.len))?;
        }
        let from = access.claim(src.address, src.dtype, shape.dims(&src), false)?;
        let to = access.claim(dst.address, dst.dtype, shape.dims(&dst), true)?;
        let mut read = |table: Option<Operand>| table.map(|table| access.read(&table)).transpose();
        let [cos, sin] = operands;
        let tables = [read(cos)?, read(sin)?];
        let table_types = operands.map(|table| table.map_or(src.dtype, |table| table.dtype));
        let types = [src.dtype, dst.dtype, table_types[0], table_types[1]];
        real!(types, go(cores, shape, [(from, src), (to, dst)], tables, (pass, shape.has_one_for_each_pair(&pass))));
        Ok(())
    }

    /// Rotates one head of one position.
    #[inline(always)]
    fn turn<R: Real>(x: &[R], [cos, sin]: [&[R]; 2], y: &mut [R], neighbours: bool, backward: bool) {
        let half = x.len() / 2;
        for pair in 0..half {
            let (i, j) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
            // Backward is the transpose: it uses the other element's sine, with the opposite sign.
            let other = pair + half;
            let (first, second) = if backward { (sin[other], -sin[pair]) } else { (-sin[pair], sin[other]) };
            y[i] = x[i] * cos[pair] + x[j] * first;
            y[j] = x[j] * cos[other] + x[i] * second;
        }
    }
}

/// Launches of the CUDA kernels.
mod cuda {
    use super::Rotary;
    use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
    use crate::kernels::family::Family;
    use crate::{DType, HeadView, Operand, RotaryPass, RotaryShape};
    use vramlab_allocator::units::Address;

    const THREADS: u32 = 256;

    /// Launches a kernel of this family.
    pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Rotary) -> Result<(), Refusal> {
        match *kernel {
            Rotary::Tables { frequencies, cos, sin, scaling, copies } => {
                tables(queue, frequencies, [cos, sin], (scaling, copies))
                    .unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
            }
            Rotary::Rotate { shape, src, dst, pass } => {
                rotate(queue, shape, [src, dst], pass).unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
            }
        }
    }

    const fn computes(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
    }

    /// `None` if there is no kernel for the operands.
    fn tables(
        queue: &mut Queue<'_>,
        frequencies: Operand,
        [cos, sin]: [Operand; 2],
        (scaling, copies): (f64, usize),
    ) -> Option<Result<(), Refusal>> {
        let cols = copies * frequencies.len;
        let rows = cos.len.checked_div(cols)?;
        let fits = cos.len == rows * cols && sin.len == cos.len;
        if !(fits && frequencies.dtype == DType::F32 && computes(cos.dtype) && computes(sin.dtype)) {
            return None;
        }
        let angles = rows * frequencies.len;
        if angles == 0 {
            return Some(Ok(()));
        }
        #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
        let arguments =
            Arguments::new().operand(&frequencies).count(frequencies.len).count(copies).float(scaling as f32);
        let mut arguments = typed(typed(arguments, &cos), &sin).count(angles);
        Some(queue.launch(
            "rotary_tables",
            &[],
            Grid::row(blocks_of(angles, THREADS as usize), THREADS),
            &mut arguments,
        ))
    }

    fn rotate(
        queue: &mut Queue<'_>,
        shape: RotaryShape,
        [src, dst]: [HeadView; 2],
        pass: RotaryPass,
    ) -> Option<Result<(), Refusal>> {
        let [cos, sin] = pass.tables();
        let reads = |table: Option<Operand>| table.is_none_or(|it| shape.is_table(it.len) && computes(it.dtype));
        let fits = shape.head_size.is_multiple_of(2) && reads(cos) && reads(sin);
        if !(fits && computes(src.dtype) && computes(dst.dtype)) {
            return None;
        }
        let pairs = shape.len() / 2;
        if pairs == 0 {
            return Some(Ok(()));
        }
        let view = |view: &HeadView| [view.batch_stride, view.head_stride, view.row_stride].map(|stride| stride as u64);
        let sizes = [shape.heads, shape.rows, shape.head_size / 2].map(|size| size as u64);
        let mut fields = [sizes, view(&src), view(&dst)].concat();
        fields.push(u64::from(shape.neighbours));
        fields.push(u64::from(shape.has_one_for_each_pair(&pass)));
        let table = |arguments: Arguments, table: Option<Operand>| match table {
            Some(table) => typed(arguments, &table),
            None => arguments.at(Address(0)).int(0),
        };
        let arguments = table(table(Arguments::new().at(src.address).int(src.dtype as u32), cos), sin);
        let arguments = arguments.at(dst.address).int(dst.dtype as u32);
        let arguments = arguments.int(u32::from(pass.is_backward())).int(u32::from(pass.adds())).count(pairs);
        let grid = Grid::row(blocks_of(pairs, THREADS as usize), THREADS);
        Some(queue.launch("rotary", &[], grid, &mut arguments.structure(&fields)))
    }

    /// Adds an operand and its type.
    fn typed(arguments: Arguments, operand: &Operand) -> Arguments {
        arguments.operand(operand).int(operand.dtype as u32)
    }
}

/// Test cases.
mod selftest {
    use super::Rotary;
    use crate::selftest::bound::ErrorBound;
    use crate::selftest::case::Case;
    use crate::selftest::session::Session;
    use crate::selftest::values::Values;
    use crate::{DType, RotaryPass, RotaryShape};

    const PASSES: [&str; 3] = ["forward", "backward of the sine", "backward of the cosine"];

    pub(super) fn run(session: &mut Session<'_>) {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (rows, half, copies) in [(1, 1, 2), (7, 4, 2), (64, 8, 2), (300, 64, 2), (1, 1, 1), (33, 32, 1)] {
                let what = format!("{rows} rows, {half} frequencies, {copies} of each");
                let mut case = Case::of_types("rotary_tables", &[DType::F32, dtype], what);
                let frequencies = case.input("frequencies", DType::F32, half, Values::Uniform(0.0, 1.0));
                let [cos, sin] =
                    ["cos", "sin"].map(|name| case.output(name, dtype, rows * copies * half, ErrorBound::Formula));
                session.check(&case, |at| Rotary::Tables {
                    frequencies: at[frequencies],
                    cos: at[cos],
                    sin: at[sin],
                    scaling: 1.25,
                    copies,
                });
            }
        }
        // The types of queries or keys, of the tables, and of the result. The last are autocast's.
        let types = [[DType::F32; 3], [DType::F16; 3], [DType::Bf16; 3], [DType::Bf16, DType::F32, DType::F32]];
        for [src_type, table_type, dst_type] in types {
            // In the last two, a part of each head is not rotated.
            for [batch, heads, rows, head_size, rest] in [
                [1, 1, 1, 2, 0],
                [2, 3, 5, 8, 0],
                [2, 4, 33, 64, 0],
                [1, 8, 129, 128, 0],
                [2, 3, 7, 12, 4],
                [1, 4, 33, 96, 32],
            ] {
                let pairs = [(false, false), (true, false), (true, true)];
                for ((neighbours, once), what) in pairs.into_iter().flat_map(|pairs| PASSES.map(|what| (pairs, what))) {
                    let shape = RotaryShape { batch, heads, rows, head_size, neighbours };
                    let pairs = match (neighbours, once) {
                        (false, _) => "",
                        (true, false) => ", neighbours",
                        (true, true) => ", neighbours with one value",
                    };
                    let title =
                        format!("{batch} × {heads} heads × {rows} rows × {head_size} and {rest}{pairs}, {what}");
                    let mut case = Case::of_types("rotary", &[src_type, table_type, dst_type], title);
                    let whole = head_size + rest;
                    let src = case.input("src", src_type, batch * heads * rows * whole, Values::STANDARD);
                    let tables = ["cos", "sin"];
                    let len = if once { shape.table() / 2 } else { shape.table() };
                    let [cos, sin] = tables.map(|name| case.input(name, table_type, len, Values::Uniform(-1.0, 1.0)));
                    let adds = what == "backward of the cosine";
                    let dst = if adds {
                        case.update("dst", dst_type, shape.len(), Values::STANDARD, ErrorBound::Formula)
                    } else {
                        case.output("dst", dst_type, shape.len(), ErrorBound::Formula)
                    };
                    // The layout that projections give queries, and the layout head by head.
                    let side_by_side = [rows * heads * head_size, head_size, heads * head_size];
                    let from = [rows * heads * whole, whole, heads * whole];
                    let by_head = [heads * rows * head_size, rows * head_size, head_size];
                    session.check(&case, |at| Rotary::Rotate {
                        shape,
                        src: at.heads(src, 0, from),
                        dst: at.heads(dst, 0, if what == "forward" { side_by_side } else { by_head }),
                        pass: match what {
                            "forward" => RotaryPass::Forward([at[cos], at[sin]]),
                            "backward of the sine" => RotaryPass::BackwardOfSine(at[sin]),
                            _ => RotaryPass::BackwardOfCosine(at[cos]),
                        },
                    });
                }
            }
        }
    }
}
