//! cudaMalloc and related functions.

use std::ffi::c_void;

use crate::card::Card;
use crate::codes::{Code, INVALID_VALUE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, of};
use crate::context::noted;
use crate::foreign::put;
use crate::store::{self, MappingOrigin, State, current};
use crate::system;

/// Sizes are rounded up to this: the alignment that cudaMalloc promises.
const ALIGNMENT: u64 = 512;

impl State {
    /// Allocates a segment on this thread's device.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, Code> {
        let whole = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        let device = self.current()?;
        device.take(whole)?;
        let Some(address) = device.space.place(whole) else {
            device.give_back(whole);
            return Err(OUT_OF_MEMORY);
        };
        device.segments.insert(address, whole);
        Ok(address)
    }

    /// Frees a segment of any device.
    pub fn release(&mut self, address: u64) -> Result<(), Code> {
        let Some(number) = self.device_of(address) else { return self.release_managed(address) };
        let device = self.devices.get_mut(number).ok_or(INVALID_VALUE)?;
        let size = device.segments.remove(&address).ok_or(INVALID_VALUE)?;
        device.give_back(size);
        device.space.release(address, size);
        self.shadow.forget(address, size);
        Ok(())
    }

    /// Frees managed memory, which host and device can both access.
    fn release_managed(&mut self, address: u64) -> Result<(), Code> {
        let (start, piece) = self.pinned.of(address).ok_or(INVALID_VALUE)?;
        if start != address || piece.origin != MappingOrigin::Managed {
            return Err(INVALID_VALUE);
        }
        self.pinned.remove(address);
        system::give_back(address, piece.size);
        Ok(())
    }

    /// The start and the size of the segment that contains an address.
    pub fn segment_of(&self, address: u64) -> Option<(u64, u64)> {
        self.devices.iter().find_map(|device| {
            let (&start, &size) = device.segments.range(..=address).next_back()?;
            (address - start < size).then_some((start, size))
        })
    }

    /// Free and total bytes of this thread's device.
    pub fn free_and_total(&mut self) -> Result<(u64, u64), Code> {
        let total = Card::get().ok_or(NO_DEVICE)?.memory;
        Ok((total.saturating_sub(self.current()?.used), total))
    }
}

fn allocate(place: *mut u64, bytes: usize) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    of(store::lock().allocate(bytes as u64).map(|address| put(place, address)))
}

fn release(address: u64) -> Code {
    if address == 0 { SUCCESS } else { of(store::lock().release(address)) }
}

fn free_and_total(free: *mut usize, total: *mut usize) -> Code {
    of(store::lock().free_and_total().map(|(left, all)| {
        put(free, left as usize);
        put(total, all as usize);
    }))
}

fn allocate_rows(place: *mut u64, pitch: *mut usize, width: usize, height: usize) -> Code {
    let row = width.checked_next_multiple_of(ALIGNMENT as usize);
    let Some(bytes) = row.and_then(|row| row.checked_mul(height)) else { return OUT_OF_MEMORY };
    put(pitch, row.unwrap_or_default());
    allocate(place, bytes)
}

entries! {
    fn cudaMalloc(place: *mut u64, bytes: usize) -> Code { noted(allocate(place, bytes)) }
    fn cudaMallocAsync(place: *mut u64, bytes: usize, _stream: u64) -> Code { noted(allocate(place, bytes)) }
    fn cudaMallocFromPoolAsync(place: *mut u64, bytes: usize, _pool: u64, _stream: u64) -> Code { noted(allocate(place, bytes)) }
    fn cudaFree(address: u64) -> Code { noted(release(address)) }
    fn cudaFreeAsync(address: u64, _stream: u64) -> Code { noted(release(address)) }
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> Code { noted(free_and_total(free, total)) }
    fn cudaMallocPitch(place: *mut u64, pitch: *mut usize, width: usize, height: usize) -> Code {
        noted(allocate_rows(place, pitch, width, height))
    }

    fn cuMemAlloc_v2(place: *mut u64, bytes: usize) -> Code { allocate(place, bytes) }
    fn cuMemAllocAsync(place: *mut u64, bytes: usize, _stream: u64) -> Code { allocate(place, bytes) }
    fn cuMemFree_v2(address: u64) -> Code { release(address) }
    fn cuMemFreeAsync(address: u64, _stream: u64) -> Code { release(address) }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code { free_and_total(free, total) }
    fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) -> Code {
        let state = store::lock();
        match state.segment_of(address).or_else(|| state.physical.mapped_at(address)) {
            Some((start, bytes)) => {
                put(base, start);
                put(size, bytes as usize);
                SUCCESS
            }
            None => INVALID_VALUE,
        }
    }
}

