//! An examination of every run in a file: its peaks and who held them, its failures, and its leaks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::whole::Whole;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{
    AlikeRanks, Autopsy, Diagnosis, EventKind, Lab, Leak, LeakFinder, Ledger, MemoryModel, Ranks, Rhythm, RhythmFinder,
    SegmentView, StrandingSegment, Survivor, View, holdings, holdings_by_module, lines_within,
};
use vramlab_recording::RecordingError;

/// The examination of one device.
#[derive(Clone, Debug)]
pub struct DeviceExamination {
    /// The device.
    pub device: DeviceIndex,
    /// The ranks that the device stands for, if it is a rank's own GPU.
    pub alike: Option<Arc<AlikeRanks>>,
    /// The view at the end.
    pub view: View,
    /// The moment when most was allocated.
    pub peak: MomentHoldings,
    /// The end.
    pub end: MomentHoldings,
    /// The moment when most was reserved.
    pub fullest: Fullest,
    /// Allocated and reserved bytes from the first event to the last.
    pub curve: Curve,
    /// The first requests that failed.
    pub failures: Vec<Arc<Autopsy>>,
    /// The number of requests that failed.
    pub ooms: u64,
    /// How the run repeats itself.
    pub rhythm: Option<Rhythm>,
    /// Names that hold more at every repetition.
    pub leaks: Vec<Leak>,
}

/// The holders of memory at one moment.
#[derive(Clone, Debug, Default)]
pub struct MomentHoldings {
    /// The number of events before it.
    pub position: u64,
    /// The five accounts.
    pub ledger: Ledger,
    /// Live bytes by category, in the order of [`vramlab_model::Category::ALL`].
    pub by_category: [Bytes; 9],
    /// Live blocks by name, the most bytes first.
    pub holders: Vec<Survivor>,
    /// Live blocks by module, the most bytes first.
    pub modules: Vec<Survivor>,
    /// For each line of the program that calls a package, the package's line that holds most of the memory.
    pub within: BTreeMap<String, String>,
}

/// Allocated and reserved bytes over a whole file, in columns of the same number of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// The most of each figure in every column.
    pub columns: Vec<(Bytes, Bytes)>,
}

impl Curve {
    /// The most columns.
    const COLUMNS: u64 = 640;

    fn observe(&mut self, index: u64, end: u64, memory: &MemoryModel) {
        let column = usize::try_from(u128::from(index) * u128::from(Self::COLUMNS) / u128::from(end.max(1)));
        let column = column.unwrap_or(usize::MAX).min(Self::COLUMNS as usize - 1);
        let (allocated, reserved) = (memory.allocated(), memory.reserved());
        // Without events the last values continue.
        while self.columns.len() <= column {
            self.columns.push(self.columns.last().copied().unwrap_or_default());
            if self.columns.len() > column {
                self.columns[column] = (allocated, reserved);
            }
        }
        let most = &mut self.columns[column];
        *most = (most.0.max(allocated), most.1.max(reserved));
    }
}

/// The moment when most was reserved.
#[derive(Clone, Debug, Default)]
pub struct Fullest {
    /// The number of events before it.
    pub position: u64,
    /// The five accounts.
    pub ledger: Ledger,
    /// The segments that stranded most, each with the name of its largest block.
    pub stranding: Vec<(StrandingSegment, String)>,
}

/// The results of the first reading.
#[derive(Debug, Default)]
struct First {
    rhythm: RhythmFinder,
    reserved: Bytes,
    fullest: u64,
    failures: Vec<Arc<Autopsy>>,
    ooms: u64,
}

/// The results of the second reading.
struct Second {
    peak: u64,
    fullest: u64,
    leaks: Option<LeakFinder>,
    curve: Curve,
    found: (MomentHoldings, Fullest),
}

/// How many failures are kept.
const FAILURES: usize = 8;
/// How many segments are listed.
const SEGMENTS: usize = 5;

