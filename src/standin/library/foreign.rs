//! Reads and writes through pointers that come from the program.

use std::ffi::{CStr, c_char};
use std::ptr;

/// Writes a result to the program's pointer, unless that is null.
pub fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the interface makes the caller pass a place for one `T`; unaligned ones cost nothing.
        unsafe { ptr::write_unaligned(place, value) }
    }
}

/// Reads the value at a program's pointer.
pub fn get<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: the interface makes the caller pass a `T`.
    (!place.is_null()).then(|| unsafe { ptr::read_unaligned(place) })
}

/// Zeroes `bytes` bytes of the host.
pub fn zero(place: *mut u8, bytes: usize) {
    fill(place, 0, bytes);
}

/// Fills `bytes` bytes of the host.
pub fn fill(place: *mut u8, value: u8, bytes: usize) {
    if !place.is_null() {
        // SAFETY: the interface makes the caller pass so many bytes.
        unsafe { ptr::write_bytes(place, value, bytes) }
    }
}

/// Copies within the host.
pub fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    if !to.is_null() && !from.is_null() {
        // SAFETY: the interface makes the caller pass so many bytes at both ends; they may overlap.
        unsafe { ptr::copy(from, to, bytes) }
    }
}

/// Reads bytes of the host.
pub fn bytes(from: *const u8, bytes: usize) -> Vec<u8> {
    let mut copied = vec![0; bytes];
    copy(copied.as_mut_ptr(), from, bytes);
    copied
}

/// Writes a text with its terminator into `room` bytes; a longer text is cut off.
pub fn put_text(place: *mut c_char, room: usize, text: &str) {
    let Some(most) = room.checked_sub(1) else { return };
    let text = text.as_bytes();
    let length = text.len().min(most);
    copy(place.cast(), text.as_ptr(), length);
    put(place.wrapping_add(length), 0);
}

/// The text at a program's pointer.
pub fn text<'a>(place: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the interface makes the caller pass a text with its end, which outlives the call.
    (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) })
}
