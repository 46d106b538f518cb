//! Page-locked host memory: ordinary memory that is counted.

use crate::codes::{ALREADY_REGISTERED, Code, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY, SUCCESS};
use crate::context::noted;
use crate::foreign::put;
use crate::store::{self, MappingOrigin, State};
use crate::{report, system};

const PAGE: u64 = 4096;

fn make(place: *mut u64, bytes: usize, origin: MappingOrigin) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let Some(size) = (bytes as u64).max(1).checked_next_multiple_of(PAGE) else { return OUT_OF_MEMORY };
    let Some(address) = system::take(size) else { return OUT_OF_MEMORY };
    let mut state = store::lock();
    state.pinned.add(address, size, origin);
    tell(&state);
    put(place, address);
    SUCCESS
}

fn free(address: u64) -> Code {
    if address == 0 {
        return SUCCESS;
    }
    let mut state = store::lock();
    match state.pinned.of(address) {
        Some((start, piece)) if start == address && piece.origin != MappingOrigin::Registered => {
            state.pinned.remove(address);
            system::give_back(address, piece.size);
            tell(&state);
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

fn register(address: u64, bytes: usize) -> Code {
    let mut state = store::lock();
    if address == 0 || bytes == 0 {
        return INVALID_VALUE;
    }
    if state.pinned.of(address).is_some() {
        return ALREADY_REGISTERED;
    }
    state.pinned.add(address, bytes as u64, MappingOrigin::Registered);
    tell(&state);
    SUCCESS
}

fn unregister(address: u64) -> Code {
    let mut state = store::lock();
    match state.pinned.of(address) {
        Some((start, piece)) if start == address && piece.origin == MappingOrigin::Registered => {
            state.pinned.remove(address);
            tell(&state);
            SUCCESS
        }
        _ => NOT_REGISTERED,
    }
}

fn tell(state: &State) {
    report::pinned(state.pinned.bytes());
}

entries! {
    fn cudaHostAlloc(place: *mut u64, bytes: usize, _flags: u32) -> Code { noted(make(place, bytes, MappingOrigin::Made)) }
    fn cudaMallocHost(place: *mut u64, bytes: usize) -> Code { noted(make(place, bytes, MappingOrigin::Made)) }
    fn cudaMallocManaged(place: *mut u64, bytes: usize, _flags: u32) -> Code { noted(make(place, bytes, MappingOrigin::Managed)) }
    fn cudaFreeHost(address: u64) -> Code { noted(free(address)) }
    fn cudaHostRegister(address: u64, bytes: usize, _flags: u32) -> Code { noted(register(address, bytes)) }
    fn cudaHostUnregister(address: u64) -> Code { noted(unregister(address)) }
    fn cudaHostGetDevicePointer(device: *mut u64, host: u64, _flags: u32) -> Code {
        put(device, host);
        SUCCESS
    }
    fn cudaHostGetFlags(flags: *mut u32, _host: u64) -> Code {
        put(flags, 0);
        SUCCESS
    }

    fn cuMemAllocHost_v2(place: *mut u64, bytes: usize) -> Code { make(place, bytes, MappingOrigin::Made) }
    fn cuMemHostAlloc(place: *mut u64, bytes: usize, _flags: u32) -> Code { make(place, bytes, MappingOrigin::Made) }
    fn cuMemAllocManaged(place: *mut u64, bytes: usize, _flags: u32) -> Code { make(place, bytes, MappingOrigin::Managed) }
    fn cuMemFreeHost(address: u64) -> Code { free(address) }
    fn cuMemHostRegister_v2(address: u64, bytes: usize, _flags: u32) -> Code { register(address, bytes) }
    fn cuMemHostUnregister(address: u64) -> Code { unregister(address) }
    fn cuMemHostGetDevicePointer_v2(device: *mut u64, host: u64, _flags: u32) -> Code {
        put(device, host);
        SUCCESS
    }
}
