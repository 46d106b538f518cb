//! The slow model: one vector of blocks in address order, which is searched from end to end for everything.

use vramlab::allocator::Settings;
use vramlab::units::{Bytes, MIB};

/// An entry of the history: action, address, size, stream.
pub type Row = (&'static str, u64, u64, u64);

/// Where segments begin; ranges lie below.
pub const SEGMENTS: u64 = 1 << 44;
/// Distance of ranges.
pub const RANGE_STRIDE: u64 = 1 << 36;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Free,
    Live,
    Pending,
    Unmapped,
}

#[derive(Clone, Debug)]
struct Block {
    address: u64,
    size: u64,
    requested: u64,
    stream: u64,
    large: bool,
    state: State,
    sides: Vec<u64>,
    /// Start of the segment or range: neighbours are adjacent in the vector and have the same home.
    home: u64,
    /// Page size; zero for cudaMalloc segments.
    page: u64,
    born: u64,
}

/// A number and its peak.
#[derive(Clone, Copy, Default)]
struct Count {
    now: i64,
    peak: i64,
    up: i64,
    down: i64,
}

const NAMES: [&str; 11] = [
    "allocation.all",
    "allocated_bytes.all",
    "active.all",
    "active_bytes.all",
    "requested_bytes.all",
    "segment.all",
    "reserved_bytes.all",
    "inactive_split.all",
    "inactive_split_bytes.all",
    "oversize_allocations",
    "oversize_segments",
];

pub struct Model {
    pub settings: Settings,
    pub limit: Option<u64>,
    pub rows: Vec<Row>,
    blocks: Vec<Block>,
    /// Side stream, event, address of the block; in the order of recording.
    queue: Vec<(u64, u64, u64)>,
    counts: [Count; 11],
    plain: [i64; 5],
    lookups: [u64; 2],
    events: u64,
    done: u64,
    total: u64,
    used: u64,
    next_segment: u64,
    next_range: u64,
}

impl Model {
    pub fn new(settings: Settings, total: u64) -> Self {
        Self {
            settings,
            limit: None,
            rows: Vec::new(),
            blocks: Vec::new(),
            queue: Vec::new(),
            counts: [Count::default(); 11],
            plain: [0; 5],
            lookups: [0; 2],
            events: 0,
            done: 0,
            total,
            used: 0,
            next_segment: SEGMENTS,
            next_range: RANGE_STRIDE,
        }
    }

    pub fn blocks(&self) -> Vec<(u64, u64, u64, &'static str)> {
        let name = |state| match state {
            State::Live => "active_allocated",
            State::Pending => "active_pending_free",
            State::Free | State::Unmapped => "inactive",
        };
        let mapped = self.blocks.iter().filter(|block| block.state != State::Unmapped);
        mapped.map(|block| (block.address, block.size, block.requested, name(block.state))).collect()
    }

    pub fn statistics(&self) -> Vec<(String, i64)> {
        let mut rows = Vec::new();
        for (name, count) in NAMES.iter().zip(self.counts) {
            let fields = [("current", count.now), ("peak", count.peak), ("allocated", count.up), ("freed", count.down)];
            rows.extend(fields.map(|(field, value)| (format!("{name}.{field}"), value)));
        }
        let names = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"];
        rows.extend(names.iter().zip(self.plain).map(|(name, value)| ((*name).to_owned(), value)));
        rows
    }

    fn count(&mut self, name: &str, change: i64) {
        let at = NAMES.iter().position(|known| known.trim_end_matches(".all") == name).expect("a known name");
        let count = &mut self.counts[at];
        count.now += change;
        count.peak = count.peak.max(count.now);
        if change > 0 { count.up += change } else { count.down -= change }
    }

    fn bytes(&mut self, name: &str, change: u64, sign: i64) {
        self.count(name, sign * i64::try_from(change).expect("sizes are small"));
    }

    // --- requests -------------------------------------------------------------------------------------------------

