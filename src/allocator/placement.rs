//! Where the H200's driver puts the segments that cudaMalloc returns, as observed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::units::MIB;

/// Regions are multiples of this size, and aligned to it.
const REGION: u64 = 32 * MIB;
/// How much a context occupies below its older region: down to the younger region and 384 MiB further.
const CONTEXT_BELOW: u64 = 3 * REGION + 384 * MIB;

/// How much of [`CONTEXT_BELOW`] is released when the first kernels are loaded, less what libraries take of it again.
const GIVEN_UP: u64 = 396 * MIB;
/// Allocations of at least this size go back to the system when the host's allocator frees them.
const LEAST_MAPPED: u64 = 128 * 1024;
/// Memory that the driver takes for the first kernels.
const KERNELS: u64 = 26 * MIB;
/// Memory that the driver takes for more kernels, in this order.
const MORE_KERNELS: [u64; 2] = [4 * MIB, 8 * MIB];
/// Host memory that was released but never becomes a region, because the host takes some of it back. Measured with
/// GPT-2 and BERT-large: between 99 and 102 MiB.
const HOST_KEPT: u64 = 102 * MIB;

/// The same where a whole process of PyTorch is followed, with the context of [`Placement::occupy_process`]. 60 MiB
/// reproduce where the segments of GPT-2 lie, and those of BERT-large in four of five recordings; the fifth needs 50
/// MiB. Where the host's memory ends differs from run to run.
const HOST_KEPT_BY_PROCESS: u64 = 60 * MIB;
/// The size of a region of its own that a process's context occupies, all but 2 MiB, until kernels are loaded.
const LENT: u64 = 414 * MIB;

/// A library that takes device memory when a process first uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLibrary {
    /// cuBLAS.
    Products,
    /// cuDNN.
    Convolutions,
}

impl DeviceLibrary {
    /// The sizes that the library takes, in order, as far as they show in where segments lie.
    const fn pieces(self) -> &'static [u64] {
        match self {
            Self::Products => &[64 * MIB],
            Self::Convolutions => &[10 * MIB, 2 * MIB],
        }
    }
}

/// Hands out intervals of an address space in the driver's order. Pure arithmetic: there is no memory behind it.
///
/// The space is divided from the top into regions, each a multiple of 32 MiB. A new region lies at the upper end of the
/// highest gap that is larger than it; a gap of exactly its size is skipped. A new segment goes into the youngest
/// region with room, at the low end of the smallest hole that fits. The hole that a released segment leaves is filled
/// the same way, and a region that becomes empty is released.
#[derive(Clone, Debug)]
pub struct Placement {
    space: Range<u64>,
    /// Regions by start. They never overlap.
    regions: BTreeMap<u64, Region>,
    /// Birth and start of each region that has a hole, by the size of its largest hole.
    roomy: BySize<(u64, u64)>,
    /// The parts of the space outside all regions: end by start, and start by length.
    gaps: BTreeMap<u64, u64>,
    gap_sizes: BySize<u64>,
    born: u64,
    /// Bytes that the host has released above the space.
    host_released: u64,
    /// How many of these bytes never become a region.
    host_kept: u64,
    /// The part of the context that is released when the first kernels are loaded.
    lent: Range<u64>,
    begun: Vec<DeviceLibrary>,
}

#[derive(Clone, Debug, Default)]
struct Region {
    end: u64,
    /// Higher means younger.
    birth: u64,
    /// Free intervals by start. They never touch each other.
    holes: BTreeMap<u64, u64>,
    /// The same intervals as (length, start).
    sizes: BTreeSet<(u64, u64)>,
}

/// Items by length. A search finds the highest item among those that are long enough. As lengths are multiples of MiB
/// and share one space, there are few different lengths.
#[derive(Clone, Debug)]
struct BySize<T>(BTreeMap<u64, BTreeSet<T>>);

impl<T: Ord + Copy> BySize<T> {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn insert(&mut self, size: u64, of: T) {
        self.0.entry(size).or_default().insert(of);
    }

    fn remove(&mut self, size: u64, of: T) {
        if let Some(same) = self.0.get_mut(&size) {
            same.remove(&of);
            if same.is_empty() {
                self.0.remove(&size);
            }
        }
    }

