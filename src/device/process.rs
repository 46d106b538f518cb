//! The end of a process that has loaded NVIDIA's libraries.
//!
//! Exit handlers tear down the libraries' state. A thread that is still inside one of the libraries would then use
//! freed memory and corrupt the heap. So exit handlers run only if no thread can be inside.
#![allow(unsafe_code)]

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of threads that may be inside a library.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// While this exists, its thread may be inside one of NVIDIA's libraries.
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

/// Ends the process with this code: in the normal way if every device is closed, otherwise at once, so that the system
/// frees everything that the process had, on the GPU too.
pub fn exit(code: u8) -> ! {
    if INSIDE.load(Ordering::SeqCst) == 0 {
        std::process::exit(code.into());
    }
    // Output that a closed pipe does not accept is lost.
    let _ = std::io::stdout().flush();
    // SAFETY: ends the process without running any other code of it.
    unsafe { libc::_exit(code.into()) }
}
