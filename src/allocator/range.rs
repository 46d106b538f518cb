//! Reserved ranges of address space.

use crate::units::{Address, Bytes};

/// Names a range for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeId(u32);

/// A reserved range of address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub base: Address,
    pub size: Bytes,
    /// Mapping unit, fixed when the range was reserved.
    pub page: Bytes,
}

/// All ranges, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    slots: Vec<Range>,
    vacant: Vec<RangeId>,
}

impl Ranges {
    #[expect(clippy::expect_used, reason = "a range spans more than the device's memory: there are never billions")]
    pub fn insert(&mut self, range: Range) -> RangeId {
        if let Some(id) = self.vacant.pop() {
            self.slots[id.0 as usize] = range;
            return id;
        }
        let id = RangeId(u32::try_from(self.slots.len()).expect("fewer than four billion ranges"));
        self.slots.push(range);
        id
    }

    pub fn get(&self, id: RangeId) -> Range {
        self.slots[id.0 as usize]
    }

    pub fn remove(&mut self, id: RangeId) {
        self.vacant.push(id);
    }
}