    /// The highest item of at least `size`.
    fn highest(&self, size: u64) -> Option<T> {
        self.0.range(size..).filter_map(|(_, same)| same.last().copied()).max()
    }
}

impl Placement {
    /// The end of the host's memory, where a model's host copy lay, above everything else. Host and device share one address space.
    pub(super) const HOST_TOP: u64 = 0x7ff0_0000_0000;

    /// An empty address space. `space` should begin and end at multiples of 32 MiB; otherwise it is cut down to them.
    #[must_use]
    pub fn new(space: Range<u64>) -> Self {
        let start = space.start.next_multiple_of(REGION);
        let mut placement = Self {
            space: start..(space.end / REGION * REGION).max(start),
            regions: BTreeMap::new(),
            roomy: BySize::new(),
            gaps: BTreeMap::new(),
            gap_sizes: BySize::new(),
            born: 0,
            host_released: 0,
            host_kept: HOST_KEPT,
            lent: 0..0,
            begun: Vec::new(),
        };
        placement.insert_gap(start, placement.space.end);
        placement
    }

    /// Occupies the top of the space as a bare CUDA context does. Two holes remain and are filled before any new region
    /// is taken: 2 MiB in a younger region, and 24 MiB in an older region 96 MiB above it. New regions begin below the
    /// context. The context takes 512 MiB of the space; a smaller space stays as it is.
    pub fn occupy_context(&mut self) {
        let Some(older) = self.space.end.checked_sub(REGION) else { return };
        let Some(bottom) = older.checked_sub(CONTEXT_BELOW).filter(|&bottom| bottom >= self.space.start) else {
            return;
        };
        let younger = older - 3 * REGION;
        self.occupy(older..older + REGION, older + 8 * MIB..older + REGION);
        self.occupy(bottom..older, younger + 30 * MIB..younger + REGION);
        self.lent = bottom..bottom + GIVEN_UP;
    }

    /// Like [`Placement::occupy_context`], for a process that is followed as a whole, with its kernels and libraries.
    /// The hole of 2 MiB lies in a region that is released when the first kernels are loaded and nothing else lies in
    /// it.
    pub fn occupy_process(&mut self) {
        let Some(older) = self.space.end.checked_sub(REGION) else { return };
        let end = older - (2 * REGION).min(older);
        let Some(start) = end.checked_sub(LENT.next_multiple_of(REGION)).filter(|&start| start >= self.space.start)
        else {
            return;
        };
        self.occupy(older..older + REGION, older + 8 * MIB..older + REGION);
        self.occupy(end..older, older..older);
        self.occupy(start..end, start + LENT..end);
        self.lent = start..start + LENT;
        self.host_kept = HOST_KEPT_BY_PROCESS;
    }

    /// Notes that the host released `bytes` in one mapping, because a parameter has moved to the device. Parameters lay
    /// side by side in host memory; the space they leave is used before any space below.
    pub fn release_host(&mut self, bytes: u64) {
        if bytes >= LEAST_MAPPED {
            self.host_released += bytes;
        }
    }

    /// Loads the first kernels: the driver takes memory for them and releases most of what the context held below its
    /// younger region. Has an effect once per context.
    pub fn load_kernels(&mut self) {
        let lent = std::mem::take(&mut self.lent);
        if !lent.is_empty() {
            let _for_good = self.place(KERNELS);
            self.release(lent.start, lent.end - lent.start);
        }
    }

    /// Loads more kernels, which take memory too.
    pub fn load_more_kernels(&mut self) {
        for piece in MORE_KERNELS {
            let _for_good = self.place(piece);
        }
    }

    /// Begins the use of a library. The library takes memory, and its mappings on the host fill the gaps above the
    /// lowest region. Has an effect once per library.
    pub fn begin(&mut self, library: DeviceLibrary) {
        if self.begun.contains(&library) {
            return;
        }
        self.begun.push(library);
        for piece in library.pieces() {
            let _for_good = self.place(*piece);
        }
        self.fill_gaps();
    }

