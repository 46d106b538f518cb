//! Everything that is known of a run at its last event, for screens.

mod packed;
mod rarely;
mod view;

use std::sync::Arc;

pub(crate) use packed::PackedLab;

use super::Parallelism;
use super::alike::AlikeRanks;
use super::autopsy::Autopsy;
use super::boundaries::Boundaries;
use super::configuration::{Configuration, Configurations};
use super::curves::Curves;
use super::dictionary::Dictionary;
use super::effect::{Effect, Effects, Measurement};
use super::emptying::Emptying;
use super::event::{Category, Event, EventKind, FlipTrials, ModuleOutput, NameId, Phase};
use super::figure::Figure;
use super::finding::Situation;
use super::growth::Growth;
use super::history::History;
use super::ledger::Ledger;
use super::lesson::LessonNote;
use super::log::{LineId, Log};
use super::memory::{MemoryModel, ModelError};
use super::presence::Presence;
use super::profile::Profile;
use super::reading::Reading;
use super::run::{About, DeviceKind, RunSettings, RunState};
use super::segment_views::SegmentViews;
use super::sharing::Sharing;
use super::steps::{StepPeaks, Steps};
use super::view::{GeneratedText, Level, LogLine, Names, Stacks, TouchedBlock};
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, DeviceIndex};
use vramlab_snapshot::Begins;

/// Reduces an event stream to what screens show.
///
/// Never fails: an event that contradicts earlier ones is ignored, counted, and reported in the log. A clone knows as
/// much as the original, so it can represent this moment of the run.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    device: DeviceIndex,
    about: Arc<About>,
    /// The ranks that it stands for, if several train together, and what it holds because of sharing.
    sharing: Sharing,
    foreign_contexts: Arc<[u16]>,
    device_memory: Option<DeviceMemory>,
    run: RunState,
    settings: Arc<RunSettings>,
    memory: MemoryModel,
    /// Events before the current run.
    begun: u64,
    history: History,
    curves: Curves,
    boundaries: Boundaries,
    steps: Steps,
    growth: Growth,
    /// The peaks of the current step and of the last whole one.
    peaks: StepPeaks,
    last_peaks: StepPeaks,
    /// The position of the highest allocated bytes so far.
    peak_position: u64,
    /// The accounts when most was reserved, and the events before that moment.
    fullest: (Ledger, u64),
    effects: Effects,
    configurations: Configurations,
    log: Log,
    names: Dictionary,
    phase: Option<Phase>,
    op: NameId,
    touched: Vec<TouchedBlock>,
    time: Micros,
    generated: Option<GeneratedText>,
    /// The outputs of modules in the last step that changed them.
    modules: Arc<[ModuleOutput]>,
    /// The run's position in a lesson.
    lesson: Option<Arc<LessonNote>>,
    /// Whether its rank can be reached.
    presence: Presence,
    /// The driver's last figures for the GPU.
    gpu: Option<Arc<Reading>>,
    /// True during forward passes that belong to no step.
    writing: bool,
    autopsy: Option<Arc<Autopsy>>,
    /// What flips would do to the peak, until the next flip.
    weighed: Option<Arc<FlipTrials>>,
    /// The number of steps finished at the last flip.
    flipped: Option<u64>,
    /// The situation at the end of the last step.
    situation: Option<Arc<Situation>>,
    /// The situation in the last view before a step ended.
    viewed: Option<Arc<Situation>>,
    emptying: Option<Emptying>,
    /// The number of segments taken before the current step began.
    grown: u64,
    malformed: u64,
    malformed_line: Option<LineId>,
    segments: SegmentViews,
}

impl Lab {
    /// The most blocks of one op that are remembered.
    const TOUCHED: usize = 64;

