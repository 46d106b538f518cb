//! Tensors: handles to storages.

use std::rc::Rc;

use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_device::{DType, HeadView, MatrixView, Operand};

use super::shape::Shape;
use super::storage::Storage;

/// Where a tensor's gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientTarget {
    /// Nowhere: the tensor needs no gradient.
    Constant,
    /// To a parameter.
    Leaf(usize),
    /// Nowhere: the tensor is a parameter that is not trained (`requires_grad_(False)`).
    Frozen(usize),
    /// To output `slot` of a node of the tape.
    Node { node: usize, slot: u8 },
    /// It needs a gradient, but this forward pass only recomputes saved tensors.
    Recomputed,
}

/// A handle to a storage with a type, a shape, strides and an offset. Cloning shares the storage; dropping the
/// last handle frees it immediately.
#[derive(Clone)]
pub struct Tensor {
    storage: Rc<Storage>,
    shape: Shape,
    strides: [usize; 4],
    offset: usize,
    source: GradientTarget,
    /// Made by a view op: such a tensor keeps its base alive, so gradients are never accumulated into it.
    view: bool,
}

impl Tensor {
    pub(crate) fn new(storage: Rc<Storage>, shape: Shape) -> Self {
        let strides = shape.contiguous_strides();
        Self { storage, shape, strides, offset: 0, source: GradientTarget::Constant, view: false }
    }

