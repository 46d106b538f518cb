//! Virtual memory management: physical memory is created and mapped separately, as expandable segments do it.

use crate::card::Card;
use crate::codes::{Code, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, of};
use crate::foreign::{get, put};
use crate::store::{self, PhysicalBlock, State, current};
use crate::units::MIB;

/// Memory is created and mapped in multiples of this.
const GRANULARITY: u64 = 2 * MIB;
/// CU_MEM_HANDLE_TYPE_FABRIC: memory that other machines can access.
const FABRIC: i32 = 8;
/// CU_MEM_LOCATION_TYPE_DEVICE.
const ON_DEVICE: i32 = 1;

/// The beginning of CUmemAllocationProp.
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
            current()
        };
        self.device(device)?.take(size)?;
        Ok(self.physical.add(PhysicalBlock { size, device, holds: 1 }))
    }

    fn let_go(&mut self, handle: u64) -> Result<(), Code> {
        let made = self.physical.made.get_mut(&handle).ok_or(INVALID_VALUE)?;
        made.holds = made.holds.saturating_sub(1);
        let PhysicalBlock { size, device, holds } = *made;
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
        let mut state = store::lock();
        if let Err(code) = state.current().map(|_| ()) {
            return code;
        }
        match state.ranges.reserve(size, alignment as u64, current()) {
            Some(base) => {
                put(place, base);
                SUCCESS
            }
            None => OUT_OF_MEMORY,
        }
    }
    fn cuMemAddressFree(base: u64, size: usize) -> Code {
        let mut state = store::lock();
        let in_use = state.physical.mapped.range(base..base.saturating_add(size as u64)).next().is_some();
        if in_use || !state.ranges.free(base, size as u64) { INVALID_VALUE } else { SUCCESS }
    }
    fn cuMemCreate(handle: *mut u64, size: usize, wish: *const u8, _flags: u64) -> Code {
        let Some(wish) = get(wish.cast::<Wish>()) else { return INVALID_VALUE };
        of(store::lock().make(size as u64, wish).map(|made| put(handle, made)))
    }
    fn cuMemRelease(handle: u64) -> Code { of(store::lock().let_go(handle)) }
    fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) -> Code {
        let mut state = store::lock();
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
        of(store::lock().map(address, size as u64, offset as u64, handle))
    }
    fn cuMemUnmap(address: u64, size: usize) -> Code { of(store::lock().unmap(address, size as u64)) }
    fn cuMemSetAccess(address: u64, _size: usize, _access: u64, _count: usize) -> Code {
        if store::lock().physical.mapped_at(address).is_some() { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemGetAccess(flags: *mut u64, _location: u64, address: u64) -> Code {
        put(flags, if store::lock().physical.mapped_at(address).is_some() { 3 } else { 0 });
        SUCCESS
    }
    fn cuMemGetAllocationGranularity(granularity: *mut usize, _wish: u64, _option: i32) -> Code {
        put(granularity, GRANULARITY as usize);
        if Card::get().is_some() { SUCCESS } else { crate::codes::NO_DEVICE }
    }
}
