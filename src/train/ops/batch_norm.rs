//! Batch normalisation.

use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{ChannelShape, DType, ResidualGradient, kernels};

/// Running statistics of a batch norm: buffers, not parameters.
#[derive(Clone, Debug)]
pub struct RunningStatistics {
    /// Mean of each channel.
    pub mean: Tensor,
    /// Variance of each channel.
    pub variance: Tensor,
    /// Number of batches seen: one i64.
    pub batches: Tensor,
}

/// Added to the variance.
const EPS: f32 = 1e-5;
/// The weight of a batch's statistics in the running ones.
const MOMENTUM: f32 = 0.1;

impl Context {
    /// Normalises each channel of `input` (batch, channels, …), then scales by `weight` and adds `bias`. Runs in the
    /// input's type.
    ///
    /// In training it uses the statistics of the batch, moves the running ones towards them, and saves the input, the
    /// weight, and mean and reciprocal deviation of each channel. In evaluation it uses the running statistics, and
    /// saves them instead.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn batch_norm(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        running: &RunningStatistics,
    ) -> OpResult<Tensor> {
        let shape = channels(input)?;
        if self.training {
            self.batch_norm_of_batch(input, [weight, bias], running, shape)
        } else {
            self.batch_norm_of_running(input, [weight, bias], running, shape)
        }
    }

    fn batch_norm_of_batch(
        &mut self,
        input: &Tensor,
        [weight, bias]: [&Tensor; 2],
        running: &RunningStatistics,
        shape: ChannelShape,
    ) -> OpResult<Tensor> {
        self.op("batch_norm", |cx| {
            cx.launch(kernels::Elementwise::AddScalar {
                src: running.batches.operand(),
                dst: running.batches.operand(),
                value: 1.0,
            })?;
            let differentiates = cx.differentiates(&[input, weight, bias]);
            // The running statistics are saved too, though backward does not read them in training.
            let saved_inputs = if differentiates {
                let own = (cx.save(input)?, cx.save(weight)?);
                Some((own, (cx.save(&running.mean)?, cx.save(&running.variance)?)))
            } else {
                None
            };
            let output = cx.activation(input.shape(), input.dtype(), "batch_norm output")?;
            let [mean, rstd] = cx.batch_statistics(input, shape)?;
            cx.launch(kernels::BatchNorm::Forward {
                src: input.operand(),
                weight: weight.operand(),
                bias: bias.operand(),
                dst: output.operand(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                running_mean: running.mean.operand(),
                running_var: running.variance.operand(),
                shape,
                eps: EPS,
                momentum: MOMENTUM,
            })?;
            let Some((saved_inputs, saved_running)) = saved_inputs else { return Ok(output) };
            let saved_statistics = (cx.save(&mean)?, cx.save(&rstd)?);
            let inputs = [Some(input), Some(weight), Some(bias)];
            let source = cx.record("batch_normBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (src, weight) = (saved_inputs.0.unpack(cx)?, saved_inputs.1.unpack(cx)?);
                let _running = (saved_running.0.unpack(cx)?, saved_running.1.unpack(cx)?);
                let (mean, rstd) = (saved_statistics.0.unpack(cx)?, saved_statistics.1.unpack(cx)?);
                let [dsrc, dweight, dbias] = cx.batch_norm_gradients(&src, &weight, shape)?;
                cx.launch(kernels::BatchNorm::Backward {
                    grad: grad.operand(),
                    src: src.operand(),
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    weight: weight.operand(),
                    dsrc: dsrc.operand(),
                    dweight: dweight.operand(),
                    dbias: dbias.operand(),
                    shape,
                })?;
                Ok([Some(dsrc), Some(dweight), Some(dbias)])
            });
            Ok(output.with_source(source))
        })
    }

    /// Whether a batch norm and the ops after it are one op: [`Context::batch_norm_activation`].
    #[must_use]
    pub const fn fuses_norms(&self) -> bool {
        self.fused && self.training
    }

    /// [`Context::batch_norm`] in training, then the sum with `residual` if there is one, then `x > 0 ? x : slope · x`:
    /// one op in place of three.
    ///
    /// It saves the input, mean and reciprocal deviation of each channel and, with a residual, the output. In backward the
    /// output's gradient is overwritten by that of the sum or of the input, unless it is needed elsewhere.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn batch_norm_activation(
        &mut self,
        input: &Tensor,
        [weight, bias]: [&Tensor; 2],
        running: &RunningStatistics,
        residual: Option<&Tensor>,
        slope: f32,
    ) -> OpResult<Tensor> {
        let shape = channels(input)?;
        self.op("batch_norm_activation", |cx| {
            let residual = residual
                .map(|residual| {
                    cx.arranged(residual, input.layout(), "residual").map(|r| r.with_source(residual.source()))
                })
                .transpose()?;
            let residual = residual.as_ref();
            cx.launch(kernels::Elementwise::AddScalar {
                src: running.batches.operand(),
                dst: running.batches.operand(),
                value: 1.0,
            })?;
            let differentiates = cx.differentiates(&[input, weight, bias])
                || residual.is_some_and(|residual| cx.differentiates(&[residual]));
            let saved_inputs =
                if differentiates { Some((cx.save(input)?, cx.save(weight)?, cx.save(bias)?)) } else { None };
            let output = cx.laid_out_as(input, input.dtype(), "batch_norm output")?;
            let [mean, rstd] = cx.batch_statistics(input, shape)?;
            cx.launch(kernels::BatchNorm::Activation {
                src: input.flat(),
                residual: residual.map(Tensor::flat),
                weight: weight.operand(),
                bias: bias.operand(),
                dst: output.flat(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                running_mean: running.mean.operand(),
                running_var: running.variance.operand(),
                shape,
                eps: EPS,
                momentum: MOMENTUM,
                slope,
            })?;
            let Some((saved_src, saved_weight, saved_bias)) = saved_inputs else { return Ok(output) };
            let saved_statistics = (cx.save(&mean)?, cx.save(&rstd)?);
            let saved_output = if residual.is_some() { Some(cx.save(&output)?) } else { None };
            let (strides, inputs) = (input.layout(), [Some(input), Some(weight), Some(bias), residual]);
            let source = cx.record("batch_norm_activationBackward", inputs, move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok([const { None }; 4]) };
                let grad = if grad.layout() == strides { grad } else { cx.arranged(&grad, strides, "gradient copy")? };
                let (src, weight, bias) = (saved_src.unpack(cx)?, saved_weight.unpack(cx)?, saved_bias.unpack(cx)?);
                // A tensor that waited in host memory may return in another layout.
                let src = cx.arranged(&src, strides, "input copy")?;
                let (mean, rstd) = (saved_statistics.0.unpack(cx)?, saved_statistics.1.unpack(cx)?);
                let output = match &saved_output {
                    Some(output) => {
                        let output = output.unpack(cx)?;
                        Some(cx.arranged(&output, strides, "output copy")?)
                    }
                    None => None,
                };
                let own = || cx.temporary_in(src.shape(), strides, src.dtype(), "input gradient");
                let behind = if grad.is_exclusive() { grad.clone() } else { own()? };
                let dsrc = if output.is_some() { own()? } else { behind.clone() };
                let parameter = |what| cx.temporary(weight.shape(), weight.dtype(), what);
                let (dweight, dbias) = (parameter("weight gradient")?, parameter("bias gradient")?);
                let of_residual =
                    |output: &Tensor| ResidualGradient { output: output.flat(), dresidual: behind.flat() };
                let residual = output.as_ref().map(of_residual);
                cx.launch(kernels::BatchNorm::ActivationBackward {
                    grad: grad.flat(),
                    src: src.flat(),
                    residual,
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    weight: weight.operand(),
                    bias: bias.operand(),
                    dsrc: dsrc.flat(),
                    dweight: dweight.operand(),
                    dbias: dbias.operand(),
                    shape,
                    slope,
                })?;
                Ok([Some(dsrc), Some(dweight), Some(dbias), residual.map(|_| behind)])
            });
            Ok(output.with_source(source))
        })
    }

    /// Blocks for the gradients of input, weight and bias.
    ///
    /// With the channels last, PyTorch's own kernel sums over the channels in separate blocks before it computes the
    /// input's gradient.
    fn batch_norm_gradients(&self, src: &Tensor, weight: &Tensor, shape: ChannelShape) -> OpResult<[Tensor; 3]> {
        let dsrc = || self.temporary(src.shape(), src.dtype(), "input gradient");
        let parameter = |what| self.temporary(weight.shape(), weight.dtype(), what);
        if !uses_cudnn(src, weight) && (shape.area == 1 || shape.channels == 1) {
            let sum = || self.temporary(weight.shape(), statistics_dtype(src), "gradient sum");
            let _sums = (sum()?, sum()?);
            let (dweight, dbias) = (parameter("weight gradient")?, parameter("bias gradient")?);
            return Ok([dsrc()?, dweight, dbias]);
        }
        Ok([dsrc()?, parameter("weight gradient")?, parameter("bias gradient")?])
    }

    fn batch_norm_of_running(
        &mut self,
        input: &Tensor,
        [weight, bias]: [&Tensor; 2],
        running: &RunningStatistics,
        shape: ChannelShape,
    ) -> OpResult<Tensor> {
        self.op("batch_norm", |cx| {
            let differentiates = cx.differentiates(&[input, weight, bias]);
            let saved_input = if differentiates { Some((cx.save(input)?, cx.save(weight)?)) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "batch_norm output")?;
            // PyTorch's own kernel computes mean and reciprocal deviation in evaluation too; cuDNN does not.
            let made = if uses_cudnn(input, weight) { None } else { Some(cx.batch_statistics(input, shape)?) };
            cx.launch(kernels::BatchNorm::Inference {
                src: input.operand(),
                weight: weight.operand(),
                bias: bias.operand(),
                running_mean: running.mean.operand(),
                running_var: running.variance.operand(),
                dst: output.operand(),
                shape,
                eps: EPS,
            })?;
            let Some((saved_input, saved_weight)) = saved_input else { return Ok(output) };
            let saved_running = (cx.save(&running.mean)?, cx.save(&running.variance)?);
            let saved_made = match &made {
                Some([mean, rstd]) => Some((cx.save(mean)?, cx.save(rstd)?)),
                None => None,
            };
            let inputs = [Some(input), Some(weight), Some(bias)];
            let source = cx.record("batch_normBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (src, weight) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?);
                let (mean, variance) = (saved_running.0.unpack(cx)?, saved_running.1.unpack(cx)?);
                let _made = match &saved_made {
                    Some((mean, rstd)) => Some((mean.unpack(cx)?, rstd.unpack(cx)?)),
                    None => None,
                };
                let [dsrc, dweight, dbias] = cx.batch_norm_gradients(&src, &weight, shape)?;
                cx.launch(kernels::BatchNorm::InferenceBackward {
                    grad: grad.operand(),
                    src: src.operand(),
                    weight: weight.operand(),
                    running_mean: mean.operand(),
                    running_var: variance.operand(),
                    dsrc: dsrc.operand(),
                    dweight: dweight.operand(),
                    dbias: dbias.operand(),
                    shape,
                    eps: EPS,
                })?;
                Ok([Some(dsrc), Some(dweight), Some(dbias)])
            });
            Ok(output.with_source(source))
        })
    }

    /// Blocks for mean and reciprocal deviation of each channel.
    fn batch_statistics(&self, input: &Tensor, shape: ChannelShape) -> OpResult<[Tensor; 2]> {
        let of_channels = |what| self.activation(Shape::new(&[shape.channels]), statistics_dtype(input), what);
        Ok([of_channels("mean")?, of_channels("rstd")?])
    }
}

/// Whether cuDNN runs the norm, else a kernel of PyTorch's: cuDNN takes no bfloat16, and its weights are f32.
fn uses_cudnn(input: &Tensor, weight: &Tensor) -> bool {
    input.dtype() != DType::Bf16 && !matches!(weight.dtype(), DType::F16 | DType::Bf16)
}

/// The type of the statistics of `input`.
fn statistics_dtype(input: &Tensor) -> DType {
    if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 }
}

fn channels(input: &Tensor) -> OpResult<ChannelShape> {
    match input.shape().dims() {
        // One row of channels for each pixel.
        &[batch, channels, height, width] if input.is_channels_last() => {
            Ok(ChannelShape { batch: batch * height * width, channels, area: 1 })
        }
        [batch, channels, area @ ..] => {
            Ok(ChannelShape { batch: *batch, channels: *channels, area: area.iter().product() })
        }
        _ => Err(TrainError::Workload("batch norm needs an array of (batch, channels, …)".into()).into()),
    }
}
