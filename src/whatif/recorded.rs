//! A run's figures and its program's requests, read together, so that predictions can be compared with the figures.

use super::conditions::{Conditions, ConditionsError};
use super::driver::Places;
use super::figures::Figures;
use super::program::{Outcome, Program, ProgramWriter};
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{AllocatorState, Begins, Event, EventKind, FailedRequest, MemoryModel};

/// A run on one device that can be replayed.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    /// The facts about it.
    pub facts: Facts,
    /// Its requests.
    pub program: Program,
}

/// The facts about a run on one device, from its events.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The device.
    pub device: DeviceIndex,
    /// Its figures. Peaks are those since the model was built.
    pub figures: Figures,
    /// The stranded bytes at the moment when most was reserved, the first time.
    pub stranded_at_peak: Bytes,
    /// The number of steps that ended.
    pub steps: u64,
    /// The conditions of the run.
    pub conditions: Conditions,
    /// Where the history begins, if it is a recorded one of PyTorch.
    pub begins: Option<Begins>,
    /// The bounds of an unrecorded limit, if a failure shows that there was one. The lower bound counts.
    pub unknown_limit: Option<LimitRange>,
    /// Assumptions: a sentence each, without a period.
    pub remarks: Vec<String>,
}

/// The bounds of a limit that is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRange {
    /// This many bytes were reserved under it.
    pub least: Bytes,
    /// With this many bytes a failed request would have been served.
    pub below: Bytes,
}

impl LimitRange {
    /// The upper bound of the limit.
    #[must_use]
    pub const fn most(self) -> Bytes {
        Bytes(self.below.get().saturating_sub(1))
    }
}

/// Reads a run event by event, for replays.
#[derive(Debug)]
pub struct RecordedWriter {
    facts: FactsWriter,
    program: ProgramWriter,
}

/// Reads the facts of a run event by event.
#[derive(Debug)]
pub struct FactsWriter {
    device: DeviceIndex,
    memory: MemoryModel,
    state: AllocatorState,
    /// The settings when the first block was allocated.
    first: Option<Box<str>>,
    changed: bool,
    begun: bool,
    peak_reserved: Bytes,
    peak_allocated: Bytes,
    /// The most that was reserved after a request, and the stranded bytes at that moment.
    peak: (Bytes, Bytes),
    steps: u64,
    begins: Option<Begins>,
    /// Driver calls that only report what existed when the history began.
    early: (i64, i64),
    /// Bounds that failures show, if no limit is recorded.
    shown: Option<FailureBounds>,
}

/// What a failure shows about the bounds of memory.
#[derive(Clone, Copy, Debug)]
struct FailureBounds {
    /// The driver had nothing left: the memory that this process could have.
    device: Option<Bytes>,
    /// An unrecorded limit is below this.
    below: Option<Bytes>,
}

impl AsRef<Self> for Facts {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsRef<Facts> for RecordedRun {
    fn as_ref(&self) -> &Facts {
        &self.facts
    }
}

impl RecordedRun {
    /// Conditions in a person's words (see [`Conditions::parse`]), on the run's device. If they name no bounds, the
    /// run's own bounds apply.
    ///
    /// # Errors
    /// [`ConditionsError`].
    pub fn under(&self, text: &str) -> Result<Conditions, ConditionsError> {
        let own = &self.facts.conditions;
        let mut conditions = Conditions::parse_for(own.settings.torch(), text, own.device)?;
        if !conditions.bounds_memory() {
            conditions.limit = own.limit;
        }
        Ok(conditions)
    }

    /// Replays the program under the run's own conditions.
    #[must_use]
    pub fn again(&self) -> Outcome {
        self.program.replay(&self.facts.conditions)
    }

    /// True if a replay under the run's own conditions gives the run's figures, to the byte.
    #[must_use]
    pub fn is_exact(&self, again: &Figures) -> bool {
        let of = |figures: &Figures| {
            (figures.peak_reserved, figures.reserved, figures.peak_allocated, figures.allocated, figures.ooms)
        };
        of(again) == of(&self.facts.figures)
    }
}

impl RecordedWriter {
    /// A reader of the events of `device`.
    #[must_use]
    pub fn new(device: DeviceIndex, places: Places) -> Self {
        Self { facts: FactsWriter::new(device), program: ProgramWriter::new(device, places) }
    }

    /// Reads the next event.
    pub fn push(&mut self, event: &Event) {
        if event.device == self.facts.device {
            self.program.push(event);
            self.facts.push(event);
        }
    }

    /// The facts so far.
    #[must_use]
    pub const fn facts(&self) -> &FactsWriter {
        &self.facts
    }

    /// The run; see [`FactsWriter::finish`].
    ///
    /// # Errors
    /// [`ConditionsError`].
    pub fn finish(self, memory: Option<DeviceMemory>, limit: Option<Bytes>) -> Result<RecordedRun, ConditionsError> {
        let facts = self.facts.finish(memory, limit)?;
        let mut program = self.program.finish();
        program.conclude_past(&facts.conditions, facts.figures.peak_reserved);
        Ok(RecordedRun { facts, program })
    }
}

impl FactsWriter {
    /// A reader of the events of `device`.
    #[must_use]
    pub fn new(device: DeviceIndex) -> Self {
        Self {
            device,
            memory: MemoryModel::new(),
            state: AllocatorState::new(),
            first: None,
            changed: false,
            begun: false,
            peak_reserved: Bytes::ZERO,
            peak_allocated: Bytes::ZERO,
            peak: (Bytes::ZERO, Bytes::ZERO),
            steps: 0,
            begins: None,
            early: (0, 0),
            shown: None,
        }
    }

