//! `DistributedDataParallel`: gradients are averaged in flat buckets while backward goes on.

use crate::context::Context;
use crate::error::OpResult;
use crate::hooks::Hooks;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{DType, kernels};
use vramlab_model::{Category, DDP_BUCKET, Parallelism};

use super::construction;
use crate::communicator::Communicator;
use crate::member::Member;

/// Sizes at which the first bucket is closed, and all others: `_DEFAULT_FIRST_BUCKET_BYTES` and `bucket_cap_mb`.
const FIRST_BUCKET: Bytes = Bytes::mib(1);
const BUCKET: Bytes = Bytes::mib(25);

/// A flat tensor that gradients are summed in.
struct Bucket {
    data: Tensor,
    /// Gradients that have not arrived in this pass.
    awaited: usize,
    parameters: Vec<usize>,
}

/// Where a parameter's gradient lies.
#[derive(Clone, Copy)]
struct BucketSlot {
    bucket: usize,
    offset: usize,
}

/// The reducer of one rank. It makes buckets for all parameters together at first. Before the forward after the first
/// synchronised pass it makes them again, in the order in which gradients became ready.
pub(super) struct Reducer {
    communicator: Communicator,
    /// Gradients are views of the buckets (`gradient_as_bucket_view`).
    views: bool,
    buckets: Vec<Bucket>,
    /// The place of each parameter's gradient, by parameter.
    places: Vec<BucketSlot>,
    /// Parameters in the order of the first synchronised pass; `None` once buckets follow that order.
    order: Option<Vec<usize>>,
    /// The buffers that the model had when it was wrapped: these are sent, even if the model has replaced them since.
    modules_buffers: Vec<Tensor>,
    /// The last forward's pass is synchronised: buffers are sent before the next forward.
    sends_buffers: bool,
    /// By parameter, the rank whose optimizer updates it, if ranks share the state.
    owners: Option<Vec<usize>>,
}

impl Reducer {
    /// `DistributedDataParallel(model)`.
    pub fn wrap(cx: &mut Context, Member { parallelism, world }: Member) -> OpResult<Self> {
        construction::verify_shapes(cx, world)?;
        let modules_buffers: Vec<Tensor> = cx.buffers().collect();
        let parameters = cx.leaves.iter().map(|leaf| match leaf.packed_in {
            Some(dtype) => (dtype, leaf.shard_rows()),
            None => (leaf.data.dtype(), leaf.data.numel()),
        });
        let state: Vec<_> = parameters.chain(modules_buffers.iter().map(kind)).collect();
        construction::broadcast(cx, &state)?;
        let mut reducer = Self {
            communicator: Communicator::new(cx.memory(), world, cx.seat.as_ref())?,
            views: parallelism == Parallelism::DdpView,
            buckets: Vec::new(),
            places: Vec::new(),
            order: Some(Vec::new()),
            modules_buffers,
            sends_buffers: true,
            owners: None,
        };
        let trained: Vec<usize> = (0..cx.leaves.len()).filter(|&parameter| !cx.leaves[parameter].frozen).collect();
        reducer.make_buckets(cx, &trained, [Bytes(u64::MAX); 2])?;
        Ok(reducer)
    }

    /// Makes buckets of parameters in this order. A bucket is closed by the parameter with which it reaches its limit:
    /// `first` for the first bucket of a type, then `others`.
    fn make_buckets(&mut self, cx: &mut Context, order: &[usize], [first, others]: [Bytes; 2]) -> OpResult<()> {
        let parts =
            assign(order.iter().map(|&p| (p, cx.leaves[p].data.dtype(), cx.leaves[p].data.numel())), first, others);
        self.buckets.clear();
        self.places = vec![BucketSlot { bucket: 0, offset: 0 }; cx.leaves.len()];
        for (number, BucketPart { dtype, parameters, .. }) in parts.into_iter().enumerate() {
            let mut elements = 0;
            for &parameter in &parameters {
                self.places[parameter] = BucketSlot { bucket: number, offset: elements };
                elements += cx.leaves[parameter].data.numel();
            }
            let memory = cx.memory();
            let name = memory.name(&format!("{DDP_BUCKET} {number}"));
            let shape = Shape::new(&[elements]);
            // If gradients are views of a bucket, the bucket's memory is theirs.
            let category = if self.views { Category::Gradient } else { Category::Communication };
            let data = memory.named_tensor(shape, dtype, category, name, StreamId::DEFAULT)?;
            self.buckets.push(Bucket { data, awaited: parameters.len(), parameters });
        }
        Ok(())
    }

    /// `_rebuild_buckets`: the ranks agree on rank 0's order, then buckets are made in that order.
    fn rebuild(&mut self, cx: &mut Context, order: &[usize]) -> OpResult<()> {
        cx.op("rebuild buckets", |cx| {
            let of_sizes = order.iter().map(|&p| (p, cx.leaves[p].data.dtype(), cx.leaves[p].data.numel()));
            let buckets = assign(of_sizes, FIRST_BUCKET, BUCKET).len();
            let list = |cx: &Context, len, what| cx.temporary(Shape::new(&[len]), DType::F32, what);
            let indices = list(cx, order.len() + 1, "order of parameters")?;
            drop((list(cx, buckets, "sizes of buckets")?, indices));
            self.make_buckets(cx, order, [FIRST_BUCKET, BUCKET])
        })
    }

    fn view(&self, parameter: usize, shape: Shape) -> Tensor {
        let BucketSlot { bucket, offset } = self.places[parameter];
        self.buckets[bucket].data.window(shape, offset)
    }

