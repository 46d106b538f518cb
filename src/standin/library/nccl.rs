//! NCCL: each rank goes on by itself, as if all others had the same.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use crate::copies::copy;
use crate::foreign::{bytes, put};
use crate::{launches, memory, store};

/// ncclInvalidArgument.
const INVALID: i32 = 4;
const FIRST: u64 = 0x5900_0000_0000;

/// One rank's end of a communicator.
#[derive(Clone, Copy, Debug)]
struct Communicator {
    rank: i32,
    ranks: i32,
    device: usize,
}

/// The ends that this process has, and a number for the next.
static COMMUNICATORS: Mutex<Option<(u64, HashMap<u64, Communicator>)>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut u64, &mut HashMap<u64, Communicator>) -> T) -> T {
    let mut all = COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let (count, all) = all.get_or_insert_with(Default::default);
    act(count, all)
}

fn join(place: *mut u64, ranks: i32, rank: i32, device: usize) -> i32 {
    if place.is_null() || !(0..ranks).contains(&rank) {
        return INVALID;
    }
    with(|count, all| {
        *count += 1;
        let handle = FIRST + *count * 256;
        all.insert(handle, Communicator { rank, ranks, device });
        put(place, handle);
    });
    0
}

fn known(handle: u64) -> Option<Communicator> {
    with(|_, all| all.get(&handle).copied())
}

fn ask(handle: u64, place: *mut i32, what: impl FnOnce(Communicator) -> i32) -> i32 {
    known(handle).map_or(INVALID, |communicator| {
        put(place, what(communicator));
        0
    })
}

fn leave(handle: u64) -> i32 {
    with(|_, all| all.remove(&handle).map_or(INVALID, |_| 0))
}

/// Bytes of ncclDataType_t.
fn width(kind: i32) -> usize {
    match kind {
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        6 | 9 => 2,
        _ => 1,
    }
}

/// A collective whose result is what this rank gave.
fn same(from: u64, to: u64, count: usize, kind: i32) -> i32 {
    if from != to && from != 0 && to != 0 {
        copy(to, from, count * width(kind));
    }
    launches::add(1);
    0
}

/// 128 bytes that ranks find each other by.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

