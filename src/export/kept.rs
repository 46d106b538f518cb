//! The memory that modules kept until backward, if a file tells it: in the last step that ended before a moment, and in
//! the current step.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::ExportError;
use crate::model::{Event, EventKind, Grouping, MemoryModel, Names, Study};
use crate::source::Whole;
use crate::units::DeviceIndex;

/// The starts of the last two steps on every device.
#[derive(Debug, Default)]
pub(super) struct LastSteps(BTreeMap<DeviceIndex, [Option<u64>; 2]>);

impl LastSteps {
    /// Records the event with this index.
    pub fn apply(&mut self, index: u64, event: &Event) {
        if matches!(event.kind, EventKind::StepBegin { .. }) {
            let [_, last] = self.0.get(&event.device).copied().unwrap_or_default();
            self.0.insert(event.device, [last, Some(index)]);
        }
    }

    /// The events of these steps, up to `end`; `None` if no step has begun.
    fn range(&self, device: DeviceIndex, end: u64) -> Option<Range<u64>> {
        let [before, last] = *self.0.get(&device)?;
        Some(before.or(last)?..end)
    }

    /// Studies these steps; `None` if no step has begun.
    ///
    /// # Errors
    /// [`ExportError`] if the events before them can't be read.
    pub fn study(
        &self,
        whole: &Whole,
        device: DeviceIndex,
        end: u64,
        names: &Names,
    ) -> Result<Option<Study>, ExportError> {
        let Some(range) = self.range(device, end) else { return Ok(None) };
        let mut before = MemoryModel::new();
        whole.each(0..range.start, |_, event| {
            if event.device == device {
                // Impossible events are counted by the exported model.
                let _ = before.apply(event);
            }
            Ok::<_, ExportError>(())
        })?;
        Ok(Some(Study::of(range.clone(), &before, names, Grouping::Category, |each| {
            // These events were read successfully before, so there is no error to report.
            let _ = whole.each(range.clone(), |index, event| {
                if event.device == device {
                    each(index, event);
                }
                Ok::<_, ExportError>(())
            });
        })))
    }
}
