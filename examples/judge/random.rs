//! Random programs: most requests draw from a few sizes, so that equally large blocks are frequent.

use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// Numbers from a seed (SplitMix64).
pub struct Draw(u64);

impl Draw {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.next() % length as u64).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// True in this many of a thousand cases.
    fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

/// A program that nobody has run yet.
pub struct Program {
    pub conf: String,
    pub device_bytes: u64,
    pub capacity: u64,
    pub limit: Option<u64>,
    /// How the driver places segments: 0 ascending, 1 descending, 2 at random.
    pub addresses: u64,
    pub seed: u64,
    pub delay: u64,
    pub script: Vec<String>,
}

impl Program {
    /// A random program for PyTorch 2.`minor`.
    pub fn draw(draw: &mut Draw, minor: u32) -> Self {
        let pools = draw.chance(400);
        let base = draw.one(&[256 * MIB, 512 * MIB, 1000 * MIB, 4096 * MIB, 16_384 * MIB, 32_768 * MIB]);
        let device_bytes = base + draw.one(&[0, 0, 0, 1, 12_345, 38_912, 39_424]);
        let capacity = draw.one(&[device_bytes, device_bytes, 100 * MIB, 200 * MIB, 500 * MIB, 1000 * MIB]);
        let limit = draw.chance(400).then(|| {
            let most = draw.one(&[device_bytes, 400 * MIB, 1200 * MIB]).min(device_bytes);
            (most / 1000 * draw.between(100, 950)).max(MIB)
        });
        let conf = conf(draw, minor, pools, limit.is_some());
        let (addresses, delay) = (draw.one(&[2, 2, 2, 0, 1]), draw.one(&[0, 3, 3, 10, 40]));
        let script = Script::new(draw, pools, conf.clone()).write();
        Self { conf, device_bytes, capacity, limit, addresses, seed: draw.next() >> 34, delay, script }
    }
}

/// Random settings. With private pools segments don't expand, because PyTorch counts such segments wrongly.
fn conf(draw: &mut Draw, minor: u32, pools: bool, limited: bool) -> String {
    if draw.chance(250) {
        return String::new();
    }
    let roundups = ["1", "2", "4", "8", "16", "[4:2,32:8]", "[256:1,512:2,1024:4,>:8]", "[1:4,2:4,4:4,8:4,16:4,>:2]"];
    let mut words = Vec::new();
    let mut add = |draw: &mut Draw, per_mille, key: &str, values: &[&str]| {
        if draw.chance(per_mille) {
            words.push(format!("{key}:{}", draw.one(values)));
        }
    };
    add(draw, 350, "max_split_size_mb", &["20", "21", "25", "32", "52", "80", "128", "200", "512"]);
    add(draw, 350, "roundup_power2_divisions", &roundups);
    add(draw, 350, "garbage_collection_threshold", &["0.05", "0.1", "0.3", "0.5", "0.6", "0.8", "0.95", "0.999"]);
    add(draw, if pools { 0 } else { 400 }, "expandable_segments", &["True"]);
    add(draw, 150, "large_segment_size_mb", &["20", "22", "32", "64", "100"]);
    add(draw, 150, "max_non_split_rounding_mb", &["20", "21", "32", "64", "128"]);
    let fraction = if limited { 0 } else { 250 };
    add(draw, fraction, "per_process_memory_fraction", &["0.05", "0.13", "0.37", "0.5", "0.77", "0.9"]);
    if minor >= 12 {
        add(draw, 100, "throw_on_cudamalloc_oom", &["True"]);
    }
    if minor >= 15 && !pools {
        add(draw, 150, "expandable_segments_reserve", &["0.5", "0.25", "1.0", "2.0", "1G", "0.25G"]);
    }
    words.join(",")
}

