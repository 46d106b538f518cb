//! A history that goes on, in consecutive parts from a watched program.

use std::collections::HashMap;

use super::guess::Guesses;
use super::rhythm::Rhythm;
use super::told::DefinedNames;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{PoolId, PoolKind, Settings, TraceEvent, pool_of, round};
use vramlab_model::{Category, Event, EventKind, Micros, NameId, Phase};
use vramlab_snapshot::history::Beginning;
use vramlab_snapshot::history::pool_of_segment;
use vramlab_snapshot::history::{HeldBlock, Home, Space};
use vramlab_snapshot::history::{NextRequest, RangeIndex, nominal_page};
use vramlab_snapshot::{Action, Snapshot, StackId, TextId, TraceEntry};

/// One device's history as far as it was reported, and its memory at that point.
#[derive(Debug)]
pub struct Following {
    settings: Settings,
    space: Space,
    ranges: Vec<MappedRange>,
    /// The last two entries reported, which identify the place where a part continues.
    last: Option<[EntryKey; 2]>,
    told: DefinedNames,
    /// By fresh entry of the current part.
    guesses: Vec<EntryGuess>,
    /// The phase that was reported last and has not ended, and the number of phases reported in this step.
    phase: Option<Phase>,
    phases: usize,
    /// What the program was doing, according to its requests.
    rhythm: Rhythm,
    /// The reported categories and names of live blocks.
    labels: HashMap<Address, (Category, NameId)>,
}

/// What the guesses say of one entry.
#[derive(Clone, Copy, Debug, Default)]
struct EntryGuess {
    category: Category,
    /// The op of ranks that allocated the block.
    op: Option<&'static str>,
    phase: Option<Phase>,
}

/// The most phases of one step that are reported. If nothing reports steps, the number of phases would grow without end.
const PHASES: usize = 64;

/// Reports the owner of the driver's last memory, if that is a private pool.
fn tell_pool(address: Address, pool: PoolId, time: Micros, emit: &mut impl FnMut(Event)) {
    if !pool.is_default() {
        emit(Event::new(time, EventKind::PrivatePool { address, pool }));
    }
}

/// The identifying fields of an entry.
type EntryKey = (&'static str, Address, Bytes, StreamId, Micros);

/// A range of an expandable segment.
#[derive(Clone, Copy, Debug)]
struct MappedRange {
    base: Address,
    page: Bytes,
    stream: StreamId,
    pool: PoolKind,
}

/// The part that was not reported yet.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// The entries.
    pub entries: &'a [TraceEntry],
    /// True if the entries before it are unknown, so that the state starts over.
    pub begins_anew: bool,
}

impl Following {
    /// A history of which nothing was reported yet, under the settings in this text. Unknown settings count as PyTorch's defaults.
    #[must_use]
    pub fn new(conf: Option<&str>) -> Self {
        Self {
            settings: conf.and_then(|conf| Settings::parse(conf).ok()).unwrap_or_default(),
            space: Space::default(),
            ranges: Vec::new(),
            last: None,
            told: DefinedNames::default(),
            guesses: Vec::new(),
            phase: None,
            phases: 0,
            rhythm: Rhythm::default(),
            labels: HashMap::new(),
        }
    }

