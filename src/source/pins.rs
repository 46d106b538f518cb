//! A pinned step that others are compared with, with its curve, the memory at its peak, and a study of its ops.

use std::ops::Range;
use std::sync::Arc;

use super::picture::{Cursor, PinnedStep};
use super::studies::{Studies, StudyRequest, Window, step_around};
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, Grouping, Lab, Study};
use vramlab_recording::{Direction, Timeline};

/// The pin of one device.
#[derive(Debug)]
pub(super) struct Pins {
    pinned: Option<PinnedStep>,
    /// True if the pinned step is the one before the step shown: the next key press pins the step shown.
    before: bool,
    range: Range<u64>,
    studies: Studies,
}

impl Pins {
    pub fn new() -> Self {
        Self { pinned: None, before: false, range: 0..0, studies: Studies::new() }
    }

    /// The pinned step, with what is known of it so far.
    pub fn picture(&self) -> Option<Arc<PinnedStep>> {
        let pinned = self.pinned.clone()?;
        Some(Arc::new(PinnedStep { study: self.studies.last(), ..pinned }))
    }

    /// Pins the step before the one around `place`, then that step itself, then nothing.
    ///
    /// # Errors
    /// Why nothing is pinned, in a sentence.
    pub fn next(&mut self, timeline: &mut Timeline, device: DeviceIndex, place: u64) -> Result<(), &'static str> {
        if self.pinned.is_some() && !self.before {
            *self = Self::new();
            return Ok(());
        }
        let shown = step_around(timeline, device, place);
        let begins = |event: &Event| event.device == device && matches!(event.kind, EventKind::StepBegin { .. });
        let earlier = timeline.find(shown.start, Direction::Backward, begins);
        let earlier = earlier.map(|begin| step_around(timeline, device, begin + 1));
        let (range, before) = match earlier {
            Some(earlier) if self.pinned.is_none() => (earlier, true),
            _ => (shown, false),
        };
        let end = timeline.at(range.end).ok_or("the earlier step is no longer kept")?;
        let lab = end.lab(device).ok_or("there is no step here")?;
        let (peak, step) = lab.last_peak().zip(lab.last_profile().cloned()).ok_or("no step has ended here yet")?;
        if !range.contains(&step.position.saturating_sub(1)) {
            return Err("this step has not ended yet: stand at a later one");
        }
        let view = timeline.at(peak).and_then(|mut ranks| ranks.lab_mut(device).map(Lab::view));
        let view = Arc::new(view.ok_or("the earlier step is no longer kept")?);
        self.pinned = Some(PinnedStep { view, step, study: None });
        self.before = before;
        self.range = range;
        self.studies = Studies::new();
        let window = Window::Range(self.range.start, self.range.end);
        self.studies.want(Some(StudyRequest { window, grouping: Grouping::Category }));
        self.studies.begin(timeline, device, Cursor::At(peak), false);
        Ok(())
    }

    /// The result of its study; waits for ever if none is due.
    pub async fn found(&mut self) -> Study {
        self.studies.next().await
    }

    /// Stores the study.
    pub fn take(&mut self, study: Study) {
        self.studies.take(study);
    }
}
