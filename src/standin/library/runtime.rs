//! The rest of the CUDA runtime: versions, the driver's functions by name, peers on the bus.

use std::ffi::{CString, c_char};

use crate::attributes::FIRST_BUS;
use crate::codes::{Code, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, SUCCESS, of};
use crate::context::noted;
use crate::foreign::{put, put_text, text};
use crate::store::{self, checked};
use crate::{real, system};

/// `0000:10:00.0`.
pub fn bus_address(place: usize) -> String {
    format!("0000:{:02X}:00.0", FIRST_BUS + place)
}

/// The index in the machine of the device with this bus address.
pub fn place_of_bus(address: &str) -> Option<usize> {
    let bus = address.split(':').nth_back(1)?;
    usize::from_str_radix(bus, 16).ok()?.checked_sub(FIRST_BUS)
}

/// The driver's function of this name: the newest that a program for this version of CUDA knows.
fn driver_function(name: &str, version: i32) -> Option<u64> {
    let newer: &[&str] = match name {
        "cuStreamGetCaptureInfo" if version >= 12030 => &["_v3"],
        "cuCtxCreate" if version >= 13000 => &["_v4"],
        _ => &["_v2", ""],
    };
    newer.iter().find_map(|suffix| {
        let name = CString::new(format!("{name}{suffix}")).ok()?;
        system::find(None, &name).map(|function| function as u64)
    })
}

/// Replaces a driver function that does not exist.
extern "C" fn missing() -> Code {
    NOT_SUPPORTED
}

/// cudaDriverEntryPointQueryResult and CUdriverProcAddressQueryResult agree: 0 means found, 1 means no such name.
fn entry_point(name: *const c_char, function: *mut u64, version: i32, status: *mut i32) -> Code {
    let Some(name) = text(name).and_then(|name| name.to_str().ok()) else { return INVALID_VALUE };
    let found = driver_function(name, version);
    if found.is_none() && crate::report::is_told() {
        eprintln!("vramlab: {name} of the driver is not here");
    }
    put(status, i32::from(found.is_none()));
    put(function, found.unwrap_or(missing as extern "C" fn() -> Code as usize as u64));
    if found.is_some() || !status.is_null() { SUCCESS } else { NOT_FOUND }
}

fn peers(can: *mut i32, one: i32, other: i32) -> Code {
    of(checked(one).and_then(|one| checked(other).map(|other| put(can, i32::from(one != other)))))
}

entries! {
    fn cudaDriverGetVersion(version: *mut i32) -> Code {
        put(version, real::driver_version());
        SUCCESS
    }
    fn cudaRuntimeGetVersion(version: *mut i32) -> Code {
        put(version, real::runtime_version());
        SUCCESS
    }
    fn cudaGetDriverEntryPoint(name: *const c_char, function: *mut u64, _flags: u64, status: *mut i32) -> Code {
        noted(entry_point(name, function, real::runtime_version(), status))
    }
    fn cudaGetDriverEntryPointByVersion(name: *const c_char, function: *mut u64, version: u32, _flags: u64, status: *mut i32) -> Code {
        noted(entry_point(name, function, version as i32, status))
    }
    fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, other: i32) -> Code { noted(peers(can, device, other)) }
    fn cudaDeviceEnablePeerAccess(_device: i32, _flags: u32) -> Code { SUCCESS }
    fn cudaDeviceDisablePeerAccess(_device: i32) -> Code { SUCCESS }
    fn cudaDeviceGetPCIBusId(place: *mut c_char, room: i32, device: i32) -> Code {
        noted(of(checked(device).map(|device| put_text(place, room.max(0) as usize, &bus_address(store::place(device))))))
    }
    fn cudaDeviceGetByPCIBusId(device: *mut i32, address: *const c_char) -> Code {
        let place = text(address).and_then(|address| place_of_bus(address.to_str().ok()?));
        let found = place.and_then(|place| store::visible().iter().position(|visible| *visible == place));
        let Some(found) = found else { return noted(crate::codes::INVALID_DEVICE) };
        put(device, found as i32);
        SUCCESS
    }

    fn cuDriverGetVersion(version: *mut i32) -> Code {
        put(version, real::driver_version());
        SUCCESS
    }
    fn cuGetProcAddress_v2(name: *const c_char, function: *mut u64, version: i32, _flags: u64, status: *mut i32) -> Code {
        entry_point(name, function, version, status)
    }
    /// CUDA 11's version, without a status.
    fn cuGetProcAddress(name: *const c_char, function: *mut u64, version: i32, _flags: u64) -> Code {
        entry_point(name, function, version, std::ptr::null_mut())
    }
    fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, other: i32) -> Code { peers(can, device, other) }
    /// Undocumented tables of functions; this library has none.
    fn cuGetExportTable(table: *mut u64, _number: u64) -> Code {
        put(table, 0);
        NOT_FOUND
    }
}
