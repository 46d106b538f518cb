//! Queues a convolution in its chosen form.

use crate::cuda::blas::Multiplication;
use crate::cuda::convolution::{Form, Products, ScratchOrder, Task};
use crate::cuda::dnn::{ConvolutionCall, ExecutionPlan, Role};
use crate::cuda::geometry::geometry;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::Strided;
use crate::kernels::family::Family;
use crate::{DType, MatrixView, Operand};
use vramlab_allocator::units::Address;

const THREADS: usize = 256;
/// Channels that one thread copies from the source to the columns, or back.
const CHANNELS: usize = 4;

impl Form {
    /// Queues the convolution; false if own kernels must compute it.
    pub fn run(&self, queue: &mut Queue<'_>, convolution: &ConvolutionCall<'_>, tf32: bool) -> Result<bool, Refusal> {
        match self {
            Self::Engine(plan) => {
                let workspace = match plan.workspace() {
                    0 => Address(0),
                    bytes => queue.scratch(bytes)?,
                };
                let addresses = [convolution.src, convolution.weight, convolution.dst].map(|operand| operand.address);
                queue.gpu.dnn.convolve(plan, addresses, workspace, queue.stream)?;
            }
            Self::Turned(plan) => run_turned(queue, convolution, plan)?,
            Self::Products(products) => products.run(queue, convolution, tf32)?,
            Self::Tiles => return Ok(false),
        }
        Ok(true)
    }
}

/// Computes the source's gradient by an engine for the turned convolution.
fn run_turned(queue: &mut Queue<'_>, convolution: &ConvolutionCall<'_>, plan: &ExecutionPlan) -> Result<(), Refusal> {
    let ConvolutionCall { shape, src, weight, dst, .. } = convolution;
    let bytes = plan.workspace().next_multiple_of(256);
    let workspace = queue.scratch(bytes + weight.len * weight.dtype.size() as usize)?;
    let turned = Address(workspace.0 + bytes as u64);
    let grid = Grid::row(blocks_of(weight.len, THREADS).min(8 * queue.multiprocessors()), THREADS as u32);
    let sides = [shape.out_channels, shape.in_channels, shape.kernel * shape.kernel];
    let arguments = sides.into_iter().fold(Arguments::new().operand(weight).at(turned), Arguments::count);
    queue.launch("conv2d_turn", &[weight.dtype], grid, &mut { arguments })?;
    queue.gpu.dnn.convolve(plan, [dst.address, turned, src.address], workspace, queue.stream)
}

impl Products {
    /// Queues the convolution.
    fn run(self, queue: &mut Queue<'_>, convolution: &ConvolutionCall<'_>, tf32: bool) -> Result<(), Refusal> {
        let &ConvolutionCall { role, shape, src, weight, dst } = convolution;
        let task = Task { role, shape: *shape, dtype: src.dtype };
        let areas = self.areas(&task);
        let [columns, folded, parts, workspace, bytes] = areas.offsets();
        let base = queue.scratch(bytes)?;
        let place = |offset: usize| Address(base.0 + offset as u64);
        let scratch = ScratchAreas {
            columns: (areas.columns > 0).then(|| place(columns)),
            folded: (areas.folded > 0).then(|| place(folded)),
            parts: (areas.parts > 0).then(|| place(parts)),
            workspace: place(workspace),
        };
        let mut run = QueuedConvolution { queue, products: self, task, src, weight, dst, tf32, scratch };
        let batch = shape.batch;
        for (group, first) in (0..batch).step_by(self.images).enumerate() {
            run.group(group, first, self.images.min(batch - first))?;
        }
        run.add_parts()
    }
}

/// The addresses of the areas of scratch that are used.
#[derive(Clone, Copy)]
struct ScratchAreas {
    columns: Option<Address>,
    folded: Option<Address>,
    parts: Option<Address>,
    workspace: Address,
}

/// A convolution while it is queued.
struct QueuedConvolution<'q, 'g> {
    queue: &'q mut Queue<'g>,
    products: Products,
    task: Task,
    src: Operand,
    weight: Operand,
    dst: Operand,
    tf32: bool,
    scratch: ScratchAreas,
}

