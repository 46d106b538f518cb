//! Tests the selftest: the processor passes, and a faulty device does not.

use std::fs;
use std::path::{Path, PathBuf};

use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::kernels::Elementwise;
use vramlab::device::selftest::{Extent, Options, Outcome, Report, Row, run};
use vramlab::device::{DType, Device, DeviceError, Kernel, Operand, Wrapper};
use vramlab::units::StreamId;

fn processor() -> CpuDevice {
    CpuDevice::open(CpuOptions { memory: None, threads: Some(2) }).unwrap()
}

fn small(only: &[&str]) -> Options {
    Options { extent: Extent::Small, only: only.iter().map(|&name| name.to_owned()).collect() }
}

fn test(device: &mut dyn Device, options: &Options) -> Report {
    run(device, options, &mut |_| {}).unwrap()
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

/// The kernels' names, as `Family::name` of every family returns them.
fn kernels() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/device/kernels");
    let mut names = Vec::new();
    for path in sources(&folder) {
        let text = fs::read_to_string(path).unwrap();
        let Some((_, body)) = text.split_once("\n    fn name(&self) -> &'static str {\n") else { continue };
        let (body, _) = body.split_once("\n    }\n").unwrap();
        names.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    names
}

#[test]
fn the_processor_passes_and_every_kernel_is_tested() {
    let report = test(&mut processor(), &small(&[]));
    let failed: Vec<&Row> = report.rows.iter().filter(|row| row.outcome != Outcome::Ok).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(report.passed());
    assert!(kernels().len() > 90);
    for kernel in kernels() {
        assert!(report.rows.iter().any(|row| row.kernel == kernel && row.cases > 0), "{kernel} is not tested");
    }
    for kernel in ["gemm", "conv2d", "conv2d_backward_input", "conv2d_backward_weight"] {
        let types: Vec<&str> =
            report.rows.iter().filter(|row| row.kernel == kernel).map(|row| row.dtype.as_str()).collect();
        assert_eq!(types, ["f32", "tf32", "f16", "bf16"], "{kernel}");
    }
}

/// The fault of [`Faulty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// One element in the middle is a little off.
    Element,
    /// The last element is not written.
    Missing,
    /// One element too many is written.
    Beyond,
    /// Results differ from launch to launch.
    Unstable,
    /// f16 is refused.
    Unsupported,
}

/// The processor, with a fault in one kernel.
struct Faulty {
    inner: CpuDevice,
    fault: Fault,
    launches: u8,
}

impl Faulty {
    fn spoil(&mut self, dst: Operand, stream: StreamId) -> Result<(), DeviceError> {
        let size = usize::try_from(dst.dtype.size()).unwrap();
        let element = |n: usize| dst.address.offset(dst.dtype.bytes(n));
        self.launches += 1;
        match self.fault {
            Fault::Element if dst.len > 2 => {
                let (at, mut bytes) = (element(dst.len / 2), vec![0; size]);
                self.inner.read(at, &mut bytes, stream)?;
                // Some units in the last place.
                bytes[usize::from(dst.dtype == DType::F32)] ^= 0x04;
                self.inner.copy_pageable(&bytes, at, stream)
            }
            Fault::Missing if dst.len > 0 => self.inner.copy_pageable(&vec![0xFF; size], element(dst.len - 1), stream),
            Fault::Beyond => self.inner.copy_pageable(&vec![0; size], element(dst.len), stream),
            Fault::Unstable if dst.len > 0 => {
                let mut bytes = vec![0; size];
                self.inner.read(dst.address, &mut bytes, stream)?;
                bytes[0] ^= self.launches & 1;
                self.inner.copy_pageable(&bytes, dst.address, stream)
            }
            _ => Ok(()),
        }
    }
}

impl Wrapper for Faulty {
    fn wrapped(&self) -> &dyn Device {
        &self.inner
    }

    fn wrapped_mut(&mut self) -> &mut dyn Device {
        &mut self.inner
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        match *kernel {
            Kernel::Elementwise(Elementwise::Tanh { dst, .. })
                if self.fault == Fault::Unsupported && dst.dtype == DType::F16 =>
            {
                Err(DeviceError::Unsupported { operation: "tanh", device: "faulty".into(), reason: "tanh".into() })
            }
            Kernel::Elementwise(Elementwise::Tanh { dst, .. }) => {
                self.inner.launch(kernel, stream)?;
                self.spoil(dst, stream)
            }
            _ => self.inner.launch(kernel, stream),
        }
    }
}

#[test]
fn a_kernel_that_errs_is_found_and_told() {
    for (fault, word) in [
        (Fault::Element, "should be"),
        (Fault::Missing, "NaN"),
        (Fault::Beyond, "behind dst"),
        (Fault::Unstable, "two runs differ"),
        (Fault::Unsupported, "no kernel"),
    ] {
        let mut device = Faulty { inner: processor(), fault, launches: 0 };
        let report = test(&mut device, &small(&["tanh", "relu"]));
        assert!(!report.passed(), "{fault:?}");
        for row in &report.rows {
            let spoilt = row.kernel == "tanh" && (fault != Fault::Unsupported || row.dtype == "f16");
            let expected = if spoilt { Outcome::Failed } else { Outcome::Ok };
            assert_eq!(row.outcome, expected, "{fault:?}: {row:#?}");
            assert!(!spoilt || row.failures.iter().any(|told| told.sentence.contains(word)), "{fault:?}: {row:#?}");
        }
    }
}
