//! The score of a lesson, counted in half points.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::answer::Worth;

/// Points, and the number of questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Number of half points.
    pub halves: u32,
    /// Number of answered questions.
    pub of: u32,
}

impl Score {
    /// The score with one more answer.
    #[must_use]
    pub const fn with(self, worth: Worth) -> Self {
        Self { halves: self.halves.saturating_add(worth.halves()), of: self.of.saturating_add(1) }
    }

    /// Whether a larger share of this score was right than of `other`.
    #[must_use]
    pub const fn is_better_than(self, other: Self) -> bool {
        (self.halves as u64) * (other.of as u64) > (other.halves as u64) * (self.of as u64)
            || (other.of == 0 && self.of > 0)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = if self.halves % 2 == 1 { ".5" } else { "" };
        f.pad(&format!("{}{half} of {}", self.halves / 2, self.of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_counted_in_halves() {
        let all = [Worth::Right, Worth::Near, Worth::Wrong];
        let score = all.into_iter().fold(Score::default(), Score::with);
        assert_eq!(score.to_string(), "1.5 of 3");
        assert_eq!(Score { halves: 4, of: 2 }.to_string(), "2 of 2");
        assert!(Score { halves: 4, of: 2 }.is_better_than(score) && !score.is_better_than(score));
        assert!(score.is_better_than(Score::default()) && !Score::default().is_better_than(score));
    }
}
