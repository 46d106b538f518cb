//! The device of a program: its memory is arithmetic, its addresses are the recorded ones, its events follow a clock.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use vramlab::allocator::{DeviceMemory, EventToken, OutOfDeviceMemory, PoolId, SegmentSource};
use vramlab::units::{Address, Bytes, MIB, StreamId};

/// Where the first expandable range lies; each begins at a multiple of [`RANGE_ALIGNMENT`].
const FIRST_RANGE: u64 = 0x3_0200_0000;
const RANGE_ALIGNMENT: u64 = 32 * MIB;

/// When an event is done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    At(u64),
    Held(String),
}

/// An event that a freed block waits for.
#[derive(Clone, Debug)]
struct Awaited {
    token: u64,
    block: Address,
}

#[derive(Debug)]
pub struct Device {
    pub total: Bytes,
    pub capacity: Bytes,
    pub delay: u64,
    /// Addresses of the next segments.
    pub addresses: VecDeque<Address>,
    /// Addresses of the next segments to be freed.
    pub releases: VecDeque<Address>,
    /// The private pools of segments.
    pub pools: BTreeMap<Address, PoolId>,
    /// Blocks whose events are recorded later; a block is listed once for each event.
    pub deferred: VecDeque<Address>,
    /// Addresses of all blocks in the order of their completion, and how many are completed.
    pub completions: Vec<Address>,
    pub count: Rc<Cell<usize>>,
    used: Bytes,
    next_range: u64,
    now: u64,
    /// The block that is being freed, and the key that holds its events.
    freeing: Option<(Address, Option<String>)>,
    held: BTreeSet<String>,
    events: Vec<Due>,
    queues: BTreeMap<StreamId, VecDeque<Awaited>>,
}

impl Device {
    pub fn new() -> Self {
        Self {
            total: Bytes::ZERO,
            capacity: Bytes::ZERO,
            delay: 3,
            addresses: VecDeque::new(),
            releases: VecDeque::new(),
            pools: BTreeMap::new(),
            deferred: VecDeque::new(),
            completions: Vec::new(),
            count: Rc::default(),
            used: Bytes::ZERO,
            next_range: FIRST_RANGE,
            now: 0,
            freeing: None,
            held: BTreeSet::new(),
            events: Vec::new(),
            queues: BTreeMap::new(),
        }
    }

    pub fn tick(&mut self, ticks: u64) {
        self.now += ticks;
    }

    /// Notes that `block` is about to be freed.
    pub fn frees(&mut self, block: Address, hold: Option<String>) {
        self.held.extend(hold.clone());
        self.freeing = Some((block, hold));
    }

    /// Notes that it was freed.
    pub fn freed(&mut self) {
        self.freeing = None;
    }

    pub fn done(&mut self, key: &str) {
        self.held.remove(key);
    }

    fn is_done(&self, token: u64) -> bool {
        match &self.events[usize::try_from(token).unwrap()] {
            Due::At(time) => *time <= self.now,
            Due::Held(key) => !self.held.contains(key),
        }
    }

    /// The blocks that are completed if the queues are searched in this order.
    fn completed(&self, order: &[StreamId], wait: bool) -> Vec<Address> {
        let mut left: BTreeMap<Address, usize> = BTreeMap::new();
        for awaited in self.queues.values().flatten() {
            *left.entry(awaited.block).or_default() += 1;
        }
        let mut completed = Vec::new();
        for stream in order {
            for awaited in self.queues.get(stream).into_iter().flatten() {
                if !wait && !self.is_done(awaited.token) {
                    break;
                }
                let left = left.get_mut(&awaited.block).unwrap();
                *left -= 1;
                if *left == 0 {
                    completed.push(awaited.block);
                }
            }
        }
        completed
    }

    fn finish(&mut self, token: u64) {
        for queue in self.queues.values_mut() {
            queue.retain(|awaited| awaited.token != token);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    fn take(&mut self, size: Bytes) -> Result<(), OutOfDeviceMemory> {
        if self.used + size > self.capacity {
            return Err(OutOfDeviceMemory);
        }
        self.used += size;
        Ok(())
    }
}

impl SegmentSource for Device {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.take(size)?;
        // After the recorded ones nothing can agree any more.
        Ok(self.addresses.pop_front().unwrap_or(Address(1 << 50 | self.used.0)))
    }

    fn free(&mut self, _: Address, size: Bytes) {
        self.releases.pop_front();
        self.used -= size;
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let base = self.next_range;
        self.next_range += size.0.next_multiple_of(RANGE_ALIGNMENT);
        Ok(Address(base))
    }

    fn release_range(&mut self, _: Address, _: Bytes) {}

    fn map(&mut self, _: Address, size: Bytes, _: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.take(size)
    }

    fn unmap(&mut self, _: Address, size: Bytes) {
        self.used -= size;
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { free: self.capacity - self.used, total: self.total }
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        let token = self.events.len() as u64;
        let due = match &self.freeing {
            Some((_, Some(key))) => Due::Held(key.clone()),
            _ => Due::At(self.now + self.delay),
        };
        self.events.push(due);
        let freeing = self.freeing.as_ref().map(|(block, _)| *block);
        let block = freeing.or_else(|| self.deferred.pop_front()).unwrap_or(Address(0));
        self.queues.entry(stream).or_default().push_back(Awaited { token, block });
        EventToken(token)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        let done = self.is_done(event.0);
        if done {
            self.finish(event.0);
        }
        done
    }

    fn wait_event(&mut self, event: EventToken) {
        self.finish(event.0);
    }

    /// In the order of their completion; each waits for its streams in turn.
    fn order_deferred(&mut self, blocks: &mut [Address]) {
        let next = &self.completions[self.count.get()..];
        let place = |block: &Address| next.iter().position(|completed| completed == block).unwrap_or(usize::MAX);
        blocks.sort_by_key(place);
        self.deferred.make_contiguous().sort_by_key(place);
    }

    /// In the recorded order.
    fn order_pools(&mut self, pools: &mut [PoolId]) {
        let first = |pool: &PoolId| self.releases.iter().position(|segment| self.pools.get(segment) == Some(pool));
        pools.sort_by_key(|pool| first(pool).unwrap_or(usize::MAX));
    }

    /// PyTorch's order is that of a hash table: the first order that explains the recorded completions.
    fn order_streams(&mut self, streams: &mut [StreamId]) {
        // A wait completes more than a look, so the order that explains most is the right one.
        let explained = |order: &[StreamId]| {
            let agreeing = [false, true].map(|wait| {
                let completed = self.completed(order, wait);
                if completed.iter().eq(self.completions.iter().skip(self.count.get()).take(completed.len())) {
                    completed.len()
                } else {
                    0
                }
            });
            agreeing.into_iter().max()
        };
        let mut orders = Vec::new();
        permutations(&mut streams.to_vec(), 0, &mut orders);
        if let Some(order) = orders.into_iter().rev().max_by_key(|order| explained(order)) {
            streams.copy_from_slice(&order);
        }
    }
}

fn permutations(streams: &mut Vec<StreamId>, from: usize, all: &mut Vec<Vec<StreamId>>) {
    if from == streams.len() {
        all.push(streams.clone());
    }
    for at in from..streams.len() {
        streams.swap(from, at);
        permutations(streams, from + 1, all);
        streams.swap(from, at);
    }
}
