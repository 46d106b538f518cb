//! The requests of a whole run, read once and replayed under any conditions.

use std::sync::Arc;

use super::ask::Ask;
use super::conditions::Conditions;
use super::driver::Places;
use super::figures::Figures;
use super::player::Player;
use super::reader::Reader;
use super::start::{AssumedPast, Start, StartState};
use vramlab_allocator::Settings;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{Event, History};

/// A program's requests to its allocator, without addresses: about 32 bytes per request.
#[derive(Clone, Debug, Default)]
pub struct Program {
    asks: Vec<Ask>,
    places: Places,
}

/// The figures that a program would have under some conditions.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures at the end.
    pub figures: Figures,
    /// The reserved peak of every step, and the stranded bytes at its end.
    pub history: History,
    /// The number of steps that ended.
    pub steps: u64,
}

impl Program {
    /// The requests of the program on `device`, from the events of its run.
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>, device: DeviceIndex, places: Places) -> Self {
        let mut writer = ProgramWriter::new(device, places);
        events.into_iter().for_each(|event| writer.push(event));
        writer.finish()
    }

    /// The number of requests.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.asks.len()
    }

    /// True if there are no requests.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// The state in which a replay under `conditions` starts.
    #[must_use]
    pub fn starting(&self, conditions: &Conditions) -> StartState {
        match self.start() {
            None => StartState::Empty,
            Some(start) if start.could_be_under(&conditions.settings) => StartState::Recorded,
            Some(_) => StartState::Anew,
        }
    }

    /// What was held when the history began: the number of blocks and the bytes requested for them.
    #[must_use]
    pub fn held_at_start(&self) -> (u64, Bytes) {
        let blocks = self.start().map_or(&[][..], |start| &start.blocks);
        (blocks.len() as u64, blocks.iter().map(|early| early.requested).sum())
    }

    /// All requests in order.
    pub(super) fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// Where the driver places segments.
    pub(super) const fn places(&self) -> Places {
        self.places
    }

    /// Memory assumed to have been held before the history began, in addition to what was held then.
    pub(super) fn past(&self) -> AssumedPast {
        self.start().map(|start| start.past).unwrap_or_default()
    }

    /// The starting state, if there is one. It is among the first requests.
    fn start(&self) -> Option<&Start> {
        self.asks.iter().find_map(|ask| match ask {
            Ask::Start(start) => Some(&**start),
            _ => None,
        })
    }

    /// Replays the program from what was held when its history began, or from an empty cache if the history begins with
    /// the first allocation.
    #[must_use]
    pub fn replay(&self, conditions: &Conditions) -> Outcome {
        let mut player = Player::new(conditions, self.places);
        self.asks.iter().for_each(|ask| player.play(ask));
        Outcome { figures: player.figures(), history: player.history().clone(), steps: player.finished() }
    }

    /// Concludes the requests before the history began from the reserved peak of the run under its own conditions.
    ///
    /// An empty allocator gets requests for everything that the program held, then the requests of the history. This
    /// reproduces the run's own reserved peak, unless more was held before; then the past is scaled by the ratio of the
    /// peaks. With oversize blocks free memory does not show this, because much of it can't be reused.
    pub(super) fn conclude_past(&mut self, conditions: &Conditions, peak_reserved: Bytes) {
        let largest = self.asks.iter().filter_map(|ask| match ask {
            Ask::Take { size, .. } => Some(*size),
            _ => None,
        });
        let largest = largest.max().unwrap_or_default();
        let Some(at) = self.asks.iter().position(|ask| matches!(ask, Ask::Start(_))) else { return };
        let Ask::Start(start) = &self.asks[at] else { return };
        if start.settings.max_split_size != Settings::UNLIMITED {
            return;
        }
        let mut player = Player::new(conditions, self.places);
        for ask in &self.asks {
            match ask {
                Ask::Start(start) => player.make(start),
                ask => player.play(ask),
            }
        }
        let anew = player.figures();
        if anew.peak_reserved >= peak_reserved || anew.peak_reserved == Bytes::ZERO {
            return;
        }
        let share = u128::from(anew.peak_allocated.0) * u128::from(peak_reserved.0) / u128::from(anew.peak_reserved.0);
        let held: Bytes = start.blocks.iter().map(|early| early.requested).sum();
        let bytes = Bytes(u64::try_from(share).unwrap_or(u64::MAX)).saturating_sub(held);
        let largest = start.blocks.iter().map(|early| early.requested).fold(largest, Bytes::max);
        let mut start = Start::clone(start);
        start.past = AssumedPast { bytes, largest };
        self.asks[at] = Ask::Start(Arc::new(start));
    }

    /// The stranded bytes at the moment when most was reserved, the first time. Costs two replays.
    #[must_use]
    pub fn stranded_at_peak(&self, conditions: &Conditions) -> Bytes {
        let mut player = Player::new(conditions, self.places);
        let (mut peak, mut end) = (Bytes::ZERO, 0);
        for (index, ask) in self.asks.iter().enumerate() {
            player.play(ask);
            let begins = matches!(ask, Ask::Settled | Ask::Start(_));
            if begins || matches!(ask, Ask::Take { .. } | Ask::Try { .. }) && player.reserved() > peak {
                (peak, end) = (player.reserved(), index + 1);
            }
        }
        let mut player = Player::new(conditions, self.places);
        self.asks[..end].iter().for_each(|ask| player.play(ask));
        player.figures().stranded
    }
}

/// Reads a program event by event, so that only one event of a file need be in memory.
#[derive(Debug)]
pub struct ProgramWriter {
    reader: Reader,
    program: Program,
}

impl ProgramWriter {
    /// A reader of the requests of the program on `device`.
    #[must_use]
    pub fn new(device: DeviceIndex, places: Places) -> Self {
        Self { reader: Reader::new(device, places, 0), program: Program { asks: Vec::new(), places } }
    }

    /// Reads the next event. If another run begins, the requests before it are dropped.
    pub fn push(&mut self, event: &Event) {
        let Program { asks, places } = &mut self.program;
        self.reader.read(event, &mut |ask| {
            if let Ask::Begin(there) = ask {
                asks.clear();
                *places = there;
            } else {
                asks.push(ask);
            }
        });
    }

    /// The program.
    #[must_use]
    pub fn finish(mut self) -> Program {
        let asks = &mut self.program.asks;
        self.reader.end(&mut |ask| asks.push(ask));
        self.program
    }
}

/// The figures that the run of `events` would have under `conditions`.
#[must_use]
pub fn predict<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    device: DeviceIndex,
    places: Places,
    conditions: &Conditions,
) -> Outcome {
    Program::of(events, device, places).replay(conditions)
}
