//! The modules that models are made of: parameters, and how they are used.

use vramlab_device::{DType, kernels};
use vramlab_model::{Category, NameId};
use vramlab_train::{
    AddNormOutput, Context, DetachedGraph, NextLabels, NormOutputs, OpResult, Repeatable, Shape, Tensor, TensorRole,
    TensorSplit,
};

use super::parameters::Parameters;

/// A matrix product, with a bias or without.
pub(super) struct Linear {
    scope: NameId,
    weight: Tensor,
    bias: Option<Tensor>,
    /// What the layer does with its part, if it has only one.
    role: Option<TensorRole>,
    form: LinearForm,
}

/// The module of transformers that computes the product.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinearForm {
    /// `nn.Linear`.
    Linear,
    /// `Conv1D`: the weight is (in, out) and is passed to `addmm` as it is.
    Conv1d,
    /// `FalconLinear`: `input @ weight.T`.
    Product,
}

impl Linear {
    /// The current type of its weight: under a mixed-precision policy the type in which it is gathered.
    pub fn dtype(&self) -> DType {
        self.weight.dtype()
    }

    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, [inputs, outputs]: [usize; 2]) -> OpResult<Self> {
        Self::plain(cx, all, name, [inputs, outputs])?.biased(cx, all, name, outputs)
    }

    /// Without a bias.
    pub fn plain(cx: &mut Context, all: &mut Parameters, name: &str, [inputs, outputs]: [usize; 2]) -> OpResult<Self> {
        let weight = format!("{name}.weight");
        let Some((role, [inputs_here, outputs_here])) = all.part_of(cx, name, [inputs, outputs])? else {
            let weight = all.weight(cx, &weight, &[outputs, inputs])?;
            return Ok(Self::tied(cx, name, weight));
        };
        let weight = all.split_weight(cx, &weight, [outputs, inputs], [outputs_here, inputs_here])?;
        Ok(Self { role: Some(role), ..Self::tied(cx, name, weight) })
    }

    /// The same with a bias.
    pub fn biased(mut self, cx: &mut Context, all: &mut Parameters, name: &str, outputs: usize) -> OpResult<Self> {
        let bias = format!("{name}.bias");
        self.bias = Some(match self.role {
            // Each rank adds the biases of its own outputs.
            Some(_) => all.split_bias(cx, &bias, outputs, self.weight.shape().rows())?,
            None => all.bias(cx, &bias, outputs)?,
        });
        Ok(self)
    }

    /// A column-parallel layer: each rank makes `part` of its outputs.
    pub fn column_parallel(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [inputs, outputs]: [usize; 2],
        part: usize,
    ) -> OpResult<Self> {
        let weight = all.split_weight(cx, &format!("{name}.weight"), [outputs, inputs], [part, inputs])?;
        let bias = all.split_bias(cx, &format!("{name}.bias"), outputs, part)?;
        Ok(Self { bias: Some(bias), ..Self::tied(cx, name, weight) })
    }

    /// A row-parallel layer: each rank multiplies `part` of its inputs.
    pub fn row_parallel(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [inputs, outputs]: [usize; 2],
        part: usize,
    ) -> OpResult<Self> {
        let weight = all.split_weight(cx, &format!("{name}.weight"), [outputs, inputs], [outputs, part])?;
        Self::tied(cx, name, weight).biased(cx, all, name, outputs)
    }

    /// Lets each rank keep its part of weight and bias once the model is made.
    pub fn split(&self, cx: &mut Context, how: TensorSplit) {
        if let Some(bias) = &self.bias {
            cx.split_parameters(how, [&self.weight, bias]);
        }
    }

    /// Lets each rank keep its inputs of two row-parallel layers.
    pub fn split_inputs(cx: &mut Context, layers: [&Self; 2]) {
        cx.split_parameters(TensorSplit::Inputs, layers.map(|layer| &layer.weight));
    }

    /// The output of a row-parallel layer: its products summed over the ranks, then the bias, once. The product's input is freed
    /// before the sum is made.
    pub fn reduced_forward(&self, cx: &mut Context, input: Tensor) -> OpResult<Tensor> {
        cx.module(self.scope, |cx| {
            let sum = {
                let partial = cx.linear(&input, &self.weight, None)?;
                drop(input);
                cx.reduce_from_ranks(partial)?
            };
            self.bias.as_ref().map_or_else(|| Ok(sum.clone()), |bias| cx.add(&sum, bias))
        })
    }

    /// A layer with the weight of another module, without a bias.
    pub fn tied(cx: &Context, name: &str, weight: Tensor) -> Self {
        Self { scope: cx.memory().name(name), weight, bias: None, role: None, form: LinearForm::Linear }
    }

    /// The same layer as a product with a view of the weight.
    pub fn written_as_product(self) -> Self {
        Self { form: LinearForm::Product, ..self }
    }

    /// `Conv1D` of transformers, which has a bias.
    pub fn conv1d(cx: &mut Context, all: &mut Parameters, name: &str, [inputs, outputs]: [usize; 2]) -> OpResult<Self> {
        let weight = all.weight(cx, &format!("{name}.weight"), &[inputs, outputs])?;
        Self { form: LinearForm::Conv1d, ..Self::tied(cx, name, weight) }.biased(cx, all, name, outputs)
    }

    /// A layer with some rows of the weight; all ranks get all outputs.
    pub fn gathered(cx: &Context, name: &str, weight: Tensor) -> Self {
        Self { role: Some(TensorRole::Gathered), ..Self::tied(cx, name, weight) }
    }

    /// Outputs and inputs.
    pub fn sizes(&self) -> [usize; 2] {
        let shape = self.weight.shape();
        if self.form == LinearForm::Conv1d { [shape.last(), shape.rows()] } else { [shape.rows(), shape.last()] }
    }

    /// The loss against the next of `labels`, fused with the layer; outputs are bounded by `cap`. A bias is left out.
    pub fn fused_loss(
        &self,
        cx: &mut Context,
        input: &Tensor,
        next: NextLabels<'_>,
        cap: Option<f64>,
    ) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.fused_linear_loss(input, &self.weight, next, cap);
        cx.within(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }

    pub const fn weight(&self) -> &Tensor {
        &self.weight
    }

    pub const fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The detached output without bias; its graph is `aside`. Whether the input `wants` a gradient decides which tensors that
    /// graph saves.
    pub fn aside(&self, cx: &mut Context, input: &Tensor, wants: bool, aside: &mut DetachedGraph) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.linear_aside(input, &self.weight, wants, aside);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }

    /// Its parameters.
    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.weight).chain(&self.bias)
    }
}

