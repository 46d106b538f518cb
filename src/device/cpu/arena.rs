//! Device memory of the processor device: anonymous mappings under a limit.
//!
//! Device addresses are those that a GPU's driver would hand out, so that the allocator makes the same decisions. Each
//! segment has its own mapping, found by its device address. Freed memory is returned to the operating system, and to
//! the account of host memory from which it was taken.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::copies::CopyState;
use super::streams::StreamHandles;
use crate::mapping::Mapping;
use crate::{Charge, HostAccount, HostMemoryRefused};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{DeviceMemory, EventToken, OutOfDeviceMemory, SegmentSource, SimulatedDriver};

/// The page size of unified memory, in bytes.
const PAGE: u64 = 1 << 12;

/// Which bytes of a region are backed by memory.
enum Backing {
    /// A segment, which is backed completely.
    Whole,
    /// An expandable range: the backed parts, as start → end from the region's start, with adjacent ones merged.
    Parts(BTreeMap<u64, u64>),
}

struct Region {
    mapping: Mapping,
    backing: Backing,
    /// The charge for the backed bytes.
    charge: Charge,
}

impl Region {
    fn backs(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        match &self.backing {
            Backing::Whole => end <= self.mapping.len() as u64,
            Backing::Parts(parts) => parts.range(..=offset).next_back().is_some_and(|(_, &part_end)| end <= part_end),
        }
    }
}

/// Why an address can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAddress(pub(crate) &'static str);

/// The memory of the device. See the module's documentation.
pub(crate) struct Arena {
    regions: BTreeMap<u64, Region>,
    /// Chooses addresses and enforces the limit.
    driver: SimulatedDriver,
    copies: Arc<CopyState>,
    account: HostAccount,
    /// The address of the next unified memory, outside the driver's own regions.
    managed: Address,
}

/// The arena, shared by the device, its copy thread and the allocator.
pub(crate) type SharedArena = Arc<Mutex<Arena>>;

