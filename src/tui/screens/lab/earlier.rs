//! What earlier steps left behind, told apart from what a step itself holds.

use crate::drawing::chart::Ink;
use crate::drawing::map::{Coloring, Tone};
use crate::model::{Category, Profile};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// What a legend calls it.
pub(super) const LABEL: &str = "earlier steps";
/// The age of what the step itself took.
const THIS_STEP: Tone = Tone(0);

/// Bytes that a step would give back and that were alive all through it, by category: while something leaks, those of earlier steps.
#[derive(Clone, Copy)]
pub(super) struct Earlier {
    by_category: [Bytes; Category::ALL.len()],
    /// The colour of the age that most of them have on the map.
    pub ink: Ink,
}

impl Earlier {
    /// `None` unless a leak was found that is seen in the step.
    pub fn of(stage: &Stage<'_>, profile: &Profile) -> Option<Self> {
        if !super::leaks(stage) {
            return None;
        }
        let ages = stage.states.lab.ages(stage.shown, &stage.picture.history);
        let older = ages.legend().into_iter().filter(|(age, ..)| *age != THIS_STEP);
        let (age, ..) = older.max_by_key(|(.., bytes)| *bytes)?;
        let least = |category: Category| {
            let is_given_back = matches!(category, Category::Activation | Category::Temporary | Category::Other);
            let held = profile.samples.iter().map(|sample| sample.by_category[category as usize]);
            held.min().filter(|_| is_given_back).unwrap_or_default()
        };
        let of_map = Coloring::Age.ink(age);
        let fill = if stage.theme.is_colorless() { of_map.fill } else { "█" };
        let earlier = Self { by_category: Category::ALL.map(least), ink: Ink { fill, ..of_map } };
        (earlier.bytes() > Bytes::ZERO).then_some(earlier)
    }

    /// All of it.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.by_category.iter().map(|bytes| bytes.get()).sum())
    }

    /// What of a category a moment of the step holds beyond it, which holds `bytes` by category.
    pub fn beyond(&self, bytes: [Bytes; Category::ALL.len()], category: Category) -> Bytes {
        let [held, earlier] = [bytes, self.by_category].map(|bytes| bytes[category as usize].get());
        Bytes(held.saturating_sub(earlier))
    }
}