impl Linear {
    /// GELU of the layer's output, as one op.
    pub fn fused_gelu(&self, cx: &mut Context, input: &Tensor, tanh: bool) -> OpResult<Tensor> {
        let run = |cx: &mut Context| match &self.bias {
            Some(bias) => cx.linear_gelu(input, &self.weight, bias, tanh),
            None => cx.linear(input, &self.weight, None).and_then(|hidden| cx.gelu(&hidden, tanh)),
        };
        cx.within(self.scope, |cx| cx.with_parameters(self.parameters(), run))
    }
}

impl Repeatable for Linear {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let product = |cx: &mut Context, input: &Tensor| match &self.bias {
            Some(bias) if self.form == LinearForm::Conv1d => cx.addmm(bias, input, &self.weight),
            None if self.form == LinearForm::Product => cx.product_of_transposed(input, &self.weight),
            bias => cx.linear(input, &self.weight, bias.as_ref()),
        };
        let part = |cx: &mut Context, input: &Tensor| match (&self.bias, cx.tensor_world()) {
            (Some(bias), Some(world)) => cx.linear_of_part(input, &self.weight, bias, world.size()),
            _ => product(cx, input),
        };
        let run = |cx: &mut Context| match self.role {
            None => product(cx, input),
            Some(TensorRole::Columns) => {
                let input = cx.copy_to_ranks(input)?;
                product(cx, &input)
            }
            Some(TensorRole::Gathered) => {
                let input = cx.copy_to_ranks(input)?;
                let part = product(cx, &input)?;
                cx.gather_from_ranks(part)
            }
            Some(TensorRole::RowsOfWhole) => {
                // A variable that lives until the sum is computed.
                let own = cx.split_over_ranks(input)?;
                let part = part(cx, &own)?;
                cx.reduce_from_ranks(part)
            }
            Some(TensorRole::Rows) => {
                let part = part(cx, input)?;
                cx.reduce_from_ranks(part)
            }
        };
        cx.module(self.scope, |cx| cx.with_parameters(self.parameters(), run))
    }
}

impl Linear {
    /// The output with input and weight in f32; the layer has no bias, and is not split.
    pub fn forward_in_f32(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.linear_in_f32(input, &self.weight);
        cx.module(self.scope, |cx| cx.with_parameters(self.parameters(), run))
    }

