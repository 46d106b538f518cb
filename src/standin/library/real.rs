//! NVIDIA's own libraries, which the program has loaded beside this one, and which are asked for what they know without
//! a device.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use crate::system::{find, load, loaded};

/// The version if no runtime is loaded.
const VERSION: i32 = 13000;

/// The version of the program's runtime: 1000 times the major version plus ten times the minor.
pub fn runtime_version() -> i32 {
    static FOUND: OnceLock<i32> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let runtimes = [c"libcudart.so.13", c"libcudart.so.12", c"libcudart.so.14", c"libcudart.so.11.0"];
        let version = runtimes.into_iter().find_map(|name| {
            let found = find(Some(loaded(name)?), c"cudaRuntimeGetVersion")?;
            let mut version = 0;
            // SAFETY: NVIDIA documents this function with this one argument.
            let ask: extern "C" fn(*mut i32) -> i32 = unsafe { std::mem::transmute(found) };
            (ask(&mut version) == 0).then_some(version)
        });
        version.unwrap_or(VERSION)
    })
}

/// The driver's version: at least the version behind the H200's figures, and no older than the runtime.
pub fn driver_version() -> i32 {
    runtime_version().max(VERSION)
}

/// A library that is searched for once.
pub struct RealLibrary {
    names: &'static [&'static CStr],
    found: OnceLock<Option<usize>>,
}

impl RealLibrary {
    /// A library with these possible names.
    pub const fn new(names: &'static [&'static CStr]) -> Self {
        Self { names, found: OnceLock::new() }
    }

    /// A function of the library.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let library = self.found.get_or_init(|| {
            let already = self.names.iter().find_map(|name| loaded(name));
            already.or_else(|| self.names.iter().find_map(|name| load(name))).map(|library| library as usize)
        });
        find(Some((*library)? as *mut c_void), name)
    }
}
