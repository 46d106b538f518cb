//! Mixtures of experts, op by op as transformers runs them on a GPU (`grouped_mm`): rows are sorted by their expert, and one
//! product serves all experts. No size depends on how many rows an expert gets.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, MatrixView, Operand, kernels};

use super::embedding::sort_storage;

/// Which experts the rows of a batch go to.
pub struct Routes {
    /// The logits of the router, which the router's caller holds.
    _logits: Tensor,
    /// The factors on the outputs of each row's experts.
    shares: Tensor,
    /// The experts of each row.
    experts: Tensor,
}

/// How shares are computed from probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterRule {
    /// Number of experts per row.
    pub chosen: usize,
    /// The shares of a row are divided by their sum.
    pub normalises: bool,
    /// Shares are cast back to the type of the logits, which softmax widened (Qwen); else the logits were cast before it (Mixtral).
    pub narrows: bool,
    /// Logits are cast to f32 first, and shares to the type of the rows (GraniteMoE).
    pub widens: bool,
    /// The largest logits are chosen first, and softmax covers only them, in their type (gpt-oss).
    pub of_chosen: bool,
}

/// Rows, repeated for each of their experts and sorted by expert.
pub(super) struct SortedRows {
    pub rows: Tensor,
    pub shares: Tensor,
    /// The expert of each sorted row.
    pub experts: Tensor,
    /// Where each row was before the sort.
    pub order: Tensor,
    /// Where the rows of each expert end.
    pub ends: Tensor,
    /// Marks rows of other ranks' experts; there are none.
    pub mask: Tensor,
    /// Variables of the forward that have no other owner.
    _locals: [Tensor; 2],
}

/// The layout of the experts' matrices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// (outputs, inputs).
    Transposed,
    /// (inputs, outputs).
    Plain,
}

impl Routes {
    /// The routes from `logits`.
    pub(super) const fn new(logits: Tensor, shares: Tensor, experts: Tensor) -> Self {
        Self { _logits: logits, shares, experts }
    }

    /// The factors on the outputs of the experts.
    #[must_use]
    pub const fn shares(&self) -> &Tensor {
        &self.shares
    }

    /// The experts of each row.
    pub(super) const fn experts(&self) -> &Tensor {
        &self.experts
    }
}

/// A sort of up to this many numbers needs no storage.
const SORTED_IN_PLACE: usize = 4096;
/// Nor does a radix sort of up to this many, which one thread block does.
const ONE_TILE: usize = 2304;
/// Storage of a running sum with one number per expert.
const SUM_STORAGE: usize = 1023;
/// CUTLASS's bytes per multiprocessor for a product.
const PRODUCT_STORAGE: usize = 512;

impl Context {
    /// `input` as rows: a view, which runs backward after the ops recorded before it.
    #[must_use]
    pub fn as_rows(&mut self, input: &Tensor) -> Tensor {
        if !self.differentiates(&[input]) {
            return input.clone();
        }
        let source = self.record("viewBackward", [Some(input), None, None], |_, [grad, ..]| Ok([grad, None, None]));
        input.clone().with_source(source)
    }

