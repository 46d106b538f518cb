//! The time that each kernel takes on a device. Each kernel is waited for, so a profiled step takes longer than its
//! parts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::contract::Device;
use super::error::DeviceError;
use super::kernels::{Attention, Convolution, Gemm, Kernel};
use super::wrapper::Wrapper;
use vramlab_allocator::units::StreamId;

/// Kernels of one kind and shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// Name, type and, if it decides the time, shape: `gemm bf16 16384×2304×768`.
    pub label: String,
    /// Launches.
    pub launches: u64,
    /// Time of all of them on the device.
    pub time: Duration,
    /// Total floating-point operations of matrix products.
    pub flops: f64,
    /// Total bytes that PyTorch's eager kernels would read and write.
    pub bytes: f64,
}

/// The times of all kernels since the last [`KernelTimes::clear`]. This is a handle: clones share them.
#[derive(Clone, Debug, Default)]
pub struct KernelTimes(Arc<Mutex<HashMap<String, KernelTime>>>);

impl KernelTimes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, KernelTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes all measurements.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// All kernels, slowest first.
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
        Kernel::Gemm(Gemm { m, n, k, batch, a, b, .. }) => {
            let by = if *batch > 1 { format!("{batch}× ") } else { String::new() };
            let order = |contiguous| if contiguous { "" } else { "ᵀ" };
            format!(" {by}{m}×{n}×{k} a{}b{}", order(a.col_stride == 1), order(b.col_stride == 1))
        }
        Kernel::Convolution(
            Convolution::Forward { shape, .. }
            | Convolution::BackwardInput { shape, .. }
            | Convolution::BackwardWeight { shape, .. },
        ) => {
            let (window, step) = (shape.kernel, shape.stride);
            format!(" {}→{} {window}×{window}/{step} over {}", shape.in_channels, shape.out_channels, shape.in_area())
        }
        Kernel::Attention(Attention::Forward { shape, .. } | Attention::Backward { shape, .. }) => {
            format!(" {}×{}×{}×{}", shape.batch, shape.heads, shape.rows, shape.head_size)
        }
        _ => String::new(),
    };
    format!("{} {}{shape}", kernel.name(), format!("{:?}", work.dtype).to_lowercase())
}

/// A device whose kernels are timed one by one.
pub struct ProfiledDevice {
    device: Box<dyn Device>,
    times: KernelTimes,
}

impl ProfiledDevice {
    /// Wraps `device` and writes its kernels' times to `times`.
    #[must_use]
    pub fn new(device: Box<dyn Device>, times: KernelTimes) -> Self {
        Self { device, times }
    }
}

impl Wrapper for ProfiledDevice {
    fn wrapped(&self) -> &dyn Device {
        &*self.device
    }

    fn wrapped_mut(&mut self) -> &mut dyn Device {
        &mut *self.device
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        let begun = self.device.mark(stream)?;
        self.device.launch(kernel, stream)?;
        let ended = self.device.mark(stream)?;
        let time = self.device.between(begun, ended);
        self.times.add(kernel, time);
        Ok(())
    }
}
