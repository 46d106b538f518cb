//! The smallest limit under which a program runs.

use super::conditions::Conditions;
use super::program::Program;
use vramlab_allocator::units::Bytes;

/// The driver gives memory in multiples of this.
const STEP: u64 = 2 << 20;
/// More than any device has.
const MOST: Bytes = Bytes(1 << 40);

/// The smallest limit, in steps of 2 MiB, under which no request of `program` fails, even if some are served only after
/// the cache was emptied. `None` if a request fails even without a limit.
///
/// Found by bisection in about fifteen replays: one step below the result a request fails. If a still smaller limit
/// happens to suffice, it is not found.
#[must_use]
pub fn smallest_limit(program: &Program, conditions: &Conditions) -> Option<Bytes> {
    let under = |limit: Bytes| {
        let mut conditions = conditions.clone();
        conditions.limit = Some(limit);
        program.replay(&conditions).figures
    };
    let free = under(MOST);
    if free.ooms > 0 {
        return None;
    }
    // In steps: at the first limit a request fails or it is the lowest possible, at the second none fails.
    let (mut fails, mut fits) =
        ((free.peak_allocated.get() / STEP).saturating_sub(1), free.peak_reserved.get().div_ceil(STEP));
    while fails + 1 < fits {
        let middle = fails.midpoint(fits);
        if under(Bytes(middle * STEP)).ooms == 0 { fits = middle } else { fails = middle }
    }
    Some(Bytes(fits * STEP))
}
