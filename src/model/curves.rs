//! The curves that screens lay over each other: the current step, the last whole one, and one for comparison.

use std::sync::Arc;

use super::profile::{PackedProfile, Profile};

/// The curves of steps. The current step's is still being recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Curves {
    /// The step under way.
    pub under_way: Option<Profile>,
    /// The last whole one.
    pub last: Option<Arc<Profile>>,
    /// The last whole step before the last change.
    pub before: Option<Arc<Profile>>,
}

impl Curves {
    /// Begins a step: its number, and its position in the event stream.
    pub fn begin(&mut self, step: u64, position: u64) {
        // Most steps are as long as the one before.
        let samples = self.last.as_ref().map_or(64, |last| last.samples.len());
        self.under_way = Some(Profile::begin(step, position, samples));
    }

    /// Ends the current step.
    pub fn end(&mut self) {
        if let Some(mut profile) = self.under_way.take() {
            // Saved states keep the profile for a long time.
            profile.samples.shrink_to_fit();
            self.last = Some(Arc::new(profile));
        }
    }

    /// Keeps the last whole step as the curve that later ones are compared with, because something is about to change.
    pub fn keep(&mut self) {
        if let Some(last) = &self.last {
            self.before = Some(Arc::clone(last));
        }
    }

    /// The curves in a small part of their bytes.
    pub fn pack(&self) -> PackedCurves {
        PackedCurves {
            under_way: self.under_way.as_ref().map(PackedProfile::of),
            last: self.last.as_deref().map(PackedProfile::of),
            before: self.before.clone(),
        }
    }
}

/// [`Curves`] of a state that is kept for long.
#[derive(Clone, Debug)]
pub(crate) struct PackedCurves {
    under_way: Option<PackedProfile>,
    last: Option<PackedProfile>,
    /// The run keeps this one as well, for as long as nothing changes.
    before: Option<Arc<Profile>>,
}

impl PackedCurves {
    /// The curves.
    pub fn unpack(&self) -> Curves {
        Curves {
            under_way: self.under_way.as_ref().map(PackedProfile::unpack),
            last: self.last.as_ref().map(|last| Arc::new(last.unpack())),
            before: self.before.clone(),
        }
    }

    /// The bytes of what only these curves keep alive.
    pub fn weight(&self) -> usize {
        [&self.under_way, &self.last].into_iter().flatten().map(PackedProfile::weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_the_last_whole_step_for_comparison() {
        let mut curves = Curves::default();
        let steps = |curves: &Curves| {
            let step = |profile: &Option<Arc<Profile>>| profile.as_ref().map(|profile| profile.step);
            (curves.under_way.as_ref().map(|profile| profile.step), step(&curves.last), step(&curves.before))
        };
        curves.keep();
        curves.begin(0, 10);
        assert_eq!(steps(&curves), (Some(0), None, None), "there was none to keep");
        curves.end();
        curves.keep();
        curves.begin(1, 20);
        assert_eq!(steps(&curves), (Some(1), Some(0), Some(0)));
        curves.end();
        curves.begin(2, 30);
        curves.begin(3, 40);
        assert_eq!(steps(&curves), (Some(3), Some(1), Some(0)), "a step that failed is never whole");
    }
}
