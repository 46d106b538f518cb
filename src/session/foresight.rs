//! Predicts what a run on the processor will need before it begins.
//!
//! A step runs on a simulated processor that computes nothing: the memory it needs is what the run will need, and its
//! time is an estimate.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use super::{DeviceChoice, LabSpec};
use vramlab_allocator::units::Bytes;
use vramlab_device::cpu;
use vramlab_device::sim::{Card, SimDevice};
use vramlab_model::{Event, Micros};
use vramlab_train::{Answer, Libraries, Observer, SafePoint, TrainError};

/// A processor core as a simulated device, with more memory than any has.
const CORE: &str = include_str!("../../lab/processor.toml");

/// The forecast for a step on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostForecast {
    /// The most bytes that it reserves; at least that many if the step was not simulated to its end.
    pub needs: Bytes,
    /// Available bytes: of the machine, or by its limit.
    pub has: Bytes,
    /// A lower estimate of its time, in microseconds.
    pub step: Micros,
    /// True if the step was simulated to its end.
    pub whole: bool,
}

/// Stops a step whose simulation takes too long.
struct Deadline {
    at: Instant,
    time: Rc<Cell<Micros>>,
}

impl Observer for Deadline {
    fn event(&mut self, event: Event) {
        self.time.set(event.time);
    }

    fn safe_point(&mut self, _: SafePoint) -> Answer {
        if Instant::now() < self.at { Answer::Continue } else { Answer::Stop }
    }
}

/// The machine's processor as a simulated device with this much memory; `None` if its file can't be read.
fn card(memory: Bytes) -> Option<Card> {
    let mut card: Card = toml::from_str(CORE).ok()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
    let times = cores as f64;
    card.bandwidth *= times;
    for rate in [&mut card.peak.fp32, &mut card.peak.tf32, &mut card.peak.fp16, &mut card.peak.bf16] {
        *rate *= times;
    }
    Some(Card { name: "processor".to_owned(), memory: memory.min(card.memory), ..card })
}

impl LabSpec {
    /// The same run without computation: on a simulated processor with the machine's memory. `None` if the run is not
    /// on the processor.
    #[must_use]
    pub fn without_arithmetic(&self) -> Option<Self> {
        if self.device != DeviceChoice::Cpu {
            return None;
        }
        let device = DeviceChoice::Sim(Box::new(card(cpu::memory())?));
        Some(Self { device, kernels: None, ..self.clone() })
    }

    /// Simulates the first step of a run on the processor, for `patience` at most. `None` for runs elsewhere, or if the
    /// model can't be built; whoever runs it will be told why.
    #[must_use]
    pub fn foresee(&self, patience: Duration) -> Option<HostForecast> {
        if self.device != DeviceChoice::Cpu {
            return None;
        }
        let memory = cpu::memory();
        let unbounded = Self { limit: None, preallocate: None, kernels: None, ..self.clone() };
        let time = Rc::new(Cell::new(Micros(0)));
        let deadline = Deadline { at: Instant::now() + patience, time: Rc::clone(&time) };
        let device = Box::new(SimDevice::new(card(Bytes(u64::MAX))?));
        let mut trainer = unbounded.build_on(device, Libraries::PROCESSOR, Box::new(deadline), false).ok()?;
        let begun = time.get();
        let (step, whole) = match trainer.step() {
            Ok(report) => (report.total, true),
            Err(TrainError::Stopped) => (Micros(time.get().0.saturating_sub(begun.0)), false),
            Err(_) => return None,
        };
        let peak = trainer.statistics().reserved_bytes.all.peak;
        Some(HostForecast {
            needs: Bytes(u64::try_from(peak).unwrap_or_default()),
            has: self.limit.map_or(memory, |limit| limit.of(memory)).min(memory),
            step,
            whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Headless;
    use super::*;
    use vramlab_workload::{Catalog, Extent, Sizes};

    fn mlp(width: usize) -> LabSpec {
        let entry = Catalog::with_user_workloads(None).entry("mlp-mini").unwrap();
        let sizes = Sizes { width: Some(Extent::nearest(width)), ..Sizes::default() };
        LabSpec { sizes, ..LabSpec::new(entry) }
    }

    #[test]
    fn what_a_step_needs_is_foreseen_to_the_byte() {
        let spec = mlp(64);
        let foreseen = spec.foresee(Duration::from_secs(60)).unwrap();
        let mut run = Headless::start(spec).unwrap();
        run.step().unwrap();
        let peak = run.statistics().reserved_bytes.all.peak;
        assert_eq!(Some(foreseen.needs), u64::try_from(peak).ok().map(Bytes));
        assert!(foreseen.whole && foreseen.step > Micros(0) && foreseen.has > foreseen.needs, "{foreseen:?}");
    }

    #[test]
    fn absurd_sizes_are_foreseen_at_once() {
        let begun = Instant::now();
        let wide = mlp(1 << 18).foresee(Duration::from_secs(60)).unwrap();
        // A square matrix of weights alone has 256 GiB.
        assert!(wide.needs > Bytes::gib(256) && wide.step > Micros(20_000_000), "{wide:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was computed");
        // A step that can't be simulated to its end says so.
        let cut = mlp(64).foresee(Duration::ZERO).unwrap();
        assert!(!cut.whole, "{cut:?}");
    }

    #[test]
    fn other_devices_are_not_looked_at() {
        let spec = LabSpec { device: DeviceChoice::Cuda(0), ..mlp(64) };
        assert_eq!(spec.foresee(Duration::ZERO), None);
        assert!(spec.without_arithmetic().is_none());
    }
}
