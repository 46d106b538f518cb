//! Convolutions as products of matrices that are written down in scratch: the windows of the source as columns, one for
//! each place of the output. For windows of one element that touch, the source itself is that matrix.

use std::fmt;

use crate::device::cuda::blas::WORKSPACE;
use crate::device::cuda::dnn::{Convolution, ConvolutionKey, Role};
use crate::device::cuda::kernels;
use crate::device::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::device::{ConvShape, DType, ImageLayout, Kernel, MatrixView, Operand};
use crate::units::Address;

/// Bytes of columns that are written down at once: what stays in a large second-level cache, and what keeps any device
/// busy.
const GROUPS: [usize; 2] = [24 << 20, 256 << 20];
/// Bytes of scratch in all.
const LIMIT: usize = 1 << 30;
const THREADS: usize = 256;
/// Channels that one thread takes from the source to the columns, or back.
const CHANNELS: usize = 4;

/// How a convolution becomes products of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Products {
    order: Order,
    /// Images whose columns are in scratch at once.
    images: usize,
}

/// In what order matrices lie in scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One matrix for each image.
    ByImage,
    /// One matrix for all images: each row goes through them.
    Folded,
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::ByImage => "by image",
            Order::Folded => "folded",
        };
        write!(f, "{order}, {} at once", self.images)
    }
}

/// The matrices of one convolution: output channels by window, window by places, output channels by places.
#[derive(Clone, Copy, Debug)]
struct Task {
    role: Role,
    shape: ConvShape,
    dtype: DType,
}

impl Task {
    /// Rows of the columns.
    const fn window(&self) -> usize {
        self.shape.window()
    }

    const fn places(&self) -> usize {
        self.shape.out_area()
    }

    const fn channels(&self) -> usize {
        self.shape.out_channels
    }

    /// The columns are the source as it is.
    const fn direct(&self) -> bool {
        self.shape.kernel == 1 && self.shape.stride == 1 && self.shape.padding == 0
    }

    /// Type of the columns: sums of several of them are not rounded in between.
    fn columns_type(&self) -> DType {
        if self.role == Role::BackwardInput && !self.direct() { DType::F32 } else { self.dtype }
    }

    /// Bytes of one image's columns.
    fn columns(&self) -> usize {
        self.window() * self.places() * self.columns_type().size() as usize
    }
}

/// Bytes of each area of scratch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Areas {
    columns: usize,
    /// The output of some images, or its gradient, channel by channel.
    folded: usize,
    /// Gradients of the weight, in f32: of each image or group of images.
    parts: usize,
}

