//! Memory that is made apart from its addresses: what expandable segments are mapped from.

use std::collections::BTreeMap;

use crate::card::Card;
use crate::codes::{Code, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, of};
use crate::devices;
use crate::foreign::{get, put};
use crate::state::{self, State};
use crate::units::MIB;

/// Memory is made and mapped in multiples of this.
const GRANULARITY: u64 = 2 * MIB;
const FIRST: u64 = 0x5400_0000_0000;
/// CU_MEM_HANDLE_TYPE_FABRIC: memory that other machines reach.
const FABRIC: i32 = 8;
/// CU_MEM_LOCATION_TYPE_DEVICE.
const ON_DEVICE: i32 = 1;

/// Memory by handle, and where it is mapped.
#[derive(Debug, Default)]
pub struct Physical {
    made: BTreeMap<u64, Made>,
    /// By address: bytes and handle.
    mapped: BTreeMap<u64, (u64, u64)>,
    count: u64,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug)]
struct Made {
    size: u64,
    device: usize,
    /// The program's own hold on it, and every mapping.
    holds: u32,
}

impl Physical {
    /// What is mapped at an address: begin and bytes.
    pub fn mapped_at(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &(size, _)) = self.mapped.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }

    fn is_free(&self, address: u64, size: u64) -> bool {
        self.mapped.range(..address + size).next_back().is_none_or(|(start, (bytes, _))| start + bytes <= address)
    }
}

/// What CUmemAllocationProp begins with.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wish {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
}

impl State {
    fn make(&mut self, size: u64, wish: Wish) -> Result<u64, Code> {
        if wish.handle_types & FABRIC != 0 {
            return Err(NOT_SUPPORTED);
        }
        if size == 0 || size % GRANULARITY != 0 {
            return Err(INVALID_VALUE);
        }
        let device = if wish.location_kind == ON_DEVICE {
            usize::try_from(wish.location).map_err(|_| INVALID_DEVICE)?
        } else {
            devices::current()
        };
        self.device(device)?.take(size)?;
        let physical = &mut self.physical;
        physical.count += 1;
        let handle = FIRST + physical.count * 256;
        physical.made.insert(handle, Made { size, device, holds: 1 });
        Ok(handle)
    }

    fn let_go(&mut self, handle: u64) -> Result<(), Code> {
        let made = self.physical.made.get_mut(&handle).ok_or(INVALID_VALUE)?;
        made.holds = made.holds.saturating_sub(1);
        let Made { size, device, holds } = *made;
        if holds == 0 {
            self.physical.made.remove(&handle);
            if let Some(device) = self.devices.get_mut(device) {
                device.give_back(size);
            }
        }
        Ok(())
    }

    fn map(&mut self, address: u64, size: u64, offset: u64, handle: u64) -> Result<(), Code> {
        let (base, reserved) = self.ranges.of(address).ok_or(INVALID_VALUE)?;
        let fits = address.checked_add(size).is_some_and(|end| end <= base + reserved.size);
        let made = self.physical.made.get_mut(&handle).ok_or(INVALID_VALUE)?;
        if size == 0 || offset != 0 || size != made.size || !fits {
            return Err(INVALID_VALUE);
        }
        made.holds += 1;
        if !self.physical.is_free(address, size) {
            return self.let_go(handle).and(Err(INVALID_VALUE));
        }
        self.physical.mapped.insert(address, (size, handle));
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64) -> Result<(), Code> {
        let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
        let inside: Vec<(u64, u64, u64)> =
            self.physical.mapped.range(address..end).map(|(&at, &(bytes, handle))| (at, bytes, handle)).collect();
        if inside.iter().map(|(_, bytes, _)| bytes).sum::<u64>() != size {
            return Err(INVALID_VALUE);
        }
        for (at, bytes, handle) in inside {
            self.physical.mapped.remove(&at);
            self.shadow.forget(at, bytes);
            self.let_go(handle)?;
        }
        Ok(())
    }
}

entries! {
    fn cuMemAddressReserve(place: *mut u64, size: usize, alignment: usize, _wish: u64, _flags: u64) -> Code {
        let size = size as u64;
        if place.is_null() || size == 0 || size % GRANULARITY != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
            return INVALID_VALUE;
        }
        let mut state = state::lock();
        if let Err(code) = state.current().map(|_| ()) {
            return code;
        }
        match state.ranges.reserve(size, alignment as u64, devices::current()) {
            Some(base) => {
                put(place, base);
                SUCCESS
            }
            None => OUT_OF_MEMORY,
        }
    }
    fn cuMemAddressFree(base: u64, size: usize) -> Code {
        let mut state = state::lock();
        let in_use = state.physical.mapped.range(base..base.saturating_add(size as u64)).next().is_some();
        if in_use || !state.ranges.free(base, size as u64) { INVALID_VALUE } else { SUCCESS }
    }
    fn cuMemCreate(handle: *mut u64, size: usize, wish: *const u8, _flags: u64) -> Code {
        let Some(wish) = get(wish.cast::<Wish>()) else { return INVALID_VALUE };
        of(state::lock().make(size as u64, wish).map(|made| put(handle, made)))
    }
    fn cuMemRelease(handle: u64) -> Code { of(state::lock().let_go(handle)) }
    fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) -> Code {
        let mut state = state::lock();
        let at = state.physical.mapped_at(address).map(|(start, _)| start);
        let found = at.and_then(|start| state.physical.mapped.get(&start)).map(|(_, handle)| *handle);
        let Some(found) = found else { return INVALID_VALUE };
        if let Some(made) = state.physical.made.get_mut(&found) {
            made.holds += 1;
        }
        put(handle, found);
        SUCCESS
    }
    fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, _flags: u64) -> Code {
        of(state::lock().map(address, size as u64, offset as u64, handle))
    }
    fn cuMemUnmap(address: u64, size: usize) -> Code { of(state::lock().unmap(address, size as u64)) }
    fn cuMemSetAccess(address: u64, _size: usize, _access: u64, _count: usize) -> Code {
        if state::lock().physical.mapped_at(address).is_some() { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemGetAccess(flags: *mut u64, _location: u64, address: u64) -> Code {
        put(flags, if state::lock().physical.mapped_at(address).is_some() { 3 } else { 0 });
        SUCCESS
    }
    fn cuMemGetAllocationGranularity(granularity: *mut usize, _wish: u64, _option: i32) -> Code {
        put(granularity, GRANULARITY as usize);
        if Card::get().is_some() { SUCCESS } else { crate::codes::NO_DEVICE }
    }
}
