//! A recorded history as the event stream that the memory model reads.

use std::collections::HashMap;

use super::history::{Beginning, Story};
use super::replay::{Conditions, DeviceReport, Observer, verify_from};
use super::types::{Action, Snapshot, StackId, TextId, TraceEntry};
use crate::allocator::TraceEvent;
use crate::model::{Category, Event, EventKind, Micros, NameId};

/// Hands `emit` every event of a device's history, in order: what was there when it began, then what the recording has,
/// with the sizes of blocks (which a trace does not have) and, where stacks were recorded, the names of those who asked.
///
/// The report says how far our allocator agrees with the history; the events do not depend on it.
pub fn events(
    snapshot: &Snapshot,
    device: usize,
    conditions: &Conditions,
    mut emit: impl FnMut(Event),
) -> DeviceReport {
    let beginning = Beginning::of(snapshot, device, &conditions.settings);
    let (mut narrator, report) = Narrator::new(snapshot, device, conditions, &beginning);
    narrator.begin(&mut emit);
    while narrator.advance(&mut emit) {}
    report
}

/// Tells a device's history event by event.
#[derive(Debug)]
pub struct Narrator<'a> {
    snapshot: &'a Snapshot,
    trace: &'a [TraceEntry],
    story: Story<'a>,
    limit: Option<crate::units::Bytes>,
    /// Entries before which the program called `empty_cache()`, by the replay.
    calls: Calls,
    names: HashMap<(StackId, TextId), NameId>,
    early_names: HashMap<StackId, NameId>,
    defined: u32,
}

/// Calls of `empty_cache()`, which leave no entries of their own.
#[derive(Debug, Default)]
struct Calls {
    /// Entries that a call stands before, in order, as the replay concludes.
    before: Vec<usize>,
    next: usize,
    /// From this entry on nobody replayed the history.
    until: usize,
}

impl Observer for Calls {
    fn event(&mut self, _: usize, _: &TraceEntry, _: &TraceEvent) {}

    fn empty_cache(&mut self, index: usize, _: &TraceEntry) {
        self.before.push(index);
    }
}

impl<'a> Narrator<'a> {
    /// A history from its beginning on, and how far our allocator agrees with it.
    pub fn new(
        snapshot: &'a Snapshot,
        device: usize,
        conditions: &'a Conditions,
        beginning: &'a Beginning,
    ) -> (Self, DeviceReport) {
        let trace = snapshot.device_trace(device);
        let mut calls = Calls::default();
        let report = verify_from(snapshot, device, beginning, conditions, conditions.statistics.as_ref(), &mut calls);
        calls.until = report.first_mismatch.as_ref().map_or(trace.len(), |mismatch| mismatch.entry);
        let story = Story::new(trace, &conditions.settings, beginning);
        let (names, early_names) = (HashMap::new(), HashMap::new());
        let limit = conditions.limit;
        (Self { snapshot, trace, story, limit, calls, names, early_names, defined: 0 }, report)
    }

    /// When the next entry was recorded; `None` behind the last.
    #[must_use]
    pub fn time(&self) -> Option<Micros> {
        self.story.next().map(|entry| entry.time)
    }

