//! The curve of one step: live bytes after each of its memory events, by category.

use super::numbers::{Numbers, PackedNumbers};
use super::{Category, MemoryModel, Phase};
use vramlab_allocator::units::Bytes;

/// Live bytes at the fullest moment of some consecutive memory events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Live bytes by category, in the order of [`Category::ALL`].
    pub by_category: [Bytes; Category::ALL.len()],
    /// Their sum: allocated.
    pub allocated: Bytes,
    /// Highest reserved.
    pub reserved: Bytes,
    /// The position of the first of these events in the event stream.
    pub position: u64,
}

impl Sample {
    /// How many numbers a sample consists of.
    const NUMBERS: usize = Category::ALL.len() + 3;

    fn numbers(&self) -> [u64; Self::NUMBERS] {
        let own = [self.allocated.0, self.reserved.0, self.position];
        std::array::from_fn(|index| match index.checked_sub(own.len()) {
            None => own[index],
            Some(category) => self.by_category[category].0,
        })
    }

    fn of_numbers([allocated, reserved, position, by_category @ ..]: [u64; Self::NUMBERS]) -> Self {
        let (allocated, reserved) = (Bytes(allocated), Bytes(reserved));
        Self { by_category: by_category.map(Bytes), allocated, reserved, position }
    }
}

/// The curve of a step over its memory events, in at most [`Profile::SAMPLES`] samples. Beyond that, pairs of samples
/// are combined, and the fuller moment stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Steps finished before it.
    pub step: u64,
    /// The position of its begin in the event stream.
    pub position: u64,
    /// The samples, from the step's begin on. Each covers [`Profile::stride`] memory events; the last may cover fewer.
    pub samples: Vec<Sample>,
    /// The number of memory events so far.
    pub events: u64,
    /// The number of memory events before each phase, in order; `None` for the time between phases.
    pub phases: Vec<(Option<Phase>, u64)>,
    /// The most that was allocated in each phase. Samples can't tell, because one may extend beyond the begin of a phase.
    highest: Vec<(Phase, Bytes)>,
    /// The index of the current phase in `highest`.
    phase: Option<usize>,
    stride: u64,
}

impl Profile {
    /// The most samples of a profile.
    pub const SAMPLES: usize = 512;
    /// The most phases that are kept. There are two for each micro-batch.
    const PHASES: usize = 64;

    /// A step begins, with room for this many samples.
    pub(super) fn begin(step: u64, position: u64, samples: usize) -> Self {
        Self { step, position, samples: Vec::with_capacity(samples), stride: 1, ..Self::default() }
    }

    /// The number of memory events that each sample covers.
    #[must_use]
    pub fn stride(&self) -> u64 {
        self.stride.max(1)
    }

    /// The column of event number `event` of `events`, among `columns` of equal width.
    #[must_use]
    pub fn column_of(event: u64, events: u64, columns: usize) -> usize {
        let column = u128::from(event) * columns as u128 / u128::from(events.max(1));
        usize::try_from(column).unwrap_or(usize::MAX).min(columns.saturating_sub(1))
    }

    /// The memory event at a position of the event stream, as far as samples tell; 0 before the step.
    #[must_use]
    pub fn event_at(&self, position: u64) -> u64 {
        let behind = self.samples.partition_point(|sample| sample.position < position) as u64;
        // Positions within a sample count ops too, so the sample's begin is the best estimate.
        (behind * self.stride()).min(self.events)
    }

    /// The position of the sample that contains memory event `event`.
    #[must_use]
    pub fn position_of(&self, event: u64) -> u64 {
        let index = usize::try_from(event / self.stride()).unwrap_or(usize::MAX);
        self.samples.get(index).or(self.samples.last()).map_or(self.position, |sample| sample.position)
    }

    /// The most that was allocated in each phase, in the order of the phases.
    #[must_use]
    pub fn highest_by_phase(&self) -> &[(Phase, Bytes)] {
        &self.highest
    }

