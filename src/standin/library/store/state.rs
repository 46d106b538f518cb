//! The state of a process and its devices.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::device::{self, Device};
use super::events::Events;
use super::graphs::Graphs;
use super::host_mapping::HostMappings;
use super::physical::Physical;
use super::ranks::Communicators;
use super::shadow::Shadow;
use super::space::{Ranges, Space};
use super::streams::{COMMON, Streams};
use crate::card::Card;
use crate::codes::{Code, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY};
use crate::costs;
use crate::placement::DeviceLibrary;

/// All of the state.
#[derive(Debug, Default)]
pub struct State {
    /// The devices that the program sees, by number.
    pub devices: Vec<Device>,
    /// Reserved address ranges.
    pub ranges: Ranges,
    /// Physical memory, to be mapped.
    pub physical: Physical,
    /// Page-locked and managed host memory.
    pub pinned: HostMappings,
    /// Streams.
    pub streams: Streams,
    /// Events.
    pub events: Events,
    /// When the work of the host and the streams ends.
    pub clock: Clock,
    /// Graphs.
    pub graphs: Graphs,
    /// The known bytes of the devices.
    pub shadow: Shadow,
    /// The communicators, which are shared with other ranks.
    pub ranks: Communicators,
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
            // A context takes memory when it is created: see `begin`.
            self.devices.push(Device { space, segments: BTreeMap::new(), used: 0, launches: 0 });
        }
        let found = self.devices.get_mut(device).ok_or(INVALID_DEVICE)?;
        if found.used == 0 {
            found.used = card.context.max(1);
        }
        Ok(found)
    }

    /// The device of a stream, and a handle that identifies its work: the default stream has several names.
    pub fn queue(&self, stream: u64) -> (usize, u64) {
        match self.streams.get(stream) {
            Some(known) if stream >= COMMON => (known.device, stream),
            _ => (device::current(), 0),
        }
    }

    /// Puts work that takes `time` on a stream, or captures it.
    pub fn put_on(&mut self, stream: u64, time: u64) {
        let (device, queue) = self.queue(stream);
        let is_captured = queue != 0 && self.streams.get(queue).is_some_and(|known| known.capture.is_some());
        self.clock.launch(device, queue, costs::enqueue(), if is_captured { 0 } else { time });
    }

    /// Reads what other ranks have sent.
    pub fn poll_ranks(&mut self) {
        self.ranks.poll(&mut self.shadow, &mut self.clock, &mut self.events);
    }

    /// The current device of this thread.
    pub fn current(&mut self) -> Result<&mut Device, Code> {
        self.device(device::current())
    }

    /// Notes that the program begins to use a library on this thread's device.
    pub fn begin(&mut self, library: DeviceLibrary) {
        // A program without a device gets its error elsewhere.
        if let Ok(device) = self.current() {
            device.space.begin(library);
        }
    }

    /// Takes NCCL's memory on a communicator's device, if the communicator is the first there.
    pub fn take_for_ranks(&mut self, handle: u64) -> Result<(), Code> {
        let Some(communicator) = self.ranks.get(handle) else { return Ok(()) };
        let number = communicator.device;
        let bytes = Card::get().map_or(0, |card| card.ranks);
        if communicator.meeting.is_none() || bytes == 0 || self.ranks.has_taken(number) {
            return Ok(());
        }
        self.device(number)?.take(bytes)?;
        if let Some(communicator) = self.ranks.get(handle) {
            communicator.taken = bytes;
        }
        Ok(())
    }

    /// Removes a communicator.
    pub fn leave_ranks(&mut self, handle: u64) -> bool {
        let Some(communicator) = self.ranks.remove(handle) else { return false };
        // The work on its streams is finished.
        let end = self.clock.end_of_device(communicator.device);
        self.clock.wait(end);
        self.ranks.all_are_seen();
        if communicator.taken > 0
            && let Some(device) = self.devices.get_mut(communicator.device)
        {
            device.give_back(communicator.taken);
        }
        true
    }

    /// Whether a device has a context.
    pub fn has_context(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|known| known.used > 0)
    }

    /// The device that contains an address.
    pub fn device_of(&self, address: u64) -> Option<usize> {
        let in_segments = self.devices.iter().position(|known| known.space.range.contains(&address));
        in_segments.or_else(|| self.ranges.of(address).map(|(_, reserved)| reserved.device))
    }
}
