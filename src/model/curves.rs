//! The curves that screens lay over each other: of the step under way, the last whole one, and one to compare it with.

use std::sync::Arc;

use super::profile::Profile;

/// The curves of steps, of which the one under way is still being recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Curves {
    /// The step under way.
    pub under_way: Option<Profile>,
    /// The last whole one.
    pub last: Option<Arc<Profile>>,
    /// The last whole one before something was changed last.
    pub before: Option<Arc<Profile>>,
}

impl Curves {
    /// A step begins after so many others, at this position of the event stream.
    pub fn begin(&mut self, step: u64, position: u64) {
        self.under_way = Some(Profile::begin(step, position));
    }

    /// The step under way is whole.
    pub fn end(&mut self) {
        if let Some(mut profile) = self.under_way.take() {
            // States to go on from keep it for long.
            profile.samples.shrink_to_fit();
            self.last = Some(Arc::new(profile));
        }
    }

    /// Something is changed: the last whole step is what later ones are laid over.
    pub fn keep(&mut self) {
        if let Some(last) = &self.last {
            self.before = Some(Arc::clone(last));
        }
    }

    /// Samples that a copy of them holds by itself.
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
