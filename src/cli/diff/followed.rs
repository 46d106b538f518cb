//! Matches names between two runs of a program that was edited in between, so that a line is followed when it moves.
//!
//! The name of a block in an unknown program is a function and its line: `forward (model.py:88)`. Lines of one function
//! that all moved by the same number of lines count as the same lines. If the remaining lines are equally many in both
//! runs, they are matched in order. Lines that can't be matched are combined under the function's name. A function that
//! moved to another file is followed, if only one file has it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Survivor, naming};

/// A function and its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileFunction {
    file: String,
    name: String,
}

/// What the lines of a function hold, by line number.
type LineSurvivors = BTreeMap<u64, Survivor>;

/// Returns both lists under names that mean the same in both.
pub(super) fn followed(before: &[Survivor], after: &[Survivor]) -> (Vec<Survivor>, Vec<Survivor>) {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (by_function(before, &mut one), by_function(after, &mut other));
    // First match the functions that stayed in their files.
    let stayed: Vec<FileFunction> = before.keys().filter(|function| after.contains_key(function)).cloned().collect();
    for function in stayed {
        if let (Some(a), Some(b)) = (before.remove(&function), after.remove(&function)) {
            pair(&function, &function.file, a, b, &mut one, &mut other);
        }
    }
    let alone = |name: &str, of: &BTreeMap<FileFunction, LineSurvivors>| {
        let mut found = of.keys().filter(|function| function.name == name);
        found.next().cloned().filter(|_| found.next().is_none())
    };
    let names: BTreeSet<String> = before.keys().map(|function| function.name.clone()).collect();
    for name in names {
        // A name like `forward` may belong to many functions.
        if let (Some(old), Some(new)) = (alone(&name, &before), alone(&name, &after))
            && let (Some(a), Some(b)) = (before.remove(&old), after.remove(&new))
        {
            let file = format!("{} → {}", old.file, new.file);
            one.push(sum(&old, &file, a));
            other.push(sum(&old, &file, b));
        }
    }
    one.extend(before.into_values().flat_map(BTreeMap::into_values));
    other.extend(after.into_values().flat_map(BTreeMap::into_values));
    (one, other)
}

/// Groups the names that are lines by function; adds all other names to `rest` unchanged.
fn by_function(held: &[Survivor], rest: &mut Vec<Survivor>) -> BTreeMap<FileFunction, LineSurvivors> {
    let mut functions: BTreeMap<FileFunction, LineSurvivors> = BTreeMap::new();
    for held in held {
        let place =
            naming::place(&held.name).rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        match place.filter(|_| held.name.ends_with(')')) {
            Some((file, line)) => {
                let function = FileFunction { file: file.to_owned(), name: naming::thing(&held.name).to_owned() };
                functions.entry(function).or_default().insert(line, held.clone());
            }
            None => rest.push(held.clone()),
        }
    }
    functions
}

/// Matches the lines of one function in two runs.
fn pair(
    function: &FileFunction,
    file: &str,
    mut before: LineSurvivors,
    mut after: LineSurvivors,
    one: &mut Vec<Survivor>,
    other: &mut Vec<Survivor>,
) {
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    let shift = shift(&before, &after);
    for line in before.keys().copied().collect::<Vec<_>>() {
        if let Some(moved) = line.checked_add_signed(shift).filter(|moved| after.contains_key(moved)) {
            pairs.push((line, moved));
        }
    }
    let left = |lines: &LineSurvivors, taken: &dyn Fn(&(u64, u64)) -> u64| -> Vec<u64> {
        lines.keys().copied().filter(|line| !pairs.iter().any(|pair| taken(pair) == *line)).collect()
    };
    let (gone, new) = (left(&before, &|pair| pair.0), left(&after, &|pair| pair.1));
    if gone.len() == new.len() {
        pairs.extend(gone.into_iter().zip(new));
    }
    for (from, to) in pairs {
        if let (Some(a), Some(b)) = (before.remove(&from), after.remove(&to)) {
            let name = match from == to {
                true => a.name.clone(),
                false => format!("{} ({file}:{from} → {to})", function.name),
            };
            one.push(Survivor { name: name.clone(), ..a });
            other.push(Survivor { name, ..b });
        }
    }
    // If both runs have lines left, their match is unknown.
    if before.is_empty() || after.is_empty() {
        one.extend(before.into_values());
        other.extend(after.into_values());
    } else {
        one.push(sum(function, file, before));
        other.push(sum(function, file, after));
    }
}

