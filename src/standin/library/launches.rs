//! Launches of kernels: how many there were, and which was the last.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::foreign::text;
use crate::report;

/// Number of launches of this process.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
thread_local! {
    /// Whether this thread launches kernels, so that its calls advance the card's clock. Other threads only look.
    static LAUNCHES_HERE: Cell<bool> = const { Cell::new(false) };
}

/// The host stub of the kernel that was launched last.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The kernels, in the order in which libraries register them while they are loaded. There are tens of thousands.
static REGISTERED: Mutex<Vec<Kernel>> = Mutex::new(Vec::new());

/// Number of launched kernels.
pub fn count() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// Counts launches of kernels that overwrite nothing, except what the shadow was told.
pub fn add(count: u64) -> u64 {
    report::launched(count);
    LAUNCHES_HERE.set(true);
    LAUNCHES.fetch_add(count, Ordering::Relaxed)
}

/// Whether this thread has launched kernels.
pub fn are_from_here() -> bool {
    LAUNCHES_HERE.get()
}

/// Sets the kernel that was launched last; 0 if it is not one of the program's.
pub fn set_last(stub: u64) {
    LAST.store(stub, Ordering::Relaxed);
}

/// Registers a kernel of a module: its host stub, and the address of its name.
pub fn register(module: u64, stub: u64, name: u64) {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).push(Kernel { stub, name, module });
}

/// Whether the last launched kernel tests whether all elements of something are true.
pub fn last_asks_for_all() -> bool {
    let stub = LAST.load(Ordering::Relaxed);
    name(stub).is_some_and(|name| ["and_kernel", "AndOp"].iter().any(|part| contains(name, part)))
}

/// What is known about a launched kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelKind {
    /// It works on a list of tensors, as the kernels of PyTorch's optimizers do.
    pub works_on_lists: bool,
    /// It is the first of its module, so the module's code is loaded.
    pub loads: bool,
}

/// What is known about the kernel of a stub; called at every launch.
pub fn kind(stub: u64) -> KernelKind {
    static KNOWN: Mutex<Option<(HashMap<u64, KernelKind>, HashSet<u64>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (kinds, loaded) = known.get_or_insert_with(Default::default);
    if let Some(kind) = kinds.get(&stub) {
        return *kind;
    }
    let Some(kernel) = kernel(stub) else { return KernelKind::default() };
    let works_on_lists = named(kernel).is_some_and(|name| contains(name, "multi_tensor_apply"));
    kinds.insert(stub, KernelKind { works_on_lists, loads: false });
    KernelKind { works_on_lists, loads: loaded.insert(kernel.module) }
}

fn contains(name: &[u8], part: &str) -> bool {
    name.windows(part.len()).any(|window| window == part.as_bytes())
}

/// A registered kernel.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    stub: u64,
    /// The address of its name.
    name: u64,
    /// The module, whose code is loaded as a whole.
    module: u64,
}

/// The kernel with this stub.
fn kernel(stub: u64) -> Option<Kernel> {
    static KERNELS: Mutex<(usize, Option<HashMap<u64, Kernel>>)> = Mutex::new((0, None));
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let (seen, map) = &mut *kernels;
    let map = map.get_or_insert_with(HashMap::new);
    map.extend(registered.iter().skip(*seen).map(|kernel| (kernel.stub, *kernel)));
    *seen = registered.len();
    map.get(&stub).copied()
}

fn named(kernel: Kernel) -> Option<&'static [u8]> {
    text(kernel.name as *const c_char).map(std::ffi::CStr::to_bytes)
}

/// The mangled name of a kernel.
pub fn name(stub: u64) -> Option<&'static [u8]> {
    kernel(stub).and_then(named)
}
