//! NVML: what tools ask about the cards of a machine.

use std::ffi::{c_char, c_void};

use crate::card::Card;
use crate::foreign::{get, put, put_text, text};
use crate::real;
use crate::runtime::{bus_address, place_of_bus};
use crate::store::{self, uuid_text, visible};

/// NVML_SUCCESS.
const SUCCESS: i32 = 0;
/// NVML_ERROR_INVALID_ARGUMENT.
const INVALID_ARGUMENT: i32 = 2;
/// NVML_ERROR_NOT_FOUND.
const NOT_FOUND: i32 = 6;
/// NVML_ERROR_INSUFFICIENT_SIZE.
const TOO_SMALL: i32 = 7;
/// NVML_ERROR_DRIVER_NOT_LOADED.
const NO_DRIVER: i32 = 9;

const FIRST: u64 = 0x5600_0000_0000;

fn start() -> i32 {
    if Card::get().is_some() { SUCCESS } else { NO_DRIVER }
}

/// The card and the index of a device.
fn of(handle: u64) -> Option<(&'static Card, usize)> {
    let place = handle.checked_sub(FIRST)? as usize;
    Card::get().filter(|card| place < card.devices).map(|card| (card, place))
}

fn ask(handle: u64, tell: impl FnOnce(&Card, usize)) -> i32 {
    of(handle).map_or(INVALID_ARGUMENT, |(card, place)| {
        tell(card, place);
        SUCCESS
    })
}

fn give(handle: *mut u64, place: Option<usize>) -> i32 {
    let place = place.filter(|place| Card::get().is_some_and(|card| *place < card.devices));
    place.map_or(NOT_FOUND, |place| {
        put(handle, FIRST + place as u64);
        SUCCESS
    })
}

/// Bytes of a device that this process uses.
fn used(place: usize) -> u64 {
    let number = visible().iter().position(|visible| *visible == place);
    number.and_then(|number| store::lock().devices.get(number).map(|device| device.used)).unwrap_or(0)
}

/// The list of processes on a device: only this one, if it has a context there. An entry has `width` bytes, the first
/// 16 of which are the process and its bytes.
fn processes(handle: u64, count: *mut u32, entries: *mut u8) -> i32 {
    let (Some((_, place)), Some(room)) = (of(handle), get(count)) else { return INVALID_ARGUMENT };
    let used = used(place);
    put(count, u32::from(used > 0));
    if used == 0 {
        return SUCCESS;
    }
    if room == 0 || entries.is_null() {
        return TOO_SMALL;
    }
    put(entries.cast(), u64::from(std::process::id()));
    put(entries.wrapping_add(8).cast(), used);
    SUCCESS
}

/// The same for a device's partition; there are none.
fn processes_of_partitions(handle: u64, count: *mut u32, entries: *mut u8) -> i32 {
    let code = processes(handle, count, entries);
    if code == SUCCESS && get(count) == Some(1) {
        put(entries.wrapping_add(16).cast(), u64::MAX);
    }
    code
}

