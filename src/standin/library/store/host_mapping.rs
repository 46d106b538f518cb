//! Host memory that the devices can access: page-locked and managed.

use std::collections::BTreeMap;

/// The origin of such memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingOrigin {
    /// It was allocated here, page-locked.
    Made,
    /// The program allocated it and registered it here.
    Registered,
    /// It was allocated here as managed memory.
    Managed,
}

/// A range of such memory.
#[derive(Clone, Copy, Debug)]
pub struct HostMapping {
    /// Bytes.
    pub size: u64,
    /// Its origin.
    pub origin: MappingOrigin,
}

/// All ranges, by address.
#[derive(Debug, Default)]
pub struct HostMappings {
    pieces: BTreeMap<u64, HostMapping>,
    bytes: u64,
}

impl HostMappings {
    /// Adds a range.
    pub fn add(&mut self, address: u64, size: u64, origin: MappingOrigin) {
        self.bytes += size;
        self.pieces.insert(address, HostMapping { size, origin });
    }

    /// Removes the range that begins at this address.
    pub fn remove(&mut self, address: u64) -> Option<HostMapping> {
        let piece = self.pieces.remove(&address)?;
        self.bytes -= piece.size;
        Some(piece)
    }

    /// The range that contains an address, with its start.
    pub fn of(&self, address: u64) -> Option<(u64, HostMapping)> {
        let (&start, &piece) = self.pieces.range(..=address).next_back()?;
        (address - start < piece.size).then_some((start, piece))
    }

    /// The bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
