//! The events of a run, with its whole state at any of them, in bounded memory.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Excerpt, Frame, FrameBuilder, RecordingError};
use vramlab_allocator::units::Bytes;
use vramlab_model::{Event, Micros, PackedRanks, Ranks};

/// How much memory a [`Timeline`] may take for the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For events. Beyond this the oldest are forgotten.
    pub frames: Bytes,
    /// For checkpoints: states from which others are replayed. Beyond this there are fewer, and it takes longer to
    /// reach an event. Four stay, however large they are. As long as events take little memory, checkpoints may take
    /// half as much as the events, or 24 MiB.
    pub checkpoints: Bytes,
}

impl Default for Bounds {
    /// The bounds are 64 and 32 MiB: some hundred million events of steps that repeat. Together with the last pictures and
    /// what is decoded for them, a lab of any length takes less than 200 MB in addition to its model.
    fn default() -> Self {
        Self { frames: Bytes::mib(64), checkpoints: Bytes::mib(32) }
    }
}

/// The direction of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To later events.
    Forward,
    /// To earlier events.
    Backward,
}

/// All events of a run, or as many of the last ones as its bounds allow, with the state after any of them.
///
/// A position is a number of events: at position `n` the events with the indices below `n` have happened, and the next
/// one has the index `n`.
#[derive(Debug)]
pub struct Timeline {
    bounds: Bounds,
    now: Ranks,
    /// At least one stretch. Each begins where the one before ends; `open` follows the last one.
    stretches: VecDeque<Stretch>,
    open: FrameBuilder,
    /// The fewest events of a stretch that begins now.
    spacing: u64,
    /// The bytes of all frames, and of all checkpoints.
    frames: usize,
    checkpoints: usize,
    near: Near,
}

/// Some consecutive frames, and the state before them.
#[derive(Debug)]
struct Stretch {
    before: PackedRanks,
    /// The bytes of `before`.
    weight: usize,
    frames: Vec<Frame>,
    /// The bytes of `frames`.
    bytes: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

/// What was last looked up, so that neighbouring events are cheap.
#[derive(Debug, Default)]
struct Near {
    /// A state shortly before the last requested position.
    state: Option<Ranks>,
    /// The decoded events of one frame, or of the part of it that existed then.
    events: Vec<Event>,
    /// The index of the first of these events.
    first: u64,
}

impl Near {
    /// How many events lie between `state` and the requested position.
    const BEFORE: u64 = 1024;

    fn event(&self, index: u64) -> Option<&Event> {
        self.events.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }
}

impl Stretch {
    fn new(now: &mut Ranks) -> Self {
        let before = now.pack();
        Self { weight: before.weight(), before, frames: Vec::new(), bytes: 0 }
    }

    fn first(&self) -> u64 {
        self.before.position()
    }

    fn end(&self) -> u64 {
        self.frames.last().map_or(self.first(), Frame::end)
    }

    /// The cost of replaying it, in events: a frame has a cost even if it has few events.
    fn length(&self) -> u64 {
        const FRAME: u64 = 512;
        self.end() - self.first() + self.frames.len() as u64 * FRAME
    }

    fn push(&mut self, frame: Frame) {
        self.bytes += frame.weight();
        self.frames.push(frame);
    }

    /// The frame that contains the event with this index.
    fn frame(&self, index: u64) -> Option<&Frame> {
        let frame = self.frames.get(self.frames.partition_point(|frame| frame.end() <= index))?;
        (frame.first() <= index).then_some(frame)
    }
}

impl Timeline {
    /// The fewest events between two checkpoints, which take some milliseconds to replay.
    const SPACING: u64 = 1 << 15;
    /// The fewest events between two checkpoints for each piece of the first: packing and unpacking it then take no longer
    /// than applying the events.
    const EVENTS: u64 = 2;
    /// The bytes that checkpoints may take however short the run is.
    const ROOM: u64 = 24 << 20;
    /// How many checkpoints are never dropped, and the number of parts of the bound for frames that one stretch may take.
    const LEAST: usize = 4;

    /// A timeline of which nothing has happened yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let mut now = Ranks::default();
        let stretch = Stretch::new(&mut now);
        Self {
            bounds,
            now,
            frames: 0,
            checkpoints: stretch.weight,
            stretches: VecDeque::from([stretch]),
            open: FrameBuilder::new(0),
            spacing: Self::SPACING,
            near: Near::default(),
        }
    }

    /// Applies the next event and stores it.
    pub fn push(&mut self, event: &Event) {
        self.now.apply(event);
        self.open.push(event);
        if self.open.is_full() {
            self.close_frame();
        }
    }

