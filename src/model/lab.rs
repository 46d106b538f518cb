//! Everything that is known of a run at its last event, for screens.

use std::sync::Arc;

use super::effect::Effects;
use super::finding::{Evidence, OutOfMemory, Situation, Switches};
use super::growth::Growth;
use super::log::{LineId, Log};
use super::steps::{StepPeaks, Steps};
use super::{
    Column, Event, EventKind, EventLog, Generated, History, Level, LogLine, MemoryModel, Micros, ModelError, NameId,
    Names, Phase, Reading, SegmentView, View,
};
use crate::units::Bytes;

/// Reduces a stream of events to what screens show.
///
/// Never fails: an event that contradicts those before it is left out, counted, and told in the log.
#[derive(Debug, Default)]
pub struct Lab {
    memory: MemoryModel,
    events: Option<EventLog>,
    history: History,
    steps: Steps,
    growth: Growth,
    /// Of the step under way, and of the last whole one.
    peaks: StepPeaks,
    last_peaks: StepPeaks,
    effects: Effects,
    log: Log,
    names: Names,
    switches: Switches,
    phase: Option<Phase>,
    op: NameId,
    time: Micros,
    generated: Option<Generated>,
    /// What the driver last said of the GPU.
    gpu: Option<Arc<Reading>>,
    /// Forward passes that belong to no step are under way.
    writing: bool,
    oom: Option<OutOfMemory>,
    /// As the last step left it.
    situation: Option<Situation>,
    emptying: Option<Emptying>,
    malformed: u64,
    malformed_line: Option<LineId>,
    segments: SegmentViews,
}

/// An `empty_cache` whose segments are going back.
#[derive(Clone, Copy, Debug)]
struct Emptying {
    released: Bytes,
    line: LineId,
}

impl Lab {
    /// Log lines in a view.
    const LINES: usize = 64;
    /// Names may be defined this far ahead of the last one.
    const NAME_GAP: usize = 1 << 16;

    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Like [`Lab::new`], and keeps the last `limit` events, so that memory can be asked for at any of them.
    #[must_use]
    pub fn with_events(limit: usize) -> Self {
        Self { events: Some(EventLog::new(limit)), ..Self::default() }
    }

    /// The memory after the last event.
    #[must_use]
    pub const fn memory(&self) -> &MemoryModel {
        &self.memory
    }

    /// The events kept, where they are.
    #[must_use]
    pub const fn events(&self) -> Option<&EventLog> {
        self.events.as_ref()
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

    /// Events that contradicted those before them.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        self.time = event.time;
        if let Some(events) = &mut self.events {
            events.push(&self.memory, event.clone());
        }
        let reserved = self.memory.reserved();
        match self.memory.apply(event) {
            Ok(()) => self.follow(&event.kind, reserved),
            Err(error) => self.tell_malformed(&error),
        }
    }

    /// Everything but memory itself; `reserved` is what it was before the event.
    fn follow(&mut self, kind: &EventKind, reserved: Bytes) {
        match kind {
            EventKind::Alloc { .. } | EventKind::SegmentAlloc { .. } | EventKind::SegmentMap { .. } => {
                self.settle_emptying();
                self.peaks.observe(&self.memory);
                self.record_column();
            }
            EventKind::FreeRequested { .. } | EventKind::FreeCompleted { .. } => self.record_column(),
            EventKind::SegmentFree { .. } | EventKind::SegmentUnmap { .. } => {
                if let Some(emptying) = &mut self.emptying {
                    emptying.released += reserved.saturating_sub(self.memory.reserved());
                }
                self.record_column();
            }
            EventKind::Define { id, text } => self.define(*id, text),
            EventKind::EmptyCache => self.empty_cache(),
            EventKind::Oom { requested, device_free, name } => self.out_of_memory(*requested, *device_free, *name),
            EventKind::StepBegin { .. } => {
                self.writing = false;
                self.settle_emptying();
                self.peaks = StepPeaks::begin(&self.memory);
            }
            EventKind::StepEnd(report) => {
                self.settle_emptying();
                self.steps.push(report);
                self.growth.end_step(self.memory.allocated());
                self.effects.end_step(report, &self.peaks, self.memory.stranded());
                self.history.end_step();
                self.last_peaks = self.peaks;
                self.peaks = StepPeaks::begin(&self.memory);
                self.situation = Some(Situation::of(&self.memory));
                self.oom = None;
                self.phase = None;
            }
            EventKind::PhaseBegin { phase } => {
                self.settle_emptying();
                self.phase = Some(*phase);
            }
            EventKind::PhaseEnd { .. } => self.phase = None,
            EventKind::OpBegin { name } => {
                self.settle_emptying();
                self.op = *name;
            }
            EventKind::SwitchFlipped { key, switch, from, to } => self.flip(*key, *switch, *from, *to),
            EventKind::Generating => self.writing = true,
            EventKind::Generated { text } => {
                self.writing = false;
                self.generated = Some(Generated { step: self.steps.finished(), text: Arc::clone(text) });
            }
            EventKind::Copy { direction, bytes, pinned, .. } => self.steps.copy(*direction, *bytes, *pinned),
            EventKind::Reading(reading) => self.read_sensors(reading),
            EventKind::Refused { text } => {
                self.tell(Level::Warning, text);
            }
            EventKind::Note { text } => {
                self.tell(Level::Info, text);
            }
            EventKind::Relabel { .. } | EventKind::Limit { .. } | EventKind::OpEnd | EventKind::HostMemory { .. } => {}
        }
    }

