//! The view of a lab that screens draw.

use std::sync::Arc;

use super::Lab;
use crate::finding::{FindingInputs, Situation};
use crate::run::RunState;
use crate::view::{Profiles, View};

impl Lab {
    /// The number of log lines in a view.
    const LINES: usize = 64;

    /// A picture of the lab after the last event. Copies the segments that changed since the last view.
    pub fn view(&mut self) -> View {
        self.tell_emptying();
        let situation = self.situation();
        let has_ended = self.run == RunState::Finished && self.fullest.1 > 0;
        let known = FindingInputs {
            situation: &situation,
            fullest: has_ended.then_some(self.fullest),
            spare: self.last_peaks.spare,
            oom: self.autopsy.as_deref(),
            peak_by_category: &self.last_peaks.by_category,
            peak_position: (self.last_peaks.position > 0).then_some(self.last_peaks.position),
            steps: &self.steps,
            growth: self.growth,
            settings: &self.settings,
            weighed: self.weighed.as_deref(),
            names: self.names.texts(),
            shared: self.sharing.last(),
        };
        View {
            device: self.device,
            about: Arc::clone(&self.about),
            run: self.run.clone(),
            settings: Arc::clone(&self.settings),
            position: self.memory.position(),
            begun: self.begun,
            time: self.time,
            ledger: self.memory.ledger(),
            rested: situation.ledger(),
            largest_hole: self.memory.largest_hole(),
            peak_allocated: self.memory.peak_allocated(),
            peak_requested: self.memory.peak_requested(),
            peak_reserved: self.memory.peak_reserved(),
            since_reset: self.memory.since_reset(),
            inactive_split: self.memory.inactive_split(),
            peak_position: self.peak_position,
            limit: self.memory.limit(),
            by_category: self.memory.by_category(),
            peak_by_category: self.last_peaks.by_category,
            host: self.memory.host(),
            findings: known.findings(),
            segments: self.segments.update(&self.memory),
            history: Arc::new(self.history.clone()),
            profiles: Profiles {
                under_way: Arc::new(self.curves.under_way.clone().unwrap_or_default()),
                last: self.curves.last.clone(),
                before: self.curves.before.clone(),
            },
            boundaries: self.boundaries,
            traffic: self.memory.traffic(),
            steps: self.steps.view(),
            gpu: self.gpu.clone(),
            lesson: self.lesson.clone(),
            phase: self.phase,
            op: self.op,
            touched: self.touched.clone(),
            effects: self.effects.view(),
            configurations: self.configurations(),
            autopsy: self.autopsy.clone(),
            weighed: self.weighed.clone(),
            log: self.log.last(Self::LINES),
            generated: self.generated.clone(),
            modules: Arc::clone(&self.modules),
            names: self.names.texts().clone(),
            stacks: self.names.stacks().clone(),
            malformed: self.malformed,
        }
    }

    /// The situation at the end of the last step, or now if none has ended.
    fn situation(&mut self) -> Arc<Situation> {
        if let Some(situation) = &self.situation {
            return Arc::clone(situation);
        }
        match &self.viewed {
            Some(viewed) if viewed.position() == self.memory.position() => Arc::clone(viewed),
            _ => {
                let now = Arc::new(Situation::of(&self.memory, self.names.texts()));
                self.viewed = Some(Arc::clone(&now));
                now
            }
        }
    }
}
