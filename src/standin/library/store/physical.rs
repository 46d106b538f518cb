//! Memory that is made apart from its addresses.

use std::collections::BTreeMap;

const FIRST: u64 = 0x5400_0000_0000;
/// Memory by handle, and where it is mapped.
#[derive(Debug, Default)]
pub struct Physical {
    /// Memory by handle.
    pub made: BTreeMap<u64, PhysicalBlock>,
    /// By address: bytes and handle.
    pub mapped: BTreeMap<u64, (u64, u64)>,
    count: u64,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalBlock {
    /// Bytes.
    pub size: u64,
    /// Of which device.
    pub device: usize,
    /// The program's own hold on it, and every mapping.
    pub holds: u32,
}

impl Physical {
    /// Keeps a piece; its handle.
    pub fn add(&mut self, made: PhysicalBlock) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, made);
        handle
    }

    /// What is mapped at an address: begin and bytes.
    pub fn mapped_at(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &(size, _)) = self.mapped.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }

    /// Whether nothing is mapped there.
    pub fn is_free(&self, address: u64, size: u64) -> bool {
        self.mapped.range(..address + size).next_back().is_none_or(|(start, (bytes, _))| start + bytes <= address)
    }
}