entries! {
    fn ncclGetUniqueId(place: *mut UniqueId) -> i32 {
        put(place, UniqueId([7; 128]));
        0
    }
    fn ncclCommInitRank(place: *mut u64, ranks: i32, _id: UniqueId, rank: i32) -> i32 { join(place, ranks, rank, store::current()) }
    fn ncclCommInitRankConfig(place: *mut u64, ranks: i32, _id: UniqueId, rank: i32, _configuration: u64) -> i32 { join(place, ranks, rank, store::current()) }
    fn ncclCommInitRankScalable(place: *mut u64, ranks: i32, rank: i32, _ids: i32, _id: u64, _configuration: u64) -> i32 { join(place, ranks, rank, store::current()) }
    fn ncclCommInitAll(places: *mut u64, ranks: i32, numbers: *const i32) -> i32 {
        let devices: Vec<i32> = if numbers.is_null() {
            (0..ranks).collect()
        } else {
            bytes(numbers.cast(), ranks.max(0) as usize * 4).chunks_exact(4).map(|four| i32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect()
        };
        for (rank, device) in devices.into_iter().enumerate() {
            let code = join(places.wrapping_add(rank), ranks, rank as i32, device.max(0) as usize);
            if code != 0 {
                return code;
            }
        }
        0
    }
    fn ncclCommSplit(handle: u64, color: i32, key: i32, place: *mut u64, _configuration: u64) -> i32 {
        let Some(communicator) = known(handle) else { return INVALID };
        if color < 0 {
            put(place, 0);
            return 0;
        }
        join(place, communicator.ranks, key.clamp(0, communicator.ranks - 1), communicator.device)
    }
    fn ncclCommDestroy(handle: u64) -> i32 { leave(handle) }
    fn ncclCommAbort(handle: u64) -> i32 { leave(handle) }
    fn ncclCommFinalize(_handle: u64) -> i32 { 0 }
    fn ncclCommCount(handle: u64, place: *mut i32) -> i32 { ask(handle, place, |communicator| communicator.ranks) }
    fn ncclCommUserRank(handle: u64, place: *mut i32) -> i32 { ask(handle, place, |communicator| communicator.rank) }
    fn ncclCommCuDevice(handle: u64, place: *mut i32) -> i32 { ask(handle, place, |communicator| communicator.device as i32) }
    fn ncclCommGetAsyncError(_handle: u64, place: *mut i32) -> i32 {
        put(place, 0);
        0
    }
    fn ncclGetLastError(_handle: u64) -> *const c_char { c"".as_ptr() }
    fn ncclCommRegister(_handle: u64, _buffer: u64, _size: usize, place: *mut u64) -> i32 {
        put(place, FIRST);
        0
    }
    fn ncclCommDeregister(_handle: u64, _registered: u64) -> i32 { 0 }
    fn ncclMemAlloc(place: *mut u64, size: usize) -> i32 { memory::cudaMalloc(place, size) }
    fn ncclMemFree(address: u64) -> i32 { memory::cudaFree(address) }
    fn ncclGroupStart() -> i32 { 0 }
    fn ncclGroupEnd() -> i32 { 0 }
    fn ncclRedOpCreatePreMulSum(place: *mut i32, _factor: u64, _kind: i32, _residence: i32, _handle: u64) -> i32 {
        put(place, 5);
        0
    }
    fn ncclRedOpDestroy(_operation: i32, _handle: u64) -> i32 { 0 }
    fn ncclAllReduce(from: u64, to: u64, count: usize, kind: i32, _operation: i32, _handle: u64, _stream: u64) -> i32 { same(from, to, count, kind) }
    fn ncclReduce(from: u64, to: u64, count: usize, kind: i32, _operation: i32, _root: i32, _handle: u64, _stream: u64) -> i32 { same(from, to, count, kind) }
    fn ncclBroadcast(from: u64, to: u64, count: usize, kind: i32, _root: i32, _handle: u64, _stream: u64) -> i32 { same(from, to, count, kind) }
    fn ncclBcast(_buffer: u64, _count: usize, _kind: i32, _root: i32, _handle: u64, _stream: u64) -> i32 { 0 }
    fn ncclAllGather(from: u64, to: u64, count: usize, kind: i32, handle: u64, _stream: u64) -> i32 {
        let Some(communicator) = known(handle) else { return INVALID };
        let size = count * width(kind);
        for rank in 0..communicator.ranks as u64 {
            let place = to + rank * size as u64;
            if place != from {
                copy(place, from, size);
            }
        }
        launches::add(1);
        0
    }
    fn ncclReduceScatter(from: u64, to: u64, count: usize, kind: i32, _operation: i32, handle: u64, _stream: u64) -> i32 {
        let Some(communicator) = known(handle) else { return INVALID };
        let size = count * width(kind);
        copy(to, from + communicator.rank as u64 * size as u64, size);
        launches::add(1);
        0
    }
    fn ncclAlltoAll(from: u64, to: u64, count: usize, kind: i32, handle: u64, _stream: u64) -> i32 {
        let Some(communicator) = known(handle) else { return INVALID };
        same(from, to, count * communicator.ranks.max(1) as usize, kind)
    }
    fn ncclSend(_from: u64, _count: usize, _kind: i32, _peer: i32, _handle: u64, _stream: u64) -> i32 {
        launches::add(1);
        0
    }
    fn ncclRecv(to: u64, count: usize, kind: i32, _peer: i32, _handle: u64, _stream: u64) -> i32 {
        store::lock().shadow.forget(to, (count * width(kind)) as u64);
        launches::add(1);
        0
    }
}