    /// The unreported entries of a part. A `whole` part includes reported entries, if the last of them is still in it.
    pub fn fresh<'a>(&mut self, part: &'a Snapshot, device: usize, whole: bool) -> Fresh<'a> {
        let trace = part.device_trace(device);
        let told =
            self.last.filter(|_| whole).and_then(|last| (0..trace.len()).rev().find(|&at| mark(trace, at) == last));
        if let Some(at) = trace.len().checked_sub(1) {
            self.last = Some(mark(trace, at));
        }
        self.told.begin_part();
        let first = told.map_or(0, |at| at + 1);
        let is_parameter = |(_, label): &(_, &(Category, NameId))| label.0 == Category::Parameter;
        let parameters = self.labels.iter().filter(is_parameter).filter_map(|(address, _)| self.space.block(*address));
        let parameters = parameters.map(|held| held.requested).collect();
        let guesses = Guesses::of_part(part, device, parameters, &mut self.rhythm);
        let guess = |entry| EntryGuess {
            category: guesses.category(entry),
            op: guesses.op(entry),
            phase: guesses.phase(entry),
        };
        self.guesses = (first..trace.len()).map(guess).collect();
        Fresh { entries: trace.get(first..).unwrap_or_default(), begins_anew: whole && told.is_none() }
    }

    /// Reports the differences between the state so far and the state before the first entry of a whole part.
    pub fn begin_anew(&mut self, part: &Snapshot, device: usize, emit: &mut impl FnMut(Event)) {
        let mut beginning = Beginning::of(part, device, &self.settings);
        // If the program does not report requests to free, a block may have been held until it became free.
        let trace = part.device_trace(device);
        if !trace.iter().any(|entry| entry.action == Action::FreeRequested) {
            let completed = trace.iter().filter(|entry| entry.action == Action::FreeCompleted);
            completed.for_each(|entry| beginning.space.take_back(entry.address));
        }
        let time = part.device_trace(device).first().map_or(Micros(0), |entry| entry.time);
        let ranges = beginning.ranges.iter().map(|(_, range)| range);
        self.ranges = ranges
            .map(|range| MappedRange { base: range.base, page: range.page, stream: range.stream, pool: range.pool })
            .collect();
        let before = std::mem::replace(&mut self.space, beginning.space);
        let plain = |event: &TraceEvent| Event::new(time, EventKind::of_trace(event, Category::Other, NameId::NONE));
        for (address, held) in before.blocks() {
            let same = |now: &&HeldBlock| now.goes_on(held);
            if self.space.block(address).filter(same).is_none() {
                self.labels.remove(&address);
                let (requested, stream) = (held.requested, StreamId::DEFAULT);
                if !held.pending {
                    emit(plain(&TraceEvent::FreeRequested { address, requested, stream }));
                }
                emit(plain(&TraceEvent::FreeCompleted { address, requested, stream }));
            }
        }
        let here = |space: &Space, address: Address, home: &Home| {
            space.homes_below(home.end).is_some_and(|(at, now)| {
                at == address && (now.end, now.range.is_some()) == (home.end, home.range.is_some())
            })
        };
        for (address, home) in before.homes() {
            if !here(&self.space, address, home) {
                let (size, stream) = (home.end.distance(address), home.stream);
                emit(plain(&match home.range {
                    Some(_) => TraceEvent::SegmentUnmap { address, size, stream },
                    None => TraceEvent::SegmentFree { address, size, stream },
                }));
            }
        }
        // New memory may lie where released memory was.
        let mut grown = Vec::new();
        for (address, home) in self.space.homes() {
            if !here(&before, address, home) {
                grown.push((self.growth(address, home), address, home.pool_id));
            }
        }
        for (event, address, pool) in grown {
            emit(plain(&event));
            tell_pool(address, pool, time, emit);
        }
        let mut taken = Vec::new();
        for (address, held) in self.space.blocks() {
            match before.block(address).filter(|then| held.goes_on(then)) {
                None => taken.push((address, *held)),
                Some(then) if held.pending && !then.pending => {
                    emit(plain(&TraceEvent::FreeRequested {
                        address,
                        requested: held.requested,
                        stream: StreamId::DEFAULT,
                    }));
                }
                Some(_) => {}
            }
        }
        for (address, held) in taken {
            let (size, requested) = (held.end.distance(address), held.requested);
            let stream = self.space.home(address).map(|(_, home)| home.stream).unwrap_or_default();
            let caller = part.caller(held.stack, TextId::default());
            let caller = caller.unwrap_or_else(|| "before it was watched".to_owned());
            let name = self.told.caller(part, caller, held.stack, time, emit);
            self.labels.insert(address, (Category::Other, name));
            emit(Event::new(
                time,
                EventKind::Alloc { address, size, requested, stream, category: Category::Other, name },
            ));
            if held.pending {
                self.labels.remove(&address);
                emit(plain(&TraceEvent::FreeRequested { address, requested, stream }));
            }
        }
    }

    /// Reports the entry at `index` among a part's fresh ones.
    pub fn tell(&mut self, part: &Snapshot, entries: &[TraceEntry], index: usize, emit: &mut impl FnMut(Event)) {
        let Some(entry) = entries.get(index) else { return };
        let TraceEntry { address, size, stream, time, .. } = *entry;
        let plain = |event: &TraceEvent| Event::new(time, EventKind::of_trace(event, Category::Other, NameId::NONE));
        match entry.action {
            Action::Alloc => {
                let EntryGuess { category, op, phase } = self.guesses.get(index).copied().unwrap_or_default();
                if let Some(phase) = phase {
                    self.begin_phase(phase, time, emit);
                }
                if let Some(op) = op {
                    let name = self.told.define(op.to_owned(), time, emit);
                    emit(Event::new(time, EventKind::OpBegin { name }));
                }
                self.take(part, entry, category, emit);
                if op.is_some() {
                    emit(Event::new(time, EventKind::OpEnd));
                }
            }
            Action::FreeRequested => {
                self.labels.remove(&address);
                if self.space.request_free(address) {
                    emit(plain(&TraceEvent::FreeRequested { address, requested: size, stream }));
                }
            }
            Action::FreeCompleted => self.give_back(address, size, stream, time, emit),
            Action::SegmentAlloc => {
                self.clear(address, address.offset(size), time, emit);
                let pool = NextRequest::default().pool(entries, index + 1, &self.settings);
                let pool = pool.unwrap_or_else(|| pool_of_segment(size));
                let pool_id = entry.pool.unwrap_or_default();
                let home = Home { end: address.offset(size), stream, pool, pool_id, range: None };
                if size > Bytes::ZERO && self.space.add(address, home) {
                    emit(plain(&self.growth(address, &home)));
                    tell_pool(address, pool_id, time, emit);
                }
            }
            Action::SegmentMap => {
                self.clear(address, address.offset(size), time, emit);
                let range = self.range_of(entries, index);
                let pool = self.ranges.get(range.index()).map_or(PoolKind::Large, |range| range.pool);
                let pool_id = entry.pool.unwrap_or_default();
                let home = Home { end: address.offset(size), stream, pool, pool_id, range: Some(range) };
                if size > Bytes::ZERO && self.space.map(address, home) {
                    emit(plain(&self.growth(address, &home)));
                    tell_pool(address, pool_id, time, emit);
                }
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.evict(address, address.offset(size), time, emit);
                if self.space.remove(address, size) {
                    emit(plain(&TraceEvent::SegmentFree { address, size, stream }));
                } else if self.space.unmap(address, size) {
                    emit(plain(&TraceEvent::SegmentUnmap { address, size, stream }));
                }
            }
            Action::Oom => {
                let name = self.told.name(part, entry, emit);
                let device_free = entry.device_free().unwrap_or_default();
                let event = TraceEvent::Oom { device_free, rounded: size, stream };
                emit(Event::new(time, EventKind::of_trace(&event, Category::Other, name)));
            }
            Action::Snapshot | Action::Other(_) => {}
        }
    }

    /// Ends the step, and its last phase.
    pub fn end_step(&mut self, time: Micros, emit: &mut impl FnMut(Event)) {
        self.end_phase(time, emit);
        self.phases = 0;
    }

    /// Begins the phase in which a block was allocated, if it is another one. After [`PHASES`] of a step no phase is reported.
    fn begin_phase(&mut self, phase: Phase, time: Micros, emit: &mut impl FnMut(Event)) {
        // A gradient scaler multiplies the loss before backward.
        let is_scaled = self.phase == Some(Phase::Forward) && phase == Phase::Optimizer;
        if is_scaled || self.phase == Some(phase) || self.phases > PHASES {
            return;
        }
        self.end_phase(time, emit);
        self.phases += 1;
        if self.phases <= PHASES {
            self.phase = Some(phase);
            emit(Event::new(time, EventKind::PhaseBegin { phase }));
        }
    }

    fn end_phase(&mut self, time: Micros, emit: &mut impl FnMut(Event)) {
        if let Some(phase) = self.phase.take() {
            emit(Event::new(time, EventKind::PhaseEnd { phase }));
        }
    }

    /// Reports the category of a live block, once the program has given it.
    pub fn relabel(&mut self, address: Address, category: Category, time: Micros, emit: &mut impl FnMut(Event)) {
        if let Some((told, name)) = self.labels.get_mut(&address)
            && *told != category
        {
            *told = category;
            emit(Event::new(time, EventKind::Relabel { address, category, name: *name }));
        }
    }

    fn take(&mut self, part: &Snapshot, entry: &TraceEntry, category: Category, emit: &mut impl FnMut(Event)) {
        let TraceEntry { address, size: requested, stream, time, .. } = *entry;
        let rounded = round(requested, &self.settings.roundup_power2_divisions);
        // The blocks there were freed without being seen.
        self.evict(address, address.offset(rounded), time, emit);
        if self.space.home(address).is_none() {
            // Its segment was allocated without being seen too, so as much of it is added as the block shows.
            let pool_id = entry.pool.unwrap_or_default();
            let home = Home { end: address.offset(rounded), stream, pool: pool_of(rounded), pool_id, range: None };
            if !self.space.add(address, home) {
                return;
            }
            let event = self.growth(address, &home);
            emit(Event::new(time, EventKind::of_trace(&event, Category::Other, NameId::NONE)));
        }
        let size = self
            .space
            .size(address, requested, &self.settings)
            .filter(|size| *size >= requested && *size > Bytes::ZERO);
        let Some(size) = size else { return };
        let name = self.told.name(part, entry, emit);
        self.space
            .hold(address, HeldBlock { end: address.offset(size), requested, pending: false, stack: StackId::EMPTY });
        self.labels.insert(address, (category, name));
        emit(Event::new(time, EventKind::Alloc { address, size, requested, stream, category, name }));
    }

    /// Completes the free of a block. Its request need not have been reported.
    fn give_back(
        &mut self,
        address: Address,
        requested: Bytes,
        stream: StreamId,
        time: Micros,
        emit: &mut impl FnMut(Event),
    ) {
        let plain = |event: &TraceEvent| Event::new(time, EventKind::of_trace(event, Category::Other, NameId::NONE));
        self.labels.remove(&address);
        if self.space.request_free(address) {
            emit(plain(&TraceEvent::FreeRequested { address, requested, stream }));
        }
        if self.space.complete_free(address) {
            emit(plain(&TraceEvent::FreeCompleted { address, requested, stream }));
        }
    }

    /// Frees all blocks that overlap an interval.
    fn evict(&mut self, start: Address, end: Address, time: Micros, emit: &mut impl FnMut(Event)) {
        for address in self.space.blocks_in(start, end) {
            let requested = self.space.block(address).map_or(Bytes::ZERO, |held| held.requested);
            let stream = self.space.home(address).map(|(_, home)| home.stream).unwrap_or_default();
            self.give_back(address, requested, stream, time, emit);
        }
    }

    /// Releases all segments and pages that overlap an interval.
    fn clear(&mut self, start: Address, end: Address, time: Micros, emit: &mut impl FnMut(Event)) {
        while let Some((address, home)) =
            self.space.homes_below(end).filter(|(_, home)| home.end > start).map(|(address, home)| (address, *home))
        {
            self.evict(address, home.end, time, emit);
            let (size, stream) = (home.end.distance(address), home.stream);
            let (gone, event) = match home.range {
                Some(_) => (self.space.unmap(address, size), TraceEvent::SegmentUnmap { address, size, stream }),
                None => (self.space.remove(address, size), TraceEvent::SegmentFree { address, size, stream }),
            };
            if !gone {
                return;
            }
            emit(Event::new(time, EventKind::of_trace(&event, Category::Other, NameId::NONE)));
        }
    }

    /// The range whose pages an entry maps: one that they adjoin, or else the next lower one of the same stream and pool.
    fn range_of(&mut self, entries: &[TraceEntry], index: usize) -> RangeIndex {
        let TraceEntry { address: start, stream, size, .. } = entries[index];
        let pool = NextRequest::default().pool(entries, index + 1, &self.settings);
        let pool = pool.unwrap_or(match size.0 % Bytes::mib(20).0 {
            0 => PoolKind::Large,
            _ => PoolKind::Small,
        });
        let fits =
            |range: &(usize, &MappedRange)| range.1.stream == stream && range.1.pool == pool && range.1.base <= start;
        let below = self.ranges.iter().enumerate().filter(fits).max_by_key(|(_, range)| range.base);
        let index = below.map(|(index, _)| index).unwrap_or_else(|| {
            self.ranges.push(MappedRange { base: start, page: nominal_page(pool, &self.settings), stream, pool });
            self.ranges.len() - 1
        });
        RangeIndex::new(index)
    }

    /// The event that creates a segment or run.
    fn growth(&self, address: Address, home: &Home) -> TraceEvent {
        let Home { end, stream, pool, .. } = *home;
        let size = end.distance(address);
        match home.range.and_then(|range| self.ranges.get(range.index())) {
            Some(range) => TraceEvent::SegmentMap { address, size, stream, pool, range: range.base, page: range.page },
            None => TraceEvent::SegmentAlloc { address, size, stream, pool },
        }
    }
}

