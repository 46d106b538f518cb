//! Combinations of switch values. There are far too many to try all, so every two values occur together at least once,
//! and random combinations follow.

use std::collections::HashSet;
use std::fmt;

use super::{Choice, FlipDirection, Reach, Switch};
use vramlab_train::Config;
use vramlab_workload::Random;

/// How many rows are tried for each row that is kept.
const CANDIDATES: usize = 24;

/// A value for each switch with a list of values, and a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    choices: Vec<(Switch, Choice)>,
    batch: Batch,
}

/// Batches, besides the usual one, that `b` and `B` reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    Usual,
    Smaller,
    Larger,
}

impl Combination {
    /// `base` with these values.
    #[must_use]
    pub fn config(&self, base: &Config) -> Config {
        let set = |config: Config, (switch, choice): &(Switch, Choice)| switch.with(&config, *choice);
        let config = self.choices.iter().fold(*base, set);
        let way = match self.batch {
            Batch::Usual => return config,
            Batch::Smaller => FlipDirection::Previous,
            Batch::Larger => FlipDirection::Next,
        };
        Switch::all().filter(|switch| switch.reach() == Reach::Steps).fold(config, |config, s| s.flipped(&config, way))
    }
}

impl fmt::Display for Combination {
    /// The values that differ from the first ones, in the panel's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = match self.batch {
            Batch::Usual => None,
            Batch::Smaller => Some("a smaller batch".to_owned()),
            Batch::Larger => Some("a larger batch".to_owned()),
        };
        let others = self.choices.iter().filter(|(_, choice)| choice.0 > 0);
        let others = others.map(|(switch, choice)| format!("{} {}", switch.label(), switch.values()[choice.0]));
        let words: Vec<String> = others.chain(batch).collect();
        if words.is_empty() { f.write_str("everything as it is") } else { f.write_str(&words.join(", ")) }
    }
}

/// Combinations in which every two values of different switches occur together, followed by `random` ones drawn from `seed`.
#[must_use]
pub fn combinations(random: usize, seed: u64) -> Vec<Combination> {
    let levers: Vec<Switch> = Switch::levers().collect();
    let mut dice = Random::new(seed);
    let mut rows = covering(&levers.iter().map(|lever| lever.values().len()).collect::<Vec<_>>(), &mut dice);
    rows.extend((0..random).map(|_| levers.iter().map(|lever| dice.below(lever.values().len())).collect()));
    rows.into_iter()
        .map(|row| Combination {
            choices: levers.iter().copied().zip(row.into_iter().map(Choice)).collect(),
            batch: [Batch::Usual, Batch::Smaller, Batch::Larger][dice.below(3)],
        })
        .collect()
}

/// Rows of values, one value below each of `sizes`, in which every two values of different columns occur together.
fn covering(sizes: &[usize], dice: &mut Random) -> Vec<Vec<usize>> {
    let columns = 0..sizes.len();
    let pairs = |row: &[usize]| -> Vec<[(usize, usize); 2]> {
        let cells: Vec<(usize, usize)> = row.iter().copied().enumerate().collect();
        let with_later = |(at, &first): (usize, &(usize, usize))| {
            cells[at + 1..].iter().map(|&second| [first, second]).collect::<Vec<_>>()
        };
        cells.iter().enumerate().flat_map(with_later).collect()
    };
    let mut open: HashSet<[(usize, usize); 2]> = HashSet::new();
    for (a, b) in columns.clone().flat_map(|a| (a + 1..sizes.len()).map(move |b| (a, b))) {
        open.extend((0..sizes[a]).flat_map(|x| (0..sizes[b]).map(move |y| [(a, x), (b, y)])));
    }
    let mut rows = Vec::new();
    while let Some(&[(a, x), (b, y)]) = open.iter().min() {
        // Every candidate contains the first missing pair.
        let candidates = (0..CANDIDATES).map(|_| {
            let mut row: Vec<usize> = sizes.iter().map(|&size| dice.below(size)).collect();
            (row[a], row[b]) = (x, y);
            row
        });
        let best = candidates.max_by_key(|row| pairs(row).iter().filter(|pair| open.contains(*pair)).count());
        let Some(row) = best else { break };
        for pair in pairs(&row) {
            open.remove(&pair);
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_values_of_different_switches_meet() {
        let all = combinations(0, 1);
        let levers: Vec<Switch> = Switch::levers().collect();
        assert!(levers.len() >= 13);
        for (a, first) in levers.iter().enumerate() {
            for (b, second) in levers.iter().enumerate().skip(a + 1) {
                for (x, y) in (0..first.values().len()).flat_map(|x| (0..second.values().len()).map(move |y| (x, y))) {
                    let met = all.iter().any(|row| row.choices[a].1 == Choice(x) && row.choices[b].1 == Choice(y));
                    assert!(
                        met,
                        "{} {} with {} {}",
                        first.word(),
                        first.values()[x],
                        second.word(),
                        second.values()[y]
                    );
                }
            }
        }
        // The two switches with most values need this many rows; all other pairs need little more.
        let mut values: Vec<usize> = levers.iter().map(|lever| lever.values().len()).collect();
        values.sort_unstable();
        let least: usize = values.iter().rev().take(2).product();
        assert!(all.len() * 10 < least * 14, "{} rows for {least}", all.len());
    }

    #[test]
    fn a_combination_is_put_in_force_and_told_in_the_panels_words() {
        let all = combinations(20, 7);
        assert_eq!(all, combinations(20, 7), "the same every time");
        let base = Config::new(8);
        for combination in &all {
            let config = combination.config(&base);
            for (lever, choice) in &combination.choices {
                assert_eq!(lever.choice(&config), *choice, "{combination}");
            }
            assert!([4, 8, 16].contains(&config.batch));
        }
        let mut plain = all[0].clone();
        plain.batch = Batch::Usual;
        plain.choices.iter_mut().for_each(|(_, choice)| *choice = Choice(0));
        assert_eq!(plain.to_string(), "everything as it is");
    }
}
