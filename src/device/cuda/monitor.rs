//! A thread that reads the GPU's state from NVIDIA's management library (NVML), five times a second.
//!
//! Nobody waits for the thread: it leaves readings in [`Sensors`], and values that NVML does not report are absent.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use super::driver::{self, Context};
use super::probe;
use crate::process::Inside;
use crate::{SensorReader, Sensors};
use vramlab_allocator::units::Bytes;
use vramlab_model::{Activity, DriverMemory, GpuProcess, OwnUse, PcieTraffic, Reading, Throttle, Xid};

/// The time between two readings.
const PERIOD: Duration = Duration::from_millis(200);
/// Values that change slowly, or take NVML long, are read in every fifth reading.
const SLOW: u64 = 5;
/// The longest that closing a GPU waits for NVML.
const NAP: Duration = Duration::from_millis(40);
/// How long opening a GPU may wait to learn the memory in use before, and closing it for the last reading.
const PATIENCE: Duration = Duration::from_millis(500);

/// Only one thread at a time reads the counters of its GPU: NVML of driver 580 once crashed while two did.
fn counters() -> MutexGuard<'static, ()> {
    static COUNTERS: Mutex<()> = Mutex::new(());
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of segments that the allocator holds, updated as it allocates and frees them.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservedBytes(Arc<AtomicU64>);

impl ReservedBytes {
    pub fn add(&self, bytes: Bytes) {
        self.0.fetch_add(bytes.get(), Ordering::Relaxed);
    }

    pub fn subtract(&self, bytes: Bytes) {
        self.0.fetch_sub(bytes.get(), Ordering::Relaxed);
    }

    fn get(&self) -> Bytes {
        Bytes(self.0.load(Ordering::Relaxed))
    }
}

/// What was on the GPU before this process created its context there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BeforeContext {
    used: Bytes,
    pids: Vec<u32>,
}

/// A monitor whose GPU is not open yet: the context must be created after [`Monitor::start`].
pub(super) struct ClosedMonitor {
    monitor: Monitor,
    before: Option<BeforeContext>,
}

/// The thread that monitors a GPU, until this value is dropped.
pub(super) struct Monitor {
    sensors: Sensors,
    /// Tells the thread that the GPU is open. The thread ends when this is dropped.
    opened: Option<Sender<(ReservedBytes, Option<BeforeContext>)>>,
    /// Never receives a message; it closes when the thread has ended.
    ended: Receiver<Infallible>,
}

impl Monitor {
    /// Starts to monitor the GPU of that number, and notes the memory in use on it. If NVML is missing or slow,
    /// readings come later, hold less, or are absent.
    pub fn start(ordinal: u32) -> ClosedMonitor {
        let sensors = Sensors::default();
        let reader = sensors.reader();
        let (noted, note) = channel();
        let (opened, context) = channel();
        let (ends, ended) = channel();
        // If the thread can't be started there are no readings, but training continues.
        let spawned = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            let _ends: Sender<Infallible> = ends;
            let _inside = Inside::enter();
            watch(ordinal, noted, context, &reader);
        });
        let before = spawned.ok().and_then(|_| note.recv_timeout(PATIENCE).ok());
        ClosedMonitor { monitor: Self { sensors, opened: Some(opened), ended }, before }
    }

    /// The place where readings arrive.
    pub fn sensors(&self) -> Sensors {
        self.sensors.clone()
    }
}

impl ClosedMonitor {
    /// Starts the readings after the context was created.
    pub fn opened(self, held: ReservedBytes) -> Monitor {
        let Self { monitor, before } = self;
        if let Some(opened) = &monitor.opened {
            // A monitor that has ended because NVML is missing has nothing to report.
            let _ = opened.send((held, before));
        }
        monitor
    }
}