    /// Copies a gradient into its bucket, divided by the number of ranks; the last gradient of a bucket starts its all-reduce.
    fn mark_ready(&mut self, cx: &mut Context, parameter: usize) -> OpResult<()> {
        let leaf = &cx.leaves[parameter];
        let Some(gradient) = leaf.gradient.clone() else { return Ok(()) };
        let view = self.view(parameter, leaf.data.shape());
        #[expect(clippy::cast_precision_loss, reason = "ranks of a world")]
        let factor = 1.0 / self.communicator.world().size() as f64;
        cx.launch(kernels::Elementwise::Scale { src: gradient.flat(), dst: view.flat(), factor })?;
        if self.views && gradient.address() != view.address() {
            cx.leaves[parameter].gradient = Some(view);
        }
        drop(gradient);
        if let Some(order) = &mut self.order {
            order.push(parameter);
        }
        let bucket = &mut self.buckets[self.places[parameter].bucket];
        bucket.awaited = bucket.awaited.saturating_sub(1);
        if bucket.awaited == 0 {
            self.communicator.all_reduce(cx.memory(), &bucket.data)?;
        }
        Ok(())
    }
}

/// A tensor's type and element count.
fn kind(tensor: &Tensor) -> (DType, usize) {
    (tensor.dtype(), tensor.numel())
}

impl Hooks<Context> for Reducer {
    fn enter_model(&mut self, cx: &mut Context, input: Tensor) -> OpResult<Tensor> {
        if let Some(order) = self.order.take_if(|order| !order.is_empty()) {
            self.rebuild(cx, &order)?;
        }
        if self.sends_buffers {
            let buffers = &self.modules_buffers;
            if !buffers.is_empty() {
                construction::broadcast(cx, &buffers.iter().map(kind).collect::<Vec<_>>())?;
                self.communicator.broadcast(cx.memory(), buffers, |_| 0)?;
                self.communicator.join(cx.memory())?;
            }
        }
        self.sends_buffers = cx.synchronises;
        Ok(input)
    }

    fn gradients_ready(&mut self, cx: &mut Context, parameters: &[usize]) -> OpResult<()> {
        if !cx.synchronises {
            return Ok(());
        }
        parameters.iter().try_for_each(|&parameter| self.mark_ready(cx, parameter))
    }

    fn after_backward(&mut self, cx: &mut Context) -> OpResult<()> {
        if !cx.synchronises {
            return Ok(());
        }
        self.communicator.join(cx.memory())?;
        for bucket in &mut self.buckets {
            bucket.awaited = bucket.parameters.len();
        }
        if self.views {
            return Ok(());
        }
        for parameter in 0..self.places.len() {
            let leaf = &cx.leaves[parameter];
            if let Some(gradient) = &leaf.gradient {
                let view = self.view(parameter, leaf.data.shape());
                cx.launch(kernels::Elementwise::Scale { src: view.flat(), dst: gradient.flat(), factor: 1.0 })?;
            }
        }
        Ok(())
    }

    fn updated_by(&mut self, owners: Vec<usize>) {
        self.owners = Some(owners);
    }

    fn after_optimizer(&mut self, cx: &mut Context) -> OpResult<()> {
        let Some(owners) = &self.owners else { return Ok(()) };
        let parameters: Vec<Tensor> = cx.leaves.iter().map(|leaf| leaf.data.clone()).collect();
        self.communicator.broadcast(cx.memory(), &parameters, |parameter| owners[parameter])?;
        self.communicator.join(cx.memory())
    }

    fn abandon(&mut self, _: &mut Context) {
        for bucket in &mut self.buckets {
            bucket.awaited = bucket.parameters.len();
        }
        if let Some(order) = &mut self.order {
            order.clear();
        }
        self.sends_buffers = true;
    }
}

/// The parameters of one bucket.
#[derive(Debug, PartialEq, Eq)]
struct BucketPart {
    dtype: DType,
    elements: usize,
    parameters: Vec<usize>,
}

/// `compute_bucket_assignment_by_size` for parameters in a given order: number, type, elements.
fn assign(order: impl Iterator<Item = (usize, DType, usize)>, first: Bytes, others: Bytes) -> Vec<BucketPart> {
    let (mut open, mut closed): (Vec<BucketPart>, Vec<BucketPart>) = (Vec::new(), Vec::new());
    for (parameter, dtype, elements) in order {
        let place = open.iter().position(|part| part.dtype == dtype).unwrap_or_else(|| {
            open.push(BucketPart { dtype, elements: 0, parameters: Vec::new() });
            open.len() - 1
        });
        let part = &mut open[place];
        part.elements += elements;
        part.parameters.push(parameter);
        let limit = if closed.iter().any(|part| part.dtype == dtype) { others } else { first };
        if dtype.bytes(open[place].elements) >= limit {
            closed.push(open.remove(place));
        }
    }
    closed.append(&mut open);
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gpt2 under autocast, read from a recording: the last LayerNorm and a weight, twelve blocks without that weight, the tables.
    #[test]
    fn buckets_are_pytorchs() {
        let width = 768;
        let mut sizes = vec![width, width, 4 * width * width];
        for number in 0..12 {
            sizes.push(width);
            sizes.extend([4 * width * width, 4 * width, width, width]);
            sizes.extend([width * width, width, 3 * width * width, 3 * width, width, width]);
            if number < 11 {
                sizes.push(4 * width * width);
            }
        }

        sizes.extend([1024 * width, 50_257 * width]);
        let order = sizes.iter().enumerate().map(|(parameter, &elements)| (parameter, DType::F32, elements));
        let bytes: Vec<u64> =
            assign(order, FIRST_BUCKET, BUCKET).iter().map(|part| part.dtype.bytes(part.elements).get()).collect();
        let mut expected = vec![9_443_328];
        expected.extend([28_351_488; 11]);
        expected.push(176_449_536);
        assert_eq!(bytes, expected);
    }
}
