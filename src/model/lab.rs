//! Everything that is known of a run at its last event, for screens.

use std::sync::Arc;

use super::autopsy::Autopsy;
use super::effect::{Effects, Flip};
use super::finding::{Known, Situation};
use super::growth::Growth;
use super::log::{LineId, Log};
use super::steps::{StepPeaks, Steps};
use super::{
    About, Column, Event, EventKind, FailedRequest, Generated, History, Level, LogLine, MarkKind, MemoryModel, Micros,
    ModelError, NameId, Names, Phase, Profile, Profiles, Reading, Remedied, RunState, SegmentView, Settings, Touched,
    View,
};
use crate::units::{Address, Bytes, DeviceIndex};

/// Reduces a stream of events to what screens show.
///
/// Never fails: an event that contradicts those before it is left out, counted, and told in the log. A clone knows as
/// much as the original, so that it can stand for this moment of the run.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    device: DeviceIndex,
    about: Arc<About>,
    run: RunState,
    settings: Arc<Settings>,
    memory: MemoryModel,
    history: History,
    profiles: Curves,
    steps: Steps,
    growth: Growth,
    /// Of the step under way, and of the last whole one.
    peaks: StepPeaks,
    last_peaks: StepPeaks,
    /// Where allocated was highest so far.
    peak_position: u64,
    effects: Effects,
    log: Log,
    names: Names,
    /// Bytes of all texts that were defined.
    named: usize,
    phase: Option<Phase>,
    op: NameId,
    touched: Vec<Touched>,
    time: Micros,
    generated: Option<Generated>,
    /// What the driver last said of the GPU.
    gpu: Option<Arc<Reading>>,
    /// Forward passes that belong to no step are under way.
    writing: bool,
    autopsy: Option<Arc<Autopsy>>,
    /// As the last step left it.
    situation: Option<Arc<Situation>>,
    emptying: Option<Emptying>,
    /// Segments taken when the step under way began.
    grown: u64,
    malformed: u64,
    malformed_line: Option<LineId>,
    segments: SegmentViews,
}

/// The curves of steps, of which the one under way is still being recorded.
#[derive(Clone, Debug, Default)]
struct Curves {
    under_way: Option<Profile>,
    last: Option<Arc<Profile>>,
    before: Option<Arc<Profile>>,
}

/// An `empty_cache` whose segments are going back.
#[derive(Clone, Copy, Debug)]
struct Emptying {
    released: Bytes,
    frees: u64,
    line: LineId,
}

impl Lab {
    /// Log lines in a view.
    const LINES: usize = 64;
    /// Names may be defined this far ahead of the last one.
    const NAME_GAP: usize = 1 << 16;
    /// Names that are known at most, and bytes of their texts: far more than any run has.
    const NAMES: usize = 1 << 21;
    const NAME_BYTES: usize = 1 << 26;
    /// Blocks of one op that are remembered.
    const TOUCHED: usize = 64;

    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory after the last event.
    #[must_use]
    pub const fn memory(&self) -> &MemoryModel {
        &self.memory
    }

    /// Texts of the names defined so far.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Time of the last event.
    #[must_use]
    pub const fn time(&self) -> Micros {
        self.time
    }

