//! Megatron's tensor parallelism: heads and the columns of MLPs are split, with one all-reduce after each pair of layers.

use std::cell::RefCell;
use std::rc::Rc;

use crate::communicator::bytes_of;
use crate::context::Context;
use crate::error::OpResult;
use crate::member::World;
use crate::memory::Memory;
use crate::shape::Shape;
use crate::split::{Likeness, TensorSplit};
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::StreamId;
use vramlab_device::kernels;
use vramlab_model::{ALL_GATHER, Category};

impl Context {
    /// The group of ranks among which this one splits layers, if it does.
    #[must_use]
    pub fn tensor_world(&self) -> Option<World> {
        self.tensor_ranks.as_ref().map(crate::communicator::Communicator::world)
    }

    /// Notes that a pair of parameters, whose tensors have the part's shapes, is to be split once the model is complete.
    pub fn split_parameters(&mut self, how: TensorSplit, pair: [&Tensor; 2]) {
        let indices = pair.map(Tensor::parameter);
        if let [Some(first), Some(second)] = indices {
            self.splits.push((how, [first, second]));
        }
    }

    /// Megatron's *f*: returns `input` itself; its gradient is summed over the ranks.
    ///
    /// # Errors
    /// Out of memory, a device that is lost.
    pub fn copy_to_ranks(&mut self, input: &Tensor) -> OpResult<Tensor> {
        if !self.differentiates(&[input]) {
            return Ok(input.clone());
        }
        // The 16-bit copy that a fused op wrote, if there is one: products read it anyway, and its gradient has half the bytes to send.
        let input = &self.autocast.twin_of(input).unwrap_or_else(|| input.clone());
        let source = self.record("CopyBackward", [Some(input), None, None], move |cx, [gradient, ..]| {
            let Some(gradient) = gradient else { return Ok(Gradients::default()) };
            let sum = cx.all_reduced(&gradient, Category::Communication, "gradient of all ranks")?;
            Ok([Some(sum), None, None])
        });
        Ok(input.clone().with_source(source))
    }

    /// Megatron's *g*: the sum of `partial` over the ranks, in a clone; its gradient passes unchanged.
    ///
    /// # Errors
    /// Out of memory, a device that is lost.
    pub fn reduce_from_ranks(&mut self, partial: Tensor) -> OpResult<Tensor> {
        self.op("all-reduce", |cx| {
            let sum = cx.all_reduced(&partial, Category::Activation, "sum of all ranks")?;
            if !cx.differentiates(&[&partial]) {
                return Ok(sum);
            }
            let source = cx.record("ReduceBackward", [Some(&partial), None, None], move |_, [gradient, ..]| {
                Ok([gradient, None, None])
            });
            Ok(sum.with_source(source))
        })
    }

    /// `input` itself; its gradient is summed over the ranks in place.
    pub(crate) fn with_gradient_of_ranks(&mut self, input: &Tensor) -> Tensor {
        if self.tensor_ranks.is_none() || !self.differentiates(&[input]) {
            return input.clone();
        }
        let source = self.record("AllReduceBackward", [Some(input), None, None], |cx, [gradient, ..]| {
            if let Some(gradient) = &gradient {
                cx.sum_in_place(gradient)?;
            }
            Ok([gradient, None, None])
        });
        input.clone().with_source(source)
    }

    /// Sums a tensor in place over the ranks that split layers, if there are any.
    pub(crate) fn sum_in_place(&self, tensor: &Tensor) -> OpResult<()> {
        let Some(ranks) = &self.tensor_ranks else { return Ok(()) };
        ranks.all_reduce(self.memory(), tensor)?;
        ranks.join(self.memory())
    }

