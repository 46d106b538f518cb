//! Finding CUDA's libraries. pip's wheels and toolkits lie outside the loader's path, so each library is first opened
//! by its absolute path. After that, the bindings' own search finds it by name.
#![allow(unsafe_code)]

use std::env;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};

/// vramlab's environment variable, which precedes every other place: folders, separated by colons.
const VARIABLE: &str = "VRAMLAB_CUDA_LIBRARIES";

/// A library that is searched for at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LibraryKind {
    /// Compiles vramlab's own kernels.
    Nvrtc,
    /// Multiplies matrices.
    CublasLt,
    /// Convolutions and attention.
    Cudnn,
    /// Transfers bytes from GPU to GPU.
    Nccl,
}

/// The name by which the loader finds NCCL.
pub(super) const NCCL: &str = "libnccl.so.2";

impl LibraryKind {
    /// Its name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Cudnn => "cuDNN",
            Self::Nccl => "NCCL",
        }
    }

    /// What it does here, after "it".
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Nvrtc => "compiles the kernels for the GPU at hand",
            Self::CublasLt => "multiplies matrices",
            Self::Cudnn => "runs convolutions and attention; without it own kernels do, more slowly",
            Self::Nccl => "passes tensors on between the GPUs of --parallel",
        }
    }

    /// Files to open, in order; for each, its names in order of preference.
    const fn files(self) -> &'static [&'static [&'static str]] {
        match self {
            // NVRTC opens its builtins by name alone; they are in the same folder.
            Self::Nvrtc => &[
                &["libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.13.*", "libnvrtc-builtins.so.12.*"],
                &["libnvrtc.so.13", "libnvrtc.so.12"],
            ],
            Self::CublasLt => &[&["libcublasLt.so.13", "libcublasLt.so.12"]],
            Self::Cudnn => &[&["libcudnn.so.9"]],
            Self::Nccl => &[&[NCCL]],
        }
    }

    /// pip's folders below `site-packages/nvidia`.
    const fn wheels(self) -> &'static [&'static str] {
        match self {
            Self::Nvrtc => &["cu13/lib", "cuda_nvrtc/lib"],
            Self::CublasLt => &["cu13/lib", "cublas/lib"],
            Self::Cudnn => &["cudnn/lib"],
            Self::Nccl => &["nccl/lib"],
        }
    }

    /// The version of the library, which [`load`] must have loaded.
    pub fn version(self) -> String {
        // SAFETY: the library is loaded; each of these calls exists in every version and needs no device.
        let number = unsafe {
            match self {
                Self::Nvrtc => {
                    let (mut major, mut minor) = (0, 0);
                    let _ = cudarc::nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor);
                    return format!("{major}.{minor}");
                }
                Self::CublasLt => cudarc::cublaslt::sys::cublasLtGetVersion(),
                Self::Cudnn => cudarc::cudnn::sys::cudnnGetVersion(),
                Self::Nccl => {
                    let mut number: c_int = 0;
                    if let Ok(library) = Library::new(NCCL)
                        && let Ok(ask) = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion")
                    {
                        ask(&raw mut number);
                    }
                    usize::try_from(number).unwrap_or_default()
                }
            }
        };
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }

    fn present(self) -> bool {
        // SAFETY: opens a library of NVIDIA's and closes it again.
        unsafe {
            match self {
                Self::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Self::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
                Self::Cudnn => cudarc::cudnn::sys::is_culib_present(),
                Self::Nccl => Library::new(NCCL).is_ok(),
            }
        }
    }
}

/// Searches for a library without opening more than necessary: files in folders are not opened.
///
/// # Errors
/// As [`load`].
pub(super) fn find(library: LibraryKind) -> Result<(), String> {
    let folders = folders(library);
    if folders.iter().any(|folder| files_in(library, folder).is_some()) || library.present() {
        Ok(())
    } else {
        Err(missing(library, &folders))
    }
}