    /// The output if torchao may have converted the layer: in 8 bits, if its sizes allow that.
    pub fn converted_forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // torchao only converts `nn.Linear`.
        if self.form == LinearForm::Conv1d || !cx.converts_to_float8(self.sizes()) {
            return self.forward(cx, input);
        }
        let run = |cx: &mut Context| cx.float8_linear(input, &self.weight, self.bias.as_ref());
        cx.module(self.scope, |cx| cx.with_parameters(self.parameters(), run))
    }
}

/// Normalises the last dimension.
pub(super) struct LayerNorm {
    scope: NameId,
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    const EPS: f32 = 1e-5;

    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, width: usize) -> OpResult<Self> {
        Ok(Self {
            scope: cx.memory().name(name),
            weight: all.weight(cx, &format!("{name}.weight"), &[width])?,
            bias: all.bias(cx, &format!("{name}.bias"), width)?,
        })
    }

    /// The norm of `x`, or of its sum with `added`, as one op that also returns the sum.
    pub fn fused(
        &self,
        cx: &mut Context,
        x: &Tensor,
        added: Option<&Tensor>,
        wanted: NormOutputs,
    ) -> OpResult<AddNormOutput> {
        let parameters = [&self.weight, &self.bias];
        let run = |cx: &mut Context| cx.add_layer_norm(x, added, parameters, Self::EPS, wanted);
        cx.within(self.scope, |cx| cx.with_parameters(parameters, run))
    }
}

impl Repeatable for LayerNorm {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.layer_norm(input, &self.weight, &self.bias, Self::EPS);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight, &self.bias], run))
    }
}

/// The rows of a table for the tokens, plus those of a second table for the positions if there is one.
pub(super) struct Embedding {
    tokens: (NameId, Tensor),
    positions: Option<(NameId, Tensor)>,
}

impl Embedding {
    /// Tables of `vocab` tokens and of `positions` positions, `wte` and `wpe`.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        [vocab, width]: [usize; 2],
        positions: Option<usize>,
    ) -> OpResult<Self> {
        let mut table = |name: &str, rows| -> OpResult<(NameId, Tensor)> {
            Ok((cx.memory().name(name), all.weight(cx, &format!("{name}.weight"), &[rows, width])?))
        };
        Ok(Self { tokens: table("wte", vocab)?, positions: positions.map(|rows| table("wpe", rows)).transpose()? })
    }

    /// The table of tokens, for a head that shares it.
    pub const fn table(&self) -> &Tensor {
        &self.tokens.1
    }
}

impl Repeatable for Embedding {
    fn forward(&self, cx: &mut Context, tokens: &Tensor) -> OpResult<Tensor> {
        let look_up = |cx: &mut Context, (scope, table): &(NameId, Tensor), rows: &Tensor| {
            cx.module(*scope, |cx| cx.with_parameters([table], |cx| cx.embedding(table, rows)))
        };
        let Some(positions) = &self.positions else { return look_up(cx, &self.tokens, tokens) };
        let rows = tokens.shape().last();
        if cx.is_stage() {
            // A stage's program creates the positions where it needs them.
            let by_token = look_up(cx, &self.tokens, tokens)?;
            let by_position = {
                let places = cx.memory().tensor(Shape::new(&[rows]), DType::I64, Category::Activation, "positions")?;
                cx.memory().launch(kernels::Elementwise::Arange { dst: places.operand() })?;
                look_up(cx, positions, &places)?
            };
            return cx.add(&by_token, &by_position);
        }
        let places = cx.memory().tensor(Shape::new(&[rows]), DType::I64, Category::Activation, "positions")?;
        match cx.past_positions() {
            0 => cx.memory().launch(kernels::Elementwise::Arange { dst: places.operand() })?,
            past => {
                let bytes: Vec<u8> = (past..past + rows).flat_map(|place| (place as i64).to_le_bytes()).collect();
                cx.memory().write(&places, &bytes)?;
            }
        }
        let by_token = look_up(cx, &self.tokens, tokens)?;
        let by_position = look_up(cx, positions, &places)?;
        // The reference's forward holds them in `pos` to its end.
        cx.keep_local(places);
        cx.add(&by_token, &by_position)
    }
}

/// An elementwise function without parameters.
pub(super) struct Activation {
    pub scope: NameId,
    pub function: fn(&mut Context, &Tensor) -> OpResult<Tensor>,
}

impl Repeatable for Activation {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        cx.module(self.scope, |cx| (self.function)(cx, input))
    }
}

/// The mean over all rows, or over an image's area.
pub(super) struct Mean {
    pub scope: NameId,
}

impl Repeatable for Mean {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let dims = if input.shape().dims().len() == 4 { 2..4 } else { 1..2 };
        cx.within(self.scope, |cx| cx.mean(input, dims))
    }
}