/// Examines every device on which memory was allocated. Reads the file twice; `progress` hears how far it is.
///
/// # Errors
/// [`RecordingError::Damaged`].
pub fn examined(whole: &Whole, mut progress: impl FnMut(u64, u64)) -> Result<Vec<DeviceExamination>, RecordingError> {
    let end = whole.end();
    let mut ranks = Ranks::default();
    let mut first: BTreeMap<DeviceIndex, First> = BTreeMap::new();
    whole.each(0..end, |index, event| {
        progress(index, 2 * end);
        let device = event.device;
        let before = ranks.lab(device).map_or(Bytes::ZERO, |lab| lab.memory().allocated());
        ranks.apply(event);
        if let Some(lab) = ranks.lab(device) {
            let of = first.entry(device).or_default();
            of.rhythm.observe(event, before);
            of.observe(&event.kind, lab, index);
        }
        Ok::<_, RecordingError>(())
    })?;
    let mut alike: BTreeMap<DeviceIndex, Arc<AlikeRanks>> = BTreeMap::new();
    let mut views: BTreeMap<DeviceIndex, (View, MomentHoldings, First)> = BTreeMap::new();
    for (device, first) in first {
        if let Some(lab) = ranks.lab_mut(device).filter(|lab| lab.memory().peak_reserved() > Bytes::ZERO) {
            let standing = MomentHoldings::of(lab);
            alike.extend(lab.alike().map(|alike| (device, Arc::clone(alike))));
            views.insert(device, (lab.view(), standing, first));
        }
    }
    let mut rhythms: BTreeMap<DeviceIndex, Option<Rhythm>> = BTreeMap::new();
    let mut second: BTreeMap<DeviceIndex, Second> = BTreeMap::new();
    for (device, (view, _, first)) in &mut views {
        let rhythm = std::mem::take(&mut first.rhythm).finish();
        let of = Second {
            peak: view.peak_position,
            fullest: first.fullest,
            leaks: rhythm.map(LeakFinder::new),
            curve: Curve::default(),
            found: Default::default(),
        };
        rhythms.insert(*device, rhythm);
        second.insert(*device, of);
    }
    let mut ranks = Ranks::default();
    whole.each(0..end, |index, event| {
        progress(end + index, 2 * end);
        ranks.apply(event);
        if let (Some(of), Some(lab)) = (second.get_mut(&event.device), ranks.lab(event.device)) {
            if let Some(leaks) = &mut of.leaks {
                leaks.observe(event, index, lab.names());
            }
            of.curve.observe(index, end, lab.memory());
            if index + 1 == of.peak {
                of.found.0 = MomentHoldings::of(lab);
            }
            if index + 1 == of.fullest {
                of.found.1 = Fullest::of(lab);
            }
        }
        Ok::<_, RecordingError>(())
    })?;
    let examined = |(device, (mut view, end, first)): (DeviceIndex, (View, MomentHoldings, First))| {
        let second = second.remove(&device)?;
        let leaks = second.leaks.map(LeakFinder::finish).unwrap_or_default();
        // The lines that leak are known now.
        let known = Diagnosis { leaks, looked: Some(view.position), ..Diagnosis::default() };
        view.findings = known.amended(&view.findings, &view.settings);
        Some(DeviceExamination {
            device,
            alike: alike.remove(&device),
            view,
            peak: second.found.0,
            end,
            fullest: second.found.1,
            curve: second.curve,
            failures: first.failures,
            ooms: first.ooms,
            rhythm: rhythms.remove(&device)?,
            leaks: known.leaks,
        })
    };
    Ok(views.into_iter().filter_map(examined).collect())
}

impl First {
    fn observe(&mut self, kind: &EventKind, lab: &Lab, index: u64) {
        match kind {
            // After the request that needed the new segment, so that its block is already in it.
            EventKind::Alloc { .. } if lab.memory().reserved() > self.reserved => {
                (self.reserved, self.fullest) = (lab.memory().reserved(), index + 1);
            }
            EventKind::Oom(_) => {
                self.ooms += 1;
                if self.failures.len() < FAILURES {
                    self.failures.extend(lab.autopsy().cloned());
                }
            }
            // The remedies tried for the failure come later in the stream.
            EventKind::Remedied(_) => {
                if let (Some(last), Some(told)) = (self.failures.last_mut(), lab.autopsy())
                    && last.position == told.position
                {
                    *last = Arc::clone(told);
                }
            }
            EventKind::Begin(_) => {
                (self.reserved, self.fullest, self.ooms) = (Bytes::ZERO, 0, 0);
                self.failures.clear();
            }
            _ => {}
        }
    }
}

impl MomentHoldings {
    fn of(lab: &Lab) -> Self {
        let memory = lab.memory();
        Self {
            position: memory.position(),
            ledger: memory.ledger(),
            by_category: memory.by_category(),
            holders: holdings(memory, lab.names()),
            modules: holdings_by_module(memory, lab.names(), lab.stacks()),
            within: lines_within(memory, lab.names(), lab.stacks()),
        }
    }
}

impl Fullest {
    fn of(lab: &Lab) -> Self {
        let memory = lab.memory();
        let segments: Vec<SegmentView> = memory.segments().map(|segment| segment.view()).collect();
        let named = |segment: StrandingSegment| {
            let name = match lab.names().get(segment.holder.name) {
                "" => segment.holder.category.label(),
                name => name,
            };
            (segment, name.to_owned())
        };
        let stranding = StrandingSegment::worst(&segments, SEGMENTS).into_iter().map(named).collect();
        Self { position: memory.position(), ledger: memory.ledger(), stranding }
    }
}
