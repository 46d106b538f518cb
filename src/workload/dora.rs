//! DoRA as in peft: beside LoRA, the length of each row of the adapted weight is trained separately.

use super::base::Base;
use super::modules::Linear;
use super::parameters::Parameters;
use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{Context, DetachedGraph, OpResult, Repeatable, Tensor};

/// The two matrices of an adapter, and the factor on their product.
#[derive(Clone, Copy)]
pub(super) struct LowRank<'a> {
    pub a: &'a Linear,
    pub b: &'a Linear,
    pub scaling: f64,
}

/// The trained lengths of the rows of a layer's weight (peft's `DoraLinearLayer`).
pub(super) struct Magnitude {
    scope: NameId,
    lengths: Tensor,
}

impl Magnitude {
    /// The magnitudes for the layer `base` with `adapter`: the current lengths of the rows.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        base: &Base,
        adapter: LowRank<'_>,
    ) -> OpResult<Self> {
        cx.need_whole_weights("DoRA");
        all.settle(cx)?;
        let norms = {
            // A layer in 4 bits is first copied as a whole.
            let _copies = match base {
                Base::Whole(_) => Vec::new(),
                Base::FourBit(linear) => cx.copy_of_four_bit(linear.weight(), linear.bias())?,
            };
            let weight = base.weight(cx)?;
            let [b, a] = [adapter.b.weight(), adapter.a.weight()];
            // Matrices in fp16 are multiplied in f32.
            let half = a.dtype() == DType::F16;
            let wide = |cx: &mut Context, matrix: &Tensor| {
                if half { cx.cast(&matrix.detach(), DType::F32, "adapter in f32") } else { Ok(matrix.clone()) }
            };
            let (a, b) = (wide(cx, a)?, wide(cx, b)?);
            let mut change = cx.matmul(&b, &a)?;
            if half {
                change = cx.cast(&change, DType::F16, "change of the weight")?;
            }
            Self::norms(cx, &weight, &change, adapter.scaling, Tensor::clone)?
        };
        let lengths = all.computed_adapter(cx, &format!("{name}.weight"), norms);
        Ok(Self { scope: cx.memory().name(name), lengths })
    }

    /// The lengths of the rows of `weight + scaling * view(product)`.
    fn norms(
        cx: &mut Context,
        weight: &Tensor,
        product: &Tensor,
        scaling: f64,
        view: fn(&Tensor) -> Tensor,
    ) -> OpResult<Tensor> {
        let sum = {
            let scaled = cx.scale(product, scaling, "scaled change of the weight")?;
            cx.add(weight, &view(&scaled))?
        };
        cx.row_norms(&sum)
    }

    /// The addition to the output of `base`: `output` itself, scaled, or another output if dropout has changed `x`.
    pub fn forward(
        &self,
        cx: &mut Context,
        x: &Tensor,
        base: &Base,
        output: Option<&Tensor>,
        adapter: LowRank<'_>,
    ) -> OpResult<Tensor> {
        let parameters = [base.parameter(), &self.lengths].into_iter().chain(base.bias());
        cx.module(self.scope, |cx| cx.with_parameters(parameters, |cx| self.run(cx, x, base, output, adapter)))
    }

    fn run(
        &self,
        cx: &mut Context,
        x: &Tensor,
        base: &Base,
        output: Option<&Tensor>,
        adapter: LowRank<'_>,
    ) -> OpResult<Tensor> {
        let LowRank { a, b, scaling } = adapter;
        // Backward treats the lengths as constants: no gradient passes through them.
        let mut aside = DetachedGraph::default();
        let change = {
            let identity = cx.identity(a.sizes()[1], a.dtype())?;
            let low = a.aside(cx, &identity, false, &mut aside)?;
            b.aside(cx, &low, true, &mut aside)?
        };
        let change = in_type_of(cx, change, x, "change of the weight")?;
        let weight = base.weight(cx)?;
        let weight = in_type_of(cx, weight, x, "weight in the type of the input")?;
        let norms = Self::norms(cx, &weight, &change, scaling, Tensor::transpose)?;
        let factors = cx.quotient(&self.lengths, &norms, "factors of outputs")?;
        let adapted = {
            let low = a.forward(cx, x)?;
            b.forward(cx, &low)?
        };
        let output = match (output, base.bias()) {
            (Some(output), Some(bias)) => cx.subtract_columns(output, bias, "output without the bias")?,
            (Some(output), None) => output.clone(),
            (None, _) => cx.linear(x, &weight, None)?,
        };
        let more = {
            let less = cx.add_number(&factors, -1.0)?;
            cx.multiply_columns(&less, &output, "scaled output")?
        };
        let adapted = {
            let product = cx.multiply_columns(&factors, &adapted, "scaled adapter output")?;
            cx.scale(&product, scaling, "adapter output")?
        };
        cx.add(&more, &adapted)
    }
}

fn in_type_of(cx: &mut Context, tensor: Tensor, x: &Tensor, what: &'static str) -> OpResult<Tensor> {
    if tensor.dtype() == x.dtype() { Ok(tensor) } else { cx.cast(&tensor, x.dtype(), what) }
}