/// Locks the arena. A panic elsewhere leaves it consistent, because every method completes its bookkeeping.
pub(crate) fn lock(arena: &SharedArena) -> MutexGuard<'_, Arena> {
    arena.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    pub(crate) fn new(limit: Bytes, copies: Arc<CopyState>, account: HostAccount) -> Self {
        Self {
            regions: BTreeMap::new(),
            driver: SimulatedDriver::new(limit, Bytes::ZERO),
            copies,
            account,
            managed: Address(1 << 46),
        }
    }

    /// Memory as such a device's driver would report it, but with no more free than the host has.
    fn memory(&self) -> DeviceMemory {
        let memory = self.driver.memory();
        DeviceMemory { free: memory.free.min(self.account.left()), ..memory }
    }

    /// The host address of `[address, address + len)`, if all of it is backed and no copy that was not yet waited for
    /// is writing to it.
    pub(crate) fn pointer(&self, address: Address, len: u64) -> Result<*mut u8, BadAddress> {
        let pointer = self.backed(address, len)?;
        if self.copies.writes(address, len) {
            return Err(BadAddress("is still written by a copy that this stream has not waited for"));
        }
        Ok(pointer)
    }

    /// [`Arena::pointer`] for the copy stream itself, which runs its copies in order.
    pub(crate) fn backed(&self, address: Address, len: u64) -> Result<*mut u8, BadAddress> {
        const OUTSIDE: BadAddress = BadAddress("lies outside the device's live segments");
        let (&start, region) = self.regions.range(..=address.0).next_back().ok_or(OUTSIDE)?;
        let offset = address.0 - start;
        if !region.backs(offset, len) {
            return Err(OUTSIDE);
        }
        let (part, _) = region.mapping.part(offset, len).ok_or(OUTSIDE)?;
        Ok(part.cast())
    }

    fn remove(&mut self, address: Address) -> Option<Region> {
        self.copies.finish();
        let region = self.regions.remove(&address.0);
        debug_assert!(region.is_some(), "no segment or range starts at {address}");
        region
    }

    /// Frees all memory.
    fn clear(&mut self) {
        self.copies.finish();
        self.driver = SimulatedDriver::new(self.driver.memory().total, Bytes::ZERO);
        self.regions.clear();
    }

    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let charge = self.account.take(size).map_err(|_| OutOfDeviceMemory)?;
        let address = self.driver.malloc(size)?;
        let Some(mapping) = Mapping::new(size, true) else {
            self.driver.free(address, size);
            return Err(OutOfDeviceMemory);
        };
        self.regions.insert(address.0, Region { mapping, backing: Backing::Whole, charge });
        Ok(address)
    }

    /// Allocates unified memory, which is ordinary memory on the processor.
    pub(crate) fn take_managed(&mut self, bytes: Bytes) -> Result<Address, HostMemoryRefused> {
        let size = Bytes(bytes.get().max(1).next_multiple_of(PAGE));
        let charge = self.account.take(size)?;
        let refused = HostMemoryRefused { requested: size, left: self.account.left() };
        let mapping = Mapping::new(size, true).ok_or(refused)?;
        let address = self.managed;
        self.managed = address.offset(size);
        self.regions.insert(address.0, Region { mapping, backing: Backing::Whole, charge });
        Ok(address)
    }

    pub(crate) fn give_managed(&mut self, address: Address) {
        self.copies.finish();
        self.regions.remove(&address.0);
    }

    fn free(&mut self, address: Address, size: Bytes) {
        if self.remove(address).is_some() {
            self.driver.free(address, size);
        }
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let charge = self.account.take(Bytes::ZERO).map_err(|_| OutOfDeviceMemory)?;
        let address = self.driver.reserve_range(size)?;
        let Some(mapping) = Mapping::new(size, false) else {
            self.driver.release_range(address, size);
            return Err(OutOfDeviceMemory);
        };
        self.regions.insert(address.0, Region { mapping, backing: Backing::Parts(BTreeMap::new()), charge });
        Ok(address)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        if let Some(Region { backing: Backing::Parts(parts), .. }) = self.remove(address) {
            debug_assert!(parts.is_empty(), "a range is unmapped before it is released");
            for (start, end) in parts {
                self.driver.unmap(address.offset(Bytes(start)), Bytes(end - start));
            }
            self.driver.release_range(address, size);
        }
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        let Some((&start, region)) = self.regions.range_mut(..=address.0).next_back() else {
            return Err(OutOfDeviceMemory);
        };
        let Region { mapping, backing: Backing::Parts(parts), charge } = region else { return Err(OutOfDeviceMemory) };
        charge.grow(size).map_err(|_| OutOfDeviceMemory)?;
        let (mut from, mut to) = (address.0 - start, address.0 - start + size.get());
        let mapped = self.driver.map(address, size, page).and_then(|()| {
            let committed = mapping.commit(from, size.get());
            if !committed {
                self.driver.unmap(address, size);
            }
            committed.then_some(()).ok_or(OutOfDeviceMemory)
        });
        if mapped.is_err() {
            charge.shrink(size);
            return mapped;
        }
        if let Some((&before, &end)) = parts.range(..from).next_back()
            && end == from
        {
            from = before;
        }
        if let Some(end) = parts.remove(&to) {
            to = end;
        }
        parts.insert(from, to);
        Ok(())
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        self.copies.finish();
        let Some((&start, region)) = self.regions.range_mut(..=address.0).next_back() else { return };
        let (from, to) = (address.0 - start, address.0 - start + size.get());
        let covered = region.backs(from, size.get());
        debug_assert!(covered, "only mapped pages are unmapped");
        let Region { mapping, backing: Backing::Parts(parts), charge } = region else { return };
        let part = parts.range(..=from).next_back().map(|(&start, &end)| (start, end));
        if let Some((part_start, part_end)) = part.filter(|_| covered) {
            mapping.decommit(from, size.get());
            charge.shrink(size);
            parts.remove(&part_start);
            if part_start < from {
                parts.insert(part_start, from);
            }
            if to < part_end {
                parts.insert(to, part_end);
            }
            self.driver.unmap(address, size);
        }
    }
}

impl Drop for Arena {
    /// Frees memory only after all copies to it have ended.
    fn drop(&mut self) {
        self.copies.finish();
    }
}

/// The arena as the allocator's source of segments, and of the copy stream's events.
pub(crate) struct ArenaSource {
    pub(crate) arena: SharedArena,
    pub(crate) copies: Arc<CopyState>,
    pub(crate) streams: StreamHandles,
}

impl SegmentSource for ArenaSource {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        lock(&self.arena).malloc(size)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        lock(&self.arena).free(address, size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        lock(&self.arena).reserve_range(size)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        lock(&self.arena).release_range(address, size);
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        lock(&self.arena).map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        lock(&self.arena).unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        lock(&self.arena).memory()
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        self.streams.token(stream, &self.copies)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.copies.is_done(event.0)
    }

    fn wait_event(&mut self, event: EventToken) {
        self.copies.wait(event.0);
    }
}

