//! The library's handle: one for the device, which follows the stream of each launch.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::{fmt, ptr};

use cudarc::cudnn::sys;

use crate::cuda::driver::Stream;
use crate::cuda::refusal::Refusal;

/// An open cuDNN.
pub(super) struct DnnHandle {
    raw: sys::cudnnHandle_t,
    version: Version,
    /// The stream on which it launches now.
    stream: Option<Stream>,
}

impl DnnHandle {
    /// Opens the library for the current context. The library must have been loaded.
    pub fn new() -> Result<Self, Refusal> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded, a context is current, and one handle is written.
        check(unsafe { sys::cudnnCreate(&raw mut raw) }, "cudnnCreate")?;
        Ok(Self { raw, version: Version::of_library(), stream: None })
    }

    pub fn raw(&self) -> sys::cudnnHandle_t {
        self.raw
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Runs everything executed from now on on `stream`.
    pub fn follow(&mut self, stream: Stream) -> Result<(), Refusal> {
        if self.stream == Some(stream) {
            return Ok(());
        }
        self.stream = None;
        // SAFETY: both are alive; the stream is a driver's stream of the same context.
        check(unsafe { sys::cudnnSetStream(self.raw, stream.raw().cast()) }, "cudnnSetStream")?;
        self.stream = Some(stream);
        Ok(())
    }
}

impl Drop for DnnHandle {
    fn drop(&mut self) {
        // SAFETY: the handle came from cudnnCreate and is not used again.
        let _ = unsafe { sys::cudnnDestroy(self.raw) };
    }
}

/// A version of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(usize);

impl Version {
    /// `major.minor.0`.
    pub const fn new(major: usize, minor: usize) -> Self {
        Self(10_000 * major + 100 * minor)
    }

    /// The version of the loaded library.
    pub fn of_library() -> Self {
        // SAFETY: the library is loaded.
        Self(unsafe { sys::cudnnGetVersion() })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// Turns an unsuccessful status into a refusal that contains the library's explanation.
pub(super) fn check(status: sys::cudnnStatus_t, what: impl fmt::Display) -> Result<(), Refusal> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let cause = last_error();
    let separator = if cause.is_empty() { "" } else { ": " };
    Err(refused(format!("{status:?} to {what}{separator}{cause}")))
}

/// A refusal in the library's name.
pub(super) fn refused(status: String) -> Refusal {
    Refusal::Library { library: "cuDNN", status }
}

/// The library's message about the last error on this thread.
fn last_error() -> String {
    let mut text = [0_u8; 1024];
    // SAFETY: the library writes a string of at most that many bytes, including its terminator.
    unsafe { sys::cudnnGetLastErrorString(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}
