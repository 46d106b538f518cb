//! The figures of all ranks of a run, side by side.

use std::collections::BTreeSet;
use std::sync::Arc;

use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{
    AlikeRanks, DeviceKind, Evidence, Finding, Lab, Level, Micros, Presence, Profile, Ranks, Remedy, RunState,
};

/// The state of a rank, if it differs from the run's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankState {
    /// The same as the run's.
    #[default]
    Trains,
    /// A request failed, and no whole step has gone through since.
    OutOfMemory,
    /// Its step failed for another reason.
    Failed,
    /// Its process, or its device, is gone.
    Lost,
    /// Its process has been silent for this many seconds.
    Silent(u32),
    /// It waits for a rank that ran out of memory, failed, is lost or silent.
    Waits,
}

impl RankState {
    /// The state according to its own stream.
    fn of(lab: &Lab) -> Self {
        match (lab.presence(), lab.run()) {
            (Presence::Gone, _) => Self::Lost,
            (Presence::Silent(seconds), _) => Self::Silent(seconds),
            _ if lab.autopsy().is_some() => Self::OutOfMemory,
            (_, RunState::StepFailed(_)) => Self::Failed,
            // Also for a rank without a failure of its own, if all ranks have stopped.
            (_, RunState::Paused | RunState::Lost(_)) => Self::Waits,
            _ => Self::Trains,
        }
    }
}

/// The figures of one rank, and of those that do the same work, at the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFigures {
    /// The ranks that have these figures.
    pub alike: Arc<AlikeRanks>,
    /// Allocated bytes now.
    pub allocated: Bytes,
    /// Highest allocated bytes so far.
    pub peak_allocated: Bytes,
    /// Highest reserved bytes so far.
    pub peak_reserved: Bytes,
    /// Its state, if it differs from the run's.
    pub state: RankState,
    /// The median time of its last steps; 0 if unknown.
    pub step_time: Micros,
    /// The part of that time for exchanges, including waits for other ranks.
    pub exchange: Micros,
    /// The curve of its last whole step.
    pub step: Option<Arc<Profile>>,
    /// The time of its last steps without exchanges, if times are measured or those of a simulated pipeline.
    pub own: Option<Micros>,
    /// True if times are simulated.
    pub simulated: bool,
    /// True for a stage of a pipeline.
    pub stage: bool,
    /// The other ranks on whose GPUs its process has a context.
    pub foreign_contexts: Arc<[u16]>,
}

impl RankFigures {
    /// The figures of `devices`, as far as the stream says that they are ranks.
    #[must_use]
    pub fn of(ranks: &Ranks, devices: &[DeviceIndex]) -> Arc<[Self]> {
        let figures = |lab: &Lab| {
            let (memory, steps) = (lab.memory(), lab.step_times());
            Some(Self {
                alike: Arc::clone(lab.alike()?),
                allocated: memory.allocated(),
                peak_allocated: memory.peak_allocated(),
                peak_reserved: memory.peak_reserved(),
                state: RankState::of(lab),
                step_time: steps.0,
                exchange: steps.1,
                step: lab.last_profile().cloned(),
                own: lab.own_time(),
                simulated: lab.about().kind == DeviceKind::Simulated,
                stage: lab.is_stage(),
                foreign_contexts: Arc::clone(lab.foreign_contexts()),
            })
        };
        let mut all: Vec<Self> = devices.iter().filter_map(|device| figures(ranks.lab(*device)?)).collect();
        let waited_for = |of: &Self| !matches!(of.state, RankState::Trains | RankState::Waits);
        let silent = all.iter().any(|of| matches!(of.state, RankState::Silent(_)));
        let waits = all.iter().any(waited_for);
        for of in &mut all {
            of.state = match of.state {
                // During a pause a rank does not wait for another.
                RankState::Waits if !waits => RankState::Trains,
                // A rank that has not stopped yet will stop at its next exchange.
                RankState::Trains if silent => RankState::Waits,
                state => state,
            };
        }
        all.into()
    }

