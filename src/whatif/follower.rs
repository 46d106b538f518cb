//! An allocator under other conditions that follows a run as it goes.

use super::ask::Ask;
use super::conditions::Conditions;
use super::driver::Places;
use super::figures::Figures;
use super::player::Player;
use super::reader::Reader;
use crate::model::{Event, History};
use crate::units::{Address, Bytes, DeviceIndex, StreamId};

/// A block that the run holds when somebody begins to follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where the run has it.
    pub address: Address,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The stream it was allocated for.
    pub stream: StreamId,
}

/// A ghost: another allocator beside a run, asked what the run's own is asked.
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    player: Player,
    /// Steps of the run that it has not seen.
    since: u64,
}

impl Follower {
    /// Follows a run from its first event on.
    #[must_use]
    pub fn new(conditions: &Conditions, places: Places, device: DeviceIndex) -> Self {
        Self { reader: Reader::new(device, places, 0), player: Player::new(conditions, places), since: 0 }
    }

    /// Follows a run that is under way behind `position` events, of which nothing is known but what it holds now: `held` in the
    /// order in which the blocks were taken. They are asked for in that order, as if they had been all.
    ///
    /// `limit` is the run's; `steps` are finished, and `columns` of its history begun.
    #[must_use]
    pub fn begin(
        conditions: &Conditions,
        places: Places,
        (device, position): (DeviceIndex, u64),
        held: impl IntoIterator<Item = Held>,
        limit: Option<Bytes>,
        (steps, columns): (u64, u64),
    ) -> Self {
        let mut follower = Self {
            reader: Reader::new(device, places, position),
            player: Player::new(conditions, places),
            since: steps,
        };
        let Self { reader, player, .. } = &mut follower;
        player.begin_after(steps, columns);
        player.play(&Ask::Limit(limit));
        reader.skip_start(&mut |ask| player.play(&ask));
        for block in held {
            reader.hold(block.address, block.requested, block.stream, &mut |ask| player.play(&ask));
        }
        follower
    }

    /// Follows the next event.
    pub fn apply(&mut self, event: &Event) {
        let Self { reader, player, since } = self;
        reader.read(event, &mut |ask| {
            if let Ask::Begin(_) = ask {
                *since = 0;
            }
            player.play(&ask);
        });
    }

    /// Events that it has followed, and those before it began.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Under what it works.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        self.player.conditions()
    }

    /// Steps of the run that were finished when it began.
    #[must_use]
    pub const fn since(&self) -> u64 {
        self.since
    }

    /// Steps of the run that have ended.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.player.finished()
    }

    /// Its figures now. Costs a look at every free block.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.player.figures()
    }

    /// Peaks of reserved, and what was stranded at its end, of every step: in the columns of the run's own history. Those before
    /// it began are empty.
    #[must_use]
    pub const fn history(&self) -> &History {
        self.player.history()
    }
}
