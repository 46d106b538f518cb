//! Workspaces of convolution plans for which cuDNN asks the card: what is known about them without a card.
//!
//! Two kinds of engines ask. Engines that ask cuBLASLt learn nothing here, so their workspaces are looked up among the
//! answers of a real card. Engines for Hopper share the sum of a tile among several clusters of blocks, if more
//! clusters run at once than there are tiles; how many run at once depends on the card.
//!
//! `plans.bin` has the answers of an H200 (`lab/cudnn` says how they were recorded). For an H200 they are exact.
//! Another card with as many multiprocessors gets the same answers as estimates: an H100 answered differently for 3.4 %
//! of the plans. If there is no answer, the rules below are used, which are fitted to the H200's answers. At its end
//! the program reports how many plans were estimates.

use std::fmt::Write;

/// Answers of an H200 by hashes of plans, in order: the upper 5 bytes of the hash, which are unique, and 4 bytes of
/// answer.
static ANSWERS: &[u8] = include_bytes!("plans.bin");
/// The cuDNN that answered: other versions number their engines differently.
const ASKED: u64 = 91900;
/// The card that answered.
const ASKED_CARD: Chip<'_> = Chip { title: "NVIDIA H200", capability: 90, multiprocessors: 132 };
/// Knobs: the part of the name after `CUDNN_KNOB_TYPE_`, and the number.
const KNOBS: [(&str, u32); 6] =
    [("TILE_SIZE", 2), ("TILEK", 13), ("IDX_MODE", 18), ("WORKSPACE", 25), ("TILE_CGA_M", 27), ("TILE_CGA_N", 28)];
const TILE: u32 = 2;
/// The knob that says whether the plan can do without workspace.
pub const WORKSPACE: u32 = 25;
const CLUSTER_M: u32 = 27;
const CLUSTER_N: u32 = 28;

/// The properties of a card on which workspaces depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip<'a> {
    /// The driver's name for the card.
    pub title: &'a str,
    /// Major version times ten plus minor version.
    pub capability: i32,
    pub multiprocessors: i32,
}

impl Chip<'_> {
    /// Whether both cards have the same room for kernels, whatever else differs.
    fn is_like(self, other: Chip<'_>) -> bool {
        (self.capability, self.multiprocessors) == (other.capability, other.multiprocessors)
    }
}

/// The properties of a cuDNN plan from which its workspace follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// 0 for the output, 1 for the input's gradient, 2 for the weight's gradient.
    pass: u8,
    /// The sizes of input, weight and output.
    tensors: [Vec<u64>; 3],
    channels_last: bool,
    /// The cudnnDataType_t of the input.
    kind: u8,
    /// Padding, stride and dilation.
    window: [Vec<u64>; 3],
    pub engine: i64,
    /// The knobs' choices, in order of their numbers; `None` if one is not in [`KNOBS`].
    knobs: Option<Vec<(u32, i64)>>,
    version: u64,
}

/// Where the size of a workspace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceSource {
    /// cuDNN computes it without a card.
    Computed,
    /// The recorded answer of this card.
    Recorded(u64),
    /// The recorded answer of a similar card: an estimate.
    Borrowed(u64),
    /// A rule: bytes to add to the workspace of a plan that shares no sum.
    Shared(u64),
    /// cuDNN's own figure, without the counter of tiles, because all tiles run at once.
    Uncounted,
    /// cuBLASLt's usual workspace, which most plans have.
    Usual,
    /// cuBLASLt takes no workspace for few columns in half precision.
    Nothing,
}

impl WorkspaceSource {
    pub fn is_estimate(self) -> bool {
        matches!(self, Self::Borrowed(_) | Self::Shared(_) | Self::Usual | Self::Nothing)
    }
}

/// The part of a JSON text after `"name":`.
fn behind<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = format!("\"{name}\":");
    text.find(&quoted).map(|at| &text[at + quoted.len()..])
}

/// The quoted text at the beginning.
fn word(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.split('"').next()
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix('[')?.split(']').next()?;
    inner.split(',').map(|number| number.trim().parse().ok()).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '-').unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The strides of a tensor without gaps.
fn packed(sizes: &[u64], channels_last: bool) -> Vec<u64> {
    let mut strides = vec![0; sizes.len()];
    let mut step = 1;
    let inner = (2..sizes.len()).rev();
    let order: Vec<usize> =
        if channels_last { [1].into_iter().chain(inner).collect() } else { inner.chain([1]).collect() };
    for at in order.into_iter().chain([0]).filter(|at| *at < sizes.len()) {
        strides[at] = step;
        step *= sizes[at];
    }
    strides
}

