//! Finds leaks: names that hold more memory at every repetition of a run.
//!
//! A run with step events is examined at the beginning of each step. In a history without them, a request that recurs
//! at regular distances, once in every step, takes their place. All looks are at the same phase, so that memory which a
//! step takes and releases is not growth.

use std::collections::HashMap;

use serde::Serialize;

use super::{Category, Event, EventKind, NameId, Names, naming};
use vramlab_allocator::units::{Address, Bytes};

/// The event that marks a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    /// The begin of a step.
    Step,
    /// A request by this name for this many bytes, or for any number if sizes vary.
    Request(NameId, Option<Bytes>),
}

/// How a run repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    beat: Beat,
    /// The number of repetitions.
    pub times: u64,
}

impl Rhythm {
    /// True if the run reports its steps; otherwise they were concluded from its requests.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        matches!(self.beat, Beat::Step)
    }
}

/// A name that holds more and more memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leak {
    /// The name, with layers combined.
    pub line: String,
    /// Its category.
    pub category: Category,
    /// Bytes that each repetition leaves behind.
    pub bytes_per_step: Bytes,
    /// Blocks that each repetition leaves behind.
    pub blocks_per_step: f64,
    /// Bytes that it holds at the end.
    pub bytes: Bytes,
    /// Repetitions over which it grew.
    pub steps: u64,
}

/// Finds out how a run repeats itself.
#[derive(Debug, Default)]
pub struct RhythmFinder {
    steps: u64,
    requests: u64,
    keys: HashMap<(NameId, Option<Bytes>), Regularity>,
}

/// How regularly a request recurs.
#[derive(Clone, Copy, Debug)]
struct Regularity {
    count: u64,
    first: u64,
    last: u64,
    shortest: u64,
    longest: u64,
    /// The sum of allocated bytes over its occurrences.
    allocated: u128,
}

impl Regularity {
    /// True if its distances differ by at most a factor of two.
    const fn is_regular(&self) -> bool {
        self.shortest * 2 >= self.longest
    }
}

impl RhythmFinder {
    /// The fewest reported steps that can show growth.
    const FEWEST_STEPS: u64 = 4;
    /// The fewest concluded repetitions that can show growth. Fewer can be chance.
    const FEWEST: u64 = 6;
    /// The fewest requests that must recur equally often.
    const VOTES: usize = 3;
    /// The most different requests that are distinguished.
    const KEYS: usize = 1 << 18;

    /// Takes in the next event, and the bytes allocated before it.
    pub fn observe(&mut self, event: &Event, allocated: Bytes) {
        match event.kind {
            EventKind::StepBegin { .. } => self.steps += 1,
            EventKind::Alloc { requested, name, .. } => {
                self.requests += 1;
                for key in [(name, Some(requested)), (name, None)] {
                    if self.keys.len() < Self::KEYS || self.keys.contains_key(&key) {
                        self.count(key, allocated);
                    }
                }
            }
            EventKind::Begin(_) => *self = Self::default(),
            _ => {}
        }
    }

    fn count(&mut self, key: (NameId, Option<Bytes>), allocated: Bytes) {
        let now = self.requests;
        let new = Regularity { count: 0, first: now, last: now, shortest: u64::MAX, longest: 0, allocated: 0 };
        let of = self.keys.entry(key).or_insert(new);
        if of.count > 0 {
            let gap = now - of.last;
            (of.shortest, of.longest) = (of.shortest.min(gap), of.longest.max(gap));
        }
        of.count += 1;
        of.last = now;
        of.allocated += u128::from(allocated.get());
    }

    /// How the run repeats itself; `None` if it does not, or too rarely.
    #[must_use]
    pub fn finish(self) -> Option<Rhythm> {
        if self.steps >= Self::FEWEST_STEPS {
            return Some(Rhythm { beat: Beat::Step, times: self.steps });
        }
        // Requests that occur once per step recur equally often and regularly, over most of the history.
        let covers = |of: &Regularity| (of.last - of.first) * 2 >= self.requests;
        let regular: Vec<(&(NameId, Option<Bytes>), &Regularity)> =
            self.keys.iter().filter(|(_, of)| of.count >= Self::FEWEST && of.is_regular() && covers(of)).collect();
        let mut votes: HashMap<u64, usize> = HashMap::new();
        for (_, of) in &regular {
            *votes.entry(of.count).or_default() += 1;
        }
        let (times, votes) = votes.into_iter().max_by_key(|(times, votes)| (*votes, std::cmp::Reverse(*times)))?;
        if votes < Self::VOTES {
            return None;
        }
        // A step begins where least is allocated.
        let begins = regular.into_iter().filter(|(_, of)| of.count == times);
        let ((name, size), _) = begins.min_by_key(|(key, of)| (of.allocated / u128::from(of.count), **key))?;
        Some(Rhythm { beat: Beat::Request(*name, *size), times })
    }
}

