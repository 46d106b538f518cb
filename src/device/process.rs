//! The end of a process that has NVIDIA's libraries in it.
//!
//! Handlers that run at exit tear down what the libraries keep. A thread that is still inside one of them then works on
//! memory that is gone and corrupts the heap: so such handlers run only when no thread can be there.
#![allow(unsafe_code)]

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that may be inside a library.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// As long as this lives, its thread may be inside one of NVIDIA's libraries.
#[derive(Debug)]
pub(super) struct Inside(());

impl Inside {
    pub fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the process with this code: in order where every device is closed; else at once, and the system takes back what
/// the process had, on the GPU too.
pub fn exit(code: u8) -> ! {
    if INSIDE.load(Ordering::SeqCst) == 0 {
        std::process::exit(code.into());
    }
    // What a closed pipe does not take is lost.
    let _ = std::io::stdout().flush();
    // SAFETY: ends the process without running anything else of it.
    unsafe { libc::_exit(code.into()) }
}
