//! Events that occur at most a few times per step: steps and phases, switches, failures, news of the run.

use std::sync::Arc;

use super::Lab;
use crate::autopsy::Autopsy;
use crate::effect::Flip;
use crate::emptying::Emptying;
use crate::event::{EventKind, FailedRequest, NameId, RemedyTrial, StepReport};
use crate::finding::Situation;
use crate::history::{Column, MarkKind};
use crate::memory::MemoryModel;
use crate::reading::Reading;
use crate::run::About;
use crate::steps::StepPeaks;
use crate::view::{GeneratedText, Level};
use vramlab_allocator::units::Bytes;

impl Lab {
    /// Follows an event that occurs at most a few times per step.
    pub(super) fn follow_rarely(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Define { id, text } => self.define(*id, text),
            EventKind::Stack { name, frames } => {
                if let Err(refusal) = self.names.stack(*name, frames) {
                    self.tell(Level::Danger, &refusal.to_string());
                }
            }
            EventKind::Begin(about) => self.begin_anew(about),
            EventKind::About(about) => self.about = Arc::clone(about),
            EventKind::AlikeRanks(alike) => self.sharing.restart(alike),
            EventKind::ForeignContexts(ranks) => self.foreign_contexts = Arc::clone(ranks),
            EventKind::DeviceMemory(memory) => self.device_memory = Some(*memory),
            EventKind::Presence(presence) => self.presence = *presence,
            EventKind::Run(run) => self.run = run.clone(),
            EventKind::Settings(settings) => self.settings = Arc::clone(settings),
            EventKind::EmptyCache => self.empty_cache(),
            EventKind::ResetPeaks => {
                self.tell(Level::Switch, "reset_peak_memory_stats: max_memory_allocated begins anew");
            }
            EventKind::Oom(request) => self.out_of_memory(request),
            EventKind::Remedied(remedied) => self.tell_remedied(remedied),
            EventKind::Weighed(weighed) if self.flipped.is_none_or(|flipped| flipped < weighed.step) => {
                self.weighed = Some(Arc::clone(weighed));
            }
            EventKind::StepBegin { .. } => self.begin_step(),
            EventKind::StepEnd(report) => self.end_step(report),
            EventKind::PhaseBegin { phase } => {
                self.settle_emptying();
                self.boundaries.begin_phase();
                self.phase = Some(*phase);
                if let Some(profile) = &mut self.curves.under_way {
                    profile.begin_phase(*phase);
                }
            }
            EventKind::PhaseEnd { phase } => {
                self.boundaries.end_phase(*phase, self.memory.allocated());
                self.phase = None;
                if let Some(profile) = &mut self.curves.under_way {
                    profile.end_phase();
                }
            }
            EventKind::SwitchFlipped { switch, from, to } => self.flip(*switch, *from, *to),
            EventKind::Generating => self.writing = true,
            EventKind::Generated { text } => {
                self.writing = false;
                self.generated = Some(GeneratedText { step: self.steps.finished(), text: Arc::clone(text) });
            }
            EventKind::Copy { direction, bytes, pinned, .. } => self.steps.copy(*direction, *bytes, *pinned),
            EventKind::Reading(reading) => self.read_sensors(reading),
            EventKind::Modules(modules) => self.modules = Arc::clone(modules),
            EventKind::Lesson(note) => self.lesson = Some(Arc::clone(note)),
            EventKind::Notice { text } => {
                self.tell(Level::Warning, text);
            }
            EventKind::Note { text } => {
                self.tell(Level::Info, text);
            }
            _ => {}
        }
    }

    /// Begins another run. Only the definitions so far stay.
    fn begin_anew(&mut self, about: &Arc<About>) {
        let position = self.memory.position();
        let log = std::mem::take(&mut self.log);
        let lesson = self.lesson.take();
        let memory = MemoryModel::beginning(about);
        let (device, about, time) = (self.device, Arc::clone(about), self.time);
        *self = Self { device, about, memory, log, lesson, time, begun: position, ..Self::default() };
        self.memory.skip_to(position);
    }

    fn begin_step(&mut self) {
        self.writing = false;
        self.settle_emptying();
        self.sharing.begin_step();
        let (memory, step) = (&self.memory, self.steps.finished());
        self.peaks = StepPeaks::begin(memory);
        self.boundaries.begin_step(memory.allocated());
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
        self.curves.begin(step, position);
        self.configurations.begin_step(&self.settings, step, position);
    }

    fn end_step(&mut self, report: &StepReport) {
        self.settle_emptying();
        self.steps.push(report);
        self.growth.end_step(self.memory.allocated());
        self.sharing.end_step(&self.memory, self.names.texts());
        let grown = self.memory.traffic().segment_allocs - self.grown.min(self.memory.traffic().segment_allocs);
        let left = (self.memory.allocated(), self.memory.stranded());
        let sample = self.effects.end_step(report, &self.peaks, left, self.memory.limit(), grown);
        self.history.end(self.memory.stranded());
        self.curves.end();
        self.configurations.end_step(sample, self.curves.last.as_ref());
        self.boundaries.end_step();
        self.last_peaks = self.peaks;
        self.peaks = StepPeaks::begin(&self.memory);
        self.situation = Some(Arc::new(Situation::of(&self.memory, self.names.texts())));
        self.autopsy = None;
        self.phase = None;
    }

    fn define(&mut self, id: NameId, text: &Arc<str>) {
        match self.names.define(id, text) {
            Ok(()) => self.sharing.define(id, text),
            Err(refusal) => {
                self.tell(Level::Danger, &refusal.to_string());
            }
        }
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
        (self.weighed, self.flipped) = (None, Some(self.steps.finished()));
        let text = |id| self.names.texts().shared(id);
        let flip = Flip { switch: text(switch), from: text(from), to: text(to) };
        let line = format!("{} {} → {}", flip.switch, flip.from, flip.to);
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        let kind = MarkKind::Flip { switch: Arc::clone(&flip.switch), to: Arc::clone(&flip.to) };
        self.history.mark(position, step, kind);
        if self.effects.flip(flip, position) {
            self.curves.keep();
        }
        self.tell(Level::Switch, &line);
    }

    fn empty_cache(&mut self) {
        self.settle_emptying();
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        let in_step = self.curves.under_way.is_some();
        self.effects.empty_cache(position, self.memory.reserved(), in_step);
        self.history.mark(position, step, MarkKind::EmptyCache { released: Bytes::ZERO });
        self.curves.keep();
        let line = self.tell(Level::Switch, "empty_cache");
        self.emptying = Some(Emptying::begin(line));
    }

    fn out_of_memory(&mut self, request: &Arc<FailedRequest>) {
        self.settle_emptying();
        let (position, step) = (self.memory.position().saturating_sub(1), self.steps.finished());
        self.autopsy =
            Some(Arc::new(Autopsy::of(&self.memory, self.names.texts(), request, step, (self.op, self.phase))));
        self.history.mark(position, step, MarkKind::OutOfMemory);
        self.effects.cut_short();
        self.configurations.out_of_memory();
        let requested = request.requested;
        let line = match self.names.texts().get(request.name) {
            "" => format!("out of memory: {requested} asked"),
            name => format!("out of memory: {requested} asked for {name}"),
        };
        self.tell(Level::Danger, &line);
    }

    fn tell_remedied(&mut self, remedied: &Arc<[RemedyTrial]>) {
        if let Some(autopsy) = &mut self.autopsy {
            let autopsy = Arc::make_mut(autopsy);
            (autopsy.remedied, autopsy.tried) = (Arc::clone(remedied), true);
        }
    }
}