    /// Type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    /// Shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Elements from one index to the next, per dimension.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.shape.dims().len()]
    }

    /// Number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Bytes of its elements.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.dtype().bytes(self.numel())
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> Address {
        self.storage.address().offset(self.dtype().bytes(self.offset))
    }

    /// Gives the memory of `data` to every handle of this tensor (`parameter.data = …`); both fill their blocks.
    pub(crate) fn replace(&self, data: &Self) {
        self.storage.swap(&data.storage);
    }

    /// Whether the elements follow each other in the order of the shape.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.strides == self.shape.contiguous_strides()
    }

    /// Whether it has these strides; strides of dimensions of one element don't count.
    #[must_use]
    pub(crate) fn has_layout(&self, strides: [usize; 4]) -> bool {
        let mut dims = self.shape.dims().iter().zip(self.strides.iter().zip(&strides));
        dims.all(|(&dim, (stride, expected))| dim == 1 || stride == expected)
    }

    /// [`Tensor::is_contiguous`], ignoring strides of dimensions of one element.
    #[must_use]
    pub(crate) fn is_row_major(&self) -> bool {
        self.has_layout(self.shape.contiguous_strides())
    }

    /// Its strides.
    #[must_use]
    pub(crate) const fn layout(&self) -> [usize; 4] {
        self.strides
    }

    /// Whether an image's channels lie next to each other, judged by its strides: for shapes in which both layouts
    /// are the same, the strides tell which is meant.
    #[must_use]
    pub(crate) fn is_channels_last(&self) -> bool {
        !self.is_contiguous() && self.shape.channels_last_strides() == Some(self.strides)
    }

    /// Strides of a tensor without gaps whose dimensions follow each other in memory as this one's do.
    #[must_use]
    pub(crate) fn compact_strides(&self) -> [usize; 4] {
        let dims = self.shape.dims();
        let mut order: Vec<usize> = (0..dims.len()).collect();
        // From the innermost dimension outwards; of two equal strides the later dimension is the inner one.
        order.sort_by_key(|&dim| (self.strides[dim], std::cmp::Reverse(dim)));
        let (mut strides, mut step) = ([0; 4], 1);
        for dim in order {
            strides[dim] = step;
            step *= dims[dim];
        }
        strides
    }

    /// Whether a gradient is wanted for it.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        !matches!(self.source, GradientTarget::Constant | GradientTarget::Frozen(_))
    }

    /// Whether the storage has no other handle, and the tensor is no view.
    pub(crate) fn is_exclusive(&self) -> bool {
        !self.view && Rc::strong_count(&self.storage) == 1
    }

    /// Whether its storage has memory on the device.
    pub(crate) fn is_present(&self) -> bool {
        self.storage.is_present()
    }

    /// Another reference to its storage.
    pub(crate) fn hold(&self) -> Rc<Storage> {
        Rc::clone(&self.storage)
    }

    pub(crate) const fn source(&self) -> GradientTarget {
        self.source
    }

    /// The number of the parameter, if it is one.
    pub(crate) const fn parameter(&self) -> Option<usize> {
        match self.source {
            GradientTarget::Leaf(index) => Some(index),
            _ => None,
        }
    }

    /// Output `slot` of the op that made this tensor.
    pub(crate) fn with_slot(mut self, slot: u8) -> Self {
        if let GradientTarget::Node { slot: present, .. } = &mut self.source {
            *present = slot;
        }
        self
    }

    pub(crate) fn with_source(mut self, source: GradientTarget) -> Self {
        self.source = source;
        self
    }

    /// The same storage, detached from the graph.
    #[must_use]
    pub fn detach(&self) -> Self {
        self.clone().with_source(GradientTarget::Constant)
    }

    /// Whether it lies in host memory, which kernels reach and the device's allocator does not count.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.storage.is_on_host()
    }

    /// The storage that it is a handle to.
    pub(crate) fn storage(&self) -> &Rc<Storage> {
        &self.storage
    }

    /// Whether both have the same storage.
    #[must_use]
    pub fn shares_storage(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.storage, &other.storage)
    }

    /// A view of the same elements in another shape of equal size.
    #[must_use]
    pub(crate) fn reshaped(&self, shape: Shape) -> Self {
        let mut view = self.clone();
        view.shape = shape;
        view.strides = shape.contiguous_strides();
        view.view = true;
        view
    }

    /// A contiguous view of `shape` that begins `offset` elements later.
    #[must_use]
    pub fn window(&self, shape: Shape, offset: usize) -> Self {
        self.strided(shape, shape.contiguous_strides(), offset)
    }

    /// A view with strides and an offset of its own, in elements of this tensor's storage.
    #[must_use]
    pub(crate) fn strided(&self, shape: Shape, strides: [usize; 4], offset: usize) -> Self {
        let mut view = self.clone();
        view.shape = shape;
        view.strides = strides;
        view.offset = self.offset + offset;
        view.view = true;
        view
    }

    /// The same elements with other strides: not a view, but the layout that the op gave the tensor.
    pub(crate) fn restrided(mut self, strides: [usize; 4]) -> Self {
        self.strides = strides;
        self
    }

    /// Marks the result of a chain of view ops that ends in the original layout.
    pub(crate) fn marked_as_view(mut self) -> Self {
        self.view = true;
        self
    }

    /// Elements of a contiguous tensor as a kernel's operand.
    #[must_use]
    pub fn operand(&self) -> Operand {
        debug_assert!(self.is_contiguous(), "kernels over runs of elements need contiguous tensors");
        Operand { address: self.address(), dtype: self.dtype(), len: self.numel() }
    }

    /// Elements that fill their memory, in memory order.
    #[must_use]
    pub(crate) fn flat(&self) -> Operand {
        debug_assert!(self.is_dense(), "elements with gaps between them are no run");
        Operand { address: self.address(), dtype: self.dtype(), len: self.numel() }
    }

    /// Whether the elements fill their memory without gaps, in any order of the dimensions.
    #[must_use]
    pub(crate) fn is_dense(&self) -> bool {
        let mut dims: Vec<_> = self.shape.dims().iter().copied().zip(self.strides).filter(|(n, _)| *n != 1).collect();
        dims.sort_unstable_by_key(|&(_, stride)| stride);
        let mut step = 1;
        dims.into_iter().all(|(n, stride)| {
            let fits = stride == step;
            step *= n;
            fits
        })
    }

    /// A (batch, heads, rows, head size) tensor for attention kernels; its last dimension is contiguous.
    pub(crate) fn heads(&self) -> HeadView {
        HeadView {
            address: self.address(),
            dtype: self.dtype(),
            batch_stride: self.strides[0],
            head_stride: self.strides[1],
            row_stride: self.strides[2],
        }
    }

    /// Elements from one row to the next, for rows at equal distances.
    pub(crate) fn row_stride(&self) -> usize {
        let rank = self.shape.dims().len();
        if rank < 2 { self.shape.last() } else { self.strides[rank - 2] }
    }

    /// Its rows and the gaps between them, as a kernel's operand.
    pub(crate) fn padded_rows(&self) -> Operand {
        Operand { address: self.address(), dtype: self.dtype(), len: self.shape.rows() * self.row_stride() }
    }

    /// The first `last` columns: a view with the same distance between rows, or the tensor itself if that is all columns.
    pub(crate) fn first_columns(&self, last: usize) -> Self {
        if last == self.shape.last() {
            return self.clone();
        }
        self.strided(self.shape.with_last(last), self.strides, 0)
    }

    /// A tensor with rows at equal distances, as a matrix of `rows × last`.
    pub(crate) fn matrix(&self) -> MatrixView {
        MatrixView {
            address: self.address(),
            dtype: self.dtype(),
            row_stride: self.row_stride(),
            col_stride: 1,
            batch_stride: 0,
        }
    }

    /// The transpose of [`Tensor::matrix`].
    pub(crate) fn transposed(&self) -> MatrixView {
        let m = self.matrix();
        MatrixView { row_stride: m.col_stride, col_stride: m.row_stride, ..m }
    }

    /// A view of a matrix with rows and columns exchanged.
    #[must_use]
    pub fn transpose(&self) -> Self {
        let &[rows, cols] = self.shape.dims() else { return self.clone() };
        let mut view = self.clone();
        view.shape = Shape::new(&[cols, rows]);
        view.strides.swap(0, 1);
        view.view = true;
        view
    }

    /// A matrix with its own strides.
    pub(crate) fn strided_matrix(&self) -> MatrixView {
        let [row_stride, col_stride, ..] = self.strides;
        MatrixView { row_stride, col_stride, ..self.matrix() }
    }

    /// The stream whose allocations the storage belongs to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.storage.stream()
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}{:?}@{}", self.dtype(), self.shape, self.address())
    }
}
