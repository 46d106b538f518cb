//! Where the H200's driver puts the segments that cudaMalloc returns, as observed.

use std::collections::BTreeMap;
use std::ops::Range;

/// Regions are whole multiples of this, and so aligned.
const REGION: u64 = 32 << 20;

/// Hands out intervals of an address space in the driver's order; pure arithmetic, no memory behind it.
///
/// The space is taken from the top in regions of whole multiples of 32 MiB, each in the highest gap that fits. A new
/// segment goes into the youngest region with room, at the lowest address there; a hole that a released segment leaves
/// is filled the same way, and a region that becomes empty goes back.
#[derive(Clone, Debug)]
pub struct Placement {
    space: Range<u64>,
    /// Regions by start. Never overlapping.
    regions: BTreeMap<u64, Region>,
    born: u64,
}

#[derive(Clone, Debug)]
struct Region {
    end: u64,
    /// Higher is younger.
    birth: u64,
    /// Free intervals by start: never touching each other.
    holes: BTreeMap<u64, u64>,
}

impl Placement {
    /// An empty address space; `space` should begin and end at multiples of 32 MiB (it is cut down to them).
    #[must_use]
    pub fn new(space: Range<u64>) -> Self {
        let start = space.start.next_multiple_of(REGION);
        Self { space: start..(space.end / REGION * REGION).max(start), regions: BTreeMap::new(), born: 0 }
    }

    /// Takes an aligned region for good, but for the holes inside it, which are handed out.
    pub fn occupy(&mut self, region: Range<u64>, holes: &[Range<u64>]) {
        let holes = holes.iter().map(|hole| (hole.start, hole.end)).collect();
        self.born += 1;
        self.regions.insert(region.start, Region { end: region.end, birth: self.born, holes });
    }

    /// Where the next segment of `size` bytes goes; `None` if the address space is used up.
    pub fn place(&mut self, size: u64) -> Option<u64> {
        let youngest = self
            .regions
            .iter()
            .filter_map(|(&start, region)| Some((region.birth, start, region.first_hole(size)?)))
            .max_by_key(|&(birth, ..)| birth);
        if let Some((_, start, hole)) = youngest {
            self.regions.get_mut(&start)?.take(hole, size);
            return Some(hole);
        }
        let start = self.highest_gap(size.checked_next_multiple_of(REGION)?)?;
        let end = start + size.next_multiple_of(REGION);
        self.born += 1;
        let mut region = Region { end, birth: self.born, holes: BTreeMap::from([(start, end)]) };
        region.take(start, size);
        self.regions.insert(start, region);
        Some(start)
    }

    /// Gives `[address, address + size)` back, which [`Placement::place`] returned.
    pub fn release(&mut self, address: u64, size: u64) {
        let Some((&start, region)) = self.regions.range_mut(..=address).next_back() else { return };
        region.give_back(address, size);
        if region.holes.get(&start) == Some(&region.end) {
            self.regions.remove(&start);
        }
    }

    fn highest_gap(&self, size: u64) -> Option<u64> {
        let mut top = self.space.end;
        for (&start, region) in self.regions.iter().rev() {
            if top.saturating_sub(region.end) >= size {
                return Some(top - size);
            }
            top = top.min(start);
        }
        (top.saturating_sub(self.space.start) >= size).then(|| top - size)
    }
}

impl Region {
    fn first_hole(&self, size: u64) -> Option<u64> {
        self.holes.iter().find(|&(&start, &end)| end - start >= size).map(|(&start, _)| start)
    }

    fn take(&mut self, hole: u64, size: u64) {
        if let Some(end) = self.holes.remove(&hole)
            && hole + size < end
        {
            self.holes.insert(hole + size, end);
        }
    }

    fn give_back(&mut self, address: u64, size: u64) {
        let (mut start, mut end) = (address, address + size);
        if let Some(above) = self.holes.remove(&end) {
            end = above;
        }
        if let Some((&below, &below_end)) = self.holes.range(..start).next_back()
            && below_end == start
        {
            start = below;
        }
        self.holes.insert(start, end);
    }
}

impl Placement {
    /// Occupies the top of the space as a bare CUDA context does: two holes remain, 24 MiB in an older region and
    /// 2 MiB in a younger one 96 MiB below it. They are filled before any new region is taken.
    pub fn occupy_context(&mut self) {
        const MIB: u64 = 1 << 20;
        let Some(older) = self.space.end.checked_sub(REGION).filter(|older| older - self.space.start >= 3 * REGION)
        else {
            return;
        };
        let younger = older - 3 * REGION;
        self.occupy(older..older + REGION, &[Range { start: older + 8 * MIB, end: older + REGION }]);
        self.occupy(younger..older, &[Range { start: younger + 30 * MIB, end: younger + REGION }]);
    }
}
