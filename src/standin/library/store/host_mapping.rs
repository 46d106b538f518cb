//! Host memory that the devices know of: page-locked and managed.

use std::collections::BTreeMap;

/// Where such memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingOrigin {
    /// It was made here, page-locked.
    Made,
    /// The program had it and registered it.
    Registered,
    /// It was made here for both sides.
    Managed,
}

/// One piece of it.
#[derive(Clone, Copy, Debug)]
pub struct HostMapping {
    /// Bytes.
    pub size: u64,
    /// Where it comes from.
    pub origin: MappingOrigin,
}

/// All of it, by address.
#[derive(Debug, Default)]
pub struct HostMappings {
    pieces: BTreeMap<u64, HostMapping>,
    bytes: u64,
}

impl HostMappings {
    /// Adds a piece.
    pub fn add(&mut self, address: u64, size: u64, origin: MappingOrigin) {
        self.bytes += size;
        self.pieces.insert(address, HostMapping { size, origin });
    }

    /// Takes away the piece that begins here.
    pub fn remove(&mut self, address: u64) -> Option<HostMapping> {
        let piece = self.pieces.remove(&address)?;
        self.bytes -= piece.size;
        Some(piece)
    }

    /// The piece that holds an address, with its begin.
    pub fn of(&self, address: u64) -> Option<(u64, HostMapping)> {
        let (&start, &piece) = self.pieces.range(..=address).next_back()?;
        (address - start < piece.size).then_some((start, piece))
    }

    /// All bytes of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
