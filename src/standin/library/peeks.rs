//! The known values of device memory, for a program's watcher: it looks without reading, so no read is counted.

use std::time::Duration;

use crate::foreign::{copy, fill};
use crate::{ranks, store};

entries! {
    /// Writes the known values of `size` bytes to `to`, and to `known` a 1 for each byte that is known. Waits up to
    /// `milliseconds` for values that other ranks owe.
    fn vramlab_known(address: u64, to: *mut u8, known: *mut u8, size: usize, milliseconds: u64) {
        ranks::before_read(address, size as u64, Some(Duration::from_millis(milliseconds)));
        fill(known, 0, size);
        for (at, piece) in store::lock().shadow.pieces(address, size as u64) {
            copy(to.wrapping_add(at as usize), piece.as_ptr(), piece.len());
            fill(known.wrapping_add(at as usize), 1, piece.len());
        }
    }
}
