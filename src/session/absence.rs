//! Reports about ranks that can't be reached: which is silent and for how long, and which is gone.

use std::cell::RefCell;
use std::time::Duration;

use super::GroupError;
use super::broken::RunFailure;
use super::gate::Gate;
use super::rank_messages::SILENCE;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{EventKind, Presence};

/// The ranks that are silent.
#[derive(Default)]
pub(super) struct SilentRanks(Vec<usize>);

impl SilentRanks {
    /// Reports how long a rank has been silent, or that it no longer is.
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

/// Reports that a rank is gone: its process or its device.
pub(super) fn tell_gone(rank: usize, gate: &RefCell<Gate>) {
    tell_presence(rank, Presence::Gone, &mut gate.borrow_mut());
}

/// The failure of a run whose ranks can't go on. Reports which of them is gone.
pub(super) fn broken(error: &GroupError, gate: &RefCell<Gate>) -> RunFailure {
    if let (true, GroupError::Build { rank, .. }) = (error.lost(), error) {
        tell_gone(*rank, gate);
    }
    RunFailure::of_ranks(error)
}

/// Reports the presence of a rank. Ranks that can be out of reach have the device number of their rank.
fn tell_presence(rank: usize, presence: Presence, gate: &mut Gate) {
    if let Ok(device) = u16::try_from(rank) {
        gate.tell_of(DeviceIndex(device), EventKind::Presence(presence));
    }
}
