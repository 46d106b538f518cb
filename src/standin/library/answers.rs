//! Values from the program's watcher: it computed them on the processor, and PyTorch's own kernels read them from the
//! card.

use std::cell::RefCell;

use crate::foreign::bytes;

/// The longest value, in bytes.
const LONGEST: usize = 64;

thread_local! {
    static NEXT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Takes the value for the next copy of `size` bytes to the host on this thread; it is used once.
pub fn take(size: usize) -> Option<Vec<u8>> {
    NEXT.with_borrow_mut(|next| next.take_if(|answer| answer.len() == size))
}

entries! {
    /// Sets the value for the next copy of `size` bytes from a device to the host on this thread: the bytes at `from`.
    /// Without bytes, it is unknown again.
    fn vramlab_answer(from: *const u8, size: usize) {
        let answer = (!from.is_null() && (1..=LONGEST).contains(&size)).then(|| bytes(from, size));
        NEXT.with_borrow_mut(|next| *next = answer);
    }
}