impl Areas {
    /// Where each begins, where the workspace of products does, and where that ends.
    fn offsets(self) -> [usize; 5] {
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
    /// Those that are worth a trial.
    pub fn all(key: &ConvolutionKey) -> Vec<Self> {
        // Matrices are written down from planes.
        if key.shape.layout == ImageLayout::ChannelsLast {
            return Vec::new();
        }
        Self::of(&Task { role: key.role, shape: key.shape, dtype: key.dtype })
    }

    fn of(task: &Task) -> Vec<Self> {
        let batch = task.shape.batch;
        let mut all: Vec<Self> = Vec::new();
        if task.direct() {
            all.push(Self { order: Order::ByImage, images: batch });
        }
        for order in [Order::ByImage, Order::Folded] {
            // Of one image both are the same; and what is not written down is not taken in groups.
            if (order == Order::Folded && batch == 1) || (order == Order::ByImage && task.direct()) {
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

    /// What it is written down as.
    pub fn tag(self) -> u64 {
        2 * self.images as u64 + u64::from(self.order == Order::Folded)
    }

    /// Gradients of the weight that are added up.
    fn parts(self, task: &Task) -> usize {
        match self.order {
            Order::ByImage => task.shape.batch,
            Order::Folded => task.shape.batch.div_ceil(self.images),
        }
    }

    fn areas(self, task: &Task) -> Areas {
        let folded = self.order == Order::Folded;
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

    /// Queues it.
    pub fn run(self, queue: &mut Queue<'_>, convolution: &Convolution<'_>, tf32: bool) -> Result<(), Refusal> {
        let &Convolution { role, shape, src, weight, dst } = convolution;
        let task = Task { role, shape: *shape, dtype: src.dtype };
        let areas = self.areas(&task);
        let [columns, folded, parts, workspace, bytes] = areas.offsets();
        let base = queue.scratch(bytes)?;
        let place = |offset: usize| Address(base.0 + offset as u64);
        let scratch = Scratch {
            columns: (areas.columns > 0).then(|| place(columns)),
            folded: (areas.folded > 0).then(|| place(folded)),
            parts: (areas.parts > 0).then(|| place(parts)),
            workspace: place(workspace),
        };
        let mut run = Run { queue, products: self, task, src, weight, dst, tf32, scratch };
        let batch = shape.batch;
        for (group, first) in (0..batch).step_by(self.images).enumerate() {
            run.group(group, first, self.images.min(batch - first))?;
        }
        run.add_parts()
    }
}

/// Where areas of scratch are, those that there are.
#[derive(Clone, Copy)]
struct Scratch {
    columns: Option<Address>,
    folded: Option<Address>,
    parts: Option<Address>,
    workspace: Address,
}

/// One convolution as it is queued.
struct Run<'q, 'g> {
    queue: &'q mut Queue<'g>,
    products: Products,
    task: Task,
    src: Operand,
    weight: Operand,
    dst: Operand,
    tf32: bool,
    scratch: Scratch,
}

impl Run<'_, '_> {
    /// The images from `first` on, `count` of them.
    fn group(&mut self, group: usize, first: usize, count: usize) -> Result<(), Refusal> {
        let Self { task, src, weight, dst, scratch, .. } = *self;
        let (window, places, channels) = (task.window(), task.places(), task.channels());
        let source = element(&src, first * task.shape.in_channels * task.shape.in_area());
        let output = element(&dst, first * channels * places);
        // Of the products: matrices, and columns of each.
        let (batch, width) = match self.products.order {
            Order::ByImage => (count, places),
            Order::Folded => (1, count * places),
        };
        let by_place = |address, dtype, rows| MatrixView {
            address,
            dtype,
            row_stride: width,
            col_stride: 1,
            batch_stride: rows * places,
        };
        let columns = by_place(scratch.columns.unwrap_or(source), task.columns_type(), window);
        let result = by_place(scratch.folded.unwrap_or(output), task.dtype, channels);
        let weights = |address, dtype| MatrixView {
            address,
            dtype,
            row_stride: window,
            col_stride: 1,
            batch_stride: channels * window,
        };
        match task.role {
            Role::Forward => {
                self.columns_of(source, count)?;
                let weight = MatrixView { batch_stride: 0, ..weights(weight.address, task.dtype) };
                self.multiply([channels, width, window], batch, [weight, columns, result])?;
                self.unfold(output, count)
            }
            Role::BackwardInput => {
                self.fold(output, count)?;
                let weight = MatrixView { batch_stride: 0, ..weights(weight.address, task.dtype) };
                self.multiply([window, width, channels], batch, [transposed(weight), result, columns])?;
                self.images_of(source, count)
            }
            Role::BackwardWeight => {
                self.columns_of(source, count)?;
                self.fold(output, count)?;
                let part = if self.products.order == Order::ByImage { first } else { group };
                let sum = match scratch.parts {
                    Some(parts) => weights(Address(parts.0 + (4 * part * channels * window) as u64), DType::F32),
                    None => weights(weight.address, task.dtype),
                };
                self.multiply([channels, window, width], batch, [result, transposed(columns), sum])
            }
        }
    }

    fn multiply(&mut self, [m, n, k]: [usize; 3], batch: usize, [a, b, c]: [MatrixView; 3]) -> Result<(), Refusal> {
        let kernel = Kernel::Gemm { m, n, k, batch, a, b, c, bias: None, alpha: 1.0, accumulate: false };
        let workspace = self.scratch.workspace;
        let queue = &mut *self.queue;
        if queue.gpu.blas.run(&kernel, self.tf32, queue.stream, |_| Ok(workspace))? {
            Ok(())
        } else {
            Err(Refusal::Unsupported(format!("a product of {m}×{n}×{k}")))
        }
    }

    /// Writes down the columns of images, unless they lie there already.
    fn columns_of(&mut self, source: Address, count: usize) -> Result<(), Refusal> {
        let Some(columns) = self.scratch.columns else { return Ok(()) };
        if self.task.direct() {
            let rows = self.task.shape.in_channels;
            return self.exchange(source, columns, [count, rows]);
        }
        self.windows("conv2d_columns", source, columns, count, self.task.places())
    }

    /// Adds columns up to images, unless they are those already.
    fn images_of(&mut self, source: Address, count: usize) -> Result<(), Refusal> {
        let Some(columns) = self.scratch.columns else { return Ok(()) };
        if self.task.direct() {
            let rows = self.task.shape.in_channels;
            return self.exchange(columns, source, [rows, count]);
        }
        self.windows("conv2d_images", columns, source, count, self.task.shape.in_area())
    }

    /// Takes the output's gradient channel by channel.
    fn fold(&mut self, output: Address, count: usize) -> Result<(), Refusal> {
        let Some(folded) = self.scratch.folded else { return Ok(()) };
        self.exchange(output, folded, [count, self.task.channels()])
    }

    /// Puts the output image by image.
    fn unfold(&mut self, output: Address, count: usize) -> Result<(), Refusal> {
        let Some(folded) = self.scratch.folded else { return Ok(()) };
        self.exchange(folded, output, [self.task.channels(), count])
    }

    /// Copies rows of the output's places: `dst[j, i] = src[i, j]` for i and j below the `sides`.
    fn exchange(&mut self, src: Address, dst: Address, [outer, inner]: [usize; 2]) -> Result<(), Refusal> {
        let places = self.task.places();
        let copy = Kernel::CopyStrided {
            src,
            dst,
            dtype: self.task.dtype,
            shape: [1, outer, inner, places],
            src_strides: [0, inner * places, places, 1],
            dst_strides: [0, places, outer * places, 1],
        };
        kernels::launch(self.queue, &copy)
    }

    /// A kernel between the source's images and their columns, of which a thread takes one of `area` elements of an image.
    fn windows(
        &mut self,
        name: &'static str,
        from: Address,
        to: Address,
        count: usize,
        area: usize,
    ) -> Result<(), Refusal> {
        let Task { shape, dtype, .. } = self.task;
        let [row, image] = match self.products.order {
            Order::ByImage => [self.task.places(), self.task.window() * self.task.places()],
            Order::Folded => [count * self.task.places(), self.task.places()],
        };
        let rows = blocks_of(shape.in_channels, CHANNELS);
        let Ok(threads) = u32::try_from(count * area) else {
            return Err(Refusal::Unsupported(format!("{name} of {count} × {area} elements")));
        };
        if rows > u32::from(u16::MAX) || threads > u32::MAX / 2 {
            return Err(Refusal::Unsupported(format!("{name} of {} channels", shape.in_channels)));
        }
        let grid = Grid { blocks: [blocks_of(threads as usize, THREADS), rows, 1], threads: THREADS as u32, shared: 0 };
        let geometry = kernels::geometry(&shape).map(|n| n as u64);
        let mut arguments = Arguments::new().at(from).at(to).count(row).count(image).int(threads).structure(&geometry);
        self.queue.launch(name, &[dtype], grid, &mut arguments)
    }

    /// Adds up the gradients of the weight, in a fixed order.
    fn add_parts(&mut self) -> Result<(), Refusal> {
        let Some(parts) = self.scratch.parts else { return Ok(()) };
        let count = self.products.parts(&self.task);
        let grid = Grid::row(blocks_of(self.weight.len, THREADS).min(8 * self.queue.multiprocessors()), THREADS as u32);
        let mut arguments = Arguments::new().at(parts).operand(&self.weight).count(self.weight.len).count(count);
        self.queue.launch("conv2d_sum_parts", &[self.task.dtype], grid, &mut arguments)
    }
}

/// How many of `batch` images go together, at most `most`: the same number each time, if that is not far from the most.
fn group(batch: usize, most: usize) -> usize {
    let most = most.clamp(1, batch.max(1));
    let even = (most.div_ceil(2)..=most).rev().find(|&images| batch.is_multiple_of(images));
    even.unwrap_or_else(|| batch.div_ceil(batch.div_ceil(most)))
}

/// The address of the operand's element `index`.
const fn element(operand: &Operand, index: usize) -> Address {
    Address(operand.address.0 + index as u64 * operand.dtype.size())
}

const fn transposed(view: MatrixView) -> MatrixView {
    MatrixView { row_stride: view.col_stride, col_stride: view.row_stride, ..view }
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
            assert_eq!(first, Products { order: Order::ByImage, images: 64 });
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
        assert!(all(&large).iter().all(|products| products.order == Order::Folded));
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
