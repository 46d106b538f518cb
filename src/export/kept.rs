//! What modules kept until backward, where a file tells it: of the last step that ended before a moment, and of the one under way.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::ExportError;
use crate::model::{Event, EventKind, Grouping, MemoryModel, Names, Study};
use crate::source::Whole;
use crate::units::DeviceIndex;

/// Where the last two steps of every device begin.
#[derive(Debug, Default)]
pub(super) struct LastSteps(BTreeMap<DeviceIndex, [Option<u64>; 2]>);

impl LastSteps {
    /// Takes note of the event with this index.
    pub fn apply(&mut self, index: u64, event: &Event) {
        if matches!(event.kind, EventKind::StepBegin { .. }) {
            let [_, last] = self.0.get(&event.device).copied().unwrap_or_default();
            self.0.insert(event.device, [last, Some(index)]);
        }
    }

    /// The events of them, up to `end`; `None` where no step has begun.
    fn range(&self, device: DeviceIndex, end: u64) -> Option<Range<u64>> {
        let [before, last] = *self.0.get(&device)?;
        Some(before.or(last)?..end)
    }

    /// Studies them; `None` where no step has begun.
    ///
    /// # Errors
    /// [`ExportError`] where the events before them can't be read.
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
                // What can't be is counted by the model that is exported.
                let _ = before.apply(event);
            }
            Ok::<_, ExportError>(())
        })?;
        Ok(Some(Study::of(range.clone(), &before, names, Grouping::Category, |each| {
            // They were read before: there is nothing to tell.
            let _ = whole.each(range.clone(), |index, event| {
                if event.device == device {
                    each(index, event);
                }
                Ok::<_, ExportError>(())
            });
        })))
    }
}
