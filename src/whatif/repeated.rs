//! Steps that repeat: the requests of one are stored once, and played each time a similar step comes.
//!
//! After its first step, a program makes the same requests in each step of the same batch: for blocks that live within
//! the step, and for a few that the step leaves to the next one (its batch, its loss). The latter are numbered in the
//! order of their allocation, so that any step may follow any other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thiserror::Error;

use super::ask::Ask;
use super::block_number::BlockNumber;
use super::conditions::Conditions;
use super::driver::Places;
use super::figures::StepPeaks;
use super::player::Player;
use super::quiet::{QuietSteps, is_large};
use super::reader::Reader;
use super::step::{Move, Step, Structure};
use vramlab_allocator::units::{Bytes, DeviceIndex, StreamId};
use vramlab_model::Event;

/// The program's requests until the end of its first step.
#[derive(Debug)]
pub struct FirstStep {
    asks: Vec<Ask>,
    /// The number of requests before the step.
    before: usize,
    /// The blocks that the step leaves to the next one, by its own numbers.
    left: Vec<BlockNumber>,
    /// Numbers from here on are free.
    numbers: BlockNumber,
}

/// The steps don't repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("its steps don't repeat: they leave more behind each time, or use several streams")]
pub struct NotRepeated;

/// Reads a run whose steps repeat.
#[derive(Debug)]
pub struct StepsWriter {
    reader: Reader,
    asks: Vec<Ask>,
    /// The number of requests before the first step.
    before: usize,
    beginning: Option<FirstStep>,
    /// The blocks that the step before left, in the order of their allocation.
    left: Vec<BlockNumber>,
    structures: HashSet<Arc<Structure>>,
    steps: Vec<Step>,
    bytes: usize,
    begun: u64,
    repeats: bool,
}

impl Default for StepsWriter {
    fn default() -> Self {
        Self {
            reader: Reader::new(DeviceIndex::FIRST, Places::Simulated, 0),
            asks: Vec::new(),
            before: 0,
            beginning: None,
            left: Vec::new(),
            structures: HashSet::new(),
            steps: Vec::new(),
            bytes: 0,
            begun: 0,
            repeats: true,
        }
    }
}

impl StepsWriter {
    /// Reads the next event.
    pub fn push(&mut self, event: &Event) {
        let Self { reader, asks, .. } = self;
        let mut begins = false;
        reader.read(event, &mut |ask| {
            begins |= matches!(ask, Ask::StepBegin { .. });
            asks.push(ask);
        });
        if begins {
            self.cut();
        }
    }

    /// Ends the current step. Its last request is the beginning of the next step.
    fn cut(&mut self) {
        self.asks.pop();
        match self.begun {
            0 => self.before = self.asks.len(),
            1 => {
                let asks = std::mem::take(&mut self.asks);
                let numbers = asks.iter().filter_map(number).max().map_or(0, |most| most + 1);
                self.beginning = Some(FirstStep { asks, before: self.before, left: Vec::new(), numbers });
            }
            _ => self.keep_step(),
        }
        self.begun += 1;
    }

    fn keep_step(&mut self) {
        let asks = std::mem::take(&mut self.asks);
        let first = self.begun == 2;
        if first {
            // A block of the first step that the second step frees was left to it; other blocks stay for good.
            let mut own = HashSet::new();
            let mut left: Vec<BlockNumber> = Vec::new();
            for ask in &asks {
                match ask {
                    Ask::Take { block, .. } => {
                        own.insert(*block);
                    }
                    Ask::Give(block) if !own.remove(block) => left.push(*block),
                    _ => {}
                }
            }
            let born = self.beginning.as_ref().map(FirstStep::births).unwrap_or_default();
            left.sort_by_key(|block| born.get(block).copied());
            if let Some(beginning) = &mut self.beginning {
                beginning.left.clone_from(&left);
            }
            self.left = left;
        }
        match normalised(&asks, &self.left) {
            Some((structure, sizes, left)) => {
                let structure = Arc::new(structure);
                let known = self.structures.get(&structure).cloned();
                let structure = known.unwrap_or_else(|| {
                    self.structures.insert(Arc::clone(&structure));
                    structure
                });
                self.bytes += size_of_val(&*sizes);
                self.steps.push(Step::listed(structure, sizes));
                self.left = left;
            }
            None => self.repeats = false,
        }
    }

    /// Approximate bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The requests up to the end of the first step, and each later step.
    ///
    /// # Errors
    /// [`NotRepeated`] if steps leave more behind each time, or use several streams.
    pub fn finish(mut self) -> Result<(FirstStep, Vec<Step>), NotRepeated> {
        let asks = &mut self.asks;
        self.reader.end(&mut |ask| asks.push(ask));
        // Ends the last step as if another began.
        self.asks.push(Ask::StepEnd { step: 0 });
        self.cut();
        if !self.repeats {
            return Err(NotRepeated);
        }
        let beginning = self.beginning.ok_or(NotRepeated)?;
        Ok((beginning, self.steps))
    }
}

impl FirstStep {
    /// When each remaining block was allocated.
    fn births(&self) -> HashMap<BlockNumber, usize> {
        let taken = self.asks.iter().enumerate();
        taken
            .filter_map(|(at, ask)| if let Ask::Take { block, .. } = ask { Some((*block, at)) } else { None })
            .collect()
    }
}

fn number(ask: &Ask) -> Option<BlockNumber> {
    match ask {
        Ask::Take { block, .. } => Some(*block),
        _ => None,
    }
}

