//! The least memory that a program gets by with.

use super::conditions::Conditions;
use super::program::Program;
use vramlab_allocator::units::Bytes;

/// What the driver gives is a multiple of this.
const STEP: u64 = 2 << 20;
/// More than any device has.
const MOST: Bytes = Bytes(1 << 40);

/// The smallest limit, in steps of 2 MiB, under which no request of `program` fails: every one is served, if need be after all
/// that is cached went back. `None` where a request fails without a limit, too.
///
/// Found by bisection, some fifteen replays: one step below it a request fails. Where a still smaller limit happens to do, it is
/// not found.
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
    // In steps: the first fails or is the least that can be, the second fits.
    let (mut fails, mut fits) =
        ((free.peak_allocated.get() / STEP).saturating_sub(1), free.peak_reserved.get().div_ceil(STEP));
    while fails + 1 < fits {
        let middle = fails.midpoint(fits);
        if under(Bytes(middle * STEP)).ooms == 0 { fits = middle } else { fails = middle }
    }
    Some(Bytes(fits * STEP))
}
