//! What a parameter's first values are, from the [hash](crate::hash).

use serde::Deserialize;

use vramlab_train::{Context, OpResult, Shape, Tensor, World};

use crate::hash::{unit_at, write_float};

/// What a parameter's first values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Init {
    /// All 0: biases, weights that are added to 1.
    Zero,
    /// All 1: the weights of norms.
    One,
    /// Uniform in (−bound, bound).
    Uniform(f64),
}

/// How far a model's first weights spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// As far as keeps the size of values from layer to layer: √(3 / inputs of an output).
    #[default]
    FanIn,
    /// A standard deviation of 0.02.
    Transformer,
}

impl Spread {
    /// The first values of a weight: those of a norm have one dimension.
    #[expect(clippy::cast_precision_loss, reason = "layer sizes are small")]
    pub(super) fn init(self, shape: Shape) -> Init {
        match (self, shape.dims()) {
            (_, [_]) => Init::One,
            (Self::Transformer, _) => Init::Uniform(0.02 * 3.0_f64.sqrt()),
            (Self::FanIn, shape) => {
                let inputs = shape.iter().skip(1).fold(1, |inputs: usize, dim| inputs.saturating_mul(*dim));
                Init::Uniform((3.0 / inputs as f64).sqrt())
            }
        }
    }
}

impl Init {
    /// Writes the values of parameter `number`.
    #[expect(clippy::cast_possible_truncation, reason = "f32 weights; a model has few parameters")]
    pub(super) fn write(self, cx: &Context, data: &Tensor, number: usize) -> OpResult<()> {
        match self {
            Self::Zero => write_float(cx, data, |_| 0.0),
            Self::One => write_float(cx, data, |_| 1.0),
            Self::Uniform(bound) => {
                write_float(cx, data, |i| ((2.0 * unit_at(1000 + number as u32, i) - 1.0) * bound) as f32)
            }
        }
    }

    /// Writes a rank's part of the values of parameter `number`, which has the shape `whole`: some rows, or some columns.
    #[expect(clippy::cast_possible_truncation, reason = "f32 weights; a model has few parameters")]
    pub(super) fn write_part(
        self,
        cx: &Context,
        data: &Tensor,
        number: usize,
        (whole, world): (Shape, World),
    ) -> OpResult<()> {
        let Self::Uniform(bound) = self else { return self.write(cx, data, number) };
        let (part, columns) = (data.shape().last(), whole.last());
        // The rows of a matrix, or for experts the rows of each gate and of each up projection.
        let stretches = if let &[experts, _, _] = whole.dims() { 2 * experts } else { 1 };
        let (stretch, run) = match part == columns {
            true => (whole.numel() / stretches, whole.numel() / stretches / world.size()),
            false => (columns, part),
        };
        let of_whole = move |i: usize| i / run.max(1) * stretch + world.rank() * run + i % run.max(1);
        write_float(cx, data, |i| ((2.0 * unit_at(1000 + number as u32, of_whole(i)) - 1.0) * bound) as f32)
    }
}
