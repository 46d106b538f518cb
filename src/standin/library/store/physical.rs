//! Physical memory, which is allocated separately from its addresses.

use std::collections::BTreeMap;

const FIRST: u64 = 0x5400_0000_0000;
/// Physical memory by handle, and where it is mapped.
#[derive(Debug, Default)]
pub struct Physical {
    /// Blocks by handle.
    pub made: BTreeMap<u64, PhysicalBlock>,
    /// Mappings by address: bytes and handle.
    pub mapped: BTreeMap<u64, (u64, u64)>,
    count: u64,
}

/// A block of physical memory.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalBlock {
    /// Bytes.
    pub size: u64,
    /// Its device.
    pub device: usize,
    /// Number of references: the program's own, and one for every mapping.
    pub holds: u32,
}

impl Physical {
    /// Adds a block, and returns its handle.
    pub fn add(&mut self, made: PhysicalBlock) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, made);
        handle
    }

    /// The mapping at an address: start and bytes.
    pub fn mapped_at(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &(size, _)) = self.mapped.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }

    /// Whether nothing is mapped there.
    pub fn is_free(&self, address: u64, size: u64) -> bool {
        self.mapped.range(..address + size).next_back().is_none_or(|(start, (bytes, _))| start + bytes <= address)
    }
}
