//! PyTorch's CUDA caching allocator, decision for decision, and its caching host allocator.
//!
//! Pure: no clock, no I/O, no GPU. Segments come from a [`SegmentSource`]. A [`TraceSink`] hears of every event in the
//! order in which PyTorch records it.
//!
//! # Vocabulary
//!
//! * A **segment** is memory that the driver gave in one piece (cudaMalloc). With expandable segments it is a
//!   reserved **range** of address space whose **pages** are mapped as they are needed.
//! * A segment is cut into **blocks**. A block is *active* from the moment it is allocated until its bytes can be
//!   reused; from `free` until the events of other streams are done it is *pending*.
//! * A segment is *split* while it holds more than one block; only unsplit free segments go back to the driver.
//! * Each **pool** (small: rounded sizes up to 1 MiB; large: all others) keeps its free blocks in the order stream,
//!   size, address. The first block that fits is taken.
//! * A **private pool** is such a pair of pools for a graph capture or a `torch.cuda.MemPool`. A [`Diversion`] directs
//!   requests to it.
//! * A request has three sizes: *requested* (what the program asked), *rounded* (what is searched for) and the
//!   *block* size (what it occupies).
//!
//! # Versions
//!
//! [`Settings`] name the PyTorch whose rules an allocator follows ([`TorchVersion`], 2.11 unless said otherwise):
//!
//! | since | what changed |
//! | --- | --- |
//! | 2.12 | of equally large blocks the one whose object was made first is taken; `throw_on_cudamalloc_oom`; one more statistic |
//! | 2.13 | of equally large blocks the one in the oldest segment is taken, then the lowest address; a limit is rounded to the nearest byte; only a real capture holds events back; reserved bytes by private pool |
//! | 2.15 | `expandable_segments_reserve` |
//!
//! Private pools with expandable segments are undefined in PyTorch, which counts their segments wrongly. Here they work.
//!
//! # Replaying a recorded history
//!
//! A replay drives a [`CachingAllocator`] with a source that answers from the recording and a sink that compares:
//!
//! * [`SegmentSource::malloc`], [`SegmentSource::reserve_range`] and [`SegmentSource::map`] return the recorded
//!   success, failure and address of each growth. The sink hears of a growth right after the source granted it, and of
//!   a release right before the source is called.
//! * Before [`CachingAllocator::free`], call [`CachingAllocator::record_stream`] for a block whose free was not
//!   completed at once. [`SegmentSource::event_done`] then says which blocks are complete. It is asked first in, first
//!   out, per side stream, at the start of each `malloc` (or by [`CachingAllocator::process_events`]).
//!   [`SegmentSource::order_streams`] gives the order between side streams, which PyTorch leaves to a hash table. A
//!   side stream of its own for each pending block puts every completion under the source's control.
//! * These functions say in advance what a request will do: [`CachingAllocator::peek_free`],
//!   [`CachingAllocator::gc_victims`], [`CachingAllocator::growth_allowed`], [`CachingAllocator::reserved`],
//!   [`CachingAllocator::pending`].
//!
//! # Example
//!
//! ```
//! use vramlab_allocator::units::{Bytes, StreamId};
//! use vramlab_allocator::{CachingAllocator, Settings, SimulatedDriver};
//!
//! // A card of 24 GiB, of which the context takes half a GiB.
//! let driver = SimulatedDriver::new(Bytes::gib(24), Bytes::mib(512));
//! let settings = Settings::parse("expandable_segments:False").unwrap();
//! let mut allocator = CachingAllocator::new(driver, settings, Vec::new());
//!
//! let tensor = allocator.malloc(Bytes::mib(3), StreamId::DEFAULT).unwrap();
//! allocator.free(tensor.address).unwrap();
//!
//! // What `torch.cuda.memory_reserved()` says: a segment of 20 MiB stays.
//! assert_eq!(allocator.reserved(), Bytes::mib(20));
//! // What `torch.cuda.memory._snapshot()` would have recorded, in its order.
//! assert_eq!(allocator.sink().len(), 4);
//! ```

mod attempt;
mod block;
mod caching;
mod completion;
mod diversion;
mod driver;
mod expandable;
mod free_set;
mod home;
mod host;
mod invariants;
mod live;
mod oom;
mod placement;
mod pool;
mod pool_id;
mod private;
mod query;
mod range;
mod reclaim;
mod request;
mod rounding;
mod seed;
mod service;
mod settings;
mod size_class;
mod source;
mod statistics;
mod summary;
mod tie;
mod trace;
pub mod units;
mod version;

#[cfg(test)]
mod tests;

pub use attempt::{Attempt, Refusal};
pub use block::PoolKind;
pub use caching::{CachingAllocator, InvalidFraction};
pub use driver::SimulatedDriver;
pub use host::{CachingHostAllocator, HostAllocError, HostMemorySource, HostStatistics, OutOfHostMemory};
pub use oom::OutOfMemory;
pub use placement::{DeviceLibrary, Placement};
pub use pool_id::PoolId;
pub use private::Diversion;
pub use query::{BlockSnapshot, BlockState, PendingBlock, SegmentSnapshot};
pub use rounding::{largest_device, page_size, pool_of, range_size, round, segment_size};
pub use seed::{RangeSeed, Seed, SeedError};
pub use service::{AllocError, Allocation};
pub use settings::{ErrorClass, Reserve, RoundupTable, Settings, SettingsError, setting_entries};
pub use source::{DeviceMemory, EventToken, OutOfDeviceMemory, SegmentSource};
pub use statistics::{Counter, PoolCounters, Statistics};
pub use trace::{TraceEvent, TraceSink};
pub use version::{TorchVersion, UnknownVersion};