    fn fill_gaps(&mut self) {
        let Some((&lowest, _)) = self.regions.first_key_value() else { return };
        let gaps: Vec<u64> = self.gaps.range(lowest..).map(|(start, _)| *start).collect();
        for gap in gaps {
            self.remove_gap(gap);
        }
        let mut top = Self::HOST_TOP;
        let mut of_host = Vec::new();
        for (&start, region) in self.regions.range(self.space.end..).rev() {
            of_host.push(region.end..top);
            top = start;
        }
        of_host.push(self.host_bottom()..top);
        for gap in of_host.into_iter().filter(|gap| !gap.is_empty()) {
            self.occupy(gap.clone(), gap.end..gap.end);
        }
    }

    /// The lowest address at which the host's released memory may become a region.
    const fn host_bottom(&self) -> u64 {
        Self::HOST_TOP - self.host_released.saturating_sub(self.host_kept)
    }

    /// Like [`Placement::highest_gap`], for the memory that the host released.
    fn gap_of_host(&self, size: u64) -> Option<u64> {
        let bottom = self.host_bottom();
        let mut top = Self::HOST_TOP;
        for (&start, region) in self.regions.range(self.space.end..).rev() {
            if top.saturating_sub(region.end) > size {
                return Some(top - size);
            }
            top = top.min(start);
        }
        (top.saturating_sub(bottom) > size).then(|| top - size)
    }

    /// Occupies an aligned region for good, except for one hole that may be handed out.
    fn occupy(&mut self, region: Range<u64>, hole: Range<u64>) {
        self.add_region(region, hole);
    }

    /// Places a segment of `size` bytes and returns its address; `None` if the address space is used up.
    pub fn place(&mut self, size: u64) -> Option<u64> {
        if let Some((_, start)) = self.roomy.highest(size) {
            let hole = self.regions.get(&start)?.best_hole(size)?;
            self.change(start, |region| region.take(hole, size));
            return Some(hole);
        }
        let room = size.checked_next_multiple_of(REGION)?;
        let start = self.gap_of_host(room).or_else(|| self.highest_gap(room))?;
        let end = start + room;
        self.add_region(start..end, start..end);
        self.change(start, |region| region.take(start, size));
        Some(start)
    }

    /// Releases `[address, address + size)`, which [`Placement::place`] returned.
    pub fn release(&mut self, address: u64, size: u64) {
        let Some((&start, _)) = self.regions.range(..=address).next_back() else { return };
        self.change(start, |region| region.give_back(address, size));
        if self.regions.get(&start).is_some_and(|region| region.holes.get(&start) == Some(&region.end)) {
            self.remove_region(start);
        }
    }

    fn add_region(&mut self, region: Range<u64>, hole: Range<u64>) {
        self.born += 1;
        let added = Region { end: region.end, birth: self.born, ..Region::default() };
        self.regions.insert(region.start, added);
        if !hole.is_empty() {
            self.change(region.start, |added| added.insert(hole.start, hole.end));
        }
        if region.start < self.space.end {
            self.cut_gap(region.start, region.end);
        }
    }

    fn remove_region(&mut self, start: u64) {
        let Some(region) = self.regions.remove(&start) else { return };
        if let Some(largest) = region.largest_hole() {
            self.roomy.remove(largest, (region.birth, start));
        }
        if start < self.space.end {
            self.join_gap(start, region.end);
        }
    }

    /// Changes the holes of a region.
    fn change(&mut self, start: u64, change: impl FnOnce(&mut Region)) {
        let Some(region) = self.regions.get_mut(&start) else { return };
        let of = (region.birth, start);
        let before = region.largest_hole();
        change(region);
        let after = region.largest_hole();
        if before != after {
            before.into_iter().for_each(|size| self.roomy.remove(size, of));
            after.into_iter().for_each(|size| self.roomy.insert(size, of));
        }
    }

    /// The start of a new region of `size` bytes. A region never fills a gap completely, not even the last gap.
    fn highest_gap(&self, size: u64) -> Option<u64> {
        let start = self.gap_sizes.highest(size.checked_add(1)?)?;
        self.gaps.get(&start).map(|end| end - size)
    }

    fn insert_gap(&mut self, start: u64, end: u64) {
        if start < end {
            self.gaps.insert(start, end);
            self.gap_sizes.insert(end - start, start);
        }
    }

