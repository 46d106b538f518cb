//! When the stages of a simulated pipeline run. Each rank is computed by itself, step after step: when the data that it waits for
//! arrives follows from how long the other ranks took in the previous step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::communicator::Arrival;
use super::error::OpResult;
use super::member::World;
use super::memory::{HeldMark, Memory};
use super::schedule::{Action, order};
use vramlab_allocator::units::StreamId;
use vramlab_device::DeviceEvent;
use vramlab_model::{Micros, PipelineSchedule};

/// How long a stage works in a step, without the time it waits for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StageTimes {
    /// Before its first action: batches.
    before: u64,
    /// Each of its actions, in their order.
    actions: Vec<u64>,
    /// After its last action, until the next step begins: the optimizer.
    after: u64,
}

/// Times of all stages of a simulated pipeline, in microseconds, by rank.
#[derive(Debug, Default)]
pub struct Timetable(Mutex<Vec<Option<StageTimes>>>);

impl Timetable {
    fn stages(&self) -> MutexGuard<'_, Vec<Option<StageTimes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, rank: usize, times: StageTimes) {
        let mut stages = self.stages();
        if stages.len() <= rank {
            stages.resize(rank + 1, None);
        }
        stages[rank] = Some(times);
    }

    /// When the data that each action of a rank receives arrives: microseconds after its step begins, zero if it receives
    /// nothing. `None` until all ranks have finished a step of this many micro-batches.
    fn arrivals(&self, schedule: PipelineSchedule, world: World, micro_batches: usize) -> Option<Vec<u64>> {
        let stages = self.stages();
        stages.get(world.rank())?.as_ref()?;
        let ranks = || (0..world.size()).filter_map(|rank| World::new(world.size(), rank));
        let orders: Vec<_> = ranks().map(|world| order(schedule, world, micro_batches)).collect();
        // Ranks that do the same are computed once, as the lowest of them.
        let times = (0..world.size()).map(|rank| stages.iter().take(rank + 1).rev().find_map(Option::as_ref));
        let times: Vec<&StageTimes> = times.collect::<Option<_>>()?;
        if times.iter().zip(&orders).any(|(times, order)| times.actions.len() != order.len()) {
            return None;
        }
        // Ranks begin their steps one after the other: after some steps the distances are always the same.
        let mut begins = vec![0; world.size()];
        for _ in 0..SETTLING {
            begins = play(&times, &orders, &begins)?.ends;
        }
        let begin = begins[world.rank()];
        let played = play(&times, &orders, &begins)?;
        Some(played.arrivals[world.rank()].iter().map(|arrival| arrival.saturating_sub(begin)).collect())
    }
}

/// Steps after which the distances between the ranks' beginnings stay the same.
const SETTLING: usize = 2;

/// One step of all stages.
struct PlayedStep {
    /// When the data that each action receives arrives, by rank and action.
    arrivals: Vec<Vec<u64>>,
    /// When each rank's step ends.
    ends: Vec<u64>,
}

/// Plays a step in which every rank does its actions in order, each as soon as its data has arrived. `None` if the ranks would
/// wait for each other forever.
fn play(times: &[&StageTimes], orders: &[Vec<Action>], begins: &[u64]) -> Option<PlayedStep> {
    let ranks = orders.len();
    let micro_batches = orders.first().map_or(0, |order| order.len() / 2);
    let (mut forwards, mut backwards) =
        (vec![vec![None; micro_batches]; ranks], vec![vec![None; micro_batches]; ranks]);
    let mut arrivals: Vec<Vec<u64>> = vec![Vec::new(); ranks];
    let mut now: Vec<u64> = begins.iter().zip(times).map(|(begin, times)| begin + times.before).collect();
    loop {
        let mut progress = false;
        for rank in 0..ranks {
            while let Some(&action) = orders[rank].get(arrivals[rank].len()) {
                let arrival: Option<u64> = match action {
                    Action::Forward(_) if rank == 0 => Some(0),
                    Action::Forward(number) => forwards[rank - 1][number],
                    Action::Backward(_) if rank + 1 == ranks => Some(0),
                    Action::Backward(number) => backwards[rank + 1][number],
                };
                let Some(arrival) = arrival else { break };
                now[rank] = now[rank].max(arrival) + times[rank].actions[arrivals[rank].len()];
                match action {
                    Action::Forward(number) => forwards[rank][number] = Some(now[rank]),
                    Action::Backward(number) => backwards[rank][number] = Some(now[rank]),
                }
                arrivals[rank].push(arrival);
                progress = true;
            }
        }
        if orders.iter().zip(&arrivals).all(|(order, done)| order.len() == done.len()) {
            let ends = now.iter().zip(times).map(|(now, times)| now + times.after).collect();
            return Some(PlayedStep { arrivals, ends });
        }
        if !progress {
            return None;
        }
    }
}

/// A stage's side of the timetable: measures the stage's actions, and tells when its data arrives.
#[derive(Debug)]
pub(crate) struct TimetableEntry {
    table: Arc<Timetable>,
    world: World,
    times: StageTimes,
    arrivals: Vec<u64>,
    /// The beginning of the current step.
    began: Option<DeviceEvent>,
    /// The end of the last action that was measured.
    last: Option<HeldMark>,
}

