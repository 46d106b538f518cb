//! A simulated GPU as data: its parts, and how fast it is.

use serde::Deserialize;

use super::efficiency::{ByPrecision, Efficiency, is_rate, is_time};
use vramlab_allocator::units::{Bytes, MIB};

/// More memory than any device has, and few enough bytes that sums can't overflow.
const MOST_MEMORY: Bytes = Bytes(1 << 50);
/// More multiprocessors than any device has.
const MOST_MULTIPROCESSORS: usize = 1 << 16;
/// The longest title in characters: every frame of the lab shows it.
const LONGEST_TITLE: usize = 200;

/// Where the times of a card come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Fitted to measurements of PyTorch on the card.
    Measured,
    /// Scaled by the card's data sheet.
    Estimate,
}

impl Times {
    /// The word for it on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Estimate => "estimate",
        }
    }
}

/// A quantity that depends on a size, given by points of (MiB, value): interpolated between them, constant outside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Whether sizes rise and every value satisfies `holds`.
    fn all(&self, holds: fn(f64) -> bool) -> bool {
        let sizes_rise = self.0.is_sorted_by(|before, after| before.0 < after.0);
        sizes_rise && self.0.iter().all(|&(size, value)| is_time(size) && holds(value))
    }

    /// The value at `bytes`.
    #[must_use]
    pub fn at(&self, bytes: Bytes) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
        let x = bytes.get() as f64 / MIB as f64;
        let behind = self.0.partition_point(|point| point.0 <= x);
        match (behind.checked_sub(1).and_then(|i| self.0.get(i)), self.0.get(behind)) {
            (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
            (Some(&(_, y)), None) | (None, Some(&(_, y))) => y,
            (None, None) => 0.0,
        }
    }
}

/// Rates of copies over PCIe in GB/s by size. If there are none for the way to the host, those of the way from it
/// apply.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// From pageable host memory, through a staging buffer.
    pub pageable: Curve,
    /// From page-locked host memory.
    pub pinned: Curve,
    /// To pageable host memory.
    pub pageable_to_host: Option<Curve>,
    /// To page-locked host memory.
    pub pinned_to_host: Option<Curve>,
    /// Most GB/s from pageable host memory that is in none of the processor's caches.
    pub uncached: Option<f64>,
    /// Most GB/s to pageable host memory whose pages the system has not provided yet.
    pub untouched_to_host: Option<f64>,
    /// GB/s to other cards, one way; if it is missing, copies go over the host.
    pub peers: Option<f64>,
}

impl Link {
    fn is_possible(&self) -> bool {
        let back = [&self.pageable_to_host, &self.pinned_to_host].into_iter().flatten();
        let mut most = [self.uncached, self.untouched_to_host, self.peers].into_iter().flatten();
        [&self.pageable, &self.pinned].into_iter().chain(back).all(|curve| !curve.0.is_empty() && curve.all(is_rate))
            && most.all(is_rate)
    }
}

/// The host's time for calls of the driver, in µs by size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverCosts {
    /// cudaMalloc.
    pub malloc: Curve,
    /// cudaFree.
    pub free: Curve,
}

impl Default for DriverCosts {
    /// Measured on an H200's host; other drivers are assumed to be alike.
    fn default() -> Self {
        Self {
            malloc: Curve(vec![(2.0, 27.1), (20.0, 29.6), (200.0, 47.2), (2000.0, 106.9)]),
            free: Curve(vec![(2.0, 23.6), (20.0, 26.7), (200.0, 73.5), (2000.0, 439.6)]),
        }
    }
}

impl DriverCosts {
    fn is_possible(&self) -> bool {
        self.malloc.all(is_time) && self.free.all(is_time)
    }
}

/// The cost of launches on the host and on the device, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LaunchCost {
    /// One op of PyTorch's eager mode on the host: Python, views, autograd, dispatch, the launch.
    pub op: f64,
    /// A checkpointed segment: its hooks on saved tensors, and calling it again.
    pub checkpoint: f64,
    /// An optimizer's step, in addition to its ops.
    pub optimizer: f64,
    /// One kernel on the device, in addition to its work: start, end and the gap to the next one.
    pub kernel: f64,
    /// Waiting for the device and reading a value from it.
    pub synchronize: f64,
}

impl Default for LaunchCost {
    /// Fitted to step times of models that are too small to keep an H200 busy.
    fn default() -> Self {
        Self { op: 28.0, checkpoint: 340.0, optimizer: 450.0, kernel: 1.6, synchronize: 12.0 }
    }
}

impl LaunchCost {
    fn is_possible(&self) -> bool {
        [self.op, self.checkpoint, self.optimizer, self.kernel, self.synchronize].into_iter().all(is_time)
    }
}

/// What else a program may ask about a card: it gets every answer, and most of them affect no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chip {
    /// KiB of the second-level cache.
    pub l2_kib: u32,
    /// Highest clock of the multiprocessors in MHz.
    pub clock_mhz: u32,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: u32,
    /// Width of the memory bus in bits.
    pub bus_bits: u32,
    /// KiB of memory that PyTorch's kernels take once they are loaded, in addition to the context.
    pub kernels_kib: u32,
    /// KiB of memory that NCCL takes in a process that has a communicator of several ranks; 0 if unknown.
    pub ranks_kib: u32,
}

impl Default for Chip {
    /// The kernels' memory as on an H200, and none for ranks. The rest is unknown and has the value 1, which no card
    /// has.
    fn default() -> Self {
        Self { l2_kib: 1, clock_mhz: 1, memory_clock_mhz: 1, bus_bits: 1, kernels_kib: 94_016, ranks_kib: 0 }
    }
}