impl Drop for ArenaSource {
    /// Frees everything, because another run on this device may need it.
    fn drop(&mut self) {
        lock(&self.arena).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(limit: Bytes) -> ArenaSource {
        let copies = Arc::new(CopyState::default());
        let arena = Arc::new(Mutex::new(Arena::new(limit, Arc::clone(&copies), HostAccount::default())));
        ArenaSource { arena, copies, streams: StreamHandles::new() }
    }

    /// Resident memory of the mapping that holds `pointer`, in KiB.
    fn resident(pointer: *mut u8) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-')
                && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
            {
                inside = (start..end).contains(&pointer.addr());
            } else if inside && first == "Rss:" {
                return words.next().unwrap().parse().unwrap();
            }
        }
        0
    }

    fn touch(arena: &SharedArena, address: Address, len: usize) -> *mut u8 {
        let pointer = lock(arena).pointer(address, len as u64).unwrap();
        // SAFETY: the arena says that `len` bytes are backed.
        unsafe { std::slice::from_raw_parts_mut(pointer, len) }.fill(1);
        pointer
    }

    #[test]
    fn segments_are_real_memory_that_returns_to_the_system() {
        let mut source = source(Bytes::mib(64));
        let address = source.malloc(Bytes::mib(20)).unwrap();
        let pointer = touch(&source.arena, address, 20 << 20);
        assert!(resident(pointer) >= 20 << 10, "resident: {} KiB", resident(pointer));
        source.free(address, Bytes::mib(20));
        assert_eq!(source.memory(), DeviceMemory { free: Bytes::mib(64), total: Bytes::mib(64) });
        assert!(lock(&source.arena).pointer(address, 1).is_err());
    }

    #[test]
    fn the_limit_holds_for_segments_and_pages_together() {
        let mut source = source(Bytes::mib(40));
        let first = source.malloc(Bytes::mib(20)).unwrap();
        assert_eq!(source.malloc(Bytes::mib(22)), Err(OutOfDeviceMemory));
        let range = source.reserve_range(Bytes::gib(64)).unwrap();
        source.map(range, Bytes::mib(20), Bytes::mib(20)).unwrap();
        assert_eq!(source.map(range.offset(Bytes::mib(20)), Bytes::mib(2), Bytes::mib(2)), Err(OutOfDeviceMemory));
        assert_eq!(source.memory().free, Bytes::ZERO);
        source.free(first, Bytes::mib(20));
        assert_eq!(source.memory().free, Bytes::mib(20));
        source.unmap(range, Bytes::mib(20));
        source.release_range(range, Bytes::gib(64));
        assert_eq!(source.memory().free, Bytes::mib(40));
        assert_eq!(source.malloc(Bytes(u64::MAX)), Err(OutOfDeviceMemory));
    }

    #[test]
    fn pages_of_a_range_come_and_go_and_blocks_span_them() {
        let mut source = source(Bytes::mib(64));
        let page = Bytes::mib(2);
        let range = source.reserve_range(Bytes::mib(32)).unwrap();
        let at = |n: u64| range.offset(Bytes::mib(2 * n));
        source.map(at(0), page, page).unwrap();
        source.map(at(2), page, page).unwrap();
        assert!(lock(&source.arena).pointer(at(0), 4 << 20).is_err(), "a hole lies between");
        source.map(at(1), page, page).unwrap();
        let pointer = touch(&source.arena, at(0), 6 << 20);
        assert!(resident(pointer) >= 6 << 10);
        source.unmap(at(1), page);
        assert!(lock(&source.arena).pointer(at(1), 1).is_err());
        assert!(lock(&source.arena).pointer(at(0), 2 << 20).is_ok());
        assert!(lock(&source.arena).pointer(at(2), 2 << 20).is_ok());
        assert!(resident(pointer) <= 2 << 10, "the middle split the mapping and gave memory back");
        assert_eq!(source.memory().free, Bytes::mib(60));
        source.unmap(at(0), page);
        source.unmap(at(2), page);
        source.release_range(range, Bytes::mib(32));
    }

    #[test]
    fn segments_and_pages_are_taken_from_the_host_which_may_have_less_than_the_limit() {
        let mut source = source(Bytes::mib(64));
        let account = lock(&source.arena).account.clone();
        account.set_limit(Some(Bytes::mib(30)));
        let segment = source.malloc(Bytes::mib(20)).unwrap();
        assert_eq!(source.malloc(Bytes::mib(20)), Err(OutOfDeviceMemory));
        assert_eq!(source.memory(), DeviceMemory { free: Bytes::mib(10), total: Bytes::mib(64) });
        let range = source.reserve_range(Bytes::gib(1)).unwrap();
        let page = Bytes::mib(2);
        source.map(range, page, page).unwrap();
        assert_eq!(account.taken(), Bytes::mib(22));
        assert_eq!(source.map(range.offset(page), Bytes::mib(10), page), Err(OutOfDeviceMemory));
        assert_eq!(account.taken(), Bytes::mib(22));
        source.unmap(range, page);
        source.release_range(range, Bytes::gib(1));
        source.free(segment, Bytes::mib(20));
        assert_eq!(account.taken(), Bytes::ZERO);
        assert_eq!(source.memory().free, Bytes::mib(30));
    }

    #[test]
    fn wild_addresses_are_refused() {
        let mut source = source(Bytes::mib(64));
        let address = source.malloc(Bytes::mib(2)).unwrap();
        let arena = lock(&source.arena);
        assert!(arena.pointer(address, 2 << 20).is_ok());
        assert!(arena.pointer(address, (2 << 20) + 1).is_err());
        assert!(arena.pointer(address, u64::MAX).is_err());
        assert!(arena.pointer(Address(address.0 - 1), 1).is_err());
        assert!(arena.pointer(Address(0), 1).is_err());
        assert!(arena.pointer(Address(u64::MAX), 8).is_err());
    }
}
