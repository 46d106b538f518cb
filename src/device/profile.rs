//! Where a device's time goes, kernel by kernel: each one is waited for, so a profiled step takes longer than its parts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    CopyPath, Device, DeviceError, DeviceEvent, DeviceInfo, HostBuffer, HostWork, Kernel, Mark, MatrixPrecision,
    Operand, PinnedMemory, ProgramStart, Sensors,
};
use crate::allocator::{HostMemorySource, SegmentSource};
use crate::units::{Address, Bytes, StreamId};

/// Kernels of one kind and shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// Name, type and, where it decides the time, shape: `gemm bf16 16384×2304×768`.
    pub label: String,
    /// Launches.
    pub launches: u64,
    /// Time of all of them on the device.
    pub time: Duration,
    /// Floating-point operations of matrix products in all.
    pub flops: f64,
    /// Bytes that PyTorch's eager kernels would read and write in all.
    pub bytes: f64,
}

/// Times of all kernels since the last [`KernelTimes::clear`]. A handle: clones share them.
#[derive(Clone, Debug, Default)]
pub struct KernelTimes(Arc<Mutex<HashMap<String, KernelTime>>>);

impl KernelTimes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, KernelTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was measured.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The slowest first.
    #[must_use]
    pub fn sorted(&self) -> Vec<KernelTime> {
        let mut times: Vec<_> = self.lock().values().cloned().collect();
        times.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        times
    }

    fn add(&self, kernel: &Kernel<'_>, time: Duration) {
        let (label, work) = (label(kernel), kernel.work());
        let mut times = self.lock();
        let entry =
            times.entry(label).or_insert_with_key(|label| KernelTime { label: label.clone(), ..KernelTime::default() });
        entry.launches += 1;
        entry.time += time;
        entry.flops += work.flops;
        entry.bytes += work.bytes;
    }
}

fn label(kernel: &Kernel<'_>) -> String {
    let work = kernel.work();
    let shape = match kernel {
        Kernel::Gemm { m, n, k, batch, a, b, .. } => {
            let by = if *batch > 1 { format!("{batch}× ") } else { String::new() };
            let order = |contiguous| if contiguous { "" } else { "ᵀ" };
            format!(" {by}{m}×{n}×{k} a{}b{}", order(a.col_stride == 1), order(b.col_stride == 1))
        }
        Kernel::Conv2d { shape, .. }
        | Kernel::Conv2dBackwardInput { shape, .. }
        | Kernel::Conv2dBackwardWeight { shape, .. } => {
            let (window, step) = (shape.kernel, shape.stride);
            format!(" {}→{} {window}×{window}/{step} over {}", shape.in_channels, shape.out_channels, shape.in_area())
        }
        Kernel::Attention { shape, .. } | Kernel::AttentionBackward { shape, .. } => {
            format!(" {}×{}×{}×{}", shape.batch, shape.heads, shape.rows, shape.head_size)
        }
        _ => String::new(),
    };
    format!("{} {}{shape}", kernel.name(), format!("{:?}", work.dtype).to_lowercase())
}

/// A device whose kernels are timed one by one.
pub struct Profiled {
    device: Box<dyn Device>,
    times: KernelTimes,
}

impl Profiled {
    /// Writes the times of `device`'s kernels to `times`.
    #[must_use]
    pub fn new(device: Box<dyn Device>, times: KernelTimes) -> Self {
        Self { device, times }
    }
}

impl Device for Profiled {
    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        let begun = self.device.mark();
        self.device.launch(kernel, stream)?;
        let ended = self.device.mark();
        let time = self.device.between(begun, ended);
        self.times.add(kernel, time);
        Ok(())
    }

    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        self.device.segments()
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.device.pinned_memory()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        self.device.pinned_source()
    }

    fn sensors(&self) -> Option<Sensors> {
        self.device.sensors()
    }

    fn check(&mut self) -> Result<(), DeviceError> {
        self.device.check()
    }

    fn set_limit(&mut self, limit: Option<Bytes>) {
        self.device.set_limit(limit);
    }

    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        self.device.set_matrix_precision(precision);
    }

    fn follow_start(&mut self, start: ProgramStart) {
        self.device.follow_start(start);
    }

    fn spend_host(&mut self, work: HostWork) {
        self.device.spend_host(work);
    }

    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.device.copy_pageable(from, to, stream)
    }

    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.device.copy_pinned(from, to, stream)
    }

    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) {
        self.device.spend_copy(path, bytes, stream);
    }

    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.device.copy_to_pinned(from, to, stream)
    }

    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        self.device.read(from, to, stream)
    }

    fn record_event(&mut self, stream: StreamId) -> DeviceEvent {
        self.device.record_event(stream)
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.device.query_event(event)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) {
        self.device.wait_event(stream, event);
    }

    fn notes(&self) -> Vec<String> {
        self.device.notes()
    }

    fn synchronize(&mut self) {
        self.device.synchronize();
    }

    fn copy_stream(&self) -> StreamId {
        self.device.copy_stream()
    }

    fn take_copy_time(&mut self) -> Duration {
        self.device.take_copy_time()
    }

    fn now(&self) -> Duration {
        self.device.now()
    }

    fn mark(&mut self) -> Mark {
        self.device.mark()
    }

    fn between(&mut self, from: Mark, to: Mark) -> Duration {
        self.device.between(from, to)
    }

    fn lend_workspace(&mut self, workspace: Operand) {
        self.device.lend_workspace(workspace);
    }
}
