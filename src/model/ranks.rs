//! The labs of all devices of one stream.

use super::lab::PackedLab;
use super::{Event, History, Lab};
use vramlab_allocator::units::DeviceIndex;

/// One [`Lab`] for every device that events name.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    labs: Vec<Lab>,
    /// The number of events for devices beyond [`Ranks::MOST`], which are ignored.
    beyond: u64,
    position: u64,
}

impl Ranks {
    /// The most devices in a stream.
    pub const MOST: usize = 64;

    /// Applies the next event to the lab of its device.
    pub fn apply(&mut self, event: &Event) {
        self.position += 1;
        let index = usize::from(event.device.0);
        if index >= self.labs.len() {
            if index >= Self::MOST {
                self.beyond += 1;
                return;
            }
            self.labs.resize_with(index + 1, Lab::new);
        }
        self.labs[index].apply_at(event, self.position - 1);
    }

    /// The number of events applied so far, of all devices.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The number of events for devices that can't exist.
    #[must_use]
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// The number of devices that events named.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.labs.len()
    }

    /// True if nothing has happened yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.labs.is_empty()
    }

    /// The lab of a device.
    #[must_use]
    pub fn lab(&self, device: DeviceIndex) -> Option<&Lab> {
        self.labs.get(usize::from(device.0))
    }

    /// The lab of a device, for its view.
    pub fn lab_mut(&mut self, device: DeviceIndex) -> Option<&mut Lab> {
        self.labs.get_mut(usize::from(device.0))
    }

    /// A copy to go on from later, without the columns of histories and without what is kept for the next view.
    #[must_use]
    pub fn checkpoint(&self) -> Self {
        Self { labs: self.labs.iter().map(Lab::checkpoint).collect(), ..*self }
    }

    /// The history of every lab.
    pub fn histories(&self) -> Vec<History> {
        self.labs.iter().map(|lab| lab.history().clone()).collect()
    }

    /// Restores what [`Ranks::histories`] returned after the same number of events.
    pub fn take_histories(&mut self, histories: Vec<History>) {
        self.labs.iter_mut().zip(histories).for_each(|(lab, history)| lab.take_history(history));
    }

    /// Everything that is known now in a small part of its bytes, to go on from later.
    #[must_use]
    pub fn pack(&mut self) -> PackedRanks {
        PackedRanks {
            labs: self.labs.iter_mut().map(PackedLab::of).collect(),
            beyond: self.beyond,
            position: self.position,
        }
    }
}

/// [`Ranks`] at a moment, without the columns of histories and without what is kept for the next view.
#[derive(Clone, Debug)]
pub struct PackedRanks {
    labs: Box<[PackedLab]>,
    beyond: u64,
    position: u64,
}

impl PackedRanks {
    /// A state to go on from.
    #[must_use]
    pub fn unpack(&self) -> Ranks {
        let labs = self.labs.iter().map(PackedLab::unpack).collect();
        Ranks { labs, beyond: self.beyond, position: self.position }
    }

    /// The number of events before it, of all devices.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The number of blocks and free pieces of all devices. The cost of packing and unpacking is proportional to it.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.labs.iter().map(PackedLab::pieces).sum()
    }

    /// Approximate bytes, including what it alone keeps alive once the run has gone on.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.labs.iter().map(PackedLab::weight).sum()
    }
}
