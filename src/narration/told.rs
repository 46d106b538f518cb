//! The names in a history that goes on: callers and their frames, each reported once over all parts.

use std::collections::HashMap;
use std::sync::Arc;

use vramlab_model::{Event, EventKind, Micros, NameId};
use vramlab_snapshot::{Snapshot, StackId, TextId, TraceEntry};

/// The most frames of a stack that are reported, from the innermost on.
const DEEPEST: usize = 256;

/// The names reported so far.
#[derive(Debug, Default)]
pub(super) struct DefinedNames {
    /// Texts.
    names: HashMap<String, NameId>,
    /// Callers by their text and frames.
    callers: HashMap<(String, Vec<String>), NameId>,
    defined: u32,
    /// Names by stack, for the current part.
    by_stack: HashMap<(StackId, TextId), NameId>,
}

impl DefinedNames {
    /// Begins a part, in which stacks have other numbers.
    pub fn begin_part(&mut self) {
        self.by_stack.clear();
    }

    /// The name of an entry's caller.
    pub fn name(&mut self, part: &Snapshot, entry: &TraceEntry, emit: &mut impl FnMut(Event)) -> NameId {
        let key = (entry.stack, entry.metadata);
        if let Some(name) = self.by_stack.get(&key) {
            return *name;
        }
        let name = match part.caller(entry.stack, entry.metadata) {
            Some(text) => self.caller(part, text, entry.stack, entry.time, emit),
            None => NameId::NONE,
        };
        self.by_stack.insert(key, name);
        name
    }

    /// The name of a caller with this stack. Both are reported at their first use in any part.
    pub fn caller(
        &mut self,
        part: &Snapshot,
        text: String,
        stack: StackId,
        time: Micros,
        emit: &mut impl FnMut(Event),
    ) -> NameId {
        let frames: Vec<String> =
            part.program_frames(stack).take(DEEPEST).map(|frame| part.told(frame).text()).collect();
        if frames.is_empty() {
            return self.define(text, time, emit);
        }
        let key = (text, frames);
        if let Some(name) = self.callers.get(&key) {
            return *name;
        }
        let frames: Arc<[NameId]> = key.1.iter().map(|frame| self.define(frame.clone(), time, emit)).collect();
        // Several stacks may have the same text.
        self.defined = self.defined.saturating_add(1);
        let name = NameId(self.defined);
        emit(Event::new(time, EventKind::Define { id: name, text: key.0.as_str().into() }));
        emit(Event::new(time, EventKind::Stack { name, frames }));
        self.callers.insert(key, name);
        name
    }

    /// The id of a text, which is reported at its first use.
    pub fn define(&mut self, text: String, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        if let Some(name) = self.names.get(&text) {
            return *name;
        }
        self.defined = self.defined.saturating_add(1);
        let id = NameId(self.defined);
        emit(Event::new(time, EventKind::Define { id, text: text.as_str().into() }));
        self.names.insert(text, id);
        id
    }
}
