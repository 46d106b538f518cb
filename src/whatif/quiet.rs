//! Steps for which the large pool takes nothing from the driver. Their figures hold until the large pool changes.
//!
//! Small and large blocks lie in different segments, and a request looks into the other pool only to release memory
//! before it fails. If a step frees all its large blocks and needed no driver call for them, it leaves the large pool
//! as it found it, because free neighbours merge again. A similar step finds the same state, and its large blocks get
//! the same sizes. Small blocks have their rounded sizes, wherever they lie. So the bytes at the step's peak are known,
//! and only its small requests are played again, because what a step leaves behind lies elsewhere among small blocks
//! each time.

use std::collections::HashMap;
use std::marker::PhantomData;

use super::block_number::BlockNumber;
use super::player::{DriverCalls, Player};
use super::step::Step;
use vramlab_allocator::units::{Bytes, MIB};

/// The most that a small request takes from the driver: two pages, if its block begins in a mapped page.
const SMALL_GROWTH: u64 = 4 * MIB;

/// True if the large pool serves this size.
pub(super) const fn is_large(size: u64) -> bool {
    // Sizes up to a power of two are never rounded beyond it.
    size > MIB
}

/// What is known of such steps. It borrows the steps.
#[derive(Debug, Default)]
pub(super) struct QuietSteps<'s> {
    /// By the address of a step.
    known: HashMap<usize, Quiet>,
    /// The number of driver calls at the end of the last step.
    calls: DriverCalls,
    /// The sizes of the blocks that the last step left; `None` if one of them is large.
    left: Option<Box<[Bytes]>>,
    steps: PhantomData<&'s Step>,
}

/// The figures of a step.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    /// The number of small blocks that it allocates.
    small: u64,
    peaks: Peaks,
}

/// The most that was allocated besides the blocks of the step before: until the first of these was freed, until the
/// next, and so on.
#[derive(Clone, Debug)]
struct Peaks(Vec<(Bytes, Option<BlockNumber>)>);

impl Peaks {
    /// The most that is allocated if the step before left blocks of these sizes.
    fn most(&self, left: &[Bytes]) -> Bytes {
        let mut there: Bytes = left.iter().copied().sum();
        let mut most = Bytes::ZERO;
        for &(peak, given) in &self.0 {
            most = most.max(Bytes(peak.get() + there.get()));
            let size = given.and_then(|name| left.get(name as usize)).copied();
            there = there.saturating_sub(size.unwrap_or_default());
        }
        most
    }
}

/// Watches a step that is played in full.
pub(super) struct Watch {
    calls: DriverCalls,
    /// True if the large pool has not called the driver so far.
    quiet: bool,
    small: u64,
    peaks: Peaks,
    peak: Bytes,
    /// Bytes of the blocks from the step before that still exist.
    there: Bytes,
    left: Box<[Bytes]>,
}

impl Watch {
    /// Notes an allocation.
    pub fn take(&mut self, size: u64, player: &Player) {
        let calls = player.driver_calls();
        self.small += u64::from(!is_large(size));
        if calls != self.calls {
            self.quiet &= !is_large(size) && calls.gave_back_nothing_since(self.calls);
            self.calls = calls;
        }
        self.peak = self.peak.max(player.allocated().saturating_sub(self.there));
    }

    /// Notes a free of a block that the step before left under this number.
    pub fn give_left(&mut self, name: BlockNumber) {
        self.peaks.0.push((self.peak, Some(name)));
        self.peak = Bytes::ZERO;
        self.there = self.there.saturating_sub(self.left.get(name as usize).copied().unwrap_or_default());
    }
}

impl<'s> QuietSteps<'s> {
    /// The figures of a step, if they are known and the device has more memory than the step's small requests can need.
    pub fn known(&mut self, step: &'s Step, player: &Player) -> Option<Quiet> {
        if player.driver_calls() != self.calls || self.left.is_none() {
            self.known.clear();
        }
        let known = self.known.get(&key(step))?;
        (player.room().get() / SMALL_GROWTH > known.small).then(|| known.clone())
    }

    /// Begins to watch a step.
    pub fn watch(&self, player: &Player) -> Watch {
        let left = self.left.clone().unwrap_or_default();
        let there: Bytes = left.iter().copied().sum();
        Watch {
            calls: player.driver_calls(),
            quiet: player.pools_are_apart() && self.left.is_some(),
            small: 0,
            peaks: Peaks(Vec::new()),
            peak: player.allocated().saturating_sub(there),
            there,
            left,
        }
    }

    /// Keeps the figures of a watched step that went through.
    pub fn keep(&mut self, step: &'s Step, watch: Watch, player: &Player) {
        if watch.quiet && left(step, player).is_some() {
            let mut peaks = watch.peaks;
            peaks.0.push((watch.peak, None));
            self.known.insert(key(step), Quiet { small: watch.small, peaks });
        } else {
            self.known.clear();
        }
    }

    /// Notes the end of a step, watched or not. Returns the most that was allocated in it, if it was a known step.
    pub fn end(&mut self, step: &'s Step, known: Option<&Quiet>, player: &Player) -> Option<Bytes> {
        let most = known.zip(self.left.as_deref()).map(|(known, left)| known.peaks.most(left));
        self.calls = player.driver_calls();
        self.left = left(step, player);
        most
    }
}

/// The step's address, which no other step has as long as it is borrowed.
fn key(step: &Step) -> usize {
    std::ptr::from_ref(step).addr()
}

/// The sizes of the blocks that a step leaves; `None` if one of them is large.
fn left(step: &Step, player: &Player) -> Option<Box<[Bytes]>> {
    let sizes = step.left_sizes();
    sizes.map(|size| (!is_large(size)).then(|| player.rounded(Bytes(size)))).collect()
}
