//! Convolutions as products of matrices in scratch: the windows of the source are written as columns, one for each
//! position of the output. For adjacent windows of one element, the source itself is that matrix.

use std::fmt;

use crate::cuda::blas::WORKSPACE;
use crate::cuda::dnn::{ConvolutionKey, Role};
use crate::{ConvShape, DType, ImageLayout};

/// Bytes of columns that are written at once: the first fits into a large second-level cache, the second keeps any
/// device busy.
const GROUPS: [usize; 2] = [24 << 20, 256 << 20];
/// The most scratch that may be used, in bytes.
const LIMIT: usize = 1 << 30;

/// A way to divide a convolution into products of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Products {
    pub order: ScratchOrder,
    /// Images whose columns are in scratch at the same time.
    pub images: usize,
}

/// The order of matrices in scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScratchOrder {
    /// One matrix for each image.
    ByImage,
    /// One matrix for all images, each of whose rows spans them.
    Folded,
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            ScratchOrder::ByImage => "by image",
            ScratchOrder::Folded => "folded",
        };
        write!(f, "{order}, {} at once", self.images)
    }
}

/// The matrices of one convolution: output channels by window, window by positions, and output channels by positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub role: Role,
    pub shape: ConvShape,
    pub dtype: DType,
}

impl Task {
    /// Rows of the column matrix.
    pub const fn window(&self) -> usize {
        self.shape.window()
    }

    /// Positions of the output.
    pub const fn places(&self) -> usize {
        self.shape.out_area()
    }

    /// Channels of the output.
    pub const fn channels(&self) -> usize {
        self.shape.out_channels
    }

    /// True if the columns are the unchanged source.
    pub const fn direct(&self) -> bool {
        self.shape.kernel == 1 && self.shape.stride == 1 && self.shape.padding == 0
    }

    /// Type of the columns. It is f32 if columns are summed, so that sums are not rounded in between.
    pub fn columns_type(&self) -> DType {
        if self.role == Role::BackwardInput && !self.direct() { DType::F32 } else { self.dtype }
    }

    /// Bytes of one image's columns.
    fn columns(&self) -> usize {
        self.window() * self.places() * self.columns_type().size() as usize
    }
}

/// Bytes of each area of scratch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    pub columns: usize,
    /// The output of some images, or its gradient, one channel after another.
    pub folded: usize,
    /// Gradients of the weight in f32, one for each image or group of images.
    pub parts: usize,
}

impl Areas {
    /// The start of each area and of the products' workspace, and the end of that workspace.
    pub fn offsets(self) -> [usize; 5] {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(256);
            start
        };
        [place(self.columns), place(self.folded), place(self.parts), place(WORKSPACE), place(0)]
    }
}

impl Products {
    /// The divisions that are worth timing.
    pub fn all(key: &ConvolutionKey) -> Vec<Self> {
        // Columns can only be written from planes.
        if key.shape.layout == ImageLayout::ChannelsLast {
            return Vec::new();
        }
        Self::of(&Task { role: key.role, shape: key.shape, dtype: key.dtype })
    }

    fn of(task: &Task) -> Vec<Self> {
        let batch = task.shape.batch;
        let mut all: Vec<Self> = Vec::new();
        if task.direct() {
            all.push(Self { order: ScratchOrder::ByImage, images: batch });
        }
        for order in [ScratchOrder::ByImage, ScratchOrder::Folded] {
            // With one image both orders are the same, and an unchanged source need not be divided into groups.
            if (order == ScratchOrder::Folded && batch == 1) || (order == ScratchOrder::ByImage && task.direct()) {
                continue;
            }
            for limit in GROUPS {
                let products = Self { order, images: group(batch, limit / task.columns().max(1)) };
                if !all.contains(&products) {
                    all.push(products);
                }
            }
        }
        all.retain(|products| products.areas(task).offsets()[4] <= LIMIT);
        all
    }

    /// Its number on disk.
    pub fn tag(self) -> u64 {
        2 * self.images as u64 + u64::from(self.order == ScratchOrder::Folded)
    }

    /// The number of weight gradients that are summed.
    pub fn parts(self, task: &Task) -> usize {
        match self.order {
            ScratchOrder::ByImage => task.shape.batch,
            ScratchOrder::Folded => task.shape.batch.div_ceil(self.images),
        }
    }

