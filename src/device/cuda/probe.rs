//! Which parts of CUDA are available on this machine.
//!
//! The driver's library is loaded at run time. All code checks that it is present first, because the bindings panic if
//! a library is missing.
#![allow(unsafe_code)]

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::dnn;
use super::libraries::{self, LibraryKind};
use vramlab_allocator::units::Bytes;

/// The result of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was searched for: `CUDA driver`, `GPU 0`, `NVML`, `cuDNN`.
    pub subject: String,
    /// True if it was found.
    pub found: bool,
    /// What was found, or why it was not and what to do.
    pub sentence: String,
}

impl Probe {
    fn found(subject: impl Into<String>, sentence: String) -> Self {
        Self { subject: subject.into(), found: true, sentence }
    }

    fn missing(subject: impl Into<String>, sentence: String) -> Self {
        Self { subject: subject.into(), found: false, sentence }
    }
}

/// Searches for the CUDA driver, its devices and NVML. Never panics, with or without them, and takes no GPU memory.
#[must_use]
pub fn probe() -> Vec<Probe> {
    let mut probes = driver();
    probes.push(nvml());
    let libraries = LIBRARIES.map(|needed| (needed, library(needed)));
    let missing: Vec<LibraryKind> =
        libraries.iter().filter(|(_, probe)| probe.is_none()).map(|(needed, _)| *needed).collect();
    for (needed, probe) in libraries {
        let absent = || Probe::missing(needed.name(), format!("Not found; it {}.", needed.purpose()));
        probes.push(probe.unwrap_or_else(absent));
    }
    // The searched places are the same for all libraries, so they are reported once.
    if !missing.is_empty() {
        probes.push(Probe::missing(HOW_TO_GET, libraries::how_to_get(&missing)));
    }
    if driver_present().is_ok() {
        probes.push(training());
    }
    probes
}

/// The subject of the probe that tells which places were searched, and how to install libraries.
pub const HOW_TO_GET: &str = "CUDA's libraries";
/// Libraries besides the driver's.
const LIBRARIES: [LibraryKind; 3] = [LibraryKind::Nvrtc, LibraryKind::CublasLt, LibraryKind::Cudnn];

/// The probe of a library; `None` if it was not found.
fn library(needed: LibraryKind) -> Option<Probe> {
    let folder = libraries::load(needed).ok()?;
    let place = folder.map_or_else(|| "on the loader's path".to_owned(), |folder| format!("in {}", folder.display()));
    let there = format!("{} {} is there, {place}", needed.name(), needed.version());
    let refused = if needed == LibraryKind::Cudnn { dnn::usable().err() } else { None };
    Some(match refused {
        Some(reason) => Probe::missing(needed.name(), format!("{there}. {reason}: own kernels run, more slowly.")),
        None => Probe::found(needed.name(), format!("{there}: it {}.", needed.purpose())),
    })
}

/// Tells whether everything together can train.
fn training() -> Probe {
    const SUBJECT: &str = "training on GPUs";
    let count = count().unwrap_or(0);
    match usable(0) {
        Ok(()) => {
            let devices = if count == 1 { "cuda:0".to_owned() } else { format!("cuda:0 to cuda:{}", count - 1) };
            let sentence = format!(
                "{devices} can be trained on; cuda:0 is used unless --device says otherwise. The first start on a machine \
                 compiles kernels, which takes seconds."
            );
            Probe::found(SUBJECT, sentence)
        }
        Err(why) => Probe::missing(SUBJECT, format!("{why} The processor trains instead.")),
    }
}

/// Checks that the driver's library can be called.
///
/// # Errors
/// A sentence for people.
pub(super) fn driver_present() -> Result<(), String> {
    // SAFETY: opens libcuda and closes it again; its initialisers are NVIDIA's.
    if unsafe { sys::is_culib_present() } {
        Ok(())
    } else {
        Err("The driver's library (libcuda.so.1) was not found; install NVIDIA's driver to use a GPU.".into())
    }
}

/// Checks that GPU number `ordinal` can train, as far as that can be decided without opening anything: the driver
/// answers, the GPU is visible, and the libraries that every workload needs exist.
///
/// # Errors
/// A sentence that ends in a full stop.
pub fn usable(ordinal: u32) -> Result<(), String> {
    driver_present()?;
    let count = count().map_err(does_not_start)?;
    if i64::from(ordinal) >= i64::from(count) {
        let visible = if count == 1 { "1 GPU is visible".to_owned() } else { format!("{count} GPUs are visible") };
        return Err(format!("{visible}, numbered from 0; CUDA_VISIBLE_DEVICES decides which."));
    }
    for needed in [LibraryKind::Nvrtc, LibraryKind::CublasLt] {
        libraries::find(needed).map_err(|missing| format!("{missing}."))?;
    }
    Ok(())
}