    fn rounded(&self, n: u64) -> u64 {
        if n < 512 {
            return 512;
        }
        let mut log = 0;
        while n >> (log + 1) > 0 {
            log += 1;
        }
        let entry = if log < 20 { 0 } else { (log - 20).min(15) };
        let divisions = self.settings.roundup_power2_divisions.entries()[entry];
        let mut step = 512;
        if divisions > 1 && n > 512 * divisions {
            step = (1 << log) / divisions;
        }
        n.div_ceil(step) * step
    }

    fn segment(&self, rounded: u64) -> u64 {
        match rounded {
            0..=MIB => 2 * MIB,
            _ if rounded < 10 * MIB => self.settings.large_segment_size.0,
            _ => rounded.div_ceil(2 * MIB) * 2 * MIB,
        }
    }

    pub fn malloc(&mut self, n: u64, stream: u64) -> Option<u64> {
        self.process(false);
        let rounded = self.rounded(n);
        let large = rounded > MIB;
        let collects = self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0;
        self.lookups[usize::from(large)] += u64::from(collects);
        let mut found = self.search(rounded, stream, large);
        if found.is_none() {
            if collects {
                self.collect();
            }
            found = self.grow(rounded, stream, large);
            if found.is_none() && self.release_oversize(rounded, stream, large) {
                found = self.grow(rounded, stream, large);
            }
            if found.is_none() {
                self.release_all();
                self.plain[0] += 1;
                found = self.grow(rounded, stream, large);
            }
        }
        let Some(address) = found else {
            self.rows.push(("oom", self.total - self.used, rounded, stream));
            self.plain[1] += 1;
            return None;
        };
        self.hand_out(address, n, rounded);
        Some(address)
    }

    fn at(&self, address: u64) -> usize {
        self.blocks.iter().position(|block| block.address == address).expect("a block starts there")
    }

    fn before(&self, at: usize) -> Option<usize> {
        let other = at.checked_sub(1)?;
        (self.blocks[other].home == self.blocks[at].home).then_some(other)
    }

    fn after(&self, at: usize) -> Option<usize> {
        (self.blocks.get(at + 1)?.home == self.blocks[at].home).then_some(at + 1)
    }

    fn split(&self, at: usize) -> bool {
        self.before(at).is_some() || self.after(at).is_some()
    }

    /// Indices of a pool's free blocks in the order (stream, size, address).
    fn free_set(&self, large: bool) -> Vec<usize> {
        let mut set: Vec<usize> = (0..self.blocks.len())
            .filter(|&at| self.blocks[at].state == State::Free && self.blocks[at].large == large)
            .collect();
        set.sort_by_key(|&at| (self.blocks[at].stream, self.blocks[at].size, self.blocks[at].address));
        set
    }

    fn search(&self, rounded: u64, stream: u64, large: bool) -> Option<u64> {
        let set = self.free_set(large);
        let fits: Vec<usize> = (set.into_iter())
            .filter(|&at| self.blocks[at].stream == stream && self.blocks[at].size >= rounded)
            .collect();
        let mut fits = fits.into_iter();
        let mut found = fits.next()?;
        if self.blocks[found].page > 0 {
            if self.settings.expandable_segments {
                let reach = |at: usize| {
                    let space = self.after(at).filter(|&next| self.blocks[next].state == State::Unmapped);
                    self.blocks[at].size + space.map_or(0, |next| self.blocks[next].size)
                };
                for other in fits {
                    if self.blocks[found].page == 0 || reach(other) >= reach(found) {
                        break;
                    }
                    found = other;
                }
            } else {
                found = fits.find(|&at| self.blocks[at].page == 0)?;
            }
        }
        let (size, most) = (self.blocks[found].size, self.settings.max_split_size.0);
        if rounded < most && size >= most {
            return None;
        }
        if rounded >= most && size >= rounded + self.settings.max_non_split_rounding.0 {
            return None;
        }
        Some(self.blocks[found].address)
    }

