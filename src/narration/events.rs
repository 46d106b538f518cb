//! Turns a recorded history into the event stream that the memory model reads.

use std::sync::Arc;

use super::callers::Callers;
use super::guess::Guesses;
use super::scopes::{ScopeMark, Scopes};
use vramlab_allocator::units::{Address, Bytes};
use vramlab_allocator::{TraceEvent, segment_size};
use vramlab_model::{Category, Event, EventKind, Micros, NameId, Phase, StepReport};
use vramlab_snapshot::history::{Beginning, Story};
use vramlab_snapshot::replay::{Conditions, DeviceReport, Observer, verify_from};
use vramlab_snapshot::{Action, Snapshot, StackId, TraceEntry};

/// Hands `emit` every event of a device's history, in order: first what existed when it began, then the recorded
/// entries, with the sizes of blocks (which a trace does not have) and, if stacks were recorded, the names of callers.
///
/// Categories of blocks are guesses, if there are any. The report says how far our allocator agrees with the history;
/// the events do not depend on it.
pub fn events(
    snapshot: &Snapshot,
    device: usize,
    conditions: &Conditions,
    guesses: Option<&Guesses>,
    mut emit: impl FnMut(Event),
) -> DeviceReport {
    let beginning = Beginning::of(snapshot, device, &conditions.settings);
    let (mut narrator, report) = Narrator::new(snapshot, device, conditions, &beginning, guesses);
    narrator.begin(&mut emit);
    while narrator.advance(&mut emit) {}
    narrator.end(&mut emit);
    report
}

/// Reports a device's history event by event.
#[derive(Debug)]
pub struct Narrator<'a> {
    trace: &'a [TraceEntry],
    story: Story<'a>,
    limit: Option<Bytes>,
    /// The smallest segment that the driver is asked for, for requests that are not small.
    large_segment: Bytes,
    /// Entries before which the program called `empty_cache()`, according to the replay.
    calls: Calls,
    callers: Callers<'a>,
    guesses: Option<&'a Guesses>,
    scopes: Scopes,
    /// Scopes say where steps end, so phases are guessed within steps.
    has_steps: bool,
    steps: ScopedSteps,
    /// True if the last entry is part of a request: no step or phase ends there.
    in_request: bool,
    /// True while the cache is being emptied.
    emptying: bool,
    /// The most segments and mapped runs that existed at once.
    most_segments: usize,
}

/// Steps according to the program's scopes. Everything in the file before the first end is one step.
#[derive(Debug, Default)]
struct ScopedSteps {
    /// The number of steps that ended.
    ended: u64,
    /// When the current step began; `None` between two steps.
    begun: Option<Micros>,
    phase: Option<OpenPhase>,
    /// Time of each phase so far, in the order of [`Phase::ALL`].
    phases: [Micros; 5],
}

/// The current phase.
#[derive(Clone, Copy, Debug)]
struct OpenPhase {
    phase: Phase,
    begun: Micros,
    /// No scope reports the phase: it follows from what the program allocated.
    is_guessed: bool,
}

impl ScopedSteps {
    /// Begins the next step, unless one is in progress.
    fn begin(&mut self, time: Micros, emit: &mut impl FnMut(Event)) {
        if self.begun.is_none() {
            self.begun = Some(time);
            emit(Event::new(time, EventKind::StepBegin { step: self.ended }));
        }
    }

    fn end(&mut self, time: Micros, emit: &mut impl FnMut(Event)) {
        self.end_phase(time, emit);
        let Some(begun) = self.begun.take() else { return };
        let report = StepReport {
            step: self.ended,
            loss: None,
            total: Micros(time.0.saturating_sub(begun.0)),
            phases: std::mem::take(&mut self.phases),
            copy: Micros(0),
            exchange: Micros(0),
            items: 0,
            optimizer_ran: true,
        };
        self.ended += 1;
        emit(Event::new(time, EventKind::StepEnd(report)));
    }