    /// Reads the next event.
    pub fn push(&mut self, event: &Event) {
        if event.device != self.device {
            return;
        }
        if let EventKind::Begin(about) = &event.kind {
            *self = Self::new(self.device);
            self.begins = about.history;
        }
        // Contradictions are reported where the events are drawn.
        let _ = self.memory.apply(event);
        self.state.apply(event);
        match &event.kind {
            EventKind::Alloc { .. } => {
                if self.memory.reserved() > self.peak.0 {
                    self.peak = (self.memory.reserved(), self.memory.stranded());
                }
                self.peak_allocated = self.peak_allocated.max(self.memory.allocated());
                let first = self.first.get_or_insert_with(|| self.state.settings().text().into());
                self.changed |= **first != *self.state.settings().text();
            }
            EventKind::SegmentAlloc { .. } | EventKind::SegmentMap { .. } => {
                self.peak_reserved = self.peak_reserved.max(self.memory.reserved());
            }
            EventKind::StepBegin { .. } if !self.begun => {
                self.begun = true;
                let statistics = self.state.statistics();
                if self.memory.reserved() == Bytes::ZERO {
                    self.begins = self.begins.map(|_| Begins::First);
                } else if self.begins.is_some() {
                    self.early = (statistics.num_device_alloc, statistics.num_device_free);
                }
                // The program has built its model and emptied the cache; its peaks count from here.
                if self.memory.ledger().releasable == Bytes::ZERO {
                    (self.peak_reserved, self.peak_allocated) = (self.memory.reserved(), self.memory.allocated());
                    self.peak = (self.memory.reserved(), self.memory.stranded());
                }
            }
            EventKind::StepEnd(_) => self.steps += 1,
            EventKind::Oom(request) if self.memory.limit().is_none() => self.look_at(request),
            _ => {}
        }
    }

    fn look_at(&mut self, request: &FailedRequest) {
        let shown = self.shown.get_or_insert(FailureBounds { device: None, below: None });
        let reserved = self.memory.reserved();
        if request.device_free < request.segment {
            let all = reserved + request.device_free;
            shown.device = Some(shown.device.map_or(all, |before| before.min(all)));
        } else {
            let below = reserved + request.segment;
            shown.below = Some(shown.below.map_or(below, |before| before.min(below)));
        }
    }

    /// The bounds of the run's limit: the least that it can be, and the value that it is below if a failure shows that
    /// there was one.
    #[must_use]
    pub fn limit_bounds(&self) -> (Bytes, Option<Bytes>) {
        (self.peak_reserved, self.shown.and_then(|shown| shown.below))
    }

    /// The facts about the run. `memory` is the device's and `limit` the run's, if they are known.
    ///
    /// # Errors
    /// [`ConditionsError`] if a share of the device's memory is allowed, but its memory is unknown.
    pub fn finish(self, memory: Option<DeviceMemory>, limit: Option<Bytes>) -> Result<Facts, ConditionsError> {
        let mut remarks = Vec::new();
        if self.changed {
            remarks.push("its settings changed while it ran; it is replayed under the last ones".to_owned());
        }
        let shown = self.shown.unwrap_or(FailureBounds { device: None, below: None });
        let device = memory.or_else(|| {
            let all = shown.device?.max(self.peak_reserved);
            remarks.push(format!("what the device had for it is taken from its out-of-memory error: {all}"));
            Some(DeviceMemory { free: all, total: all })
        });
        let settings = self.state.settings();
        let mut conditions = Conditions::parse_for(settings.torch(), settings.text(), device)?;
        conditions.limit = limit.or(conditions.limit);
        let unknown_limit = shown.below.filter(|_| !conditions.bounds_memory()).map(|below| {
            let least = self.peak_reserved;
            conditions.limit = Some(least);
            remarks.push(format!(
                "a limit of this process stopped a request, and the file does not say which: it lies between {least} and \
                 {below}; give --limit"
            ));
            LimitRange { least, below }
        });
        let statistics = self.state.statistics();
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let figures = Figures {
            reserved: self.memory.reserved(),
            allocated: self.memory.allocated(),
            peak_reserved: self.peak_reserved,
            peak_allocated: self.peak_allocated,
            stranded: self.memory.stranded(),
            segments: self.memory.segment_count() as u64,
            segments_allocated: count(statistics.num_device_alloc - self.early.0),
            segments_freed: count(statistics.num_device_free - self.early.1),
            retries: count(statistics.num_alloc_retries),
            ooms: count(statistics.num_ooms),
            served: 0,
        };
        Ok(Facts {
            device: self.device,
            figures,
            stranded_at_peak: self.peak.1,
            steps: self.steps,
            begins: self.begins,
            conditions,
            unknown_limit,
            remarks,
        })
    }
}