    /// The block at `address`, which is free or new, serves `n` bytes.
    fn hand_out(&mut self, address: u64, n: u64, rounded: u64) {
        let at = self.at(address);
        let (was_split, plain) = (self.split(at), self.blocks[at].page == 0);
        let (size, large) = (self.blocks[at].size, self.blocks[at].large);
        let rest = size - rounded;
        let cut = if !large || self.settings.expandable_segments {
            rest >= 512
        } else {
            rounded < self.settings.max_split_size.0 && rest > MIB
        };
        if cut {
            let mut remainder = self.blocks[at].clone();
            remainder.address += rounded;
            remainder.size = rest;
            remainder.born = self.lookups[usize::from(large)];
            remainder.state = State::Free;
            self.blocks.insert(at + 1, remainder);
            self.blocks[at].size = rounded;
            if plain && was_split {
                self.bytes("inactive_split_bytes", rounded, -1);
            } else if plain {
                self.count("inactive_split", 1);
                self.bytes("inactive_split_bytes", rest, 1);
            }
        } else if plain && was_split {
            self.count("inactive_split", -1);
            self.bytes("inactive_split_bytes", size, -1);
        }
        self.blocks[at].state = State::Live;
        self.blocks[at].requested = n;
        let (size, stream) = (self.blocks[at].size, self.blocks[at].stream);
        self.count("allocation", 1);
        self.bytes("allocated_bytes", size, 1);
        self.count("active", 1);
        self.bytes("active_bytes", size, 1);
        self.bytes("requested_bytes", n, 1);
        if size >= self.settings.max_split_size.0 {
            self.count("oversize_allocations", 1);
        }
        self.rows.push(("alloc", address, n, stream));
    }

    // --- frees ----------------------------------------------------------------------------------------------------

    pub fn record(&mut self, address: u64, stream: u64) {
        let at = self.at(address);
        let block = &mut self.blocks[at];
        if block.stream != stream && !block.sides.contains(&stream) {
            block.sides.push(stream);
        }
    }

    pub fn free(&mut self, address: u64) {
        let at = self.at(address);
        let block = self.blocks[at].clone();
        self.count("allocation", -1);
        self.bytes("allocated_bytes", block.size, -1);
        if block.size >= self.settings.max_split_size.0 {
            self.count("oversize_allocations", -1);
        }
        self.rows.push(("free_requested", address, block.requested, block.stream));
        self.blocks[at].state = State::Pending;
        self.blocks[at].sides.clear();
        for &side in &block.sides {
            self.events += 1;
            self.queue.push((side, self.events, address));
        }
        if block.sides.is_empty() {
            self.finish(address);
        }
    }

    pub fn complete(&mut self) {
        self.done = self.events;
    }

    fn process(&mut self, wait: bool) {
        let mut sides: Vec<u64> = self.queue.iter().map(|&(side, ..)| side).collect();
        sides.sort_unstable();
        sides.dedup();
        for side in sides {
            while let Some(at) = self.queue.iter().position(|&(other, ..)| other == side) {
                let (_, event, address) = self.queue[at];
                if wait {
                    self.done = self.done.max(event);
                }
                if event > self.done {
                    break;
                }
                self.queue.remove(at);
                if !self.queue.iter().any(|&(.., other)| other == address) {
                    self.finish(address);
                }
            }
        }
    }

    fn finish(&mut self, address: u64) {
        let at = self.at(address);
        let block = self.blocks[at].clone();
        self.rows.push(("free_completed", address, block.requested, block.stream));
        self.count("active", -1);
        self.bytes("active_bytes", block.size, -1);
        self.bytes("requested_bytes", block.requested, -1);
        self.blocks[at].state = State::Free;
        let (at, neighbours) = self.merge(at);
        if block.page == 0 {
            let (size, split) = (self.blocks[at].size, self.split(at));
            self.count("inactive_split", i64::from(split) - neighbours);
            let (gone, here) = (size - block.size, if split { size } else { 0 });
            self.count("inactive_split_bytes", i64::try_from(here).unwrap() - i64::try_from(gone).unwrap());
        }
    }

