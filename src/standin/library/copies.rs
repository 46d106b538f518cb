//! Copies and fills. Values that come from the host are remembered; a copy to the host gets the remembered values.

use crate::codes::{Code, SUCCESS};
use crate::foreign::{bytes, copy as copy_on_host, fill, zero};
use crate::memory::{PointerKind, kind};
use crate::{answers, costs, launches, ranks, store, system};

/// From this many bytes on, host pages are given back to the system instead of being filled with zeros.
const MANY: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Copies between any two addresses.
pub fn copy(to: u64, from: u64, size: usize) {
    if size == 0 {
        return;
    }
    let on_device = |address| matches!(kind(address), PointerKind::Device(_));
    match (on_device(to), on_device(from)) {
        (false, false) => copy_on_host(to as *mut u8, from as *const u8, size),
        (true, false) => {
            // Larger values are not remembered, so they need not be read.
            let known = if size <= 64 << 10 { bytes(from as *const u8, size) } else { Vec::new() };
            let mut state = store::lock();
            state.shadow.forget(to, size as u64);
            if !known.is_empty() {
                state.shadow.write(to, known);
            }
            // A copy before the first kernel moves a model to the device.
            if let Some(number) = state.device_of(to)
                && let Some(device) = state.devices.get_mut(number)
                && device.launches == 0
            {
                device.space.release_host(size as u64);
            }
        }
        (true, true) => {
            // Values that other ranks still owe to the source, they also owe to the copy.
            store::lock().shadow.carry(to, from, size as u64);
        }
        (false, true) => {
            if let Some(answer) = answers::take(size) {
                return copy_on_host(to as *mut u8, answer.as_ptr(), size);
            }
            blank(to, size as u64);
            ranks::before_read(from, size as u64, None);
            store::lock().shadow.read(from, size as u64, |at, piece| {
                copy_on_host((to + at) as *mut u8, piece.as_ptr(), piece.len());
            });
        }
    }
}

/// Zeroes host memory. If whole pages belong to this process alone, they are given back to the system, so that they
/// take no memory.
fn blank(to: u64, size: u64) {
    let (first, last) = (to.next_multiple_of(PAGE), (to + size) / PAGE * PAGE);
    if size < MANY || first >= last || !is_private(first, last) || !system::forget_pages(first, last - first) {
        return zero(to as *mut u8, size as usize);
    }
    zero(to as *mut u8, (first - to) as usize);
    zero(last as *mut u8, (to + size - last) as usize);
}

/// Whether pages are in one mapping that has no file and belongs to this process alone.
fn is_private(first: u64, last: u64) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let ends = range
            .and_then(|(start, end)| Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?)));
        let (access, file) = (words.next().unwrap_or_default(), words.nth(2).unwrap_or_default());
        ends.is_some_and(|(start, end)| start <= first && last <= end) && access.ends_with('p') && file == "0"
    })
}

/// Fills memory. On a device, a kernel does this.
fn set(to: u64, value: i32, size: usize, stream: u64) -> Code {
    if !matches!(kind(to), PointerKind::Device(_)) {
        fill(to as *mut u8, value as u8, size);
        return SUCCESS;
    }
    let mut state = store::lock();
    state.shadow.forget(to, size as u64);
    if size <= 64 << 10 {
        state.shadow.write(to, vec![value as u8; size]);
    }
    state.put_on(stream, costs::moves(size as u64));
    drop(state);
    launches::set_last(0);
    SUCCESS
}

fn rows(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize) -> Code {
    for row in 0..height {
        copy(to + (row * to_pitch) as u64, from + (row * from_pitch) as u64, width);
    }
    SUCCESS
}

/// A copy on a stream.
fn copied(to: u64, from: u64, size: usize, stream: u64) -> Code {
    let on_device = |address| matches!(kind(address), PointerKind::Device(_));
    let time = match (on_device(to), on_device(from)) {
        (false, false) => 0,
        (true, true) => costs::moves(2 * size as u64),
        _ => costs::crosses(size as u64),
    };
    store::lock().put_on(stream, time);
    copy(to, from, size);
    SUCCESS
}

/// A copy for which the host waits.
fn copied_now(to: u64, from: u64, size: usize) -> Code {
    copied(to, from, size, 0);
    let _ = ranks::wait_for_stream(0);
    SUCCESS
}

entries! {
    fn cudaMemcpy(to: u64, from: u64, size: usize, _kind: i32) -> Code { copied_now(to, from, size) }
    fn cudaMemcpyAsync(to: u64, from: u64, size: usize, _kind: i32, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cudaMemcpyPeer(to: u64, _to_device: i32, from: u64, _from_device: i32, size: usize) -> Code { copied_now(to, from, size) }
    fn cudaMemcpyPeerAsync(to: u64, _to_device: i32, from: u64, _from_device: i32, size: usize, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: i32) -> Code {
        rows(to, to_pitch, from, from_pitch, width, height)
    }
    fn cudaMemcpy2DAsync(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: i32, _stream: u64) -> Code {
        rows(to, to_pitch, from, from_pitch, width, height)
    }
    fn cudaMemset(to: u64, value: i32, size: usize) -> Code { set(to, value, size, 0) }
    fn cudaMemsetAsync(to: u64, value: i32, size: usize, stream: u64) -> Code { set(to, value, size, stream) }

    fn cuMemcpy(to: u64, from: u64, size: usize) -> Code { copied_now(to, from, size) }
    fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) -> Code { copied_now(to, from, size) }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) -> Code { copied_now(to, from, size) }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) -> Code { copied_now(to, from, size) }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) -> Code { copied(to, from, size, stream) }
    fn cuMemsetD8_v2(to: u64, value: u8, size: usize) -> Code { set(to, i32::from(value), size, 0) }
    fn cuMemsetD8Async(to: u64, value: u8, size: usize, stream: u64) -> Code { set(to, i32::from(value), size, stream) }
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> Code { set_words(to, value, count, 0) }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) -> Code { set_words(to, value, count, stream) }
}

fn set_words(to: u64, value: u32, count: usize, stream: u64) -> Code {
    let size = count.saturating_mul(4);
    if let PointerKind::Device(_) = kind(to) {
        let words = if size <= 64 << 10 { value.to_ne_bytes().repeat(count) } else { Vec::new() };
        let mut state = store::lock();
        state.shadow.forget(to, size as u64);
        if !words.is_empty() {
            state.shadow.write(to, words);
        }
        state.put_on(stream, costs::moves(size as u64));
        drop(state);
        launches::set_last(0);
    } else {
        let words = value.to_ne_bytes().repeat(count);
        copy_on_host(to as *mut u8, words.as_ptr(), words.len());
    }
    SUCCESS
}
