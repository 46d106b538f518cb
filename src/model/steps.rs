//! Figures of the steps so far: medians, losses, and the peaks inside the current step.

use std::collections::VecDeque;

use super::{CopiesView, CopyDirection, HostKind, MemoryModel, Micros, StepReport, StepsView};
use vramlab_allocator::units::Bytes;

/// The finished steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    finished: u64,
    recent: VecDeque<StepReport>,
    /// Bytes copied in each of them, and in the current step.
    copied: VecDeque<CopiedBytes>,
    copying: CopiedBytes,
    losses: LossChart,
    skipped: u64,
}

impl Steps {
    /// How many steps the medians cover.
    const RECENT: usize = 20;

    pub(super) const fn finished(&self) -> u64 {
        self.finished
    }

    /// The number of steps that the scaler skipped.
    pub(super) const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many of the last [`Self::RECENT`] steps the scaler skipped, and how many those are.
    pub(super) fn recently_skipped(&self) -> (usize, usize) {
        (self.recent.iter().filter(|report| !report.optimizer_ran).count(), self.recent.len())
    }

    /// The median time of the last few steps between their exchanges with other ranks; `None` before there are enough.
    pub(super) fn own(&self) -> Option<Micros> {
        const FEW: usize = 5;
        let last = self.recent.len().checked_sub(FEW)?;
        median(self.recent.iter().skip(last).map(|report| Micros(report.total.0.saturating_sub(report.exchange.0))))
    }

    /// The median times of the last steps, and of their exchanges with other ranks.
    pub(super) fn times(&self) -> (Micros, Micros) {
        let median_of = |time: &dyn Fn(&StepReport) -> Micros| median(self.recent.iter().map(time)).unwrap_or_default();
        (median_of(&|report| report.total), median_of(&|report| report.exchange))
    }

    /// Counts a copy in the current step. A pageable copy to the host also waits for the computation, so its time is
    /// not the copy's.
    pub(super) fn copy(&mut self, direction: CopyDirection, bytes: Bytes, pinned: bool) {
        match (pinned, direction) {
            (true, _) => self.copying.pinned += bytes,
            (false, CopyDirection::ToDevice) => self.copying.pageable += bytes,
            (false, CopyDirection::ToHost) => {}
        }
    }

    pub(super) fn push(&mut self, report: &StepReport) {
        self.finished += 1;
        self.skipped += u64::from(!report.optimizer_ran);
        if let Some(loss) = report.loss {
            self.losses.push(loss);
        }
        if self.recent.len() == Self::RECENT {
            self.recent.pop_front();
            self.copied.pop_front();
        }
        self.recent.push_back(report.clone());
        self.copied.push_back(std::mem::take(&mut self.copying));
    }

    pub(super) fn view(&self) -> StepsView {
        let median_of = |time: &dyn Fn(&StepReport) -> Micros| median(self.recent.iter().map(time)).unwrap_or_default();
        StepsView {
            finished: self.finished,
            last: self.recent.back().cloned(),
            median: median_of(&|report| report.total),
            phases: std::array::from_fn(|phase| median_of(&|report| report.phases[phase])),
            copy: median_of(&|report| report.copy),
            exchange: median_of(&|report| report.exchange),
            own: self.own(),
            copies: self.copies(),
            throughput: median_by(self.recent.iter().map(throughput), f64::total_cmp).unwrap_or_default(),
            losses: self.losses.points.clone(),
            skipped: self.skipped,
        }
    }
}

impl Steps {
    /// Copies over the last steps together, because a copy beside the computation may end in the next step.
    fn copies(&self) -> Option<CopiesView> {
        let micros = self.recent.iter().fold(0, |sum: u64, report| sum.saturating_add(report.copy.0));
        let pinned: Bytes = self.copied.iter().map(|copied| copied.pinned).sum();
        let pageable: Bytes = self.copied.iter().map(|copied| copied.pageable).sum();
        let host = match (pinned > Bytes::ZERO, pageable > Bytes::ZERO) {
            (true, false) => HostKind::Pinned,
            (false, true) => HostKind::Pageable,
            (true, true) => HostKind::Both,
            (false, false) => return None,
        };
        let bytes = (pinned + pageable).get() as f64;
        (micros > 0).then(|| CopiesView { bytes_per_second: bytes * 1e6 / micros as f64, host })
    }
}

/// Bytes copied within a step, by the kind of host memory.
#[derive(Clone, Copy, Debug, Default)]
struct CopiedBytes {
    pinned: Bytes,
    pageable: Bytes,
}

/// Tokens or samples per second in one step; 0 if it took no time.
pub(super) fn throughput(report: &StepReport) -> f64 {
    match report.total.0 {
        0 => 0.0,
        micros => report.items as f64 * 1e6 / micros as f64,
    }
}

/// The median; of an even number the upper of the middle two, so that it is a value that occurred.
pub(super) fn median<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    median_by(values, T::cmp)
}

/// Like [`median`], in a given order.
pub(super) fn median_by<T: Copy>(
    values: impl Iterator<Item = T>,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable_by(order);
    values.get(values.len() / 2).copied()
}