    /// Merges the block with neighbours in the same state; it keeps its own requested size.
    fn merge(&mut self, mut at: usize) -> (usize, i64) {
        let (state, mut neighbours) = (self.blocks[at].state, 0);
        if let Some(below) = self.before(at).filter(|&below| self.blocks[below].state == state) {
            let gone = self.blocks.remove(below);
            at = below;
            self.blocks[at].address = gone.address;
            self.blocks[at].size += gone.size;
            neighbours += 1;
        }
        if let Some(above) = self.after(at).filter(|&above| self.blocks[above].state == state) {
            let gone = self.blocks.remove(above);
            self.blocks[at].size += gone.size;
            neighbours += 1;
        }
        self.blocks[at].born = self.lookups[usize::from(self.blocks[at].large)];
        (at, neighbours)
    }

    // --- growth ---------------------------------------------------------------------------------------------------

    fn place(&mut self, block: Block) -> usize {
        let at = self.blocks.iter().position(|other| other.address > block.address).unwrap_or(self.blocks.len());
        self.blocks.insert(at, block);
        at
    }

    fn grow(&mut self, rounded: u64, stream: u64, large: bool) -> Option<u64> {
        let size = self.segment(rounded);
        if self.limit.is_some_and(|limit| self.reserved() + size > limit) {
            return None;
        }
        if self.settings.expandable_segments {
            return self.grow_range(rounded, stream, large);
        }
        if self.used + size > self.total {
            return None;
        }
        self.used += size;
        let address = self.next_segment;
        self.next_segment += size;
        let fresh = Block {
            address,
            size,
            requested: 0,
            stream,
            large,
            state: State::Free,
            sides: Vec::new(),
            home: address,
            page: 0,
            born: 0,
        };
        self.place(fresh);
        self.count("segment", 1);
        self.bytes("reserved_bytes", size, 1);
        self.plain[3] += 1;
        if size >= self.settings.max_split_size.0 {
            self.count("oversize_segments", 1);
        }
        self.rows.push(("segment_alloc", address, size, stream));
        Some(address)
    }

