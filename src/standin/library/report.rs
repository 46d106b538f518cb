//! The counts of this process, in a file that its parent reads, even if the process was killed.
//!
//! The file is an array of numbers; `standin/counts.rs` reads it. Without a folder for it nothing is counted.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::card::Card;
use crate::names;
use crate::system;

/// The file's first number.
const MAGIC: u64 = u64::from_le_bytes(*b"VRLCNT01");

/// The numbers before those of the generated entry points.
#[derive(Clone, Copy)]
#[repr(usize)]
enum HeaderSlot {
    Magic,
    Entries,
    Launches,
    UnknownReads,
    RuledReads,
    Pinned,
    PinnedPeak,
    UsedPeak,
    EstimatedWorkspaces,
    First,
}

static NUMBERS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
static SAID: AtomicBool = AtomicBool::new(false);

/// All numbers.
fn numbers() -> Option<&'static [AtomicU64]> {
    static ONCE: Once = Once::new();
    ONCE.call_once(open);
    let numbers = NUMBERS.load(Ordering::Acquire);
    let length = HeaderSlot::First as usize + names::NAMES.len();
    // SAFETY: the file was mapped with so many numbers, and stays.
    (!numbers.is_null()).then(|| unsafe { std::slice::from_raw_parts(numbers, length) })
}

fn open() {
    let Some(folder) = Card::get().and_then(|card| card.counts.as_deref()) else { return };
    let path = Path::new(folder).join(format!("{}.counts", std::process::id()));
    let bytes = (HeaderSlot::First as usize + names::NAMES.len()) * size_of::<u64>();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let mapped = file.and_then(|file| file.set_len(bytes as u64).map(|()| file));
    // If the file can't be written, nothing is counted, and the program goes on.
    let Some(numbers) = mapped.ok().and_then(|file| system::share(&file, bytes)) else { return };
    NUMBERS.store(numbers.cast(), Ordering::Release);
    set(HeaderSlot::Entries, names::NAMES.len() as u64);
    set(HeaderSlot::Magic, MAGIC);
}

/// After a fork the child gets a file of its own, once it counts something.
pub fn forked() {
    NUMBERS.store(std::ptr::null_mut(), Ordering::Release);
}

fn set(place: HeaderSlot, value: u64) {
    let numbers = NUMBERS.load(Ordering::Acquire);
    if !numbers.is_null() {
        // SAFETY: the file was mapped with these numbers, and stays.
        unsafe { &*numbers.add(place as usize) }.store(value, Ordering::Relaxed);
    }
}

fn at(place: HeaderSlot) -> Option<&'static AtomicU64> {
    numbers()?.get(place as usize)
}

/// Counts launched kernels.
pub fn launched(count: u64) {
    at(HeaderSlot::Launches).map(|number| number.fetch_add(count, Ordering::Relaxed));
}

/// Counts a read of a value that was not computed.
pub fn unknown_read() {
    at(HeaderSlot::UnknownReads).map(|number| number.fetch_add(1, Ordering::Relaxed));
}

/// Counts a read that a rule answered.
pub fn ruled_read() {
    at(HeaderSlot::RuledReads).map(|number| number.fetch_add(1, Ordering::Relaxed));
}

/// Counts a cuDNN workspace whose size is an estimate.
pub fn estimated_workspace() {
    at(HeaderSlot::EstimatedWorkspaces).map(|number| number.fetch_add(1, Ordering::Relaxed));
}

/// Notes how much host memory is page-locked.
pub fn pinned(bytes: u64) {
    at(HeaderSlot::Pinned).map(|number| number.store(bytes, Ordering::Relaxed));
    at(HeaderSlot::PinnedPeak).map(|number| number.fetch_max(bytes, Ordering::Relaxed));
}

/// Notes how much of a device's memory is used.
pub fn used(bytes: u64) {
    at(HeaderSlot::UsedPeak).map(|number| number.fetch_max(bytes, Ordering::Relaxed));
}

/// Counts a call of a generated entry point. Returns whether it was the first.
pub fn called(entry: usize) -> bool {
    let number = numbers().and_then(|numbers| numbers.get(HeaderSlot::First as usize + entry));
    number.is_none_or(|number| number.fetch_add(1, Ordering::Relaxed) == 0)
}

/// Whether the user wants messages about generated entry points: `VRAMLAB_STANDIN=debug`.
pub fn is_told() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        SAID.store(std::env::var("VRAMLAB_STANDIN").is_ok_and(|word| word == "debug"), Ordering::Relaxed)
    });
    SAID.load(Ordering::Relaxed)
}
