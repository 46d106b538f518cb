//! A process that forks: its child finds the stand-in as it was, and no lock held by a thread that is gone.

use std::cell::UnsafeCell;
use std::sync::Once;

use crate::state::{self, Locked};
use crate::{report, system};

/// The lock while the process forks.
struct Held(UnsafeCell<Option<Locked>>);

// SAFETY: only the thread that forks uses it, while it holds the lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Has the lock taken around every fork from now on.
pub fn prepare_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| system::around_forks(before, after, in_child));
}

extern "C" fn before() {
    let locked = state::lock_as_it_is();
    // SAFETY: whoever holds the lock is the only one here.
    unsafe { *HELD.0.get() = Some(locked) };
}

extern "C" fn after() {
    // SAFETY: this thread took the lock in `before`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    after();
    report::forked();
}
