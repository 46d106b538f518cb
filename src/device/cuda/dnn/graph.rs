//! Graphs of operations in the library's form: numbered tensors, and operations between them.

use cudarc::cudnn::sys::{
    cudnnConvolutionMode_t, cudnnDataType_t, cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};

use super::descriptor::{Descriptor, Kind, Name};
use super::handle::{DnnHandle, refused};
use crate::DType;
use crate::cuda::refusal::Refusal;

/// Sides of a tensor and its strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TensorLayout {
    pub sides: [i64; 4],
    pub strides: [i64; 4],
}

impl TensorLayout {
    /// Row-major, without gaps.
    pub fn packed(sides: [usize; 4]) -> Self {
        let sides = sides.map(|side| i64::try_from(side).unwrap_or(i64::MAX));
        let [_, b, c, d] = sides;
        Self { sides, strides: [b * c * d, c * d, d, 1] }
    }

    /// (batch, channels, height, width) whose channels lie next to each other, without gaps.
    pub fn channels_last(sides: [usize; 4]) -> Self {
        let sides = sides.map(|side| i64::try_from(side).unwrap_or(i64::MAX));
        let [_, channels, height, width] = sides;
        Self { sides, strides: [channels * height * width, 1, width * channels, channels] }
    }

    /// The same elements with the last two sides exchanged.
    pub fn transposed(self) -> Self {
        let swap = |[a, b, c, d]: [i64; 4]| [a, b, d, c];
        Self { sides: swap(self.sides), strides: swap(self.strides) }
    }

    /// One number.
    pub const SCALAR: Self = Self { sides: [1; 4], strides: [1; 4] };
}

/// Where a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorLocation {
    /// In device memory, at a multiple of this many bytes.
    Device(i64),
    /// Not stored: the tensor is between two operations of the graph.
    Between,
    /// One number, read from the host when the plan is executed.
    Host,
}

/// A tensor of a graph, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor(usize);

impl Tensor {
    /// The library's identifier for it.
    fn id(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX).saturating_add(1)
    }
}

/// Which of a convolution's three tensors is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Forward,
    BackwardInput,
    BackwardWeight,
}

/// The windows of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub stride: i64,
    pub padding: i64,
}

/// A graph under construction. All arithmetic is in f32.
#[derive(Default)]
pub(super) struct Graph {
    tensors: Vec<Descriptor>,
    /// The identifiers of all stored tensors.
    placed: Vec<i64>,
    /// Descriptors of the operations' parameters.
    parts: Vec<Descriptor>,
    operations: Vec<Descriptor>,
}

