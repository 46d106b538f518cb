//! NCCL: what a rank tells the others when it enters a call, and what it receives from them.
//!
//! Calls return at once, as NCCL's do. Known values (see `store/shadow.rs`) are sent to the other ranks. All other
//! values stay unknown and cost nothing.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};

use crate::foreign::{bytes, get, put};
use crate::store::ranks::{Arithmetic, Call, Contribution, Identity, MOST, Pieces, Result as Got, width};
use crate::store::{self, State};
use crate::{costs, launches, memory, ranks};

/// ncclUnhandledCudaError.
const UNHANDLED: i32 = 1;
/// ncclInvalidArgument.
const INVALID: i32 = 4;
/// ncclInvalidUsage.
const MISUSED: i32 = 5;
/// ncclRemoteError.
const REMOTE: i32 = 6;
/// The handle of registered memory; nothing is looked up with it.
const REGISTERED: u64 = 0x5901_0000_0000;
/// The largest data whose values are sent to other ranks, in bytes: larger data are a model's or a batch's.
const LARGEST: u64 = 1 << 20;

/// 128 bytes by which ranks find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

thread_local! {
    /// The depth of open groups, and the communicators that were joined in them.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static JOINED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The message about the last failure.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn failed(sentence: String, code: i32) -> i32 {
    LAST.with_borrow_mut(|last| *last = CString::new(sentence).ok());
    code
}

fn join(place: *mut u64, count: i32, rank: i32, identity: Identity) -> i32 {
    let (Ok(count), Ok(rank)) = (usize::try_from(count), usize::try_from(rank)) else { return INVALID };
    if place.is_null() || rank >= count || count > MOST {
        return INVALID;
    }
    match ranks::join(identity, rank, count, store::current()) {
        Err(sentence) => failed(sentence, INVALID),
        Ok(handle) => {
            if store::lock().take_for_ranks(handle).is_err() {
                leave(handle);
                return failed(
                    "out of memory: the device has too little left for NCCL's buffers".to_owned(),
                    UNHANDLED,
                );
            }
            put(place, handle);
            if DEPTH.get() > 0 {
                JOINED.with_borrow_mut(|joined| joined.push(handle));
                return 0;
            }
            ranks::wait_for_all(handle).map_or_else(|sentence| failed(sentence, REMOTE), |()| 0)
        }
    }
}

fn ask<T>(handle: u64, what: impl FnOnce(&mut store::ranks::Communicator) -> T) -> Option<T> {
    store::lock().ranks.get(handle).map(what)
}

fn answer(handle: u64, place: *mut i32, what: impl FnOnce(&mut store::ranks::Communicator) -> usize) -> i32 {
    ask(handle, what).map_or(INVALID, |number| {
        put(place, number as i32);
        0
    })
}

fn leave(handle: u64) -> i32 {
    if store::lock().leave_ranks(handle) { 0 } else { INVALID }
}

/// The calling rank and the number of ranks, or why the communicator can't be used.
fn me(handle: u64) -> Result<(usize, usize), i32> {
    match ranks::failure(handle) {
        None => Err(INVALID),
        Some(Some(sentence)) => Err(failed(sentence, REMOTE)),
        Some(None) => ask(handle, |known| (known.rank, known.ranks)).ok_or(INVALID),
    }
}

/// The known values of a range.
fn known(state: &State, address: u64, size: u64) -> Pieces {
    if size > LARGEST { Pieces::default() } else { Pieces(state.shadow.pieces(address, size)) }
}

/// Where the result of a call goes.
struct Destination {
    address: u64,
    size: u64,
    stream: u64,
}

/// Puts a call on a stream that sends `sent` bytes to another rank. `act` enters the call; it gets the ticket of the
/// result, if there can be one.
fn put_on(handle: u64, place: &Destination, sent: u64, act: impl FnOnce(&mut State, Option<u64>) -> u64) -> i32 {
    launches::add(1);
    launches::set_last(0);
    let mut state = store::lock();
    let takes = costs::is_sent(sent);
    state.put_on(place.stream, takes);
    if state.streams.get(place.stream).is_some_and(|stream| stream.capture.is_some()) {
        // The call is recorded for later, without its values.
        state.shadow.forget(place.address, place.size);
        return 0;
    }
    let carried = place.size > 0 && place.size <= LARGEST;
    let ticket = carried.then(|| state.ranks.ticket(false));
    let call = act(&mut state, ticket);
    match ticket {
        Some(ticket) => state.shadow.await_others(place.address, place.size, ticket),
        None => state.shadow.forget(place.address, place.size),
    }
    ranks::put_on(&mut state, place.stream, (handle, call), place.size, takes);
    // If the rank is alone, or the last one to enter, the call is complete at once.
    state.poll_ranks();
    0
}

