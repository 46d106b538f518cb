//! What is told of ranks that can't be reached: which is silent and for how long, and which is gone.

use std::cell::RefCell;
use std::time::Duration;

use super::GroupError;
use super::broken::RunFailure;
use super::gate::Gate;
use super::rank_messages::SILENCE;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{EventKind, Presence};

/// Ranks that say nothing.
#[derive(Default)]
pub(super) struct SilentRanks(Vec<usize>);

impl SilentRanks {
    /// Tells how long a rank has been silent, or that it no longer is.
    pub fn tell(&mut self, rank: usize, silence: Option<Duration>, gate: &mut Gate) {
        let seconds = silence.map(|silence| u32::try_from(silence.as_secs()).unwrap_or(u32::MAX));
        tell_presence(rank, seconds.map_or(Presence::There, Presence::Silent), gate);
        let named = self.0.contains(&rank);
        let text = match seconds {
            Some(_) if named => None,
            Some(seconds) => {
                self.0.push(rank);
                let until = SILENCE.as_secs();
                Some(format!(
                    "rank {rank} has said nothing for {seconds} s: the others wait for it; after {until} s it is lost"
                ))
            }
            None => {
                self.0.retain(|silent| *silent != rank);
                Some(format!("rank {rank} answers again"))
            }
        };
        if let Some(text) = text {
            gate.tell(EventKind::Notice { text: text.into() });
        }
        gate.flush();
    }
}

/// Tells that a rank is gone: its process, or its device.
pub(super) fn tell_gone(rank: usize, gate: &RefCell<Gate>) {
    tell_presence(rank, Presence::Gone, &mut gate.borrow_mut());
}

/// A run of ranks that can't go on; which of them is gone is told.
pub(super) fn broken(error: &GroupError, gate: &RefCell<Gate>) -> RunFailure {
    if let (true, GroupError::Build { rank, .. }) = (error.lost(), error) {
        tell_gone(*rank, gate);
    }
    RunFailure::of_ranks(error)
}

/// Ranks that can be out of reach are devices of the stream by their numbers.
fn tell_presence(rank: usize, presence: Presence, gate: &mut Gate) {
    if let Ok(device) = u16::try_from(rank) {
        gate.tell_of(DeviceIndex(device), EventKind::Presence(presence));
    }
}