/// Settings that replace `conf` at run time. Settings that decide when blocks are split stay: after they change,
/// PyTorch gives parts of segments back and breaks down.
fn changed(draw: &mut Draw, conf: &str, pools: bool) -> String {
    let kept = ["max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb"];
    // None of their values has a comma.
    let of = conf.split(',').filter(|word| kept.iter().any(|key| word.starts_with(key)));
    let mut words: Vec<String> = of.map(str::to_owned).collect();
    words.push(format!("roundup_power2_divisions:{}", draw.one(&["1", "2", "4", "[4:2,>:8]"])));
    if draw.chance(500) {
        words.push(format!("garbage_collection_threshold:{}", draw.one(&["0.1", "0.3", "0.6", "0.9"])));
    }
    if !pools && !conf.contains("max_split_size_mb") {
        words.push(format!("expandable_segments:{}", draw.one(&["True", "False"])));
    }
    format!("set {}", words.join(","))
}

fn size(draw: &mut Draw) -> u64 {
    let borders =
        [512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 20 * MIB, 20 * MIB + 1, 64 * MIB, 100 * MIB];
    match draw.index(7) {
        0 => draw.between(1, 4096),
        1 => draw.between(1, MIB),
        2 => draw.between(MIB, 10 * MIB),
        3 => draw.between(10 * MIB, 40 * MIB),
        4 => draw.between(1, 16) * MIB,
        5 => draw.one(&borders),
        _ => draw.between(1, 4000) * 512,
    }
}

type Pool = (u64, u64);

struct Script<'a> {
    draw: &'a mut Draw,
    with_pools: bool,
    conf: String,
    sizes: Vec<u64>,
    streams: Vec<u64>,
    /// How many of a thousand blocks are used by other streams, and how many of a thousand requests have a size of
    /// their own.
    side: u64,
    odd: u64,
    largest: u64,
    lines: Vec<String>,
    /// Live blocks, and freed blocks whose events are held back.
    live: Vec<u64>,
    held: Vec<u64>,
    blocks: u64,
    /// The number of users of each private pool; and for each pool to which requests go, whether a graph is captured
    /// into it.
    users: BTreeMap<Pool, u64>,
    active: BTreeMap<Pool, bool>,
}

impl<'a> Script<'a> {
    fn new(draw: &'a mut Draw, with_pools: bool, conf: String) -> Self {
        let sizes = (0..draw.one(&[4, 8, 8, 12])).map(|_| size(draw)).collect();
        let streams: Vec<u64> = (0..draw.one(&[1, 1, 2, 2, 3, 4])).map(|stream| 4096 * stream).collect();
        let side = if streams.len() > 1 { draw.one(&[0, 100, 250, 500]) } else { draw.one(&[0, 0, 50]) };
        let (odd, largest) = (draw.one(&[0, 100, 250, 500]), draw.one(&[2, 24, 24, 64, 160]) * MIB);
        Self {
            draw,
            with_pools,
            conf,
            sizes,
            streams,
            side,
            odd,
            largest,
            lines: Vec::new(),
            live: Vec::new(),
            held: Vec::new(),
            blocks: 0,
            users: BTreeMap::new(),
            active: BTreeMap::new(),
        }
    }

    fn write(mut self) -> Vec<String> {
        let (steps, period) = (self.draw.one(&[150, 250, 400, 400, 700]), self.draw.one(&[20, 40, 80]));
        for step in 0..steps {
            if self.with_pools && self.draw.chance(70) {
                self.pool();
            } else {
                self.request(step / period % 3 != 2);
            }
        }
        if self.draw.chance(300) {
            self.leave();
        }
        self.lines
    }

    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn request(&mut self, growing: bool) {
        match self.draw.index(1000) {
            0..12 => self.say("empty_cache"),
            12..16 => self.say("reset_peak"),
            16..20 => {
                let ticks = self.draw.one(&[1, 5, 50]);
                self.say(format!("tick {ticks}"));
            }
            20..35 if !self.held.is_empty() => {
                let at = self.draw.index(self.held.len());
                let block = self.held.swap_remove(at);
                self.say(format!("done {block}"));
            }
            35..40 => {
                let share = self.draw.one(&["0.05", "0.1", "0.3", "0.37", "0.5", "0.7", "0.9", "0.999", "1.0"]);
                self.say(format!("fraction {share}"));
            }
            40..46 => {
                let line = changed(self.draw, &self.conf, self.with_pools);
                self.say(line);
            }
            drawn if drawn < if growing { 620 } else { 350 } || self.live.is_empty() => self.take(),
            _ => self.give(),
        }
    }

