//! Waits for other ranks. The host waits only where it would wait on a card, too: for the work of a stream, or for a
//! value that it reads.
//!
//! No wait is for ever. A rank whose process has ended is reported at once, and a rank that does not come is reported
//! after a while and given up in the end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::codes::{Code, LAUNCH_FAILED, SUCCESS};
use crate::store::ranks::{AbsentRanks, Communicator, Identity, JoinError, Meeting, Pieces, Point};
use crate::store::{self, State, StateGuard};
use crate::watchdog;

/// After this many seconds, a message says that a rank is waited for. `VRAMLAB_STANDIN_PATIENCE` sets another number.
const PATIENCE: u64 = 60;
/// After this many times as long, the rank is given up. PyTorch's own watchdog ends the program earlier.
const GIVEN_UP: u32 = 30;
/// How often a waiting rank checks that the other ranks' processes still exist.
const LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two looks at the other ranks' counters.
const REST: Duration = Duration::from_micros(500);

/// Whether there is a communicator of several ranks; if not, nothing is ever waited for.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Whether there can be another rank to wait for.
pub fn are_several() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Number of threads that wait for other ranks.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether the host waits for other ranks; the card's clock stands still meanwhile.
pub fn are_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

/// Counts a thread as waiting until it is dropped.
struct WaitGuard;

