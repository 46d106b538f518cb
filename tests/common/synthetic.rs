//! Synthetic event streams for tests and benchmarks: deterministic, valid, and shaped like a training run.
//!
//! Tests and benchmarks that need one include it with `#[path]`; it is not part of the program.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, KIB, MIB, StreamId};
use vramlab_model::{Category, CopyDirection, Event, EventKind, FailedRequest, Micros, NameId, Phase, StepReport};

/// A block of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(u64);

#[derive(Clone, Debug)]
struct Segment {
    size: u64,
    pool: PoolKind,
}

/// Writes events as an engine does, with a best-fit allocator that is just good enough to place blocks plausibly.
#[derive(Debug, Default)]
pub struct Source {
    pub events: Vec<Event>,
    time: u64,
    names: HashMap<String, NameId>,
    segments: BTreeMap<u64, Segment>,
    /// Free gaps: start to size.
    gaps: BTreeMap<u64, u64>,
    /// Blocks in use: start to size and requested size.
    blocks: BTreeMap<u64, (u64, u64)>,
    limit: Option<u64>,
    reserved: u64,
    next_segment: u64,
}

impl Source {
    pub fn new(limit: Option<Bytes>) -> Self {
        let mut source = Self { next_segment: 0x7f00_0000_0000, ..Self::default() };
        source.limit = limit.map(Bytes::get);
        source.emit(EventKind::Limit { limit });
        source
    }

    pub fn emit(&mut self, kind: EventKind) {
        self.events.push(Event::new(Micros(self.time), kind));
    }

    pub fn wait(&mut self, micros: u64) {
        self.time += micros;
    }

