//! Rotary position embeddings, op by op as transformers writes them.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, RotaryPass, RotaryShape, kernels};

/// Cosine and sine of every position times every frequency, each (rows, head size).
#[derive(Clone, Debug)]
pub struct RotaryTables {
    pub(super) cos: Tensor,
    pub(super) sin: Tensor,
}

impl RotaryTables {
    /// Number of a head's elements that the tables rotate.
    pub(super) fn width(&self) -> usize {
        self.cos.shape().last()
    }
}

/// How heads are rotated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Adjacent elements are a pair, instead of one element from each half.
    pub neighbours: bool,
    /// Inputs are cast to the tables' type before the products: `x.float() · cos + rotate_half(x).float() · sin`.
    pub widens: bool,
}

/// Copies of each angle in a row of a table.
#[derive(Clone, Copy)]
struct TableCopies {
    /// Those that PyTorch's table has.
    taken: usize,
    /// Those that kernels read here, which lie side by side from its begin.
    written: usize,
}

impl Context {
    /// The tables for `positions` (rows; i64, counted from 0) and `frequencies` (half of a head's elements; f32), in `dtype`:
    /// computed in f32, multiplied by `scaling`, cast. Nothing is differentiated.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_tables(
        &mut self,
        positions: &Tensor,
        frequencies: &Tensor,
        dtype: DType,
        scaling: f64,
    ) -> OpResult<RotaryTables> {
        self.copied_tables([positions, frequencies], dtype, scaling, TableCopies { taken: 2, written: 2 })
    }

    /// The same for [`Context::rotary_of_pairs`], with a value for each pair in the first half of what both copies take.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_tables_of_pairs(
        &mut self,
        positions: &Tensor,
        frequencies: &Tensor,
        dtype: DType,
        scaling: f64,
    ) -> OpResult<RotaryTables> {
        self.copied_tables([positions, frequencies], dtype, scaling, TableCopies { taken: 2, written: 1 })
    }

    /// The same as numbers on the unit circle, for [`Context::rotary_of_complex`]: cosines and sines in f32, in one tensor.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_tables_of_complex(
        &mut self,
        positions: &Tensor,
        frequencies: &Tensor,
        scaling: f64,
    ) -> OpResult<RotaryTables> {
        let (rows, half) = (positions.numel(), frequencies.numel());
        let of_pairs = Shape::new(&[rows, half]);
        let of_both = Shape::new(&[rows, 2 * half]);
        self.op("rotary_tables", |cx| {
            let as_floats = cx.temporary(Shape::new(&[rows]), DType::F32, "positions in f32")?;
            let angles = cx.temporary(Shape::new(&[half, rows]), DType::F32, "angles")?;
            let memory = cx.memory().clone();
            cx.workspaces.gemm(&memory)?;
            let lengths = cx.temporary(of_pairs, DType::F32, "lengths of one")?;
            let on_circle = cx.temporary(of_both, DType::F32, "numbers on the circle")?;
            drop(lengths);
            let scaled = cx.activation(of_both, DType::F32, "scaled numbers")?;
            drop((on_circle, as_floats, angles));
            let [cos, sin] = [0, rows * half].map(|start| scaled.window(of_pairs, start));
            cx.write_tables(frequencies, [&cos, &sin], (scaling, 1))?;
            Ok(RotaryTables { cos, sin })
        })
    }

    fn write_tables(
        &self,
        frequencies: &Tensor,
        [cos, sin]: [&Tensor; 2],
        (scaling, copies): (f64, usize),
    ) -> OpResult<()> {
        self.launch(kernels::Rotary::Tables {
            frequencies: frequencies.operand(),
            cos: cos.operand(),
            sin: sin.operand(),
            scaling,
            copies,
        })
    }

    /// The same for one half of a head, for [`Context::rotary_by_halves`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_tables_of_half(
        &mut self,
        positions: &Tensor,
        frequencies: &Tensor,
        dtype: DType,
        scaling: f64,
    ) -> OpResult<RotaryTables> {
        self.copied_tables([positions, frequencies], dtype, scaling, TableCopies { taken: 1, written: 1 })
    }

    fn copied_tables(
        &mut self,
        [positions, frequencies]: [&Tensor; 2],
        dtype: DType,
        scaling: f64,
        TableCopies { taken: copies, written }: TableCopies,
    ) -> OpResult<RotaryTables> {
        let (rows, half) = (positions.numel(), frequencies.numel());
        let table = Shape::new(&[rows, copies * half]);
        self.op("rotary_tables", |cx| {
            let as_floats = cx.temporary(Shape::new(&[rows]), DType::F32, "positions in f32")?;
            let angles = cx.temporary(Shape::new(&[half, rows]), DType::F32, "angles")?;
            let memory = cx.memory().clone();
            cx.workspaces.gemm(&memory)?;
            let twice = (copies > 1).then(|| cx.temporary(table, DType::F32, "angles twice")).transpose()?;
            let scaled = |raw, what| {
                let raw = cx.temporary(table, DType::F32, raw)?;
                let scaled = cx.activation(table, DType::F32, what)?;
                drop(raw);
                OpResult::Ok(scaled)
            };
            let wide = [scaled("cosines", "scaled cosines")?, scaled("sines", "scaled sines")?];
            let [cos, sin] = if dtype == DType::F32 {
                wide.clone()
            } else {
                [cx.activation(table, dtype, "rotary cosines")?, cx.activation(table, dtype, "rotary sines")?]
            };
            let [cos, sin] = [cos, sin].map(|table| match written == copies {
                true => table,
                false => table.window(Shape::new(&[rows, written * half]), 0),
            });
            cx.write_tables(frequencies, [&cos, &sin], (scaling, written))?;
            drop((as_floats, angles, twice, wide));
            Ok(RotaryTables { cos, sin })
        })
    }

    /// Tables for rotating adjacent elements: `table[..., : half].repeat_interleave(2, dim=-1)` of both. Kernels still read the
    /// values in the order of the original tables.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn tables_of_neighbours(&mut self, tables: &RotaryTables) -> OpResult<RotaryTables> {
        self.op("repeat_interleave", |cx| {
            let interleaved = |table: &Tensor, what| {
                let copy = cx.activation(table.shape(), table.dtype(), what)?;
                cx.copy(table, &copy)?;
                OpResult::Ok(copy)
            };
            Ok(RotaryTables {
                cos: interleaved(&tables.cos, "cosines of neighbours")?,
                sin: interleaved(&tables.sin, "sines of neighbours")?,
            })
        })
    }

    /// Queries or keys (batch, heads, rows, head size) rotated by their positions, in the wider of their type and the tables':
    /// `x · cos + rotate_half(x) · sin`. One kernel does the work of six PyTorch ops, with the blocks of all six. Saves both
    /// tables.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary(&mut self, input: &Tensor, tables: &RotaryTables, turn: Turn) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *input.shape().dims() else { return Ok(input.clone()) };
        let shape = RotaryShape { batch, heads, rows, head_size, neighbours: turn.neighbours };
        let (narrow, cos, sin) = (input.dtype(), &tables.cos, &tables.sin);
        let wide = if cos.dtype().size() > narrow.size() { cos.dtype() } else { narrow };
        let widens = turn.widens && wide != narrow;
        // With the elements in the order of a projection's output.
        let whole = Shape::new(&[batch, rows, heads * head_size]);
        let (by_head, half) = (input.shape(), Shape::new(&[batch, heads, rows, head_size / 2]));
        self.op("rotary", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let saved_cos = if differentiates { Some(cx.save(cos)?) } else { None };
            let widened = |cx: &Self, what| widens.then(|| cx.temporary(whole, wide, what)).transpose();
            let widened_input = widened(cx, "input in the wider type")?;
            let by_cos = cx.temporary(whole, wide, "product with the cosine")?;
            drop(widened_input);
            let negated = cx.temporary(half, narrow, "negated half")?;
            let turned = cx.temporary(input.shape(), narrow, "turned halves")?;
            drop(negated);
            let widened_turned = widened(cx, "turned halves in the wider type")?;
            let turned = (!widens).then_some(turned);
            let saved_sin = if differentiates { Some(cx.save(sin)?) } else { None };
            let by_sin = cx.temporary(whole, wide, "product with the sine")?;
            drop((turned, widened_turned));
            let output = cx.activation(whole, wide, "rotated")?;
            let output = output.strided(input.shape(), [rows * heads * head_size, head_size, heads * head_size, 1], 0);
            cx.launch(kernels::Rotary::Rotate {
                shape,
                src: input.heads(),
                dst: output.heads(),
                pass: RotaryPass::Forward([cos.operand(), sin.operand()]),
            })?;
            drop((by_cos, by_sin));
            let (Some(saved_cos), Some(saved_sin)) = (saved_cos, saved_sin) else { return Ok(output) };
            let source = cx.record("rotaryBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let sin = saved_sin.unpack(cx)?;
                let side_by_side = [rows * heads * head_size, head_size, heads * head_size, 1];
                let by_heads = |tensor: &Tensor| tensor.strided(by_head, side_by_side, 0);
                let mut by_sin = by_heads(&cx.temporary(whole, wide, "gradient times sine")?);
                let turned = if grad.shape().dims().len() == 4 { grad.clone() } else { by_heads(&grad) };
                cx.launch(kernels::Rotary::Rotate {
                    shape,
                    src: turned.heads(),
                    dst: by_sin.heads(),
                    pass: RotaryPass::BackwardOfSine(sin.operand()),
                })?;
                // The gradient of a product in another type is cast to the type of its factor: within the product's node, or in a
                // node of its own if the factor was cast before. Tensors that a node saved are freed when it has run; tensors
                // that a checkpoint recomputed for it, before that cast.
                let narrowed =
                    |cx: &Self, what| (wide != narrow).then(|| cx.temporary(whole, narrow, what)).transpose();
                drop(sin);
                let mut saved_sin = Some(saved_sin).filter(|_| !widens);
                if let Some(cast) = narrowed(cx, "gradient of what was turned")? {
                    let cast = by_heads(&cast);
                    cx.arrange(&by_sin, &cast)?;
                    by_sin = cast;
                }
                saved_sin.take();
                let negated = cx.temporary(half, narrow, "negated half")?;
                // The gradient of a slice has the size of the whole, and is zero elsewhere.
                let dst = cx.temporary(by_head, narrow, "gradient of the second half")?;
                drop(negated);
                let other = cx.temporary(by_head, narrow, "gradient of the first half")?;
                cx.copy(&by_sin, &dst)?;
                drop((by_sin, other));
                let cos = saved_cos.unpack(cx)?;
                let by_cos = cx.temporary(whole, wide, "gradient times cosine")?;
                let pass = RotaryPass::BackwardOfCosine(cos.operand());
                cx.launch(kernels::Rotary::Rotate { shape, src: turned.heads(), dst: dst.heads(), pass })?;
                drop((cos, turned));
                let kept = (!widens).then_some((saved_cos, grad));
                drop((narrowed(cx, "gradient of the input")?, by_cos));
                drop(kept);
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
