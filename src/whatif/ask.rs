//! The requests to the other allocator.

use std::sync::Arc;

use super::block_number::BlockNumber;
use super::driver::Places;
use super::start::Start;
use vramlab_allocator::PoolId;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// One request to the other allocator. It has no addresses, because they are the run's own.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// Allocates a block.
    Take { block: BlockNumber, size: Bytes, stream: StreamId },
    /// Frees a block that is usable at once.
    Give(BlockNumber),
    /// Frees a block that another stream still uses.
    Lend(BlockNumber),
    /// The other stream has finished with the block.
    Done(BlockNumber),
    /// A request that failed in the run.
    Try { size: Bytes, stream: StreamId },
    /// The run's driver gave this segment for the next request.
    Offer { address: Address, size: Bytes },
    /// `empty_cache()`.
    EmptyCache,
    /// The program has built its model: the cache was emptied, and peaks start over.
    Settled,
    /// The program's first kernels are loaded.
    KernelsLoaded,
    /// The limit of the run changes.
    Limit(Option<Bytes>),
    /// A step begins, after this many steps and events.
    StepBegin { step: u64, position: u64 },
    /// A step ended.
    StepEnd { step: u64 },
    /// Another run begins, whose segments lie at these places.
    Begin(Places),
    /// The history begins in this state.
    Start(Arc<Start>),
    /// From here on blocks are allocated from this pool.
    Pool(PoolId),
    /// A private pool without users releases its free memory.
    ReleasePool(PoolId),
}
