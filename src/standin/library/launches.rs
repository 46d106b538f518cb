//! Launches of kernels: how many there were, and which was the last.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::foreign::text;
use crate::report;

/// Launches of this process.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// The host's stub of the kernel that was launched last.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Kernels as libraries register them while they are loaded: stub and name. There are tens of thousands.
static REGISTERED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// How many kernels were launched.
pub fn count() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// So many kernels are launched that overwrite nothing but what was said to the shadow.
pub fn add(count: u64) -> u64 {
    report::launched(count);
    LAUNCHES.fetch_add(count, Ordering::Relaxed)
}

/// A kernel is the last that was launched; 0 for what is none of the program's.
pub fn set_last(stub: u64) {
    LAST.store(stub, Ordering::Relaxed);
}

/// A library registers a kernel: the host's stub, and where its name lies.
pub fn register(stub: u64, name: u64) {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).push((stub, name));
}

/// Whether the kernel that was launched last asks whether all of something hold.
pub fn last_asks_for_all() -> bool {
    let stub = LAST.load(Ordering::Relaxed);
    name(stub).is_some_and(|name| ["and_kernel", "AndOp"].iter().any(|part| contains(name, part)))
}

fn contains(name: &[u8], part: &str) -> bool {
    name.windows(part.len()).any(|window| window == part.as_bytes())
}

/// The mangled name of a kernel.
pub fn name(stub: u64) -> Option<&'static [u8]> {
    static NAMES: Mutex<(usize, Option<HashMap<u64, u64>>)> = Mutex::new((0, None));
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let (seen, map) = &mut *names;
    let map = map.get_or_insert_with(HashMap::new);
    map.extend(registered.iter().skip(*seen).copied());
    *seen = registered.len();
    let name = *map.get(&stub)?;
    text(name as *const c_char).map(std::ffi::CStr::to_bytes)
}
