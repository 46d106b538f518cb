//! The card that the library simulates, read from a small file.

use std::fs;
use std::sync::OnceLock;

use crate::plans::Chip;

/// The environment variable with the file's path.
pub const VARIABLE: &str = "VRAMLAB_CARD";
/// The most devices of a machine.
const MOST_DEVICES: u64 = 64;
/// The largest time in nanoseconds, and the largest rate, with which times can be computed.
const MOST_TIME: u64 = 1_000_000_000;
const MOST_RATE: u64 = 1 << 50;
/// The longest file of a card that is read, in bytes.
const LONGEST: u64 = 64 << 10;

/// A card.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// `NVIDIA H200`.
    pub title: String,
    /// The number of such cards.
    pub devices: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Bytes that a process's context takes.
    pub context: u64,
    /// Bytes that NCCL takes in a process that has a communicator of several ranks.
    pub ranks: u64,
    /// Major version times ten plus minor version.
    pub capability: i32,
    /// Streaming multiprocessors.
    pub multiprocessors: i32,
    /// Most threads on a multiprocessor.
    pub threads: i32,
    /// Most blocks on a multiprocessor.
    pub blocks: i32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: i32,
    /// Most bytes of shared memory of a block.
    pub shared_block: i32,
    /// Bytes of the second-level cache.
    pub l2: i32,
    /// Clock of the multiprocessors in kHz.
    pub clock: i32,
    /// Clock of the memory in kHz.
    pub memory_clock: i32,
    /// Width of the memory bus in bits.
    pub bus: i32,
    /// Nanoseconds that the host spends on an op.
    pub op: u64,
    /// Nanoseconds of a kernel in addition to its work.
    pub kernel: u64,
    /// Bandwidth of the card's memory in MB/s.
    pub bandwidth: u64,
    /// Rate of copies to the host in MB/s.
    pub link: u64,
    /// Rate of copies to other cards in MB/s; if it is missing, they go over the host.
    pub peers: u64,
    /// GFLOP/s that products of f32 reach.
    pub fp32: u64,
    /// The same for TensorFloat-32.
    pub tf32: u64,
    /// The same for 16-bit types.
    pub half: u64,
    /// The folder in which each process writes its counts.
    pub counts: Option<String>,
}

impl Card {
    /// The major version of the compute capability.
    pub fn major(&self) -> i32 {
        self.capability / 10
    }

    /// The minor version.
    pub fn minor(&self) -> i32 {
        self.capability % 10
    }

    /// The properties on which workspaces depend.
    pub fn chip(&self) -> Chip<'_> {
        Chip { title: &self.title, capability: self.capability, multiprocessors: self.multiprocessors }
    }

    /// The card of this process; `None` if its file can't be read, which is reported once.
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

/// Reads the file that the environment variable names.
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

/// Parses lines of `key = value`. Unknown keys belong to a later version and are ignored.
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