/// The identity of an entry: its own fields and those of the entry before.
fn mark(trace: &[TraceEntry], at: usize) -> [EntryKey; 2] {
    let of = |entry: Option<&TraceEntry>| {
        entry.map_or(("", Address(0), Bytes::ZERO, StreamId::DEFAULT, Micros(0)), |entry| {
            (entry.action.word(), entry.address, entry.size, entry.stream, entry.time)
        })
    };
    [of(trace.get(at)), of(at.checked_sub(1).and_then(|before| trace.get(before)))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::MIB;
    use vramlab_model::MemoryModel;
    use vramlab_snapshot::history::Story;

    fn load(name: &str) -> Snapshot {
        let path = format!("{}/../../tests/traces/{name}.pickle.xz", env!("CARGO_MANIFEST_DIR"));
        Snapshot::open(path).unwrap()
    }

    /// Follows the entries of a range, as a part that contains only them.
    fn follow(following: &mut Following, model: &mut MemoryModel, part: &Snapshot, whole: bool) {
        let mut emit = |event: Event| model.apply(&event).unwrap();
        let fresh = following.fresh(part, 0, whole);
        if fresh.begins_anew {
            following.begin_anew(part, 0, &mut emit);
        }
        for index in 0..fresh.entries.len() {
            following.tell(part, fresh.entries, index, &mut emit);
        }
    }

    /// What a snapshot holds at its end: bytes of blocks that are not free, and of segments.
    fn held(snapshot: &Snapshot) -> (Bytes, Bytes) {
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let live = blocks.filter(|block| block.state != vramlab_allocator::BlockState::Inactive);
        (live.map(|block| block.size).sum(), snapshot.segments.iter().map(|segment| segment.total_size).sum())
    }

    fn told(model: &MemoryModel) -> (Bytes, Bytes) {
        let ledger = model.ledger();
        (ledger.allocated() + ledger.pending, ledger.reserved())
    }

    #[test]
    fn parts_come_to_what_the_whole_history_comes_to() {
        for name in ["gpt-mini.all", "churn-expandable", "two-streams", "bert-varlen-max-split"] {
            let mut snapshot = load(name);
            let conf = snapshot.allocator_settings.conf.clone();
            let all = snapshot.device_traces[0].clone();
            for length in [37, 1000] {
                let (mut following, mut model) = (Following::new(conf.as_deref()), MemoryModel::default());
                for start in all.clone().step_by(length) {
                    snapshot.device_traces[0] = start..all.end.min(start + length);
                    follow(&mut following, &mut model, &snapshot, false);
                }
                assert_eq!(told(&model), held(&snapshot), "{name} in parts of {length}");
            }
            snapshot.device_traces[0] = all;
        }
    }

    #[test]
    fn blocks_are_for_what_the_program_says_and_else_for_what_their_stacks_tell() {
        let snapshot = load("gpt-mini.all");
        let (mut following, mut kinds) = (Following::new(None), Vec::new());
        let fresh = following.fresh(&snapshot, 0, false);
        for index in 0..fresh.entries.len() {
            following.tell(&snapshot, fresh.entries, index, &mut |event| kinds.push(event.kind));
        }
        let bytes = |category: Category| -> Bytes {
            let of = |kind: &EventKind| match kind {
                EventKind::Alloc { size, category: of, .. } if *of == category => Some(*size),
                _ => None,
            };
            kinds.iter().filter_map(of).sum()
        };
        for category in [Category::Parameter, Category::Gradient, Category::OptimizerState, Category::Activation] {
            assert!(bytes(category) > Bytes::ZERO, "{category:?}");
        }
        let (address, told) = following.labels.iter().next().map(|(address, label)| (*address, *label)).unwrap();
        let said = if told.0 == Category::Gradient { Category::Parameter } else { Category::Gradient };
        let mut relabelled = Vec::new();
        for category in [said, said] {
            following.relabel(address, category, Micros(1), &mut |event| relabelled.push(event.kind));
        }
        following.relabel(Address(1), said, Micros(1), &mut |event| relabelled.push(event.kind));
        let [EventKind::Relabel { address: at, category, name }] = relabelled[..] else { panic!("{relabelled:?}") };
        assert_eq!((at, category, name), (address, said, told.1), "once, and of what lives alone");
    }

    /// Each phase ends before the next begins.
    #[test]
    fn phases_follow_from_who_asks() {
        let snapshot = load("gpt-mini.all");
        let (mut following, mut kinds) = (Following::new(None), Vec::new());
        let fresh = following.fresh(&snapshot, 0, false);
        for index in 0..fresh.entries.len() {
            following.tell(&snapshot, fresh.entries, index, &mut |event| kinds.push(event.kind));
        }
        following.end_step(Micros(0), &mut |event| kinds.push(event.kind));
        let (mut open, mut phases) = (None, Vec::new());
        for kind in &kinds {
            match kind {
                EventKind::PhaseBegin { phase } => {
                    assert_eq!(open.replace(*phase), None);
                    phases.push(*phase);
                }
                EventKind::PhaseEnd { phase } => assert_eq!(open.take(), Some(*phase)),
                _ => {}
            }
        }
        assert_eq!(open, None);
        // Four micro-batches a step.
        use Phase::{Backward, Forward, Optimizer};
        let step = [Forward, Backward, Forward, Backward, Forward, Backward, Forward, Backward, Optimizer];
        assert!(phases.len() > step.len() && phases.len() <= PHASES, "{phases:?}");
        assert!(phases.iter().eq(step.iter().cycle().take(phases.len())), "{phases:?}");
    }

    #[test]
    fn blocks_are_for_the_same_where_only_completed_frees_are_told() {
        for name in ["gpt-mini.all", "gpt-frames"] {
            let told = |requests: bool| {
                let mut snapshot = load(name);
                if !requests {
                    let part = snapshot.device_traces[0].clone();
                    let of_part = snapshot.entries[part.clone()].iter();
                    let left: Vec<TraceEntry> =
                        of_part.filter(|entry| entry.action != Action::FreeRequested).copied().collect();
                    snapshot.device_traces[0] = part.start..part.start + left.len();
                    snapshot.entries.splice(part, left);
                }
                let (mut following, mut by_category) = (Following::new(None), [0_u64; Category::ALL.len()]);
                let fresh = following.fresh(&snapshot, 0, false);
                for index in 0..fresh.entries.len() {
                    following.tell(&snapshot, fresh.entries, index, &mut |event| {
                        if let EventKind::Alloc { size, category, .. } = event.kind {
                            by_category[category as usize] += size.get();
                        }
                    });
                }
                by_category
            };
            assert_eq!(told(true), told(false), "{name}");
        }
    }

    #[test]
    fn blocks_without_stacks_are_for_what_those_of_earlier_steps_were_for() {
        const PARTS: usize = 24;
        for (name, from) in [("gpt-mini.all", 18), ("gpt-frames", 12)] {
            let told = |stackless: bool| {
                let mut snapshot = load(name);
                let all = snapshot.device_traces[0].clone();
                let length = all.len() / PARTS;
                let (mut following, mut by_category) = (Following::new(None), [0_u64; Category::ALL.len()]);
                for (number, start) in all.clone().step_by(length).enumerate() {
                    snapshot.device_traces[0] = start..all.end.min(start + length);
                    let late = number >= from;
                    if stackless && late {
                        let part = snapshot.device_traces[0].clone();
                        snapshot.entries[part].iter_mut().for_each(|entry| entry.stack = StackId::EMPTY);
                    }
                    let fresh = following.fresh(&snapshot, 0, false);
                    for index in 0..fresh.entries.len() {
                        following.tell(&snapshot, fresh.entries, index, &mut |event| match event.kind {
                            EventKind::Alloc { size, category, .. } if late => {
                                by_category[category as usize] += size.get();
                            }
                            _ => {}
                        });
                    }
                }
                by_category
            };
            let (with, without) = (told(false), told(true));
            let apart: u64 = with.iter().zip(without).map(|(with, without)| with.abs_diff(without)).sum();
            assert!(with[Category::Gradient as usize] > 0);
            assert!(apart * 100 < with.iter().sum::<u64>(), "{name}: {with:?}, without stacks {without:?}");
            let gradients = [with, without].map(|told| told[Category::Gradient as usize]);
            assert!(gradients[0].abs_diff(gradients[1]) * 10 < gradients[0], "{name}: {gradients:?}");
        }
    }

    #[test]
    fn after_a_gap_the_state_is_known_again() {
        for name in ["gpt-mini.all", "churn-expandable", "two-streams"] {
            let mut snapshot = load(name);
            let conf = snapshot.allocator_settings.conf.clone();
            let all = snapshot.device_traces[0].clone();
            let (mut following, mut model) = (Following::new(conf.as_deref()), MemoryModel::default());
            // The beginning was seen, then nothing, then a whole part that contains the end of the history.
            snapshot.device_traces[0] = all.start..all.len() / 3;
            follow(&mut following, &mut model, &snapshot, false);
            snapshot.device_traces[0] = all.len() / 2..all.end;
            follow(&mut following, &mut model, &snapshot, true);
            assert_eq!(told(&model), held(&snapshot), "{name}");
            // The same part again: all of it was reported.
            let before = told(&model);
            let fresh = following.fresh(&snapshot, 0, true);
            assert!(fresh.entries.is_empty() && !fresh.begins_anew);
            assert_eq!(told(&model), before);
        }
    }

    fn entry(action: Action, address: u64, size: u64) -> TraceEntry {
        TraceEntry {
            action,
            address: Address(address),
            size: Bytes(size),
            stream: StreamId::DEFAULT,
            time: Micros(1),
            stack: StackId::EMPTY,
            metadata: TextId::default(),
            pool: None,
        }
    }

    #[test]
    fn what_contradicts_itself_is_told_as_far_as_it_can_be_true() {
        let base = 1 << 30;
        let entries = [
            entry(Action::SegmentAlloc, base, 20 * MIB),
            entry(Action::Alloc, base, 2 * MIB),
            // An existing block, an address without a segment, a free of nothing, and a segment inside another.
            entry(Action::Alloc, base + MIB, 3 * MIB),
            entry(Action::Alloc, base << 1, 700),
            entry(Action::FreeCompleted, base + 512, 512),
            entry(Action::SegmentAlloc, base + 2 * MIB, 20 * MIB),
            entry(Action::SegmentFree, base, 20 * MIB),
            entry(Action::SegmentUnmap, base, 20 * MIB),
        ];
        let snapshot = Snapshot {
            entries: entries.to_vec(),
            device_traces: std::iter::once(0..entries.len()).collect(),
            ..Snapshot::default()
        };
        let settings = Settings::default();
        let beginning = Beginning::of(&snapshot, 0, &settings);
        let mut story = Story::new(&entries, &settings, &beginning);
        let mut model = MemoryModel::new();
        let mut told = Vec::new();
        story.prelude(|event, _| told.push(*event));
        while story.advance(&mut |event: &TraceEvent| told.push(*event)) {}
        for event in told {
            let kind = EventKind::of_trace(&event, Default::default(), Default::default());
            model.apply(&Event::new(Default::default(), kind)).unwrap();
        }
        assert!(story.contradictions() > 0);
    }
}