/// A step in numbers of its own: its structure, the sizes of its blocks, and what it leaves in the run's numbers.
/// `None` if it can't follow any other step.
fn normalised(asks: &[Ask], before: &[BlockNumber]) -> Option<(Structure, Box<[u64]>, Vec<BlockNumber>)> {
    let mut names: HashMap<BlockNumber, BlockNumber> =
        before.iter().zip(0..).map(|(block, name)| (*block, name)).collect();
    let mut next = BlockNumber::try_from(before.len()).ok()?;
    let first_own = next;
    let (mut moves, mut sizes) = (Vec::new(), Vec::new());
    for ask in asks {
        match ask {
            Ask::Take { block, size, stream } if *stream == StreamId::DEFAULT => {
                if names.insert(*block, next).is_some() {
                    return None;
                }
                moves.push(Move::Take(next));
                sizes.push(size.get());
                next += 1;
            }
            Ask::Give(block) => moves.push(Move::Give(names.remove(block)?)),
            Ask::StepBegin { .. } | Ask::StepEnd { .. } => {}
            _ => return None,
        }
    }
    let mut left: Vec<(BlockNumber, BlockNumber)> = names.into_iter().map(|(block, name)| (name, block)).collect();
    left.sort_unstable();
    let alike = left.len() == before.len() && left.iter().all(|(name, _)| *name >= first_own);
    let structure = Structure { moves, left: left.iter().map(|(name, _)| *name).collect() };
    let left = left.into_iter().map(|(_, block)| block).collect();
    alike.then(|| (structure, sizes.into_boxed_slice(), left))
}

/// Another allocator that gets its requests step by step.
///
/// For a step that it has played before, only requests that may have another result are played again.
#[derive(Debug)]
pub struct Repeater<'s> {
    player: Player,
    quiet: QuietSteps<'s>,
    numbers: BlockNumber,
    failures: u64,
    most_reserved: Bytes,
}

impl<'s> Repeater<'s> {
    /// Plays the requests before the first step; `None` if the device has too little memory.
    #[must_use]
    pub fn begin(conditions: &Conditions, beginning: &FirstStep) -> Option<Self> {
        let mut player = Player::new(conditions, Places::Simulated);
        beginning.asks.iter().take(beginning.before).for_each(|ask| player.play(ask));
        let (whole, most_reserved) = (player.failures() == 0, player.figures().peak_reserved);
        whole.then_some(Self {
            player,
            quiet: QuietSteps::default(),
            numbers: beginning.numbers,
            failures: 0,
            most_reserved,
        })
    }

    /// Plays the first step; `None` if a request in it fails.
    #[must_use]
    pub fn first(&mut self, beginning: &FirstStep) -> Option<StepPeaks> {
        self.player.begin_step();
        beginning.asks.iter().skip(beginning.before).for_each(|ask| match ask {
            Ask::StepBegin { .. } | Ask::StepEnd { .. } => {}
            ask => self.player.play(ask),
        });
        for (block, name) in beginning.left.iter().zip(self.numbers..) {
            self.player.rename(*block, name);
        }
        self.peaks()
    }

    /// Plays a later step; `None` if a request in it fails.
    #[must_use]
    pub fn step(&mut self, step: &'s Step) -> Option<StepPeaks> {
        self.player.begin_step();
        let known = self.quiet.known(step, &self.player);
        match known {
            Some(_) => self.play_small(step),
            None => self.play_all(step),
        }
        for (name, to) in step.structure().left.iter().zip(self.numbers..) {
            self.player.rename(self.numbers + *name, to);
        }
        let allocated = self.quiet.end(step, known.as_ref(), &self.player);
        let peaks = self.peaks()?;
        Some(StepPeaks { allocated: allocated.unwrap_or(peaks.allocated), ..peaks })
    }

    fn play_all(&mut self, step: &'s Step) {
        let mut watch = self.quiet.watch(&self.player);
        let mut place = 0;
        for moved in &step.structure().moves {
            match *moved {
                Move::Take(name) => {
                    let size = step.size(place);
                    place += 1;
                    self.take(name, size);
                    watch.take(size, &self.player);
                }
                Move::Give(name) => {
                    self.player.play(&Ask::Give(self.numbers + name));
                    if (name as usize) < step.left() {
                        watch.give_left(name);
                    }
                }
            }
        }
        self.quiet.keep(step, watch, &self.player);
    }

    /// Plays only the small requests of a step.
    fn play_small(&mut self, step: &Step) {
        let mut place = 0;
        for moved in &step.structure().moves {
            match *moved {
                Move::Take(name) => {
                    let size = step.size(place);
                    place += 1;
                    if !is_large(size) {
                        self.take(name, size);
                    }
                }
                // A large block that was not allocated is not freed either.
                Move::Give(name) => self.player.play(&Ask::Give(self.numbers + name)),
            }
        }
    }

    #[inline]
    fn take(&mut self, name: BlockNumber, size: u64) {
        self.player.play(&Ask::Take { block: self.numbers + name, size: Bytes(size), stream: StreamId::DEFAULT });
    }

    /// The most that was reserved since the first request.
    #[must_use]
    pub const fn most_reserved(&self) -> Bytes {
        self.most_reserved
    }

    fn peaks(&mut self) -> Option<StepPeaks> {
        let peaks = self.player.end_step();
        self.most_reserved = self.most_reserved.max(peaks.reserved);
        let failed = self.player.failures() > self.failures;
        self.failures = self.player.failures();
        (!failed).then_some(peaks)
    }
}
