//! What the process has on its devices, behind one lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::devices::Device;
use crate::events::Events;
use crate::graphs::Graphs;
use crate::host_mapping::HostMappings;
use crate::shadow::Shadow;
use crate::space::Ranges;
use crate::streams::Streams;
use crate::virtual_memory::Physical;

/// All of it.
#[derive(Debug, Default)]
pub struct State {
    /// The devices that the program sees, by number.
    pub devices: Vec<Device>,
    /// Reserved ranges of addresses.
    pub ranges: Ranges,
    /// Memory that was made to be mapped.
    pub physical: Physical,
    /// Page-locked host memory.
    pub pinned: HostMappings,
    /// Streams.
    pub streams: Streams,
    /// Events.
    pub events: Events,
    /// Graphs.
    pub graphs: Graphs,
    /// What is known of the bytes on the devices.
    pub shadow: Shadow,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// What the process has; nobody else changes it meanwhile.
pub struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;

    fn deref(&self) -> &State {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("it is made when it is locked"),
        }
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.get_or_insert_with(State::default)
    }
}

/// Waits for it.
pub fn lock() -> Locked {
    crate::fork::prepare_once();
    lock_as_it_is()
}

/// The same while the process forks.
pub fn lock_as_it_is() -> Locked {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(State::default);
    Locked(guard)
}
