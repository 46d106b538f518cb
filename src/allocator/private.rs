//! Private pools, and which requests are directed to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::home::OwnerId;
use crate::pool::Pool;
use crate::pool_id::PoolId;
use crate::units::StreamId;
use crate::version::TorchVersion;

/// Directs requests to a private pool for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diversion {
    /// The private pool.
    pub pool: PoolId,
    /// The stream whose requests are directed; `None` for all streams.
    pub stream: Option<StreamId>,
    /// True while a graph is captured (`torch.cuda.graph`), false if requests are only diverted (`torch.cuda.use_mem_pool`).
    pub capture: bool,
}

/// A private pool: a small and a large pool of its own.
#[derive(Clone, Debug)]
pub(super) struct PrivatePool {
    pub id: PoolId,
    /// Users: those who may still direct requests here or hold blocks of the pool.
    pub users: u64,
    /// Segments and ranges of the pool.
    pub segments: u64,
    pub small: Pool,
    pub large: Pool,
}

/// All private pools, and the diversions under way.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivatePools {
    slots: Vec<Option<PrivatePool>>,
    /// Each pool's slot.
    places: BTreeMap<PoolId, usize>,
    /// Slots without a pool.
    vacant: BTreeSet<usize>,
    /// Diversions under way, the newest last.
    pub diversions: Vec<Diversion>,
}

impl PrivatePools {
    pub fn find(&self, id: PoolId) -> Option<OwnerId> {
        OwnerId::of(*self.places.get(&id)?)
    }

    pub fn insert(&mut self, id: PoolId) {
        let pool = PrivatePool { id, users: 0, segments: 0, small: Pool::default(), large: Pool::default() };
        let place = self.vacant.pop_first().unwrap_or(self.slots.len());
        match self.slots.get_mut(place) {
            Some(vacant) => *vacant = Some(pool),
            None => self.slots.push(Some(pool)),
        }
        self.places.insert(id, place);
    }

    pub fn get_mut(&mut self, id: PoolId) -> Option<&mut PrivatePool> {
        self.slots.get_mut(*self.places.get(&id)?)?.as_mut()
    }

    pub fn of(&self, owner: OwnerId) -> Option<&PrivatePool> {
        self.slots.get(owner.index())?.as_ref()
    }

    pub fn of_mut(&mut self, owner: OwnerId) -> Option<&mut PrivatePool> {
        self.slots.get_mut(owner.index())?.as_mut()
    }

    pub fn remove(&mut self, owner: OwnerId) {
        let place = owner.index();
        if let Some(pool) = self.slots.get_mut(place).and_then(Option::take) {
            self.places.remove(&pool.id);
            self.vacant.insert(place);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &PrivatePool> {
        self.slots.iter().flatten()
    }

    /// The private pool that serves a request for `stream`.
    #[inline]
    pub fn serving(&self, stream: StreamId) -> Option<OwnerId> {
        if self.diversions.is_empty() { None } else { self.diverted(stream) }
    }

    #[cold]
    fn diverted(&self, stream: StreamId) -> Option<OwnerId> {
        let takes = |diversion: &&Diversion| diversion.stream.is_none_or(|only| only == stream);
        self.diversions.iter().rev().find(takes).and_then(|diversion| self.find(diversion.pool))
    }

    /// True while events may be neither waited for nor queried: during a capture, and before 2.13 during any diversion.
    #[inline]
    pub fn hold_events(&self, torch: TorchVersion) -> bool {
        !self.diversions.is_empty()
            && self.diversions.iter().any(|diversion| diversion.capture || torch < TorchVersion::V2_13)
    }
}
