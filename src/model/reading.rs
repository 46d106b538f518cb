//! The driver's figures for a GPU at one moment: its memory and who holds it, load, power, temperature, clocks.
//!
//! Readings are part of the event stream ([`super::EventKind::Reading`]), so that everything that keeps events keeps
//! them too. Every figure is absent if the driver does not report it.

use serde::{Deserialize, Serialize};

use vramlab_allocator::units::Bytes;

/// The driver's figures for a GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The device's memory.
    pub memory: Option<DriverMemory>,
    /// Share of the time in which a kernel ran, in per cent. It says nothing about how much of the GPU the kernel used.
    pub busy: Option<u32>,
    /// Share of the time in which memory was read or written, in per cent.
    pub memory_busy: Option<u32>,
    /// Power drawn, in watts.
    pub power: Option<f32>,
    /// The most that may be drawn, in watts.
    pub power_limit: Option<f32>,
    /// Temperature of the GPU, in °C.
    pub temperature: Option<u32>,
    /// Clock of the multiprocessors, in MHz.
    pub sm_clock: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_clock: Option<u32>,
    /// Why clocks are lower than they could be.
    pub throttles: Vec<Throttle>,
    /// Processes that the driver lists. In a container it may list none, or name them by numbers from outside.
    pub processes: Vec<GpuProcess>,
    /// Traffic over PCIe.
    pub pcie: Option<PcieTraffic>,
    /// How much of the GPU was busy, if its hardware counts that.
    pub activity: Option<Activity>,
    /// The last error of the device (an Xid) that the driver reported since the device was opened.
    pub xid: Option<Xid>,
}

/// The device's memory as the driver counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverMemory {
    /// In use by all processes together.
    pub used: Bytes,
    /// Still available.
    pub free: Bytes,
    /// Kept by the driver for itself, if it reports that separately.
    pub kept_by_driver: Option<Bytes>,
    /// In use by this process.
    pub own: OwnUse,
    /// Held by the caching allocator at that moment.
    pub held: Bytes,
}

/// How much of the used memory is this process's, and how that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnUse {
    /// The driver lists this process with this many bytes.
    Listed(Bytes),
    /// The driver does not list this process; this many bytes more were in use once its context had been made.
    Context(Bytes),
    /// Neither is known.
    #[default]
    Unknown,
}

/// Who holds the memory. The parts add up to all that programs can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryShares {
    /// Held by the caching allocator.
    pub allocator: Bytes,
    /// Held by this process outside the allocator: context, kernels, libraries. `None` if it can't be told from `others`.
    pub context: Option<Bytes>,
    /// Held by other processes.
    pub others: Bytes,
    /// Free.
    pub free: Bytes,
}

impl DriverMemory {
    /// Who holds the memory.
    #[must_use]
    pub fn shares(&self) -> MemoryShares {
        let allocator = self.held.min(self.used);
        let rest = self.used.saturating_sub(allocator);
        let context = match self.own {
            OwnUse::Listed(own) => Some(own.saturating_sub(allocator).min(rest)),
            OwnUse::Context(context) => Some(context.min(rest)),
            OwnUse::Unknown => None,
        };
        let others = rest.saturating_sub(context.unwrap_or_default());
        MemoryShares { allocator, context, others, free: self.free }
    }
}

impl MemoryShares {
    /// All memory that programs can have.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.allocator + self.context.unwrap_or_default() + self.others + self.free
    }
}

/// A process on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The driver's number for the process.
    pub pid: u32,
    /// Its memory, if the driver reports it.
    pub used: Option<Bytes>,
    /// True for this process.
    pub own: bool,
}

/// Bytes per second over PCIe, within the last moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieTraffic {
    /// Host to device.
    pub to_device: Bytes,
    /// Device to host.
    pub to_host: Bytes,
}

