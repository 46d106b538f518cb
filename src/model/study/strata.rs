//! What was alive at the moments of an outline, group by group, and the life of every block.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Grouping, Life, OpRun, OutlineMoment, Study, StudyGroup};
use crate::{Category, Event, EventKind, MemoryModel, Micros, NameId, Names, Phase, naming};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{PoolKind, pool_of};

/// The second reading of a range.
pub(super) struct Strata<'a> {
    grouping: Grouping,
    moments: &'a [OutlineMoment],
    /// Live blocks by their first byte, each with its group, and with the index of its life if that is kept.
    held: HashMap<Address, LiveBlock>,
    stacks: GroupBytes,
    /// The index of the moment whose fullest position comes next.
    next: usize,
    lives: Vec<Life>,
    ops: Vec<OpRun>,
    under_way: Option<OpRun>,
    began: Micros,
    phase: Option<Phase>,
    cut: bool,
    names: Names,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    life: Life,
    group: usize,
    /// The index of its life, if that is kept.
    index: Option<usize>,
}

/// The result of the second reading.
pub(super) struct StudyResult {
    pub groups: Vec<StudyGroup>,
    pub lives: Vec<Life>,
    pub ops: Vec<OpRun>,
    pub cut: bool,
    pub names: Names,
}

impl<'a> Strata<'a> {
    pub fn new(before: &MemoryModel, names: Names, grouping: Grouping, moments: &'a [OutlineMoment]) -> Self {
        let mut strata = Self {
            grouping,
            moments,
            held: HashMap::new(),
            stacks: GroupBytes::default(),
            next: 0,
            lives: Vec::new(),
            ops: Vec::new(),
            under_way: None,
            began: Micros(0),
            phase: None,
            cut: false,
            names,
        };
        for segment in before.segments() {
            for block in segment.blocks().filter(|block| !block.pending) {
                strata.bear(Life {
                    address: segment.address().offset(block.offset),
                    size: block.size,
                    requested: block.requested,
                    stream: segment.stream(),
                    category: block.category,
                    name: block.name,
                    op: block.op,
                    born: block.born,
                    freed: None,
                    relabelled: false,
                });
            }
        }
        strata
    }

    pub fn observe(&mut self, position: u64, event: &Event) {
        match &event.kind {
            EventKind::Define { id, text } => self.define(*id, text),
            EventKind::Alloc { address, size, requested, stream, category, name } => self.bear(Life {
                address: *address,
                size: *size,
                requested: *requested,
                stream: *stream,
                category: *category,
                name: *name,
                op: self.under_way.map_or(NameId::NONE, |run| run.name),
                born: position,
                freed: None,
                relabelled: false,
            }),
            EventKind::FreeRequested { address } => drop(self.end(*address, position)),
            EventKind::Relabel { address, category, name } => {
                if let Some(life) = self.end(*address, position) {
                    let (category, name) = (*category, *name);
                    self.bear(Life { category, name, born: position, relabelled: true, ..life });
                }
            }
            EventKind::OpBegin { name } => {
                self.began = event.time;
                let phase = self.phase;
                self.under_way = Some(OpRun { name: *name, phase, begin: position, end: position, time: Micros(0) });
            }
            EventKind::OpEnd => {
                if let Some(run) = self.under_way.take() {
                    let time = Micros(event.time.0.saturating_sub(self.began.0));
                    self.keep_run(OpRun { end: position, time, ..run });
                }
            }
            EventKind::PhaseBegin { phase } => self.phase = Some(*phase),
            EventKind::PhaseEnd { .. } => self.phase = None,
            _ => {}
        }
        while self.moments.get(self.next).is_some_and(|moment| moment.position <= position + 1) {
            self.stacks.keep();
            self.next += 1;
        }
    }

    pub fn finish(mut self, peak: Option<u64>) -> StudyResult {
        if let Some(run) = self.under_way.take() {
            self.keep_run(run);
        }
        let peak = self.moments.iter().position(|moment| Some(moment.position) == peak);
        let groups = self.stacks.groups(self.grouping, peak);
        StudyResult { groups, lives: self.lives, ops: self.ops, cut: self.cut, names: self.names }
    }

    fn keep_run(&mut self, run: OpRun) {
        if self.ops.len() < Study::LIVES {
            self.ops.push(run);
        } else {
            self.cut = true;
        }
    }

    fn define(&mut self, id: NameId, text: &Arc<str>) {
        /// The largest distance of a name from the last one; no run has names farther apart.
        const GAP: usize = 1 << 16;
        let index = id.0 as usize;
        if index < self.names.0.len() + GAP && self.names.get(id) != &**text {
            let names = Arc::make_mut(&mut self.names.0);
            if index >= names.len() {
                names.resize(index + 1, Arc::from(""));
            }
            names[index] = Arc::clone(text);
            self.stacks.forget(id);
        }
    }

    fn bear(&mut self, life: Life) {
        if self.held.contains_key(&life.address) {
            return;
        }
        let group = self.stacks.group(self.grouping, &life, &self.names);
        self.stacks.add(group, life.category, life.size);
        let index = if self.lives.len() < Study::LIVES {
            self.lives.push(life);
            Some(self.lives.len() - 1)
        } else {
            self.cut = true;
            None
        };
        self.held.insert(life.address, LiveBlock { life, group, index });
    }