/// By how many lines most of the function moved; the smallest shift if several are equally good.
fn shift(before: &LineSurvivors, after: &LineSurvivors) -> i64 {
    let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
    // A function with thousands of lines is generated code: it is taken as unmoved.
    if before.len().saturating_mul(after.len()) < 1 << 16 {
        for from in before.keys() {
            for to in after.keys() {
                *votes.entry(to.cast_signed().wrapping_sub(from.cast_signed())).or_default() += 1;
            }
        }
    }
    votes
        .into_iter()
        .max_by_key(|(shift, votes)| (*votes, std::cmp::Reverse(shift.unsigned_abs())))
        .map_or(0, |of| of.0)
}

fn sum(function: &FileFunction, file: &str, lines: LineSurvivors) -> Survivor {
    let most = lines.values().max_by_key(|held| held.bytes).map(|held| held.category);
    Survivor {
        name: format!("{} ({file})", function.name),
        category: most.unwrap_or_default(),
        bytes: lines.values().map(|held| held.bytes).sum(),
        blocks: lines.values().map(|held| held.blocks).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Category, differences};
    use crate::units::Bytes;

    fn held(of: &[(&str, u64)]) -> Vec<Survivor> {
        let one = |(name, mib): &(&str, u64)| Survivor {
            name: (*name).to_owned(),
            category: Category::Activation,
            bytes: Bytes::mib(*mib),
            blocks: 1,
        };
        of.iter().map(one).collect()
    }

    fn told(before: &[(&str, u64)], after: &[(&str, u64)]) -> Vec<(String, i128)> {
        let (before, after) = followed(&held(before), &held(after));
        let all = differences(&before, &after);
        all.into_iter().map(|of| (of.name.clone(), of.growth() >> 20)).collect()
    }

    #[test]
    fn lines_that_moved_together_are_the_same_lines() {
        let before =
            [("forward (m.py:10)", 4), ("forward (m.py:12)", 8), ("step (t.py:7)", 2), ("blocks.*.fc output", 1)];
        for shift in [-3_i64, 0, 3, 40] {
            let moved = |line: i64| line + shift;
            let names = [
                format!("forward (m.py:{})", moved(10)),
                format!("forward (m.py:{})", moved(12)),
                format!("step (t.py:{})", moved(7)),
            ];
            let after = [(&*names[0], 4), (&*names[1], 8), (&*names[2], 2), ("blocks.*.fc output", 1)];
            assert_eq!(told(&before, &after), [], "moved by {shift}");
            let after = [(&*names[0], 4), (&*names[1], 9), (&*names[2], 2), ("blocks.*.fc output", 1)];
            let grew = told(&before, &after);
            assert_eq!(grew.len(), 1, "{grew:?}");
            assert!(grew[0].0.starts_with("forward (m.py:12") && grew[0].1 == 1, "{grew:?}");
        }
    }

    #[test]
    fn a_line_that_is_new_is_new_and_what_cannot_be_told_stands_under_the_function() {
        let before = [("f (m.py:10)", 4), ("f (m.py:12)", 8)];
        let added = [("f (m.py:13)", 4), ("f (m.py:15)", 8), ("f (m.py:20)", 5)];
        assert_eq!(told(&before, &added), [("f (m.py:20)".to_owned(), 5)]);
        // Both changed, and the runs differ in the number of lines.
        let other = [("f (m.py:31)", 6), ("f (m.py:50)", 1), ("f (m.py:70)", 1), ("f (m.py:12)", 8)];
        assert_eq!(told(&before, &other), [("f (m.py)".to_owned(), 4)]);
    }

    #[test]
    fn a_function_is_followed_into_another_file_where_it_is_the_only_one() {
        let moved = [("loss (new.py:3)", 6)];
        assert_eq!(told(&[("loss (old.py:90)", 5)], &moved), [("loss (old.py → new.py)".to_owned(), 1)]);
        let several = [("forward (a.py:3)", 6), ("forward (b.py:3)", 6)];
        assert_eq!(told(&[("forward (old.py:90)", 5)], &several).len(), 3);
    }

    #[test]
    fn nothing_is_lost() {
        let before = [("f (m.py:1)", 1), ("f (m.py:2)", 2), ("g (m.py:9)", 4), ("workspaces", 8), ("h (x.py:1)", 16)];
        let after = [("f (m.py:5)", 32), ("g (n.py:9)", 64), ("g (o.py:9)", 128), ("h (y.py:4)", 256)];
        let sum = |held: &[Survivor]| held.iter().map(|held| held.bytes).sum::<Bytes>();
        let (one, other) = followed(&held(&before), &held(&after));
        assert_eq!((sum(&one), sum(&other)), (sum(&held(&before)), sum(&held(&after))));
    }
}