/// How busy the GPU was between two readings, each in per cent. Counted by hardware, on Hopper and newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Multiprocessors that had work.
    pub multiprocessors: Option<f32>,
    /// Resident warps, as a share of the most that multiprocessors hold.
    pub occupancy: Option<f32>,
    /// Tensor cores at work.
    pub tensor: Option<f32>,
    /// Bandwidth of memory in use.
    pub dram: Option<f32>,
}

/// Why a clock is lower than it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// It would draw more power than its limit.
    PowerCap,
    /// The power supply asked for less.
    PowerBrake,
    /// Too warm: the driver lowers clocks.
    Heat,
    /// Much too warm: the hardware halves clocks.
    HardwareHeat,
    /// The hardware halves clocks, for heat or power.
    Hardware,
    /// Another GPU of its group is slower.
    SyncBoost,
    /// A user set lower clocks.
    Setting,
}

impl Throttle {
    /// The word on screens, after "held back by".
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PowerCap => "power limit",
            Self::PowerBrake => "power brake",
            Self::Heat => "heat",
            Self::HardwareHeat => "heat (hardware)",
            Self::Hardware => "hardware slowdown",
            Self::SyncBoost => "sync boost",
            Self::Setting => "clock setting",
        }
    }
}

/// An error number of NVIDIA's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Xid(pub u64);

impl Xid {
    /// The meaning according to NVIDIA's list of Xid errors; empty for rare errors.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self.0 {
            13 => "a kernel read or wrote out of bounds",
            31 => "a kernel touched memory that is not mapped",
            43 | 45 => "a program's work was ended",
            48 => "memory has an error that can't be corrected",
            63 | 64 => "memory rows were replaced",
            74 => "NVLink failed",
            79 => "the GPU has fallen off its bus",
            94 | 95 => "memory has an error that was contained",
            119 | 120 => "the GPU's own processor does not answer",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: u64, held: u64, own: OwnUse) -> DriverMemory {
        let free = Bytes::mib(1000 - used);
        DriverMemory { used: Bytes::mib(used), free, kept_by_driver: None, own, held: Bytes::mib(held) }
    }

    #[test]
    fn shares_add_up_to_what_there_is() {
        for own in [
            OwnUse::Unknown,
            OwnUse::Listed(Bytes::mib(400)),
            OwnUse::Listed(Bytes::mib(5)),
            OwnUse::Context(Bytes::mib(100)),
            OwnUse::Context(Bytes::mib(5000)),
        ] {
            for held in [0, 300, 450, 900] {
                let shares = memory(450, held, own).shares();
                assert_eq!(shares.total(), Bytes::mib(1000), "{own:?}, {held}: {shares:?}");
            }
        }
    }

    #[test]
    fn what_is_listed_beside_the_allocator_is_the_context() {
        let shares = memory(900, 300, OwnUse::Listed(Bytes::mib(420))).shares();
        assert_eq!((shares.context, shares.others), (Some(Bytes::mib(120)), Bytes::mib(480)));
        let shares = memory(900, 300, OwnUse::Context(Bytes::mib(100))).shares();
        assert_eq!((shares.context, shares.others), (Some(Bytes::mib(100)), Bytes::mib(500)));
        let shares = memory(900, 300, OwnUse::Unknown).shares();
        assert_eq!((shares.context, shares.others), (None, Bytes::mib(600)));
    }

    #[test]
    fn a_reading_survives_json() {
        let reading = Reading {
            memory: Some(memory(450, 300, OwnUse::Listed(Bytes::mib(400)))),
            power: Some(612.5),
            throttles: vec![Throttle::PowerCap],
            processes: vec![GpuProcess { pid: 7, used: None, own: true }],
            activity: Some(Activity { tensor: Some(43.5), ..Activity::default() }),
            xid: Some(Xid(79)),
            ..Reading::default()
        };
        let text = serde_json::to_string(&reading).unwrap();
        assert_eq!(serde_json::from_str::<Reading>(&text).unwrap(), reading);
    }
}
