//! A recorded history as the event stream that the memory model reads.

use std::collections::HashMap;

use super::replay::{Conditions, DeviceReport, Observer, verify_device};
use super::types::{Snapshot, StackId, TextId, TraceEntry};
use crate::allocator::TraceEvent;
use crate::model::{Category, Event, EventKind, NameId};

/// Replays the history of a device and hands `emit` every event that agreed with it, in order: with the sizes of blocks
/// (which a trace does not have) and, where stacks were recorded, the names of those who asked.
///
/// The report says how far the history could be followed; after a mismatch no events come.
pub fn events(
    snapshot: &Snapshot,
    device: usize,
    conditions: &Conditions,
    mut emit: impl FnMut(Event),
) -> DeviceReport {
    if let Some(first) = snapshot.device_trace(device).first() {
        emit(Event::new(first.time, EventKind::Limit { limit: conditions.limit }));
    }
    let mut emitter = Emitter { snapshot, names: HashMap::new(), emit };
    verify_device(snapshot, device, conditions, conditions.statistics.as_ref(), &mut emitter)
}

struct Emitter<'a, F> {
    snapshot: &'a Snapshot,
    names: HashMap<(StackId, TextId), NameId>,
    emit: F,
}

impl<F: FnMut(Event)> Emitter<'_, F> {
    /// The name of who asked, defined at its first use.
    fn name(&mut self, entry: &TraceEntry) -> NameId {
        let key = (entry.stack, entry.metadata);
        if let Some(id) = self.names.get(&key) {
            return *id;
        }
        let Some(text) = self.snapshot.caller(entry) else {
            self.names.insert(key, NameId::NONE);
            return NameId::NONE;
        };
        let id = NameId(u32::try_from(self.names.len() + 1).unwrap_or(NameId::NONE.0));
        self.names.insert(key, id);
        (self.emit)(Event::new(entry.time, EventKind::Define { id, text: text.into() }));
        id
    }
}

impl<F: FnMut(Event)> Observer for Emitter<'_, F> {
    fn event(&mut self, _: usize, entry: &TraceEntry, event: &TraceEvent) {
        let name = match event {
            TraceEvent::Alloc { .. } | TraceEvent::Oom { .. } => self.name(entry),
            _ => NameId::NONE,
        };
        (self.emit)(Event::new(entry.time, EventKind::of_trace(event, Category::Other, name)));
    }

    fn empty_cache(&mut self, _: usize, entry: &TraceEntry) {
        (self.emit)(Event::new(entry.time, EventKind::EmptyCache));
    }
}

impl Snapshot {
    /// Who asked: what the program attached to the entry, else the innermost function and the innermost line outside of
    /// libraries (`gelu (model.py:88)`). `None` when nothing was recorded.
    #[must_use]
    pub fn caller(&self, entry: &TraceEntry) -> Option<String> {
        let metadata = self.texts.get(entry.metadata);
        if !metadata.is_empty() {
            return Some(metadata.to_owned());
        }
        let innermost = self.stacks.frames(entry.stack).next()?;
        let own = self.stacks.frames(entry.stack).find(|frame| !is_library(self.texts.get(frame.filename)));
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