impl Graph {
    /// Adds a tensor. The addresses of stored tensors are given when the graph is executed, in the order in which the
    /// tensors were added here.
    pub fn tensor(
        &mut self,
        layout: TensorLayout,
        dtype: cudnnDataType_t,
        place: TensorLocation,
    ) -> Result<Tensor, Refusal> {
        let tensor = Tensor(self.tensors.len());
        let alignment = match place {
            TensorLocation::Device(alignment) => alignment,
            TensorLocation::Between | TensorLocation::Host => 16,
        };
        let mut descriptor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
            .set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &layout.sides)?
            .set(Name::CUDNN_ATTR_TENSOR_STRIDES, &layout.strides)?
            .set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[tensor.id()])?
            .set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[alignment])?;
        match place {
            TensorLocation::Device(_) => {}
            TensorLocation::Between => descriptor = descriptor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?,
            TensorLocation::Host => descriptor = descriptor.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true])?,
        }
        self.tensors.push(descriptor.finalise()?);
        if place != TensorLocation::Between {
            self.placed.push(tensor.id());
        }
        Ok(tensor)
    }

    /// Adds one of the three products of a convolution between its source, weight and result.
    pub fn convolution(&mut self, role: Role, windows: Windows, [x, w, y]: [Tensor; 3]) -> Result<(), Refusal> {
        let description = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[COMPUTE])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1_i64; 2])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &[windows.stride; 2])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &[windows.padding; 2])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &[windows.padding; 2])?
            .finalise()?;
        let names = role.names();
        let operation = Descriptor::new(names.kind)?
            .link(names.x, &[self.descriptor(x)?])?
            .link(names.w, &[self.descriptor(w)?])?
            .link(names.y, &[self.descriptor(y)?])?
            .link(names.description, &[&description])?
            .set(names.alpha, &[1_f32])?
            .set(names.beta, &[0_f32])?;
        self.keep(description, operation)
    }

    /// Adds `c = a b`, with matrices in the last two dimensions.
    pub fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor) -> Result<(), Refusal> {
        let description = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &[COMPUTE])?
            .finalise()?;
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, &[self.descriptor(a)?])?
            .link(Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, &[self.descriptor(b)?])?
            .link(Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, &[self.descriptor(c)?])?
            .link(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[&description])?;
        self.keep(description, operation)
    }

    /// Adds `y = mode(inputs…)` element by element, with one, two or three inputs; smaller inputs are broadcast.
    pub fn pointwise(&mut self, mode: Pointwise, inputs: &[Tensor], y: Tensor) -> Result<(), Refusal> {
        let description = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?
            .set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[precision(mode)])?
            .finalise()?;
        self.apply(description, inputs, y)
    }

    /// Adds each element's index along `axis`; `like` has the shape.
    pub fn index(&mut self, axis: i64, like: Tensor, y: Tensor) -> Result<(), Refusal> {
        let description = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_POINTWISE_MODE, &[Pointwise::CUDNN_POINTWISE_GEN_INDEX])?
            .set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[COMPUTE])?
            .set(Name::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?
            .finalise()?;
        self.apply(description, &[like], y)
    }

    fn apply(&mut self, description: Descriptor, inputs: &[Tensor], y: Tensor) -> Result<(), Refusal> {
        const INPUTS: [Name; 3] = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let mut operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&description])?;
        for (name, &input) in INPUTS.into_iter().zip(inputs) {
            operation = operation.link(name, &[self.descriptor(input)?])?;
        }
        operation = operation.link(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[self.descriptor(y)?])?;
        self.keep(description, operation)
    }

    /// Adds a reduction of `x` along the dimensions in which `y` has one element.
    pub fn reduce(&mut self, mode: Reduction, x: Tensor, y: Tensor) -> Result<(), Refusal> {
        let description = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[mode])?
            .set(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &[COMPUTE])?
            .finalise()?;
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &[self.descriptor(x)?])?
            .link(Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &[self.descriptor(y)?])?
            .link(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[&description])?;
        self.keep(description, operation)
    }

    /// Adds `y` as `x` with other sides.
    pub fn reshape(&mut self, x: Tensor, y: Tensor) -> Result<(), Refusal> {
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &[self.descriptor(x)?])?
            .link(Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &[self.descriptor(y)?])?;
        self.operations.push(operation.finalise()?);
        Ok(())
    }

    /// Finalises the graph, so that engines can be found for it.
    pub fn finish(self, handle: &DnnHandle) -> Result<Operations, Refusal> {
        let all: Vec<&Descriptor> = self.operations.iter().collect();
        let whole = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .of(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)?
            .link(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &all)?
            .finalise()?;
        Ok(Operations { whole, parts: self })
    }

    fn keep(&mut self, description: Descriptor, operation: Descriptor) -> Result<(), Refusal> {
        self.operations.push(operation.finalise()?);
        self.parts.push(description);
        Ok(())
    }

    fn descriptor(&self, tensor: Tensor) -> Result<&Descriptor, Refusal> {
        self.tensors.get(tensor.0).ok_or_else(|| refused(format!("no tensor {} in this graph", tensor.id())))
    }
}

/// A finished graph, with all its parts.
pub(super) struct Operations {
    /// Dropped before the descriptors that it refers to.
    whole: Descriptor,
    parts: Graph,
}

impl Operations {
    pub fn descriptor(&self) -> &Descriptor {
        &self.whole
    }

    /// The identifiers of stored tensors, in the order in which they were added.
    pub fn placed(&self) -> &[i64] {
        &self.parts.placed
    }
}

/// The type in which operations compute.
const COMPUTE: cudnnDataType_t = cudnnDataType_t::CUDNN_DATA_FLOAT;

/// The type in which an operation computes; comparisons use booleans.
const fn precision(mode: Pointwise) -> cudnnDataType_t {
    match mode {
        Pointwise::CUDNN_POINTWISE_CMP_GE => cudnnDataType_t::CUDNN_DATA_BOOLEAN,
        _ => COMPUTE,
    }
}

/// The library's name for a type of elements; `None` for types that are not used here.
pub(super) const fn data_type(dtype: DType) -> Option<cudnnDataType_t> {
    match dtype {
        DType::F32 => Some(cudnnDataType_t::CUDNN_DATA_FLOAT),
        DType::F16 => Some(cudnnDataType_t::CUDNN_DATA_HALF),
        DType::Bf16 => Some(cudnnDataType_t::CUDNN_DATA_BFLOAT16),
        DType::F64 | DType::I64 | DType::I32 | DType::U8 | DType::E4M3 | DType::E5M2 => None,
    }
}

/// The attributes of one kind of convolution.
struct ConvolutionNames {
    kind: Kind,
    x: Name,
    w: Name,
    y: Name,
    description: Name,
    alpha: Name,
    beta: Name,
}

impl Role {
    const fn names(self) -> ConvolutionNames {
        match self {
            Self::Forward => ConvolutionNames {
                kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                description: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            },
            Self::BackwardInput => ConvolutionNames {
                kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                description: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            },
            Self::BackwardWeight => ConvolutionNames {
                kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                description: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_row_major_until_they_are_transposed() {
        let layout = TensorLayout::packed([2, 3, 4, 5]);
        assert_eq!(layout, TensorLayout { sides: [2, 3, 4, 5], strides: [60, 20, 5, 1] });
        assert_eq!(layout.transposed(), TensorLayout { sides: [2, 3, 5, 4], strides: [60, 20, 1, 5] });
    }
}