    /// A picture of the lab after the last event. Costs a copy of the segments that changed since the last one.
    pub fn view(&mut self) -> View {
        self.tell_emptying();
        let situation = self.situation.unwrap_or_else(|| Situation::of(&self.memory));
        let evidence = Evidence {
            situation,
            oom: self.oom.as_ref(),
            peak_by_category: &self.last_peaks.by_category,
            steps: &self.steps,
            growth: self.growth,
            switches: &self.switches,
            names: &self.names,
        };
        View {
            position: self.memory.position(),
            time: self.time,
            ledger: self.memory.ledger(),
            peak_allocated: self.memory.peak_allocated(),
            peak_reserved: self.memory.peak_reserved(),
            limit: self.memory.limit(),
            by_category: self.memory.by_category(),
            peak_by_category: self.last_peaks.by_category,
            host: self.memory.host(),
            findings: evidence.findings(),
            segments: self.segments.update(&self.memory),
            history: Arc::new(self.history.clone()),
            traffic: self.memory.traffic(),
            steps: self.steps.view(),
            gpu: self.gpu.clone(),
            phase: self.phase,
            op: self.op,
            effects: self.effects.view(),
            log: self.log.last(Self::LINES),
            generated: self.generated.clone(),
            names: self.names.clone(),
        }
    }

    /// The chart's axis counts events of training: a piece of text takes as many as dozens of steps.
    fn record_column(&mut self) {
        if self.writing {
            return;
        }
        let memory = &self.memory;
        let (allocated, reserved, stranded) = (memory.allocated(), memory.reserved(), memory.stranded());
        self.history.record(Column::of_event(allocated, reserved, stranded, self.steps.finished(), self.time));
    }

    fn define(&mut self, id: NameId, text: &Arc<str>) {
        let index = id.0 as usize;
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
    }

    fn read_sensors(&mut self, reading: &Arc<Reading>) {
        let before = self.gpu.replace(Arc::clone(reading)).and_then(|reading| reading.xid);
        if let Some(xid) = reading.xid.filter(|&xid| before != Some(xid)) {
            let meaning = if xid.meaning().is_empty() { "see NVIDIA's list of Xid errors" } else { xid.meaning() };
            self.tell(Level::Danger, &format!("the driver reports error Xid {}: {meaning}", xid.0));
        }
    }

    fn flip(&mut self, key: char, switch: NameId, from: NameId, to: NameId) {
        self.settle_emptying();
        self.switches.insert(key, to);
        self.growth.restart();
        let (switch, from, to) = (self.names.get(switch), self.names.get(from), self.names.get(to));
        let line = format!("{switch} {from} → {to}");
        self.effects.flip(key, switch, from, to, self.memory.position() - 1);
        self.history.mark(key, to.to_owned());
        self.tell(Level::Switch, &line);
    }

    fn empty_cache(&mut self) {
        self.settle_emptying();
        self.effects.empty_cache(self.memory.position() - 1);
        self.history.mark('e', String::new());
        let line = self.tell(Level::Switch, "empty_cache");
        self.emptying = Some(Emptying { released: Bytes::ZERO, line });
    }

    /// Says what the `empty_cache` under way has returned so far.
    fn tell_emptying(&mut self) {
        let Some(Emptying { released, line }) = self.emptying else { return };
        self.effects.released(released);
        self.log.amend(line, Level::Switch, &format!("empty_cache returned {released}"));
        if let Some(mark) = self.history.last_mark_mut() {
            mark.text = format!("−{released}");
        }
    }

    /// Ends the `empty_cache` under way: something else happened.
    fn settle_emptying(&mut self) {
        if self.emptying.is_some() {
            self.tell_emptying();
            self.emptying = None;
        }
    }

    fn out_of_memory(&mut self, requested: Bytes, device_free: Bytes, name: NameId) {
        self.settle_emptying();
        let memory = &self.memory;
        let (limit, ledger, by_category) = (memory.limit(), memory.ledger(), memory.by_category());
        self.oom = Some(OutOfMemory { requested, device_free, name, limit, ledger, by_category });
        self.history.mark('!', "out of memory".to_owned());
        let line = match self.names.get(name) {
            "" => format!("out of memory: {requested} asked"),
            name => format!("out of memory: {requested} asked for {name}"),
        };
        self.tell(Level::Danger, &line);
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
#[derive(Debug, Default)]
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
