//! Ctrl-C, for commands that print something when they are stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::process;

/// The exit code that shells use for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// A flag that the first Ctrl-C sets; the second one ends the process.
///
/// # Errors
/// If the system provides no thread or no handler.
pub(super) fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if seen.swap(true, Ordering::Relaxed) {
                    process::exit(INTERRUPTED);
                }
            }
        });
    })?;
    Ok(stop)
}
