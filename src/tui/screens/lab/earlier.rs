//! Memory left behind by earlier steps, in contrast to what a step itself holds.

use crate::drawing::chart::Ink;
use crate::drawing::map::{Coloring, Tone};
use crate::model::{Category, Evidence, Profile};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// Its name in legends.
pub(super) const LABEL: &str = "earlier steps";
/// The age of the step's own blocks.
const THIS_STEP: Tone = Tone(0);

/// Categories that steps keep in a leak, the most likely first.
const KEPT: [Category; 3] = [Category::Activation, Category::Other, Category::Temporary];

/// From this many eighths of a row on, it has room of its own in the step's areas.
const SEEN: u128 = 4;

/// Bytes that a leak has kept from earlier steps and that were alive during a whole step, by category.
#[derive(Clone, Copy)]
pub(super) struct Earlier {
    by_category: [Bytes; Category::ALL.len()],
    /// The colour of the age that most of them have on the map.
    pub ink: Ink,
}

impl Earlier {
    /// The leak's bytes; `None` unless a leak was found that is visible in a step's curve of this many rows.
    pub fn of(stage: &Stage<'_>, profile: &Profile, rows: u16) -> Option<Self> {
        let mut left = stage.findings().iter().find_map(|finding| match finding.evidence {
            Evidence::Leak { held, .. } => Some(held),
            _ => None,
        })?;
        let ages = stage.states.lab.ages(stage.shown, &stage.picture.history);
        let older = ages.legend().into_iter().filter(|(age, ..)| *age != THIS_STEP);
        let (age, ..) = older.max_by_key(|(.., bytes)| *bytes)?;
        let of_map = Coloring::Age.ink(age);
        let fill = if stage.theme.is_colorless() { of_map.fill } else { "█" };
        let mut earlier = Self { by_category: Default::default(), ink: Ink { fill, ..of_map } };
        for category in KEPT {
            let held = profile.samples.iter().map(|sample| sample.by_category[category as usize]);
            let kept = held.min().unwrap_or_default().min(left);
            earlier.by_category[category as usize] = kept;
            left = Bytes(left.get() - kept.get());
        }
        let eighths = u128::from(earlier.bytes().get()) * 8 * u128::from(rows);
        (eighths >= SEEN * u128::from(profile.peak()?.allocated.get().max(1))).then_some(earlier)
    }

    /// The sum of these bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.by_category.iter().map(|bytes| bytes.get()).sum())
    }

    /// The bytes of a category in excess of this at a moment of the step that holds `bytes` by category.
    pub fn beyond(&self, bytes: [Bytes; Category::ALL.len()], category: Category) -> Bytes {
        let [held, earlier] = [bytes, self.by_category].map(|bytes| bytes[category as usize].get());
        Bytes(held.saturating_sub(earlier))
    }
}
