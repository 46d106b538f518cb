//! Runs a program through our allocator.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use vramlab::allocator::{CachingAllocator, Diversion, PoolId, Settings, TorchVersion};
use vramlab::units::{Address, Bytes, StreamId};

use super::device::Device;
use super::facts::{self, Trace};

/// A recorded program.
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
        device.releases = self.addresses("segment_free").collect();
        device.completions = self.addresses("free_completed").collect();
        let trace = Trace::default();
        device.count = Rc::clone(&trace.completed);
        let mut allocator = CachingAllocator::new(device, settings, trace);
        if let Some(limit) = self.bytes("limit") {
            allocator.set_limit(Some(limit));
        }
        allocator
    }
}

/// Runs the program through our allocator. The error has the first differences, if it did anything that PyTorch's did
/// not.
pub fn judge(text: &str) -> Result<usize, String> {
    let program = Program::read(text);
    let mut run =
        Run { allocator: program.allocator(), live: BTreeMap::new(), diversions: Vec::new(), uses: BTreeMap::new() };
    for line in &program.script {
        run.request(line);
    }
    let (mut ours, mut ends) = (std::mem::take(&mut run.allocator.sink_mut().facts), facts::at_the_end(&run.allocator));
    let (mut recorded, mut recorded_ends): (Vec<_>, Vec<_>) =
        program.facts.into_iter().partition(|fact| is_event(fact));
    if let Some(at) = first_difference(&ours, &recorded) {
        let of = |facts: &[String]| facts.get(at).map_or("the end", |fact| fact).to_owned();
        return Err(format!("event {at}: ours {:?}, PyTorch's {:?}", of(&ours), of(&recorded)));
    }
    // Segments and blocks in their order, statistics in any order; those that were not recorded are not compared.
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
    /// Blocks by the script's names; `None` for a failed request.
    live: BTreeMap<String, Option<(Address, u64)>>,
    /// Private pools to which requests go, and whether a graph is captured.
    diversions: Vec<(PoolId, bool)>,
    /// Side streams of live blocks, and whether they were recorded while events are held back.
    uses: BTreeMap<String, BTreeMap<u64, bool>>,
}

impl Run {
    fn request(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["alloc", id, size] => self.alloc(id, number(size), 0),
            ["alloc", id, size, stream] => self.alloc(id, number(size), number(stream)),
            ["free", id] => self.free(id, None),
            ["free", id, "held"] => self.free(id, Some(id.to_owned())),
            ["done", id] => self.allocator.source_mut().done(id),
            ["use", id, stream] => {
                if let Some((address, own)) = self.live[id] {
                    let stream = number(stream);
                    self.allocator.record_stream(address, StreamId(stream));
                    if stream != own {
                        let held_back = self.holds_events();
                        *self.uses.entry(id.to_owned()).or_default().entry(stream).or_default() |= held_back;
                    }
                }
            }
            ["tick", ticks] => self.allocator.source_mut().tick(number(ticks)),
            ["empty_cache"] => {
                self.look_at_pools();
                self.allocator.empty_cache();
            }
            ["empty_cache", a, b] => self.allocator.empty_pool(pool(a, b)),
            ["begin" | "capture", a, b, ..] => {
                let stream = words.get(3).map(|stream| StreamId(number(stream)));
                self.diversions.push((pool(a, b), words[0] == "capture"));
                self.allocator.begin_diversion(Diversion { pool: pool(a, b), stream, capture: words[0] == "capture" });
            }
            ["end", a, b] => {
                self.diversions.retain(|(id, _)| *id != pool(a, b));
                self.allocator.end_diversion(pool(a, b));
            }
            ["release", a, b] => self.allocator.release_pool(pool(a, b)),
            ["reset_peak"] => self.allocator.reset_peak_statistics(),
            ["set", conf] => self.allocator.apply_settings(conf).unwrap(),
            ["fraction", share] => self.allocator.set_memory_fraction(share.parse().unwrap()).unwrap(),
            _ => panic!("unknown request {line:?}"),
        }
    }

    /// Tells the device which pools segments belong to: private pools give theirs back in the recorded order.
    fn look_at_pools(&mut self) {
        let segments = self.allocator.segments();
        let pools = segments.into_iter().map(|segment| (segment.address, segment.pool_id)).collect();
        self.allocator.source_mut().pools = pools;
    }

    fn holds_events(&self) -> bool {
        let torch = self.allocator.settings().torch();
        self.diversions.iter().any(|(_, capture)| *capture || torch < TorchVersion::V2_13)
    }

    fn alloc(&mut self, id: &str, size: u64, stream: u64) {
        self.allocator.source_mut().tick(1);
        self.look_at_pools();
        let block = self.allocator.malloc(Bytes(size), StreamId(stream)).ok().map(|block| (block.address, stream));
        self.live.insert(id.to_owned(), block);
    }

    fn free(&mut self, id: &str, hold: Option<String>) {
        self.allocator.source_mut().tick(1);
        let uses = self.uses.remove(id).unwrap_or_default();
        if let Some((address, _)) = self.live.remove(id).unwrap() {
            if self.holds_events() {
                let later = uses.values().filter(|captured| !**captured).map(|_| address);
                self.allocator.source_mut().deferred.extend(later);
            }
            self.allocator.source_mut().frees(address, hold);
            self.allocator.free(address).unwrap();
            self.allocator.source_mut().freed();
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn pool(graph: &str, user: &str) -> PoolId {
    PoolId(graph.parse().unwrap(), user.parse().unwrap())
}
