//! The modules of image nets: convolutions and batch norm.

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, RunningStatistics, Shape, Tensor};

use super::parameters::Parameters;

/// The direction of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From an image to windows of it.
    Down,
    /// Back: a transposed convolution.
    Up,
}

/// Windows of a convolution: side, stride, padding.
pub(super) type KernelWindow = [usize; 3];

/// A convolution, by default without a bias.
pub(super) struct Convolution {
    scope: NameId,
    weight: Tensor,
    bias: Option<Tensor>,
    windows: KernelWindow,
    direction: Direction,
}

impl Convolution {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        direction: Direction,
        [inputs, outputs]: [usize; 2],
        windows: KernelWindow,
    ) -> OpResult<Self> {
        let [first, second] = match direction {
            Direction::Down => [outputs, inputs],
            Direction::Up => [inputs, outputs],
        };
        let side = windows[0];
        let weight = all.weight(cx, &format!("{name}.weight"), &[first, second, side, side])?;
        Ok(Self { scope: cx.memory().name(name), weight, bias: None, windows, direction })
    }

    /// From an image to windows of it, with a bias.
    pub fn biased(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        channels: [usize; 2],
        windows: KernelWindow,
    ) -> OpResult<Self> {
        let plain = Self::make(cx, all, name, Direction::Down, channels, windows)?;
        let bias = all.bias(cx, &format!("{name}.bias"), channels[1])?;
        Ok(Self { bias: Some(bias), ..plain })
    }
}

impl Repeatable for Convolution {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let [_, stride, padding] = self.windows;
        let run = |cx: &mut Context| match self.direction {
            Direction::Down => cx.conv2d(input, &self.weight, self.bias.as_ref(), stride, padding),
            Direction::Up => cx.conv_transpose2d(input, &self.weight, stride, padding),
        };
        let parameters = std::iter::once(&self.weight).chain(&self.bias);
        cx.module(self.scope, |cx| cx.with_parameters(parameters, run))
    }
}

/// Batch norm with scale and shift, and running statistics.
pub(super) struct BatchNorm {
    scope: NameId,
    weight: Tensor,
    bias: Tensor,
    running: RunningStatistics,
}

impl BatchNorm {
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, channels: usize) -> OpResult<Self> {
        let weight = all.weight(cx, &format!("{name}.weight"), &[channels])?;
        let bias = all.bias(cx, &format!("{name}.bias"), channels)?;
        let each = Shape::new(&[channels]);
        let running = RunningStatistics {
            mean: cx.buffer(&format!("{name}.running_mean"), each, DType::F32, 0.0)?,
            variance: cx.buffer(&format!("{name}.running_var"), each, DType::F32, 1.0)?,
            batches: cx.buffer(&format!("{name}.num_batches_tracked"), Shape::new(&[]), DType::I64, 0.0)?,
        };
        Ok(Self { scope: cx.memory().name(name), weight, bias, running })
    }
}

impl Repeatable for BatchNorm {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.batch_norm(input, &self.weight, &self.bias, &self.running);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight, &self.bias], run))
    }
}

impl BatchNorm {
    /// Norm, sum and activation as one op; only where [`Context::fuses_norms`].
    pub fn activated(
        &self,
        cx: &mut Context,
        input: &Tensor,
        residual: Option<&Tensor>,
        slope: f32,
    ) -> OpResult<Tensor> {
        let values = [&self.weight, &self.bias];
        let run = |cx: &mut Context| cx.batch_norm_activation(input, values, &self.running, residual, slope);
        cx.within(self.scope, |cx| cx.with_parameters(values, run))
    }
}

/// The largest value of each window.
pub(super) struct MaxPool {
    pub scope: NameId,
    pub windows: KernelWindow,
}

impl Repeatable for MaxPool {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let [side, stride, padding] = self.windows;
        cx.module(self.scope, |cx| cx.max_pool2d(input, side, stride, padding))
    }
}

/// An image cut into patches, a vector for each, with a learned vector for each place added.
pub(super) struct Patches {
    pub convolution: Convolution,
    /// (patches, width)
    pub positions: Tensor,
}

impl Repeatable for Patches {
    fn forward(&self, cx: &mut Context, image: &Tensor) -> OpResult<Tensor> {
        let patches = self.convolution.forward(cx, image)?;
        let rows = cx.pixels_as_rows(&patches);
        let sum = cx.with_parameters([&self.positions], |cx| cx.add(&rows, &self.positions))?;
        // The reference's forward holds it in `x` to its end.
        cx.keep_local(sum.clone());
        Ok(sum)
    }
}