entries! {
    fn nvmlInit() -> i32 { start() }
    fn nvmlInit_v2() -> i32 { start() }
    fn nvmlInitWithFlags(_flags: u32) -> i32 { start() }
    fn nvmlShutdown() -> i32 { SUCCESS }
    fn nvmlErrorString(code: i32) -> *const c_char {
        match code {
            SUCCESS => c"Success".as_ptr(),
            INVALID_ARGUMENT => c"Invalid Argument".as_ptr(),
            3 => c"Not Supported".as_ptr(),
            NOT_FOUND => c"Not Found".as_ptr(),
            TOO_SMALL => c"Insufficient Size".as_ptr(),
            NO_DRIVER => c"Driver Not Loaded".as_ptr(),
            _ => c"Unknown Error".as_ptr(),
        }
    }
    fn nvmlDeviceGetCount(count: *mut u32) -> i32 { nvmlDeviceGetCount_v2(count) }
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> i32 {
        put(count, Card::get().map_or(0, |card| card.devices as u32));
        SUCCESS
    }
    fn nvmlDeviceGetHandleByIndex(number: u32, handle: *mut u64) -> i32 { give(handle, Some(number as usize)) }
    fn nvmlDeviceGetHandleByIndex_v2(number: u32, handle: *mut u64) -> i32 { give(handle, Some(number as usize)) }
    fn nvmlDeviceGetHandleByPciBusId(address: *const c_char, handle: *mut u64) -> i32 { nvmlDeviceGetHandleByPciBusId_v2(address, handle) }
    fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, handle: *mut u64) -> i32 {
        give(handle, text(address).and_then(|address| place_of_bus(address.to_str().ok()?)))
    }
    fn nvmlDeviceGetHandleByUUID(name: *const c_char, handle: *mut u64) -> i32 {
        let name = text(name).and_then(|name| name.to_str().ok()).unwrap_or_default();
        let devices = Card::get().map_or(0, |card| card.devices);
        give(handle, (0..devices).find(|place| uuid_text(*place) == name))
    }
    fn nvmlDeviceGetUUID(handle: u64, place: *mut c_char, room: u32) -> i32 {
        ask(handle, |_, device| put_text(place, room as usize, &uuid_text(device)))
    }
    fn nvmlDeviceGetName(handle: u64, place: *mut c_char, room: u32) -> i32 {
        ask(handle, |card, _| put_text(place, room as usize, &card.title))
    }
    fn nvmlDeviceGetIndex(handle: u64, number: *mut u32) -> i32 { ask(handle, |_, device| put(number, device as u32)) }
    fn nvmlDeviceGetMinorNumber(handle: u64, number: *mut u32) -> i32 { ask(handle, |_, device| put(number, device as u32)) }
    fn nvmlDeviceGetMemoryInfo(handle: u64, place: *mut [u64; 3]) -> i32 {
        ask(handle, |card, device| {
            let used = used(device);
            put(place, [card.memory, card.memory.saturating_sub(used), used]);
        })
    }
    fn nvmlDeviceGetMemoryInfo_v2(handle: u64, place: *mut u64) -> i32 {
        ask(handle, |card, device| {
            let used = used(device);
            // The fields after the version: total, reserved by the system, free, used.
            for (at, bytes) in [card.memory, 0, card.memory.saturating_sub(used), used].into_iter().enumerate() {
                put(place.wrapping_add(1 + at), bytes);
            }
        })
    }
    fn nvmlDeviceGetCudaComputeCapability(handle: u64, major: *mut i32, minor: *mut i32) -> i32 {
        ask(handle, |card, _| {
            put(major, card.major());
            put(minor, card.minor());
        })
    }
    fn nvmlDeviceGetComputeRunningProcesses(handle: u64, count: *mut u32, entries: *mut u8) -> i32 { processes(handle, count, entries) }
    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: u64, count: *mut u32, entries: *mut u8) -> i32 { processes_of_partitions(handle, count, entries) }
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: u64, count: *mut u32, entries: *mut u8) -> i32 { processes_of_partitions(handle, count, entries) }
    /// There is no fabric: the state is NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, 0. The low 24 bits of the version are the
    /// structure's size.
    fn nvmlDeviceGetGpuFabricInfoV(handle: u64, place: *mut u32) -> i32 {
        let size = crate::foreign::get(place).unwrap_or(0) & 0xff_ffff;
        ask(handle, |_, _| crate::foreign::zero(place.wrapping_add(1).cast(), (size as usize).clamp(4, 64) - 4))
    }
    fn nvmlDeviceGetMigMode(handle: u64, mode: *mut u32, pending: *mut u32) -> i32 {
        ask(handle, |_, _| {
            put(mode, 0);
            put(pending, 0);
        })
    }
    fn nvmlDeviceGetPciInfo_v3(handle: u64, place: *mut c_void) -> i32 {
        ask(handle, |_, device| {
            let address = bus_address(device);
            crate::foreign::zero(place.cast(), 68);
            put_text(place.cast(), 16, &address);
            put(place.cast::<u32>().wrapping_add(5), (crate::attributes::FIRST_BUS + device) as u32);
            put_text(place.cast::<c_char>().wrapping_add(36), 32, &format!("0000{address}"));
        })
    }
    fn nvmlSystemGetCudaDriverVersion(version: *mut i32) -> i32 { nvmlSystemGetCudaDriverVersion_v2(version) }
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) -> i32 {
        put(version, real::driver_version());
        SUCCESS
    }
    fn nvmlSystemGetDriverVersion(place: *mut c_char, room: u32) -> i32 {
        put_text(place, room as usize, "580.65.06");
        SUCCESS
    }
}