    /// Steps finished.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.steps.finished()
    }

    /// What is trained, and on what.
    #[must_use]
    pub const fn about(&self) -> &Arc<About> {
        &self.about
    }

    /// How the switches stand.
    #[must_use]
    pub const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// What the lab is doing.
    #[must_use]
    pub const fn run(&self) -> &RunState {
        &self.run
    }

    /// Peaks and floor of every step.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Why the last request failed, until a whole step went through.
    #[must_use]
    pub const fn autopsy(&self) -> Option<&Arc<Autopsy>> {
        self.autopsy.as_ref()
    }

    /// The curve of the last whole step.
    #[must_use]
    pub const fn last_profile(&self) -> Option<&Arc<Profile>> {
        self.profiles.last.as_ref()
    }

    /// The curve of the step under way, as far as it goes.
    #[must_use]
    pub const fn profile_under_way(&self) -> Option<&Profile> {
        self.profiles.under_way.as_ref()
    }

    /// Events that contradicted those before them.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// A copy to go on from later: without what is kept for the next view only.
    #[must_use]
    pub fn checkpoint(&self) -> Self {
        Self { segments: SegmentViews::default(), ..self.clone() }
    }

    /// About how many bytes a copy takes, with what only it holds once the run has gone on.
    #[must_use]
    pub fn weight(&self) -> usize {
        const PIECE: usize = 80;
        const SAMPLE: usize = size_of::<super::Sample>();
        const NAME: usize = size_of::<Arc<str>>();
        let curves = [self.profiles.under_way.as_ref(), self.profiles.last.as_deref()];
        let samples: usize = curves.into_iter().flatten().map(|profile| profile.samples.len()).sum();
        (1 << 14) + self.memory.pieces() * PIECE + samples * SAMPLE + self.names.0.len() * NAME
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        self.time = event.time;
        let reserved = self.memory.reserved();
        match self.memory.apply(event) {
            Ok(()) => self.follow(event, reserved),
            Err(error) => self.tell_malformed(&error),
        }
    }

    /// Applies an event that `position` events came before, some of them about other devices.
    pub(super) fn apply_at(&mut self, event: &Event, position: u64) {
        self.device = event.device;
        self.memory.skip_to(position);
        self.apply(event);
    }

    /// Everything but memory itself; `reserved` is what it was before the event.
    fn follow(&mut self, event: &Event, reserved: Bytes) {
        match &event.kind {
            EventKind::Alloc { address, size, .. } => {
                self.settle_emptying();
                if self.peaks.observe(&self.memory) && self.memory.allocated() == self.memory.peak_allocated() {
                    self.peak_position = self.memory.position();
                }
                self.touch(*address, *size, true);
                self.record();
            }
            EventKind::SegmentAlloc { .. } | EventKind::SegmentMap { .. } => {
                self.settle_emptying();
                self.peaks.observe(&self.memory);
                self.record();
            }
            EventKind::FreeRequested { address } => {
                self.touch(*address, self.memory.last_freed(), false);
                self.record();
            }
            EventKind::FreeCompleted { .. } => self.record(),
            EventKind::SegmentFree { .. } | EventKind::SegmentUnmap { .. } => {
                if let Some(emptying) = &mut self.emptying {
                    emptying.released += reserved.saturating_sub(self.memory.reserved());
                    emptying.frees += 1;
                }
                self.record();
            }
            EventKind::OpBegin { name } => {
                self.settle_emptying();
                self.op = *name;
                self.touched.clear();
            }
            EventKind::OpEnd | EventKind::Relabel { .. } | EventKind::HostMemory { .. } => {}
            kind => self.follow_rarely(kind),
        }
    }

    /// What happens a few times a step at most.
    fn follow_rarely(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Define { id, text } => self.define(*id, text),
            EventKind::Begin(about) => self.begin_anew(about),
            EventKind::About(about) => self.about = Arc::clone(about),
            EventKind::Run(run) => self.run = run.clone(),
            EventKind::Settings(settings) => self.settings = Arc::clone(settings),
            EventKind::EmptyCache => self.empty_cache(),
            EventKind::Oom(request) => self.out_of_memory(request),
            EventKind::Remedied(remedied) => self.tell_remedied(remedied),
            EventKind::StepBegin { .. } => self.begin_step(),
            EventKind::StepEnd(report) => self.end_step(report),
            EventKind::PhaseBegin { phase } => {
                self.settle_emptying();
                self.phase = Some(*phase);
                if let Some(profile) = &mut self.profiles.under_way {
                    profile.begin_phase(*phase);
                }
            }
            EventKind::PhaseEnd { .. } => self.phase = None,
            EventKind::SwitchFlipped { switch, from, to } => self.flip(*switch, *from, *to),
            EventKind::Generating => self.writing = true,
            EventKind::Generated { text } => {
                self.writing = false;
                self.generated = Some(Generated { step: self.steps.finished(), text: Arc::clone(text) });
            }
            EventKind::Copy { direction, bytes, pinned, .. } => self.steps.copy(*direction, *bytes, *pinned),
            EventKind::Reading(reading) => self.read_sensors(reading),
            EventKind::Notice { text } => {
                self.tell(Level::Warning, text);
            }
            EventKind::Note { text } => {
                self.tell(Level::Info, text);
            }
            _ => {}
        }
    }

    /// A picture of the lab after the last event. Costs a copy of the segments that changed since the last one.
    pub fn view(&mut self) -> View {
        self.tell_emptying();
        let now;
        let situation = match &self.situation {
            Some(situation) => situation,
            None => {
                now = Situation::of(&self.memory, &self.names);
                &now
            }
        };
        let known = Known {
            situation,
            oom: self.autopsy.as_deref(),
            peak_by_category: &self.last_peaks.by_category,
            peak_position: (self.last_peaks.position > 0).then_some(self.last_peaks.position),
            steps: &self.steps,
            growth: self.growth,
            settings: &self.settings,
            names: &self.names,
        };
        View {
            device: self.device,
            about: Arc::clone(&self.about),
            run: self.run.clone(),
            settings: Arc::clone(&self.settings),
            position: self.memory.position(),
            time: self.time,
            ledger: self.memory.ledger(),
            largest_hole: self.memory.largest_hole(),
            peak_allocated: self.memory.peak_allocated(),
            peak_reserved: self.memory.peak_reserved(),
            peak_position: self.peak_position,
            limit: self.memory.limit(),
            by_category: self.memory.by_category(),
            peak_by_category: self.last_peaks.by_category,
            host: self.memory.host(),
            findings: known.findings(),
            segments: self.segments.update(&self.memory),
            history: Arc::new(self.history.clone()),
            profiles: Profiles {
                under_way: Arc::new(self.profiles.under_way.clone().unwrap_or_default()),
                last: self.profiles.last.clone(),
                before: self.profiles.before.clone(),
            },
            traffic: self.memory.traffic(),
            steps: self.steps.view(),
            gpu: self.gpu.clone(),
            phase: self.phase,
            op: self.op,
            touched: self.touched.clone(),
            effects: self.effects.view(),
            autopsy: self.autopsy.clone(),
            log: self.log.last(Self::LINES),
            generated: self.generated.clone(),
            names: self.names.clone(),
            malformed: self.malformed,
        }
    }

    /// One more memory event of the step under way. Text that the model writes belongs to no step.
    #[inline]
    fn record(&mut self) {
        if let Some(profile) = self.profiles.under_way.as_mut().filter(|_| !self.writing) {
            profile.record(&self.memory);
            if let Some(column) = self.history.open_mut() {
                let (allocated, reserved) = (self.memory.allocated(), self.memory.reserved());
                column.floor = column.floor.min(allocated);
                column.peak = column.peak.max(allocated);
                column.reserved = column.reserved.max(reserved);
            }
        }
    }

    #[inline]
    fn touch(&mut self, address: Address, size: Bytes, taken: bool) {
        if self.touched.len() < Self::TOUCHED {
            self.touched.push(Touched { address, size, taken });
        }
    }

    /// Another run begins: of what was known, only what was told stays.
    fn begin_anew(&mut self, about: &Arc<About>) {
        let position = self.memory.position();
        let log = std::mem::take(&mut self.log);
        *self = Self { device: self.device, about: Arc::clone(about), log, time: self.time, ..Self::default() };
        self.memory.skip_to(position);
    }

    fn begin_step(&mut self) {
        self.writing = false;
        self.settle_emptying();
        let (memory, step) = (&self.memory, self.steps.finished());
        self.peaks = StepPeaks::begin(memory);
        self.grown = memory.traffic().segment_allocs;
        let (allocated, reserved, position) = (memory.allocated(), memory.reserved(), memory.position());
        self.history.begin(Column {
            floor: allocated,
            peak: allocated,
            reserved,
            stranded: memory.stranded(),
            limit: memory.limit(),
            step,
            position,
            time: self.time,
            failed: false,
        });
        self.profiles.under_way = Some(Profile::begin(step, position));
    }

    fn end_step(&mut self, report: &super::StepReport) {
        self.settle_emptying();
        self.steps.push(report);
        self.growth.end_step(self.memory.allocated());
        let grown = self.memory.traffic().segment_allocs - self.grown.min(self.memory.traffic().segment_allocs);
        self.effects.end_step(report, &self.peaks, self.memory.stranded(), grown);
        self.history.end(self.memory.stranded());
        if let Some(profile) = self.profiles.under_way.take() {
            self.profiles.last = Some(Arc::new(profile));
        }
        self.last_peaks = self.peaks;
        self.peaks = StepPeaks::begin(&self.memory);
        self.situation = Some(Arc::new(Situation::of(&self.memory, &self.names)));
        self.autopsy = None;
        self.phase = None;
    }

    fn define(&mut self, id: NameId, text: &Arc<str>) {
        let index = id.0 as usize;
        let named = self.named.saturating_add(text.len());
        if index >= Self::NAMES || named > Self::NAME_BYTES {
            self.tell(Level::Danger, "more names were defined than any run has; the last ones were left out");
            return;
        }
        let names = Arc::make_mut(&mut self.names.0);
        if index > names.len() + Self::NAME_GAP {
            let line = format!("a name was defined as number {index}, far behind the others, and left out");
            self.tell(Level::Danger, &line);
            return;
        }
        if index >= names.len() {
            names.resize(index + 1, Arc::from(""));
        }
        names[index] = Arc::clone(text);
        self.named = named;
    }

    fn read_sensors(&mut self, reading: &Arc<Reading>) {
        let before = self.gpu.replace(Arc::clone(reading)).and_then(|reading| reading.xid);
        if let Some(xid) = reading.xid.filter(|&xid| before != Some(xid)) {
            let meaning = if xid.meaning().is_empty() { "see NVIDIA's list of Xid errors" } else { xid.meaning() };
            self.tell(Level::Danger, &format!("the driver reports error Xid {}: {meaning}", xid.0));
        }
    }

    fn flip(&mut self, switch: NameId, from: NameId, to: NameId) {
        self.settle_emptying();
        self.growth.restart();
        let text = |id| self.names.shared(id);
        let flip = Flip { switch: text(switch), from: text(from), to: text(to) };
        let line = format!("{} {} → {}", flip.switch, flip.from, flip.to);
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        let kind = MarkKind::Flip { switch: Arc::clone(&flip.switch), to: Arc::clone(&flip.to) };
        self.history.mark(position, step, kind);
        self.effects.flip(flip, position);
        self.keep_curve();
        self.tell(Level::Switch, &line);
    }

    /// The last whole step is what later ones are laid over.
    fn keep_curve(&mut self) {
        if let Some(last) = &self.profiles.last {
            self.profiles.before = Some(Arc::clone(last));
        }
    }

    fn empty_cache(&mut self) {
        self.settle_emptying();
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        let in_step = self.profiles.under_way.is_some();
        self.effects.empty_cache(position, self.memory.reserved(), in_step);
        self.history.mark(position, step, MarkKind::EmptyCache { released: Bytes::ZERO });
        self.keep_curve();
        let line = self.tell(Level::Switch, "empty_cache");
        self.emptying = Some(Emptying { released: Bytes::ZERO, frees: 0, line });
    }

    /// Says what the `empty_cache` under way has returned so far.
    fn tell_emptying(&mut self) {
        let Some(Emptying { released, frees, line }) = self.emptying else { return };
        self.effects.released(released, frees);
        self.log.amend(line, Level::Switch, &format!("empty_cache returned {released}"));
        self.history.amend_released(released);
    }

    /// Ends the `empty_cache` under way: something else happened.
    fn settle_emptying(&mut self) {
        if self.emptying.is_some() {
            self.tell_emptying();
            self.emptying = None;
        }
    }

    fn out_of_memory(&mut self, request: &Arc<FailedRequest>) {
        self.settle_emptying();
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        self.autopsy = Some(Arc::new(Autopsy::of(&self.memory, &self.names, request, step, (self.op, self.phase))));
        self.history.mark(position, step, MarkKind::OutOfMemory);
        self.effects.cut_short();
        let requested = request.requested;
        let line = match self.names.get(request.name) {
            "" => format!("out of memory: {requested} asked"),
            name => format!("out of memory: {requested} asked for {name}"),
        };
        self.tell(Level::Danger, &line);
    }

    fn tell_remedied(&mut self, remedied: &Arc<[Remedied]>) {
        if let Some(autopsy) = &mut self.autopsy {
            let autopsy = Arc::make_mut(autopsy);
            (autopsy.remedied, autopsy.tried) = (Arc::clone(remedied), true);
        }
    }

    fn tell(&mut self, level: Level, text: &str) -> LineId {
        self.malformed_line = None;
        self.log.push(LogLine { time: self.time, step: self.steps.finished(), level, text: text.into() })
    }

    /// One line for all malformed events in a row, so that they can't push everything else out of the log.
    fn tell_malformed(&mut self, error: &ModelError) {
        self.malformed += 1;
        match self.malformed_line {
            Some(line) => {
                let text = format!("{error} ({} such events so far)", self.malformed);
                self.log.amend(line, Level::Danger, &text);
            }
            None => {
                let line = self.tell(Level::Danger, &error.to_string());
                self.malformed_line = Some(line);
            }
        }
    }
}

/// The segments as last shown, so that the next view copies only those that changed.
#[derive(Clone, Debug, Default)]
struct SegmentViews {
    versions: Vec<(u64, u64)>,
    views: Arc<Vec<SegmentView>>,
}

impl SegmentViews {
    fn update(&mut self, memory: &MemoryModel) -> Arc<Vec<SegmentView>> {
        let versions: Vec<(u64, u64)> = memory.segments().map(|segment| segment.version()).collect();
        if versions != self.versions {
            // Both lists are in address order.
            let mut shown = self.versions.iter().zip(self.views.iter()).peekable();
            let views = memory.segments().map(|segment| {
                while shown.next_if(|(_, view)| view.address < segment.address()).is_some() {}
                match shown.peek() {
                    Some((version, view)) if **version == segment.version() => (*view).clone(),
                    _ => segment.view(),
                }
            });
            let views = Arc::new(views.collect());
            (self.versions, self.views) = (versions, views);
        }
        Arc::clone(&self.views)
    }
}

#[cfg(test)]
mod tests;