/// Examines what every name holds, repetition by repetition.
#[derive(Debug)]
pub struct LeakFinder {
    rhythm: Rhythm,
    /// How many repetitions lie between two looks.
    stride: u64,
    beats: u64,
    /// The repetition number of each look.
    looks: Vec<u64>,
    live: HashMap<Address, (usize, Bytes)>,
    lines: HashMap<(NameId, Category), usize>,
    by_text: HashMap<String, usize>,
    held: Vec<NameTotal>,
    /// True if a step has ended and none has begun since.
    between: bool,
    /// Events before the current one, and before the last look.
    position: u64,
    looked: Option<u64>,
}

/// What one name holds.
#[derive(Clone, Debug)]
struct NameTotal {
    name: String,
    category: Category,
    bytes: Bytes,
    blocks: u64,
    /// The number of the first look at it; `looks` has its bytes and blocks from there on.
    since: usize,
    looks: Vec<(Bytes, u64)>,
}

impl LeakFinder {
    /// The most looks.
    const LOOKS: u64 = 64;
    /// The fewest consecutive looks with growth, in a run that reports its steps and in one whose steps are concluded.
    const SUSPICIOUS: (usize, usize) = (2, 4);
    /// With fewer looks, a block that is made once, or replaced by a larger one, can look like growth.
    const SURE: usize = 4;
    /// This many rises are not chance, even if most looks see none.
    const REPEATED: usize = 5;

    /// A finder for a run that repeats itself in this way.
    #[must_use]
    pub fn new(rhythm: Rhythm) -> Self {
        Self {
            rhythm,
            stride: rhythm.times.div_ceil(Self::LOOKS).max(1),
            beats: 0,
            looks: Vec::new(),
            live: HashMap::new(),
            lines: HashMap::new(),
            by_text: HashMap::new(),
            held: Vec::new(),
            between: false,
            position: 0,
            looked: None,
        }
    }

    /// The number of events before the last look.
    #[must_use]
    pub const fn looked(&self) -> Option<u64> {
        self.looked
    }

    /// Takes in the next event, which has this index. `names` are those defined so far.
    pub fn observe(&mut self, event: &Event, index: u64, names: &Names) {
        self.position = index;
        let beats = match (self.rhythm.beat, &event.kind) {
            (Beat::Step, EventKind::StepBegin { .. }) => true,
            (Beat::Request(wanted, size), EventKind::Alloc { name, requested, .. }) => {
                wanted == *name && size.is_none_or(|size| size == *requested)
            }
            _ => false,
        };
        if beats {
            self.beat();
        }
        match event.kind {
            EventKind::Alloc { address, size, category, name, .. } => self.take(address, size, category, name, names),
            EventKind::FreeRequested { address } => {
                self.give(address);
            }
            EventKind::Relabel { address, category, name } => {
                if let Some(size) = self.give(address) {
                    self.take(address, size, category, name, names);
                }
            }
            EventKind::StepEnd(_) => self.between = true,
            EventKind::StepBegin { .. } => self.between = false,
            EventKind::Begin(_) => *self = Self::new(self.rhythm),
            _ => {}
        }
    }

    fn take(&mut self, address: Address, size: Bytes, category: Category, name: NameId, names: &Names) {
        let index = match self.lines.get(&(name, category)) {
            Some(index) => *index,
            None => {
                let text = match names.get(name) {
                    "" => category.label().to_owned(),
                    text => naming::starred(text),
                };
                let index = *self.by_text.entry(text.clone()).or_insert(self.held.len());
                if index == self.held.len() {
                    let since = self.looks.len();
                    self.held.push(NameTotal {
                        name: text,
                        category,
                        bytes: Bytes::ZERO,
                        blocks: 0,
                        since,
                        looks: Vec::new(),
                    });
                }
                self.lines.insert((name, category), index);
                index
            }
        };
        if let Some((before, size)) = self.live.insert(address, (index, size)) {
            self.held[before].leave(size);
        }
        let line = &mut self.held[index];
        line.bytes += size;
        line.blocks += 1;
    }