impl Plan {
    /// Parses cuDNN's JSON of a plan (`CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION`); `None` if it is not a single
    /// convolution.
    pub fn read(json: &str) -> Option<Self> {
        let nodes = behind(json, "nodes")?;
        if nodes.matches("\"operation\":").count() != 1 {
            return None;
        }
        let pass = match word(behind(nodes, "operation")?)? {
            "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR" => 0,
            "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR" => 1,
            "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR" => 2,
            _ => return None,
        };
        let all = behind(json, "tensors")?;
        let mut plan = Self { pass, ..Self::default() };
        let mut plain = true;
        for (at, names) in [["X", "dX"], ["W", "dW"], ["Y", "dY"]].into_iter().enumerate() {
            let name = names.iter().find_map(|name| behind(nodes, name).and_then(word))?;
            let tensor = behind_value(all, name)?;
            let sizes = numbers(behind(tensor, "dim")?)?;
            plain &= numbers(behind(tensor, "stride")?)? == packed(&sizes, false);
            if at == 0 {
                plan.kind = match word(behind(tensor, "dataType")?)? {
                    "CUDNN_DATA_FLOAT" => 0,
                    "CUDNN_DATA_HALF" => 2,
                    "CUDNN_DATA_BFLOAT16" => 9,
                    _ => return None,
                };
            }
            plan.tensors[at] = sizes;
        }
        plan.channels_last = !plain;
        for (at, name) in ["pad", "stride", "dilation"].into_iter().enumerate() {
            plan.window[at] = numbers(behind(nodes, name)?)?;
        }
        plan.version = number(behind(json, "cudnnVersion")?)?;
        let engine = behind(json, "engine")?;
        plan.engine = number(behind(engine, "engineId")?)?;
        plan.knobs = knobs(engine);
        (plan.tensors.iter().all(|sizes| sizes.len() == plan.window[0].len() + 2)).then_some(plan)
    }

    fn knob(&self, kind: u32) -> Option<i64> {
        self.knobs.as_ref()?.iter().find(|(known, _)| *known == kind).map(|(_, value)| *value)
    }

    /// All knob choices.
    pub fn choices(&self) -> &[(u32, i64)] {
        self.knobs.as_deref().unwrap_or_default()
    }

    /// The plan in the spelling of `lab/cudnn/pack.py`.
    pub fn spelled(&self) -> String {
        let list = |numbers: &Vec<u64>| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let lists: Vec<String> = self.tensors.iter().chain(&self.window).map(list).collect();
        let mut text = String::new();
        let layout = if self.channels_last { 'l' } else { 'f' };
        // Writing to a string can't fail.
        let _ = write!(text, "{}{layout}{}:{}:{}:", self.pass, self.kind, lists.join(";"), self.engine);
        let choices: Vec<String> = self.choices().iter().map(|(kind, value)| format!("{kind}={value}")).collect();
        text + &choices.join(" ")
    }

    /// Where the size of its workspace comes from on this card.
    pub fn known(&self, chip: Chip<'_>) -> WorkspaceSource {
        let asks_blas = self.choices().iter().map(|(kind, _)| *kind).eq([WORKSPACE]);
        let shares = self.knob(CLUSTER_M).is_some() && self.knob(WORKSPACE) == Some(0);
        let asks_blas = asks_blas && self.knob(WORKSPACE) != Some(0);
        if !shares && !asks_blas {
            let counts = self.knob(WORKSPACE) == Some(1);
            let fits = counts && self.tiles().is_some_and(|tiles| tiles.all <= self.room(chip.multiprocessors));
            return if fits { WorkspaceSource::Uncounted } else { WorkspaceSource::Computed };
        }
        if self.version == ASKED
            && chip.is_like(ASKED_CARD)
            && let Some(bytes) = recorded(hash(&self.spelled()))
        {
            return if chip == ASKED_CARD {
                WorkspaceSource::Recorded(bytes)
            } else {
                WorkspaceSource::Borrowed(bytes)
            };
        }
        match (asks_blas, self.has_few_columns()) {
            (true, true) => WorkspaceSource::Nothing,
            (true, false) => WorkspaceSource::Usual,
            (false, _) => WorkspaceSource::Shared(self.shared(chip.multiprocessors)),
        }
    }

    /// Whether cuBLASLt's product has so few columns that it takes no workspace. This was so for 4,102 of 4,227
    /// recorded plans in half precision.
    fn has_few_columns(&self) -> bool {
        let output = &self.tensors[2];
        self.kind != 0 && self.pass != 2 && output[0] * output[2..].iter().product::<u64>() < FEW_COLUMNS
    }

    /// The number of blocks that run at once.
    fn room(&self, multiprocessors: i32) -> u64 {
        let size = self.cluster().iter().product();
        clusters(size, multiprocessors) * size
    }

    /// The blocks of a cluster, in both directions.
    fn cluster(&self) -> [u64; 2] {
        [CLUSTER_M, CLUSTER_N].map(|kind| self.knob(kind).unwrap_or(1).unsigned_abs().max(1))
    }