    fn end(&mut self, address: Address, position: u64) -> Option<Life> {
        let LiveBlock { life, group, index } = self.held.remove(&address)?;
        self.stacks.take(group, life.category, life.size);
        if let Some(kept) = index.and_then(|index| self.lives.get_mut(index)) {
            kept.freed = Some(position);
        }
        Some(life)
    }
}

/// Live bytes of every group, now and at the moments kept so far.
#[derive(Default)]
struct GroupBytes {
    names: Vec<Arc<str>>,
    now: Vec<[u64; Category::ALL.len()]>,
    /// Bytes ever alive, by category.
    ever: Vec<[u64; Category::ALL.len()]>,
    /// For each moment, the bytes of the groups that existed then.
    kept: Vec<Vec<u64>>,
    by_text: HashMap<Arc<str>, usize>,
    by_key: HashMap<GroupKey, usize>,
}

/// The key of a block's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GroupKey {
    Named(Category, NameId),
    /// A pool (small or large) of a stream.
    Pool(bool, StreamId),
}

impl GroupBytes {
    /// The most groups that are distinguished. Later ones are combined.
    const MOST: usize = 512;

    fn group(&mut self, grouping: Grouping, life: &Life, names: &Names) -> usize {
        // A block without a name is grouped by its category.
        let key = match grouping {
            Grouping::Category => GroupKey::Named(life.category, NameId::NONE),
            Grouping::Module | Grouping::Name => GroupKey::Named(life.category, life.name),
            Grouping::Pool => GroupKey::Pool(pool_of(life.size) == PoolKind::Small, life.stream),
        };
        if let Some(&group) = self.by_key.get(&key) {
            return group;
        }
        let text = match (grouping, names.get(life.name)) {
            (Grouping::Pool, _) => pool_text(pool_of(life.size), life.stream),
            (Grouping::Category, _) | (_, "") => life.category.label().to_owned(),
            (Grouping::Module, name) => naming::module(name),
            (Grouping::Name, name) => naming::starred(name),
        };
        let text: Arc<str> = if self.names.len() < Self::MOST { text.into() } else { "others".into() };
        let next = self.names.len();
        let group = *self.by_text.entry(Arc::clone(&text)).or_insert(next);
        if group == next {
            self.names.push(text);
            self.now.push(<[u64; 9]>::default());
            self.ever.push(<[u64; 9]>::default());
        }
        self.by_key.insert(key, group);
        group
    }

    /// Notes that a name stands for another text from here on.
    fn forget(&mut self, name: NameId) {
        self.by_key.retain(|key, _| !matches!(key, GroupKey::Named(_, known) if *known == name));
    }

    fn add(&mut self, group: usize, category: Category, size: Bytes) {
        self.now[group][category as usize] += size.0;
        self.ever[group][category as usize] += size.0;
    }

    fn take(&mut self, group: usize, category: Category, size: Bytes) {
        let bytes = &mut self.now[group][category as usize];
        *bytes = bytes.saturating_sub(size.0);
    }

    fn keep(&mut self) {
        self.kept.push(self.now.iter().map(|bytes| bytes.iter().sum()).collect());
    }

    /// The groups with an area of their own in stacking order, with the others combined into one.
    fn groups(self, grouping: Grouping, peak: Option<usize>) -> Vec<StudyGroup> {
        let at = |moment: &Vec<u64>, group: usize| moment.get(group).copied().unwrap_or_default();
        let most = |group: usize| self.kept.iter().map(|moment| at(moment, group)).max().unwrap_or_default();
        let mut order: Vec<usize> = (0..self.names.len()).filter(|&group| most(group) > 0).collect();
        let category = |group: usize| {
            let bytes = &self.ever[group];
            let most = Category::ALL.into_iter().rev().max_by_key(|category| bytes[*category as usize]);
            most.unwrap_or_default()
        };
        let at_peak = |group: usize| peak.and_then(|peak| self.kept.get(peak)).map_or(0, |moment| at(moment, group));
        match grouping {
            Grouping::Category => {
                order.sort_by_key(|&group| Category::STACKED.iter().position(|stacked| *stacked == category(group)))
            }
            Grouping::Module | Grouping::Name | Grouping::Pool => {
                order.sort_by_key(|&group| std::cmp::Reverse((at_peak(group), most(group))));
            }
        }
        let own = if order.len() > Study::GROUPS { Study::GROUPS - 1 } else { order.len() };
        let group = |name: Arc<str>, category: Category, members: &[usize], rest: bool| {
            let sum = |moment: &Vec<u64>| Bytes(members.iter().map(|&member| at(moment, member)).sum());
            let at_peak = Bytes(members.iter().map(|&member| at_peak(member)).sum());
            StudyGroup { name, category, bytes: self.kept.iter().map(sum).collect(), at_peak, rest }
        };
        let mut groups: Vec<StudyGroup> = Vec::with_capacity(own + 1);
        groups.extend(order[..own].iter().map(|&of| group(Arc::clone(&self.names[of]), category(of), &[of], false)));
        if own < order.len() {
            let name = format!("{} others", order.len() - own);
            groups.push(group(name.into(), Category::Other, &order[own..], true));
        }
        groups
    }
}

/// The name of a pool; the default stream is not mentioned.
fn pool_text(pool: PoolKind, stream: StreamId) -> String {
    let pool = match pool {
        PoolKind::Small => "small pool",
        PoolKind::Large => "large pool",
    };
    if stream == StreamId::DEFAULT { pool.to_owned() } else { format!("{pool}, stream {}", stream.0) }
}
