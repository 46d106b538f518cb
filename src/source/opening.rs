//! Opens a snapshot: at once if it can be read in a moment, otherwise while it is being read. A file contains the
//! memory at its end before its history. That memory is shown until the history is complete.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox};
use super::handle::Source;
use super::picture::SourceKind;
use super::reading::{FileProgress, LowerBound, ReadingStage};
use super::snapshot::{OpenError, OpenSnapshot, QUEUE, hand_on, keep, memory, name, narrate};
use vramlab_allocator::units::DeviceIndex;
use vramlab_allocator::{BlockState, TorchVersion};
use vramlab_snapshot::{Listener, Snapshot, TraceEntry};

/// A file that can be read within this time is read before a screen opens, so that errors are reported without one.
const PATIENCE: Duration = Duration::from_millis(150);
/// The same for files that have nothing to show yet.
const LONGEST: Duration = Duration::from_secs(2);
/// How often progress is reported.
const EACH: Duration = Duration::from_millis(50);

/// Opens the snapshot in `source`, of version `torch` if that is given. `part` tells how much of it has been read, from
/// 0 to 1, if known.
///
/// # Errors
/// [`OpenError`], if the error is found in a moment; later errors are shown in the picture.
pub(super) fn open(
    path: &Path,
    source: impl BufRead + Send + 'static,
    part: impl Fn() -> Option<f64> + Send + 'static,
    torch: Option<TorchVersion>,
) -> Result<Source, OpenError> {
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    let (give, given) = sync_channel(0);
    let owned = path.to_owned();
    let stands = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stands);
    let read = move || {
        let mut reader = OpeningReader::new(&owned, arrive, part, told);
        let read = Snapshot::read_aloud(source, &mut reader);
        // Once a screen has opened, nobody receives the result here.
        let Err(SendError(read)) = give.send(read) else { return };
        match read {
            Ok(snapshot) => reader.whole(OpenSnapshot::new(&owned, snapshot, torch)),
            Err(error) => reader.fail(&OpenError::from(error)),
        }
    };
    thread::Builder::new().name("snapshot".to_owned()).spawn(read).map_err(OpenError::Threads)?;
    let begun = Instant::now();
    let mut patience = PATIENCE;
    loop {
        match given.recv_timeout(patience) {
            Ok(read) => return keep(vec![OpenSnapshot::new(path, read?, torch)]),
            Err(RecvTimeoutError::Timeout) if !stands.load(Ordering::Relaxed) && begun.elapsed() < LONGEST => {
                patience = EACH;
            }
            Err(_) => break,
        }
    }
    let kind = SourceKind::Snapshot(name(path).into());
    Source::keep(kind, None, Inbox::Read(arrivals), None).map_err(OpenError::Threads)
}

/// Reports to the keeper while a file is read.
struct OpeningReader<'a, P> {
    path: &'a Path,
    arrive: mpsc::Sender<Arrival>,
    part: P,
    /// The memory at the end.
    standing: Option<OpenSnapshot>,
    /// Lower bounds of the allocated bytes, by device.
    curves: Vec<LowerBound>,
    /// When progress was last reported.
    told: Option<Instant>,
    /// Set once the memory at the end was sent.
    stands: Arc<AtomicBool>,
}

impl<'a, P: Fn() -> Option<f64>> OpeningReader<'a, P> {
    fn new(path: &'a Path, arrive: mpsc::Sender<Arrival>, part: P, stands: Arc<AtomicBool>) -> Self {
        Self { path, arrive, part, standing: None, curves: Vec::new(), told: None, stands }
    }

    /// True if progress should be reported again.
    fn is_due(&mut self) -> bool {
        let due = self.told.is_none_or(|told| told.elapsed() >= EACH);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }

    /// The progress report for all devices.
    fn reading(&self, doing: ReadingStage, part: Option<f64>) -> Arrival {
        let of = |(index, curve): (usize, &LowerBound)| {
            let device = DeviceIndex(u16::try_from(index).ok()?);
            Some((device, FileProgress { doing, part, least: curve.least() }))
        };
        Arrival::Reading(self.curves.iter().enumerate().filter_map(of).collect())
    }

    /// Replaces the file's end by its complete history.
    fn whole(mut self, opened: OpenSnapshot) {
        if let Some(standing) = self.standing.take() {
            for (index, curve) in self.curves.iter_mut().enumerate() {
                let held = standing.segments(index).flat_map(|segment| &segment.blocks);
                curve.end(held.filter(|block| block.state == BlockState::ActiveAllocated));
            }
        }
        let entries = opened.entries();
        let first = [self.reading(ReadingStage::Replaying, None), Arrival::Memory(memory(&opened))];
        if first.into_iter().any(|arrival| self.arrive.blocking_send(arrival).is_err()) {
            return;
        }
        let mut events = 0_u64;
        let told = hand_on(&[opened], |batch| {
            events += batch.len() as u64;
            if self.is_due() {
                let part = events as f64 / entries.max(1) as f64;
                let reading = self.reading(ReadingStage::Telling, Some(part));
                if self.arrive.blocking_send(reading).is_err() {
                    return false;
                }
            }
            self.arrive.blocking_send(Arrival::Events(batch)).is_ok()
        });
        if let Err(error) = told {
            self.fail(&error);
        }
    }

    fn fail(&self, error: &OpenError) {
        // The receiver may be gone.
        let _ = self.arrive.blocking_send(Arrival::Broken(Arc::from(error.to_string())));
    }
}

impl<P: Fn() -> Option<f64>> Listener for OpeningReader<'_, P> {
    fn memory(&mut self, memory: Snapshot) {
        let standing = OpenSnapshot::standing(self.path, memory);
        let mut events = Vec::new();
        // Nothing is known yet; the history will show it.
        if narrate(std::slice::from_ref(&standing), |event| events.push(event)).is_ok() {
            let _ = self.arrive.blocking_send(Arrival::Standing(events));
            self.stands.store(true, Ordering::Relaxed);
        }
        self.standing = Some(standing);
    }

    fn entries(&mut self, device: usize, entries: &[TraceEntry]) -> bool {
        if device >= self.curves.len() {
            self.curves.resize_with(device + 1, LowerBound::default);
        }
        entries.iter().for_each(|entry| self.curves[device].push(entry));
        if self.is_due() {
            // Reading never waits: the next report says the same.
            let _ = self.arrive.try_send(self.reading(ReadingStage::Reading, (self.part)()));
        }
        !self.arrive.is_closed()
    }
}
