//! One attention call in the form that its kernels receive.

use crate::cuda::dnn;
use crate::cuda::queue::Arguments;
use crate::{AttentionShape, DType, DropoutMask, Earlier, HeadView};
use vramlab_allocator::units::Address;

/// The largest size of a head.
pub(super) const WIDEST: usize = 256;

/// The logarithms of the sums of exponents.
#[derive(Clone, Copy)]
pub(super) struct LogSumExp {
    pub address: Address,
    pub stride: usize,
}

/// The inputs common to all kernels of one attention call.
pub(super) struct Problem<'a> {
    pub shape: AttentionShape,
    pub keys: usize,
    sums: Option<LogSumExp>,
    pub views: &'a [HeadView],
    pub dtype: DType,
}

impl<'a> Problem<'a> {
    /// `None` if there is no kernel for the types or the size of heads.
    pub fn new(shape: AttentionShape, keys: usize, sums: Option<LogSumExp>, views: &'a [HeadView]) -> Option<Self> {
        let dtype = views.first()?.dtype;
        let one_type = views.iter().all(|view| view.dtype == dtype);
        let known = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        // The kernels track the maximum of products instead of scores, so the factor must preserve their order.
        let fits = shape.widest() <= WIDEST && shape.scale >= 0.0;
        let counted = shape.rows.max(keys) <= i32::MAX as usize / 2;
        let whole = shape.group > 0 && shape.heads.is_multiple_of(shape.group);
        (one_type && known && fits && counted && whole).then_some(Self { shape, keys, sums, views, dtype })
    }

    /// The same call in the form that cuDNN receives.
    pub fn of_library(&self) -> dnn::AttentionCall<'_> {
        let sums = self.sums.map(|sums| (sums.address, sums.stride));
        dnn::AttentionCall { shape: &self.shape, keys: self.keys, views: self.views, sums }
    }

    pub fn is_empty(&self) -> bool {
        self.all_rows() * self.keys * self.shape.widest() == 0
    }

    pub fn heads(&self) -> usize {
        self.shape.batch * self.shape.heads
    }

    /// The number of queries of all heads.
    pub fn all_rows(&self) -> usize {
        self.heads() * self.shape.rows
    }

    /// True if every row starts at a multiple of `n` elements in memory and consists of whole groups of `n`.
    pub fn aligned(&self, n: usize) -> bool {
        let bytes = self.dtype.size() * n as u64;
        let of_view = |view: &HeadView| {
            let strides = [view.batch_stride, view.head_stride, view.row_stride];
            view.address.0.is_multiple_of(bytes) && strides.iter().all(|stride| stride.is_multiple_of(n))
        };
        let sizes = [self.shape.head_size, self.shape.value_size];
        sizes.iter().all(|size| size.is_multiple_of(n)) && self.views.iter().all(of_view)
    }

    /// The arguments of a kernel that copies `n` elements at once if possible; those of backward end with `delta`.
    pub fn arguments(&self, n: usize, delta: Option<Address>) -> Arguments {
        let shape = &self.shape;
        let (sums, stride) = self.sums.map_or((0, 0), |sums| (sums.address.0, sums.stride));
        let mut fields = Vec::with_capacity(15 + 4 * self.views.len());
        let sizes = [shape.heads, shape.group, shape.rows, self.keys, shape.head_size, shape.value_size];
        fields.extend(sizes.map(|n| n as u64));
        // A window over all positions has no effect.
        let all = self.keys.max(shape.rows);
        let window = match shape.earlier {
            Earlier::Window(window) if shape.causal => window.min(all),
            // Chunks are calls of their own.
            Earlier::All | Earlier::Window(_) | Earlier::Chunk(_) => all,
        };
        fields.extend([u64::from(shape.causal), window as u64, u64::from(self.aligned(n)), sums, stride as u64]);
        let kept = |mask: DropoutMask| u64::from(mask.factor().to_bits());
        fields.extend(shape.dropout.map_or([0; 3], |mask| [mask.seed(), mask.threshold(), kept(mask)]));
        for view in self.views {
            let strides = [view.batch_stride, view.head_stride, view.row_stride];
            fields.push(view.address.0);
            fields.extend(strides.map(|stride| stride as u64));
        }
        fields.extend(delta.map(|address| address.0));
        Arguments::new().float(shape.scale).structure(&fields)
    }
}
