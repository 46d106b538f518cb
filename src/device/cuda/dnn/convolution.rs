//! The three products of a convolution: forward, and the gradients of source and weight.

use std::fmt;

use super::graph::{Graph, Role, TensorLayout, TensorLocation, Windows, data_type};
use super::handle::{DnnHandle, refused};
use super::plan::{Engines, LARGEST_WORKSPACE, Rules};
use crate::cuda::refusal::Refusal;
use crate::{ConvShape, DType, ImageLayout, Operand};

/// One of the products of a convolution, with its source, weight and output; `role` tells which of them is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionCall<'a> {
    pub role: Role,
    pub shape: &'a ConvShape,
    /// (batch, in, height, width).
    pub src: Operand,
    /// (out, in, kernel, kernel).
    pub weight: Operand,
    /// (batch, out, height, width).
    pub dst: Operand,
}

/// Everything on which the choice of a convolution's form depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConvolutionKey {
    pub role: Role,
    pub shape: ConvShape,
    pub dtype: DType,
    /// True if f32 factors may be rounded.
    pub tf32: bool,
    /// All tensors lie at multiples of this many bytes.
    alignment: u8,
}

impl fmt::Display for ConvolutionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, shape, dtype, tf32, alignment } = self;
        let ConvShape { batch, in_channels, in_height, in_width, out_channels, kernel, stride, padding, .. } = shape;
        let rounded = if *tf32 { " in TF32" } else { "" };
        let last = if shape.layout == ImageLayout::ChannelsLast { ", channels last" } else { "" };
        write!(
            f,
            "convolution, {role:?} of {batch}×{in_channels}×{in_height}×{in_width} to {out_channels} channels, windows \
             of {kernel} by {stride} with {padding} around, {dtype:?}{rounded}{last}, aligned to {alignment}"
        )
    }
}

impl ConvolutionKey {
    /// `None` for types that the library does not compute with, and for mixed types.
    pub fn of(convolution: &ConvolutionCall<'_>, tf32: bool) -> Option<Self> {
        let operands = [convolution.src, convolution.weight, convolution.dst];
        let dtype = convolution.src.dtype;
        data_type(dtype)?;
        let same = operands.iter().all(|operand| operand.dtype == dtype && operand.len > 0);
        let alignment = operands.iter().fold(16, |least, operand| least.min(alignment(operand)));
        same.then_some(Self {
            role: convolution.role,
            shape: *convolution.shape,
            dtype,
            tf32: tf32 && dtype == DType::F32,
            alignment,
        })
    }

    /// Expresses the gradient of the source as a convolution of the output's gradient with the rotated weight, with
    /// input and output exchanged. `None` for the other products, if it would be of no use, for strides above one, and
    /// for channels-last weights, which no kernel rotates.
    pub fn turned(&self) -> Option<Self> {
        let Self { shape, .. } = *self;
        let padding = (shape.kernel.checked_sub(1)?).checked_sub(shape.padding)?;
        let planar = shape.layout == ImageLayout::ChannelsFirst;
        (self.role == Role::BackwardInput && planar && shape.stride == 1 && shape.kernel > 1).then_some(Self {
            role: Role::Forward,
            shape: ConvShape {
                in_channels: shape.out_channels,
                in_height: shape.out_height,
                in_width: shape.out_width,
                out_channels: shape.in_channels,
                out_height: shape.in_height,
                out_width: shape.in_width,
                padding,
                ..shape
            },
            ..*self
        })
    }

    fn place(&self) -> TensorLocation {
        TensorLocation::Device(i64::from(self.alignment))
    }

    fn layouts(&self) -> [TensorLayout; 3] {
        let ConvShape { batch, in_channels, in_height, in_width, out_channels, out_height, out_width, kernel, .. } =
            self.shape;
        let layout = match self.shape.layout {
            ImageLayout::ChannelsFirst => TensorLayout::packed,
            ImageLayout::ChannelsLast => TensorLayout::channels_last,
        };
        [
            layout([batch, in_channels, in_height, in_width]),
            layout([out_channels, in_channels, kernel, kernel]),
            layout([batch, out_channels, out_height, out_width]),
        ]
    }

