//! An allocator under other conditions that follows a run as it proceeds.

use std::collections::HashMap;
use std::sync::Arc;

use super::ask::Ask;
use super::conditions::Conditions;
use super::driver::Places;
use super::figures::Figures;
use super::player::Player;
use super::reader::Reader;
use super::recorded::RecordedRun;
use super::start::{AssumedPast, StartState};
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, StreamId};
use vramlab_allocator::{BlockSnapshot, BlockState};
use vramlab_model::{BlockView, Category, Event, History, NameId, Occupancy, SegmentView};

/// A block that the run holds when the follower begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAtStart {
    /// Its address in the run.
    pub address: Address,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The stream it was allocated for.
    pub stream: StreamId,
}

/// A ghost: another allocator that gets the same requests as the run's own.
#[derive(Clone, Debug)]
pub struct Follower {
    reader: Reader,
    player: Player,
    /// Steps of the run before the follower began.
    since: u64,
    /// Memory assumed to have been held before a recorded history of PyTorch began.
    past: AssumedPast,
}

impl Follower {
    /// Follows a run from its first event on.
    #[must_use]
    pub fn new(conditions: &Conditions, places: Places, device: DeviceIndex) -> Self {
        Self {
            reader: Reader::new(device, places, 0),
            player: Player::new(conditions, places),
            since: 0,
            past: AssumedPast::default(),
        }
    }

    /// Follows a run that is known from its first event on. It begins like a replay of the run: what existed before the
    /// history was concluded from the whole history. `conditions` come from [`RecordedRun::under`].
    #[must_use]
    pub fn again(recorded: &RecordedRun, conditions: &Conditions) -> Self {
        Self { past: recorded.program.past(), ..Self::new(conditions, Places::default(), recorded.facts.device) }
    }

    /// Follows a run from `position` on, with no knowledge of its past except the blocks that it holds: `held`, in the
    /// order of their allocation. They are requested in that order, as if there had been no others.
    ///
    /// `limit` is the run's. The run has finished `steps` steps, and its history has `columns` columns.
    #[must_use]
    pub fn begin(
        conditions: &Conditions,
        places: Places,
        (device, position): (DeviceIndex, u64),
        held: impl IntoIterator<Item = BlockAtStart>,
        limit: Option<Bytes>,
        (steps, columns): (u64, u64),
    ) -> Self {
        let mut follower = Self {
            reader: Reader::new(device, places, position),
            player: Player::new(conditions, places),
            since: steps,
            past: AssumedPast::default(),
        };
        let Self { reader, player, .. } = &mut follower;
        player.begin_after(steps, columns);
        player.play(&Ask::Limit(limit));
        reader.skip_start(&mut |ask| player.play(&ask));
        for block in held {
            player.begin_anew();
            reader.hold(block.address, block.requested, block.stream, &mut |ask| player.play(&ask));
        }
        follower
    }

    /// Follows the next event.
    pub fn apply(&mut self, event: &Event) {
        let Self { reader, player, since, past } = self;
        reader.read(event, &mut |ask| match ask {
            Ask::Begin(_) => {
                *since = 0;
                player.play(&ask);
            }
            Ask::Start(start) => player.play(&Ask::Start(Arc::new(start.behind(*past)))),
            ask => player.play(&ask),
        });
    }

    /// The number of events followed, including those before the follower began.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The conditions.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        self.player.conditions()
    }

    /// The number of the run's steps that were finished when the follower began.
    #[must_use]
    pub const fn since(&self) -> u64 {
        self.since
    }

    /// The number of the run's steps that have ended.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.player.finished()
    }

    /// The origin of the blocks that existed when the follower began; [`StartState::Anew`] is an estimate.
    #[must_use]
    pub const fn starting(&self) -> StartState {
        self.player.starting()
    }

    /// The current memory. Blocks have the names and categories that they have in `run`, the run's own segments at the
    /// same event. Visits every block.
    #[must_use]
    pub fn occupancy(&self, run: &[SegmentView]) -> Occupancy {
        let mut known: HashMap<Address, BlockView> = HashMap::new();
        for segment in run {
            for block in segment.blocks.iter() {
                let number = self.reader.block_at(segment.address.offset(block.offset));
                if let Some(place) = number.and_then(|number| self.player.place_of(number)) {
                    known.insert(place, *block);
                }
            }
        }
        let view = |start: Address, block: &BlockSnapshot| {
            let here = BlockView {
                offset: block.address.distance(start),
                size: block.size,
                requested: block.requested,
                pending: block.state == BlockState::ActivePendingFree,
                // The category of a block that waits for another stream is no longer known.
                category: Category::Other,
                name: NameId::NONE,
                op: NameId::NONE,
                born: 0,
            };
            known.get(&block.address).map_or(here, |run| BlockView {
                pending: here.pending || run.pending,
                category: run.category,
                name: run.name,
                op: run.op,
                born: run.born,
                ..here
            })
        };
        let segments = self.player.segments().map(|(segment, page)| {
            let held = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
            SegmentView {
                address: segment.address,
                size: segment.size,
                pool: segment.pool,
                stream: segment.stream,
                expandable: segment.expandable,
                page,
                blocks: Arc::new(held.map(|block| view(segment.address, block)).collect()),
            }
        });
        Occupancy::of(segments.collect())
    }

    /// The current figures. Visits every free block.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.player.figures()
    }

    /// The reserved peak of every step, and the stranded bytes at its end, in the columns of the run's own history.
    /// Columns before the follower began are empty.
    #[must_use]
    pub const fn history(&self) -> &History {
        self.player.history()
    }
}