    /// Applies the events of a recording's next frame and stores the frame as it is.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] if the frame does not begin where the timeline ends, or its bytes are not events.
    /// The timeline is then unchanged.
    pub fn append(&mut self, frame: Frame) -> Result<(), RecordingError> {
        self.close_frame();
        if frame.first() != self.end() {
            return Err(RecordingError::Damaged(self.end()));
        }
        let (position, histories) = (self.end(), self.now.histories());
        if let Err(error) = replay(&frame, frame.end(), &mut self.now) {
            // A part of the frame was applied already.
            self.now = self.replayed(position);
            self.now.take_histories(histories);
            return Err(error);
        }
        self.keep(frame);
        Ok(())
    }

    /// Time of the open frame's first event; `None` if the frame is empty.
    #[must_use]
    pub fn open_since(&self) -> Option<Micros> {
        self.open.since()
    }

    /// Ends the open frame, so that [`Self::frames`] contains all events so far.
    pub fn close_frame(&mut self) {
        if let Some(frame) = self.open.finish() {
            self.keep(frame);
        }
    }

    /// The state after the last event.
    pub const fn now(&mut self) -> &mut Ranks {
        &mut self.now
    }

    /// The first available position. Moves on when the oldest events are forgotten.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.stretches.front().map_or(0, Stretch::first)
    }

    /// The last available position: the number of events so far.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.now.position()
    }

    /// Approximate bytes of memory for events and checkpoints.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.frames + self.checkpoints + self.open.bytes()
    }

    /// The frames that end after the event with the index `from`, in order, without the open frame.
    pub fn frames(&self, from: u64) -> impl Iterator<Item = &Frame> {
        let stretch = self.stretches.partition_point(|stretch| stretch.end() <= from);
        self.stretches.range(stretch..).flat_map(|stretch| &stretch.frames).skip_while(move |frame| frame.end() <= from)
    }

    /// The whole state at a position; `None` if it is not between [`Self::first`] and [`Self::end`].
    pub fn at(&mut self, position: u64) -> Option<Ranks> {
        (self.first()..=self.end()).contains(&position).then(|| self.replayed(position))
    }

    /// The event with this index, if it is still stored.
    pub fn event(&mut self, index: u64) -> Option<&Event> {
        self.decode_around(index)?;
        self.near.event(index)
    }

    /// The index of the next event from position `from` on that is `wanted`, or of the last one before it.
    pub fn find(&mut self, from: u64, direction: Direction, mut wanted: impl FnMut(&Event) -> bool) -> Option<u64> {
        match direction {
            Direction::Forward => {
                let mut next = from.max(self.first());
                loop {
                    let frame = self.decode_around(next)?;
                    let inside = usize::try_from(next - frame.start).ok()?;
                    if let Some(found) = self.near.events[inside..].iter().position(&mut wanted) {
                        return Some(next + found as u64);
                    }
                    next = frame.end;
                }
            }
            Direction::Backward => {
                let mut end = from.min(self.end());
                loop {
                    let frame = self.decode_around(end.checked_sub(1)?)?;
                    let inside = usize::try_from(end - frame.start).ok()?;
                    if let Some(found) = self.near.events[..inside].iter().rposition(&mut wanted) {
                        return Some(frame.start + found as u64);
                    }
                    end = frame.start;
                }
            }
        }
    }

    /// Hands over the stored events in `range`, each with its index.
    pub fn events(&self, range: Range<u64>, mut each: impl FnMut(u64, &Event)) {
        let mut next = range.start.max(self.first());
        let mut hand_over = |event: &Event| {
            each(next, event);
            next += 1;
        };
        for frame in self.frames(range.start).take_while(|frame| frame.first() < range.end) {
            // Stored events have been decoded before, so this can't fail.
            let _ = frame.unpack().and_then(|unpacked| unpacked.each(range.clone(), &mut hand_over));
        }
        let open = (self.open.first()..range.end).zip(self.open.events());
        open.filter(|(index, _)| range.contains(index)).for_each(|(_, event)| hand_over(&event));
    }

    /// Some of the events, with the state before them, to be read elsewhere. Copies one state and no events. Events in
    /// the range that are no longer stored are left out; `None` if none is stored.
    pub fn excerpt(&mut self, range: Range<u64>) -> Option<Excerpt> {
        let range = range.start.max(self.first())..range.end.min(self.end());
        let before = (!range.is_empty()).then(|| self.at(range.start))??;
        let frames = self.frames(range.start).take_while(|frame| frame.first() < range.end).cloned().collect();
        let open = (self.open.first()..range.end).zip(self.open.events());
        let open = open.filter(|(index, _)| range.contains(index)).collect();
        Some(Excerpt { range, before, frames, open })
    }

    /// Stores a frame whose events have been applied.
    fn keep(&mut self, frame: Frame) {
        self.frames += frame.weight();
        if self.open.first() != frame.end() {
            self.open = FrameBuilder::new(frame.end());
        }
        let most = Bytes(self.bounds.frames.0 / (2 * Self::LEAST as u64));
        if let Some(last) = self.stretches.back_mut() {
            last.push(frame);
            let spacing = self.spacing.max(last.before.pieces() as u64 * Self::EVENTS);
            if last.length() >= spacing || last.bytes as u64 >= most.0 {
                self.begin_stretch();
            }
        }
        self.forget();
    }

    fn begin_stretch(&mut self) {
        let stretch = Stretch::new(&mut self.now);
        self.checkpoints += stretch.weight;
        self.stretches.push_back(stretch);
        while self.checkpoints as u64 > self.room() && self.stretches.len() > Self::LEAST {
            self.thin();
        }
    }

    /// How many bytes checkpoints may take. Steps that repeat take little memory, so that a state before every few of
    /// them would take most of it.
    fn room(&self) -> u64 {
        let most = self.bounds.checkpoints.0;
        (self.frames as u64 / 2).clamp(Self::ROOM.min(most), most)
    }

    /// Drops every second checkpoint.
    fn thin(&mut self) {
        let mut left: VecDeque<Stretch> = VecDeque::with_capacity(self.stretches.len());
        for (index, stretch) in std::mem::take(&mut self.stretches).into_iter().enumerate() {
            match left.back_mut() {
                Some(before) if index % 2 == 1 => {
                    before.bytes += stretch.bytes;
                    before.frames.extend(stretch.frames);
                }
                _ => left.push_back(stretch),
            }
        }
        self.checkpoints = left.iter().map(|stretch| stretch.weight).sum();
        self.stretches = left;
        self.spacing = self.spacing.saturating_mul(2);
    }

    /// Drops the oldest events for which there is no room.
    fn forget(&mut self) {
        while self.frames as u64 > self.bounds.frames.0 && self.stretches.len() > 1 {
            if let Some(oldest) = self.stretches.pop_front() {
                self.frames -= oldest.bytes;
                self.checkpoints -= oldest.weight;
            }
            // Memory use has become smaller, so there is room for closer checkpoints.
            if (self.checkpoints as u64) < self.room() / 4 {
                self.spacing = (self.spacing / 2).max(Self::SPACING);
            }
        }
    }

    /// The state at a stored position.
    fn replayed(&mut self, position: u64) -> Ranks {
        if position == self.end() && position == self.open.first() + self.open.len() as u64 {
            return self.now.checkpoint();
        }
        let index = self.stretches.partition_point(|stretch| stretch.first() <= position).saturating_sub(1);
        let near = self.near.state.take().filter(|state| state.position() <= position);
        let Some(stretch) = self.stretches.get(index) else { return self.now.checkpoint() };
        let mut state = match near {
            Some(near) if near.position() >= stretch.first() => near,
            _ => stretch.before.unpack(),
        };
        self.decode_around(position.saturating_sub(1));
        let before = position.saturating_sub(Near::BEFORE);
        if state.position() + Near::BEFORE < before {
            self.replay(index, before, &mut state);
        }
        self.near.state = Some(state.clone());
        self.replay(index, position, &mut state);
        state
    }

    /// Advances a state of a stretch to a later position in it.
    fn replay(&self, stretch: usize, position: u64, state: &mut Ranks) {
        let Some(stretch) = self.stretches.get(stretch) else { return };
        while state.position() < position {
            let at = state.position();
            if self.near.event(at).is_some() {
                let from = usize::try_from(at - self.near.first).unwrap_or(usize::MAX);
                let count = usize::try_from(position - at).unwrap_or(usize::MAX);
                self.near.events[from..].iter().take(count).for_each(|event| state.apply(event));
            } else if let Some(frame) = stretch.frame(at) {
                // Stored events have been decoded before.
                if replay(frame, position, state).is_err() {
                    return;
                }
            } else {
                let skipped = usize::try_from(at.saturating_sub(self.open.first())).unwrap_or(usize::MAX);
                let count = usize::try_from(position - at).unwrap_or(usize::MAX);
                self.open.events().skip(skipped).take(count).for_each(|event| state.apply(&event));
                return;
            }
        }
    }

    /// Decodes the frame that contains the event with this index, unless it was the last one decoded. Returns the
    /// indices of its events.
    fn decode_around(&mut self, index: u64) -> Option<Range<u64>> {
        if !(self.first()..self.end()).contains(&index) {
            return None;
        }
        if self.near.event(index).is_none() {
            self.near.events.clear();
            let stretch = self.stretches.partition_point(|stretch| stretch.first() <= index).checked_sub(1)?;
            match self.stretches.get(stretch)?.frame(index) {
                Some(frame) => {
                    self.near.first = frame.first();
                    self.near.events.extend(frame.unpack().ok()?.events().flatten());
                }
                None => {
                    self.near.first = self.open.first();
                    self.near.events.extend(self.open.events());
                }
            }
            self.near.event(index)?;
        }
        Some(self.near.first..self.near.first + self.near.events.len() as u64)
    }
}

/// Advances a state within a frame by applying its events up to a position.
fn replay(frame: &Frame, position: u64, state: &mut Ranks) -> Result<(), RecordingError> {
    let range = state.position()..position;
    frame.unpack()?.each(range, |event| state.apply(event))
}
