//! What is known of device memory, for a program's watcher: it looks without reading, so that nothing is counted.

use std::time::Duration;

use crate::foreign::{copy, fill};
use crate::{ranks, store};

entries! {
    /// Writes what is known of `size` bytes to `to`, and to `known` a 1 for each byte that is. What other ranks say of them is waited
    /// for, so many milliseconds.
    fn vramlab_known(address: u64, to: *mut u8, known: *mut u8, size: usize, milliseconds: u64) {
        ranks::before_read(address, size as u64, Some(Duration::from_millis(milliseconds)));
        fill(known, 0, size);
        for (at, piece) in store::lock().shadow.pieces(address, size as u64) {
            copy(to.wrapping_add(at as usize), piece.as_ptr(), piece.len());
            fill(known.wrapping_add(at as usize), 1, piece.len());
        }
    }
}
