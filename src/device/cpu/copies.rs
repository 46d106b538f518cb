//! The copy stream: a thread that copies page-locked memory to the device, in order, concurrently with the compute
//! stream.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::DeviceError;
use crate::pinned::PinnedPart;
use vramlab_allocator::units::Address;

/// A copy for which the compute stream has not waited.
struct PendingCopy {
    ticket: u64,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct CopyProgress {
    completed: u64,
    /// The compute stream's work comes after the copies up to this number.
    ordered: u64,
    unordered: VecDeque<PendingCopy>,
    /// When each of the last copies ended.
    ends: VecDeque<(u64, Instant)>,
}

impl CopyProgress {
    /// The number of copies whose end is remembered.
    const ENDS: usize = 512;

    fn complete(&mut self, ticket: u64) {
        self.completed = ticket;
        if self.ends.len() == Self::ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back((ticket, Instant::now()));
    }
}

/// The progress of the copy stream. An event on it is the number of copies submitted before it.
#[derive(Default)]
pub(crate) struct CopyState {
    submitted: AtomicU64,
    /// The length of `unordered`, so that the lock need not be taken while it is empty.
    open: AtomicU64,
    progress: Mutex<CopyProgress>,
    moved: Condvar,
    busy_nanos: AtomicU64,
}

impl CopyState {
    fn progress(&self) -> MutexGuard<'_, CopyProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, progress: &mut CopyProgress, event: u64) {
        progress.ordered = progress.ordered.max(event);
        while progress.unordered.front().is_some_and(|copy| copy.ticket <= event) {
            progress.unordered.pop_front();
        }
        self.open.store(progress.unordered.len() as u64, Ordering::Release);
    }

    /// The event "all copies up to now".
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// True when the copies before `event` are done, so that their targets may be used.
    pub(crate) fn is_done(&self, event: u64) -> bool {
        let mut progress = self.progress();
        let done = progress.completed >= event;
        if done {
            self.order(&mut progress, event);
        }
        done
    }

    /// Waits until the copies before `event` are done.
    pub(crate) fn wait(&self, event: u64) {
        let mut progress = self.progress();
        while progress.completed < event {
            progress = self.moved.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        self.order(&mut progress, event);
    }

    /// When the copies before `event` ended, after waiting for them. For copies that ended long ago, a later moment in
    /// the past.
    pub(crate) fn end_of(&self, event: u64) -> Option<Instant> {
        self.wait(event);
        let progress = self.progress();
        progress.ends.iter().find(|(ticket, _)| *ticket >= event).map(|(_, end)| *end).filter(|_| event > 0)
    }

    /// Waits for all copies.
    pub(crate) fn finish(&self) {
        if self.open.load(Ordering::Acquire) > 0 {
            self.wait(self.submitted());
        }
    }

    /// True if a copy that was not waited for writes into `[address, address + len)`.
    pub(crate) fn writes(&self, address: Address, len: u64) -> bool {
        self.open.load(Ordering::Acquire) > 0
            && self.progress().unordered.iter().any(|copy| address.0 < copy.end && copy.start < address.0 + len)
    }

    pub(crate) fn add_time(&self, time: Duration) {
        self.busy_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn take_time(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.swap(0, Ordering::Relaxed))
    }
}

/// One copy. The target stays mapped until the copy is done: the arena finishes copies before it frees memory.
struct CopyJob {
    from: PinnedPart,
    to: *mut u8,
    ticket: u64,
}

// SAFETY: `to` points to device memory that only this copy touches until it is done; `CopyState::writes` and the
// arena's `finish` ensure that.
unsafe impl Send for CopyJob {}

/// The thread and its queue. Dropping it finishes the submitted copies.
pub(crate) struct CopyThread {
    queue: Option<mpsc::Sender<CopyJob>>,
    state: Arc<CopyState>,
    thread: Option<JoinHandle<()>>,
}

impl CopyThread {
    pub(crate) fn start(state: Arc<CopyState>) -> Result<Self, DeviceError> {
        let (queue, jobs) = mpsc::channel::<CopyJob>();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("cpu-device-copies".into())
            .spawn(move || {
                for job in jobs {
                    let started = Instant::now();
                    job.from.with(|bytes| {
                        // SAFETY: `to` has room for all of `from`, and host and device memory are apart.
                        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), job.to, bytes.len()) };
                    });
                    shared.add_time(started.elapsed());
                    shared.progress().complete(job.ticket);
                    shared.moved.notify_all();
                }
            })
            .map_err(|e| DeviceError::Unavailable {
                device: "cpu".into(),
                reason: format!("the copy thread could not be started ({e}); end other programs and try again"),
            })?;
        Ok(Self { queue: Some(queue), state, thread: Some(thread) })
    }

    /// Queues a copy of `from` to `to`, whose device address is `address`.
    pub(crate) fn submit(&self, from: PinnedPart, to: *mut u8, address: Address) -> Result<(), &'static str> {
        let len = from.len();
        let ticket = self.state.submitted() + 1;
        {
            let mut progress = self.state.progress();
            progress.unordered.push_back(PendingCopy { ticket, start: address.0, end: address.0 + len as u64 });
            self.state.open.store(progress.unordered.len() as u64, Ordering::Release);
        }
        self.state.submitted.store(ticket, Ordering::Release);
        let sent = self.queue.as_ref().map(|queue| queue.send(CopyJob { from, to, ticket }));
        if let Some(Ok(())) = sent {
            return Ok(());
        }
        let mut progress = self.state.progress();
        progress.completed = ticket;
        self.state.order(&mut progress, ticket);
        Err("the copy thread has ended")
    }
}

impl Drop for CopyThread {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the copy thread.
            let _ = thread.join();
        }
    }
}