/// The losses of the whole run in at most [`LossChart::POINTS`] points, each the mean of the same number of steps.
#[derive(Clone, Debug)]
struct LossChart {
    points: Vec<f32>,
    /// Steps per point.
    bin: u32,
    /// The sum of the point that is not complete yet.
    sum: f64,
    count: u32,
}

impl Default for LossChart {
    fn default() -> Self {
        Self { points: Vec::new(), bin: 1, sum: 0.0, count: 0 }
    }
}

impl LossChart {
    const POINTS: usize = 512;

    fn push(&mut self, loss: f32) {
        self.sum += f64::from(loss);
        self.count += 1;
        if self.count < self.bin {
            return;
        }
        if self.points.len() == Self::POINTS {
            self.points = self.points.chunks_exact(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
            self.bin *= 2;
            // The steps just summed are the first half of a point of the new size.
            return;
        }
        self.points.push((self.sum / f64::from(self.count)) as f32);
        (self.sum, self.count) = (0.0, 0);
    }
}

/// The peaks within a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepPeaks {
    pub allocated: Bytes,
    pub reserved: Bytes,
    /// Live bytes by category when allocated was highest.
    pub by_category: [Bytes; 9],
    /// The number of events when allocated was highest, including the event that made it so.
    pub position: u64,
    /// The least releasable bytes: cached bytes that the step never used.
    pub spare: Bytes,
    /// The most bytes that waited for another stream.
    pub pending: Bytes,
}

impl StepPeaks {
    /// The peaks at the beginning of a step.
    pub(super) fn begin(memory: &MemoryModel) -> Self {
        Self {
            allocated: memory.allocated(),
            reserved: memory.reserved(),
            by_category: memory.by_category(),
            position: memory.position(),
            spare: memory.releasable(),
            pending: memory.pending(),
        }
    }

    /// Takes in the current memory. Returns true if allocated is at a new high in this step.
    pub(super) fn observe(&mut self, memory: &MemoryModel) -> bool {
        self.reserved = self.reserved.max(memory.reserved());
        self.spare = self.spare.min(memory.releasable());
        self.pending = self.pending.max(memory.pending());
        let higher = memory.allocated() > self.allocated;
        if higher {
            self.allocated = memory.allocated();
            self.by_category = memory.by_category();
            self.position = memory.position();
        }
        higher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64, loss: f32, total: u64) -> StepReport {
        StepReport {
            step,
            loss: Some(loss),
            total: Micros(total),
            phases: [Micros(1), Micros(total / 3), Micros(total / 2), Micros(2), Micros(3)],
            copy: Micros(4),
            exchange: Micros(0),
            items: 1000,
            optimizer_ran: step != 1,
        }
    }

    #[test]
    fn medians_are_over_the_last_twenty_steps() {
        let mut steps = Steps::default();
        for step in 0..100 {
            steps.push(&report(step, 1.0, if step < 80 { 1_000_000 } else { 1000 + step }));
        }
        let view = steps.view();
        assert_eq!(view.finished, 100);
        assert_eq!(view.median, Micros(1090));
        assert_eq!(view.phases[2], Micros(545));
        assert!((view.throughput - 1000.0 * 1e6 / 1089.0).abs() < 1e-6, "{}", view.throughput);
        assert_eq!(view.skipped, 1);
        assert_eq!(view.last.map(|last| last.step), Some(99));
    }

    #[test]
    fn copies_are_as_fast_as_their_bytes_and_times_together() {
        let mut steps = Steps::default();
        assert_eq!(steps.view().copies, None);
        for step in 0..40 {
            // Each report has 4 µs for 40 kB; the first copies ended late.
            steps.copy(CopyDirection::ToDevice, Bytes(40_000), true);
            steps.copy(CopyDirection::ToHost, Bytes(1 << 30), false);
            steps.push(&report(step, 1.0, 1000));
        }
        let copies = steps.view().copies.unwrap();
        assert_eq!(copies.host, HostKind::Pinned);
        assert!((copies.bytes_per_second - 10e9).abs() < 1.0, "{copies:?}");
        steps.copy(CopyDirection::ToDevice, Bytes(1), false);
        steps.push(&report(41, 1.0, 1000));
        assert_eq!(steps.view().copies.map(|copies| copies.host), Some(HostKind::Both));
    }

    #[test]
    fn losses_stay_within_512_points_of_equally_many_steps() {
        for count in [1_u32, 511, 512, 513, 514, 1024, 1025, 5000] {
            let mut chart = LossChart::default();
            for step in 0..count {
                chart.push(step as f32);
            }
            assert!(chart.points.len() <= LossChart::POINTS);
            assert!(chart.bin == 1 || chart.points.len() >= LossChart::POINTS / 2, "{count}: {}", chart.points.len());
            for (index, point) in chart.points.iter().enumerate() {
                let mean = index as f32 * chart.bin as f32 + (chart.bin - 1) as f32 / 2.0;
                assert!((point - mean).abs() < 1e-3, "point {index} of {count}: {point} for {mean}");
            }
            assert_eq!(chart.points.len() as u32, count / chart.bin);
        }
    }
}