    fn reserved(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state != State::Unmapped).map(|block| block.size).sum()
    }

    fn grow_range(&mut self, rounded: u64, stream: u64, large: bool) -> Option<u64> {
        let usable = |block: &Block| matches!(block.state, State::Free | State::Unmapped);
        let mut start = None;
        for at in 0..self.blocks.len() {
            let block = &self.blocks[at];
            if block.state != State::Unmapped || block.stream != stream || block.large != large {
                continue;
            }
            let first = self.before(at).filter(|&below| usable(&self.blocks[below])).unwrap_or(at);
            let home = block.home;
            let room: u64 = (self.blocks[first..].iter())
                .take_while(|block| block.home == home && usable(block))
                .map(|block| block.size)
                .sum();
            if room >= rounded {
                start = Some(self.blocks[first].address);
                break;
            }
        }
        let address = start.unwrap_or_else(|| {
            let page = if large { self.settings.large_segment_size.0 } else { 2 * MIB };
            let address = self.next_range;
            self.next_range += RANGE_STRIDE;
            let size = (self.total + self.total / 8).div_ceil(page) * page;
            let state = State::Unmapped;
            let sides = Vec::new();
            self.place(Block {
                address,
                size,
                requested: 0,
                stream,
                large,
                state,
                sides,
                home: address,
                page,
                born: 0,
            });
            address
        });
        loop {
            let at = self.at(address);
            let have = if self.blocks[at].state == State::Free { self.blocks[at].size } else { 0 };
            if have >= rounded {
                return Some(address);
            }
            let hole = if have > 0 { at + 1 } else { at };
            self.map(hole, rounded - have)?;
        }
    }

    fn map(&mut self, at: usize, wanted: u64) -> Option<()> {
        let hole = self.blocks[at].clone();
        let size = wanted.min(hole.size).div_ceil(hole.page) * hole.page;
        if self.used + size > self.total {
            return None;
        }
        self.used += size;
        if size < hole.size {
            let mut rest = hole.clone();
            rest.address += size;
            rest.size -= size;
            rest.requested = 0;
            self.blocks.insert(at + 1, rest);
        }
        self.blocks[at].size = size;
        self.blocks[at].state = State::Free;
        self.merge(at);
        self.bytes("reserved_bytes", size, 1);
        self.plain[3] += 1;
        self.rows.push(("segment_map", hole.address, size, hole.stream));
        Some(())
    }

    // --- giving back ----------------------------------------------------------------------------------------------

    pub fn empty_cache(&mut self) {
        self.release_all();
    }

    fn release_all(&mut self) {
        self.plain[2] += 1;
        self.process(true);
        for large in [true, false] {
            let set: Vec<Block> = self.free_set(large).into_iter().map(|at| self.blocks[at].clone()).collect();
            for block in set.iter().filter(|block| block.page == 0) {
                if !self.split(self.at(block.address)) {
                    self.release(block.address);
                }
            }
            for block in set.iter().filter(|block| block.page > 0) {
                self.unmap(block);
            }
        }
    }

    fn release(&mut self, address: u64) {
        let at = self.at(address);
        let block = self.blocks.remove(at);
        self.used -= block.size;
        self.count("segment", -1);
        self.bytes("reserved_bytes", block.size, -1);
        self.plain[4] += 1;
        if block.size >= self.settings.max_split_size.0 {
            self.count("oversize_segments", -1);
        }
        self.rows.push(("segment_free", address, block.size, block.stream));
    }

    fn unmap(&mut self, block: &Block) {
        let start = block.home + (block.address - block.home).div_ceil(block.page) * block.page;
        let end = block.home + (block.address + block.size - block.home) / block.page * block.page;
        if end <= start {
            return;
        }
        let mut at = self.at(block.address);
        let pieces = [(block.address, start), (start, end), (end, block.address + block.size)];
        self.blocks.remove(at);
        for (from, to) in pieces.into_iter().rev().filter(|(from, to)| from < to) {
            let mut piece = block.clone();
            (piece.address, piece.size) = (from, to - from);
            if from == start {
                piece.state = State::Unmapped;
            } else {
                piece.requested = 0;
                piece.born = self.lookups[usize::from(block.large)];
            }
            self.blocks.insert(at, piece);
        }
        if start > block.address {
            at += 1;
        }
        let (at, _) = self.merge(at);
        if !self.split(at) {
            self.blocks.remove(at);
        }
        self.used -= end - start;
        self.bytes("reserved_bytes", end - start, -1);
        self.plain[4] += 1;
        self.rows.push(("segment_unmap", start, end - start, block.stream));
    }

    fn release_oversize(&mut self, rounded: u64, stream: u64, large: bool) -> bool {
        let most = self.settings.max_split_size;
        if most == Bytes(u64::MAX) {
            return false;
        }
        let wanted = rounded.max(most.0);
        let set: Vec<Block> = (self.free_set(large).into_iter())
            .map(|at| self.blocks[at].clone())
            .filter(|block| block.stream == stream && block.size >= most.0)
            .collect();
        if let Some(block) = set.iter().find(|block| block.size >= wanted)
            && block.page == 0
        {
            self.release(block.address);
            return true;
        }
        let mut sum = 0;
        for block in set.iter().rev().filter(|block| block.size < wanted && block.page == 0) {
            if sum < wanted {
                sum += block.size;
                self.release(block.address);
            }
        }
        sum >= wanted
    }

    fn collect(&mut self) {
        let limit = self.limit.expect("collects only under a limit") as f64;
        let threshold = (self.settings.garbage_collection_threshold * limit) as u64;
        let held = self.reserved();
        let mut reclaimed = 0;
        while held > threshold && reclaimed < held - threshold {
            let unsplit: Vec<usize> = self.free_set(true).into_iter().filter(|&at| !self.split(at)).collect();
            let age = |block: &Block| (self.lookups[1] - block.born) as f64;
            let sum: f64 = unsplit.iter().map(|&at| age(&self.blocks[at])).sum();
            let average = sum / unsplit.len() as f64;
            let old: Vec<(u64, u64)> = (unsplit.iter().map(|&at| &self.blocks[at]))
                .filter(|block| block.page == 0 && age(block) >= average)
                .map(|block| (block.address, block.size))
                .collect();
            if old.is_empty() {
                return;
            }
            for (address, size) in old {
                reclaimed += size;
                self.release(address);
            }
        }
    }
}
