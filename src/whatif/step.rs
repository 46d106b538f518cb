//! The requests of a step: listed as they were read, or derived from a step of a smaller model.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::block_number::BlockNumber;

/// The order in which a step allocates and frees blocks.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Structure {
    pub moves: Vec<Move>,
    /// The blocks that exist at the end, by number.
    pub left: Vec<BlockNumber>,
}

/// An allocation or a free. The blocks that the step before left come first in the numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Move {
    /// Allocates the next block, of the next size.
    Take(BlockNumber),
    Give(BlockNumber),
}

/// The requests of one step after the first: about eight bytes per block, or per different size. Steps of the same
/// structure share it.
#[derive(Clone, Debug)]
pub struct Step(StepRequests);

#[derive(Clone, Debug)]
enum StepRequests {
    Listed(Arc<Structure>, Box<[u64]>),
    /// The sizes of its blocks, in the numbering of the likeness.
    Told(Arc<StepLikeness>, Box<[u64]>),
}

impl Step {
    pub(super) const fn listed(structure: Arc<Structure>, sizes: Box<[u64]>) -> Self {
        Self(StepRequests::Listed(structure, sizes))
    }

    /// Approximate bytes of memory that it takes by itself.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match &self.0 {
            StepRequests::Listed(_, sizes) | StepRequests::Told(_, sizes) => size_of_val(&**sizes),
        }
    }

    pub(super) fn structure(&self) -> &Arc<Structure> {
        match &self.0 {
            StepRequests::Listed(structure, _) => structure,
            StepRequests::Told(likeness, _) => &likeness.large,
        }
    }

    /// The number of blocks that it allocates.
    #[must_use]
    pub fn blocks(&self) -> usize {
        match &self.0 {
            StepRequests::Listed(_, sizes) => sizes.len(),
            StepRequests::Told(likeness, _) => likeness.places.len(),
        }
    }

    /// True if it allocates and frees blocks in the same order as another step.
    #[must_use]
    pub fn is_of_one_structure_with(&self, other: &Self) -> bool {
        self.structure() == other.structure()
    }

    /// The number of blocks that the step before it left, which is also how many it leaves. Their numbers come first.
    pub(super) fn left(&self) -> usize {
        self.structure().left.len()
    }

    /// The sizes of the blocks that it leaves.
    pub(super) fn left_sizes(&self) -> impl Iterator<Item = u64> {
        // The step's own blocks are numbered in the order of their allocation.
        self.structure().left.iter().map(|name| self.size((*name as usize).saturating_sub(self.left())))
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        (0..self.blocks()).map(|place| self.size(place))
    }

    /// The size of the block that it allocates at index `place`.
    #[inline]
    pub(super) fn size(&self, place: usize) -> u64 {
        let size = match &self.0 {
            StepRequests::Listed(_, sizes) => sizes.get(place),
            StepRequests::Told(likeness, sizes) => {
                likeness.places.get(place).and_then(|number| sizes.get(*number as usize))
            }
        };
        size.copied().unwrap_or_default()
    }
}

/// Derives the steps of a model from the steps of the same model with fewer layers.
///
/// Layers are alike, so the small model makes every request of the large model too, but less often. Steps of both
/// models show which requests are of one kind: those that have the same sizes in all of these steps. Another step of
/// the small model then gives the size of each kind, as long as the requests of a kind still agree. A request whose
/// size is the same in all steps and that has no counterpart in the small model does not depend on the batch: it
/// belongs to the optimizer, like the norms of all gradients.
#[derive(Debug)]
pub struct StepLikeness {
    small: Arc<Structure>,
    large: Arc<Structure>,
    /// For each block of the small model, the index of its size.
    kinds: Box<[u32]>,
    /// For each block of the large model, the index of its size.
    places: Box<[u32]>,
    /// Sizes that don't come from the small model, numbered after the others.
    constants: Box<[u64]>,
    /// The number of sizes that come from the small model.
    told: usize,
}