/// Loads a library, after which the bindings may be called. Returns the folder that contains it, or `None` if the
/// loader found it by itself.
///
/// # Errors
/// A sentence that names what is missing and the places that were searched.
pub(super) fn load(library: LibraryKind) -> Result<Option<PathBuf>, String> {
    let folders = folders(library);
    for folder in &folders {
        if open_all(library, folder) && library.present() {
            return Ok(Some(folder.clone()));
        }
    }
    if library.present() {
        return Ok(None);
    }
    Err(missing(library, &folders))
}

fn missing(library: LibraryKind, folders: &[PathBuf]) -> String {
    format!("{} was not found {}", library.name(), looked(folders, "its folder"))
}

/// A sentence for libraries that were not found: all places that were searched, and how to install them.
pub(super) fn how_to_get(libraries: &[LibraryKind]) -> String {
    let mut places: Vec<PathBuf> = Vec::new();
    for folder in libraries.iter().flat_map(|library| folders(*library)) {
        if !places.contains(&folder) {
            places.push(folder);
        }
    }
    format!("Looked for {}.", looked(&places, "their folder"))
}

fn looked(folders: &[PathBuf], named: &str) -> String {
    let shown: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let places = if shown.is_empty() { String::new() } else { format!(" and in {}", shown.join(", ")) };
    format!(
        "on the loader's path{places}: install CUDA 12 or 13 (pip install torch brings all of it), or name {named} in \
         {VARIABLE}"
    )
}

/// The library's files in one folder, if all of them exist.
fn files_in(library: LibraryKind, folder: &Path) -> Option<Vec<PathBuf>> {
    library.files().iter().map(|names| first_file(folder, names)).collect()
}

/// Opens every file of the library in one folder and keeps it open.
fn open_all(library: LibraryKind, folder: &Path) -> bool {
    let Some(found) = files_in(library, folder) else { return false };
    found.iter().all(|path| {
        // SAFETY: NVIDIA's libraries run their own initialisers; they stay open until the process ends.
        match unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) } {
            Ok(library) => {
                std::mem::forget(library);
                true
            }
            Err(_) => false,
        }
    })
}

/// The first of `names` that exists in the folder; a name may end in `*`.
fn first_file(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().find_map(|name| match name.strip_suffix('*') {
        None => Some(folder.join(name)).filter(|path| path.is_file()),
        Some(stem) => {
            let entries = folder.read_dir().ok()?.filter_map(Result::ok).map(|entry| entry.path());
            entries.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(stem))).max()
        }
    })
}

/// The existing folders that may contain the library, the most specific first.
fn folders(library: LibraryKind) -> Vec<PathBuf> {
    let named = env::var_os(VARIABLE).map(|value| env::split_paths(&value).collect::<Vec<_>>()).unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]);
    let toolkits =
        toolkits.flat_map(|root| [root.join("lib64"), root.join("lib"), root.join("targets/x86_64-linux/lib")]);
    let system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"].map(PathBuf::from);
    let wheels =
        site_packages().into_iter().flat_map(|site| library.wheels().iter().map(move |w| site.join("nvidia").join(w)));
    let mut folders: Vec<PathBuf> = Vec::new();
    // PyTorch's own libraries come first, because vramlab's numbers are compared with PyTorch's.
    for folder in named.into_iter().chain(wheels).chain(toolkits).chain(system) {
        if folder.is_dir() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// `site-packages` of the active environment and of the python3 on the path.
fn site_packages() -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let on_path =
        env::var_os("PATH").and_then(|path| env::split_paths(&path).map(|p| p.join("python3")).find(|p| p.is_file()));
    let real = on_path.as_ref().and_then(|python| python.canonicalize().ok());
    let interpreters = on_path.into_iter().chain(real).filter_map(|python| Some(python.parent()?.parent()?.to_owned()));
    let mut sites = Vec::new();
    for root in active.chain(interpreters) {
        for lib in ["lib", "lib64"] {
            let Ok(entries) = root.join(lib).read_dir() else { continue };
            for entry in entries.filter_map(Result::ok) {
                if entry.file_name().to_string_lossy().starts_with("python3") {
                    sites.extend(["site-packages", "dist-packages"].map(|name| entry.path().join(name)));
                }
            }
        }
    }
    sites.retain(|site| site.join("nvidia").is_dir());
    sites.dedup();
    sites
}
