//! Convolutions of images, and their transposes.

use crate::config::Tf32;
use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::library::{Arithmetic, Convolution, Pass};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::Bytes;
use vramlab_device::{ChannelShape, ConvShape, ImageLayout, kernels};
use vramlab_model::EventKind;

/// A convolution of tensors: the numbers for the kernels, and those that cuDNN's plans depend on.
#[derive(Clone, Copy)]
struct ConvolutionPlan {
    kernels: ConvShape,
    convolution: Convolution,
    arithmetic: Option<Arithmetic>,
}

impl ConvolutionPlan {
    /// The plan for `input` (batch, in, height, width) and `weight`: (out, in, k, k), or (in, out, k, k) if
    /// transposed.
    fn new(
        input: &Tensor,
        weight: &Tensor,
        [stride, padding]: [usize; 2],
        transposed: bool,
        tf32: Tf32,
    ) -> OpResult<Self> {
        let refused = || {
            TrainError::Workload(format!(
                "a convolution can't take an input of {:?} with a weight of {:?}; choose sizes that go together",
                input.shape(),
                weight.shape()
            ))
        };
        let &[batch, inputs, height, width] = input.shape().dims() else { return Err(refused().into()) };
        let &[first, second, kernel, kernel_width] = weight.shape().dims() else { return Err(refused().into()) };
        let (weight_inputs, outputs) = if transposed { (first, second) } else { (second, first) };
        let side = |side: usize| {
            if transposed {
                (side.checked_sub(1)? * stride + kernel).checked_sub(2 * padding).filter(|&side| side > 0)
            } else {
                Some((side + 2 * padding).checked_sub(kernel)? / stride.max(1) + 1)
            }
        };
        let (Some(to_height), Some(to_width)) = (side(height), side(width)) else { return Err(refused().into()) };
        if weight_inputs != inputs || kernel != kernel_width || stride == 0 {
            return Err(refused().into());
        }
        let forward = ConvShape {
            batch,
            in_channels: inputs,
            in_height: height,
            in_width: width,
            out_channels: outputs,
            out_height: to_height,
            out_width: to_width,
            kernel,
            stride,
            padding,
            layout: if input.is_channels_last() { ImageLayout::ChannelsLast } else { ImageLayout::ChannelsFirst },
        };
        let kernels = if transposed { reversed(forward) } else { forward };
        let convolution =
            Convolution { batch, inputs, sides: [height, width], outputs, kernel, stride, padding, transposed };
        let arithmetic = Arithmetic::of(input.dtype(), tf32 != Tf32::Off);
        Ok(Self { kernels, convolution, arithmetic })
    }

    /// Strides of images of this shape.
    fn strides(&self, shape: Shape) -> [usize; 4] {
        let last = shape.channels_last_strides().filter(|_| self.is_channels_last());
        last.unwrap_or_else(|| shape.contiguous_strides())
    }

    fn is_channels_last(&self) -> bool {
        self.kernels.layout == ImageLayout::ChannelsLast
    }

    /// Shape of the output.
    fn output(&self) -> Shape {
        let ConvShape { batch, in_channels, in_height, in_width, out_channels, out_height, out_width, .. } =
            self.kernels;
        if self.convolution.transposed {
            Shape::new(&[batch, in_channels, in_height, in_width])
        } else {
            Shape::new(&[batch, out_channels, out_height, out_width])
        }
    }
}

/// The reverse convolution, from output to input.
const fn reversed(shape: ConvShape) -> ConvShape {
    ConvShape {
        in_channels: shape.out_channels,
        in_height: shape.out_height,
        in_width: shape.out_width,
        out_channels: shape.in_channels,
        out_height: shape.in_height,
        out_width: shape.in_width,
        ..shape
    }
}

impl Context {
    /// Convolution of `input` (batch, in, height, width) with `weight` (out, in, k, k), plus `bias` (out). Runs in
    /// 16 bits under autocast. Saves input and weight.
    ///
    /// The gradient of the output may arrive in another layout than the output's: it is copied if the kernels need it
    /// contiguous.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, shapes that do not go together.
    pub fn conv2d(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: usize,
        padding: usize,
    ) -> OpResult<Tensor> {
        // Autocast casts arguments from the last to the first.
        let bias = bias.map(|b| self.cast_to_lower(b, "bias copy")).transpose()?;
        let weight = self.weight_for(input, weight)?;
        let input = self.cast_to_lower(input, "input copy")?;
        let plan = ConvolutionPlan::new(&input, &weight, [stride, padding], false, self.tf32)?;
        self.convolve("conv2d", "conv2dBackward", plan, [&input, &weight], bias.as_ref())
    }

    /// Transposed convolution of `input` (batch, in, height, width) with `weight` (in, out, k, k): the gradient of a
    /// convolution as a layer. Runs in 16 bits under autocast. Saves input and weight.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, shapes that do not go together.
    pub fn conv_transpose2d(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        stride: usize,
        padding: usize,
    ) -> OpResult<Tensor> {
        let weight = self.weight_for(input, weight)?;
        let input = self.cast_to_lower(input, "input copy")?;
        let plan = ConvolutionPlan::new(&input, &weight, [stride, padding], true, self.tf32)?;
        self.convolve("conv_transpose2d", "conv_transpose2dBackward", plan, [&input, &weight], None)
    }

    /// The weight in the layout of its input images.
    fn weight_for(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        if input.is_channels_last() {
            return self.weight_channels_last(weight);
        }
        self.cast_to_lower(weight, "weight copy")
    }

