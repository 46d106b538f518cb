//! The names of a history that goes on: of callers and their frames, each told once in all its parts.

use std::collections::HashMap;
use std::sync::Arc;

use vramlab_model::{Event, EventKind, Micros, NameId};
use vramlab_snapshot::{Snapshot, StackId, TextId, TraceEntry};

/// Frames of a stack that are told, from the innermost on.
const DEEPEST: usize = 256;

/// What was told.
#[derive(Debug, Default)]
pub(super) struct DefinedNames {
    /// Texts.
    names: HashMap<String, NameId>,
    /// Callers, by their text and frames.
    callers: HashMap<(String, Vec<String>), NameId>,
    defined: u32,
    /// Names by stack, of the part under way.
    by_stack: HashMap<(StackId, TextId), NameId>,
}

impl DefinedNames {
    /// Stacks have other numbers in the next part.
    pub fn begin_part(&mut self) {
        self.by_stack.clear();
    }

    /// The name of who asked.
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

    /// The name of a caller with its stack, both told where they come for the first time, in any part.
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

    /// The identifier of a text, told at its first use.
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
