//! Runs a program through our allocator.

use std::collections::{BTreeMap, BTreeSet};

use vramlab::allocator::{CachingAllocator, Settings};
use vramlab::units::{Address, Bytes, StreamId};

use super::device::Device;
use super::facts::{self, Trace};

/// A program as recorded.
struct Program<'a> {
    conditions: BTreeMap<&'a str, &'a str>,
    script: Vec<&'a str>,
    facts: Vec<String>,
}

impl<'a> Program<'a> {
    fn read(text: &'a str) -> Self {
        let mut lines = text.lines();
        let conditions =
            lines.by_ref().take_while(|line| *line != "script").map(|line| line.split_once(' ').unwrap_or((line, "")));
        let conditions = conditions.collect();
        let script = lines.by_ref().take_while(|line| *line != "facts").collect();
        Self { conditions, script, facts: lines.filter_map(facts::recorded).collect() }
    }

    fn bytes(&self, condition: &str) -> Option<Bytes> {
        self.conditions.get(condition)?.parse().ok().map(Bytes)
    }

    /// Addresses of the recorded events of one action.
    fn addresses(&self, action: &str) -> impl Iterator<Item = Address> {
        self.facts.iter().filter_map(move |fact| {
            let (word, rest) = fact.split_once(' ')?;
            let address = rest.split(' ').next()?.parse().ok()?;
            (word == action).then_some(Address(address))
        })
    }

    fn allocator(&self) -> CachingAllocator<Device, Trace> {
        let torch = self.conditions["torch"].parse().unwrap();
        let settings = Settings::parse_for(torch, self.conditions.get("conf").unwrap_or(&"")).unwrap();
        let mut device = Device::new();
        device.total = self.bytes("device_bytes").unwrap();
        device.capacity = self.bytes("capacity").unwrap_or(device.total);
        device.delay = self.bytes("delay").map_or(3, |ticks| ticks.0);
        device.addresses = self.addresses("segment_alloc").collect();
        let mut allocator = CachingAllocator::new(device, settings, Trace::default());
        if let Some(limit) = self.bytes("limit") {
            allocator.set_limit(Some(limit));
        }
        allocator
    }
}

/// Runs the program through our allocator. `Err` with the first differences if it did anything that PyTorch's did not.
pub fn judge(text: &str) -> Result<usize, String> {
    let program = Program::read(text);
    let mut run = Run {
        allocator: program.allocator(),
        live: BTreeMap::new(),
        completions: program.addresses("free_completed").collect(),
    };
    for line in &program.script {
        run.request(line);
    }
    let (mut ours, mut ends) = (std::mem::take(&mut run.allocator.sink_mut().0), facts::at_the_end(&run.allocator));
    let (mut recorded, mut recorded_ends): (Vec<_>, Vec<_>) =
        program.facts.into_iter().partition(|fact| is_event(fact));
    if let Some(at) = first_difference(&ours, &recorded) {
        let of = |facts: &[String]| facts.get(at).map_or("the end", |fact| fact).to_owned();
        return Err(format!("event {at}: ours {:?}, PyTorch's {:?}", of(&ours), of(&recorded)));
    }
    // Segments and blocks in their order, statistics in any; those that were not recorded are not compared.
    for facts in [&mut ends, &mut recorded_ends] {
        facts.sort_by_key(|fact| (is_statistic(fact), if is_statistic(fact) { fact.clone() } else { String::new() }));
    }
    let named: BTreeSet<String> = recorded_ends.iter().filter_map(|fact| name_of(fact)).collect();
    ends.retain(|fact| name_of(fact).is_none_or(|name| named.contains(&name)));
    if let Some(at) = first_difference(&ends, &recorded_ends) {
        let of = |facts: &[String]| facts.get(at).map_or("the end", |fact| fact).to_owned();
        return Err(format!("at the end: ours {:?}, PyTorch's {:?}", of(&ends), of(&recorded_ends)));
    }
    recorded.append(&mut recorded_ends);
    ours.append(&mut ends);
    Ok(recorded.len())
}

fn is_event(fact: &str) -> bool {
    !["segment ", "block "].iter().any(|word| fact.starts_with(word)) && !is_statistic(fact)
}

fn is_statistic(fact: &str) -> bool {
    fact.starts_with("stat ") || fact.starts_with("number ")
}

fn name_of(fact: &str) -> Option<String> {
    is_statistic(fact).then(|| fact.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

fn first_difference(ours: &[String], recorded: &[String]) -> Option<usize> {
    let both = ours.iter().zip(recorded).position(|(a, b)| a != b);
    both.or_else(|| (ours.len() != recorded.len()).then(|| ours.len().min(recorded.len())))
}

struct Run {
    allocator: CachingAllocator<Device, Trace>,
    /// Blocks by the script's names; none for a request that failed.
    live: BTreeMap<String, Option<Address>>,
    completions: Vec<Address>,
}

impl Run {
    fn request(&mut self, line: &str) {
        // What is completed next: side streams are looked through in the order that leaves it.
        let completed = self.allocator.sink().0.iter().filter(|fact| fact.starts_with("free_completed")).count();
        let next = self.completions.get(completed..).unwrap_or_default().iter().copied().collect();
        self.allocator.source_mut().completions = next;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["alloc", id, size] => self.alloc(id, number(size), 0),
            ["alloc", id, size, stream] => self.alloc(id, number(size), number(stream)),
            ["free", id] => self.free(id, None),
            ["free", id, "held"] => self.free(id, Some(id.to_owned())),
            ["done", id] => self.allocator.source_mut().done(id),
            ["use", id, stream] => {
                if let Some(address) = self.live[id] {
                    self.allocator.record_stream(address, StreamId(number(stream)));
                }
            }
            ["tick", ticks] => self.allocator.source_mut().tick(number(ticks)),
            ["empty_cache"] => self.allocator.empty_cache(),
            ["reset_peak"] => self.allocator.reset_peak_statistics(),
            _ => panic!("unknown request {line:?}"),
        }
    }

    fn alloc(&mut self, id: &str, size: u64, stream: u64) {
        self.allocator.source_mut().tick(1);
        let block = self.allocator.malloc(Bytes(size), StreamId(stream)).ok().map(|block| block.address);
        self.live.insert(id.to_owned(), block);
    }

    fn free(&mut self, id: &str, hold: Option<String>) {
        self.allocator.source_mut().tick(1);
        if let Some(address) = self.live.remove(id).unwrap() {
            self.allocator.source_mut().frees(address, hold);
            self.allocator.free(address).unwrap();
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}