    /// True if a request failed and no whole step has gone through since.
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        self.state == RankState::OutOfMemory
    }

    /// The index of the most important rank: one that ran out of memory, otherwise the one that reserved most, then the
    /// one that allocated most. `None` if all are equal.
    #[must_use]
    pub fn worst(all: &[Self]) -> Option<usize> {
        let need = |of: &Self| (of.out_of_memory(), of.peak_reserved, of.peak_allocated);
        let most = all.iter().map(need).max()?;
        let same = all.iter().all(|of| need(of) == most);
        if same { None } else { all.iter().position(|of| need(of) == most) }
    }

    /// The index of the rank to compare with the one at `shown`: the worst rank, or for the worst itself the one that
    /// needs least. `None` if all do the same work.
    #[must_use]
    pub fn beside(all: &[Self], shown: usize) -> Option<usize> {
        let others = || (0..all.len()).filter(|place| *place != shown);
        let least = || others().min_by_key(|place| (all[*place].peak_reserved, all[*place].peak_allocated));
        Self::worst(all).filter(|worst| *worst != shown).or_else(least)
    }

    /// The findings from comparing ranks.
    #[must_use]
    pub fn findings(all: &[Self]) -> Vec<Finding> {
        let mut findings = Self::foreign_contexts(all);
        findings.extend(Self::straggler(all).into_iter().chain(Self::uneven(all)));
        findings
    }

    /// Findings about ranks that use the GPUs of others, one for each of these GPUs.
    fn foreign_contexts(all: &[Self]) -> Vec<Finding> {
        let words = |ranks: Vec<u16>| AlikeRanks { ranks, ..AlikeRanks::default() }.words();
        let owners: BTreeSet<u16> = all.iter().flat_map(|of| of.foreign_contexts.iter().copied()).collect();
        let finding = |owner: u16| {
            let guests = all.iter().filter(|of| of.foreign_contexts.contains(&owner));
            let guests: Vec<u16> = guests.flat_map(|of| of.alike.ranks.iter().copied()).collect();
            let (count, of) = (guests.len(), words(vec![owner]));
            let evidence = Evidence::ForeignContext { ranks: words(guests), count, of };
            let remedies = vec![Remedy::ChooseGpu];
            Finding { level: Level::Warning, evidence, remedies, position: None, gain: None }
        };
        owners.into_iter().map(finding).collect()
    }

    /// A finding about a rank that takes longer than all others, if the difference is at least a quarter and two milliseconds.
    fn straggler(all: &[Self]) -> Option<Finding> {
        const SHORTEST: u64 = 2_000;
        let times: Vec<u64> = all.iter().map(|of| Some(of.own?.0)).collect::<Option<_>>()?;
        let place = (0..all.len()).max_by_key(|place| times[*place])?;
        let others = (0..all.len()).filter(|other| *other != place).map(|other| times[other]).max()?;
        let (own, alike, simulated) = (times[place], &all[place].alike, all[place].simulated);
        if own - others < SHORTEST.max(others / 4) || alike.ranks.len() > 1 {
            return None;
        }
        let (rank, own, others) = (alike.words(), own / 1000, others / 1000);
        let evidence = if all[place].stage {
            Evidence::UnbalancedStages { rank, own, others, simulated }
        } else {
            Evidence::Straggler { rank, own, others }
        };
        Some(Finding { level: Level::Warning, evidence, remedies: Vec::new(), position: None, gain: None })
    }

    /// A finding about ranks that reserved more than others, if the difference is at least a tenth and a mebibyte.
    #[must_use]
    pub fn uneven(all: &[Self]) -> Option<Finding> {
        let most = &all[Self::worst(all).filter(|_| all.iter().all(|of| !of.out_of_memory()))?];
        let least = all.iter().min_by_key(|of| of.peak_reserved)?;
        let more = most.peak_reserved.saturating_sub(least.peak_reserved);
        if more < Bytes::mib(1) || more.get().saturating_mul(10) < most.peak_reserved.get() {
            return None;
        }
        let evidence = Evidence::Uneven {
            most: most.alike.words(),
            reserved: most.peak_reserved,
            least: least.alike.words(),
            least_reserved: least.peak_reserved,
        };
        Some(Finding { level: Level::Info, evidence, remedies: Vec::new(), position: None, gain: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_model::{Event, EventKind};

    #[test]
    fn the_worst_ran_out_of_memory_or_reserved_most() {
        let of = |reserved, allocated, out_of_memory| RankFigures {
            peak_reserved: Bytes::mib(reserved),
            peak_allocated: Bytes::mib(allocated),
            state: if out_of_memory { RankState::OutOfMemory } else { RankState::Trains },
            ..RankFigures::default()
        };
        assert_eq!(RankFigures::worst(&[of(8, 7, false), of(8, 7, false)]), None);
        assert_eq!(RankFigures::worst(&[of(8, 6, false), of(8, 7, false)]), Some(1));
        assert_eq!(RankFigures::worst(&[of(9, 6, false), of(8, 7, false)]), Some(0));
        assert_eq!(RankFigures::worst(&[of(9, 6, false), of(8, 7, true)]), Some(1));
        let three = [of(9, 6, false), of(8, 7, false), of(8, 6, false)];
        assert_eq!([0, 1, 2].map(|shown| RankFigures::beside(&three, shown)), [Some(2), Some(0), Some(0)]);
        assert_eq!(RankFigures::beside(&three[..1], 0), None);
        let uneven = |all: &[RankFigures]| RankFigures::uneven(all).map(|finding| finding.to_string());
        let (mut small, mut large) = (of(10, 7, false), of(15, 7, false));
        for (rank, of) in [(0, &mut small), (1, &mut large)] {
            of.alike = AlikeRanks { ranks: vec![rank], ..AlikeRanks::default() }.into();
        }
        let said = "ranks are uneven: rank 1 reserved 15.00 MiB, rank 0 10.00 MiB";
        assert_eq!(uneven(&[small.clone(), large.clone()]).as_deref(), Some(said));
        assert_eq!(uneven(&[of(20, 7, false), of(19, 7, false)]), None);
        let found = |all: &[RankFigures]| RankFigures::straggler(all).map(|finding| finding.to_string());
        (small.own, large.own) = (Some(Micros(20_900)), Some(Micros(34_000)));
        let said = "rank 1 is a straggler: between exchanges a step takes it 34 ms, the others 20 ms, and they wait";
        assert_eq!(found(&[small.clone(), large.clone()]).as_deref(), Some(said));
        let mut last = large.clone();
        last.stage = true;
        let said = "stages are unbalanced: rank 1 works 34 ms a step, the others 20 ms at most, and wait for it";
        assert_eq!(found(&[small.clone(), last.clone()]).as_deref(), Some(said));
        last.simulated = true;
        assert_eq!(found(&[small.clone(), last]), Some(format!("{said} (simulated)")));
        large.own = Some(Micros(24_000));
        assert_eq!(found(&[small.clone(), large.clone()]), None, "less than a quarter");
        large.own = None;
        assert_eq!(found(&[small.clone(), large.clone()]), None, "times that are not measured");
        (small.foreign_contexts, large.foreign_contexts) = (Arc::default(), [0].into());
        let mut another = large.clone();
        another.alike = AlikeRanks { ranks: vec![2], ..AlikeRanks::default() }.into();
        let found = |all: &[RankFigures]| {
            RankFigures::foreign_contexts(all).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let said = "rank 1 also has a CUDA context on the GPU of rank 0: memory there that no allocator counts";
        assert_eq!(found(&[small.clone(), large.clone()]), [said]);
        let said = "ranks 1–2 also have CUDA contexts on the GPU of rank 0: memory there that no allocator counts";
        assert_eq!(found(&[small.clone(), large.clone(), another]), [said]);
        large.state = RankState::OutOfMemory;
        assert_eq!(uneven(&[small, large]), None, "a rank that failed says nothing of what it needs");
    }

    #[test]
    fn of_a_rank_is_said_what_it_does_where_that_is_not_what_the_run_does() {
        use RankState::{Failed, Lost, Silent, Trains, Waits};
        let mut ranks = Ranks::default();
        let devices = [0, 1, 2].map(DeviceIndex);
        let mut told = |told: &[(u16, EventKind)]| {
            for (device, kind) in told {
                ranks.apply(&Event { device: DeviceIndex(*device), ..Event::new(Micros(0), kind.clone()) });
            }
            RankFigures::of(&ranks, &devices).iter().map(|of| of.state).collect::<Vec<_>>()
        };
        let of_all = |kind: EventKind| [0, 1, 2].map(|device| (device, kind.clone()));
        told(&of_all(EventKind::AlikeRanks(Arc::default())));
        assert_eq!(told(&of_all(EventKind::Run(RunState::Running))), [Trains; 3]);
        let presence = EventKind::Presence;
        assert_eq!(told(&[(1, presence(Presence::Silent(7)))]), [Waits, Silent(7), Waits]);
        assert_eq!(told(&[(1, presence(Presence::There))]), [Trains; 3]);
        assert_eq!(told(&of_all(EventKind::Run(RunState::Paused))), [Trains; 3], "a pause is no wait");
        let failed = [(2, EventKind::Run(RunState::StepFailed("no".into()))), (0, EventKind::Run(RunState::Running))];
        assert_eq!(told(&failed), [Trains, Waits, Failed], "one still ends its step");
        told(&[(1, presence(Presence::Gone))]);
        assert_eq!(told(&of_all(EventKind::Run(RunState::Lost("rank 1: gone".into()))))[..2], [Waits, Lost]);
    }
}
