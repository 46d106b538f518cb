//! How a ghost begins to follow a run, and how it reaches a cursor that looks back.

use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Begins, Lab};
use vramlab_recording::{Excerpt, Timeline};
use vramlab_whatif::{BlockAtStart, Conditions, Follower, Places, RecordedWriter};

/// How many events are followed at once, in the keeper's thread: some milliseconds.
pub(super) const NEAR: u64 = 1 << 14;

/// How the memory from before the first event is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GhostStart {
    /// There was none, or nothing more than the run's own memory is known.
    #[default]
    Plain,
    /// A recorded history of PyTorch began late. What is known of it so far shows what existed before.
    SoFar,
    /// The same, and the history is complete.
    Whole,
}

impl GhostStart {
    /// The start for a timeline that may grow.
    pub fn of(timeline: &mut Timeline, device: DeviceIndex, grows: bool) -> Self {
        let from_the_first = timeline.first() == 0;
        let begins = timeline.now().lab(device).and_then(|lab| lab.about().history);
        match begins.is_some_and(|begins| begins != Begins::First) && from_the_first {
            false => Self::Plain,
            true if grows => Self::SoFar,
            true => Self::Whole,
        }
    }

    /// True if a ghost that began in the `other` way should start again.
    pub fn is_better_than(self, other: Self) -> bool {
        self > other
    }

    /// How many times all events are read.
    pub fn passes(self) -> u64 {
        if self == Self::Plain { 1 } else { 2 }
    }

    /// A ghost that begins before the first event, if nothing needs to be read for that. The first event tells whose
    /// addresses the run has.
    pub fn at_once(self, conditions: &Conditions, first: u64, device: DeviceIndex) -> Option<Follower> {
        (self == Self::Plain && first == 0).then(|| Follower::new(conditions, Places::default(), device))
    }

    /// A ghost that begins before the first event of `excerpt`. `count` is called for every event, and returns whether to go on.
    pub fn read(
        self,
        conditions: &Conditions,
        excerpt: &Excerpt,
        device: DeviceIndex,
        count: &mut dyn FnMut() -> bool,
    ) -> Option<Follower> {
        if excerpt.range().start > 0 {
            return Some(beside(conditions, excerpt, device));
        }
        let mut goes_on = true;
        let mut writer = RecordedWriter::new(device, Places::default());
        excerpt.each(|_, event| {
            writer.push(event);
            goes_on = count();
            goes_on
        });
        if !goes_on {
            return None;
        }
        // Uses the run's own settings if they can be determined, or else only its events.
        let again = writer.finish(conditions.device, None).ok().and_then(|recorded| {
            let under = recorded.under(conditions.text()).ok()?;
            Some(Follower::again(&recorded, &under))
        });
        Some(again.unwrap_or_else(|| Follower::new(conditions, Places::default(), device)))
    }
}

/// A ghost that begins with what the run holds before the first event of `excerpt`.
fn beside(conditions: &Conditions, excerpt: &Excerpt, device: DeviceIndex) -> Follower {
    let position = excerpt.range().start;
    let nothing = Lab::new();
    let lab = excerpt.before().lab(device).unwrap_or(&nothing);
    let memory = lab.memory();
    // A recorded history of PyTorch shows where its driver placed segments.
    let places = if lab.about().history.is_some() { Places::Recorded } else { Places::Simulated };
    let mut held: Vec<(u64, BlockAtStart)> = Vec::new();
    for segment in memory.segments() {
        let (address, stream) = (segment.address(), segment.stream());
        let blocks = segment.blocks().filter(|block| !block.pending);
        held.extend(blocks.map(|block| {
            (block.born, BlockAtStart { address: address.offset(block.offset), requested: block.requested, stream })
        }));
    }
    held.sort_by_key(|(born, _)| *born);
    let held = held.into_iter().map(|(_, held)| held);
    let done = (lab.finished(), lab.history().columns());
    Follower::begin(conditions, places, (device, position), held, memory.limit(), done)
}

/// A ghost at the cursor that looks back, and another one some way before it, so that steps back are short.
#[derive(Debug)]
pub(super) struct LookedBack {
    before: Follower,
    here: Follower,
}

impl LookedBack {
    /// A ghost that has followed an excerpt from `origin` on, as far as `count` allowed.
    pub fn from(origin: Follower, excerpt: &Excerpt, count: &mut dyn FnMut() -> bool) -> Self {
        let (mut before, mut here) = (origin.clone(), origin);
        let near = excerpt.range().end.saturating_sub(NEAR);
        excerpt.each(|_, event| {
            if here.position() == near {
                before = here.clone();
            }
            here.apply(event);
            count()
        });
        Self { before, here }
    }

    /// The ghost.
    pub const fn follower(&self) -> &Follower {
        &self.here
    }

    /// Moves to `position`. Returns false if that is far.
    pub fn go(&mut self, timeline: &Timeline, position: u64) -> bool {
        let is_near = |from: &Follower, far: u64| (from.position()..=from.position() + far).contains(&position);
        if !is_near(&self.here, NEAR) {
            if !is_near(&self.before, 2 * NEAR) {
                return false;
            }
            self.here = self.before.clone();
        }
        let here = &mut self.here;
        if here.position() < timeline.first() {
            return here.position() == position;
        }
        timeline.events(here.position()..position, |_, event| here.apply(event));
        if here.position() > self.before.position() + 2 * NEAR {
            self.before = here.clone();
        }
        here.position() == position
    }
}