    /// The experts that `logits` (…, experts) choose for rows of the type `rows`, and their probabilities.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn routes(&mut self, logits: Tensor, rule: RouterRule, rows: DType) -> OpResult<Routes> {
        if rule.of_chosen {
            let logits = if rule.widens { self.converted(logits, DType::F32, "logits in f32")? } else { logits };
            let (largest, experts) = self.top_k(&logits, rule.chosen)?;
            let shares = self.softmax(&largest, largest.dtype())?;
            let shares = if rule.widens { self.converted(shares, rows, "shares in the type of rows")? } else { shares };
            return Ok(Routes { _logits: logits, shares, experts });
        }
        let probabilities = if rule.narrows {
            self.softmax_in_f32(&logits)?
        } else {
            let wide = self.converted(logits.clone(), DType::F32, "logits in f32")?;
            self.softmax_in_f32(&wide)?
        };
        let (largest, experts) = self.top_k(&probabilities, rule.chosen)?;
        let shares = if rule.normalises { self.normalised_in_place(largest, false)?.0 } else { largest };
        let shares = if rule.narrows && shares.dtype() != logits.dtype() {
            self.cast(&shares, logits.dtype(), "shares in the type of the logits")?
        } else {
            shares
        };
        Ok(Routes { _logits: logits, shares, experts })
    }

    /// The outputs of each row's experts, times their shares: `down(silu(gate(x)) · up(x))`, where `gate_up` (experts, twice as
    /// many hidden values, width) computes gate and up, and `down` is (experts, width, hidden values). With `parts`, these are
    /// some hidden values of each expert, and other ranks have the others.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn experts(
        &mut self,
        input: &Tensor,
        routes: &Routes,
        [gate_up, down]: [&Tensor; 2],
        parts: bool,
    ) -> OpResult<Tensor> {
        let chosen = routes.shares.shape().last();
        let count = gate_up.shape().dims().first().copied().unwrap_or(1);
        let [input, shares] = [input, &routes.shares].map(|tensor| match parts {
            true => self.with_gradient_of_ranks(tensor),
            false => tensor.clone(),
        });
        let input = &input;
        let mut sorted = self.sorted_by_expert(input, (&shares, &routes.experts), count)?;
        self.fill_masked_in_place(&mut sorted)?;
        let hidden = {
            let both = self.grouped_product(&sorted.rows, (gate_up, Lie::Transposed), &sorted.ends)?;
            let both = self.without_masked(both, &sorted.mask)?;
            let [gate, up] = self.halves(&both);
            drop(both);
            let activated = self.silu(&gate)?;
            self.mul(&activated, &up)?
        };
        let output = self.grouped_product(&hidden, (down, Lie::Transposed), &sorted.ends)?;
        drop(hidden);
        let output = self.without_masked(output, &sorted.mask)?;
        let sum = self.summed_by_shares(output, sorted, (input, chosen))?;
        if parts {
            self.sum_in_place(&sum)?;
        }
        Ok(sum)
    }

    /// The experts' outputs for each position times their shares, summed, in the type of the input.
    pub(super) fn summed_by_shares(
        &mut self,
        output: Tensor,
        sorted: SortedRows,
        (input, chosen): (&Tensor, usize),
    ) -> OpResult<Tensor> {
        let weighted = self.times_shares(&output, &sorted.shares)?;
        let (back, places) = self.in_their_order(weighted, &sorted.order)?;
        let sum = self.sum_of_each(&back, input.shape(), chosen)?;
        let sum = if sum.dtype() == input.dtype() { sum } else { self.cast(&sum, input.dtype(), "output of experts")? };
        drop((sorted, output, back, places));
        Ok(sum)
    }

    /// `torch.topk(input, k)`. Saves the indices.
    pub(super) fn top_k(&mut self, input: &Tensor, k: usize) -> OpResult<(Tensor, Tensor)> {
        self.op("topk", |cx| {
            let (cols, shape) = (input.shape().last(), input.shape());
            let values = cx.activation(shape.with_last(k), input.dtype(), "largest probabilities")?;
            let indices = cx.activation(shape.with_last(k), DType::I64, "chosen experts")?;
            let [src, largest, at] = [input, &values, &indices].map(Tensor::operand);
            cx.launch(kernels::Routing::TopK { src, values: largest, indices: at, cols, k })?;
            if !cx.differentiates(&[input]) {
                return Ok((values, indices));
            }
            let saved = cx.save(&indices)?;
            let source = cx.record("topkBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                let dst = cx.temporary(shape, grad.dtype(), "gradient of probabilities")?;
                let [grad, indices, to] = [&grad, &indices, &dst].map(Tensor::operand);
                cx.launch(kernels::Routing::TopKBackward { grad, indices, dst: to, cols, k })?;
                Ok([Some(dst), None, None])
            });
            Ok((values.with_source(source), indices))
        })
    }

    /// `values /= values.sum(dim=-1, keepdim=True)`; with `raised`, a negligible number is added to the sum. Saves the dividend
    /// and the divisor, which is returned too.
    pub(super) fn normalised_in_place(&mut self, values: Tensor, raised: bool) -> OpResult<(Tensor, Tensor)> {
        self.op("div_", |cx| {
            let (shape, dtype) = (values.shape(), values.dtype());
            let (rows, k) = (shape.rows(), shape.last());
            // Autocast sums in f32.
            let wide = if raised && cx.autocast.dtype().is_some() && dtype != DType::F64 { DType::F32 } else { dtype };
            #[expect(clippy::cast_precision_loss, reason = "experts are few")]
            let each = k as f64;
            let of_rows = Shape::new(&[rows]);
            // Holds the reciprocal of the sum, which is all that its readers need.
            let before = raised.then(|| cx.temporary(of_rows, wide, "sum of shares alone")).transpose()?;
            let sums = cx.activation(of_rows, wide, "sum of shares")?;
            drop(before);
            cx.launch(kernels::Sums::Mean {
                src: values.operand(),
                dst: sums.operand(),
                outer: rows,
                middle: k,
                inner: 1,
            })?;
            cx.launch(kernels::Elementwise::Scale { src: sums.operand(), dst: sums.operand(), factor: each })?;
            cx.launch(kernels::Elementwise::Rsqrt { src: sums.operand(), dst: sums.operand() })?;
            cx.launch(kernels::Elementwise::Mul { a: sums.operand(), b: sums.operand(), dst: sums.operand() })?;
            let divide = |cx: &Self| {
                let (a, b) = (values.operand(), sums.operand());
                cx.launch(kernels::Elementwise::MulRows { a, b, dst: a, cols: k })
            };
            if !cx.differentiates(&[&values]) {
                divide(cx)?;
                return Ok((values, sums));
            }
            let original = cx.activation(shape, dtype, "shares before their division")?;
            cx.launch(kernels::Elementwise::Cast { src: values.operand(), dst: original.operand() })?;
            let saved = [cx.save(&sums)?, cx.save(&original)?];
            divide(cx)?;
            let source = cx.record("div_Backward", [Some(&values), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // In the alphabetical order of their names: other, self.
                let [reciprocals, original] = [saved[0].unpack(cx)?, saved[1].unpack(cx)?];
                // The quotient, the quotient divided once more, and −grad, before their product.
                let parts = [
                    cx.temporary(shape, wide, "quotient")?,
                    cx.temporary(shape, wide, "quotient divided")?,
                    cx.temporary(shape, dtype, "negative gradient")?,
                ];
                let product = cx.temporary(shape, wide, "gradient of the divisor")?;
                let of_product = product.operand();
                let (a, b) = (grad.operand(), original.operand());
                cx.launch(kernels::Elementwise::MulRows { a, b, dst: of_product, cols: 1 })?;
                drop(parts);
                let quotient = cx.temporary(shape, wide, "gradient of shares")?;
                let b = reciprocals.operand();
                cx.launch(kernels::Elementwise::MulRows { a, b, dst: quotient.operand(), cols: k })?;
                // Divides by the square of the sum.
                for _ in 0..2 {
                    cx.launch(kernels::Elementwise::MulRows { a: of_product, b, dst: of_product, cols: k })?;
                }
                // Casts and sums come after the node.
                drop((original, reciprocals));
                let dst = cx.cast_gradient(&quotient, dtype)?;
                drop(quotient);
                let sum = cx.temporary(of_rows, wide, "gradient of the sum")?;
                let of_sum = sum.operand();
                let (src, to) = (of_product, dst.operand());
                cx.launch(kernels::Sums::Mean { src, dst: of_sum, outer: rows, middle: k, inner: 1 })?;
                // The negative sum is computed from a mean, and spread as the gradient of a mean, which divides once more.
                cx.launch(kernels::Elementwise::Scale { src: of_sum, dst: of_sum, factor: -each * each })?;
                let spread = |cx: &Self, over: Operand| {
                    cx.launch(kernels::Sums::MeanBackward {
                        grad: of_sum,
                        dst: over,
                        outer: rows,
                        middle: k,
                        inner: 1,
                    })?;
                    cx.launch(kernels::Elementwise::Add { a: to, b: over, dst: to })
                };
                if wide == dtype {
                    spread(cx, of_product)?;
                } else {
                    drop((product, grad, saved));
                    let narrow = cx.temporary(shape, dtype, "gradient of the sum of each")?;
                    spread(cx, narrow.operand())?;
                }
                Ok([Some(dst), None, None])
            });
            Ok((values.with_source(source), sums))
        })
    }

    /// Sorts the rows of `input`, repeated for each of their experts, by expert: `input[torch.sort(experts)[1] // k]`, and their shares.
    pub(super) fn sorted_by_expert(
        &mut self,
        input: &Tensor,
        (shares, experts): (&Tensor, &Tensor),
        count: usize,
    ) -> OpResult<SortedRows> {
        let (n, each, width) = (experts.numel(), experts.shape().last(), input.shape().last());
        let of_all = Shape::new(&[n]);
        let groups = experts.operand();
        let (sorted, order) = self.op("sort", |cx| {
            let sorted = cx.activation(of_all, DType::I64, "sorted experts")?;
            let order = cx.activation(of_all, DType::I64, "order of rows")?;
            let _positions = cx.temporary(of_all, DType::I64, "positions")?;
            let _storage = (n > SORTED_IN_PLACE).then(|| cx.scratch(sort_storage(n), "sort storage")).transpose()?;
            OpResult::Ok((sorted, order))
        })?;
        let rows = self.op("floor_divide", |cx| {
            let rows = cx.activation(of_all, DType::I64, "rows of the order")?;
            let [sorted, order, of_rows] = [&sorted, &order, &rows].map(Tensor::operand);
            cx.launch(kernels::Routing::GroupRows { groups, sorted, order, rows: of_rows, count, each })?;
            OpResult::Ok(rows)
        })?;
        let taken = self.rows_at(input, &rows, Shape::new(&[n, width]), "rows by expert")?;
        drop(rows);
        let taken_shares = self.rows_at(shares, &order, of_all, "shares by expert")?;
        let (narrow, counts, ends) = self.op("histc", |cx| {
            let narrow = cx.temporary(of_all, DType::I32, "experts in 32 bits")?;
            let counts = cx.temporary(Shape::new(&[count]), DType::I32, "rows of each expert")?;
            let ends = cx.activation(Shape::new(&[count]), DType::I32, "where experts end")?;
            drop(cx.scratch(SUM_STORAGE, "storage of the running sum")?);
            cx.launch(kernels::Routing::GroupEnds { groups, ends: ends.operand() })?;
            OpResult::Ok((narrow, counts, ends))
        })?;
        let mask = self.op("ge", |cx| {
            let mask = cx.activation(of_all, DType::U8, "rows of no expert")?;
            cx.launch(kernels::Elementwise::Fill { dst: mask.operand(), value: 0.0 })?;
            OpResult::Ok(mask)
        })?;
        let _locals = [narrow, counts];
        Ok(SortedRows { rows: taken, shares: taken_shares, experts: sorted, order, ends, mask, _locals })
    }

    /// `input[indices]` by rows, or by elements if the result has one dimension. Saves the indices.
    pub(super) fn rows_at(
        &mut self,
        input: &Tensor,
        indices: &Tensor,
        shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        self.op("index", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let width = shape.numel() / shape.dims().first().copied().unwrap_or(1).max(1);
            let saved = if differentiates { Some(cx.save(indices)?) } else { None };
            let output = cx.activation(shape, input.dtype(), what)?;
            let [weight, at, dst] = [input, indices, &output].map(Tensor::operand);
            cx.launch(kernels::Embedding::Forward { weight, indices: at, dst, width })?;
            let Some(saved) = saved else { return Ok(output) };
            let source_shape = input.shape();
            let source = cx.record("indexBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                Ok([Some(cx.put_back(&grad, &indices, source_shape, width)?), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `zeros.index_put_([indices], grad, accumulate=True)`: the indices are sorted first.
    fn put_back(&self, grad: &Tensor, indices: &Tensor, shape: Shape, width: usize) -> OpResult<Tensor> {
        let dst = self.temporary(shape, grad.dtype(), "gradient of what was indexed")?;
        let n = indices.numel();
        let list = |what| self.temporary(Shape::new(&[n]), DType::I64, what);
        let wrapped = list("indices from 0 on")?;
        let linear = list("linear indices")?;
        drop(wrapped);
        let sorted = [list("sorted indices")?, list("original positions")?, list("positions")?];
        let _storage = self.scratch(put_storage(n, shape.numel() / width.max(1)), "sort storage")?;
        let [from, at, to] = [grad, indices, &dst].map(Tensor::operand);
        self.launch(kernels::Embedding::Backward { grad: from, indices: at, dst: to, width })?;
        drop((sorted, linear));
        Ok(dst)
    }

    /// `rows.masked_fill_(mask, 0)`; backward fills a copy of the gradient in the same way. Saves the mask.
    pub(super) fn fill_masked_in_place(&mut self, sorted: &mut SortedRows) -> OpResult<()> {
        let source = self.op("masked_fill_", |cx| cx.record_masked(&sorted.rows, &sorted.mask))?;
        if let Some(source) = source {
            sorted.rows = sorted.rows.clone().with_source(source);
        }
        Ok(())
    }

    /// `input.masked_fill(mask, 0)`, a copy. Saves the mask.
    pub(super) fn without_masked(&mut self, input: Tensor, mask: &Tensor) -> OpResult<Tensor> {
        self.op("masked_fill", |cx| {
            let output = cx.activation(input.shape(), input.dtype(), "rows of experts")?;
            cx.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
            let source = cx.record_masked(&input, mask)?;
            Ok(match source {
                Some(source) => output.with_source(source),
                None => output,
            })
        })
    }

    fn record_masked(&mut self, input: &Tensor, mask: &Tensor) -> OpResult<Option<crate::tensor::GradientTarget>> {
        if !self.differentiates(&[input]) {
            return Ok(None);
        }
        let saved = self.save(mask)?;
        let source = self.record("masked_fillBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let _mask = saved.unpack(cx)?;
            let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of rows of experts")?;
            cx.launch(kernels::Elementwise::Cast { src: grad.operand(), dst: dst.operand() })?;
            Ok([Some(dst), None, None])
        });
        Ok(Some(source))
    }

    /// Multiplies every row by the matrix of its expert: `grouped_mm(rows, weight, offs=ends)`, or the same with
    /// `weight.transpose(-2, -1)`. Saves the rows if the weight requires a gradient, and the weight if the rows do.
    pub(super) fn grouped_product(
        &mut self,
        rows: &Tensor,
        (weight, lie): (&Tensor, Lie),
        ends: &Tensor,
    ) -> OpResult<Tensor> {
        let &[groups, first, second] = weight.shape().dims() else { return Ok(rows.clone()) };
        let ([outputs, inputs], [forth, back]) = match lie {
            Lie::Transposed => ([first, second], [[1, second], [second, 1]]),
            Lie::Plain => ([second, first], [[second, 1], [1, second]]),
        };
        let rows = if rows.dtype() == weight.dtype() {
            rows.clone()
        } else {
            self.cast(rows, weight.dtype(), "rows in the type of the weight")?
        };
        let rows = &rows;
        self.op("grouped_mm", |cx| {
            let differentiates = cx.differentiates(&[rows, weight]);
            let save = |cx: &mut Self, condition: bool, tensor: &Tensor| {
                (differentiates && condition).then(|| cx.save(tensor)).transpose()
            };
            let saved_rows: Option<SavedVariable> = save(cx, weight.requires_grad(), rows)?;
            let saved_weight: Option<SavedVariable> = save(cx, rows.requires_grad(), weight)?;
            let saved_ends = save(cx, true, ends)?;
            let n = rows.shape().rows();
            let output = cx.activation(Shape::new(&[n, outputs]), rows.dtype(), "products of experts")?;
            cx.set_grouped_product_up(groups, rows.dtype())?;
            cx.launch(kernels::Routing::GroupedGemm {
                n: outputs,
                k: inputs,
                a: rows.operand(),
                b: matrices(weight, forth),
                dst: output.operand(),
                ends: ends.operand(),
            })?;
            let Some(saved_ends) = saved_ends else { return Ok(output) };
            let shape = weight.shape();
            let source = cx.record("grouped_mmBackward", [Some(rows), Some(weight), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // In the alphabetical order of their names: mat2, offs, self. Recomputed tensors of a checkpoint are freed with the node.
                let weight = saved_weight.map(|saved| saved.unpack(cx)).transpose()?;
                let ends = saved_ends.unpack(cx)?;
                let rows = saved_rows.map(|saved| saved.unpack(cx)).transpose()?;
                let of_ends = ends.operand();
                let result = |cx: &Self, shape: Shape, what| {
                    let dst = cx.temporary(shape, grad.dtype(), what)?;
                    cx.set_grouped_product_up(groups, grad.dtype())?;
                    OpResult::Ok(dst)
                };
                // The second argument's gradient comes first: its name (mat2) sorts before self.
                let to_weight = rows.as_ref().map(|_| result(cx, shape, "weight gradient")).transpose()?;
                if let (Some(rows), Some(dst)) = (&rows, &to_weight) {
                    let (a, b) = if lie == Lie::Plain { (rows, &grad) } else { (&grad, rows) };
                    let [a, b, dst] = [a, b, dst].map(Tensor::operand);
                    cx.launch(kernels::Routing::GroupedGemmOuter { m: first, n: second, a, b, dst, ends: of_ends })?;
                }
                let of_rows = Shape::new(&[n, inputs]);
                let to_rows = weight.as_ref().map(|_| result(cx, of_rows, "input gradient")).transpose()?;
                if let (Some(weight), Some(dst)) = (&weight, &to_rows) {
                    let ([a, dst], b) = ([&grad, dst].map(Tensor::operand), matrices(weight, back));
                    cx.launch(kernels::Routing::GroupedGemm { n: inputs, k: outputs, a, b, dst, ends: of_ends })?;
                }
                Ok([to_rows, to_weight, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The setup of a bf16 product in one kernel for all groups: sizes, strides and pointers of the groups, and CUTLASS's
    /// workspace. Other types and older cards run group by group.
    fn set_grouped_product_up(&self, groups: usize, dtype: DType) -> OpResult<()> {
        let policy = self.workspaces.policy;
        if dtype != DType::Bf16 || !matches!(policy.compute_capability, 90 | 100) {
            return Ok(());
        }
        let (sizes, strides, pointers) = (12 * groups, 3 * 8 * groups, 3 * (8 * groups).next_multiple_of(16));
        let _arguments = self.scratch(sizes + strides + pointers, "arguments of the groups")?;
        let _storage = self.scratch(PRODUCT_STORAGE * policy.multiprocessors, "workspace of the product")?;
        Ok(())
    }

    /// Every row times its share, in the wider of both types. Saves both.
    pub(super) fn times_shares(&mut self, rows: &Tensor, shares: &Tensor) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[rows, shares]);
            let saved = if differentiates { Some((cx.save(rows)?, cx.save(shares)?)) } else { None };
            let (of_rows, of_shares) = (rows.dtype(), shares.dtype());
            let wide = if of_shares.size() > of_rows.size() { of_shares } else { of_rows };
            let output = cx.activation(rows.shape(), wide, "rows times shares")?;
            let cols = rows.shape().last();
            cx.launch(kernels::Elementwise::MulRows {
                a: rows.operand(),
                b: shares.operand(),
                dst: output.operand(),
                cols,
            })?;
            let Some((saved_rows, saved_shares)) = saved else { return Ok(output) };
            let source = cx.record("mulBackward", [Some(rows), Some(shares), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The second argument and its gradient come first: its name (other) sorts before self.
                let shares = saved_shares.unpack(cx)?;
                let rows = saved_rows.unpack(cx)?;
                let products = cx.product_of(&grad, &rows, "gradient times rows")?;
                let wide = cx.temporary(grad.shape(), grad.dtype(), "gradient of rows")?;
                let (a, b) = (grad.operand(), shares.operand());
                cx.launch(kernels::Elementwise::MulRows { a, b, dst: wide.operand(), cols })?;
                let (n, shape) = (shares.numel(), shares.shape());
                drop((rows, shares));
                // Casts and sums come after the node.
                let to_rows = cx.cast_gradient(&wide, of_rows)?;
                drop(wide);
                let to_shares = cx.temporary(shape, grad.dtype(), "gradient of shares")?;
                let (src, sums) = (products.operand(), to_shares.operand());
                cx.launch(kernels::Sums::Mean { src, dst: sums, outer: n, middle: cols, inner: 1 })?;
                #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
                cx.launch(kernels::Elementwise::Scale { src: sums, dst: sums, factor: cols as f64 })?;
                drop(products);
                let to_shares = cx.cast_gradient(&to_shares, of_shares)?;
                drop(grad);
                Ok([Some(to_rows), Some(to_shares), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Rows in the order before the sort into `order`, and where each of them was.
    fn in_their_order(&mut self, rows: Tensor, order: &Tensor) -> OpResult<(Tensor, Tensor)> {
        let shape = rows.shape();
        let places = self.op("index_put_", |cx| {
            let places = cx.activation(order.shape(), DType::I64, "places of rows")?;
            let _numbers = cx.temporary(order.shape(), DType::I64, "numbers of rows")?;
            cx.launch(kernels::Routing::Invert { order: order.operand(), dst: places.operand() })?;
            OpResult::Ok(places)
        })?;
        let back = self.rows_at(&rows, &places, shape, "rows in their order")?;
        Ok((back, places))
    }

    /// The sum of each `chosen` rows, in the shape of the input: `rows.view(tokens, k, width).sum(dim=1)`.
    fn sum_of_each(&mut self, rows: &Tensor, shape: Shape, chosen: usize) -> OpResult<Tensor> {
        self.op("sum", |cx| {
            let (outer, inner, of_all) = (shape.rows(), shape.last(), rows.shape());
            #[expect(clippy::cast_precision_loss, reason = "experts are few")]
            let factor = chosen as f64;
            let output = cx.activation(shape, rows.dtype(), "sum over experts")?;
            let (src, dst) = (rows.operand(), output.operand());
            cx.launch(kernels::Sums::Mean { src, dst, outer, middle: chosen, inner })?;
            cx.launch(kernels::Elementwise::Scale { src: dst, dst, factor })?;
            if !cx.differentiates(&[rows]) {
                return Ok(output);
            }
            let source = cx.record("sumBackward", [Some(rows), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let copy = cx.temporary(of_all, grad.dtype(), "gradient of each expert")?;
                let dst = copy.operand();
                cx.launch(kernels::Sums::MeanBackward { grad: grad.operand(), dst, outer, middle: chosen, inner })?;
                cx.launch(kernels::Elementwise::Scale { src: dst, dst, factor })?;
                Ok([Some(copy), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}

/// One matrix for each expert, with the given strides.
fn matrices(weight: &Tensor, [row_stride, col_stride]: [usize; 2]) -> MatrixView {
    let each = weight.shape().dims().iter().skip(1).product();
    MatrixView { address: weight.address(), dtype: weight.dtype(), row_stride, col_stride, batch_stride: each }
}

/// Storage for sorting `n` indices into `rows` rows: by as many bits as these numbers have, in whole bytes.
fn put_storage(n: usize, rows: usize) -> usize {
    const DIGITS: usize = 8 * 256;
    if n <= ONE_TILE {
        return 1;
    }
    let bits = rows.saturating_sub(1).checked_ilog2().map_or(1, |bits| bits as usize + 1);
    sort_storage(n) - DIGITS * (8 - bits.div_ceil(8).min(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from histories of PyTorch 2.11 on a card of sm_90.
    #[test]
    fn storage_of_sorts_is_what_pytorch_asked_for() {
        for (n, rows, bytes) in [
            (2049, 1024, 1),
            (3072, 1536, 54_783),
            (4096, 2048, 71_167),
            (16_384, 8192, 270_847),
            (131_072, 65_536, 2_131_455),
            (524_288, 262_144, 8_511_999),
        ] {
            assert_eq!(put_storage(n, rows), bytes, "{n} indices");
        }
        assert_eq!([4097, 131_072].map(sort_storage), [83_967, 2_143_743]);
    }
}