    fn give(&mut self, address: Address) -> Option<Bytes> {
        let (index, size) = self.live.remove(&address)?;
        self.held[index].leave(size);
        Some(size)
    }

    fn beat(&mut self) {
        if self.beats.is_multiple_of(self.stride) {
            self.look();
        }
        self.beats += 1;
    }

    fn look(&mut self) {
        self.looks.push(self.beats);
        self.looked = Some(self.position);
        for line in &mut self.held {
            line.looks.push((line.bytes, line.blocks));
        }
    }

    /// The leaks, the most bytes per repetition first.
    #[must_use]
    pub fn finish(mut self) -> Vec<Leak> {
        if self.between && self.stride == 1 {
            self.look();
        }
        // Optimizer state, workspaces and caches are made in the first repetitions.
        let warm = (self.looks.len() / 4).max(1);
        let (told, concluded) = Self::SUSPICIOUS;
        let fewest = if self.rhythm.is_told() { told } else { concluded };
        let mut leaks: Vec<Leak> = self.held.iter().filter_map(|line| line.leak(&self.looks, warm, fewest)).collect();
        leaks.sort_by(|a, b| b.bytes_per_step.cmp(&a.bytes_per_step).then_with(|| a.line.cmp(&b.line)));
        leaks
    }
}

impl NameTotal {
    fn leave(&mut self, size: Bytes) {
        self.bytes = self.bytes.saturating_sub(size);
        self.blocks = self.blocks.saturating_sub(1);
    }

    /// A leak, if the name never shrank since it began to grow, and grew to the end: at nearly every look, or often and
    /// always by whole blocks. If there are few looks, it must have grown at each of them and by whole blocks.
    fn leak(&self, looks: &[u64], warm: usize, fewest: usize) -> Option<Leak> {
        // A name that appeared later held nothing before.
        let at = |look: usize| {
            look.checked_sub(self.since).and_then(|look| self.looks.get(look)).copied().unwrap_or_default()
        };
        let held: Vec<(Bytes, u64)> = (warm..looks.len()).map(at).collect();
        // A leak may begin late; it is then examined from there on.
        let late = held.windows(2).position(|pair| pair[1].0 > pair[0].0)?;
        let held = &held[late..];
        let fewest = if late == 0 { fewest } else { fewest.max(LeakFinder::SURE) };
        let intervals = held.len().checked_sub(1).filter(|&intervals| intervals >= fewest)?;
        let falls = held.windows(2).any(|pair| pair[1].0 < pair[0].0);
        let rises: Vec<usize> = (1..held.len()).filter(|&look| held[look].0 > held[look - 1].0).collect();
        if falls || !goes_on(&rises, intervals) {
            return None;
        }
        let repeated = rises.len() >= LeakFinder::REPEATED;
        let by_blocks = || rises.iter().all(|&look| held[look].1 > held[look - 1].1);
        if rises.len() * 4 < intervals * 3 && !(repeated && by_blocks()) {
            return None;
        }
        // Their number is bounded by the model's parameters: an optimizer makes its state when a gradient first appears.
        let bounded = matches!(self.category, Category::Parameter | Category::Gradient | Category::OptimizerState);
        if bounded && !repeated {
            return None;
        }
        if intervals < LeakFinder::SURE && held.windows(2).any(|pair| pair[1].1 <= pair[0].1) {
            return None;
        }
        let (first, last) = (held[0], held[intervals]);
        let steps = looks[looks.len() - 1] - looks[warm + late];
        let blocks = last.1.saturating_sub(first.1);
        Some(Leak {
            line: self.name.clone(),
            category: self.category,
            bytes_per_step: Bytes(last.0.saturating_sub(first.0).get() / steps.max(1)),
            blocks_per_step: blocks as f64 / steps.max(1) as f64,
            bytes: self.bytes,
            steps,
        })
    }
}

