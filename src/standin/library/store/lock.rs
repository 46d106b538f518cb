//! The lock around a process's state. It also holds while the process forks: the child finds the state unchanged, and
//! no lock that is held by a thread which the child doesn't have.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::state::State;
use crate::{report, system};

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Access to the process's state; no other thread can change it meanwhile.
pub struct StateGuard(MutexGuard<'static, Option<State>>);

impl Deref for StateGuard {
    type Target = State;

    fn deref(&self) -> &State {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("it is made when it is locked"),
        }
    }
}

impl DerefMut for StateGuard {
    fn deref_mut(&mut self) -> &mut State {
        self.0.get_or_insert_with(State::default)
    }
}

/// Waits for the lock.
pub fn lock() -> StateGuard {
    let mut guard = wait();
    guard.get_or_insert_with(State::default);
    StateGuard(guard)
}

fn wait() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs when the library is loaded, while there is only one thread. If the program's first call registered this
/// instead, a fork at the same time could leave the child with a lock that is never released.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    system::around_forks(before, after, in_child);
}

/// Holds the lock while the process forks.
struct ForkLock(UnsafeCell<Option<MutexGuard<'static, Option<State>>>>);

// SAFETY: only the thread that forks uses it, while it holds the lock.
unsafe impl Sync for ForkLock {}

static FORK_LOCK: ForkLock = ForkLock(UnsafeCell::new(None));

extern "C" fn before() {
    let locked = wait();
    // SAFETY: only the holder of the lock is here.
    unsafe { *FORK_LOCK.0.get() = Some(locked) };
}

extern "C" fn after() {
    // SAFETY: this thread took the lock in `before`.
    drop(unsafe { (*FORK_LOCK.0.get()).take() });
}

extern "C" fn in_child() {
    after();
    report::forked();
}
