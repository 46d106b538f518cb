//! What is asked of the other allocator.

use std::sync::Arc;

use super::block_number::BlockNumber;
use super::driver::Places;
use super::start::Start;
use vramlab_allocator::PoolId;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// One thing asked. Addresses are gone: they are the run's own.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// A block.
    Take { block: BlockNumber, size: Bytes, stream: StreamId },
    /// It is given back, and usable at once.
    Give(BlockNumber),
    /// It is given back while another stream works on it.
    Lend(BlockNumber),
    /// That stream is done.
    Done(BlockNumber),
    /// A block that the run did not get.
    Try { size: Bytes, stream: StreamId },
    /// For the next request the run's driver gave a segment.
    Offer { address: Address, size: Bytes },
    /// `empty_cache()`.
    EmptyCache,
    /// The program has made its model: the cache was emptied and the peaks start over.
    Settled,
    /// The program's first kernels are loaded.
    KernelsLoaded,
    /// The most that may be reserved in the run.
    Limit(Option<Bytes>),
    /// A step begins, behind so many steps and so many events.
    StepBegin { step: u64, position: u64 },
    /// A step ended.
    StepEnd { step: u64 },
    /// Another run begins, whose segments lie there.
    Begin(Places),
    /// The history begins with this.
    Start(Arc<Start>),
    /// From here on blocks are taken from this pool.
    Pool(PoolId),
    /// A private pool gives back its free memory: it has no user any more.
    ReleasePool(PoolId),
}