    fn end_phase(&mut self, time: Micros, emit: &mut impl FnMut(Event)) {
        if let Some(OpenPhase { phase, begun, .. }) = self.phase.take() {
            let took = &mut self.phases[phase as usize];
            took.0 = took.0.saturating_add(time.0.saturating_sub(begun.0));
            emit(Event::new(time, EventKind::PhaseEnd { phase }));
        }
    }

    fn tell(&mut self, mark: ScopeMark, time: Micros, emit: &mut impl FnMut(Event)) {
        match mark {
            ScopeMark::Step => self.end(time, emit),
            ScopeMark::PhaseEnd(phase) if self.phase.is_some_and(|open| open.phase == phase) => {
                self.end_phase(time, emit)
            }
            ScopeMark::PhaseEnd(_) => {}
            ScopeMark::PhaseBegin(phase) => self.begin_phase(phase, false, time, emit),
        }
    }

    /// A block was allocated in this phase, according to its stack. A phase from a scope takes precedence, and the optimizer always has a scope.
    fn guess(&mut self, phase: Phase, time: Micros, emit: &mut impl FnMut(Event)) {
        let is_known = self.phase.is_some_and(|open| !open.is_guessed || open.phase == phase);
        if !is_known && phase != Phase::Optimizer {
            self.begin_phase(phase, true, time, emit);
        }
    }

    fn begin_phase(&mut self, phase: Phase, is_guessed: bool, time: Micros, emit: &mut impl FnMut(Event)) {
        self.begin(time, emit);
        self.end_phase(time, emit);
        self.phase = Some(OpenPhase { phase, begun: time, is_guessed });
        emit(Event::new(time, EventKind::PhaseBegin { phase }));
    }
}

/// Calls of `empty_cache()`, which leave no entries.
#[derive(Debug, Default)]
struct Calls {
    /// The entries that a call precedes, in order, according to the replay.
    before: Vec<usize>,
    next: usize,
    /// The first entry that was not replayed.
    until: usize,
}

impl Observer for Calls {
    fn event(&mut self, _: usize, _: &TraceEntry, _: &TraceEvent) {}

    fn empty_cache(&mut self, index: usize, _: &TraceEntry) {
        self.before.push(index);
    }
}

impl<'a> Narrator<'a> {
    /// A history at its beginning, with guesses for its blocks, and with the report on how far our allocator agrees with it.
    pub fn new(
        snapshot: &'a Snapshot,
        device: usize,
        conditions: &'a Conditions,
        beginning: &'a Beginning,
        guesses: Option<&'a Guesses>,
    ) -> (Self, DeviceReport) {
        let trace = snapshot.device_trace(device);
        let mut calls = Calls::default();
        let report = verify_from(snapshot, device, beginning, conditions, conditions.statistics.as_ref(), &mut calls);
        calls.until = report.first_mismatch.as_ref().map_or(trace.len(), |mismatch| mismatch.entry);
        let story = Story::new(trace, &conditions.settings, beginning);
        let limit = conditions.limit;
        let scopes = Scopes::of(snapshot, device);
        let narrator = Self {
            trace,
            story,
            limit,
            large_segment: conditions.settings.large_segment_size,
            calls,
            callers: Callers::new(snapshot),
            guesses,
            has_steps: scopes.tell_steps(),
            scopes,
            steps: ScopedSteps::default(),
            in_request: false,
            emptying: false,
            most_segments: beginning.space.home_count(),
        };
        (narrator, report)
    }

    /// When the next entry was recorded; `None` at the end.
    #[must_use]
    pub fn time(&self) -> Option<Micros> {
        self.story.next().map(|entry| entry.time)
    }