/// A collective: all ranks get to know the bytes at `from`, and `result` describes what arrives at `place`.
fn collective(handle: u64, call: Call, from: Option<(u64, u64)>, place: Destination, result: Got) -> i32 {
    if let Some((address, size)) = from.filter(|(_, size)| *size <= LARGEST) {
        ranks::before_read(address, size, Some(GOES_ON));
    }
    ranks::make_room(handle);
    let ranks = ask(handle, |known| known.ranks as u64).unwrap_or(1).max(1);
    let whole = from.map_or(0, |(_, size)| size).max(place.size);
    let sent = match call {
        // Each rank's part goes round twice: first to be summed, then as the sum.
        Call::AllReduce => 2 * whole / ranks * (ranks - 1),
        Call::Broadcast | Call::Reduce => whole,
        _ => whole / ranks * (ranks - 1),
    };
    put_on(handle, &place, sent, |state, ticket| {
        let given =
            from.map_or(Contribution::Nothing, |(address, size)| Contribution::Known(known(state, address, size)));
        state.ranks.get(handle).map_or(0, |communicator| communicator.enter(call, given, result, ticket, false))
    })
}

/// How long a rank waits for the values that it gives away; then it goes on without them.
const GOES_ON: std::time::Duration = std::time::Duration::from_secs(10);

/// Checks that a number is a rank of a communicator with this many ranks.
fn rank(number: i32, ranks: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|rank| *rank < ranks)
}

/// The body of a call: the calling rank is `$me`, and there are `$ranks` ranks.
macro_rules! with_ranks {
    ($handle:expr, |$me:ident, $ranks:ident| $body:block) => {
        match me($handle) {
            Err(code) => code,
            Ok(($me, $ranks)) => $body,
        }
    };
}