/// True if the growth at these looks was still going on at the end: its last pause is shorter than its longest, and at
/// least a sixth of the rises is in the second half. A full list, or a cache that has seen nearly every shape, fails
/// this test.
fn goes_on(rises: &[usize], looks: usize) -> bool {
    let Some(last) = rises.last() else { return false };
    let longest = rises.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1);
    let later = rises.iter().filter(|&&look| look * 2 > looks).count();
    looks - last < longest && later * 6 >= rises.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lab, Micros};
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::StreamId;

    /// Steps of one shape that take and release memory, and keep what `keeps` returns.
    fn run(steps: u64, told: bool, keeps: impl Fn(u64) -> u64) -> Vec<Event> {
        let mut events = Vec::new();
        let mut tell = |kind| events.push(Event::new(Micros(0), kind));
        let names =
            ["input (loop.py:3)", "forward (model.py:9)", "loss (loop.py:5)", "grad (loop.py:6)", "kept (loop.py:7)"];
        for (index, text) in (1..).zip(names) {
            tell(EventKind::Define { id: NameId(index), text: text.into() });
        }
        tell(EventKind::SegmentAlloc {
            address: Address(0),
            size: Bytes::gib(1),
            stream: StreamId::DEFAULT,
            pool: PoolKind::Large,
        });
        let mut next = 1 << 20;
        for step in 0..steps {
            if told {
                tell(EventKind::StepBegin { step });
            }
            let mut take = |name: u32, size: u64| {
                next += 4096;
                let (address, size) = (Address(next), Bytes(size));
                tell(EventKind::Alloc {
                    address,
                    size,
                    requested: size,
                    stream: StreamId::DEFAULT,
                    category: Category::Other,
                    name: NameId(name),
                });
                address
            };
            let mut taken = vec![take(1, 512), take(2, 2048), take(2, 1024), take(3, 512), take(4, 1536)];
            let kept = keeps(step);
            if kept > 0 {
                take(5, kept);
            }
            taken.reverse();
            for address in taken {
                tell(EventKind::FreeRequested { address });
                tell(EventKind::FreeCompleted { address });
            }
        }
        events
    }

    fn leaks(events: &[Event]) -> (Option<Rhythm>, Vec<Leak>) {
        let mut lab = Lab::new();
        let mut finder = RhythmFinder::default();
        for event in events {
            finder.observe(event, lab.memory().allocated());
            lab.apply(event);
        }
        let Some(rhythm) = finder.finish() else { return (None, Vec::new()) };
        let mut finder = LeakFinder::new(rhythm);
        (0..).zip(events).for_each(|(index, event)| finder.observe(event, index, lab.names()));
        (Some(rhythm), finder.finish())
    }

    #[test]
    fn what_every_step_keeps_is_found_with_and_without_told_steps() {
        for steps in [8, 20, 300] {
            for told in [true, false] {
                let (rhythm, found) = leaks(&run(steps, told, |_| 1024));
                let rhythm = rhythm.unwrap();
                assert_eq!((rhythm.times, rhythm.is_told()), (steps, told));
                assert_eq!(found.len(), 1, "{steps} {told}: {found:?}");
                assert_eq!((&*found[0].line, found[0].bytes_per_step), ("kept (loop.py:7)", Bytes(1024)));
                assert!((found[0].blocks_per_step - 1.0).abs() < 1e-9);
                assert_eq!(found[0].bytes, Bytes(1024 * steps));
            }
        }
    }

    #[test]
    fn what_grows_at_first_only_or_seldom_is_none() {
        let (rhythm, found) = leaks(&run(40, false, |_| 0));
        assert_eq!((rhythm.map(|rhythm| rhythm.times), found), (Some(40), Vec::new()));
        for told in [true, false] {
            assert_eq!(leaks(&run(40, told, |step| if step < 5 { 4096 } else { 0 })).1, Vec::new());
            assert_eq!(leaks(&run(40, told, |step| if step % 10 == 0 { 4096 } else { 0 })).1, Vec::new());
        }
    }

    #[test]
    fn what_is_kept_at_some_steps_is_found_and_what_stops_is_not() {
        for steps in [80, 300] {
            for told in [true, false] {
                let (_, found) = leaks(&run(steps, told, |step| if step % 10 == 0 { 10_240 } else { 0 }));
                assert_eq!(found.len(), 1, "{steps} {told}: {found:?}");
                assert_eq!(found[0].line, "kept (loop.py:7)");
                let rate = found[0].bytes_per_step.get();
                assert!((900..=1200).contains(&rate), "{steps} {told}: {rate} bytes a step");
            }
        }
        let irregular = [3, 17, 19, 33, 51, 52, 60, 77];
        for told in [true, false] {
            assert_eq!(leaks(&run(80, told, |step| if irregular.contains(&step) { 4096 } else { 0 })).1.len(), 1);
            let seldom = [3, 17, 33, 51, 60, 77];
            assert_eq!(leaks(&run(80, told, |step| if seldom.contains(&step) { 4096 } else { 0 })).1, Vec::new());
            // A cache that became full.
            let full = |step| if step < 50 && step % 10 == 0 { 4096 } else { 0 };
            assert_eq!(leaks(&run(80, told, full)).1, Vec::new());
        }
    }

    /// Pseudo-random numbers below `bound`.
    fn drawn(mut seed: u64, bound: u64, count: u64) -> Vec<u64> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn what_is_kept_by_chance_is_found_and_what_is_kept_once_for_every_shape_is_not() {
        for seed in 0..40 {
            for one_in in [2, 3, 4] {
                let draws = drawn(seed, one_in, 60);
                // Up to the last rise, so that no long pause hides whether the growth goes on.
                let (_, found) =
                    leaks(&run(60, true, |step| if draws[step as usize] == 0 || step == 58 { 4096 } else { 0 }));
                assert_eq!(found.len(), 1, "seed {seed}, one in {one_in}: {draws:?}");
            }
            let shapes = drawn(seed, 8, 60);
            let new = |step: u64| !shapes[..step as usize].contains(&shapes[step as usize]);
            let (_, found) = leaks(&run(60, true, |step| if new(step) { 4096 } else { 0 }));
            assert_eq!(found, Vec::new(), "seed {seed}: {shapes:?}");
        }
    }

    #[test]
    fn what_a_loop_of_any_length_keeps_on_purpose_is_no_leak() {
        for steps in [4, 5, 6, 8, 12, 20, 40, 63] {
            for told in [true, false] {
                for bound in 1..steps - 1 {
                    // A list of the last losses: once it is full, each new loss releases an old one.
                    let (_, found) = leaks(&run(steps, told, |step| if step < bound { 512 } else { 0 }));
                    assert_eq!(found, Vec::new(), "{bound} losses in {steps} steps");
                    // A moving average of the weights, made after `bound` steps.
                    let (_, found) = leaks(&run(steps, told, |step| if step == bound { 1 << 20 } else { 0 }));
                    assert_eq!(found, Vec::new(), "an average from step {bound} of {steps}");
                }
            }
        }
    }

    #[test]
    fn optimizer_state_that_comes_step_by_step_is_no_leak_until_it_comes_again_and_again() {
        let state = |steps| {
            let mut events = run(steps, true, |_| 4096);
            for event in &mut events {
                if let EventKind::Alloc { category, name: NameId(5), .. } = &mut event.kind {
                    *category = Category::OptimizerState;
                }
            }
            leaks(&events).1.len()
        };
        assert_eq!((state(4), state(5)), (0, 0));
        // Every step makes a new optimizer and keeps it.
        assert_eq!(state(12), 1);
    }

    #[test]
    fn a_leak_that_begins_late_is_found_with_the_rate_that_it_has_since() {
        for told in [true, false] {
            let (_, found) = leaks(&run(40, told, |step| if step < 30 { 0 } else { 4096 }));
            let rates: Vec<_> = found.iter().map(|leak| (leak.bytes_per_step, leak.bytes)).collect();
            assert_eq!(rates, [(Bytes(4096), Bytes(40_960))], "{told}");
            assert_eq!(leaks(&run(40, told, |step| if step < 38 { 0 } else { 4096 })).1, Vec::new());
        }
    }

    #[test]
    fn four_steps_that_are_told_show_a_leak_and_concluded_ones_do_not() {
        let (rhythm, found) = leaks(&run(4, true, |_| 1024));
        assert_eq!(rhythm.map(|rhythm| rhythm.times), Some(4));
        let told: Vec<_> = found.iter().map(|leak| (&*leak.line, leak.bytes_per_step, leak.steps)).collect();
        assert_eq!(told, [("kept (loop.py:7)", Bytes(1024), 2)]);
        assert_eq!(leaks(&run(4, false, |_| 1024)), (None, Vec::new()));
        assert_eq!(leaks(&run(4, true, |step| if step < 2 { 1024 } else { 0 })).1, Vec::new());
        assert_eq!(leaks(&run(3, true, |_| 1024)).0, None);
    }

    #[test]
    fn what_does_not_repeat_itself_has_no_rhythm() {
        assert_eq!(leaks(&run(3, false, |_| 1024)).0, None);
        assert_eq!(leaks(&[]).0, None);
    }
}