    pub fn areas(self, task: &Task) -> Areas {
        let folded = self.order == ScratchOrder::Folded;
        let parts = self.parts(task);
        Areas {
            columns: if folded || !task.direct() { self.images * task.columns() } else { 0 },
            folded: match task.role {
                _ if !folded => 0,
                _ => self.images * task.channels() * task.places() * task.dtype.size() as usize,
            },
            parts: if task.role == Role::BackwardWeight && parts > 1 { 4 * parts * task.shape.weight_len() } else { 0 },
        }
    }
}

/// The number of `batch` images processed together, at most `most`: a divisor of `batch`, if one is not far below
/// `most`.
fn group(batch: usize, most: usize) -> usize {
    let most = most.clamp(1, batch.max(1));
    let even = (most.div_ceil(2)..=most).rev().find(|&images| batch.is_multiple_of(images));
    even.unwrap_or_else(|| batch.div_ceil(batch.div_ceil(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(role: Role, dtype: DType, [batch, channels, side, out, kernel, stride, padding]: [usize; 7]) -> Task {
        let places = (side + 2 * padding - kernel) / stride + 1;
        let shape = ConvShape {
            batch,
            in_channels: channels,
            in_height: side,
            in_width: side,
            out_channels: out,
            out_height: places,
            out_width: places,
            kernel,
            stride,
            padding,
            layout: ImageLayout::ChannelsFirst,
        };
        Task { role, shape, dtype }
    }

    fn all(task: &Task) -> Vec<Products> {
        Products::of(task)
    }

    #[test]
    fn windows_of_one_element_are_not_written_down_by_image() {
        for role in [Role::Forward, Role::BackwardInput] {
            let direct = task(role, DType::F32, [64, 256, 56, 64, 1, 1, 0]);
            let first = all(&direct)[0];
            assert_eq!(first, Products { order: ScratchOrder::ByImage, images: 64 });
            assert_eq!(first.areas(&direct), Areas::default());
        }
        let direct = task(Role::BackwardWeight, DType::F32, [64, 256, 56, 64, 1, 1, 0]);
        assert_eq!(all(&direct)[0].areas(&direct), Areas { parts: 4 * 64 * 256 * 64, ..Areas::default() });
        let strided = task(Role::Forward, DType::F32, [64, 256, 56, 64, 1, 2, 0]);
        assert!(all(&strided).iter().all(|products| products.areas(&strided).columns > 0));
    }

    #[test]
    fn groups_of_images_cover_the_batch_within_the_limit() {
        for role in [Role::Forward, Role::BackwardInput, Role::BackwardWeight] {
            for dtype in [DType::F32, DType::Bf16] {
                for sides in [[128, 64, 32, 128, 4, 2, 1], [77, 3, 224, 64, 7, 2, 3], [1, 512, 7, 512, 3, 1, 1]] {
                    let task = task(role, dtype, sides);
                    let all = all(&task);
                    assert!(!all.is_empty(), "{task:?}");
                    for products in all {
                        assert!((1..=sides[0]).contains(&products.images), "{products:?}");
                        assert!(products.areas(&task).offsets()[4] <= LIMIT, "{products:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_are_even_where_that_costs_little() {
        let groups = [(64, 64), (64, 100), (64, 40), (64, 0), (77, 20), (53, 20), (1, 8)];
        assert_eq!(groups.map(|(batch, most)| group(batch, most)), [64, 64, 32, 1, 11, 18, 1]);
    }

    #[test]
    fn what_does_not_fit_is_not_tried() {
        let large = task(Role::BackwardWeight, DType::F32, [512, 2048, 7, 2048, 1, 1, 0]);
        assert!(all(&large).iter().all(|products| products.order == ScratchOrder::Folded));
    }

    #[test]
    fn sums_of_columns_are_not_rounded_in_between() {
        let columns = |role, kernel| task(role, DType::F16, [2, 4, 8, 4, kernel, 1, 0]).columns_type();
        assert_eq!(columns(Role::BackwardInput, 3), DType::F32);
        assert_eq!(columns(Role::BackwardInput, 1), DType::F16);
        assert_eq!(columns(Role::Forward, 3), DType::F16);
    }

    #[test]
    fn areas_do_not_overlap() {
        let areas = Areas { columns: 100, folded: 0, parts: 257 };
        assert_eq!(areas.offsets(), [0, 256, 256, 768, 768 + WORKSPACE]);
    }
}
