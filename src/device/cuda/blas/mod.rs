//! Matrix products through cuBLASLt. For each shape, the algorithms that its heuristic proposes are timed once, and the
//! fastest is stored on disk, so that a run can be repeated bit for bit.
#![allow(unsafe_code)]

mod handle;
mod product;

use std::collections::HashMap;
use std::mem;

use super::choices::Choices;
use super::driver::Stream;
use super::refusal::Refusal;
use super::stopwatch::Stopwatch;
use handle::{Algorithm, AlgorithmData, BlasHandle, MatmulDescriptors};
use product::{Product, Shape};
use vramlab_allocator::units::Address;

pub(crate) use product::Multiplication;

/// The workspace of a product, in bytes: PyTorch's default on Hopper.
pub(crate) const WORKSPACE: usize = 32 << 20;
/// The number of algorithms that are timed.
const CANDIDATES: usize = 16;
/// The share of the first choice's time that another algorithm may take to replace it. Smaller gains are noise.
const MARGIN: f32 = 0.97;

/// cuBLASLt's handle, and what is known about each shape.
pub(crate) struct Blas {
    handle: BlasHandle,
    plans: HashMap<Shape, (MatmulDescriptors, Algorithm)>,
    choices: Choices<{ mem::size_of::<AlgorithmData>() / 8 }>,
}

impl Blas {
    /// The library's version, in its own numbering.
    pub fn version(&self) -> usize {
        self.handle.version()
    }

    /// Opens the library; `device` names the device on which choices were timed.
    pub fn new(device: &str) -> Result<Self, Refusal> {
        let handle = BlasHandle::new()?;
        let choices = Choices::open("gemm", device, &handle.version().to_string());
        Ok(Self { handle, plans: HashMap::new(), choices })
    }

    /// Runs the product; false if cuBLASLt has no algorithm for it. `workspace` returns memory of the requested size.
    pub fn run(
        &mut self,
        multiplication: &Multiplication,
        tf32: bool,
        stream: Stream,
        mut workspace: impl FnMut(usize) -> Result<Address, Refusal>,
    ) -> Result<bool, Refusal> {
        let Some(product) = Product::of(multiplication, tf32) else { return Ok(false) };
        if !self.plans.contains_key(&product.shape) {
            let Some(chosen) = self.choose(&product, stream, &mut workspace)? else { return Ok(false) };
            self.plans.insert(product.shape, chosen);
        }
        let Some((plan, algorithm)) = self.plans.get(&product.shape) else { return Ok(false) };
        let area = if algorithm.workspace == 0 { Address(0) } else { workspace(algorithm.workspace)? };
        self.handle.multiply(plan, &product, algorithm, area, stream)?;
        Ok(true)
    }

    /// The fastest algorithm that runs. Computing the product several times changes nothing unless it accumulates. The
    /// heuristic proposes some algorithms that refuse the given addresses.
    fn choose(
        &mut self,
        product: &Product,
        stream: Stream,
        workspace: &mut impl FnMut(usize) -> Result<Address, Refusal>,
    ) -> Result<Option<(MatmulDescriptors, Algorithm)>, Refusal> {
        let plan = MatmulDescriptors::new(&product.shape)?;
        plan.scale(product.scales)?;
        // Not searched among the candidates: in a process that has already called it, the heuristic proposes other
        // ones.
        let known = self.choices.get(&product.shape).and_then(|known| self.handle.check(&plan, known, WORKSPACE));
        if let Some(known) = known {
            return Ok(Some((plan, known)));
        }
        let candidates = self.handle.algorithms(&plan, &product.shape, WORKSPACE, CANDIDATES)?;
        let Some(&first) = candidates.first() else { return Ok(None) };
        if product.shape.accumulate {
            return Ok(Some((plan, first)));
        }
        let area = workspace(WORKSPACE)?;
        let stopwatch = Stopwatch::new()?;
        let mut chosen: Option<(Algorithm, f32)> = None;
        for &candidate in &candidates {
            let limit = chosen.map_or(f32::INFINITY, |(_, best)| best);
            let time = stopwatch.best(stream, limit, || self.handle.multiply(&plan, product, &candidate, area, stream));
            match (time, chosen) {
                (Ok(taken), None) => chosen = Some((candidate, MARGIN * taken)),
                (Ok(taken), Some((_, best))) if taken < best => chosen = Some((candidate, taken)),
                (Err(Refusal::Driver(failure)), _) => return Err(failure.into()),
                _ => {}
            }
        }
        let Some((algorithm, _)) = chosen else { return Ok(None) };
        self.choices.keep(&product.shape, algorithm.data);
        Ok(Some((plan, algorithm)))
    }
}