    /// The columns of all ranks side by side; this rank has made `part`. Each rank takes its own columns of the gradient.
    ///
    /// # Errors
    /// Out of memory, a device that is lost.
    pub fn gather_from_ranks(&mut self, part: Tensor) -> OpResult<Tensor> {
        let Some(world) = self.tensor_world() else { return Ok(part) };
        let shape = part.shape();
        self.op(ALL_GATHER, |cx| {
            let output = cx.side_by_side(&part, world, Category::Activation)?;
            if !cx.differentiates(&[&part]) {
                return Ok(output);
            }
            let (dtype, casts) = (part.dtype(), cx.autocasts());
            let source = cx.record("gatherBackward", [Some(&part), None, None], move |cx, [gradient, ..]| {
                let Some(gradient) = gradient else { return Ok(Gradients::default()) };
                if casts && cx.likeness == Likeness::Unasked {
                    cx.likeness = Likeness::Next;
                }
                let own = cx.temporary(shape, dtype, "gradient of own columns")?;
                cx.take_columns(&gradient, &own, world)?;
                drop(gradient);
                Ok([Some(own), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// This rank's columns of a tensor that all ranks have. The gradient has the columns of all ranks side by side.
    ///
    /// # Errors
    /// Out of memory, a device that is lost.
    pub fn split_over_ranks(&mut self, whole: &Tensor) -> OpResult<Tensor> {
        let Some(world) = self.tensor_world() else { return Ok(whole.clone()) };
        let shape = whole.shape().with_last(whole.shape().last() / world.size());
        self.op("own columns", |cx| {
            let own = cx.activation(shape, whole.dtype(), "own columns")?;
            cx.take_columns(whole, &own, world)?;
            if !cx.differentiates(&[whole]) {
                return Ok(own);
            }
            let source = cx.record("splitBackward", [Some(whole), None, None], move |cx, [gradient, ..]| {
                let Some(gradient) = gradient else { return Ok(Gradients::default()) };
                let sum = cx.side_by_side(&gradient, world, Category::Temporary)?;
                Ok([Some(sum), None, None])
            });
            Ok(own.with_source(source))
        })
    }

    /// The columns of all ranks: an all-gather lays the ranks' parts one after the other, then they are rearranged.
    fn side_by_side(&self, part: &Tensor, world: World, category: Category) -> OpResult<Tensor> {
        let (rows, columns, ranks) = (part.shape().rows(), part.shape().last(), world.size());
        let (memory, whole) = (self.memory().clone(), part.shape().with_last(ranks * columns));
        let gathered = memory.tensor(whole, part.dtype(), Category::Communication, "columns of all ranks")?;
        let own = gathered.window(part.shape(), world.rank() * rows * columns);
        self.launch(kernels::Elementwise::Scale { src: part.operand(), dst: own.operand(), factor: 1.0 })?;
        if let Some(ranks) = &self.tensor_ranks {
            ranks.all_gather(&memory, &gathered)?;
            ranks.join(&memory)?;
        }
        let output = memory.tensor(whole, part.dtype(), category, "columns in order")?;
        let (from, to) = ([rows * columns, columns, 1], [columns, ranks * columns, 1]);
        self.rearrange([&gathered, &output], [ranks, rows, columns], [from, to])?;
        Ok(output)
    }

    /// Copies this rank's columns of `whole`.
    fn take_columns(&self, whole: &Tensor, own: &Tensor, world: World) -> OpResult<()> {
        let (rows, columns) = (own.shape().rows(), own.shape().last());
        let before = world.rank() * columns;
        let first = whole.window(Shape::new(&[whole.numel() - before]), before);
        self.rearrange([&first, own], [1, rows, columns], [[0, world.size() * columns, 1], [0, columns, 1]])
    }

    /// Copies elements of one tensor to places in another, with the strides of each.
    fn rearrange(&self, [from, to]: [&Tensor; 2], [a, b, c]: [usize; 3], strides: [[usize; 3]; 2]) -> OpResult<()> {
        let [src, dst] = strides.map(|[first, second, third]| [a * first, first, second, third]);
        self.launch(kernels::Strided::Cast {
            src: from.address(),
            src_dtype: from.dtype(),
            dst: to.address(),
            dst_dtype: to.dtype(),
            shape: [1, a, b, c],
            src_strides: src,
            dst_strides: dst,
        })
    }

    /// Runs a module whose `weight` all ranks have, while each rank computes a part of its gradient: when the gradient of `input`
    /// has arrived, the weight's is summed over the ranks in place (`replicated_with_grad_allreduce`). Until then the hook that
    /// does it holds the gradient of the module's output.
    ///
    /// # Errors
    /// What `run` returns.
    pub fn with_summed_gradient(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        run: impl FnOnce(&mut Self, &Tensor) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let Some(parameter) = weight.parameter().filter(|_| self.differentiates(&[input])) else {
            return run(self, input);
        };
        let held = Rc::new(RefCell::new(None));
        let holds = Rc::clone(&held);
        let source = self.record("full backward hook", [Some(input), None, None], move |cx, [gradient, ..]| {
            if let (Some(ranks), Some(sum)) = (&cx.tensor_ranks, &cx.leaves[parameter].gradient) {
                ranks.all_reduce(cx.memory(), sum)?;
                ranks.join(cx.memory())?;
            }
            drop(held.take());
            Ok([gradient, None, None])
        });
        let output = run(self, &input.clone().with_source(source))?;
        let source = self.record("full backward pre-hook", [Some(&output), None, None], move |_, [gradient, ..]| {
            holds.replace(gradient.clone());
            Ok([gradient, None, None])
        });
        Ok(output.with_source(source))
    }

    /// Notes that the model was loaded in parts: nothing is to be split once it is complete.
    pub const fn loads_in_parts(&mut self) {
        self.in_parts = true;
    }

    /// The sum over the ranks in a clone, as Megatron's functions make it; in fused mode in place if `tensor` has no other owner.
    fn all_reduced(&mut self, tensor: &Tensor, category: Category, what: &'static str) -> OpResult<Tensor> {
        if self.fused && tensor.is_dense() && Rc::strong_count(tensor.storage()) == 1 {
            self.sum_in_place(tensor)?;
            return Ok(tensor.clone());
        }
        let memory = self.memory().clone();
        let sum = memory.tensor(tensor.shape(), tensor.dtype(), category, what)?;
        self.launch(kernels::Elementwise::Scale { src: tensor.operand(), dst: sum.operand(), factor: 1.0 })?;
        if let Some(ranks) = &self.tensor_ranks {
            ranks.all_reduce(&memory, &sum)?;
            ranks.join(&memory)?;
        }
        Ok(sum)
    }
}

/// Keeps this rank's part of each parameter that is split: the parts are cloned, then the whole parameters are freed.
pub(super) fn split(cx: &mut Context) -> OpResult<()> {
    for (how, pair) in cx.splits.clone() {
        cx.op("split parameters", |cx| {
            let parts = [part(cx, how, pair[0])?, part(cx, how, pair[1])?];
            for (parameter, part) in pair.into_iter().zip(&parts) {
                cx.leaves[parameter].data.replace(part);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn part(cx: &Context, how: TensorSplit, parameter: usize) -> OpResult<Tensor> {
    let leaf = &cx.leaves[parameter];
    let (shape, dtype, memory) = (leaf.data.shape(), leaf.data.dtype(), cx.memory());
    let copy = if how.copies() { Some(cx.temporary(shape, dtype, "contiguous part")?) } else { None };
    let clone = memory.named_tensor(shape, dtype, Category::Parameter, memory.name(&leaf.name), StreamId::DEFAULT)?;
    drop(copy);
    if let Some(world) = cx.tensor_world().filter(|_| memory.holds_bytes()) {
        memory.write(&clone, &selected(memory, world, how, &leaf.data)?)?;
    }
    Ok(clone)
}

/// The bytes of this rank's part of the whole parameter that begins where `data` does.
fn selected(memory: &Memory, world: World, how: TensorSplit, data: &Tensor) -> OpResult<Vec<u8>> {
    let (part, ranks) = (data.numel(), world.size());
    let whole = bytes_of(memory, &data.window(Shape::new(&[part * ranks]), 0))?;
    // The whole consists of this many stretches; the part takes one run of each.
    let stretches = match how {
        TensorSplit::Heads => 3,
        TensorSplit::Outputs => 1,
        TensorSplit::Inputs => data.shape().dims().first().copied().unwrap_or(1),
    };
    let stretch = whole.len() / stretches.max(1);
    let run = stretch / ranks;
    let own = whole.chunks(stretch.max(1)).flat_map(|stretch| &stretch[run * world.rank()..run * (world.rank() + 1)]);
    Ok(own.copied().collect())
}
