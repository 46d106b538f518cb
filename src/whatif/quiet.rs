//! Steps for which the large pool asked the driver for nothing: what they came to holds until that pool changes.
//!
//! Small and large blocks lie in segments of their own, and no request looks into the other pool but to give memory back for one that
//! fails. A step that gives all its large blocks back, and that had them without a call of the driver, leaves the large pool as it
//! found it: free neighbours are one block again. Its like finds the same there, and its large blocks get the sizes that they had.
//! Small blocks have the sizes that they are rounded to, wherever they lie. So the bytes at its peak are known, and only its small
//! requests are played again: what a step leaves lies elsewhere each time, among small blocks.

use std::collections::HashMap;
use std::marker::PhantomData;

use super::block_number::BlockNumber;
use super::player::{DriverCalls, Player};
use super::step::Step;
use vramlab_allocator::units::{Bytes, MIB};

/// What a small request takes from the driver at most: two pages where it begins in one that is mapped.
const SMALL_GROWTH: u64 = 4 * MIB;

/// Whether the large pool serves it.
pub(super) const fn is_large(size: u64) -> bool {
    // Sizes up to a power of two are rounded to no more.
    size > MIB
}

/// What is known of such steps, which have to be there as long.
#[derive(Debug, Default)]
pub(super) struct QuietSteps<'s> {
    /// By where a step is kept.
    known: HashMap<usize, Quiet>,
    /// The driver's calls at the end of the last step.
    calls: DriverCalls,
    /// Sizes of what the last step left; `None` where one of them is large.
    left: Option<Box<[Bytes]>>,
    steps: PhantomData<&'s Step>,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    /// Small blocks that it takes.
    small: u64,
    peaks: Peaks,
}

/// The most that was allocated without what the step before had left: until it gave the first of those back, until the next, and so on.
#[derive(Clone, Debug)]
struct Peaks(Vec<(Bytes, Option<BlockNumber>)>);

impl Peaks {
    /// The most that is allocated where the step before left blocks of these sizes.
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

/// Watches a step that is played whole.
pub(super) struct Watch {
    calls: DriverCalls,
    /// The large pool asked the driver for nothing so far.
    quiet: bool,
    small: u64,
    peaks: Peaks,
    peak: Bytes,
    /// Bytes of what the step before left that are still there.
    there: Bytes,
    left: Box<[Bytes]>,
}

impl Watch {
    /// It takes a block.
    pub fn take(&mut self, size: u64, player: &Player) {
        let calls = player.driver_calls();
        self.small += u64::from(!is_large(size));
        if calls != self.calls {
            self.quiet &= !is_large(size) && calls.gave_back_nothing_since(self.calls);
            self.calls = calls;
        }
        self.peak = self.peak.max(player.allocated().saturating_sub(self.there));
    }

    /// It gives back what the step before left under this number.
    pub fn give_left(&mut self, name: BlockNumber) {
        self.peaks.0.push((self.peak, Some(name)));
        self.peak = Bytes::ZERO;
        self.there = self.there.saturating_sub(self.left.get(name as usize).copied().unwrap_or_default());
    }
}

impl<'s> QuietSteps<'s> {
    /// What the step comes to, where that is known and the device has more memory than its small requests can need.
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

    /// A step went through that was watched.
    pub fn keep(&mut self, step: &'s Step, watch: Watch, player: &Player) {
        if watch.quiet && left(step, player).is_some() {
            let mut peaks = watch.peaks;
            peaks.0.push((watch.peak, None));
            self.known.insert(key(step), Quiet { small: watch.small, peaks });
        } else {
            self.known.clear();
        }
    }

    /// A step is over, watched or not. The most that was allocated in it where it is one of those known.
    pub fn end(&mut self, step: &'s Step, known: Option<&Quiet>, player: &Player) -> Option<Bytes> {
        let most = known.zip(self.left.as_deref()).map(|(known, left)| known.peaks.most(left));
        self.calls = player.driver_calls();
        self.left = left(step, player);
        most
    }
}

/// Where the step is kept: no other is there as long as it is.
fn key(step: &Step) -> usize {
    std::ptr::from_ref(step).addr()
}

/// Sizes of what a step leaves; `None` where one of them is large.
fn left(step: &Step, player: &Player) -> Option<Box<[Bytes]>> {
    let sizes = step.left_sizes();
    sizes.map(|size| (!is_large(size)).then(|| player.rounded(Bytes(size)))).collect()
}
