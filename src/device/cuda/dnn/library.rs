//! The cuDNN library, if it is available.

use super::handle::{DnnHandle, Version};
use crate::cuda::libraries::{self, LibraryKind};

/// The oldest library whose descriptors match the bindings.
const OLDEST: Version = Version::new(9, 1);

/// vramlab's environment variable: `off` leaves everything to vramlab's own kernels.
const VARIABLE: &str = "VRAMLAB_CUDNN";

/// The library, opened when it is first needed, because that takes time and memory.
#[derive(Default)]
pub(super) enum Library {
    #[default]
    Unasked,
    Open(DnnHandle),
    Absent,
}

impl Library {
    /// The opened library. If it can't be opened, the reason is added to `notes`.
    pub fn handle(&mut self, notes: &mut Vec<String>) -> Option<&mut DnnHandle> {
        if matches!(self, Self::Unasked) {
            *self = match open() {
                Ok(handle) => Self::Open(handle),
                Err(reason) => {
                    notes.push(reason);
                    Self::Absent
                }
            };
        }
        match self {
            Self::Open(handle) => Some(handle),
            Self::Unasked | Self::Absent => None,
        }
    }
}

/// Opens the library for the current context.
fn open() -> Result<DnnHandle, String> {
    usable()?;
    DnnHandle::new().map_err(|refusal| refusal.to_string())
}

/// Checks that the library is present and may be used, as far as that can be decided without a context.
///
/// # Errors
/// The sentence that says why not, without a full stop.
pub(in crate::cuda) fn usable() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
        return Err(format!("cuDNN is not used: {VARIABLE} is off"));
    }
    libraries::load(LibraryKind::Cudnn)?;
    match Version::of_library() {
        version if version < OLDEST => Err(format!("cuDNN {version} is not used: it is older than {OLDEST}")),
        _ => Ok(()),
    }
}