/// A GPU that programs of this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleGpu {
    /// Its number: `cuda:0` is the first.
    pub ordinal: u32,
    /// `NVIDIA H200`.
    pub name: String,
    /// Its total memory.
    pub memory: Bytes,
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible and that respond; empty without a driver.
#[must_use]
pub fn visible() -> Vec<VisibleGpu> {
    let count = driver_present().ok().and_then(|()| count().ok()).unwrap_or(0);
    let gpu = |ordinal| {
        let (name, memory) = device(ordinal).ok()?;
        Some(VisibleGpu { ordinal: u32::try_from(ordinal).ok()?, name, memory })
    };
    (0..count).filter_map(gpu).collect()
}

/// Starts the driver, which must be present, and counts its devices.
fn count() -> Result<i32, DriverError> {
    result::init()?;
    result::device::get_count()
}

fn does_not_start(error: DriverError) -> String {
    format!("The driver's library is there but does not start ({error}); see what nvidia-smi says.")
}

fn driver() -> Vec<Probe> {
    const SUBJECT: &str = "CUDA driver";
    if let Err(sentence) = driver_present() {
        return vec![Probe::missing(SUBJECT, sentence)];
    }
    let count = match count() {
        Ok(count) => count,
        Err(error) => return vec![Probe::missing(SUBJECT, does_not_start(error))],
    };
    let version = version().map_or_else(|| "of an unknown version".into(), |v| format!("for CUDA {v}"));
    let devices = if count == 1 { "1 device".into() } else { format!("{count} devices") };
    let mut probes = vec![Probe::found(SUBJECT, format!("The driver is there, {version}, with {devices}."))];
    probes.extend((0..count).map(|ordinal| {
        let subject = format!("GPU {ordinal}");
        match device(ordinal) {
            Ok((name, memory)) => Probe::found(subject, format!("{name} with {memory} of memory.")),
            Err(error) => Probe::missing(subject, format!("It does not answer ({error}); see what nvidia-smi says.")),
        }
    }));
    probes
}

/// The newest CUDA version that the driver supports.
fn version() -> Option<String> {
    let mut version = 0;
    // SAFETY: the driver is present and initialised, and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().ok()?;
    Some(format!("{}.{}", version / 1000, version % 1000 / 10))
}

fn device(ordinal: i32) -> Result<(String, Bytes), DriverError> {
    let device = result::device::get(ordinal)?;
    let name = result::device::get_name(device)?;
    // SAFETY: `device` comes from the driver.
    let memory = unsafe { result::device::total_mem(device) }?;
    Ok((name, Bytes(memory as u64)))
}

fn nvml() -> Probe {
    let describe = || -> Result<String, NvmlError> {
        let nvml = Nvml::init()?;
        let mut sentence = format!("Driver {}", nvml.sys_driver_version()?);
        for index in 0..nvml.device_count()? {
            let device = nvml.device_by_index(index)?;
            let memory = device.memory_info()?;
            sentence += &format!("; {}: {} of {} in use", device.name()?, Bytes(memory.used), Bytes(memory.total));
        }
        Ok(sentence + ".")
    };
    match describe() {
        Ok(sentence) => Probe::found("NVML", sentence),
        Err(NvmlError::LibloadingError(_)) => Probe::missing(
            "NVML",
            "NVIDIA's management library (libnvidia-ml.so.1) was not found; it comes with the driver.".into(),
        ),
        Err(error) => Probe::missing("NVML", format!("NVIDIA's management library does not answer: {error}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_answers_in_sentences_with_or_without_a_driver() {
        let probes = probe();
        for subject in ["CUDA driver", "NVML", "NVRTC", "cuBLASLt", "cuDNN"] {
            assert_eq!(probes.iter().filter(|probe| probe.subject == subject).count(), 1, "{subject}");
        }
        assert!(probes.iter().all(|probe| probe.sentence.ends_with('.')), "{probes:?}");
        let gpus = probes.iter().filter(|probe| probe.subject.starts_with("GPU ")).count();
        let driver = probes.iter().any(|probe| probe.subject == "CUDA driver" && probe.found);
        assert!(driver || gpus == 0);
    }
}
