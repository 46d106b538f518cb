//! The convolution that cuDNN is asked to run.

use vramlab_device::DType;

/// One of the three computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pass {
    /// The output.
    Forward,
    /// The gradient of the input.
    InputGradient,
    /// The gradient of the weight.
    WeightGradient,
}

/// How a convolution multiplies: it decides which of cuDNN's plans there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arithmetic {
    /// f32 throughout.
    F32,
    /// f32 rounded to TensorFloat-32.
    Tf32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Arithmetic {
    /// The arithmetic for tensors of this type, with TensorFloat-32 allowed or not; `None` for types that cuDNN does not compute.
    pub const fn of(dtype: DType, tf32: bool) -> Option<Self> {
        match dtype {
            DType::F32 if tf32 => Some(Self::Tf32),
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::Bf16 => Some(Self::Bf16),
            _ => None,
        }
    }
}

/// A convolution as PyTorch's user writes it, over images whose sides are equal or nearly so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub inputs: usize,
    /// Rows and columns of the input.
    pub sides: [usize; 2],
    /// Channels of the output.
    pub outputs: usize,
    /// Side of the window.
    pub kernel: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Zeros around the input; around the output where it is transposed.
    pub padding: usize,
    /// A transposed convolution: it leads from the output of a convolution of this shape to its input.
    pub transposed: bool,
}

/// Elements that a convolution reads and writes.
pub(super) struct Elements {
    pub weight: f64,
    /// Those of input and output, per image.
    pub images: f64,
}

impl Convolution {
    /// Side of the square image with as many elements.
    pub(super) fn side(&self) -> usize {
        let [height, width] = self.sides;
        if height == width { height } else { (height * width).isqrt().max(1) }
    }

    /// Whether all but the batch is the same.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        Self { batch: other.batch, ..*self } == *other
    }

    /// Side of the output of a square image.
    fn output_side(&self) -> usize {
        let (side, stride) = (self.side(), self.stride.max(1));
        if self.transposed {
            ((side.max(1) - 1) * stride + self.kernel).saturating_sub(2 * self.padding).max(1)
        } else {
            (side + 2 * self.padding).saturating_sub(self.kernel) / stride + 1
        }
    }

    pub(super) fn elements(&self) -> Elements {
        let area = |side: usize| as_f64(side) * as_f64(side);
        Elements {
            weight: as_f64(self.inputs * self.outputs) * area(self.kernel),
            images: as_f64(self.inputs) * area(self.side()) + as_f64(self.outputs) * area(self.output_side()),
        }
    }

    /// How different another shape is: ratios of channels and sides; another window weighs more.
    pub(super) fn distance(&self, other: &Self) -> f64 {
        let factor = |a: usize, b: usize| (as_f64(a.max(1)) / as_f64(b.max(1))).ln().abs();
        let differs = |differs: bool, weight: f64| if differs { weight } else { 0.0 };
        factor(self.inputs, other.inputs)
            + factor(self.outputs, other.outputs)
            + factor(self.side(), other.side())
            + 3.0 * factor(self.kernel, other.kernel)
            + differs(self.stride != other.stride, 2.0)
            + differs(self.padding != other.padding, 0.5)
            + differs(self.transposed != other.transposed, 10.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes below 2⁵³ are exact")]
pub(super) const fn as_f64(n: usize) -> f64 {
    n as f64
}
