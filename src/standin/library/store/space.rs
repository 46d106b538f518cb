//! Where device memory lies: addresses that the host can't touch, with nothing behind them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::placement::{DeviceLibrary, Placement};
use crate::system;
use crate::units::{GIB, MIB};

/// The addresses of the first device end here; the others' lie below. Nothing that a system maps by itself does.
const TOP: u64 = 0x7000_0000_0000;
/// Addresses of one device: more than any has memory, so that they are cut into pieces as on the card.
const SPAN: u64 = 1024 * GIB;
/// Of them what lies highest: where the host's copy of a model had been, which the driver uses first.
const FROM_HOST: u64 = 64 * GIB;
/// Where the H200's driver put the first range that a program reserved.
const FIRST_RANGE: u64 = 0x3_0200_0000;
/// Reserved ranges end here.
const LAST_RANGE: u64 = 0x4000_0000_0000;
/// Ranges begin at multiples of this.
const RANGE_ALIGNMENT: u64 = 32 * MIB;

/// The addresses of one device.
#[derive(Debug)]
pub struct Space {
    /// All of them.
    pub range: Range<u64>,
    placement: Placement,
}

impl Space {
    /// Takes the addresses away from the host; `None`, where the system has none left.
    pub fn new(device: usize) -> Option<Self> {
        let end = TOP - device as u64 * SPAN;
        let start = if system::reserve_at(end - SPAN, SPAN) { end - SPAN } else { system::reserve(SPAN)? };
        let range = start..start + SPAN;
        let mut placement = Placement::new(range.start..range.end - FROM_HOST);
        placement.occupy_process();
        Some(Self { range, placement })
    }

    /// A place for a segment.
    pub fn place(&mut self, size: u64) -> Option<u64> {
        let place = self.placement.place(size)?;
        let from_host = place >= Placement::HOST_TOP - FROM_HOST;
        Some(if from_host { self.range.end - (Placement::HOST_TOP - place) } else { place })
    }

    /// Gives a place back.
    pub fn release(&mut self, address: u64, size: u64) {
        let from_host = address >= self.range.end - FROM_HOST;
        let place = if from_host { Placement::HOST_TOP - (self.range.end - address) } else { address };
        self.placement.release(place, size);
    }

    /// The host copied so much of a model here, and gives its own copy back.
    pub fn release_host(&mut self, bytes: u64) {
        self.placement.release_host(bytes.min(FROM_HOST / 2));
    }

    /// The program's first kernels are launched.
    pub fn load_kernels(&mut self) {
        self.placement.load_kernels();
    }

    /// More kernels are launched.
    pub fn load_more_kernels(&mut self) {
        self.placement.load_more_kernels();
    }

    /// The program begins to use a library.
    pub fn begin(&mut self, library: DeviceLibrary) {
        self.placement.begin(library);
    }

    /// A place for what the program's code keeps on the device: behind its segments, in what a context holds.
    pub fn of_symbols(&self) -> u64 {
        self.range.end - FROM_HOST - 8 * MIB
    }
}

/// Ranges of addresses that programs reserve to map memory into.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, ReservedRange>);

/// A reserved range.
#[derive(Clone, Copy, Debug)]
pub struct ReservedRange {
    /// Bytes.
    pub size: u64,
    /// The device that was current then.
    pub device: usize,
}

impl Ranges {
    /// Reserves the lowest addresses that are free.
    pub fn reserve(&mut self, size: u64, alignment: u64, device: usize) -> Option<u64> {
        let alignment = alignment.max(RANGE_ALIGNMENT);
        let mut base = FIRST_RANGE.next_multiple_of(alignment);
        if alignment == RANGE_ALIGNMENT {
            base = FIRST_RANGE;
        }
        // The host may have something of its own in between.
        for _ in 0..1024 {
            for (&start, reserved) in &self.0 {
                if start >= base && start - base >= size {
                    break;
                }
                base = base.max((start + reserved.size).next_multiple_of(alignment));
            }
            if base.checked_add(size)? > LAST_RANGE {
                return None;
            }
            if system::reserve_at(base, size) {
                self.0.insert(base, ReservedRange { size, device });
                return Some(base);
            }
            base = (base + size).next_multiple_of(alignment);
        }
        None
    }

    /// Gives a range back; false where none of this size begins here.
    pub fn free(&mut self, base: u64, size: u64) -> bool {
        let known = self.0.get(&base).is_some_and(|reserved| reserved.size == size);
        if known {
            self.0.remove(&base);
            system::give_back(base, size);
        }
        known
    }

    /// The range that holds an address, with its begin.
    pub fn of(&self, address: u64) -> Option<(u64, ReservedRange)> {
        let (&base, &reserved) = self.0.range(..=address).next_back()?;
        (address - base < reserved.size).then_some((base, reserved))
    }
}
