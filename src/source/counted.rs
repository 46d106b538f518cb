//! Bytes on their way, counted.

use std::io::{self, Read};

/// Tells of every read how many bytes it gave.
#[derive(Debug)]
pub(super) struct MeteredReader<R, F> {
    /// Where they come from.
    pub source: R,
    /// Who hears of them.
    pub each: F,
}

impl<R: Read, F: FnMut(u64)> Read for MeteredReader<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        (self.each)(read as u64);
        Ok(read)
    }
}