    fn take(&mut self) {
        let own = self.draw.chance(self.odd);
        let size = if own { self.draw.between(1, self.largest) } else { self.draw.one(&self.sizes) };
        let (block, stream) = (self.blocks, self.draw.one(&self.streams));
        self.say(format!("alloc {block} {size} {stream}"));
        self.live.push(block);
        self.blocks += 1;
    }

    fn give(&mut self) {
        let at = if self.draw.chance(700) { self.draw.index(self.live.len()) } else { self.live.len() - 1 };
        let block = self.live.remove(at);
        if !self.draw.chance(self.side) {
            self.say(format!("free {block}"));
            return;
        }
        for _ in 0..self.draw.one(&[1, 1, 1, 2, 3]) {
            let stream = if self.streams.len() > 1 { self.draw.one(&self.streams) } else { self.draw.one(&[0, 4096]) };
            self.say(format!("use {block} {stream}"));
        }
        if self.draw.chance(150) {
            self.held.push(block);
            self.say(format!("free {block} held"));
        } else {
            self.say(format!("free {block}"));
        }
    }

    /// A random action on private pools. It avoids what PyTorch asserts against: a pool without users is not used
    /// again, and a pool to which requests go is neither begun nor released.
    fn pool(&mut self) {
        let idle = |(pool, users): (&Pool, &u64)| (*users > 0 && !self.active.contains_key(pool)).then_some(*pool);
        let idle: Vec<Pool> = self.users.iter().filter_map(idle).collect();
        match self.draw.index(100) {
            0..40 if self.active.len() < 3 => self.begin(&idle),
            40..75 if !self.active.is_empty() => {
                let pools: Vec<Pool> = self.active.keys().copied().collect();
                let (a, b) = self.draw.one(&pools);
                self.active.remove(&(a, b));
                self.say(format!("end {a} {b}"));
            }
            75..93 if !idle.is_empty() => {
                let (a, b) = self.draw.one(&idle);
                self.users.entry((a, b)).and_modify(|users| *users -= 1);
                self.say(format!("release {a} {b}"));
            }
            93.. if !self.users.is_empty() && self.active.is_empty() => {
                let pools: Vec<Pool> = self.users.keys().copied().collect();
                let (a, b) = self.draw.one(&pools);
                self.say(format!("empty_cache {a} {b}"));
            }
            _ => {}
        }
    }

    fn begin(&mut self, idle: &[Pool]) {
        let next = self.users.len() as u64 + 1;
        let again = !idle.is_empty() && self.draw.chance(500);
        let pool = if again { self.draw.one(idle) } else { self.draw.one(&[(next, 0), (0, next)]) };
        // Graphs usually have pools of their own.
        let capture = if self.draw.chance(800) { pool.0 > 0 } else { self.draw.chance(500) };
        let stream = if self.draw.chance(600) { format!(" {}", self.draw.one(&self.streams)) } else { String::new() };
        self.say(format!("{} {} {}{stream}", if capture { "capture" } else { "begin" }, pool.0, pool.1));
        *self.users.entry(pool).or_default() += 1;
        self.active.insert(pool, capture);
    }

    /// Frees everything.
    fn leave(&mut self) {
        for (a, b) in std::mem::take(&mut self.active).into_keys() {
            self.say(format!("end {a} {b}"));
        }
        for block in std::mem::take(&mut self.live) {
            self.say(format!("free {block}"));
        }
        for ((a, b), users) in std::mem::take(&mut self.users) {
            (0..users).for_each(|_| self.say(format!("release {a} {b}")));
        }
        self.say("tick 1000");
        self.say("empty_cache");
    }
}
