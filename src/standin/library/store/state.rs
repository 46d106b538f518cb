//! What a process has on its devices.

use std::collections::BTreeMap;

use super::device::{self, Device};
use super::events::Events;
use super::graphs::Graphs;
use super::host_mapping::HostMappings;
use super::physical::Physical;
use super::shadow::Shadow;
use super::space::{Ranges, Space};
use super::streams::Streams;
use crate::card::Card;
use crate::codes::{Code, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY};

/// All of it.
#[derive(Debug, Default)]
pub struct State {
    /// The devices that the program sees, by number.
    pub devices: Vec<Device>,
    /// Reserved ranges of addresses.
    pub ranges: Ranges,
    /// Memory that was made to be mapped.
    pub physical: Physical,
    /// Page-locked host memory.
    pub pinned: HostMappings,
    /// Streams.
    pub streams: Streams,
    /// Events.
    pub events: Events,
    /// Graphs.
    pub graphs: Graphs,
    /// What is known of the bytes on the devices.
    pub shadow: Shadow,
}

impl State {
    /// A device, with its context.
    pub fn device(&mut self, device: usize) -> Result<&mut Device, Code> {
        let card = Card::get().ok_or(NO_DEVICE)?;
        if device >= device::count() {
            return Err(if device::count() == 0 { NO_DEVICE } else { INVALID_DEVICE });
        }
        while self.devices.len() <= device {
            let space = Space::new(self.devices.len()).ok_or(OUT_OF_MEMORY)?;
            // A context takes memory where it is made alone: see `begin`.
            self.devices.push(Device { space, segments: BTreeMap::new(), used: 0, kernels_loaded: false });
        }
        let found = self.devices.get_mut(device).ok_or(INVALID_DEVICE)?;
        if found.used == 0 {
            found.used = card.context.max(1);
        }
        Ok(found)
    }

    /// The device that this thread uses.
    pub fn current(&mut self) -> Result<&mut Device, Code> {
        self.device(device::current())
    }

    /// Whether a device has a context.
    pub fn has_context(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|known| known.used > 0)
    }

    /// The device on which an address lies.
    pub fn device_of(&self, address: u64) -> Option<usize> {
        let in_segments = self.devices.iter().position(|known| known.space.range.contains(&address));
        in_segments.or_else(|| self.ranges.of(address).map(|(_, reserved)| reserved.device))
    }
}