    pub fn name(&mut self, text: &str) -> NameId {
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap() + 1);
        self.names.insert(text.to_owned(), id);
        self.emit(EventKind::Define { id, text: text.into() });
        id
    }

    pub fn alloc(&mut self, category: Category, name: &str, requested: u64) -> Option<Handle> {
        let name = self.name(name);
        let rounded = requested.max(1).next_multiple_of(512);
        let pool = if rounded <= MIB { PoolKind::Small } else { PoolKind::Large };
        let (address, gap) = match self.fit(pool, rounded) {
            Some(found) => found,
            None => match self.grow(pool, rounded) {
                Some(found) => found,
                None => {
                    self.fail(pool, requested, name);
                    return None;
                }
            },
        };
        self.gaps.remove(&address);
        let rest = gap - rounded;
        let size = if pool == PoolKind::Small && rest >= 512 || rest > MIB { rounded } else { gap };
        if size < gap {
            self.gaps.insert(address + size, gap - size);
        }
        self.blocks.insert(address, (size, requested));
        self.emit(EventKind::Alloc {
            address: Address(address),
            size: Bytes(size),
            requested: Bytes(requested),
            stream: StreamId::DEFAULT,
            category,
            name,
        });
        Some(Handle(address))
    }

    fn fail(&mut self, pool: PoolKind, requested: u64, name: NameId) {
        let rounded = requested.max(1).next_multiple_of(512);
        self.emit(EventKind::Oom(Arc::new(FailedRequest {
            requested: Bytes(requested),
            rounded: Bytes(rounded),
            segment: Bytes(Self::segment_for(pool, rounded)),
            pool,
            stream: StreamId::DEFAULT,
            device_free: Bytes(300 * MIB),
            name,
            attempts: Vec::new(),
        })));
    }

    pub fn free_requested(&mut self, handle: Handle) {
        self.emit(EventKind::FreeRequested { address: Address(handle.0) });
    }

    pub fn free_completed(&mut self, handle: Handle) {
        let (mut size, _) = self.blocks.remove(&handle.0).expect("a live block");
        self.emit(EventKind::FreeCompleted { address: Address(handle.0) });
        let mut start = handle.0;
        let (segment, of) = self.segments.range(..=start).next_back().map(|(at, s)| (*at, s.size)).unwrap();
        if let Some((&before, &length)) = self.gaps.range(segment..start).next_back()
            && before + length == start
        {
            self.gaps.remove(&before);
            size += length;
            start = before;
        }
        if start + size < segment + of
            && let Some(length) = self.gaps.remove(&(start + size))
        {
            size += length;
        }
        self.gaps.insert(start, size);
    }

    pub fn free(&mut self, handle: Handle) {
        self.free_requested(handle);
        self.free_completed(handle);
    }

    pub fn empty_cache(&mut self) {
        self.emit(EventKind::EmptyCache);
        let whole: Vec<u64> =
            self.segments.iter().filter(|(at, s)| self.gaps.get(at) == Some(&s.size)).map(|(at, _)| *at).collect();
        for address in whole {
            let size = self.segments.remove(&address).unwrap().size;
            self.gaps.remove(&address);
            self.reserved -= size;
            self.emit(EventKind::SegmentFree { address: Address(address), size: Bytes(size) });
        }
    }

    pub fn op(&mut self, name: &str, micros: u64) {
        let name = self.name(name);
        self.emit(EventKind::OpBegin { name });
        self.wait(micros);
        self.emit(EventKind::OpEnd);
    }

    pub fn flip(&mut self, switch: &str, from: &str, to: &str) {
        let (switch, from, to) = (self.name(switch), self.name(from), self.name(to));
        self.emit(EventKind::SwitchFlipped { switch, from, to });
    }

    fn fit(&self, pool: PoolKind, size: u64) -> Option<(u64, u64)> {
        self.gaps
            .iter()
            .filter(|(at, gap)| **gap >= size && self.segments.range(..=**at).next_back().unwrap().1.pool == pool)
            .min_by_key(|(at, gap)| (**gap, **at))
            .map(|(at, gap)| (*at, *gap))
    }

    const fn segment_for(pool: PoolKind, size: u64) -> u64 {
        match pool {
            PoolKind::Small => 2 * MIB,
            PoolKind::Large if size < 10 * MIB => 20 * MIB,
            PoolKind::Large => size.next_multiple_of(2 * MIB),
        }
    }

    fn grow(&mut self, pool: PoolKind, size: u64) -> Option<(u64, u64)> {
        let segment = Self::segment_for(pool, size);
        if self.limit.is_some_and(|limit| self.reserved + segment > limit) {
            return None;
        }
        let address = self.next_segment;
        self.next_segment += segment + 32 * MIB;
        self.reserved += segment;
        self.segments.insert(address, Segment { size: segment, pool });
        self.gaps.insert(address, segment);
        self.emit(EventKind::SegmentAlloc {
            address: Address(address),
            size: Bytes(segment),
            stream: StreamId::DEFAULT,
            pool,
        });
        Some((address, segment))
    }
}

/// What a step of [`training_run`] does.
#[derive(Clone, Copy, Debug)]
struct Setup {
    amp: bool,
    checkpointing: bool,
    batch: u64,
}

/// A small transformer, trained for 30 steps: parameters, the sawtooth of forward and backward, optimizer state created
/// in the first step, a pinned copy each step, `amp` flipped before step 10, `empty_cache` before step 16, `ckpt`
/// before step 20, and a batch that is too large (out of memory) at step 25.
///
/// It is made once: hundreds of tests of a program begin with it.
pub fn training_run() -> Vec<Event> {
    static RUN: LazyLock<Vec<Event>> = LazyLock::new(made_training_run);
    RUN.clone()
}

