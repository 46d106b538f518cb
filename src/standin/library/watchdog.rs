//! PyTorch's watchdog: a thread of the program that looks every 100 ms which collectives are done, and only then lets go of what they
//! used.
//!
//! DDP's first bucket is among it: where the next step begins before the watchdog has looked, bucket and all are there twice. On a card
//! it is chance where between two looks a collective ends. Here the watchdog sees its end half of that time later by the card's clock, as
//! it does on average, so that figures are the same each time. The host rests where that has come, until the thread has looked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::store::{self, StateGuard};

/// Microseconds that the host rests for it, at most, and in all.
const REST: u64 = 200_000;
const REST_IN_ALL: u64 = 600_000;
static RESTED: AtomicU64 = AtomicU64::new(0);
/// What it does with what it has seen.
const LETS_GO: Duration = Duration::from_millis(2);

/// The host has come further: what the watchdog has seen by now on a card it sees before the host goes on.
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