    fn convolve(
        &mut self,
        name: &'static str,
        backward: &'static str,
        plan: ConvolutionPlan,
        [input, weight]: [&Tensor; 2],
        bias: Option<&Tensor>,
    ) -> OpResult<Tensor> {
        self.op(name, |cx| {
            let differentiates = cx.differentiates(&[input, weight]) || bias.is_some_and(|b| cx.differentiates(&[b]));
            let saved = if differentiates { Some((cx.save(input)?, cx.save(weight)?)) } else { None };
            let strides = plan.strides(plan.output());
            let output = cx.activation(plan.output(), input.dtype(), "output")?.restrided(strides);
            cx.forward_pass(plan, [input, weight], bias, &output)?;
            let Some((saved_input, saved_weight)) = saved else { return Ok(output) };
            let wanted = [input.requires_grad(), weight.requires_grad()];
            let bias_shape = bias.filter(|b| b.requires_grad()).map(Tensor::shape);
            let source = cx.record(backward, [Some(input), Some(weight), bias], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (input, weight) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?);
                // A tensor that waited in host memory may return in another layout.
                let input = cx.arranged(&input, plan.strides(input.shape()), "input copy")?;
                let weight = cx.arranged(&weight, plan.strides(weight.shape()), "weight copy")?;
                let [to_input, to_weight] = {
                    let grad = cx.arranged(&grad, plan.strides(grad.shape()), "contiguous gradient")?;
                    cx.convolution_gradients(plan, [&input, &weight], &grad, wanted)?
                };
                let to_bias = bias_shape.map(|shape| cx.sum_channels(&grad, shape)).transpose()?;
                Ok([to_input, to_weight, to_bias])
            });
            Ok(output.with_source(source))
        })
    }

    /// A workspace for one pass; it is freed when the pass has been launched.
    fn convolution_workspace(&mut self, pass: Pass, plan: ConvolutionPlan) -> OpResult<Option<Tensor>> {
        // The tables were measured with the layout of eager mode.
        let Some(arithmetic) = plan.arithmetic.filter(|_| !plan.is_channels_last()) else { return Ok(None) };
        let memory = self.memory().clone();
        let asked = (pass, &plan.convolution, arithmetic);
        let granted = self.workspaces.convolution(asked, |bytes| memory.scratch(bytes, "cuDNN workspace"))?;
        if let Some(refused) = granted.in_place_of {
            let (refused, taken) =
                (Bytes(refused as u64), granted.workspace.as_ref().map_or(Bytes::ZERO, Tensor::bytes));
            let text = format!("a convolution's workspace of {refused} was refused: cuDNN's next plan takes {taken}");
            memory.emit(EventKind::Notice { text: text.into() });
        }
        Ok(granted.workspace)
    }

    fn forward_pass(
        &mut self,
        plan: ConvolutionPlan,
        [input, weight]: [&Tensor; 2],
        bias: Option<&Tensor>,
        output: &Tensor,
    ) -> OpResult<()> {
        let _workspace = self.convolution_workspace(Pass::Forward, plan)?;
        let (shape, weight) = (plan.kernels, weight.flat());
        if plan.convolution.transposed {
            self.launch(kernels::Convolution::BackwardInput { shape, grad: input.flat(), weight, dst: output.flat() })
        } else {
            let bias = bias.map(Tensor::operand);
            self.launch(kernels::Convolution::Forward { shape, src: input.flat(), weight, bias, dst: output.flat() })
        }
    }

    /// The gradients of input and weight, in this order, if they are wanted.
    fn convolution_gradients(
        &mut self,
        plan: ConvolutionPlan,
        [input, weight]: [&Tensor; 2],
        grad: &Tensor,
        wanted: [bool; 2],
    ) -> OpResult<[Option<Tensor>; 2]> {
        let (shape, transposed) = (plan.kernels, plan.convolution.transposed);
        let mut gradients = [None, None];
        if wanted[0] {
            let strides = plan.strides(input.shape());
            let output = self.temporary_in(input.shape(), strides, grad.dtype(), "input gradient")?;
            let _workspace = self.convolution_workspace(Pass::InputGradient, plan)?;
            let (grad, weight, dst) = (grad.flat(), weight.flat(), output.flat());
            self.launch(if transposed {
                kernels::Convolution::Forward { shape, src: grad, weight, bias: None, dst }
            } else {
                kernels::Convolution::BackwardInput { shape, grad, weight, dst }
            })?;
            gradients[0] = Some(output);
        }
        if wanted[1] {
            let strides = plan.strides(weight.shape());
            let output = self.temporary_in(weight.shape(), strides, grad.dtype(), "weight gradient")?;
            let _workspace = self.convolution_workspace(Pass::WeightGradient, plan)?;
            let (grad, input) = (grad.flat(), input.flat());
            let (grad, src) = if transposed { (input, grad) } else { (grad, input) };
            self.launch(kernels::Convolution::BackwardWeight { shape, grad, src, dst: output.flat() })?;
            gradients[1] = Some(output);
        }
        Ok(gradients)
    }

    /// Sum over images and area of a gradient (batch, channels, height, width): contiguous, or with the channels last.
    fn sum_channels(&mut self, grad: &Tensor, shape: Shape) -> OpResult<Tensor> {
        let &[batch, channels, height, width] = grad.shape().dims() else {
            return self.contiguous(grad, "contiguous gradient");
        };
        let area = height * width;
        if !grad.is_contiguous() && grad.strides() == [area * channels, 1, width * channels, channels] {
            let rows = batch * area;
            return self.sum_rows(&grad.window(Shape::new(&[rows, channels]), 0), rows, shape, "bias gradient");
        }
        let output = self.temporary(shape, grad.dtype(), "bias gradient")?;
        let grad = self.contiguous(grad, "contiguous gradient")?;
        let shape = ChannelShape { batch, channels, area };
        self.launch(kernels::Sums::Channels { src: grad.operand(), dst: output.operand(), shape })?;
        Ok(output)
    }
}
