//! Ctrl-C during a measurement: results so far are printed first. A second Ctrl-C ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::cli::Status;
use crate::device::process;

/// Whether it was interrupted.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to listen.
    ///
    /// # Errors
    /// If the system provides no thread or no signals.
    pub fn listen() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        let listening = Arc::clone(&came);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if listening.swap(true, Ordering::Relaxed) {
                        process::exit(Status::INTERRUPTED.code());
                    }
                }
            });
        })?;
        Ok(Self(came))
    }

    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
