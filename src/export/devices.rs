//! The state of every device at an event: its allocator, the names so far, and the current op, phase and step.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::allocator::PoolId;
use crate::model::{AllocatorState, Category, Event, EventKind, NameId, Phase};
use crate::snapshot::Begins;
use crate::units::{Address, DeviceIndex};

/// All devices of a stream.
#[derive(Debug, Default)]
pub(super) struct Devices(Vec<ExportedDevice>);

/// One device.
#[derive(Debug, Default)]
pub(super) struct ExportedDevice {
    state: AllocatorState,
    names: BoundedNames,
    stacks: HashMap<NameId, Arc<[NameId]>>,
    /// The total number of frames in all stacks.
    frames: usize,
    labels: HashMap<Address, Label>,
    /// Private pools of segments, by their first byte.
    private: BTreeMap<Address, PoolId>,
    /// The op of the current request.
    pub op: NameId,
    pub phase: Option<Phase>,
    /// The current step, as the number of steps finished before it.
    pub step: Option<u64>,
    /// True if an event concerned it.
    pub seen: bool,
    /// True if its blocks' uses are guessed.
    pub guessed: bool,
    /// True if it is a history from PyTorch, whose stacks have no phases: scopes tell them.
    pub pytorchs: bool,
    /// True while reading the initial state of a history that began late: nobody recorded how that state arose.
    pub before_history: bool,
}

/// Who requested a block, and the context of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub category: Category,
    pub name: NameId,
    pub op: NameId,
    pub phase: Option<Phase>,
}

/// Defined texts, in bounded memory.
#[derive(Debug, Default)]
struct BoundedNames {
    texts: HashMap<NameId, Arc<str>>,
    bytes: usize,
}

impl BoundedNames {
    /// The bound, far above any run's number of texts.
    const MOST: usize = 1 << 21;
    const MOST_BYTES: usize = 1 << 26;

    fn define(&mut self, id: NameId, text: &Arc<str>) {
        let bytes = self.bytes.saturating_add(text.len());
        if self.texts.len() < Self::MOST && bytes <= Self::MOST_BYTES {
            self.bytes = bytes;
            self.texts.insert(id, Arc::clone(text));
        }
    }
}

impl Devices {
    /// The most devices in a stream.
    const MOST: usize = crate::model::Ranks::MOST;

    /// Applies an event. Returns its device, unless the device's number is too large.
    pub fn apply(&mut self, event: &Event) -> Option<&ExportedDevice> {
        let index = usize::from(event.device.0);
        if index >= Self::MOST {
            return None;
        }
        if index >= self.0.len() {
            self.0.resize_with(index + 1, ExportedDevice::default);
        }
        self.0[index].apply(event);
        self.0.get(index)
    }

    /// A device, if an event concerned it or a later one.
    pub fn get(&self, device: DeviceIndex) -> Option<&ExportedDevice> {
        self.0.get(usize::from(device.0))
    }

    /// All devices up to the last one that an event concerned, in order.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceIndex, &ExportedDevice)> {
        (0..).map(DeviceIndex).zip(&self.0)
    }
}

impl ExportedDevice {
    /// The most frames of stacks that are stored, far above any run's number.
    const FRAMES: usize = 1 << 23;

    pub const fn state(&self) -> &AllocatorState {
        &self.state
    }

    /// The text of a name; empty if it has none.
    pub fn name(&self, id: NameId) -> &str {
        self.names.texts.get(&id).map_or("", |text| text)
    }

    /// The frames of a name's stack, innermost first; empty if it has none.
    pub fn stack(&self, id: NameId) -> &[NameId] {
        self.stacks.get(&id).map_or(&[], |frames| frames)
    }

    /// The requester of the block that is allocated or pending at `address`.
    pub fn label(&self, address: Address) -> Label {
        self.labels.get(&address).copied().unwrap_or_default()
    }

    /// The pool of the segment that starts at `address`.
    pub fn pool(&self, address: Address) -> PoolId {
        self.private.get(&address).copied().unwrap_or_default()
    }

    /// The current requester.
    pub const fn now(&self) -> Label {
        Label { category: Category::Other, name: NameId::NONE, op: self.op, phase: self.phase }
    }

    fn apply(&mut self, event: &Event) {
        self.seen = true;
        self.state.apply(event);
        match &event.kind {
            EventKind::Alloc { address, category, name, .. } if self.state.block(*address).is_some() => {
                let label = Label { category: *category, name: *name, ..self.now() };
                self.labels.insert(*address, label);
            }
            EventKind::Relabel { address, category, name } => {
                if let Some(label) = self.labels.get_mut(address) {
                    (label.category, label.name) = (*category, *name);
                }
            }
            EventKind::FreeCompleted { address } => {
                self.labels.remove(address);
            }
            EventKind::Define { id, text } => self.names.define(*id, text),
            EventKind::Stack { name, frames } if self.frames + frames.len() < Self::FRAMES => {
                self.frames += frames.len() + 1;
                self.stacks.insert(*name, Arc::clone(frames));
            }
            EventKind::OpBegin { name } => self.op = *name,
            EventKind::OpEnd => self.op = NameId::NONE,
            EventKind::PhaseBegin { phase } => self.phase = Some(*phase),
            EventKind::PhaseEnd { .. } => self.phase = None,
            EventKind::PrivatePool { address, pool } => drop(self.private.insert(*address, *pool)),
            EventKind::SegmentFree { address, .. } => drop(self.private.remove(address)),
            EventKind::StepBegin { step } => {
                self.before_history = false;
                (self.step, self.phase, self.op) = (Some(*step), None, NameId::NONE);
            }
            EventKind::StepEnd(_) => (self.step, self.phase, self.op) = (None, None, NameId::NONE),
            // The state of the run before does not belong to this one.
            EventKind::Begin(about) => {
                *self = Self {
                    state: std::mem::take(&mut self.state),
                    private: std::mem::take(&mut self.private),
                    seen: true,
                    guessed: about.guessed,
                    pytorchs: about.history.is_some(),
                    before_history: about.history.is_some_and(|begins| begins != Begins::First),
                    ..Self::default()
                }
            }
            _ => {}
        }
    }
}
