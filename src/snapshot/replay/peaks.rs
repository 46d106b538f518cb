//! When the program reset the peak statistics.
//!
//! `torch.cuda.reset_peak_memory_stats()` leaves no entry, but an effect: every peak at the end is the highest value
//! since the last reset. A later reset can only lower peaks, so bisection finds the latest moment at which no peak is
//! below the recorded one. If there was a reset, all peaks agree there.

use super::conditions::{Conditions, SYNCHRONISATIONS, Statistics};
use super::player::Player;
use super::tape::Tape;
use crate::types::TraceEntry;
use vramlab_allocator::Seed;

/// True if only peaks differ, and all that differ are higher in ours.
pub fn only_peaks_are_too_high(ours: &[(String, i64)], recorded: &Statistics) -> bool {
    let mut differ = false;
    for (key, mine) in ours.iter().filter(|(key, _)| key != SYNCHRONISATIONS) {
        match recorded.0.get(key) {
            Some(theirs) if theirs == mine => {}
            Some(theirs) if key.ends_with(".peak") && mine > theirs => differ = true,
            Some(_) => return false,
            None => {}
        }
    }
    differ
}

/// The latest entry before which a reset of the peaks gives the recorded peaks, and the statistics that result.
pub fn last_reset(
    trace: &[TraceEntry],
    seed: &Seed,
    conditions: &Conditions,
    recorded: &Statistics,
) -> Option<(usize, Vec<(String, i64)>)> {
    // With a reset before `low` peaks are high enough; before `high` they are too low, or nothing is left to play.
    let (mut low, mut high) = (0, trace.len() + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let high_enough = statistics(trace, seed, conditions, middle)
            .iter()
            .filter(|(key, _)| key.ends_with(".peak"))
            .all(|(key, mine)| recorded.0.get(key).is_none_or(|theirs| mine >= theirs));
        if high_enough {
            low = middle;
        } else {
            high = middle;
        }
    }
    let statistics = statistics(trace, seed, conditions, low);
    let agree = statistics
        .iter()
        .filter(|(key, _)| key.ends_with(".peak"))
        .all(|(key, mine)| recorded.0.get(key).is_none_or(|theirs| mine == theirs));
    agree.then_some((low, statistics))
}

/// The statistics at the end if the peaks are reset before entry `reset`.
fn statistics(trace: &[TraceEntry], seed: &Seed, conditions: &Conditions, reset: usize) -> Vec<(String, i64)> {
    let tape = Tape::new(trace);
    let mut nobody = ();
    let Ok(mut player) = Player::new(&tape, seed, conditions, &mut nobody) else { return Vec::new() };
    player.reset_peaks_before(reset);
    player.play();
    player.into_allocator().statistics().entries()
}
