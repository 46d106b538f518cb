//! Using private pools: those of graph captures and of `torch.cuda.MemPool`.
//!
//! A private pool is a small and a large pool of its own. Its free blocks serve no other pool, and its segments go back
//! to the driver only once all its users have released it.

use super::source::SegmentSource;
use crate::caching::CachingAllocator;
use crate::home::{Home, OwnerId, PoolKind};
use crate::pool_id::PoolId;
use crate::private::{Diversion, PrivatePool};
use crate::trace::TraceSink;
use crate::units::Bytes;

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Directs requests to a private pool from here on and adds a user to it (`beginAllocateToPool`). Creates the pool
    /// if there is none of that name.
    pub fn begin_diversion(&mut self, diversion: Diversion) {
        self.create_pool(diversion.pool);
        self.private.diversions.push(diversion);
    }

    /// Ends the diversion to `pool` (`endAllocateToPool`). The user that it added remains.
    pub fn end_diversion(&mut self, pool: PoolId) {
        if let Some(at) = self.private.diversions.iter().position(|diversion| diversion.pool == pool) {
            self.private.diversions.remove(at);
        }
    }

    /// Adds a user to a private pool (`createOrIncrefPool`). Creates the pool if there is none of that name.
    pub fn create_pool(&mut self, pool: PoolId) {
        if self.private.find(pool).is_none() {
            self.private.insert(pool);
        }
        if let Some(pool) = self.private.get_mut(pool) {
            pool.users += 1;
        }
    }

    /// Removes a user from a private pool (`releasePool`). The segments of a pool without users go back with the next
    /// [`CachingAllocator::empty_cache`].
    pub fn release_pool(&mut self, pool: PoolId) {
        if let Some(pool) = self.private.get_mut(pool) {
            pool.users = pool.users.saturating_sub(1);
        }
    }

    /// Gives back what a private pool without users has cached, as the end of a `torch.cuda.MemPool` does. A pool with
    /// users is left alone: not even its pending blocks are waited for.
    pub fn empty_pool(&mut self, pool: PoolId) {
        if self.private.iter().any(|private| private.id == pool && private.users == 0) {
            self.synchronize_events_of(Some(pool));
        }
        self.release_private(Some(pool));
        self.verify(None);
    }

    /// Gives back the segments of private pools without users (only those of pool `only`, if given), and removes pools
    /// that have no segments left.
    pub(super) fn release_private(&mut self, only: Option<PoolId>) {
        let freeable = |pool: &&PrivatePool| pool.users == 0 && only.is_none_or(|only| only == pool.id);
        let mut pools: Vec<PoolId> = self.private.iter().filter(freeable).map(|pool| pool.id).collect();
        if pools.len() > 1 {
            self.source.order_pools(&mut pools);
        }
        for id in pools {
            let Some(owner) = self.private.find(id) else { continue };
            for kind in [PoolKind::Small, PoolKind::Large] {
                self.release_home(Home { owner: Some(owner), kind });
            }
            if self.private.of(owner).is_some_and(|pool| pool.segments == 0) {
                self.private.remove(owner);
            }
        }
    }

    /// Counts the bytes that a private pool took from the driver and gave back.
    pub(super) fn count_private(&mut self, home: Home, taken: Bytes, given_back: Bytes) {
        let Some(pool) = home.owner.and_then(|owner| self.private.of(owner)) else { return };
        self.statistics.count_private(pool.id, home.kind, taken, given_back);
    }

    /// Counts the segments and ranges of a private pool.
    pub(super) fn count_segment(&mut self, home: Home, begins: bool) {
        if let Some(pool) = home.owner.and_then(|owner| self.private.of_mut(owner)) {
            pool.segments = if begins { pool.segments + 1 } else { pool.segments.saturating_sub(1) };
        }
    }

    /// The id of the pool that a block belongs to.
    pub(super) fn id_of(&self, owner: Option<OwnerId>) -> PoolId {
        owner.and_then(|owner| self.private.of(owner)).map_or(PoolId::DEFAULT, |pool| pool.id)
    }
}