fn made_training_run() -> Vec<Event> {
    const LAYERS: u64 = 4;
    let mut source = Source::new(Some(Bytes::mib(400)));
    let mut parameters = Vec::new();
    for layer in 0..LAYERS {
        for (name, size) in [("attn.qkv", 3 * MIB), ("attn.proj", MIB), ("fc", 4 * MIB), ("proj", 4 * MIB)] {
            for (part, size) in [("weight", size), ("bias", 3 * KIB + 100)] {
                let name = format!("blocks.{layer}.{name}.{part}");
                source.alloc(Category::Parameter, &name, size).unwrap();
                parameters.push((name, size));
            }
        }
    }
    source.alloc(Category::Workspace, "cublas workspace", 8 * MIB + 512 * KIB).unwrap();
    source.emit(EventKind::HostMemory { allocated: Bytes::kib(64), reserved: Bytes::kib(128) });
    let mut setup = Setup { amp: false, checkpointing: false, batch: 1 };
    let mut state = Vec::new();
    for step in 0..30 {
        match step {
            10 => {
                source.flip("amp", "off", "bf16");
                setup.amp = true;
            }
            16 => source.empty_cache(),
            20 => {
                source.flip("ckpt", "off", "on");
                setup.checkpointing = true;
            }
            25 => {
                train_step(&mut source, step, Setup { batch: 100, ..setup }, &parameters, &mut state);
            }
            _ => {}
        }
        if step % 10 == 0 {
            source.emit(EventKind::Generated { text: format!("fn step_{step}() {{ let x = ").into() });
        }
        train_step(&mut source, step, setup, &parameters, &mut state);
    }
    source.emit(EventKind::Note { text: "all steps done".into() });
    source.events
}

/// One step. It ends early if a request fails; then everything of the step is freed.
fn train_step(
    source: &mut Source,
    step: u64,
    setup: Setup,
    parameters: &[(String, u64)],
    state: &mut Vec<Handle>,
) -> Option<()> {
    let begin = source.time;
    let mut phases = [Micros(0); 5];
    let mut held = Vec::new();
    source.emit(EventKind::StepBegin { step });
    source.emit(EventKind::PhaseBegin { phase: Phase::Data });
    held.push(source.alloc(Category::Input, "tokens", 16 * KIB * setup.batch)?);
    source.wait(200);
    source.emit(EventKind::Copy {
        direction: CopyDirection::ToDevice,
        bytes: Bytes::kib(16),
        pinned: true,
        duration: Micros(150),
    });
    source.emit(EventKind::PhaseEnd { phase: Phase::Data });
    phases[0] = Micros(200);

    source.emit(EventKind::PhaseBegin { phase: Phase::Forward });
    let scale = if setup.amp { 1 } else { 2 } * setup.batch;
    let start = source.time;
    let mut activations = Vec::new();
    for layer in 0..4 {
        for (op, size) in [("layer_norm", MIB), ("linear", 3 * MIB + 1000), ("attention", 2 * MIB), ("gelu", 4 * MIB)] {
            let name = format!("blocks.{layer}.{op} output");
            let Some(block) = source.alloc(Category::Activation, &name, size * scale) else {
                for handle in activations.into_iter().chain(held) {
                    source.free(handle);
                }
                source.emit(EventKind::PhaseEnd { phase: Phase::Forward });
                return None;
            };
            let temporary = source.alloc(Category::Temporary, &format!("{op} scratch"), 700 * KIB);
            source.op(op, 400);
            if let Some(temporary) = temporary {
                source.free(temporary);
            }
            if setup.checkpointing && op != "layer_norm" {
                source.free(block);
            } else {
                activations.push(block);
            }
        }
    }
    source.emit(EventKind::PhaseEnd { phase: Phase::Forward });
    phases[1] = Micros(source.time - start);

    source.emit(EventKind::PhaseBegin { phase: Phase::Backward });
    let start = source.time;
    let mut gradients = Vec::new();
    while let Some(activation) = activations.pop() {
        let temporary = source.alloc(Category::Temporary, "grad of output", 2 * MIB * scale)?;
        source.op("linearBackward", if setup.checkpointing { 2500 } else { 800 });
        source.free(temporary);
        source.free(activation);
    }
    for (name, size) in parameters {
        gradients.push(source.alloc(Category::Gradient, &format!("{name}.grad"), *size)?);
    }
    source.emit(EventKind::PhaseEnd { phase: Phase::Backward });
    phases[2] = Micros(source.time - start);

    source.emit(EventKind::PhaseBegin { phase: Phase::Optimizer });
    if state.is_empty() {
        for (name, size) in parameters {
            for moment in ["exp_avg", "exp_avg_sq"] {
                state.push(source.alloc(Category::OptimizerState, &format!("{name}.{moment}"), *size)?);
            }
        }
    }
    source.op("adamw", 900);
    source.emit(EventKind::PhaseEnd { phase: Phase::Optimizer });
    phases[3] = Micros(900);

    source.emit(EventKind::PhaseBegin { phase: Phase::ZeroGrad });
    for handle in gradients.into_iter().chain(held) {
        source.free(handle);
    }
    source.wait(50);
    source.emit(EventKind::PhaseEnd { phase: Phase::ZeroGrad });
    phases[4] = Micros(50);
    source.emit(EventKind::StepEnd(StepReport {
        step,
        loss: Some(4.0 - 0.08 * step as f32),
        total: Micros(source.time - begin),
        phases,
        copy: Micros(150),
        exchange: Micros(0),
        items: 1024,
        optimizer_ran: !(setup.amp && step == 10),
    }));
    Some(())
}

