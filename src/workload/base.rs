//! A linear layer that may have an adapter: its weight is unquantised, or in 4 bits.

use super::four_bit::FourBitLinear;
use super::modules::Linear;
use super::parameters::Parameters;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

/// The layer under an adapter.
pub(super) enum Base {
    Whole(Box<Linear>),
    FourBit(Box<FourBitLinear>),
}

impl Base {
    /// A layer without a bias, in 4 bits if the model's layers are.
    pub fn plain(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        Ok(match all.quantization() {
            Some(quantization) => Self::FourBit(Box::new(FourBitLinear::plain(cx, all, name, ends, quantization))),
            None => Self::Whole(Box::new(Linear::plain(cx, all, name, ends)?)),
        })
    }

    /// The same with a bias.
    pub fn biased(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        Ok(match all.quantization() {
            Some(quantization) => Self::FourBit(Box::new(FourBitLinear::biased(cx, all, name, ends, quantization)?)),
            None => Self::Whole(Box::new(Linear::make(cx, all, name, ends)?)),
        })
    }

    /// `Conv1D` of transformers, which is never quantised.
    pub fn conv1d(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        Ok(Self::Whole(Box::new(Linear::conv1d(cx, all, name, ends)?)))
    }

    /// A layer of Falcon's own, without a bias. It is never quantised: transformers converts only what is exactly an
    /// `nn.Linear`, and this is a subclass.
    pub fn product(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        Ok(Self::Whole(Box::new(Linear::plain(cx, all, name, ends)?.written_as_product())))
    }

    /// Outputs and inputs.
    pub fn sizes(&self) -> [usize; 2] {
        match self {
            Self::Whole(linear) => linear.sizes(),
            Self::FourBit(linear) => linear.sizes(),
        }
    }

    pub fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        match self {
            Self::Whole(linear) => linear.forward(cx, input),
            Self::FourBit(linear) => linear.forward(cx, input),
        }
    }

    /// The output if there is no adapter: an unquantised weight may have been converted to 8 bits.
    pub fn converted_forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        match self {
            Self::Whole(linear) => linear.converted_forward(cx, input),
            Self::FourBit(_) => self.forward(cx, input),
        }
    }

    /// The weight as a matrix, unpacked if it is in 4 bits.
    pub fn weight(&self, cx: &mut Context) -> OpResult<Tensor> {
        match self {
            Self::Whole(linear) => Ok(linear.weight().clone()),
            Self::FourBit(linear) => cx.dequantized(linear.weight()),
        }
    }

    /// The parameter of its weight.
    pub fn parameter(&self) -> &Tensor {
        match self {
            Self::Whole(linear) => linear.weight(),
            Self::FourBit(linear) => linear.weight().packed(),
        }
    }

    pub fn bias(&self) -> Option<&Tensor> {
        match self {
            Self::Whole(linear) => linear.bias(),
            Self::FourBit(linear) => linear.bias(),
        }
    }
}
