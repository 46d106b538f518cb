//! Out of memory: the figures, and PyTorch's account of them.

use std::fmt;

use super::source::SegmentSource;
use crate::attempt::Attempt;
use crate::caching::CachingAllocator;
use crate::request::Request;
use crate::trace::{TraceEvent, TraceSink};
use crate::units::{Bytes, GIB, KIB, MIB, StreamId};

/// A request that failed after everything cached was given back. Displays the content of PyTorch's message in our words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: Bytes,
    /// The rounded size.
    pub rounded: Bytes,
    /// The size of the segment that the driver was asked for: the size that PyTorch's message names.
    pub segment: Bytes,
    /// The stream of the request.
    pub stream: StreamId,
    /// Bytes that the driver reports as free. A limit does not lower them.
    pub device_free: Bytes,
    /// The device's memory.
    pub device_total: Bytes,
    /// The limit, if there is one.
    pub limit: Option<Bytes>,
    /// Bytes of allocated blocks.
    pub allocated: Bytes,
    /// Bytes held from the driver.
    pub reserved: Bytes,
    /// What was tried, in order.
    pub attempts: Vec<Attempt>,
}

impl OutOfMemory {
    /// Bytes held but in no allocated block. As everything releasable went back already, this is fragmentation.
    #[must_use]
    pub const fn reserved_but_unallocated(&self) -> Bytes {
        self.reserved.saturating_sub(self.allocated)
    }
}

impl std::error::Error for OutOfMemory {}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of device memory: tried to allocate {}; the device has {}, of which {} is free",
            MessageSize(self.segment),
            MessageSize(self.device_total),
            MessageSize(self.device_free)
        )?;
        if let Some(limit) = self.limit {
            write!(f, "; {} is allowed", MessageSize(limit))?;
        }
        write!(
            f,
            "; {} is allocated, {} is reserved but unallocated. If the latter is large, try expandable_segments:True",
            MessageSize(self.allocated),
            MessageSize(self.reserved_but_unallocated())
        )
    }
}

/// A size as PyTorch's message writes it: with two decimals, and in each unit up to and including the start of the next one.
struct MessageSize(Bytes);

impl fmt::Display for MessageSize {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.0;
        let (unit, name) = if bytes <= KIB {
            return write!(f, "{bytes} bytes");
        } else if bytes <= MIB {
            (KIB, "KiB")
        } else if bytes <= GIB {
            (MIB, "MiB")
        } else {
            (GIB, "GiB")
        };
        write!(f, "{:.2} {name}", bytes as f64 / unit as f64)
    }
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Records that `request` failed, and returns the error.
    pub(super) fn out_of_memory(&mut self, request: &Request, attempts: Vec<Attempt>) -> OutOfMemory {
        let memory = self.source.memory();
        self.sink.trace(&TraceEvent::Oom {
            device_free: memory.free,
            rounded: request.rounded,
            stream: request.stream,
        });
        self.statistics.num_ooms += 1;
        let allocated = u64::try_from(self.statistics.allocated_bytes.all.current).unwrap_or_default();
        OutOfMemory {
            requested: request.requested,
            rounded: request.rounded,
            segment: request.segment,
            stream: request.stream,
            device_free: memory.free,
            device_total: memory.total,
            limit: self.limit,
            allocated: Bytes(allocated),
            reserved: self.reserved,
            attempts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_change_unit_just_above_it() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1024, "1024 bytes"),
            (1025, "1.00 KiB"),
            (MIB, "1024.00 KiB"),
            (20 * MIB, "20.00 MiB"),
            (GIB, "1024.00 MiB"),
            (3 * GIB / 2, "1.50 GiB"),
        ] {
            assert_eq!(MessageSize(Bytes(bytes)).to_string(), text);
        }
    }
}
