//! Sets of address intervals.

use std::collections::BTreeMap;

/// Disjoint intervals: end by start.
#[derive(Clone, Debug, Default)]
pub struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Adds an interval and merges it with the intervals that it touches.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut first, mut last) = (start, end);
        while let Some((from, to)) = self.0.range(..=last).next_back().map(|(from, to)| (*from, *to)) {
            if to < first {
                break;
            }
            self.0.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.0.insert(first, last);
    }

    /// Removes an interval. The parts of other intervals outside it stay.
    pub fn remove(&mut self, start: u64, end: u64) {
        while let Some((first, last)) = self.0.range(..end).next_back().map(|(first, last)| (*first, *last)) {
            if last <= start {
                return;
            }
            self.0.remove(&first);
            if last > end {
                self.0.insert(end, last);
            }
            if first < start {
                self.0.insert(first, start);
                return;
            }
        }
    }

    /// The parts of an interval that are not in the set, in order.
    pub fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = start;
        let before = self.0.range(..=start).next_back().filter(|(_, last)| **last > start);
        for (first, last) in before.into_iter().chain(self.0.range(start.saturating_add(1)..end.max(start + 1))) {
            if *first > at {
                parts.push((at, *first));
            }
            at = at.max(*last);
        }
        if at < end {
            parts.push((at, end));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(held: &Intervals) -> Vec<(u64, u64)> {
        held.0.iter().map(|(start, end)| (*start, *end)).collect()
    }

    #[test]
    fn stretches_grow_together_and_are_cut() {
        let mut held = Intervals::default();
        held.insert(10, 20);
        held.insert(30, 40);
        held.insert(20, 25);
        assert_eq!(all(&held), [(10, 25), (30, 40)]);
        assert_eq!(held.missing(0, 50), [(0, 10), (25, 30), (40, 50)]);
        assert_eq!(held.missing(12, 20), []);
        assert_eq!(held.missing(24, 31), [(25, 30)]);
        held.insert(25, 30);
        held.remove(15, 35);
        assert_eq!(all(&held), [(10, 15), (35, 40)]);
        held.insert(0, 100);
        assert_eq!(all(&held), [(0, 100)]);
        held.insert(5, 5);
        assert_eq!(held.missing(7, 7), []);
    }
}
