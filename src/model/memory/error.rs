//! Errors of an event stream.

use thiserror::Error;

use vramlab_allocator::units::{Address, Bytes};

/// An event that contradicts earlier ones. The model ignored it and is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "event {position}: {fault}; it was left out: the stream is damaged or incomplete, record it again from the start"
)]
pub struct ModelError {
    /// Index of the event in the stream.
    pub position: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A size is zero, a range ends beyond the last address, or a block is smaller than the bytes asked for.
    #[error("{size} at {address} is no possible piece of memory")]
    Impossible {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// A segment is allocated where there already is one.
    #[error("the segment of {size} at {address} overlaps another")]
    SegmentOverlap {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// A segment is released that does not exist, or has another size.
    #[error("no segment of {size} is at {address}")]
    UnknownSegment {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// A segment or pages are released while they contain a block.
    #[error("{size} at {address} go back to the driver while blocks lie there")]
    SegmentInUse {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// Pages that do not start or end at a page boundary of their range.
    #[error("{size} at {address} are not whole pages of their range")]
    NotWholePages {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// A block is allocated outside all segments.
    #[error("the block of {size} at {address} lies in no segment")]
    OutsideSegments {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// A block is allocated where there already is one.
    #[error("the block of {size} at {address} overlaps another")]
    BlockOverlap {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// The block that is freed or relabelled is not allocated.
    #[error("nobody holds a block at {address}")]
    UnknownBlock {
        /// First byte.
        address: Address,
    },
    /// A block is freed a second time.
    #[error("the block at {address} was freed before")]
    FreedTwice {
        /// First byte.
        address: Address,
    },
    /// More segments than any device holds.
    #[error("there would be more than {most} segments")]
    TooManySegments {
        /// The most that are followed.
        most: usize,
    },
    /// More pieces than any program's memory has.
    #[error("memory would be divided in more than {most} pieces")]
    TooManyPieces {
        /// The most that are followed.
        most: usize,
    },
    /// A free is completed that was never requested.
    #[error("the block at {address} becomes free but was not given back")]
    FreeNotRequested {
        /// First byte.
        address: Address,
    },
}