    /// The number of entries reported.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.story.position()
    }

    /// The number of entries so far that contradict earlier ones.
    #[must_use]
    pub const fn contradictions(&self) -> u64 {
        self.story.contradictions()
    }

    /// The most segments and mapped runs that have existed at once.
    #[must_use]
    pub const fn most_segments(&self) -> usize {
        self.most_segments
    }

    /// Reports the limit, and what existed when the history began.
    pub fn begin(&mut self, emit: &mut impl FnMut(Event)) {
        let time = self.time().unwrap_or_default();
        emit(Event::new(time, EventKind::Limit { limit: self.limit }));
        let mut early: Vec<(TraceEvent, StackId)> = Vec::new();
        self.story.prelude(|event, stack| early.push((*event, stack)));
        for (event, stack) in early {
            let name = match event {
                TraceEvent::Alloc { .. } => self.callers.early_name(stack, !self.trace.is_empty(), time, emit),
                _ => NameId::NONE,
            };
            emit(Event::new(time, EventKind::of_trace(&event, Category::Other, name)));
            if let Some(address) = grown(&event) {
                self.tell_pool(address, time, emit);
            }
        }
        self.steps.begin(time, emit);
    }

    /// Reports the scopes that end after the last entry.
    pub fn end(&mut self, emit: &mut impl FnMut(Event)) {
        while let Some((time, mark)) = self.scopes.next(Micros(u64::MAX)) {
            // A phase that begins after the history is empty.
            if !matches!(mark, ScopeMark::PhaseBegin(_)) {
                self.steps.tell(mark, time, emit);
            }
        }
    }

    /// Reports the scopes up to an entry. The entries of a request stay together, because the clocks of threads differ.
    fn tell_scopes(&mut self, entry: &TraceEntry, emit: &mut impl FnMut(Event)) {
        if !self.in_request && entry.action != Action::FreeCompleted {
            while let Some((time, mark)) = self.scopes.next(entry.time) {
                self.steps.tell(mark, time, emit);
            }
            self.steps.begin(entry.time, emit);
        }
    }

    /// Reports the owner of the driver's last memory, if that is a private pool.
    fn tell_pool(&self, address: Address, time: Micros, emit: &mut impl FnMut(Event)) {
        if let Some(pool) = self.story.private_pool(address) {
            emit(Event::new(time, EventKind::PrivatePool { address, pool }));
        }
    }

    /// Reports the next entry. Returns false at the end.
    pub fn advance(&mut self, emit: &mut impl FnMut(Event)) -> bool {
        let index = self.story.position();
        let Some(entry) = self.story.next() else { return false };
        self.tell_scopes(entry, emit);
        if let Some(phase) = self.guesses.filter(|_| self.has_steps).and_then(|guesses| guesses.phase(index)) {
            self.steps.guess(phase, entry.time, emit);
        }
        let releases = is_release(entry);
        let call = self.is_call(index);
        if call {
            emit(Event::new(entry.time, EventKind::EmptyCache));
        }
        self.emptying = releases && (call || self.emptying);
        self.in_request =
            !self.emptying && (releases || matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap));
        let name = match entry.action {
            Action::Alloc | Action::Oom => self.callers.name(entry.stack, entry.metadata, entry.time, emit),
            _ => NameId::NONE,
        };
        let category = self.guesses.map_or(Category::Other, |guesses| guesses.category(index));
        let op = self.guesses.and_then(|guesses| guesses.op(index)).filter(|_| entry.action == Action::Alloc);
        if let Some(op) = op {
            let name = self.callers.op(op, entry.time, emit);
            emit(Event::new(entry.time, EventKind::OpBegin { name }));
        }
        let mut grew = None;
        let mut tell = |event: &TraceEvent| {
            let name =
                if matches!(event, TraceEvent::Alloc { .. } | TraceEvent::Oom { .. }) { name } else { NameId::NONE };
            grew = grown(event);
            let mut kind = EventKind::of_trace(event, category, name);
            if let EventKind::Oom(request) = &mut kind {
                // PyTorch's message names the segment's size.
                let request = Arc::make_mut(request);
                request.segment = segment_size(request.rounded, self.large_segment);
            }
            emit(Event::new(entry.time, kind));
        };
        let told = self.story.advance(&mut tell);
        if op.is_some() {
            emit(Event::new(entry.time, EventKind::OpEnd));
        }
        self.most_segments = self.most_segments.max(self.story.space().home_count());
        if let Some(address) = grew {
            self.tell_pool(address, entry.time, emit);
        }
        told
    }

    /// True if the program called `empty_cache()` before this entry: according to the replay, or after its end, if
    /// memory is released and no request follows that grows or fails.
    fn is_call(&mut self, index: usize) -> bool {
        if index < self.calls.until {
            while self.calls.before.get(self.calls.next).is_some_and(|call| *call < index) {
                self.calls.next += 1;
            }
            return self.calls.before.get(self.calls.next) == Some(&index);
        }
        let begins = self.trace.get(index).is_some_and(is_release)
            && !index.checked_sub(1).and_then(|before| self.trace.get(before)).is_some_and(is_release);
        let next = || {
            let behind = self.trace[index..].iter().find(|entry| !is_release(entry))?;
            Some(behind.action)
        };
        begins && !matches!(next(), Some(Action::SegmentAlloc | Action::SegmentMap | Action::Oom))
    }
}

