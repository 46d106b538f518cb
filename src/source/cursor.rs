//! Moving the cursor in time: by op, phase and step, and to landmarks.

use super::picture::Cursor;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, Finding, History, Mark, MarkKind, Profile, Ranks, RemedyTrial, View};
use vramlab_recording::{Direction, Timeline};

use std::sync::Arc;

/// A target of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The end of what is known, which the cursor then follows.
    Now,
    /// The first position there is.
    Start,
    /// The position after this many events.
    To(u64),
    /// The next or the previous end of a unit.
    By(MoveUnit, Direction),
    /// The next or the previous landmark of a kind.
    Jump(Landmark, Direction),
    /// The peak of a step, by which panels show it; while the step has no end, its begin.
    Step(u64),
}

/// The unit of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveUnit {
    /// An op.
    Op,
    /// A phase.
    Phase,
    /// A step.
    Step,
}

/// A place worth looking at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landmark {
    /// The allocated peak of the whole run.
    Peak,
    /// A request that failed.
    OutOfMemory,
    /// Where a flipped switch first has an effect, or the cache was emptied.
    Flip,
    /// The place named by a finding at the cursor.
    Finding,
}

/// How many events ahead the end of a step is searched for.
const LONGEST_STEP: u64 = 400_000;

/// The state at a cursor that looks back, and what is known of its surroundings.
#[derive(Debug)]
pub(super) struct LookBack {
    pub ranks: Ranks,
    step: Option<Arc<Profile>>,
    /// True if the step had not ended where its curve ends: there may be more of it by now.
    growing: bool,
    /// The findings at the end of that step; `None` if the cursor is not in a step that has ended.
    concluded: Option<Arc<[Finding]>>,
    /// The remedies tried for the failed request at the cursor, and the position of the failure.
    remedied: Option<(u64, Arc<[RemedyTrial]>)>,
}

impl LookBack {
    /// The state after `position` events.
    pub fn at(timeline: &mut Timeline, position: u64, device: DeviceIndex) -> Option<Self> {
        let position = position.clamp(timeline.first(), timeline.end());
        let mut back =
            Self { ranks: timeline.at(position)?, step: None, growing: false, concluded: None, remedied: None };
        back.find_step(timeline, device);
        Some(back)
    }

    /// Advances to `position`, which must be ahead.
    pub fn advance(&mut self, timeline: &mut Timeline, position: u64, device: DeviceIndex) {
        let ranks = &mut self.ranks;
        timeline.events(ranks.position()..position.min(timeline.end()), |_, event| ranks.apply(event));
        self.find_step(timeline, device);
    }

    /// The view at the cursor, with remedies that were tried later for a request that failed there.
    pub fn view(&mut self, timeline: &mut Timeline, device: DeviceIndex) -> Option<View> {
        let mut view = self.ranks.lab_mut(device)?.view();
        if let Some(autopsy) = view.autopsy.as_mut().filter(|autopsy| !autopsy.tried) {
            let known = self.remedied.as_ref().filter(|(position, _)| *position == autopsy.position);
            let remedied = match known {
                Some((_, remedied)) => Some(Arc::clone(remedied)),
                None => remedied_after(timeline, autopsy.position, device),
            };
            if let Some(remedied) = remedied {
                self.remedied = Some((autopsy.position, Arc::clone(&remedied)));
                let autopsy = Arc::make_mut(autopsy);
                (autopsy.remedied, autopsy.tried) = (remedied, true);
            }
        }
        Some(view)
    }

    /// The findings at the end of the step around the cursor; `None` if it is not in a step that has ended.
    pub fn concluded(&self) -> Option<Arc<[Finding]>> {
        self.concluded.clone()
    }

    /// The curve of the whole step around the cursor, or of the last one if it is between two steps.
    pub fn step(&mut self, timeline: &mut Timeline, device: DeviceIndex) -> Option<Arc<Profile>> {
        if self.growing {
            self.find_step(timeline, device);
        }
        self.step.clone()
    }

    fn find_step(&mut self, timeline: &mut Timeline, device: DeviceIndex) {
        let Some(lab) = self.ranks.lab(device) else { return };
        let Some(begun) = lab.profile_under_way() else {
            (self.step, self.growing, self.concluded) = (lab.last_profile().cloned(), false, None);
            return;
        };
        if lab.autopsy().is_some_and(|autopsy| autopsy.position >= begun.position) {
            // After the failure only cleanup follows.
            (self.step, self.growing, self.concluded) = (Some(Arc::new(begun.clone())), false, None);
            return;
        }
        if !self.growing && self.step.as_ref().is_some_and(|step| step.position == begun.position) {
            return;
        }
        let ends = |event: &Event| {
            event.device == device
                && matches!(event.kind, EventKind::StepEnd(_) | EventKind::StepBegin { .. } | EventKind::Oom(_))
        };
        let from = self.ranks.position();
        let found = timeline.find(from, Direction::Forward, ends);
        let end = found.unwrap_or_else(|| timeline.end());
        self.growing = found.is_none();
        let mut ahead = self.ranks.checkpoint();
        timeline.events(from..(end + 1).min(from + LONGEST_STEP), |_, event| ahead.apply(event));
        (self.step, self.concluded) = match ahead.lab_mut(device) {
            Some(lab) => match lab.profile_under_way() {
                Some(profile) => (Some(Arc::new(profile.clone())), None),
                None => (lab.last_profile().cloned(), Some(lab.view().findings.into())),
            },
            None => (None, None),
        };
    }
}

