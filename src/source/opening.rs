//! A snapshot is opened: at once where it is read in a moment, else while it is being read. A file has the memory of its end
//! before its history; that is the picture until all of it is known.

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

/// What takes no longer is read before a screen opens: what is wrong with it is said without one.
const PATIENCE: Duration = Duration::from_millis(150);
/// The same where there is nothing to show yet.
const LONGEST: Duration = Duration::from_secs(2);
/// How often progress is reported.
const EACH: Duration = Duration::from_millis(50);

/// Opens the snapshot that `source` holds, of a `torch` where that is given; `part` tells how much of it was read, from 0 to 1,
/// where that is known.
///
/// # Errors
/// [`OpenError`], as far as it is found in a moment; else the picture says what is wrong.
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
        // Once a screen has opened, no one takes it any more.
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

/// Tells the keeper of a file while it is read.
struct OpeningReader<'a, P> {
    path: &'a Path,
    arrive: mpsc::Sender<Arrival>,
    part: P,
    /// Memory at the end.
    standing: Option<OpenSnapshot>,
    /// By device.
    curves: Vec<LowerBound>,
    /// When progress was last reported.
    told: Option<Instant>,
    /// Memory at the end was sent.
    stands: Arc<AtomicBool>,
}

impl<'a, P: Fn() -> Option<f64>> OpeningReader<'a, P> {
    fn new(path: &'a Path, arrive: mpsc::Sender<Arrival>, part: P, stands: Arc<AtomicBool>) -> Self {
        Self { path, arrive, part, standing: None, curves: Vec::new(), told: None, stands }
    }

    /// Whether it is time to report progress.
    fn is_due(&mut self) -> bool {
        let due = self.told.is_none_or(|told| told.elapsed() >= EACH);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }

    /// What is being done, for every device.
    fn reading(&self, doing: ReadingStage, part: Option<f64>) -> Arrival {
        let of = |(index, curve): (usize, &LowerBound)| {
            let device = DeviceIndex(u16::try_from(index).ok()?);
            Some((device, FileProgress { doing, part, least: curve.least() }))
        };
        Arrival::Reading(self.curves.iter().enumerate().filter_map(of).collect())
    }

    /// All of it was read: its history replaces what stood for it.
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
        // Nothing is known yet: the history will show it.
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
            // Reading never waits: the next report says as much.
            let _ = self.arrive.try_send(self.reading(ReadingStage::Reading, (self.part)()));
        }
        !self.arrive.is_closed()
    }
}