/// True if the entry releases memory to the driver.
const fn is_release(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap)
}

/// The address at which the driver gave memory.
const fn grown(event: &TraceEvent) -> Option<Address> {
    match event {
        TraceEvent::SegmentAlloc { address, .. } | TraceEvent::SegmentMap { address, .. } => Some(*address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;
    use vramlab_model::frames;
    use vramlab_snapshot::replay::Overrides;

    fn stream_of(name: &str) -> (Vec<Event>, DeviceReport) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(name);
        let snapshot = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
        let mut stream = Vec::new();
        let report = events(&snapshot, 0, &conditions, None, |event| stream.push(event));
        (stream, report)
    }

    #[test]
    fn a_history_becomes_events_with_names() {
        let (stream, report) = stream_of("mlp-rows.base.pickle.xz");
        assert_eq!(report.first_mismatch, None);
        let count = |wanted: fn(&EventKind) -> bool| stream.iter().filter(|event| wanted(&event.kind)).count() as u64;
        assert_eq!(count(|kind| matches!(kind, EventKind::Alloc { .. })), report.placements.total);
        assert_eq!(count(|kind| matches!(kind, EventKind::EmptyCache)), 1);
        assert_eq!(count(|kind| matches!(kind, EventKind::SegmentAlloc { .. })), 7);
        // Every name is defined before its first use.
        let mut defined = vec![false; stream.len()];
        let mut texts = Vec::new();
        for event in &stream {
            match &event.kind {
                EventKind::Define { id, text } => {
                    defined[id.0 as usize] = true;
                    texts.push(text.to_string());
                }
                EventKind::Alloc { name, size, requested, .. } => {
                    assert!(*name == NameId::NONE || defined[name.0 as usize]);
                    assert!(size >= requested);
                }
                _ => {}
            }
        }
        // Every frame of a stack is defined too, and the stack is reported once, before its name is used.
        let mut stacks = HashMap::new();
        for event in &stream {
            match &event.kind {
                EventKind::Stack { name, frames } => {
                    assert!(stacks.insert(*name, Arc::clone(frames)).is_none());
                    let text = |frame: &NameId| &*texts[frame.0 as usize - 1];
                    assert!(frames.iter().all(|frame| frames::FrameText::of(text(frame)).is_some()), "{frames:?}");
                    assert!(!frames.is_empty());
                }
                EventKind::Alloc { name, .. } => assert!(*name == NameId::NONE || stacks.contains_key(name)),
                _ => {}
            }
        }
        assert!(stacks.len() > 10);
        assert!(texts.iter().any(|text| text.starts_with("forward (") && text.contains(".py:")), "{texts:?}");
    }

    #[test]
    fn expandable_segments_carry_their_range_and_page() {
        let (stream, report) = stream_of("torture.c.pickle.xz");
        assert_eq!(report.first_mismatch, None);
        let mut maps = 0;
        for event in &stream {
            if let EventKind::SegmentMap { address, size, range, page, .. } = event.kind {
                maps += 1;
                assert!(address >= range && size.0.is_multiple_of(page.0), "{event:?}");
            }
        }
        assert_eq!(maps, 57);
    }
}