/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// Device memory.
    Device(usize),
    /// Page-locked host memory.
    Pinned,
    /// Managed memory, which host and device can both access.
    Managed,
    /// Any other memory.
    Host,
}

/// The kind of memory at an address.
pub fn kind(address: u64) -> PointerKind {
    let state = store::lock();
    match state.device_of(address) {
        Some(device) => PointerKind::Device(device),
        None => match state.pinned.of(address) {
            Some((_, piece)) if piece.origin == MappingOrigin::Managed => PointerKind::Managed,
            Some(_) => PointerKind::Pinned,
            None => PointerKind::Host,
        },
    }
}

/// cudaPointerAttributes.
#[repr(C)]
#[derive(Clone, Copy)]
struct PointerAttributes {
    kind: i32,
    device: i32,
    on_device: u64,
    on_host: u64,
    reserved: [i64; 8],
}

entries! {
    fn cudaPointerGetAttributes(attributes: *mut c_void, address: u64) -> Code {
        let nothing = PointerAttributes { kind: 0, device: -2, on_device: 0, on_host: address, reserved: [0; 8] };
        let known = match kind(address) {
            PointerKind::Device(device) => PointerAttributes { kind: 2, device: device as i32, on_device: address, on_host: 0, ..nothing },
            PointerKind::Pinned => PointerAttributes { kind: 1, device: current() as i32, on_device: address, ..nothing },
            PointerKind::Managed => PointerAttributes { kind: 3, device: current() as i32, on_device: address, ..nothing },
            PointerKind::Host => nothing,
        };
        // Only the version of the runtime with reserved fields has more than the first 24 bytes.
        if crate::real::runtime_version() >= 13000 {
            put(attributes.cast(), known);
        } else {
            let PointerAttributes { kind, device, on_device, on_host, .. } = known;
            put(attributes.cast(), (kind, device));
            put(attributes.cast::<u64>().wrapping_add(1), on_device);
            put(attributes.cast::<u64>().wrapping_add(2), on_host);
        }
        SUCCESS
    }
    fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64) -> Code {
        let kind = kind(address);
        let device = match kind {
            PointerKind::Device(device) => device,
            PointerKind::Pinned | PointerKind::Managed => current(),
            PointerKind::Host => return INVALID_VALUE,
        };
        match attribute {
            // The context.
            1 => put(value.cast(), crate::context::handle(device)),
            // The kind of memory: 1 for the host, 2 for a device.
            2 => put(value.cast(), if kind == PointerKind::Pinned { 1_u32 } else { 2 }),
            // The address on the device, and on the host.
            3 => put(value.cast(), address),
            4 if kind == PointerKind::Pinned => put(value.cast(), address),
            // Synchronous memory operations.
            6 => put(value.cast(), 0_u32),
            // Whether it is managed.
            8 => put(value.cast(), u32::from(kind == PointerKind::Managed)),
            // A number that identifies the allocation.
            7 => put(value.cast(), store::lock().segment_of(address).map_or(address, |(start, _)| start)),
            // The number of the device.
            9 => put(value.cast(), device as i32),
            // The start of the allocation, and its size.
            11 => put(value.cast(), store::lock().segment_of(address).map_or(address, |(start, _)| start)),
            12 => put(value.cast(), store::lock().segment_of(address).map_or(0, |(_, size)| size)),
            // Whether it is mapped.
            13 => put(value.cast(), 1_u32),
            _ => return INVALID_VALUE,
        }
        SUCCESS
    }
}