    /// The curve in `columns` columns, each at its fullest moment.
    pub fn in_columns(&self, columns: u16) -> impl Iterator<Item = Sample> + '_ {
        let count = self.samples.len();
        let columns = usize::from(columns.max(1));
        (0..columns).filter_map(move |x| {
            let from = (x * count / columns).min(count.checked_sub(1)?);
            let to = ((x + 1) * count / columns).clamp(from + 1, count);
            self.samples[from..to].iter().max_by_key(|sample| sample.allocated).copied()
        })
    }

    /// The fullest moment.
    #[must_use]
    pub fn peak(&self) -> Option<&Sample> {
        self.samples.iter().rev().max_by_key(|sample| sample.allocated)
    }

    /// Highest reserved.
    #[must_use]
    pub fn peak_reserved(&self) -> Bytes {
        self.samples.iter().map(|sample| sample.reserved).max().unwrap_or_default()
    }

    /// A phase begins.
    pub(super) fn begin_phase(&mut self, phase: Phase) {
        // Nothing lies between two phases that follow each other directly.
        self.phases.pop_if(|(before, event)| before.is_none() && *event == self.events);
        self.put(Some(phase));
        let known = self.highest.iter().position(|(other, _)| *other == phase);
        self.phase = Some(known.unwrap_or(self.highest.len()));
        if known.is_none() {
            self.highest.push((phase, Bytes::ZERO));
        }
    }

    /// Ends a phase. What comes until the next one belongs to no phase.
    pub(super) fn end_phase(&mut self) {
        self.put(None);
        self.phase = None;
    }

    fn put(&mut self, phase: Option<Phase>) {
        if self.phases.len() < Self::PHASES {
            self.phases.push((phase, self.events));
        }
    }

    /// Records memory after one more event.
    #[inline]
    pub(super) fn record(&mut self, memory: &MemoryModel) {
        let (allocated, reserved) = (memory.allocated(), memory.reserved());
        if let Some((_, most)) = self.phase.and_then(|phase| self.highest.get_mut(phase)) {
            *most = allocated.max(*most);
        }
        // Strides are powers of two.
        if self.events & (self.stride() - 1) != 0
            && let Some(last) = self.samples.last_mut()
        {
            last.reserved = last.reserved.max(reserved);
            if allocated > last.allocated {
                (last.allocated, last.by_category) = (allocated, memory.by_category());
            }
        } else {
            if self.samples.len() == Self::SAMPLES {
                self.halve();
            }
            let position = memory.position().saturating_sub(1);
            self.samples.push(Sample { by_category: memory.by_category(), allocated, reserved, position });
        }
        self.events += 1;
    }

    fn halve(&mut self) {
        // In place, because the samples will be as many again.
        let joined = self.samples.len() / 2;
        for index in 0..joined {
            let (first, second) = (self.samples[2 * index], self.samples[2 * index + 1]);
            let fuller = if second.allocated > first.allocated { second } else { first };
            let reserved = first.reserved.max(second.reserved);
            self.samples[index] = Sample { position: first.position, reserved, ..fuller };
        }
        self.samples.truncate(joined);
        self.stride = self.stride() * 2;
    }
}

/// A [`Profile`] of a state that is kept for long. A sample takes about fifteen bytes.
#[derive(Clone, Debug)]
pub(super) struct PackedProfile {
    /// Everything but samples.
    rest: Profile,
    /// The samples: for each, which of its numbers differ from those of the one before, and by how much.
    samples: Box<[u8]>,
}

impl PackedProfile {
    /// Packs a profile.
    pub fn of(profile: &Profile) -> Self {
        let Profile { step, position, ref samples, events, ref phases, ref highest, phase, stride } = *profile;
        let mut numbers = Numbers::default();
        let mut before = [0; Sample::NUMBERS];
        for sample in samples.iter().map(Sample::numbers) {
            let differs = |index: &usize| sample[*index] != before[*index];
            numbers.push((0..Sample::NUMBERS).filter(differs).map(|index| 1 << index).sum());
            (0..Sample::NUMBERS).filter(differs).for_each(|index| numbers.push_step(before[index], sample[index]));
            before = sample;
        }
        let (phases, highest) = (phases.clone(), highest.clone());
        let rest = Profile { step, position, samples: Vec::new(), events, phases, highest, phase, stride };
        Self { rest, samples: numbers.pack() }
    }

    /// The profile.
    pub fn unpack(&self) -> Profile {
        let mut profile = self.rest.clone();
        let mut packed = PackedNumbers::of(&self.samples);
        let mut numbers = [0; Sample::NUMBERS];
        while !packed.is_empty() {
            let differs = packed.take();
            let differing = numbers.iter_mut().enumerate().filter(|(index, _)| differs >> index & 1 > 0);
            differing.for_each(|(_, number)| *number = packed.take_step(*number));
            profile.samples.push(Sample::of_numbers(numbers));
        }
        profile
    }

    /// The bytes of the packed samples.
    pub const fn weight(&self) -> usize {
        self.samples.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventKind, synthetic};