    /// The graph of this convolution. Its tensors are source, weight and result, in this order.
    fn graph(&self) -> Result<Graph, Refusal> {
        let dtype = data_type(self.dtype).ok_or_else(|| refused(format!("no type {:?}", self.dtype)))?;
        let mut graph = Graph::default();
        let [x, w, y] = self.layouts();
        let tensors = [
            graph.tensor(x, dtype, self.place())?,
            graph.tensor(w, dtype, self.place())?,
            graph.tensor(y, dtype, self.place())?,
        ];
        let side = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let windows = Windows { stride: side(self.shape.stride), padding: side(self.shape.padding) };
        graph.convolution(self.role, windows, tensors)?;
        Ok(graph)
    }

    /// The library's engines for it.
    pub(super) fn engines(&self, handle: &DnnHandle) -> Result<Engines, Refusal> {
        let tensor_cores = self.tf32 || self.dtype != DType::F32;
        let rules = Rules { tensor_cores, rough_sums: false, workspace: LARGEST_WORKSPACE };
        Ok(Engines::many(self.graph()?.finish(handle)?, rules))
    }
}

/// The largest power of two up to 16 that divides the operand's address.
fn alignment(operand: &Operand) -> u8 {
    1 << operand.address.0.trailing_zeros().min(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::Address;

    const SHAPE: ConvShape = ConvShape {
        batch: 2,
        in_channels: 3,
        in_height: 8,
        in_width: 6,
        out_channels: 4,
        out_height: 4,
        out_width: 3,
        kernel: 3,
        stride: 2,
        padding: 1,
        layout: ImageLayout::ChannelsFirst,
    };

    fn convolution(dtype: DType, offset: u64) -> ConvolutionCall<'static> {
        let operand = |at, len| Operand { address: Address(at), dtype, len };
        let src = operand(512 + offset, SHAPE.in_len());
        let [weight, dst] = [operand(4096, SHAPE.weight_len()), operand(8192, SHAPE.out_len())];
        ConvolutionCall { role: Role::Forward, shape: &SHAPE, src, weight, dst }
    }

    fn key(dtype: DType, offset: u64, tf32: bool) -> Option<ConvolutionKey> {
        ConvolutionKey::of(&convolution(dtype, offset), tf32)
    }

    #[test]
    fn a_plan_is_for_the_worst_alignment_of_its_tensors() {
        let alignment = |offset| key(DType::F16, offset, false).map(|key| key.alignment);
        assert_eq!([0, 8, 2, 64].map(alignment), [Some(16), Some(8), Some(2), Some(16)]);
    }

    #[test]
    fn only_single_precision_tells_tf32_apart() {
        assert_ne!(key(DType::F32, 0, true), key(DType::F32, 0, false));
        assert_eq!(key(DType::Bf16, 0, true), key(DType::Bf16, 0, false));
        assert!(key(DType::Bf16, 0, true).is_some_and(|key| !key.tf32));
    }

    #[test]
    fn doubles_and_mixed_types_are_not_asked_for() {
        assert_eq!(key(DType::F64, 0, false), None);
        let mut mixed = convolution(DType::F16, 0);
        mixed.dst.dtype = DType::F32;
        assert_eq!(ConvolutionKey::of(&mixed, false), None);
    }

    #[test]
    fn gradients_of_sources_are_convolutions_of_gradients() {
        let key = key(DType::F32, 0, false).unwrap();
        assert_eq!(key.turned(), None);
        let shape = ConvShape { out_height: 6, out_width: 4, stride: 1, padding: 0, ..SHAPE };
        let turned = ConvolutionKey { role: Role::BackwardInput, shape, ..key }.turned().unwrap();
        assert!(shape.is_consistent() && turned.shape.is_consistent());
        assert_eq!((turned.role, turned.shape.padding, turned.shape.in_channels), (Role::Forward, 2, 4));
        let shape = ConvShape { layout: ImageLayout::ChannelsLast, ..shape };
        assert_eq!(ConvolutionKey { role: Role::BackwardInput, shape, ..key }.turned(), None);
    }

    #[test]
    fn layouts_are_those_of_the_kernels() {
        let sides = key(DType::F32, 0, false).map(|key| key.layouts().map(|layout| layout.sides));
        assert_eq!(sides, Some([[2, 3, 8, 6], [4, 3, 3, 3], [2, 4, 4, 3]]));
    }
}
