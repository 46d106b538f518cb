//! The streams of a process.

use std::collections::BTreeMap;

use super::capture::Capture;
use super::device;

/// Smaller handles are streams that every device has: the default, the legacy and the per-thread stream.
pub const COMMON: u64 = 16;
/// The first handle of a program's streams. Handles look like addresses of the program, because debuggers print them.
const FIRST: u64 = 0x5100_0000_0000;

/// A stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// Its device.
    pub device: usize,
    /// Its priority; lower is more urgent.
    pub priority: i32,
    /// The flags with which it was created.
    pub flags: u32,
    /// Its capture.
    pub capture: Option<Capture>,
}

/// The streams that a program created.
#[derive(Debug, Default)]
pub struct Streams {
    made: BTreeMap<u64, Stream>,
    count: u64,
}

impl Streams {
    /// Creates a stream.
    pub fn make(&mut self, stream: Stream) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, stream);
        handle
    }

    /// The stream with this handle.
    pub fn get(&self, handle: u64) -> Option<Stream> {
        if handle < COMMON {
            return Some(Stream { device: device::current(), ..Stream::default() });
        }
        self.made.get(&handle).copied()
    }

    /// A stream that the program created.
    pub fn made(&mut self, handle: u64) -> Option<&mut Stream> {
        self.made.get_mut(&handle)
    }

    /// Removes a stream; false if it does not exist.
    pub fn remove(&mut self, handle: u64) -> bool {
        self.made.remove(&handle).is_some()
    }

    /// All streams that the program created.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.made.values_mut()
    }
}