impl Chip {
    fn is_possible(&self) -> bool {
        const MOST: u32 = 1 << 20;
        let known = [self.l2_kib, self.clock_mhz, self.memory_clock_mhz, self.bus_bits];
        known.iter().all(|figure| (1..=MOST).contains(figure)) && self.kernels_kib.max(self.ranks_kib) <= MOST
    }
}

/// A simulated GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// `h200`: the name of its file.
    #[serde(skip)]
    pub name: String,
    /// `NVIDIA H200`.
    pub title: String,
    /// Where its times come from.
    pub times: Times,
    /// Memory in bytes, as the driver reports it.
    pub memory: Bytes,
    /// MiB that a process takes before its first block.
    pub context_mib: u64,
    /// Major version times ten plus minor version.
    pub compute_capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// GB/s of device memory.
    pub bandwidth: f64,
    /// TFLOP/s.
    pub peak: ByPrecision,
    /// Copies between host and device.
    pub link: Link,
    /// Costs of calls of the driver.
    #[serde(default)]
    pub driver: DriverCosts,
    /// Costs of launches.
    #[serde(default)]
    pub launch: LaunchCost,
    /// The share of the peaks that kernels reach.
    #[serde(default)]
    pub efficiency: Efficiency,
    /// What else programs may ask about it.
    #[serde(default)]
    pub chip: Chip,
}

impl Card {
    /// Memory that a process takes before its first block.
    #[must_use]
    pub const fn context(&self) -> Bytes {
        Bytes::mib(self.context_mib)
    }

    /// The same card for a process that exchanges data with other ranks: NCCL's memory is added to the context.
    #[must_use]
    pub fn of_rank(self) -> Self {
        let nccl = u64::from(self.chip.ranks_kib).div_ceil(1024);
        let most = (self.memory.get() / MIB).saturating_sub(1);
        Self { context_mib: self.context_mib.saturating_add(nccl).min(most), ..self }
    }

    /// Why no device can be like this, if so: the key or table, and what it must be.
    pub(super) fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        if self.title.len() > LONGEST_TITLE {
            Some(("title", "a title has at most 200 bytes"))
        } else if self.memory > MOST_MEMORY {
            Some(("memory", "memory must be at most 1 PiB"))
        } else if self.memory.get() / MIB <= self.context_mib {
            Some(("memory", "memory must be more than context_mib"))
        } else if !(1..=MOST_MULTIPROCESSORS).contains(&self.multiprocessors) {
            Some(("multiprocessors", "multiprocessors counts from 1 to 65536"))
        } else if !is_rate(self.bandwidth) {
            Some(("bandwidth", "bandwidth must be above 0"))
        } else if !self.peak.all(is_rate) {
            Some(("[peak]", "peaks must be above 0"))
        } else if !self.link.is_possible() {
            Some(("[link]", "copies must have a rate above 0, by sizes that rise"))
        } else if !self.launch.is_possible() {
            Some(("[launch]", "launches must take from 0 to 10⁹ µs"))
        } else if !self.driver.is_possible() {
            Some(("[driver]", "calls must take from 0 to 10⁹ µs, by sizes that rise"))
        } else if !self.chip.is_possible() {
            Some(("[chip]", "figures of the chip count from 1 to 2²⁰"))
        } else if !self.efficiency.is_possible() {
            Some(("[efficiency]", "efficiencies must be above 0"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_interpolated_and_constant_outside() {
        let curve = Curve(vec![(2.0, 10.0), (4.0, 30.0)]);
        assert_eq!(curve.at(Bytes::mib(3)), 20.0);
        assert_eq!(curve.at(Bytes::mib(1)), 10.0);
        assert_eq!(curve.at(Bytes::mib(9)), 30.0);
    }

    /// The T4's file with one line changed.
    fn changed(line: &str, to: &str) -> Option<(&'static str, &'static str)> {
        let t4 = include_str!("../lab/t4.toml");
        assert!(t4.contains(line), "{line}");
        toml::from_str::<Card>(&t4.replace(line, to)).unwrap().contradiction()
    }

    #[test]
    fn no_card_has_figures_that_can_not_be_computed_with() {
        assert_eq!(changed("times", "times"), None);
        for (line, to) in [
            ("15_835_594_752", "9223372036854775807"),
            ("context_mib = 150", "context_mib = 9223372036854775807"),
            ("multiprocessors = 40", "multiprocessors = 9223372036854775807"),
            ("bandwidth = 320.0", "bandwidth = inf"),
            ("bandwidth = 320.0", "bandwidth = nan"),
            ("fp32 = 8.1", "fp32 = 1e300"),
            ("[[1.0, 6.0]]", "[]"),
            ("[[1.0, 6.0]]", "[[1.0, 1e-300]]"),
            ("[[1.0, 6.0]]", "[[2.0, 6.0], [1.0, 7.0]]"),
            ("[[1.0, 12.0]]", "[[nan, 12.0]]"),
            ("[link]", "[launch]\nop = 1e300\n[link]"),
            ("[link]", "[launch]\nkernel = -1.0\n[link]"),
            ("[link]", "[driver]\nmalloc = [[1.0, inf]]\nfree = []\n[link]"),
            ("pool = 0.5", "pool = 0.0"),
            ("l2_kib = 4096", "l2_kib = 0"),
        ] {
            assert!(changed(line, to).is_some(), "{to}");
        }
    }
}
