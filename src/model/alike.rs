//! Ranks that do the same work: one of them stands for all.

use serde::{Deserialize, Serialize};

use super::Parallelism;

/// The ranks of a run that one device of the stream stands for. Ranks that do the same work are computed once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlikeRanks {
    /// How the ranks share the work; `None` for the program of somebody else.
    pub parallelism: Option<Parallelism>,
    /// The number of ranks in the whole run.
    pub world: u32,
    /// The numbers of these ranks, in order.
    pub ranks: Vec<u16>,
}

impl AlikeRanks {
    /// The rank numbers: `0`, `1–3`, `0, 2`.
    #[must_use]
    pub fn numbers(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut rest = &*self.ranks;
        while let [first, ..] = rest {
            let run = rest.iter().zip(*first..).take_while(|(rank, expected)| *rank == expected).count();
            match run {
                1 => parts.push(first.to_string()),
                _ => parts.push(format!("{first}–{}", rest[run - 1])),
            }
            rest = &rest[run..];
        }
        parts.join(", ")
    }

    /// The rank numbers in words: `rank 0`, `ranks 1–3`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("rank{} {}", if self.ranks.len() == 1 { "" } else { "s" }, self.numbers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_in_runs() {
        let words = |ranks: &[u16]| AlikeRanks { ranks: ranks.to_vec(), ..AlikeRanks::default() }.words();
        assert_eq!(words(&[0]), "rank 0");
        assert_eq!(words(&[0, 1, 2, 5, 7, 8]), "ranks 0–2, 5, 7–8");
    }
}
