//! The card that the library stands in for, as a small file describes it.

use std::fs;
use std::sync::OnceLock;

use crate::plans::Chip;

/// Says where the file is.
pub const VARIABLE: &str = "VRAMLAB_CARD";
/// No machine has more.
const MOST_DEVICES: u64 = 64;
/// Nanoseconds and rates that times can be computed with.
const MOST_TIME: u64 = 1_000_000_000;
const MOST_RATE: u64 = 1 << 50;
/// A card's file is a page.
const LONGEST: u64 = 64 << 10;

/// A card.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// `NVIDIA H200`.
    pub title: String,
    /// How many of them there are.
    pub devices: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that a process takes before its first request.
    pub context: u64,
    /// Bytes that NCCL takes in a process with a communicator of several ranks.
    pub ranks: u64,
    /// Major version times ten plus minor version.
    pub capability: i32,
    /// Streaming multiprocessors.
    pub multiprocessors: i32,
    /// Threads that one multiprocessor holds.
    pub threads: i32,
    /// Blocks that one multiprocessor holds.
    pub blocks: i32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: i32,
    /// Bytes of shared memory that a block may ask for.
    pub shared_block: i32,
    /// Bytes of the second-level cache.
    pub l2: i32,
    /// kHz of the multiprocessors.
    pub clock: i32,
    /// kHz of the memory.
    pub memory_clock: i32,
    /// Bits of the memory's bus.
    pub bus: i32,
    /// Nanoseconds that the host spends on an op.
    pub op: u64,
    /// Nanoseconds of a kernel beside its work.
    pub kernel: u64,
    /// MB/s of the card's memory.
    pub bandwidth: u64,
    /// MB/s to the host.
    pub link: u64,
    /// MB/s to other cards; over the host without it.
    pub peers: u64,
    /// GFLOP/s that products of f32 reach.
    pub fp32: u64,
    /// The same of TensorFloat-32.
    pub tf32: u64,
    /// The same of 16 bits.
    pub half: u64,
    /// The folder where each process says what it counted.
    pub counts: Option<String>,
}

impl Card {
    /// The first version of the compute capability.
    pub fn major(&self) -> i32 {
        self.capability / 10
    }

    /// The second.
    pub fn minor(&self) -> i32 {
        self.capability % 10
    }

    /// What workspaces depend on.
    pub fn chip(&self) -> Chip<'_> {
        Chip { title: &self.title, capability: self.capability, multiprocessors: self.multiprocessors }
    }

    /// The card of this process; none where its file is not read, which is said once.
    pub fn get() -> Option<&'static Self> {
        static CARD: OnceLock<Option<Card>> = OnceLock::new();
        CARD.get_or_init(|| match read() {
            Ok(card) => Some(card),
            Err(reason) => {
                eprintln!("vramlab: there is no stand-in GPU: {reason}. Start the program with `vramlab watch --device sim:NAME -- PROGRAM`.");
                None
            }
        })
        .as_ref()
    }
}

/// Reads the file that the environment names.
fn read() -> Result<Card, String> {
    let path = std::env::var_os(VARIABLE).ok_or_else(|| format!("{VARIABLE} is not set"))?;
    let shown = path.to_string_lossy().into_owned();
    let length = fs::metadata(&path).map_err(|error| format!("{shown} is not read ({error})"))?.len();
    if length > LONGEST {
        return Err(format!("{shown} is too long for a card"));
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{shown} is not read ({error})"))?;
    parse(&text).map_err(|reason| format!("{shown} describes no card: {reason}"))
}

/// Lines of `key = value`. Unknown keys are a later version's.
fn parse(text: &str) -> Result<Card, String> {
    let mut card = Card { devices: 1, ..Card::default() };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=').ok_or_else(|| format!("'{line}' is no key and value"))?;
        let (key, value) = (key.trim(), value.trim());
        let number = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("{key} is '{value}', not a number from {least} to {most}"))
        };
        let small = |most: i32| number(1, most as u64).map(|number| number as i32);
        match key {
            "title" => card.title = value.to_owned(),
            "devices" => card.devices = number(1, MOST_DEVICES)? as usize,
            "memory" => card.memory = number(1, 1 << 50)?,
            "context" => card.context = number(0, 1 << 50)?,
            "ranks" => card.ranks = number(0, 1 << 50)?,
            "capability" => card.capability = small(999)?,
            "multiprocessors" => card.multiprocessors = small(1 << 16)?,
            "threads" => card.threads = small(1 << 16)?,
            "blocks" => card.blocks = small(1 << 16)?,
            "shared" => card.shared = small(1 << 30)?,
            "shared_block" => card.shared_block = small(1 << 30)?,
            "l2" => card.l2 = small(i32::MAX)?,
            "clock" => card.clock = small(i32::MAX)?,
            "memory_clock" => card.memory_clock = small(i32::MAX)?,
            "bus" => card.bus = small(1 << 20)?,
            "op" => card.op = number(0, MOST_TIME)?,
            "kernel" => card.kernel = number(0, MOST_TIME)?,
            "bandwidth" => card.bandwidth = number(1, MOST_RATE)?,
            "link" => card.link = number(1, MOST_RATE)?,
            "peers" => card.peers = number(1, MOST_RATE)?,
            "fp32" => card.fp32 = number(1, MOST_RATE)?,
            "tf32" => card.tf32 = number(1, MOST_RATE)?,
            "half" => card.half = number(1, MOST_RATE)?,
            "counts" => card.counts = Some(value.to_owned()),
            _ => {}
        }
    }
    let needed = [
        ("memory", card.memory > card.context),
        ("title", !card.title.is_empty()),
        ("capability", card.capability > 0),
        ("multiprocessors", card.multiprocessors > 0),
        ("threads", card.threads > 0),
        ("blocks", card.blocks > 0),
        ("shared", card.shared > 0),
        ("shared_block", card.shared_block > 0),
    ];
    match needed.iter().find(|(_, given)| !given) {
        Some((key, _)) => Err(format!("it does not say its {key}")),
        None => Ok(card),
    }
}