impl TimetableEntry {
    pub fn new(table: Arc<Timetable>, world: World) -> Self {
        let (times, arrivals, began, last) = Default::default();
        Self { table, world, times, arrivals, began, last }
    }

    /// Begins a step, which ends the one before.
    pub fn begin(&mut self, memory: &Memory, schedule: PipelineSchedule, micro_batches: usize) -> OpResult<()> {
        let now = memory.mark(StreamId::DEFAULT)?;
        if let Some(last) = self.last.replace(now) {
            self.times.after = memory.between(last, now).0;
            self.table.note(self.world.rank(), std::mem::take(&mut self.times));
        }
        self.times = StageTimes::default();
        self.arrivals = self.table.arrivals(schedule, self.world, micro_batches).unwrap_or_default();
        self.began = Some(memory.with_device(|device| device.record_event(StreamId::DEFAULT))?);
        Ok(())
    }

    /// When the data for the next action arrives.
    pub fn arrival(&mut self, memory: &Memory) -> OpResult<Option<Arrival>> {
        let next = self.times.actions.len();
        if let (0, Some(last)) = (next, self.last) {
            self.times.before = memory.between(last, memory.mark(StreamId::DEFAULT)?).0;
        }
        let arrival = self.arrivals.get(next).map(|&behind| Micros(behind));
        Ok(self.began.zip(arrival))
    }

    /// Ends an action that began at `begun`, when its data was there.
    pub fn done(&mut self, memory: &Memory, begun: HeldMark) -> OpResult<()> {
        let now = memory.mark(StreamId::DEFAULT)?;
        self.times.actions.push(memory.between(begun, now).0);
        self.last = Some(now);
        Ok(())
    }

    /// Drops the measurements of an abandoned step.
    pub fn abandon(&mut self) {
        (self.times, self.last) = (StageTimes::default(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO_BATCHES: usize = 4;

    /// Stages with these times for a forward and a backward.
    fn table(schedule: PipelineSchedule, stages: &[(u64, u64)]) -> Timetable {
        let table = Timetable::default();
        for (rank, (forward, backward)) in stages.iter().enumerate() {
            let world = World::new(stages.len(), rank).unwrap();
            let actions = order(schedule, world, MICRO_BATCHES).into_iter();
            let actions = actions.map(|action| if matches!(action, Action::Forward(_)) { *forward } else { *backward });
            table.note(rank, StageTimes { before: 0, actions: actions.collect(), after: 0 });
        }
        table
    }

    fn arrivals(table: &Timetable, schedule: PipelineSchedule, rank: usize, ranks: usize) -> Vec<u64> {
        table.arrivals(schedule, World::new(ranks, rank).unwrap(), MICRO_BATCHES).unwrap()
    }

    /// Of P equal stages and M micro-batches each waits for P − 1 of M + P − 1 turns (GPipe, arXiv 1811.06965, section 2.3).
    #[test]
    fn equal_stages_wait_for_as_many_turns_as_there_are_others() {
        let table = table(PipelineSchedule::GPipe, &[(10, 20); 2]);
        // F0 to F3 until 40; the last stage then needs one forward and one backward.
        assert_eq!(arrivals(&table, PipelineSchedule::GPipe, 0, 2), [0, 0, 0, 0, 70, 90, 110, 130]);
        // The last stage ended at 130, 20 before the first stage, which only then begins its next step.
        assert_eq!(arrivals(&table, PipelineSchedule::GPipe, 1, 2), [30, 40, 50, 60, 0, 0, 0, 0]);
        let schedule = PipelineSchedule::OneForwardOneBackward;
        let ends: Vec<u64> = [2, 4].map(|ranks| ends_of_first(schedule, ranks)).into();
        assert_eq!(ends, [(4 + 1) * 30, (4 + 3) * 30]);
    }

    /// When the first of several equal stages ends its step.
    fn ends_of_first(schedule: PipelineSchedule, ranks: usize) -> u64 {
        let table = table(schedule, &vec![(10, 20); ranks]);
        let stages = table.stages();
        let times: Vec<&StageTimes> = stages.iter().flatten().collect();
        let orders: Vec<_> =
            (0..ranks).map(|rank| order(schedule, World::new(ranks, rank).unwrap(), MICRO_BATCHES)).collect();
        play(&times, &orders, &vec![0; ranks]).unwrap().ends[0]
    }

    #[test]
    fn others_wait_for_the_slowest_stage() {
        let table = table(PipelineSchedule::GPipe, &[(10, 20), (30, 60)]);
        assert_eq!(arrivals(&table, PipelineSchedule::GPipe, 0, 2)[4..], [190, 250, 310, 370]);
    }

    #[test]
    fn nothing_is_waited_for_until_all_are_known() {
        let table = Timetable::default();
        let world = World::new(2, 1).unwrap();
        table.note(0, StageTimes { before: 0, actions: vec![1; 2 * MICRO_BATCHES], after: 0 });
        assert_eq!(table.arrivals(PipelineSchedule::GPipe, world, MICRO_BATCHES), None);
        table.note(1, StageTimes { before: 0, actions: vec![1; 2], after: 0 });
        assert_eq!(table.arrivals(PipelineSchedule::GPipe, world, MICRO_BATCHES), None, "of another number");
    }
}
