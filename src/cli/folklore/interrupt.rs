//! Ctrl-C while something is measured: what is done is printed first. Pressed again, the process ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::cli::Status;
use crate::device::process;

/// Whether it was interrupted.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from here on.
    ///
    /// # Errors
    /// When the system gives no thread or no signals.
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
