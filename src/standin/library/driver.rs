//! The driver's functions about devices and about its own result codes.

use std::ffi::c_char;

use crate::attributes::value;
use crate::card::Card;
use crate::codes::{self, Code, INVALID_DEVICE, NO_DEVICE, SUCCESS, of};
use crate::foreign::{copy, put, put_text, text};
use crate::runtime::{bus_address, place_of_bus};
use crate::store::{self, checked};

fn ask(device: i32, tell: impl FnOnce(usize, &Card)) -> Code {
    of(checked(device).and_then(|device| Card::get().map(|card| tell(device, card)).ok_or(NO_DEVICE)))
}

entries! {
    fn cuDeviceGetCount(count: *mut i32) -> Code {
        put(count, store::count() as i32);
        SUCCESS
    }
    fn cuDeviceGet(device: *mut i32, number: i32) -> Code { ask(number, |_, _| put(device, number)) }
    fn cuDeviceGetName(place: *mut c_char, room: i32, device: i32) -> Code {
        ask(device, |_, card| put_text(place, room.max(0) as usize, &card.title))
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> Code { ask(device, |_, card| put(bytes, card.memory as usize)) }
    fn cuDeviceGetUuid(place: *mut u8, device: i32) -> Code {
        ask(device, |device, _| copy(place, store::uuid(store::place(device)).as_ptr(), 16))
    }
    fn cuDeviceGetUuid_v2(place: *mut u8, device: i32) -> Code { cuDeviceGetUuid(place, device) }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) -> Code {
        ask(device, |_, card| {
            put(major, card.major());
            put(minor, card.minor());
        })
    }
    fn cuDeviceGetProperties(place: *mut [i32; 15], device: i32) -> Code {
        let attributes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        ask(device, |device, card| {
            attributes.iter().enumerate().for_each(|(at, attribute)| {
                put(place.cast::<i32>().wrapping_add(at), value(card, *attribute, device));
            });
        })
    }
    fn cuDeviceGetPCIBusId(place: *mut c_char, room: i32, device: i32) -> Code {
        ask(device, |device, _| put_text(place, room.max(0) as usize, &bus_address(store::place(device))))
    }
    fn cuDeviceGetByPCIBusId(device: *mut i32, address: *const c_char) -> Code {
        let place = text(address).and_then(|address| place_of_bus(address.to_str().ok()?));
        let found = place.and_then(|place| store::visible().iter().position(|visible| *visible == place));
        let Some(found) = found else { return INVALID_DEVICE };
        put(device, found as i32);
        SUCCESS
    }
    fn cuGetErrorString(code: Code, sentence: *mut *const c_char) -> Code {
        put(sentence, codes::sentence(code).as_ptr());
        SUCCESS
    }
    fn cuGetErrorName(code: Code, name: *mut *const c_char) -> Code {
        put(name, codes::name(code).as_ptr());
        SUCCESS
    }
}