impl QueuedConvolution<'_, '_> {
    /// Queues `count` images, starting at image `first`.
    fn group(&mut self, group: usize, first: usize, count: usize) -> Result<(), Refusal> {
        let Self { task, src, weight, dst, scratch, .. } = *self;
        let (window, places, channels) = (task.window(), task.places(), task.channels());
        let source = element(&src, first * task.shape.in_channels * task.shape.in_area());
        let output = element(&dst, first * channels * places);
        // The number of products, and the columns of each.
        let (batch, width) = match self.products.order {
            ScratchOrder::ByImage => (count, places),
            ScratchOrder::Folded => (1, count * places),
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
                let part = if self.products.order == ScratchOrder::ByImage { first } else { group };
                let sum = match scratch.parts {
                    Some(parts) => weights(Address(parts.0 + (4 * part * channels * window) as u64), DType::F32),
                    None => weights(weight.address, task.dtype),
                };
                self.multiply([channels, window, width], batch, [result, transposed(columns), sum])
            }
        }
    }

    fn multiply(&mut self, [m, n, k]: [usize; 3], batch: usize, [a, b, c]: [MatrixView; 3]) -> Result<(), Refusal> {
        let (sizes, matrices) = ([m, n, k], [a, b, c]);
        let multiplication = Multiplication { sizes, batch, matrices, bias: None, alpha: 1.0, beta: 0.0, scaled: None };
        let workspace = self.scratch.workspace;
        let queue = &mut *self.queue;
        if queue.gpu.blas.run(&multiplication, self.tf32, queue.stream, |_| Ok(workspace))? {
            Ok(())
        } else {
            Err(Refusal::Unsupported(format!("a product of {m}×{n}×{k}")))
        }
    }

    /// Writes the columns of images, unless they are there already.
    fn columns_of(&mut self, source: Address, count: usize) -> Result<(), Refusal> {
        let Some(columns) = self.scratch.columns else { return Ok(()) };
        if self.task.direct() {
            let rows = self.task.shape.in_channels;
            return self.exchange(source, columns, [count, rows]);
        }
        self.windows("conv2d_columns", source, columns, count, self.task.places())
    }

    /// Sums columns into images, unless they are the images.
    fn images_of(&mut self, source: Address, count: usize) -> Result<(), Refusal> {
        let Some(columns) = self.scratch.columns else { return Ok(()) };
        if self.task.direct() {
            let rows = self.task.shape.in_channels;
            return self.exchange(columns, source, [rows, count]);
        }
        self.windows("conv2d_images", columns, source, count, self.task.shape.in_area())
    }

    /// Copies the output's gradient, grouping it by channel.
    fn fold(&mut self, output: Address, count: usize) -> Result<(), Refusal> {
        let Some(folded) = self.scratch.folded else { return Ok(()) };
        self.exchange(output, folded, [count, self.task.channels()])
    }

    /// Copies the output, grouping it by image.
    fn unfold(&mut self, output: Address, count: usize) -> Result<(), Refusal> {
        let Some(folded) = self.scratch.folded else { return Ok(()) };
        self.exchange(folded, output, [self.task.channels(), count])
    }

    /// Transposes rows of output positions: `dst[j, i] = src[i, j]` for i and j below the `sides`.
    fn exchange(&mut self, src: Address, dst: Address, [outer, inner]: [usize; 2]) -> Result<(), Refusal> {
        let places = self.task.places();
        Strided::Copy {
            src,
            dst,
            dtype: self.task.dtype,
            shape: [1, outer, inner, places],
            src_strides: [0, inner * places, places, 1],
            dst_strides: [0, places, outer * places, 1],
        }
        .on_cuda(self.queue)
    }

    /// Launches a kernel between the source's images and their columns; one thread handles one of `area` elements of an
    /// image.
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
            ScratchOrder::ByImage => [self.task.places(), self.task.window() * self.task.places()],
            ScratchOrder::Folded => [count * self.task.places(), self.task.places()],
        };
        let rows = blocks_of(shape.in_channels, CHANNELS);
        let Ok(threads) = u32::try_from(count * area) else {
            return Err(Refusal::Unsupported(format!("{name} of {count} × {area} elements")));
        };
        if rows > u32::from(u16::MAX) || threads > u32::MAX / 2 {
            return Err(Refusal::Unsupported(format!("{name} of {} channels", shape.in_channels)));
        }
        let grid = Grid { blocks: [blocks_of(threads as usize, THREADS), rows, 1], threads: THREADS as u32, shared: 0 };
        let geometry = geometry(&shape).map(|n| n as u64);
        let mut arguments = Arguments::new().at(from).at(to).count(row).count(image).int(threads).structure(&geometry);
        self.queue.launch(name, &[dtype], grid, &mut arguments)
    }

    /// Sums the weight's gradients in a fixed order.
    fn add_parts(&mut self) -> Result<(), Refusal> {
        let Some(parts) = self.scratch.parts else { return Ok(()) };
        let count = self.products.parts(&self.task);
        let grid = Grid::row(blocks_of(self.weight.len, THREADS).min(8 * self.queue.multiprocessors()), THREADS as u32);
        let mut arguments = Arguments::new().at(parts).operand(&self.weight).count(self.weight.len).count(count);
        self.queue.launch("conv2d_sum_parts", &[self.task.dtype], grid, &mut arguments)
    }
}

/// The address of element `index` of the operand.
const fn element(operand: &Operand, index: usize) -> Address {
    Address(operand.address.0 + index as u64 * operand.dtype.size())
}

const fn transposed(view: MatrixView) -> MatrixView {
    MatrixView { row_stride: view.col_stride, col_stride: view.row_stride, ..view }
}
