//! A file's history that is still being read, while the memory at its end is shown.

use std::sync::Arc;

use super::reading::{FileProgress, ReadingStage};
use vramlab_allocator::units::DeviceIndex;
use vramlab_recording::{Bounds, Timeline};

/// A history that is still being read.
#[derive(Debug)]
pub(super) struct PendingHistory {
    pub timeline: Timeline,
    bounds: Bounds,
    /// The progress for each device.
    pub reading: Vec<(DeviceIndex, FileProgress)>,
}

impl PendingHistory {
    /// A history of which nothing has been read.
    pub fn new(bounds: Bounds) -> Self {
        Self { timeline: Timeline::new(bounds), bounds, reading: Vec::new() }
    }

    /// Notes that the history will not come. The curve that was read so far stays.
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

    /// The progress of a device's history.
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