impl Drop for Monitor {
    /// Waits for the thread, but not if it is stuck in NVML.
    fn drop(&mut self) {
        self.opened = None;
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// The monitor thread's main function.
fn watch(
    ordinal: u32,
    noted: Sender<BeforeContext>,
    context: Receiver<(ReservedBytes, Option<BeforeContext>)>,
    reader: &SensorReader,
) {
    let nvml = Nvml::init().ok();
    let device = nvml.as_ref().and_then(|nvml| find(nvml, ordinal));
    if let Some(device) = &device
        && let Ok(memory) = device.memory_info()
    {
        // Nobody receives it if opening has timed out.
        let _ = noted.send(BeforeContext { used: Bytes(memory.used), pids: pids(device) });
    }
    drop(noted); // if there is nothing to note, opening must not wait for it
    // If the other end is gone, opening has failed.
    let Ok((held, before)) = context.recv() else { return };
    let mut gpu = MonitoredGpu::new(ordinal, nvml.as_ref(), device, held, before);
    let mut next = Instant::now();
    while reader.put(gpu.read()) {
        next = (next + PERIOD).max(Instant::now());
        if !gpu.wait_until(next, &context) {
            return;
        }
    }
}

/// Finds the same GPU in NVML, which numbers all of the machine's GPUs, while CUDA numbers only the visible ones.
fn find(nvml: &Nvml, ordinal: u32) -> Option<Device<'_>> {
    let uuid = driver::uuid(ordinal).ok()?;
    // A part of a GPU (MIG) has a name of the same form.
    ["GPU", "MIG"].into_iter().find_map(|kind| nvml.device_by_uuid(format!("{kind}-{uuid}")).ok())
}

fn pids(device: &Device<'_>) -> Vec<u32> {
    device.running_compute_processes().unwrap_or_default().into_iter().map(|process| process.pid).collect()
}

/// A GPU that is open, as NVML sees it.
struct MonitoredGpu<'nvml> {
    nvml: Option<&'nvml Nvml>,
    device: Option<Device<'nvml>>,
    /// Set if NVML does not know the device, so that the driver is queried instead.
    asks_driver: Option<Context>,
    held: ReservedBytes,
    /// This process's number in NVML's list, which may differ within a container.
    own_pid: u32,
    /// The growth of the memory in use when the context was created.
    context: Option<Bytes>,
    gpm: Option<GpmSample<'nvml>>,
    errors: Option<EventSet<'nvml>>,
    /// The last values of those that are not read each time.
    pcie: Option<PcieTraffic>,
    power_limit: Option<f32>,
    xid: Option<Xid>,
    last: Reading,
    readings: u64,
}

impl<'nvml> MonitoredGpu<'nvml> {
    fn new(
        ordinal: u32,
        nvml: Option<&'nvml Nvml>,
        device: Option<Device<'nvml>>,
        held: ReservedBytes,
        before: Option<BeforeContext>,
    ) -> Self {
        let mut own_pid = std::process::id();
        let mut context = None;
        if let (Some(device), Some(before)) = (&device, before) {
            own_pid = own_number(own_pid, &before.pids, &pids(device));
            let taken = held.get();
            let used = device.memory_info().ok().map(|memory| Bytes(memory.used).saturating_sub(taken));
            context = used.map(|used| used.saturating_sub(before.used)).filter(|context| *context > Bytes::ZERO);
        }
        // The driver itself reports free memory, but only to threads with a context.
        let asked = device.is_none() && probe::driver_present().is_ok();
        let asks_driver = asked.then(|| Context::enter(ordinal).ok()).flatten();
        let gpm = device.as_ref().filter(|device| device.gpm_support().unwrap_or(false));
        let gpm = gpm.and_then(|device| {
            let _alone = counters();
            device.gpm_sample().ok()
        });
        let errors = nvml.and_then(|nvml| nvml.create_event_set().ok());
        let errors = device.as_ref().zip(errors);
        let errors = errors.and_then(|(device, set)| device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok());
        Self {
            nvml,
            device,
            asks_driver,
            held,
            own_pid,
            context,
            gpm,
            errors,
            pcie: None,
            power_limit: None,
            xid: None,
            last: Reading::default(),
            readings: 0,
        }
    }