    fn remove_gap(&mut self, start: u64) -> Option<u64> {
        let end = self.gaps.remove(&start)?;
        self.gap_sizes.remove(end - start, start);
        Some(end)
    }

    /// Removes a new region from the gap that it lies in.
    fn cut_gap(&mut self, start: u64, end: u64) {
        let Some((&gap, _)) = self.gaps.range(..=start).next_back() else { return };
        let Some(gap_end) = self.remove_gap(gap) else { return };
        self.insert_gap(gap, start);
        self.insert_gap(end, gap_end);
    }

    /// Adds the space of a released region to the gaps, merged with the gaps that it touches.
    fn join_gap(&mut self, start: u64, end: u64) {
        let end = self.remove_gap(end).unwrap_or(end);
        let below = self.gaps.range(..start).next_back().filter(|(_, below)| **below == start).map(|(below, _)| *below);
        if let Some(below) = below {
            self.remove_gap(below);
        }
        self.insert_gap(below.unwrap_or(start), end);
    }
}

impl Region {
    /// The smallest hole that has room; the lowest of several equal ones.
    fn best_hole(&self, size: u64) -> Option<u64> {
        self.sizes.range((size, 0)..).next().map(|(_, start)| *start)
    }

    fn largest_hole(&self) -> Option<u64> {
        self.sizes.last().map(|(size, _)| *size)
    }

    fn take(&mut self, hole: u64, size: u64) {
        if let Some(end) = self.remove(hole)
            && hole + size < end
        {
            self.insert(hole + size, end);
        }
    }

