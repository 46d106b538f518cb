//! What there is to say of every run of a file: its peaks and who held them, its failures, what it left behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::whole::Whole;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{
    AlikeRanks, Autopsy, Diagnosis, EventKind, Lab, Leak, LeakFinder, Ledger, MemoryModel, Ranks, Rhythm, RhythmFinder,
    SegmentView, StrandingSegment, Survivor, View, holdings, holdings_by_module, lines_within,
};
use vramlab_recording::RecordingError;

/// One device of a file.
#[derive(Clone, Debug)]
pub struct DeviceExamination {
    /// The device.
    pub device: DeviceIndex,
    /// The ranks that it stands for, where it is the own GPU of a rank.
    pub alike: Option<Arc<AlikeRanks>>,
    /// How it stands at the end.
    pub view: View,
    /// Where most was allocated.
    pub peak: MomentHoldings,
    /// The end.
    pub end: MomentHoldings,
    /// Where most was reserved.
    pub fullest: Fullest,
    /// Allocated and reserved from the first event to the last.
    pub curve: Curve,
    /// Requests that failed, the first ones.
    pub failures: Vec<Arc<Autopsy>>,
    /// Requests that failed in all.
    pub ooms: u64,
    /// How it repeats itself.
    pub rhythm: Option<Rhythm>,
    /// Names that hold more at every repetition.
    pub leaks: Vec<Leak>,
}

/// Who held memory at a moment.
#[derive(Clone, Debug, Default)]
pub struct MomentHoldings {
    /// Events before it.
    pub position: u64,
    /// Where every reserved byte stood.
    pub ledger: Ledger,
    /// Live bytes by category, in the order of [`vramlab_model::Category::ALL`].
    pub by_category: [Bytes; 9],
    /// Live blocks by name, the most bytes first.
    pub holders: Vec<Survivor>,
    /// The same by module.
    pub modules: Vec<Survivor>,
    /// The line of a package that holds most of what a line of the program's own holds, by that.
    pub within: BTreeMap<String, String>,
}

/// Allocated and reserved over a whole file, in columns of equally many events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// The most of each in every column.
    pub columns: Vec<(Bytes, Bytes)>,
}

impl Curve {
    /// Columns at most.
    const COLUMNS: u64 = 640;

    fn observe(&mut self, index: u64, end: u64, memory: &MemoryModel) {
        let column = usize::try_from(u128::from(index) * u128::from(Self::COLUMNS) / u128::from(end.max(1)));
        let column = column.unwrap_or(usize::MAX).min(Self::COLUMNS as usize - 1);
        let (allocated, reserved) = (memory.allocated(), memory.reserved());
        // What nothing happens to stays.
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

/// Where most was reserved.
#[derive(Clone, Debug, Default)]
pub struct Fullest {
    /// Events before it.
    pub position: u64,
    /// Where every reserved byte stood.
    pub ledger: Ledger,
    /// Segments that stranded most, each with the name of its largest block.
    pub stranding: Vec<(StrandingSegment, String)>,
}

/// What the first reading finds out of a device.
#[derive(Debug, Default)]
struct First {
    rhythm: RhythmFinder,
    reserved: Bytes,
    fullest: u64,
    failures: Vec<Arc<Autopsy>>,
    ooms: u64,
}

/// What the second reading is for.
struct Second {
    peak: u64,
    fullest: u64,
    leaks: Option<LeakFinder>,
    curve: Curve,
    found: (MomentHoldings, Fullest),
}

/// Failures that are kept.
const FAILURES: usize = 8;
/// Segments that are listed.
const SEGMENTS: usize = 5;

/// Examines every device that memory was taken on. Reads the file twice; `progress` hears how far it is.
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
        // Of a leak the lines are known now.
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
            // Behind the request that the driver was asked for, so that its block stands in the new segment.
            EventKind::Alloc { .. } if lab.memory().reserved() > self.reserved => {
                (self.reserved, self.fullest) = (lab.memory().reserved(), index + 1);
            }
            EventKind::Oom(_) => {
                self.ooms += 1;
                if self.failures.len() < FAILURES {
                    self.failures.extend(lab.autopsy().cloned());
                }
            }
            // What was tried for it follows later in the stream.
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
