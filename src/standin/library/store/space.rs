//! The addresses of device memory: the host can't touch them, and nothing lies behind them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::placement::{DeviceLibrary, Placement};
use crate::system;
use crate::units::{GIB, MIB};

/// The end of the first device's addresses; those of the others lie below. Systems map nothing here by themselves.
const TOP: u64 = 0x7000_0000_0000;
/// The size of a device's address space: more than any device has memory, so that it is divided as on the card.
const SPAN: u64 = 1024 * GIB;
/// Its uppermost part: there the host's copy of a model was, and the driver uses it first.
const FROM_HOST: u64 = 64 * GIB;
/// Where the H200's driver placed the first range that a program reserved.
const FIRST_RANGE: u64 = 0x3_0200_0000;
/// The end of reserved ranges.
const LAST_RANGE: u64 = 0x4000_0000_0000;
/// Ranges begin at multiples of this.
const RANGE_ALIGNMENT: u64 = 32 * MIB;

/// The address space of a device.
#[derive(Debug)]
pub struct Space {
    /// All its addresses.
    pub range: Range<u64>,
    placement: Placement,
}

impl Space {
    /// Reserves the addresses in the host's address space; `None` if the system has none left.
    pub fn new(device: usize) -> Option<Self> {
        let end = TOP - device as u64 * SPAN;
        let start = if system::reserve_at(end - SPAN, SPAN) { end - SPAN } else { system::reserve(SPAN)? };
        let range = start..start + SPAN;
        let mut placement = Placement::new(range.start..range.end - FROM_HOST);
        placement.occupy_process();
        Some(Self { range, placement })
    }

    /// Places a segment.
    pub fn place(&mut self, size: u64) -> Option<u64> {
        let place = self.placement.place(size)?;
        let from_host = place >= Placement::HOST_TOP - FROM_HOST;
        Some(if from_host { self.range.end - (Placement::HOST_TOP - place) } else { place })
    }

    /// Releases a segment's addresses.
    pub fn release(&mut self, address: u64, size: u64) {
        let from_host = address >= self.range.end - FROM_HOST;
        let place = if from_host { Placement::HOST_TOP - (self.range.end - address) } else { address };
        self.placement.release(place, size);
    }

    /// Notes that the host has copied this many bytes of a model to the device and releases its own copy.
    pub fn release_host(&mut self, bytes: u64) {
        self.placement.release_host(bytes.min(FROM_HOST / 2));
    }

    /// Notes that the program's first kernels are launched.
    pub fn load_kernels(&mut self) {
        self.placement.load_kernels();
    }

    /// Notes that more kernels are launched.
    pub fn load_more_kernels(&mut self) {
        self.placement.load_more_kernels();
    }

    /// Notes that the program begins to use a library.
    pub fn begin(&mut self, library: DeviceLibrary) {
        self.placement.begin(library);
    }

    /// An address for the program's device symbols: after its segments, in the memory of the context.
    pub fn of_symbols(&self) -> u64 {
        self.range.end - FROM_HOST - 8 * MIB
    }
}

/// Address ranges that programs reserve to map memory into.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, ReservedRange>);

/// A reserved range.
#[derive(Clone, Copy, Debug)]
pub struct ReservedRange {
    /// Bytes.
    pub size: u64,
    /// The device that was current at that time.
    pub device: usize,
}

impl Ranges {
    /// Reserves the lowest free addresses.
    pub fn reserve(&mut self, size: u64, alignment: u64, device: usize) -> Option<u64> {
        let alignment = alignment.max(RANGE_ALIGNMENT);
        let mut base = FIRST_RANGE.next_multiple_of(alignment);
        if alignment == RANGE_ALIGNMENT {
            base = FIRST_RANGE;
        }
        // The host may have mapped something of its own there.
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

    /// Releases a range; false if no range of this size begins here.
    pub fn free(&mut self, base: u64, size: u64) -> bool {
        let known = self.0.get(&base).is_some_and(|reserved| reserved.size == size);
        if known {
            self.0.remove(&base);
            system::give_back(base, size);
        }
        known
    }

    /// The range that contains an address, with its start.
    pub fn of(&self, address: u64) -> Option<(u64, ReservedRange)> {
        let (&base, &reserved) = self.0.range(..=address).next_back()?;
        (address - base < reserved.size).then_some((base, reserved))
    }
}