impl WaitGuard {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn patience() -> Duration {
    static SECONDS: OnceLock<u64> = OnceLock::new();
    let given = || std::env::var("VRAMLAB_STANDIN_PATIENCE").ok()?.parse().ok().filter(|seconds| *seconds > 0);
    Duration::from_secs(*SECONDS.get_or_init(|| given().unwrap_or(PATIENCE)))
}

/// Pauses that become longer and longer.
struct Rests(u32);

impl Rests {
    fn rest(&mut self) {
        self.0 += 1;
        match self.0 {
            ..16 => thread::yield_now(),
            rests => thread::sleep((Duration::from_micros(10) * (rests - 15)).min(REST)),
        }
    }
}

fn say(sentence: &str) {
    eprintln!("vramlab: {sentence}");
}

/// Ranks with their processes, as text for people.
fn named(meeting: &Meeting, ranks: &[usize]) -> String {
    let one = |rank: &usize| match meeting.pid(*rank) {
        0 => format!("rank {rank}"),
        pid => format!("rank {rank} (process {pid})"),
    };
    ranks.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What a rank did last, as text.
fn last(meeting: &Meeting, rank: usize) -> String {
    match (meeting.last_call(rank), meeting.entered(rank)) {
        (Some(call), entered) if entered > 0 => format!("its last collective is {} number {entered}", call.name()),
        _ => "it has entered no collective".to_owned(),
    }
}

fn what(communicator: &Communicator, missing: &AbsentRanks) -> String {
    format!("{} number {} of a communicator of {} ranks", missing.call.name(), missing.number, communicator.ranks)
}

/// A message about a rank that does not come. If it never will, the communicator fails.
fn look(communicator: &mut Communicator, waited: Duration) -> Option<String> {
    let me = communicator.rank;
    if communicator.failed.is_some() {
        return None;
    }
    let meeting = communicator.meeting.as_ref()?;
    if let Some((rank, missing)) = communicator.lost() {
        let whom = named(meeting, &[rank]);
        let how = if meeting.has_left(rank) { "has left" } else { "has ended" };
        let sentence = format!("{whom} {how}: rank {me} can't go on with {}", what(communicator, &missing));
        communicator.failed = Some(sentence.clone());
        return Some(sentence);
    }
    let missing = communicator.missing()?;
    if waited >= patience() * GIVEN_UP {
        let whom = named(meeting, &missing.ranks);
        let sentence = format!("rank {me} gives up {}: {whom} did not come", what(communicator, &missing));
        communicator.failed = Some(sentence.clone());
        return Some(sentence);
    }
    if waited < patience() || communicator.told {
        return None;
    }
    let first = missing.ranks.first().copied().unwrap_or_default();
    let sentence = format!(
        "rank {me} has waited {} s in {} for {}; of rank {first} {}. On a card it would wait, too",
        waited.as_secs(),
        what(communicator, &missing),
        named(meeting, &missing.ranks),
        last(meeting, first)
    );
    communicator.told = true;
    Some(sentence)
}

/// Reads what other ranks have sent, and returns whether everything up to a point is done.
fn is_reached(state: &mut State, point: &Point) -> bool {
    state.poll_ranks();
    state.ranks.is_done(point)
}

/// Waits until everything up to a point is done or given up. Returns false if that takes longer than `most`.
fn wait_until(point: &Point, most: Option<Duration>) -> Result<bool, String> {
    let (begin, mut looked, mut rests) = (Instant::now(), Instant::now(), Rests(0));
    let _waits = WaitGuard::begin();
    loop {
        let mut state = store::lock();
        if is_reached(&mut state, point) {
            return match point.keys().find_map(|handle| state.ranks.get(*handle)?.failed.clone()) {
                Some(sentence) => Err(sentence),
                None => Ok(true),
            };
        }
        if most.is_some_and(|most| begin.elapsed() >= most) {
            return Ok(false);
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let sentences: Vec<_> =
                point.keys().filter_map(|handle| look(state.ranks.get(*handle)?, begin.elapsed())).collect();
            sentences.iter().for_each(|sentence| say(sentence));
        }
        drop(state);
        rests.rest();
    }
}

fn code(waited: Result<bool, String>) -> Code {
    if waited.is_ok() { SUCCESS } else { LAUNCH_FAILED }
}

/// Notes that a call about `size` bytes was put on a stream.
pub fn put_on(state: &mut State, stream: u64, call: (u64, u64), size: u64, takes: u64) {
    let queue = state.queue(stream);
    state.ranks.put_on(queue, call, takes, size > LARGE && are_several(), &state.clock);
}

/// From this many bytes on, a call is no barrier, and carries no sizes or flags.
const LARGE: u64 = 64 << 10;

/// The code for the end of a wait. The host goes on.
fn went_on(waited: Result<bool, String>, state: StateGuard) -> Code {
    watchdog::host_went_on(state);
    code(waited)
}

/// Makes the host wait for a stream.
pub fn wait_for_stream(stream: u64) -> Code {
    let state = store::lock();
    let (device, stream) = state.queue(stream);
    let waited = wait_for(state.ranks.of_stream(device, stream), state);
    let mut state = store::lock();
    let end = state.clock.end(device, stream);
    state.clock.wait(end);
    went_on(waited, state)
}

/// Makes the host wait for its device.
pub fn wait_for_device() -> Code {
    let state = store::lock();
    let waited = wait_for(state.ranks.of_device(store::current()), state);
    let mut state = store::lock();
    let end = state.clock.end_of_device(store::current());
    state.clock.wait(end);
    went_on(waited, state)
}

/// Makes the host wait for an event.
pub fn wait_for_event(event: u64) -> Code {
    let state = store::lock();
    let waited = wait_for(state.ranks.of_event(event), state);
    let mut state = store::lock();
    let done = state.events.get(event).map_or(0, |event| event.done);
    state.clock.wait(done);
    went_on(waited, state)
}

/// Makes the host wait for other ranks, if there are any.
fn wait_for(point: Point, state: StateGuard) -> Result<bool, String> {
    drop(state);
    if are_several() { wait_until(&point, None) } else { Ok(true) }
}

/// Whether a stream has finished all its work.
pub fn is_stream_done(stream: u64) -> bool {
    let mut state = store::lock();
    let (device, stream) = state.queue(stream);
    let point = state.ranks.of_stream(device, stream);
    if are_several() && !is_reached(&mut state, &point) {
        return false;
    }
    let end = state.clock.end(device, stream);
    state.clock.ask(end)
}

/// Whether other ranks have reached an event, too.
pub fn have_reached(state: &mut State, event: u64) -> bool {
    let point = state.ranks.of_event(event);
    !are_several() || is_reached(state, &point)
}

/// Notes that an event was recorded on a stream.
pub fn recorded(state: &mut State, event: u64, (device, stream): (usize, u64)) {
    if are_several() {
        state.ranks.record(event, device, stream, &state.clock);
    }
}

/// Notes that a stream waits for an event.
pub fn waits(state: &mut State, stream: u64, event: u64) {
    if are_several() {
        let (device, stream) = state.queue(stream);
        state.ranks.wait(device, stream, event, &state.clock);
    }
}

/// Called before a range is read: if other ranks owe values of it, waits for them. `most` is the longest wait of a
/// reader that can go on without.
pub fn before_read(address: u64, size: u64, most: Option<Duration>) {
    if !are_several() {
        return;
    }
    let state = store::lock();
    if !state.shadow.is_awaited(address, size) {
        return;
    }
    let device = state.device_of(address).unwrap_or_else(store::current);
    let point = state.ranks.of_device(device);
    drop(state);
    // If a rank does not come, the values stay unknown; the next read reports it.
    let _ = wait_until(&point, most);
}

/// Waits for the result with this ticket, and returns its pieces by their offsets.
pub fn result(ticket: u64) -> Pieces {
    loop {
        let mut locked = store::lock();
        let point = locked.ranks.all();
        locked.poll_ranks();
        if let Some(pieces) = locked.ranks.result(ticket) {
            return pieces;
        }
        drop(locked);
        if wait_until(&point, Some(LOOK)).is_err() {
            return Pieces::default();
        }
    }
}

/// Makes room for one more call on a communicator.
pub fn make_room(handle: u64) {
    let oldest = store::lock().ranks.get(handle).and_then(|known| known.oldest_of_too_many());
    if let Some(oldest) = oldest {
        // If a rank does not come, the next call reports it.
        let _ = wait_until(&Point::from([(handle, oldest)]), None);
    }
}

/// The state of a communicator: a message if it has failed.
pub fn failure(handle: u64) -> Option<Option<String>> {
    let mut state = store::lock();
    if !state.ranks.get(handle)?.is_due(LOOK) {
        return Some(state.ranks.get(handle)?.failed.clone());
    }
    state.poll_ranks();
    let communicator = state.ranks.get(handle)?;
    // The time of the wait is unknown here, so only ended ranks are reported.
    if let Some(sentence) = look(communicator, Duration::ZERO) {
        say(&sentence);
    }
    Some(communicator.failed.clone())
}

/// Joins a communicator, and returns its handle.
pub fn join(identity: Identity, rank: usize, ranks: usize, device: usize) -> Result<u64, String> {
    let meeting = if ranks == 1 {
        None
    } else {
        let claimed = Meeting::claim(identity, rank, ranks).map_err(|claim| match claim {
            JoinError::Ranks(others) => {
                format!("rank {rank} wants a communicator of {ranks} ranks where the others have {others}")
            }
            JoinError::Taken(pid) => format!("rank {rank} of {ranks} is taken already, by process {pid}"),
            JoinError::File(error) => format!("the ranks of a communicator can't meet: {error}"),
        });
        Some(claimed.inspect_err(|sentence| say(sentence))?)
    };
    if meeting.is_some() {
        SHARED.store(true, Ordering::Relaxed);
    }
    Ok(store::lock().ranks.add(Communicator::new(identity, rank, ranks, device, meeting)))
}

/// Waits until all ranks of a communicator have joined.
pub fn wait_for_all(handle: u64) -> Result<(), String> {
    let _waits = WaitGuard::begin();
    let (begin, mut looked, mut rests, mut told) = (Instant::now(), Instant::now(), Rests(0), false);
    loop {
        let mut state = store::lock();
        let Some(communicator) = state.ranks.get(handle) else { return Err("the communicator is gone".to_owned()) };
        let (rank, ranks) = (communicator.rank, communicator.ranks);
        let Some(meeting) = &mut communicator.meeting else { return Ok(()) };
        if meeting.is_complete() {
            return Ok(());
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let came = |other: &usize| meeting.has_come(*other);
            let gone = (0..ranks).filter(came).find(|other| *other != rank && !meeting.is_here(*other));
            let absent: Vec<usize> = (0..ranks).filter(|other| !came(other)).collect();
            let waited = begin.elapsed();
            let sentence = match gone {
                Some(other) => format!("{} has ended before all {ranks} ranks had met", named(meeting, &[other])),
                None if waited >= patience() * GIVEN_UP => {
                    format!("rank {rank} gives up: {} of {ranks} did not come", named(meeting, &absent))
                }
                None => {
                    if waited >= patience() && !told {
                        told = true;
                        say(&format!(
                            "rank {rank} has waited {} s for {} of {ranks} to come to ncclCommInitRank",
                            waited.as_secs(),
                            named(meeting, &absent)
                        ));
                    }
                    drop(state);
                    rests.rest();
                    continue;
                }
            };
            say(&sentence);
            communicator.failed = Some(sentence.clone());
            return Err(sentence);
        }
        drop(state);
        rests.rest();
    }
}