/// `blocks` live blocks of 512 B to 4 KiB in 2 MiB segments; every 7th is freed again, so that holes lie between them.
pub fn crowded(blocks: usize) -> Vec<Event> {
    let mut source = Crowd::new();
    source.fill(blocks);
    source.events
}

/// [`crowded`], then `pairs` random frees, each followed by an allocation into the hole.
pub fn churn(blocks: usize, pairs: usize) -> (Vec<Event>, Vec<Event>) {
    let mut source = Crowd::new();
    source.fill(blocks);
    let setup = std::mem::take(&mut source.events);
    for _ in 0..pairs {
        let index = (source.random() % source.live.len() as u64) as usize;
        let (address, size) = source.live[index];
        source.emit(EventKind::FreeRequested { address: Address(address) });
        source.emit(EventKind::FreeCompleted { address: Address(address) });
        source.alloc(address, size);
    }
    (setup, source.events)
}

struct Crowd {
    events: Vec<Event>,
    live: Vec<(u64, u64)>,
    seed: u64,
}

impl Crowd {
    fn new() -> Self {
        let mut crowd = Self { events: Vec::new(), live: Vec::new(), seed: 0x9e37_79b9_7f4a_7c15 };
        for (id, category) in (1..).zip(Category::ALL) {
            crowd.emit(EventKind::Define { id: NameId(id), text: format!("some of the {}", category.label()).into() });
        }
        crowd
    }

    fn emit(&mut self, kind: EventKind) {
        self.events.push(Event::new(Micros(self.events.len() as u64), kind));
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    fn alloc(&mut self, address: u64, size: u64) {
        let category = (self.random() % 8) as usize;
        self.emit(EventKind::Alloc {
            address: Address(address),
            size: Bytes(size),
            requested: Bytes(size - 100),
            stream: StreamId::DEFAULT,
            category: Category::ALL[category],
            name: NameId(category as u32 + 1),
        });
    }

    fn fill(&mut self, blocks: usize) {
        let mut segment = 0x6f00_0000_0000;
        let mut at = u64::MAX;
        let mut made = 0;
        while self.live.len() < blocks {
            let size = 512 * (1 + self.random() % 8);
            if at == u64::MAX || at + size > segment + 2 * MIB {
                segment += 4 * MIB;
                at = segment;
                self.emit(EventKind::SegmentAlloc {
                    address: Address(segment),
                    size: Bytes::mib(2),
                    stream: StreamId::DEFAULT,
                    pool: PoolKind::Small,
                });
            }
            self.alloc(at, size);
            made += 1;
            if made % 7 == 0 {
                self.emit(EventKind::FreeRequested { address: Address(at) });
                self.emit(EventKind::FreeCompleted { address: Address(at) });
            } else {
                self.live.push((at, size));
            }
            at += size;
        }
    }
}