/// A new communicator of some of a communicator's ranks.
fn split(handle: u64, color: i32, key: i32, place: *mut u64) -> i32 {
    let (me, of) = match me(handle) {
        Err(code) => return code,
        Ok(found) => found,
    };
    let mine = [color.to_le_bytes(), key.to_le_bytes()].concat();
    let mut state = store::lock();
    let ticket = state.ranks.ticket(true);
    let Some(communicator) = state.ranks.get(handle) else { return INVALID };
    communicator.children += 1;
    let (identity, child) = (communicator.identity, communicator.children);
    let given = Contribution::Known(Pieces(vec![(0, mine)]));
    communicator.enter(Call::Split, given, Got::Gathered { size: 8 }, Some(ticket), true);
    drop(state);
    let all = ranks::result(ticket);
    let number = |rank: usize, at: u64| {
        let bytes = all.whole(rank as u64 * 8 + at, 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    let words: Option<Vec<(i32, i32)>> = (0..of).map(|rank| Some((number(rank, 0)?, number(rank, 4)?))).collect();
    let Some(words) = words else { return failed("not all ranks came to ncclCommSplit".to_owned(), REMOTE) };
    if color < 0 {
        put(place, 0);
        return 0;
    }
    let mut members: Vec<usize> = (0..of).filter(|rank| words.get(*rank).is_some_and(|word| word.0 == color)).collect();
    members.sort_by_key(|rank| (words.get(*rank).map(|word| word.1), *rank));
    let Some(rank) = members.iter().position(|rank| *rank == me) else { return INVALID };
    let identity = identity.child("split", &[child, color as u64]);
    join(place, members.len() as i32, rank as i32, identity)
}

/// A new communicator without some of a communicator's ranks; those don't call this.
fn shrink(handle: u64, without: *const i32, count: i32, place: *mut u64) -> i32 {
    let found = ask(handle, |known| {
        known.children += 1;
        (known.rank, known.ranks, known.identity, known.children)
    });
    let Some((me, of, identity, child)) = found else { return INVALID };
    let Some(count) = usize::try_from(count).ok().filter(|count| *count < of && !without.is_null()) else {
        return INVALID;
    };
    let excluded: Vec<usize> =
        (0..count).filter_map(|at| get(without.wrapping_add(at)).and_then(|number| rank(number, of))).collect();
    let members: Vec<usize> = (0..of).filter(|rank| !excluded.contains(rank)).collect();
    let Some(rank) = members.iter().position(|rank| *rank == me) else { return INVALID };
    let mut numbers: Vec<u64> = excluded.iter().map(|rank| *rank as u64).collect();
    numbers.push(child);
    join(place, members.len() as i32, rank as i32, identity.child("shrink", &numbers))
}

/// 128 unique bytes.
fn unique() -> UniqueId {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut id = [0; 128];
    for (at, place) in id.chunks_exact_mut(8).enumerate() {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_usize(at);
        hasher.write_u32(std::process::id());
        hasher.write_u128(std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
        place.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    UniqueId(id)
}

entries! {
    fn ncclGetUniqueId(place: *mut UniqueId) -> i32 {
        if place.is_null() {
            return INVALID;
        }
        put(place, unique());
        0
    }
    fn ncclCommInitRank(place: *mut u64, ranks: i32, id: UniqueId, rank: i32) -> i32 { join(place, ranks, rank, Identity::of(&id.0)) }
    fn ncclCommInitRankConfig(place: *mut u64, ranks: i32, id: UniqueId, rank: i32, _configuration: u64) -> i32 {
        join(place, ranks, rank, Identity::of(&id.0))
    }
    fn ncclCommInitRankScalable(place: *mut u64, ranks: i32, rank: i32, count: i32, ids: *const u8, _configuration: u64) -> i32 {
        if ids.is_null() || count < 1 {
            return INVALID;
        }
        join(place, ranks, rank, Identity::of(&bytes(ids, 128)))
    }
    fn ncclCommInitAll(places: *mut u64, count: i32, numbers: *const i32) -> i32 {
        if places.is_null() || !(1..=MOST as i32).contains(&count) {
            return INVALID;
        }
        let (identity, before) = (Identity::of(&unique().0), store::current());
        let join_one = |rank: i32| {
            let named = if numbers.is_null() { None } else { get(numbers.wrapping_add(rank as usize)) };
            let device = named.unwrap_or(rank);
            store::use_device(device.max(0) as usize);
            ranks::join(identity, rank as usize, count as usize, store::current())
        };
        let joined: Result<Vec<u64>, String> = (0..count).map(join_one).collect();
        store::use_device(before);
        match joined {
            Err(sentence) => failed(sentence, INVALID),
            Ok(handles) => {
                handles.into_iter().enumerate().for_each(|(rank, handle)| put(places.wrapping_add(rank), handle));
                0
            }
        }
    }
    fn ncclCommSplit(handle: u64, color: i32, key: i32, place: *mut u64, _configuration: u64) -> i32 { split(handle, color, key, place) }
    fn ncclCommShrink(handle: u64, without: *const i32, count: i32, place: *mut u64, _configuration: u64, _flags: i32) -> i32 {
        shrink(handle, without, count, place)
    }
    fn ncclCommDestroy(handle: u64) -> i32 { leave(handle) }
    fn ncclCommAbort(handle: u64) -> i32 { leave(handle) }
    fn ncclCommFinalize(_handle: u64) -> i32 { 0 }
    fn ncclCommCount(handle: u64, place: *mut i32) -> i32 { answer(handle, place, |known| known.ranks) }
    fn ncclCommUserRank(handle: u64, place: *mut i32) -> i32 { answer(handle, place, |known| known.rank) }
    fn ncclCommCuDevice(handle: u64, place: *mut i32) -> i32 { answer(handle, place, |known| known.device) }
    fn ncclCommGetAsyncError(handle: u64, place: *mut i32) -> i32 {
        match ranks::failure(handle) {
            None => INVALID,
            Some(failure) => {
                put(place, failure.map_or(0, |sentence| failed(sentence, REMOTE)));
                0
            }
        }
    }
    fn ncclGetLastError(_handle: u64) -> *const c_char {
        LAST.with_borrow(|last| last.as_ref().map_or(c"".as_ptr(), |sentence| sentence.as_ptr()))
    }
    fn ncclCommRegister(_handle: u64, _buffer: u64, _size: usize, place: *mut u64) -> i32 {
        put(place, REGISTERED);
        0
    }
    fn ncclCommDeregister(_handle: u64, _registered: u64) -> i32 { 0 }
    fn ncclMemAlloc(place: *mut u64, size: usize) -> i32 { memory::cudaMalloc(place, size) }
    fn ncclMemFree(address: u64) -> i32 { memory::cudaFree(address) }
    fn ncclGroupStart() -> i32 {
        DEPTH.set(DEPTH.get() + 1);
        0
    }
    fn ncclGroupEnd() -> i32 {
        let Some(depth) = DEPTH.get().checked_sub(1) else { return MISUSED };
        DEPTH.set(depth);
        if depth > 0 {
            return 0;
        }
        let joined = JOINED.take();
        let waited: Result<(), String> = joined.into_iter().try_for_each(ranks::wait_for_all);
        waited.map_or_else(|sentence| failed(sentence, REMOTE), |()| 0)
    }
    fn ncclRedOpCreatePreMulSum(place: *mut i32, _factor: u64, _kind: i32, _residence: i32, _handle: u64) -> i32 {
        put(place, 5);
        0
    }
    fn ncclRedOpDestroy(_operation: i32, _handle: u64) -> i32 { 0 }
    fn ncclAllReduce(from: u64, to: u64, count: usize, kind: i32, operation: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |_me, _ranks| {
            let size = (count * width(kind)) as u64;
            let result = Got::Reduced { offset: 0, size, arithmetic: Arithmetic { operation, kind } };
            collective(handle, Call::AllReduce, Some((from, size)), Destination { address: to, size, stream }, result)
        })
    }
    fn ncclReduce(from: u64, to: u64, count: usize, kind: i32, operation: i32, root: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |me, ranks| {
            let Some(root) = rank(root, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            let result = Got::Reduced { offset: 0, size, arithmetic: Arithmetic { operation, kind } };
            let (size_here, result) = if me == root { (size, result) } else { (0, Got::Nothing) };
            collective(handle, Call::Reduce, Some((from, size)), Destination { address: to, size: size_here, stream }, result)
        })
    }
    fn ncclBroadcast(from: u64, to: u64, count: usize, kind: i32, root: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |me, ranks| {
            let Some(root) = rank(root, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            let result = Got::Of { rank: root, offset: 0, size };
            collective(handle, Call::Broadcast, (me == root).then_some((from, size)), Destination { address: to, size, stream }, result)
        })
    }
    fn ncclBcast(buffer: u64, count: usize, kind: i32, root: i32, handle: u64, stream: u64) -> i32 {
        ncclBroadcast(buffer, buffer, count, kind, root, handle, stream)
    }
    fn ncclAllGather(from: u64, to: u64, count: usize, kind: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |_me, ranks| {
            let size = (count * width(kind)) as u64;
            let place = Destination { address: to, size: size * ranks as u64, stream };
            collective(handle, Call::AllGather, Some((from, size)), place, Got::Gathered { size })
        })
    }
    fn ncclReduceScatter(from: u64, to: u64, count: usize, kind: i32, operation: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |me, ranks| {
            let size = (count * width(kind)) as u64;
            let result = Got::Reduced { offset: me as u64 * size, size, arithmetic: Arithmetic { operation, kind } };
            collective(handle, Call::ReduceScatter, Some((from, size * ranks as u64)), Destination { address: to, size, stream }, result)
        })
    }
    fn ncclAlltoAll(from: u64, to: u64, count: usize, kind: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |_me, ranks| {
            let size = (count * width(kind)) as u64;
            let all = size * ranks as u64;
            collective(handle, Call::AllToAll, Some((from, all)), Destination { address: to, size: all, stream }, Got::Exchanged { size })
        })
    }
    fn ncclGather(from: u64, to: u64, count: usize, kind: i32, root: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |me, ranks| {
            let Some(root) = rank(root, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            let here = me == root;
            let place = Destination { address: to, size: if here { size * ranks as u64 } else { 0 }, stream };
            collective(handle, Call::Gather, Some((from, size)), place, if here { Got::Gathered { size } } else { Got::Nothing })
        })
    }
    fn ncclScatter(from: u64, to: u64, count: usize, kind: i32, root: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |me, ranks| {
            let Some(root) = rank(root, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            let result = Got::Of { rank: root, offset: me as u64 * size, size };
            let from = (me == root).then_some((from, size * ranks as u64));
            collective(handle, Call::Scatter, from, Destination { address: to, size, stream }, result)
        })
    }
    fn ncclSend(from: u64, count: usize, kind: i32, peer: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |_me, ranks| {
            let Some(peer) = rank(peer, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            if size <= LARGEST {
                ranks::before_read(from, size, Some(GOES_ON));
            }
            ranks::make_room(handle);
            put_on(handle, &Destination { address: 0, size: 0, stream }, size, |state, _| {
                let pieces = known(state, from, size);
                state.ranks.get(handle).map_or(0, |communicator| communicator.send(peer, &pieces))
            })
        })
    }
    fn ncclRecv(to: u64, count: usize, kind: i32, peer: i32, handle: u64, stream: u64) -> i32 {
        with_ranks!(handle, |_me, ranks| {
            let Some(peer) = rank(peer, ranks) else { return INVALID };
            let size = (count * width(kind)) as u64;
            ranks::make_room(handle);
            put_on(handle, &Destination { address: to, size, stream }, size, |state, ticket| {
                state.ranks.get(handle).map_or(0, |communicator| communicator.receive(peer, size, ticket))
            })
        })
    }
}
