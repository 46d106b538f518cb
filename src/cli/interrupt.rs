//! Ctrl-C, for what has something to say when it is stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::process;

/// What a shell gives for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// A flag that the first Ctrl-C sets; the second one ends the process.
///
/// # Errors
/// When the system gives no thread or no handler.
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