    #[test]
    fn a_profile_keeps_the_peak_and_its_composition_however_long_the_step() {
        let (setup, churn) = synthetic::churn(2000, 5000);
        let mut memory = MemoryModel::new();
        let mut profile = Profile::begin(3, 0, 64);
        let (mut events, mut peak) = (0, (Bytes::ZERO, [Bytes::ZERO; 9]));
        for event in setup.iter().chain(&churn) {
            memory.apply(event).unwrap();
            if matches!(event.kind, EventKind::Define { .. }) {
                continue;
            }
            profile.record(&memory);
            events += 1;
            if memory.allocated() > peak.0 {
                peak = (memory.allocated(), memory.by_category());
            }
        }
        assert_eq!(profile.events, events);
        assert!(profile.samples.len() <= Profile::SAMPLES && profile.samples.len() > Profile::SAMPLES / 2);
        assert_eq!(profile.samples.len() as u64, events.div_ceil(profile.stride()));
        let highest = profile.peak().unwrap();
        assert_eq!((highest.allocated, highest.by_category), peak);
        for sample in &profile.samples {
            assert_eq!(sample.by_category.iter().copied().sum::<Bytes>(), sample.allocated);
        }
    }

    #[test]
    fn a_phase_has_the_most_that_was_allocated_in_it_however_long_the_step() {
        let (setup, churn) = synthetic::churn(2000, 5000);
        let mut memory = MemoryModel::new();
        let mut profile = Profile::begin(0, 0, 0);
        let mut highest = [Bytes::ZERO; 2];
        for (index, event) in setup.iter().chain(&churn).enumerate() {
            let phase = index / 1500 % 2;
            if index % 1500 == 0 {
                profile.begin_phase([Phase::Forward, Phase::Backward][phase]);
            }
            memory.apply(event).unwrap();
            profile.record(&memory);
            highest[phase] = highest[phase].max(memory.allocated());
        }
        assert!(profile.stride() > 1, "samples reach over phases");
        assert_eq!(profile.highest_by_phase(), [(Phase::Forward, highest[0]), (Phase::Backward, highest[1])]);
        assert!(Profile::begin(0, 0, 0).highest_by_phase().is_empty());
    }

    #[test]
    fn a_packed_profile_is_the_same_in_a_fifth_of_the_bytes() {
        let mut memory = MemoryModel::new();
        let mut profile = Profile::begin(7, 0, 0);
        profile.begin_phase(Phase::Forward);
        for event in synthetic::crowded(3000) {
            memory.apply(&event).unwrap();
            profile.record(&memory);
        }
        let packed = PackedProfile::of(&profile);
        assert_eq!(packed.unpack(), profile);
        let bytes = profile.samples.len() * size_of::<Sample>();
        assert!(bytes > 20_000 && packed.weight() * 5 < bytes, "{} of {bytes}", packed.weight());
        let empty = Profile::default();
        assert_eq!(PackedProfile::of(&empty).unpack(), empty);
    }

    #[test]
    fn what_lies_between_two_phases_is_in_none() {
        let mut memory = MemoryModel::new();
        let mut profile = Profile::begin(0, 0, 0);
        let mut churn = synthetic::crowded(300).into_iter();
        let mut run = |profile: &mut Profile, events: u64| {
            let until = profile.events + events;
            while profile.events < until {
                let event = churn.next().unwrap();
                memory.apply(&event).unwrap();
                if !matches!(event.kind, EventKind::Define { .. }) {
                    profile.record(&memory);
                }
            }
            memory.allocated()
        };
        profile.begin_phase(Phase::Data);
        let loaded = run(&mut profile, 3);
        profile.end_phase();
        let between = run(&mut profile, 40);
        profile.begin_phase(Phase::Optimizer);
        run(&mut profile, 5);
        profile.end_phase();
        profile.begin_phase(Phase::ZeroGrad);
        let (data, optimizer, zero) = (Some(Phase::Data), Some(Phase::Optimizer), Some(Phase::ZeroGrad));
        assert_eq!(profile.phases, [(data, 0), (None, 3), (optimizer, 43), (zero, 48)]);
        assert!(between > loaded && profile.highest_by_phase()[0] == (Phase::Data, loaded));
    }

    #[test]
    fn positions_lead_to_events_and_back() {
        let mut memory = MemoryModel::new();
        let mut profile = Profile::begin(0, 0, 0);
        for event in synthetic::crowded(300) {
            memory.apply(&event).unwrap();
            memory.apply(&Event::new(event.time, EventKind::OpEnd)).unwrap();
            if !matches!(event.kind, EventKind::Define { .. }) {
                profile.record(&memory);
            }
        }
        for event in (0..profile.events).step_by(usize::try_from(profile.stride()).unwrap()) {
            let position = profile.position_of(event);
            assert_eq!(profile.event_at(position), event, "{position}");
        }
        assert_eq!(profile.event_at(0), 0);
        assert_eq!(profile.event_at(u64::MAX), profile.events);
    }
}