    /// The product's tiles, if the engine is one for Hopper.
    fn tiles(&self) -> Option<Tiles> {
        self.knob(CLUSTER_M)?;
        let [tall, wide] = tile_of(self.knob(TILE)?)?;
        let [m, n] = self.cluster();
        let [x, w, y] = &self.tensors;
        let area = |sizes: &[u64]| sizes[0] * sizes[2..].iter().product::<u64>();
        let taps = w[2..].iter().product::<u64>();
        let steps: u64 = self.window[1].iter().product();
        let (rows, columns, copies, depth) = match self.pass {
            0 => (area(y), w[0], 1, w[1] * taps),
            1 => (area(x), w[1], 1, w[0] * taps / steps.max(1)),
            _ => (w[0], w[1], taps, area(y)),
        };
        let all = rows.div_ceil(tall).next_multiple_of(m) * (columns.div_ceil(wide) * copies).next_multiple_of(n);
        Some(Tiles { all, elements: tall * wide, depth })
    }

    /// Bytes for the partial sums that clusters pass to each other.
    fn shared(&self, multiprocessors: i32) -> u64 {
        let Some(tiles) = self.tiles() else { return 0 };
        let room = self.room(multiprocessors);
        // Full rounds of tiles share nothing; the tiles of the last round do.
        let left = if tiles.all > room { tiles.all.checked_rem(room).unwrap_or(0) } else { tiles.all };
        // How many terms a block adds at once, and how many such steps a part must have at least to be worth it.
        let (step, least) = match (self.kind, self.pass) {
            (0, _) => (32, 16),
            (2, _) => (64, 8),
            (_, 2) => (64, 24),
            _ => (64, 32),
        };
        let parts = room.checked_div(left).unwrap_or(0).min(MOST_PARTS).min(tiles.depth.div_ceil(step) / least);
        if parts < 2 {
            return 0;
        }
        // Partial sums are added in pairs, and each pair has a counter.
        let halves = std::iter::successors(Some(parts), |parts| (*parts > 1).then(|| parts.div_ceil(2)));
        left * parts * tiles.elements * 4 + 4 * left * halves.skip(1).sum::<u64>() + ALIGNMENT
    }
}

/// A product, cut into tiles.
struct Tiles {
    /// The number of tiles, in whole clusters.
    all: u64,
    /// The elements of a tile.
    elements: u64,
    /// The number of terms in an element's sum.
    depth: u64,
}

/// Below this number of output positions in all, cuBLASLt's products are small.
const FEW_COLUMNS: u64 = 2048;
/// The most parts of a sum.
const MOST_PARTS: u64 = 128;
/// Bytes in addition to partial sums and their counters.
const ALIGNMENT: u64 = 159;
/// Bytes of the counter of tiles, if not all tiles run at once.
const COUNTER: u64 = 131;

/// A workspace without the counter of tiles, if it has one: copies of tensors begin at multiples of 16 bytes.
pub fn without_counter(bytes: u64) -> Option<u64> {
    bytes.checked_sub(COUNTER).filter(|copies| copies.is_multiple_of(16))
}

/// The JSON text from the tensor of this name on.
fn behind_value<'a>(all: &'a str, name: &str) -> Option<&'a str> {
    let named = format!("\"name\":\"{name}\"");
    all.find(&named).map(|at| &all[at..])
}

fn knobs(engine: &str) -> Option<Vec<(u32, i64)>> {
    let Some(choices) = behind(engine, "knobChoices") else { return Some(Vec::new()) };
    let inner = choices.strip_prefix('{')?.split('}').next()?;
    let mut found = Vec::new();
    for pair in inner.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once(':')?;
        let name = name.trim_matches('"').strip_prefix("CUDNN_KNOB_TYPE_")?;
        let (_, kind) = KNOBS.iter().find(|(known, _)| *known == name)?;
        found.push((*kind, value.trim().parse().ok()?));
    }
    found.sort_unstable();
    Some(found)
}

/// Rows and columns of the tile with this number.
const fn tile_of(number: i64) -> Option<[u64; 2]> {
    Some(match number {
        0 | 4 => [128, 128],
        1 | 16 => [128, 64],
        2 => [128, 32],
        3 | 6 => [256, 128],
        5 => [64, 64],
        7 => [64, 128],
        8 => [64, 32],
        9 => [256, 64],
        18 => [192, 128],
        19 => [192, 64],
        20 => [192, 192],
        _ => return None,
    })
}

/// How many clusters of `size` blocks run at once, with one block a multiprocessor: an H200's
/// `cuOccupancyMaxActiveClusters`, and in proportion on other cards.
fn clusters(size: u64, multiprocessors: i32) -> u64 {
    const MOST: [u64; 8] = [132, 66, 39, 30, 22, 17, 15, 15];
    let most = match size {
        1..=8 => MOST[size as usize - 1],
        _ => 7,
    };
    most * u64::from(multiprocessors.unsigned_abs()) / 132
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn recorded(hash: u64) -> Option<u64> {
    let (entries, _) = ANSWERS.as_chunks::<9>();
    let key = hash.to_be_bytes();
    let at = entries.binary_search_by(|entry| entry[..5].cmp(&key[..5])).ok()?;
    entries[at].last_chunk::<4>().map(|bytes| u64::from(u32::from_be_bytes(*bytes)))
}
