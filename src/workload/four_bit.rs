//! Linear layers whose weight is in 4 bits.

use super::parameters::Parameters;
use super::quantization::Quantization;
use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{Context, FourBitWeight, OpResult, Tensor, TrainError};

/// A product with a matrix in 4 bits (bitsandbytes' `Linear4bit`), with a bias or without.
pub(super) struct FourBitLinear {
    scope: NameId,
    weight: FourBitWeight,
    bias: Option<(String, Tensor)>,
    compute: DType,
}

impl FourBitLinear {
    /// Without a bias.
    pub fn plain(
        cx: &Context,
        all: &mut Parameters,
        name: &str,
        [inputs, outputs]: [usize; 2],
        quantization: Quantization,
    ) -> Self {
        let weight = all.four_bit_weight(cx, &format!("{name}.weight"), &[outputs, inputs], quantization);
        Self { scope: cx.memory().name(name), weight, bias: None, compute: quantization.compute }
    }

    /// The same with a bias, which is not quantised.
    pub fn biased(
        cx: &Context,
        all: &mut Parameters,
        name: &str,
        ends: [usize; 2],
        quantization: Quantization,
    ) -> OpResult<Self> {
        if cx.shards_parameters() && all.dtype() != quantization.compute {
            // The forward pass would replace the gathered biases by biases in the type of products.
            let (is, needed) = (all.dtype().label(), quantization.compute.label());
            let text = format!(
                "biases of layers in 4 bits are sharded in the type of their products alone, which is {needed}, and weights are {is}; change one of them"
            );
            return Err(TrainError::Workload(text).into());
        }
        let plain = Self::plain(cx, all, name, ends, quantization);
        let name = format!("{name}.bias");
        let bias = all.bias(cx, &name, ends[1])?;
        Ok(Self { bias: Some((name, bias)), ..plain })
    }

    /// Outputs and inputs.
    pub fn sizes(&self) -> [usize; 2] {
        let shape = self.weight.shape();
        [shape.rows(), shape.last()]
    }

    pub const fn weight(&self) -> &FourBitWeight {
        &self.weight
    }

    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref().map(|(_, bias)| bias)
    }

    /// The product in its compute type, cast back to the type of the input.
    pub fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let bias = self.bias.as_ref().map(|(_, bias)| bias);
        let parameters = std::iter::once(self.weight.packed()).chain(bias);
        cx.module(self.scope, |cx| {
            cx.with_parameters(parameters, |cx| {
                let x = match input.dtype() == self.compute {
                    true => input.clone(),
                    false => cx.cast(input, self.compute, "input in the type of products")?,
                };
                if let Some((name, bias)) = &self.bias {
                    // The bias keeps that type from the first forward on.
                    cx.convert(bias, self.compute, name)?;
                }
                let output = cx.linear_4bit(&x, &self.weight, bias)?;
                let output = match output.dtype() == input.dtype() {
                    true => output,
                    false => cx.cast(&output, input.dtype(), "output in the type of the input")?,
                };
                Ok(output)
            })
        })
    }
}