    fn read(&mut self) -> Reading {
        let Some(device) = &self.device else {
            return Reading { memory: self.memory_of_driver(), ..Reading::default() };
        };
        if matches!(device.memory_info(), Err(NvmlError::GpuLost)) {
            // The last reading stays on screen.
            return Reading { xid: self.xid, ..self.last.clone() };
        }
        let processes = processes(device, self.own_pid);
        if self.readings.is_multiple_of(SLOW) {
            self.pcie = pcie(device);
            self.power_limit = device.enforced_power_limit().ok().map(watts);
        }
        self.readings += 1;
        let rates = device.utilization_rates().ok();
        let reading = Reading {
            memory: self.memory(device, &processes),
            busy: rates.as_ref().map(|rates| rates.gpu),
            memory_busy: rates.as_ref().map(|rates| rates.memory),
            power: device.power_usage().ok().map(watts),
            power_limit: self.power_limit,
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            sm_clock: device.clock_info(Clock::SM).ok(),
            memory_clock: device.clock_info(Clock::Memory).ok(),
            throttles: device.current_throttle_reasons().map_or_else(|_| Vec::new(), throttles),
            processes,
            pcie: self.pcie,
            activity: self.activity(),
            xid: self.xid,
        };
        self.last = reading.clone();
        reading
    }

    fn memory(&self, device: &Device<'_>, processes: &[GpuProcess]) -> Option<DriverMemory> {
        let held = self.held.get();
        let info = device.memory_info().ok()?;
        let listed = processes.iter().find(|process| process.own).and_then(|process| process.used);
        let own = match (listed, self.context) {
            // If the list has less than the allocator holds, the entry is not of this process.
            (Some(own), _) if own >= held => OwnUse::Listed(own),
            (_, Some(context)) => OwnUse::Context(context),
            _ => OwnUse::Unknown,
        };
        let (used, free, kept_by_driver) = (Bytes(info.used), Bytes(info.free), Some(Bytes(info.reserved)));
        Some(DriverMemory { used, free, kept_by_driver, own, held })
    }

    /// Without NVML: memory as cuMemGetInfo reports it.
    fn memory_of_driver(&self) -> Option<DriverMemory> {
        self.asks_driver.as_ref()?;
        let held = self.held.get();
        let (free, total) = driver::memory().ok()?;
        let used = total.saturating_sub(free);
        Some(DriverMemory { used, free, kept_by_driver: None, own: OwnUse::Unknown, held })
    }

    /// The hardware counters since the last reading.
    fn activity(&mut self) -> Option<Activity> {
        use GpmMetricId::{AnyTensorUtil, DramBwUtil, SmOccupancy, SmUtil};
        let (nvml, device) = (self.nvml?, self.device.as_ref()?);
        let _alone = counters();
        let sample = device.gpm_sample().ok().filter(|_| self.gpm.is_some())?;
        let before = self.gpm.replace(sample)?;
        let counted =
            gpm_metrics_get(nvml, &before, self.gpm.as_ref()?, &[SmUtil, SmOccupancy, AnyTensorUtil, DramBwUtil]);
        let counted = counted.ok()?;
        let value = |index: usize| Some(counted.get(index)?.as_ref().ok()?.value).filter(|value| value.is_finite());
        let percent = |index| value(index).map(|value| value.clamp(0.0, 100.0) as f32);
        let activity =
            Activity { multiprocessors: percent(0), occupancy: percent(1), tensor: percent(2), dram: percent(3) };
        (activity != Activity::default()).then_some(activity)
    }

    /// Waits for the next reading or for an error of the device; false if the device is closed.
    fn wait_until(&mut self, next: Instant, device: &Receiver<(ReservedBytes, Option<BeforeContext>)>) -> bool {
        loop {
            let left = next.saturating_duration_since(Instant::now());
            // NVML's own wait can't be interrupted.
            let nap = if self.errors.is_some() { Duration::ZERO } else { left };
            if matches!(device.recv_timeout(nap), Err(RecvTimeoutError::Disconnected)) {
                return false;
            }
            let Some(errors) = self.errors.as_ref().filter(|_| !left.is_zero()) else { return true };
            match errors.wait(u32::try_from(left.min(NAP).as_millis()).unwrap_or(0).max(1)) {
                Ok(event) => {
                    if let Some(XidError::Value(number)) = event.event_data {
                        self.xid = Some(Xid(number));
                        return true;
                    }
                }
                Err(NvmlError::Timeout) => {}
                Err(_) => self.errors = None,
            }
        }
    }
}