    /// A lab to which nothing has happened yet.
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
        self.names.texts()
    }

    /// The stacks of the names that have one.
    #[must_use]
    pub const fn stacks(&self) -> &Stacks {
        self.names.stacks()
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

    /// The median time of the last five steps without exchanges with other ranks; an exchange includes waiting for the
    /// other ranks. `None` before there are five steps, and if times are neither measured nor those of a simulated
    /// pipeline, whose stages wait for each other.
    #[must_use]
    pub fn own_time(&self) -> Option<Micros> {
        let known = match self.about.kind {
            DeviceKind::Gpu | DeviceKind::Processor => true,
            DeviceKind::Simulated => {
                self.alike().is_some_and(|alike| matches!(alike.parallelism, Some(Parallelism::Pipeline(_))))
            }
            DeviceKind::Absent => false,
        };
        // In a watched program exchanges may have no times.
        let known = known && (!self.about.guessed || self.steps.times().1 > Micros(0));
        known.then(|| self.steps.own()).flatten()
    }

    /// True if this is a stage of a pipeline.
    #[must_use]
    pub fn is_stage(&self) -> bool {
        self.sharing.is_stage()
    }

    /// The median times of the last steps and of their exchanges with other ranks; zero before the first step.
    #[must_use]
    pub fn step_times(&self) -> (Micros, Micros) {
        self.steps.times()
    }

    /// What is trained, and on what.
    #[must_use]
    pub const fn about(&self) -> &Arc<About> {
        &self.about
    }

    /// Whether its rank can be reached.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        self.presence
    }

    /// The ranks that the device stands for, where several train together.
    #[must_use]
    pub fn alike(&self) -> Option<&Arc<AlikeRanks>> {
        self.sharing.alike.as_ref()
    }

    /// The ranks on whose GPUs this device's process has a context, besides its own.
    #[must_use]
    pub const fn foreign_contexts(&self) -> &Arc<[u16]> {
        &self.foreign_contexts
    }

    /// The device's memory, and how much was free before the run, if known.
    #[must_use]
    pub const fn device_memory(&self) -> Option<DeviceMemory> {
        self.device_memory
    }

    /// True if something has happened in the current run.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.memory.position() > self.begun
    }

    /// The run's position in a lesson, if it belongs to one.
    #[must_use]
    pub const fn lesson(&self) -> Option<&Arc<LessonNote>> {
        self.lesson.as_ref()
    }

    /// How the switches stand.
    #[must_use]
    pub const fn settings(&self) -> &Arc<RunSettings> {
        &self.settings
    }

    /// What the lab is doing.
    #[must_use]
    pub const fn run(&self) -> &RunState {
        &self.run
    }

    /// The peaks and floors of every step.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The measured effects that are kept, newest last.
    #[must_use]
    pub fn effects(&self) -> Vec<Arc<Effect>> {
        self.effects.view()
    }

    /// Every configuration so far, in the order in which they were first in force.
    #[must_use]
    pub fn configurations(&self) -> Vec<Arc<Configuration>> {
        let tried = self.configurations.view();
        let failed = tried.iter().any(|tried| tried.out_of_memory);
        if tried.iter().any(|tried| tried.steps > 0) {
            return tried;
        }
        self.recorded(failed).map_or(tried, |recorded| vec![Arc::new(recorded)])
    }

    /// A history without steps, as one configuration: the peaks are those of the whole recording, and the stranded
    /// bytes those when most was reserved, as in findings.
    fn recorded(&self, out_of_memory: bool) -> Option<Configuration> {
        let has_history = self.about.history.is_some_and(|begins| begins != Begins::Nowhere);
        let known = has_history && self.run == RunState::Finished && self.steps.finished() == 0;
        let exact = |bytes: Bytes| Figure::exact(bytes.get() as f64);
        let measured = Measurement {
            peak_allocated: exact(self.memory.peak_allocated()),
            peak_reserved: exact(self.memory.peak_reserved()),
            stranded: Some(exact(self.fullest.0.stranded)),
            step: None,
            // A rate of zero is never shown.
            throughput: Figure::default(),
            loss: None,
        };
        (known && self.memory.peak_reserved() > Bytes::ZERO).then(|| Configuration {
            settings: Arc::clone(&self.settings),
            step: 0,
            position: 0,
            steps: 0,
            measured: Some((0, measured)),
            out_of_memory,
            curve: self.curves.under_way.clone().map(Arc::new),
        })
    }

    /// Why the last request failed, until a whole step goes through.
    #[must_use]
    pub const fn autopsy(&self) -> Option<&Arc<Autopsy>> {
        self.autopsy.as_ref()
    }

    /// The number of events before allocated was highest in the last whole step; `None` before a step ended.
    #[must_use]
    pub fn last_peak(&self) -> Option<u64> {
        (self.last_peaks.position > 0).then_some(self.last_peaks.position)
    }

    /// The number of events before allocated was highest so far; 0 before any event.
    #[must_use]
    pub const fn peak_position(&self) -> u64 {
        self.peak_position
    }

    /// The curve of the last whole step.
    #[must_use]
    pub const fn last_profile(&self) -> Option<&Arc<Profile>> {
        self.curves.last.as_ref()
    }

    /// The curve of the current step so far.
    #[must_use]
    pub const fn profile_under_way(&self) -> Option<&Profile> {
        self.curves.under_way.as_ref()
    }

    /// Allocated bytes between the phases of the last step.
    #[must_use]
    pub const fn boundaries(&self) -> &Boundaries {
        &self.boundaries
    }

    /// The number of events that contradicted earlier ones.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// A copy to go on from later, with only the [`History::tail`] of the history and without what is kept for the next view.
    #[must_use]
    pub fn checkpoint(&self) -> Self {
        Self { segments: SegmentViews::default(), viewed: None, history: self.history.tail(), ..self.clone() }
    }

    /// Takes over the history of a lab that saw the same events.
    pub(super) fn take_history(&mut self, history: History) {
        self.history = history;
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

    /// Applies an event that `position` events came before, some of them for other devices.
    pub(super) fn apply_at(&mut self, event: &Event, position: u64) {
        self.device = event.device;
        self.memory.skip_to(position);
        self.apply(event);
    }

    /// Follows an event in everything but memory. `reserved` is the reserved bytes before it.
    fn follow(&mut self, event: &Event, reserved: Bytes) {
        match &event.kind {
            EventKind::Alloc { address, size, category, .. } => {
                self.settle_emptying();
                if self.peaks.observe(&self.memory) && self.memory.allocated() == self.memory.peak_allocated() {
                    self.peak_position = self.memory.position();
                }
                // After the request that needed the new segment, so that its block is already in it.
                if self.memory.reserved() > self.fullest.0.reserved() {
                    self.fullest = (self.memory.accounts(), self.memory.position());
                }
                self.touch(*address, *size, Some(*category));
                self.sharing.took(*category, &self.memory, self.names.texts());
                self.record();
            }
            EventKind::SegmentAlloc { .. } | EventKind::SegmentMap { .. } => {
                self.settle_emptying();
                self.peaks.observe(&self.memory);
                self.record();
            }
            EventKind::FreeRequested { address } => {
                self.touch(*address, self.memory.last_freed(), None);
                self.record();
            }
            EventKind::FreeCompleted { .. } => self.record(),
            EventKind::SegmentFree { .. } | EventKind::SegmentUnmap { .. } => {
                if let Some(emptying) = &mut self.emptying {
                    emptying.returned(reserved.saturating_sub(self.memory.reserved()));
                }
                self.record();
            }
            EventKind::OpBegin { name } => {
                self.settle_emptying();
                self.op = *name;
                self.touched.clear();
                self.sharing.op(*name, self.memory.position());
            }
            // In a program that does not report ops only a few are known; between them no op is in progress.
            EventKind::OpEnd if self.about.guessed => self.op = NameId::NONE,
            EventKind::OpEnd | EventKind::Relabel { .. } | EventKind::HostMemory { .. } => {}
            kind => self.follow_rarely(kind),
        }
    }

    /// Records one more memory event of the current step. Text that the model writes belongs to no step.
    #[inline]
    fn record(&mut self) {
        if let Some(profile) = self.curves.under_way.as_mut().filter(|_| !self.writing) {
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
    fn touch(&mut self, address: Address, size: Bytes, taken: Option<Category>) {
        if self.touched.len() < Self::TOUCHED {
            self.touched.push(TouchedBlock { address, size, taken });
        }
    }

    /// Reports what the current `empty_cache` has released so far.
    fn tell_emptying(&mut self) {
        if let Some(emptying) = &self.emptying {
            emptying.tell(&mut self.effects, &mut self.log, &mut self.history);
        }
    }

    /// Ends the current `empty_cache`, because another event happened.
    fn settle_emptying(&mut self) {
        if self.emptying.is_some() {
            self.tell_emptying();
            self.emptying = None;
        }
    }

    fn tell(&mut self, level: Level, text: &str) -> LineId {
        /// Longer than any sentence.
        const LONGEST: usize = 1 << 12;
        self.malformed_line = None;
        let end = (0..=text.len().min(LONGEST)).rev().find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or_default()];
        self.log.push(LogLine { time: self.time, step: self.steps.finished(), level, text: text.into() })
    }

    /// Reports consecutive malformed events in a single line, so that they can't push everything else out of the log.
    fn tell_malformed(&mut self, error: &ModelError) {
        self.malformed += 1;
        match self.malformed_line {
            // With very many events, the line is not updated for each.
            Some(_) if self.malformed > 1000 && !self.malformed.is_multiple_of(1000) => {}
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

#[cfg(test)]
mod tests;
