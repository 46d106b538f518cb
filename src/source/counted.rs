//! Counts the bytes that are read.

use std::io::{self, Read};

/// A reader that reports the number of bytes of every read.
#[derive(Debug)]
pub(super) struct MeteredReader<R, F> {
    /// The reader that gives the bytes.
    pub source: R,
    /// Called with the number of bytes.
    pub each: F,
}

impl<R: Read, F: FnMut(u64)> Read for MeteredReader<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        (self.each)(read as u64);
        Ok(read)
    }
}
