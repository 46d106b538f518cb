//! The history of a file that is still read, behind the memory at its end.

use std::sync::Arc;

use super::reading::{FileProgress, ReadingStage};
use vramlab_allocator::units::DeviceIndex;
use vramlab_recording::{Bounds, Timeline};

/// A history that is still on its way, behind the memory at its end.
#[derive(Debug)]
pub(super) struct PendingHistory {
    pub timeline: Timeline,
    bounds: Bounds,
    /// How far it is, for each device.
    pub reading: Vec<(DeviceIndex, FileProgress)>,
}

impl PendingHistory {
    /// Nothing of it is there.
    pub fn new(bounds: Bounds) -> Self {
        Self { timeline: Timeline::new(bounds), bounds, reading: Vec::new() }
    }

    /// It will not come. The curve as far as it was read stays.
    pub fn fail(&mut self, device: DeviceIndex) {
        self.timeline = Timeline::new(self.bounds);
        if self.reading.is_empty() {
            self.reading
                .push((device, FileProgress { doing: ReadingStage::Failed, part: None, least: Arc::default() }));
        }
        for (_, reading) in &mut self.reading {
            (reading.doing, reading.part) = (ReadingStage::Failed, None);
        }
    }

    /// How far the history of a device is.
    pub fn reading(&self, device: DeviceIndex) -> FileProgress {
        let of_device = self.reading.iter().find(|(of, _)| *of == device);
        match of_device.or(self.reading.first()) {
            Some((of, reading)) if *of == device => reading.clone(),
            Some((_, other)) => FileProgress { least: Arc::default(), ..other.clone() },
            None => FileProgress { doing: ReadingStage::Reading, part: None, least: Arc::default() },
        }
    }

    pub fn has_failed(&self) -> bool {
        self.reading.iter().any(|(_, reading)| reading.doing == ReadingStage::Failed)
    }
}