    /// Entries told.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.story.position()
    }

    /// Entries so far that contradict those before them.
    #[must_use]
    pub const fn contradictions(&self) -> u64 {
        self.story.contradictions()
    }

    /// Tells the limit, and what was there when the history began.
    pub fn begin(&mut self, emit: &mut impl FnMut(Event)) {
        let time = self.time().unwrap_or_default();
        emit(Event::new(time, EventKind::Limit { limit: self.limit }));
        let mut early: Vec<(TraceEvent, StackId)> = Vec::new();
        self.story.prelude(|event, stack| early.push((*event, stack)));
        for (event, stack) in early {
            let name = match event {
                TraceEvent::Alloc { .. } => self.early_name(stack, time, emit),
                _ => NameId::NONE,
            };
            emit(Event::new(time, EventKind::of_trace(&event, Category::Other, name)));
        }
    }

    /// Tells the next entry; false at the end.
    pub fn advance(&mut self, emit: &mut impl FnMut(Event)) -> bool {
        let index = self.story.position();
        let Some(entry) = self.story.next() else { return false };
        if self.is_call(index) {
            emit(Event::new(entry.time, EventKind::EmptyCache));
        }
        let name = match entry.action {
            Action::Alloc | Action::Oom => self.name(entry, emit),
            _ => NameId::NONE,
        };
        let mut tell = |event: &TraceEvent| {
            let name =
                if matches!(event, TraceEvent::Alloc { .. } | TraceEvent::Oom { .. }) { name } else { NameId::NONE };
            emit(Event::new(entry.time, EventKind::of_trace(event, Category::Other, name)));
        };
        self.story.advance(&mut tell)
    }

    /// True if the program called `empty_cache()` before this entry: as the replay concluded, and where it did not get to,
    /// if what goes back goes back for no request that grows or fails next.
    fn is_call(&mut self, index: usize) -> bool {
        if index < self.calls.until {
            while self.calls.before.get(self.calls.next).is_some_and(|call| *call < index) {
                self.calls.next += 1;
            }
            return self.calls.before.get(self.calls.next) == Some(&index);
        }
        let is_release = |entry: &TraceEntry| matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
        let begins = self.trace.get(index).is_some_and(is_release)
            && !index.checked_sub(1).and_then(|before| self.trace.get(before)).is_some_and(is_release);
        let next = || {
            let behind = self.trace[index..].iter().find(|entry| !is_release(entry))?;
            Some(behind.action)
        };
        begins && !matches!(next(), Some(Action::SegmentAlloc | Action::SegmentMap | Action::Oom))
    }

    /// The name of who asked, defined at its first use.
    fn name(&mut self, entry: &TraceEntry, emit: &mut impl FnMut(Event)) -> NameId {
        let key = (entry.stack, entry.metadata);
        if let Some(id) = self.names.get(&key) {
            return *id;
        }
        let id = match self.snapshot.caller(entry) {
            Some(text) => self.define(&text, entry.time, emit),
            None => NameId::NONE,
        };
        self.names.insert(key, id);
        id
    }

    /// The name of a block that was there when the history began.
    fn early_name(&mut self, stack: StackId, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        if let Some(id) = self.early_names.get(&stack) {
            return *id;
        }
        let text = match self.snapshot.caller_of(stack, TextId::default()) {
            Some(caller) => format!("before the recording: {caller}"),
            None => "before the recording".to_owned(),
        };
        let id = self.define(&text, time, emit);
        self.early_names.insert(stack, id);
        id
    }

    fn define(&mut self, text: &str, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        self.defined = self.defined.saturating_add(1);
        let id = NameId(self.defined);
        emit(Event::new(time, EventKind::Define { id, text: text.into() }));
        id
    }
}

impl Snapshot {
    /// Who asked: what the program attached, else the innermost function and the innermost line outside of
    /// libraries (`gelu (model.py:88)`). `None` when nothing was recorded.
    #[must_use]
    pub fn caller(&self, entry: &TraceEntry) -> Option<String> {
        self.caller_of(entry.stack, entry.metadata)
    }

    /// The same of a stack and of what was attached to it.
    pub(super) fn caller_of(&self, stack: StackId, metadata: TextId) -> Option<String> {
        let metadata = self.texts.get(metadata);
        if !metadata.is_empty() {
            return Some(metadata.to_owned());
        }
        let innermost = self.stacks.frames(stack).next()?;
        let own = self.stacks.frames(stack).find(|frame| !is_library(self.texts.get(frame.filename)));
        let place = own.unwrap_or(innermost);
        let file = self.texts.get(place.filename);
        let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let name = self.texts.get(innermost.name);
        Some(match place.line {
            0 => format!("{name} ({file})"),
            line => format!("{name} ({file}:{line})"),
        })
    }
}

/// True for files that the program's author did not write.
fn is_library(path: &str) -> bool {
    path.starts_with('<')
        || ["/site-packages/", "/dist-packages/", "/lib/python3"].iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::snapshot::replay::Overrides;

    fn stream_of(name: &str) -> (Vec<Event>, DeviceReport) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
        let snapshot = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
        let mut stream = Vec::new();
        let report = events(&snapshot, 0, &conditions, |event| stream.push(event));
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