impl StepLikeness {
    /// The likeness that these pairs of steps show, each model with one structure; `None` if the large model makes a
    /// request that the small one does not.
    #[must_use]
    pub fn of(steps: &[(&Step, &Step)]) -> Option<Self> {
        let (small, large) = *steps.first()?;
        let alike = |(s, l): &(&Step, &Step)| s.is_of_one_structure_with(small) && l.is_of_one_structure_with(large);
        if !steps.iter().all(alike) {
            return None;
        }
        let mut numbers: HashMap<Vec<u64>, u32> = HashMap::new();
        let mut kinds = Vec::with_capacity(small.blocks());
        for place in 0..small.blocks() {
            let next = u32::try_from(numbers.len()).ok()?;
            kinds.push(*numbers.entry(steps.iter().map(|(small, _)| small.size(place)).collect()).or_insert(next));
        }
        let told = numbers.len();
        let (mut places, mut constants) = (Vec::with_capacity(large.blocks()), Vec::new());
        for place in 0..large.blocks() {
            let sizes: Vec<u64> = steps.iter().map(|(_, large)| large.size(place)).collect();
            let next = u32::try_from(numbers.len()).ok()?;
            let size = *sizes.first()?;
            let is_constant = sizes.iter().all(|other| *other == size);
            let number = match numbers.entry(sizes) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(_) if !is_constant => return None,
                Entry::Vacant(vacant) => {
                    constants.push(size);
                    *vacant.insert(next)
                }
            };
            places.push(number);
        }
        Some(Self {
            small: Arc::clone(small.structure()),
            large: Arc::clone(large.structure()),
            kinds: kinds.into(),
            places: places.into(),
            constants: constants.into(),
            told,
        })
    }

    /// The large model's step for a step of the small model; `None` if requests of one kind disagree in it.
    #[must_use]
    pub fn step(this: &Arc<Self>, small: &Step) -> Option<Step> {
        if *small.structure() != this.small {
            return None;
        }
        let mut sizes: Vec<Option<u64>> = vec![None; this.told];
        for (kind, size) in this.kinds.iter().zip(small.sizes()) {
            let known = sizes.get_mut(*kind as usize)?;
            if known.is_some_and(|known| known != size) {
                return None;
            }
            *known = Some(size);
        }
        let mut all = sizes.into_iter().collect::<Option<Vec<u64>>>()?;
        all.extend(&this.constants);
        Some(Step(StepRequests::Told(Arc::clone(this), all.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(sizes: &[u64]) -> Step {
        let moves = (0..).zip(sizes).map(|(number, _)| Move::Take(number)).collect();
        Step::listed(Arc::new(Structure { moves, left: Vec::new() }), sizes.into())
    }

    #[test]
    fn a_small_model_tells_what_a_large_one_asks_until_its_kinds_part() {
        // Two kinds that differ in one of the steps, twice as many of them in the large model, and a constant of its own.
        let small = [[8, 16, 4], [9, 18, 4], [10, 18, 4]].map(|sizes| step(&sizes));
        let large = [[8, 16, 8, 16, 4, 77], [9, 18, 9, 18, 4, 77], [10, 18, 10, 18, 4, 77]].map(|sizes| step(&sizes));
        let pairs: Vec<_> = small.iter().zip(&large).collect();
        let likeness = Arc::new(StepLikeness::of(&pairs).unwrap());
        let told = StepLikeness::step(&likeness, &step(&[50, 60, 4])).unwrap();
        assert!(told.sizes().eq([50, 60, 50, 60, 4, 77]));
        assert!(told.is_of_one_structure_with(&large[0]));
        assert!(StepLikeness::step(&likeness, &step(&[50, 60])).is_none(), "another structure");
        // Two requests that had the same size so far must not differ later.
        let [first, second] = [step(&[8, 8]), step(&[9, 9])];
        let [twice, again] = [step(&[8, 8, 8]), step(&[9, 9, 9])];
        let likeness = Arc::new(StepLikeness::of(&[(&first, &twice), (&second, &again)]).unwrap());
        assert!(StepLikeness::step(&likeness, &step(&[10, 10])).is_some());
        assert!(StepLikeness::step(&likeness, &step(&[10, 12])).is_none());
        // The large model makes a request that the small one does not.
        assert!(StepLikeness::of(&[(&first, &step(&[8, 7])), (&second, &step(&[9, 5]))]).is_none());
    }
}
