//! Callers: a name for every stack, and its frames, each reported once.

use std::collections::HashMap;

use vramlab_model::{Event, EventKind, Micros, NameId, naming};
use vramlab_snapshot::{Frame, Snapshot, StackId, TextId};

/// The names of callers reported so far.
#[derive(Debug)]
pub(super) struct Callers<'a> {
    snapshot: &'a Snapshot,
    names: HashMap<(StackId, TextId), NameId>,
    early: HashMap<StackId, NameId>,
    frames: HashMap<Frame, NameId>,
    /// The names of ops.
    ops: HashMap<&'static str, NameId>,
    defined: u32,
}

impl<'a> Callers<'a> {
    /// The most frames of a stack that are reported, from the innermost on: more than any program has without endless recursion.
    const DEEPEST: usize = 1024;

    pub fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            names: HashMap::new(),
            early: HashMap::new(),
            frames: HashMap::new(),
            ops: HashMap::new(),
            defined: 0,
        }
    }

    /// The name of a caller. Its first use reports it, with its stack, to `emit`.
    pub fn name(&mut self, stack: StackId, metadata: TextId, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        let key = (stack, metadata);
        if let Some(id) = self.names.get(&key) {
            return *id;
        }
        let text = self.snapshot.caller(stack, metadata);
        let id = text.map_or(NameId::NONE, |text| self.define(&text, time, emit));
        self.names.insert(key, id);
        self.stack(id, stack, time, emit);
        id
    }

    /// The name of a block that existed when the history began or, unless there `is_history`, at the end.
    pub fn early_name(
        &mut self,
        stack: StackId,
        is_history: bool,
        time: Micros,
        emit: &mut impl FnMut(Event),
    ) -> NameId {
        if let Some(id) = self.early.get(&stack) {
            return *id;
        }
        let text = match (self.snapshot.caller(stack, TextId::default()), is_history) {
            (Some(caller), true) => format!("{}: {caller}", naming::BEFORE_RECORDING),
            (Some(caller), false) => caller,
            (None, true) => naming::BEFORE_RECORDING.to_owned(),
            (None, false) => naming::NOT_RECORDED.to_owned(),
        };
        let id = self.define(&text, time, emit);
        self.early.insert(stack, id);
        self.stack(id, stack, time, emit);
        id
    }

    /// The name of an op of ranks.
    pub fn op(&mut self, op: &'static str, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        if let Some(id) = self.ops.get(op) {
            return *id;
        }
        let id = self.define(op, time, emit);
        self.ops.insert(op, id);
        id
    }

    /// Reports the stack of a name.
    fn stack(&mut self, id: NameId, stack: StackId, time: Micros, emit: &mut impl FnMut(Event)) {
        if stack != StackId::EMPTY && id != NameId::NONE {
            let snapshot = self.snapshot;
            let frames = snapshot.program_frames(stack).take(Self::DEEPEST);
            let frames = frames.map(|frame| self.frame(frame, time, emit)).collect();
            emit(Event::new(time, EventKind::Stack { name: id, frames }));
        }
    }

    fn frame(&mut self, frame: Frame, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        if let Some(id) = self.frames.get(&frame) {
            return *id;
        }
        let text = self.snapshot.told(frame).text();
        let id = self.define(&text, time, emit);
        self.frames.insert(frame, id);
        id
    }

    fn define(&mut self, text: &str, time: Micros, emit: &mut impl FnMut(Event)) -> NameId {
        self.defined = self.defined.saturating_add(1);
        let id = NameId(self.defined);
        emit(Event::new(time, EventKind::Define { id, text: text.into() }));
        id
    }
}
