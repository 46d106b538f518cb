//! Which names hold memory at a moment, and how two moments differ.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::study::Survivor;
use super::view::Stacks;
use super::{Category, MemoryModel, NameId, Names, naming};
use vramlab_allocator::units::Bytes;
use vramlab_snapshot::frames::{FrameText, Origin};

/// Live blocks by name, with layers combined, the most bytes first. A block without a name is listed under its category.
#[must_use]
pub fn holdings(memory: &MemoryModel, names: &Names) -> Vec<Survivor> {
    held_by(memory, |name, category| line(names, name, category))
}

/// Live blocks by module, the most bytes first. The module is Python's name for the file of the innermost frame that is
/// neither PyTorch's nor Python's. A name without a stack gives the module itself.
#[must_use]
pub fn holdings_by_module(memory: &MemoryModel, names: &Names, stacks: &Stacks) -> Vec<Survivor> {
    let module = |name, category: Category| {
        let frame = inner_frame(names, stacks, name).map(|frame| frame.module());
        frame.unwrap_or_else(|| match names.get(name) {
            "" => category.label().to_owned(),
            text => naming::module(text),
        })
    };
    held_by(memory, module)
}

/// For each line of the program that calls a package: the line of that package that holds most of the memory.
#[must_use]
pub fn lines_within(memory: &MemoryModel, names: &Names, stacks: &Stacks) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeMap<String, Bytes>> = BTreeMap::new();
    for segment in memory.segments() {
        for block in segment.blocks().filter(|block| !block.pending) {
            let inner = inner_frame(names, stacks, block.name).filter(|frame| frame.origin() == Origin::Library);
            let Some(inner) = inner.map(|frame| frame.short()) else { continue };
            let line = line(names, block.name, block.category);
            // The name may already be a line of the package.
            let own = naming::place(&line);
            if !inner.starts_with(own) || own.is_empty() {
                *all.entry(line).or_default().entry(inner).or_default() += block.size;
            }
        }
    }
    let most = |lines: BTreeMap<String, Bytes>| lines.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line);
    all.into_iter().filter_map(|(name, lines)| Some((name, most(lines)?))).collect()
}

fn line(names: &Names, name: NameId, category: Category) -> String {
    match names.get(name) {
        "" => category.label().to_owned(),
        name => naming::starred(name),
    }
}

/// The innermost frame of a name's stack that is neither PyTorch's nor Python's.
fn inner_frame<'a>(names: &'a Names, stacks: &Stacks, name: NameId) -> Option<FrameText<'a>> {
    let mut frames = stacks.frames(name).iter().filter_map(|frame| FrameText::of(names.get(*frame)));
    frames.find(|frame| frame.origin() != Origin::Plumbing)
}

fn held_by(memory: &MemoryModel, key: impl Fn(NameId, Category) -> String) -> Vec<Survivor> {
    // Texts are made once per name.
    let mut keys: BTreeMap<(NameId, Category), String> = BTreeMap::new();
    let mut held: BTreeMap<String, ([Bytes; 9], u64)> = BTreeMap::new();
    for segment in memory.segments() {
        for block in segment.blocks().filter(|block| !block.pending) {
            let (name, category) = (block.name, block.category);
            let name = keys.entry((name, category)).or_insert_with(|| key(name, category)).clone();
            let (bytes, blocks) = held.entry(name).or_default();
            bytes[block.category as usize] += block.size;
            *blocks += 1;
        }
    }
    let survivor = |(name, (bytes, blocks)): (String, ([Bytes; 9], u64))| {
        let category = Category::ALL.into_iter().rev().max_by_key(|category| bytes[*category as usize]);
        Survivor { name, category: category.unwrap_or_default(), bytes: bytes.into_iter().sum(), blocks }
    };
    let mut held: Vec<Survivor> = held.into_iter().map(survivor).collect();
    held.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    held
}

/// Bytes and blocks of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Their bytes.
    pub bytes: Bytes,
    /// The number of blocks.
    pub blocks: u64,
}

/// What a name holds at two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The name.
    pub name: String,
    /// The category of most of its bytes.
    pub category: Category,
    /// At the first moment.
    pub before: Holding,
    /// At the second.
    pub after: Holding,
}

impl Difference {
    /// Bytes by which it grew; negative if it shrank.
    #[must_use]
    pub const fn growth(&self) -> i128 {
        self.after.bytes.get() as i128 - self.before.bytes.get() as i128
    }
}

/// The differences between two lists of holdings, from the largest growth to the largest decrease. Names that hold the
/// same in both are left out.
#[must_use]
pub fn differences(before: &[Survivor], after: &[Survivor]) -> Vec<Difference> {
    let by_name = |held: &'_ [Survivor]| -> BTreeMap<String, Survivor> {
        held.iter().map(|held| (held.name.clone(), held.clone())).collect()
    };
    let (before, after) = (by_name(before), by_name(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let holding = |held: Option<&Survivor>| {
        held.map_or(Holding::default(), |held| Holding { bytes: held.bytes, blocks: held.blocks })
    };
    let difference = |name: &String| {
        let (old, new) = (before.get(name), after.get(name));
        let category = new.or(old).map_or(Category::Other, |held| held.category);
        Difference { name: name.clone(), category, before: holding(old), after: holding(new) }
    };
    let mut all: Vec<Difference> =
        names.into_iter().map(difference).filter(|difference| difference.before != difference.after).collect();
    all.sort_by_key(|difference| std::cmp::Reverse(difference.growth()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lab, synthetic};

    #[test]
    fn holdings_are_all_that_is_allocated() {
        let mut lab = Lab::new();
        let mut most = 0;
        for (index, event) in synthetic::training_run().iter().enumerate() {
            lab.apply(event);
            if index % 97 == 0 {
                let held = holdings(lab.memory(), lab.names());
                let sum: Bytes = held.iter().map(|held| held.bytes).sum();
                assert_eq!(sum, lab.memory().allocated(), "after event {index}");
                assert!(held.is_sorted_by(|a, b| a.bytes >= b.bytes));
                most = most.max(held.len());
            }
        }
        assert!(most > 3);
    }

    #[test]
    fn what_grew_comes_before_what_shrank() {
        let held = |name: &str, mib, blocks| Survivor {
            name: name.to_owned(),
            category: Category::Activation,
            bytes: Bytes::mib(mib),
            blocks,
        };
        let before = [held("a", 5, 1), held("gone", 3, 2), held("same", 9, 9)];
        let after = [held("a", 7, 2), held("new", 4, 1), held("same", 9, 9)];
        let all = differences(&before, &after);
        let told: Vec<(&str, i128)> =
            all.iter().map(|difference| (&*difference.name, difference.growth() >> 20)).collect();
        assert_eq!(told, [("new", 4), ("a", 2), ("gone", -3)]);
        assert_eq!(all[1].after, Holding { bytes: Bytes::mib(7), blocks: 2 });
    }
}