    fn give_back(&mut self, address: u64, size: u64) {
        let (mut start, mut end) = (address, address + size);
        if let Some(above) = self.remove(end) {
            end = above;
        }
        if let Some((&below, &below_end)) = self.holes.range(..start).next_back()
            && below_end == start
        {
            self.remove(below);
            start = below;
        }
        self.insert(start, end);
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.holes.insert(start, end);
        self.sizes.insert((end - start, start));
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let end = self.holes.remove(&start)?;
        self.sizes.remove(&(end - start, start));
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(n: u64) -> u64 {
        n * MIB
    }

    #[test]
    fn regions_come_from_the_top_and_fill_from_their_low_end() {
        let mut placement = Placement::new(0..mib(1024));
        assert_eq!(placement.place(mib(20)), Some(mib(992)));
        assert_eq!(placement.place(mib(40)), Some(mib(928)), "a region of 64 MiB");
        assert_eq!(placement.place(mib(2)), Some(mib(968)), "the youngest region with room");
        assert_eq!(placement.place(mib(24)), Some(mib(896)), "neither 22 nor 12 MiB serve it");
        assert_eq!(placement.place(mib(12)), Some(mib(970)), "youngest first: 8 MiB are left in the third region");
        assert_eq!(placement.place(mib(12)), Some(mib(1012)));
    }

    #[test]
    fn released_room_is_used_again_and_empty_regions_go_back() {
        let mut placement = Placement::new(0..mib(256));
        let [a, b, c] = [(); 3].map(|()| placement.place(mib(10)).unwrap());
        assert_eq!([a, b, c], [mib(224), mib(234), mib(244)]);
        placement.release(b, mib(10));
        assert_eq!(placement.place(mib(12)), Some(mib(192)), "the hole is too small");
        assert_eq!(placement.place(mib(4)), Some(mib(204)), "the younger region before the hole");
        placement.release(a, mib(10));
        placement.release(c, mib(10));
        placement.release(mib(192), mib(12));
        placement.release(mib(204), mib(4));
        assert_eq!(placement.place(mib(32)), Some(mib(224)), "both regions went back");
    }

    #[test]
    fn the_smallest_hole_that_fits_is_filled_and_a_gap_never_wholly() {
        let mut placement = Placement::new(0..mib(1024));
        let [a, _, c, _, _, d] = [8, 2, 6, 2, 14, 32].map(|size| placement.place(mib(size)).unwrap());
        placement.release(a, mib(8));
        placement.release(c, mib(6));
        assert_eq!(placement.place(mib(4)), Some(c), "6 MiB are left there, 8 MiB in the lower hole");
        assert_eq!(placement.place(mib(96)), Some(d - mib(96)));
        placement.release(d, mib(32));
        assert_eq!(placement.place(mib(32)), Some(d - mib(128)), "not into the gap of 32 MiB");
        assert_eq!(placement.place(mib(20)), Some(d - mib(128) - mib(32)), "nor there");
    }

    #[test]
    fn the_address_space_ends() {
        let mut placement = Placement::new(mib(1)..mib(100));
        assert_eq!(placement.place(mib(33)), None, "two regions are left of it, and one stays free");
        assert_eq!(placement.place(mib(20)), Some(mib(64)));
        assert_eq!(placement.place(mib(20)), None);
        assert_eq!(placement.place(mib(12)), Some(mib(84)));
        assert_eq!(placement.place(u64::MAX), None);
    }

    #[test]
    fn a_context_leaves_two_holes() {
        let mut placement = Placement::new(0..mib(1024));
        placement.occupy_context();
        let older = mib(992);
        assert_eq!(placement.place(mib(2)), Some(older - mib(66)));
        assert_eq!(placement.place(mib(20)), Some(older + mib(8)));
        assert_eq!(placement.place(mib(20)), Some(older - mib(512)), "below everything the context holds");
        assert_eq!(placement.place(mib(4)), Some(older - mib(492)));
        assert_eq!(placement.place(mib(10)), Some(older - mib(544)));
        assert_eq!(placement.place(mib(4)), Some(older - mib(534)));
        for address in [older - mib(66), older + mib(8)] {
            placement.release(address, if address < older { mib(2) } else { mib(20) });
        }
        assert_eq!(placement.place(mib(23)), Some(older + mib(8)), "the context's regions never go back");
    }

    #[test]
    fn the_first_kernels_open_a_hole_below_the_context() {
        // The first segments of a recorded DCGAN on an H200, in MiB from the older region of the context.
        let space = mib(1 << 20);
        let mut placement = Placement::new(0..space);
        placement.occupy_context();
        let at = |placement: &mut Placement, size| placement.place(mib(size)).map(|at| (space - at) / MIB);
        assert_eq!([20, 2, 20].map(|size| at(&mut placement, size)), [Some(24), Some(98), Some(544)]);
        placement.load_kernels();
        assert_eq!([16, 16, 2, 2].map(|size| at(&mut placement, size)), [Some(512), Some(496), Some(550), Some(548)]);
        placement.load_kernels();
        assert_eq!(at(&mut placement, 16), Some(480), "kernels are loaded once");
    }

    #[test]
    fn what_the_context_gives_up_becomes_a_gap_where_nothing_else_lies_there() {
        // The first segments of a recorded BERT-large around its first kernels and the begin of cuBLAS, in MiB as above.
        let space = mib(1 << 20);
        let mut placement = Placement::new(0..space);
        placement.occupy_process();
        let at = |placement: &mut Placement, size| placement.place(mib(size)).map(|at| (space - at) / MIB);
        assert_eq!([120, 240, 240].map(|size| at(&mut placement, size)), [Some(640), Some(896), Some(1152)]);
        placement.load_kernels();
        assert_eq!(at(&mut placement, 240), Some(352), "at the upper end of 416 MiB");
        placement.load_more_kernels();
        placement.begin(DeviceLibrary::Products);
        assert_eq!(at(&mut placement, 2), Some(100), "behind 12 MiB of kernels");
        placement.begin(DeviceLibrary::Products);
        assert_eq!(at(&mut placement, 64), Some(1248), "below all: the gaps are filled");
        let big = space - mib(896);
        placement.release(big, mib(240));
        assert_eq!(at(&mut placement, 100), Some(768), "a region that goes back leaves a gap again");
    }

    #[test]
    fn what_the_host_releases_is_used_first_but_for_a_rest() {
        let mut placement = Placement::new(0..mib(1024));
        placement.release_host(mib(134));
        placement.release_host(1000);
        let below = placement.place(mib(20)).unwrap();
        assert!(below < mib(1024), "a gap of 32 MiB is passed over");
        placement.release_host(mib(3));
        assert_eq!(placement.place(mib(20)), Some(Placement::HOST_TOP - mib(32)));
        assert_eq!(placement.place(mib(20)), Some(below - mib(32)));
    }
}
