//! Bare allocations of random sizes and lifetimes: fragmentation without a model.

use std::collections::VecDeque;

use serde::Deserialize;

use vramlab_allocator::units::MIB;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{
    Batch, BatchLayout, BatchSource, Config, Context, Layouts, OpResult, Outcome, Routine, Shape, Task, Tensor,
    TrainError, Workload,
};
use vramlab_user_input::Within;

use super::random::Random;

/// How much is allocated, and how much of it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChurnSizes {
    /// Requests of a step.
    pub count: Within<1, 1_000_000>,
    /// The largest request, in MiB; sizes are log-uniform from one byte to this.
    pub largest_mib: Within<1, { 1 << 20 }>,
    /// Tensors that are alive at once; when there are more, a random one is freed.
    pub kept: TensorCount,
    /// Long-lived tensors besides those: one of every eight requests; the oldest is freed first.
    #[serde(default)]
    pub kept_long: TensorCount,
}

/// Number of tensors that a churn keeps.
pub type TensorCount = Within<0, 100_000>;

/// One of this many requests lives long.
const LONG_LIVED: usize = 8;

/// The workload without a model.
#[derive(Clone, Debug)]
pub struct Churn {
    name: String,
    sizes: ChurnSizes,
    seed: u64,
}

impl Churn {
    /// A workload of these sizes; `seed` decides what is random.
    #[must_use]
    pub fn new(name: &str, sizes: ChurnSizes, seed: u64) -> Self {
        Self { name: name.into(), sizes, seed }
    }
}

impl Workload for Churn {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, _: &mut Context) -> OpResult<Task> {
        Ok(Task::Routine(Box::new(Rounds {
            sizes: self.sizes,
            random: Random::new(self.seed),
            kept: Vec::new(),
            kept_long: VecDeque::new(),
        })))
    }

    fn resident_batches(&self, _: &mut Context, _: usize) -> OpResult<Vec<Batch>> {
        Ok(Vec::new())
    }

    fn fresh_batch(&self, _: &mut Context, _: u32, _: usize, _: u64) -> OpResult<Batch> {
        Err(no_batches().into())
    }

    fn batch_layouts(&self, _: usize) -> Layouts {
        let nothing = (Shape::new(&[0]), DType::U8);
        Layouts::Alike(BatchLayout::new(nothing, nothing))
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Err(no_batches())
    }

    fn items_per_sample(&self) -> usize {
        1
    }
}

fn no_batches() -> TrainError {
    TrainError::Workload("a churn reads no batches; leave --data out".into())
}

/// Rounds of requests; a step is one round.
struct Rounds {
    sizes: ChurnSizes,
    random: Random,
    kept: Vec<Tensor>,
    kept_long: VecDeque<Tensor>,
}

impl Rounds {
    /// Bytes of the next request.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sizes are below 2^40, and random"
    )]
    fn size(&mut self) -> usize {
        let largest = self.sizes.largest_mib.get() as f64 * MIB as f64;
        (self.random.unit() * largest.ln()).exp() as usize
    }

    fn request(&mut self, cx: &mut Context) -> OpResult<()> {
        let shape = Shape::new(&[self.size().max(1)]);
        let tensor = cx.memory().tensor(shape, DType::U8, Category::Other, "random tensor")?;
        let [kept, kept_long] = [self.sizes.kept, self.sizes.kept_long].map(TensorCount::get);
        if kept_long > 0 && self.random.below(LONG_LIVED) == 0 {
            self.kept_long.push_back(tensor);
            if self.kept_long.len() > kept_long {
                self.kept_long.pop_front();
            }
            return Ok(());
        }
        self.kept.push(tensor);
        while self.kept.len() > kept {
            self.kept.swap_remove(self.random.below(self.kept.len()));
        }
        Ok(())
    }
}

impl Routine for Rounds {
    fn step(&mut self, cx: &mut Context, _: &Config, _: u64) -> OpResult<Outcome> {
        for _ in 0..self.sizes.count.get() {
            cx.op("allocate", |cx| self.request(cx))?;
        }
        Ok(Outcome::default())
    }

    fn reset(&mut self) {
        self.kept.clear();
        self.kept_long.clear();
    }
}