fn watts(milliwatts: u32) -> f32 {
    milliwatts as f32 / 1e3
}

/// This process's number in NVML's list. If the list does not contain `pid` (it may use another namespace's numbers),
/// this is the only process that appeared when the context was created.
fn own_number(pid: u32, before: &[u32], after: &[u32]) -> u32 {
    let mut came = after.iter().filter(|pid| !before.contains(pid));
    match (after.contains(&pid), came.next(), came.next()) {
        (false, Some(&only), None) => only,
        _ => pid,
    }
}

fn processes(device: &Device<'_>, own: u32) -> Vec<GpuProcess> {
    let listed = device.running_compute_processes().unwrap_or_default();
    let used = |memory| match memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    let process = |pid, memory| GpuProcess { pid, used: used(memory), own: pid == own };
    listed.into_iter().map(|info| process(info.pid, info.used_gpu_memory)).collect()
}

fn pcie(device: &Device<'_>) -> Option<PcieTraffic> {
    // NVML reports KB per second, from the GPU's point of view.
    let bytes = |counter| Some(Bytes(u64::from(device.pcie_throughput(counter).ok()?) * 1000));
    Some(PcieTraffic { to_device: bytes(PcieUtilCounter::Receive)?, to_host: bytes(PcieUtilCounter::Send)? })
}

/// The reasons that are worth reporting: an idle GPU is not throttled.
fn throttles(reasons: ThrottleReasons) -> Vec<Throttle> {
    let words = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::HardwareHeat),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Heat),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::Setting),
    ];
    let mut found: Vec<Throttle> =
        words.into_iter().filter(|(reason, _)| reasons.contains(*reason)).map(|(_, word)| word).collect();
    let told = [Throttle::HardwareHeat, Throttle::PowerBrake].iter().any(|word| found.contains(word));
    if reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !told {
        found.insert(0, Throttle::Hardware);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_nothing_waits_and_nothing_fails() {
        let begun = Instant::now();
        let monitor = Monitor::start(4_000_000);
        assert!(begun.elapsed() < 4 * PATIENCE);
        let monitor = monitor.opened(ReservedBytes::default());
        thread::sleep(Duration::from_millis(50));
        let reading = monitor.sensors().take();
        assert!(reading.is_none_or(|reading| reading.power.is_none()));
        let begun = Instant::now();
        drop(monitor);
        assert!(begun.elapsed() < 2 * PATIENCE);
    }

    #[test]
    fn a_container_names_this_process_by_another_number() {
        assert_eq!(own_number(7, &[1, 2], &[1, 2, 7]), 7);
        assert_eq!(own_number(7, &[1, 2], &[1, 2, 4711]), 4711);
        assert_eq!(own_number(7, &[1, 2], &[1, 2, 4711, 4712]), 7, "either could be it");
        assert_eq!(own_number(7, &[], &[]), 7);
    }

    #[test]
    fn reasons_are_told_once_and_idling_is_none() {
        use ThrottleReasons as Reasons;
        assert_eq!(throttles(Reasons::GPU_IDLE), []);
        assert_eq!(throttles(Reasons::SW_POWER_CAP), [Throttle::PowerCap]);
        assert_eq!(throttles(Reasons::HW_SLOWDOWN), [Throttle::Hardware]);
        assert_eq!(throttles(Reasons::HW_SLOWDOWN | Reasons::HW_THERMAL_SLOWDOWN), [Throttle::HardwareHeat]);
    }

    #[test]
    fn what_is_held_follows_the_allocator() {
        let held = ReservedBytes::default();
        held.add(Bytes::mib(20));
        held.clone().subtract(Bytes::mib(2));
        assert_eq!(held.get(), Bytes::mib(18));
    }
}
