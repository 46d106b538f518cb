//! The curves that screens lay over each other: the current step, the last whole one, and one for comparison.

use std::sync::Arc;

use super::profile::Profile;

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

    /// The number of samples that only a copy of the curves keeps alive.
    pub fn samples(&self) -> usize {
        let curves = [self.under_way.as_ref(), self.last.as_deref()];
        curves.into_iter().flatten().map(|profile| profile.samples.len()).sum()
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
