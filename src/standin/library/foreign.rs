//! Reading and writing through pointers that a program gave.

use std::ffi::{CStr, c_char};
use std::ptr;

/// Writes where a program wants a result; nowhere, where it wants none.
pub fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the interface makes the caller pass a place for one `T`; unaligned ones cost nothing.
        unsafe { ptr::write_unaligned(place, value) }
    }
}

/// Reads what a program points at.
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

/// Bytes of the host.
pub fn bytes(from: *const u8, bytes: usize) -> Vec<u8> {
    let mut copied = vec![0; bytes];
    copy(copied.as_mut_ptr(), from, bytes);
    copied
}

/// Writes a text and its end into `room` bytes, cut off where it is longer.
pub fn put_text(place: *mut c_char, room: usize, text: &str) {
    let Some(most) = room.checked_sub(1) else { return };
    let text = text.as_bytes();
    let length = text.len().min(most);
    copy(place.cast(), text.as_ptr(), length);
    put(place.wrapping_add(length), 0);
}

/// A text of a program.
pub fn text<'a>(place: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the interface makes the caller pass a text with its end, which outlives the call.
    (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) })
}