/// The remedies tried for the request that failed at `position`, if known.
fn remedied_after(timeline: &mut Timeline, position: u64, device: DeviceIndex) -> Option<Arc<[RemedyTrial]>> {
    let tells = |event: &Event| {
        event.device == device && matches!(event.kind, EventKind::Remedied(_) | EventKind::StepBegin { .. })
    };
    let found = timeline.find(position + 1, Direction::Forward, tells);
    match found.and_then(|index| timeline.event(index)).map(|event| &event.kind) {
        Some(EventKind::Remedied(remedied)) => Some(Arc::clone(remedied)),
        _ => None,
    }
}

/// The target of a move from `cursor`; `None` if there is no such place.
pub(super) fn target(
    timeline: &mut Timeline,
    cursor: Cursor,
    to: Move,
    device: DeviceIndex,
    finding: Option<u64>,
) -> Option<Cursor> {
    let (first, end) = (timeline.first(), timeline.end());
    let here = match cursor {
        Cursor::Now => end,
        Cursor::At(position) => position,
    };
    let found = match to {
        Move::Now => return Some(Cursor::Now),
        Move::Start => first,
        Move::To(position) => position.clamp(first, end),
        Move::By(unit, direction) => by(timeline, here, unit, direction, device)?,
        Move::Step(step) => step_peak(timeline, here, step, device)?,
        Move::Jump(Landmark::Finding, _) => finding?,
        Move::Jump(Landmark::Peak, _) => timeline.now().lab_mut(device)?.view().peak_position,
        Move::Jump(Landmark::OutOfMemory, direction) => {
            let lab = timeline.now().lab(device)?;
            let positions = failures(lab.history());
            match direction {
                Direction::Forward => positions.into_iter().find(|&position| position > here)?,
                Direction::Backward => positions.into_iter().rev().find(|&position| position < here)?,
            }
        }
        Move::Jump(Landmark::Flip, direction) => changed(timeline, here, direction, device)?,
    };
    Some(Cursor::At(found.clamp(first, end)))
}

/// The positions right after failed requests.
fn failures(history: &History) -> Vec<u64> {
    history.marks().filter(|mark| mark.kind == MarkKind::OutOfMemory).map(|mark| mark.position + 1).collect()
}

/// Where the next or the previous change shows: see [`shows`].
fn changed(timeline: &mut Timeline, here: u64, direction: Direction, device: DeviceIndex) -> Option<u64> {
    let marks: Vec<Mark> = timeline.now().lab(device)?.history().marks().cloned().collect();
    let mut marks: Vec<Mark> = marks.into_iter().filter(|mark| mark.kind != MarkKind::OutOfMemory).collect();
    // Flips between the same two steps show at one place.
    marks.dedup_by(|later, mark| is_flip(later) && is_flip(mark) && later.step == mark.step);
    let ahead = marks.partition_point(|mark| mark.position < here);
    match direction {
        // A change behind the cursor may show ahead of it.
        Direction::Forward => {
            marks[ahead.saturating_sub(1)..].iter().map(|mark| shows(timeline, mark, device)).find(|at| *at > here)
        }
        Direction::Backward => {
            marks[..ahead].iter().rev().map(|mark| shows(timeline, mark, device)).find(|at| *at < here)
        }
    }
}

fn is_flip(mark: &Mark) -> bool {
    matches!(mark.kind, MarkKind::Flip { .. })
}

/// Where a change shows. A flip shows at the peak of the first step under it. Other changes, and a flip that no
/// finished step follows, show right behind themselves.
fn shows(timeline: &mut Timeline, mark: &Mark, device: DeviceIndex) -> u64 {
    let behind = mark.position + 1;
    if is_flip(mark) { peak_behind(timeline, behind, device) } else { behind }
}

/// The peak of the first step that ends or fails after `behind`, or `behind` if there is none.
fn peak_behind(timeline: &mut Timeline, behind: u64, device: DeviceIndex) -> u64 {
    let ends = |event: &Event| {
        event.device == device && matches!(event.kind, EventKind::StepEnd(_) | EventKind::Oom(_) | EventKind::Begin(_))
    };
    let Some(end) = timeline.find(behind, Direction::Forward, ends) else { return behind };
    let ranks = timeline.at(end + 1);
    let peak = ranks.as_ref().and_then(|ranks| ranks.lab(device)?.last_peak());
    peak.filter(|peak| *peak > behind).unwrap_or(behind)
}

fn by(timeline: &mut Timeline, here: u64, unit: MoveUnit, direction: Direction, device: DeviceIndex) -> Option<u64> {
    let ends = |event: &Event| {
        event.device == device
            && match unit {
                MoveUnit::Op => matches!(event.kind, EventKind::OpEnd),
                MoveUnit::Phase => matches!(event.kind, EventKind::PhaseEnd { .. }),
                MoveUnit::Step => matches!(event.kind, EventKind::StepEnd(_)),
            }
    };
    match direction {
        Direction::Forward => timeline.find(here, Direction::Forward, ends).map(|index| index + 1),
        // The cursor stands right after the event before it, which is an end.
        Direction::Backward => {
            let found = timeline.find(here.saturating_sub(1), Direction::Backward, ends).map(|index| index + 1);
            found.or_else(|| (here > timeline.first()).then(|| timeline.first()))
        }
    }
}

/// The peak of a step, or the position right after its begin if it has no end.
fn step_peak(timeline: &mut Timeline, here: u64, step: u64, device: DeviceIndex) -> Option<u64> {
    let begins =
        |event: &Event| event.device == device && matches!(event.kind, EventKind::StepBegin { step: s } if s == step);
    let ahead = timeline.find(here, Direction::Forward, begins);
    let begin = ahead.or_else(|| timeline.find(here, Direction::Backward, begins))?;
    Some(peak_behind(timeline, begin + 1, device))
}
