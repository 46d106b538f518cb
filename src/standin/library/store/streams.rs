//! The streams of a process.

use std::collections::BTreeMap;

use super::capture::Capture;
use super::device;

/// Handles below are streams that every device has: the default, the legacy and the thread's own.
pub const COMMON: u64 = 16;
/// Handles of streams look like addresses of the program, which debuggers print.
const FIRST: u64 = 0x5100_0000_0000;

/// One stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// Its device.
    pub device: usize,
    /// Lower is more urgent.
    pub priority: i32,
    /// How it was made.
    pub flags: u32,
    /// What it records.
    pub capture: Option<Capture>,
}

/// The streams that a program made.
#[derive(Debug, Default)]
pub struct Streams {
    made: BTreeMap<u64, Stream>,
    count: u64,
}

impl Streams {
    /// Makes one.
    pub fn make(&mut self, stream: Stream) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, stream);
        handle
    }

    /// The stream of a handle.
    pub fn get(&self, handle: u64) -> Option<Stream> {
        if handle < COMMON {
            return Some(Stream { device: device::current(), ..Stream::default() });
        }
        self.made.get(&handle).copied()
    }

    /// A stream that was made.
    pub fn made(&mut self, handle: u64) -> Option<&mut Stream> {
        self.made.get_mut(&handle)
    }

    /// Takes one away; false where there is none.
    pub fn remove(&mut self, handle: u64) -> bool {
        self.made.remove(&handle).is_some()
    }

    /// The streams that were made.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.made.values_mut()
    }
}
