//! PyTorch's watchdog: a thread of the program that looks every 100 ms which collectives have ended, and only then
//! releases what they used.
//!
//! This includes DDP's first bucket: if the next step begins before the watchdog has looked, the bucket and everything
//! else exist twice. On a card, it is chance at which time between two looks a collective ends. Here the watchdog
//! notices the end half of that time later by the card's clock, as it does on average, so that figures are the same in
//! every run. When that time has come, the host pauses until the thread has looked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::store::{self, StateGuard};

/// The longest pause of the host, and of all pauses together, in microseconds.
const REST: u64 = 200_000;
const REST_IN_ALL: u64 = 600_000;
static RESTED: AtomicU64 = AtomicU64::new(0);
/// The time in which the watchdog releases what it has noticed.
const LETS_GO: Duration = Duration::from_millis(2);

/// Called when the host's time has advanced: what the watchdog would have noticed by now on a card, it notices before
/// the host goes on.
pub fn host_went_on(state: StateGuard) {
    if !state.ranks.is_one_due(state.clock.host()) || RESTED.load(Ordering::Relaxed) >= REST_IN_ALL {
        return;
    }
    drop(state);
    let begin = Instant::now();
    let rested = || begin.elapsed().as_micros() as u64;
    let is_due = || {
        let state = store::lock();
        state.ranks.is_one_due(state.clock.host())
    };
    while is_due() && rested() < REST && RESTED.load(Ordering::Relaxed) + rested() < REST_IN_ALL {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(LETS_GO);
    RESTED.fetch_add(rested(), Ordering::Relaxed);
}
