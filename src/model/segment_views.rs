//! Segments for screens, copied only where they changed.

use std::sync::Arc;

use super::memory::MemoryModel;
use super::view::SegmentView;

/// The segments of the last view, so that the next view copies only those that changed.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentViews {
    versions: Vec<(u64, u64)>,
    views: Arc<Vec<SegmentView>>,
}

impl SegmentViews {
    /// The segments of `memory`.
    pub fn update(&mut self, memory: &MemoryModel) -> Arc<Vec<SegmentView>> {
        let versions = || memory.segments().map(|segment| segment.version());
        if !versions().eq(self.versions.iter().copied()) {
            // Both lists are in address order.
            let mut shown = self.versions.iter().zip(self.views.iter()).peekable();
            let views = memory.segments().map(|segment| {
                while shown.next_if(|(_, view)| view.address < segment.address()).is_some() {}
                match shown.peek() {
                    Some((version, view)) if **version == segment.version() => (*view).clone(),
                    _ => segment.view(),
                }
            });
            let views = Arc::new(views.collect());
            (self.versions, self.views) = (versions().collect(), views);
        }
        Arc::clone(&self.views)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn what_changed_is_copied_anew_and_all_the_rest_is_shared() {
        let mut memory = MemoryModel::new();
        let mut views = SegmentViews::default();
        let mut before = views.update(&memory);
        let mut shared = 0;
        for event in synthetic::training_run() {
            memory.apply(&event).unwrap();
            let fresh: Vec<SegmentView> = memory.segments().map(|segment| segment.view()).collect();
            let after = views.update(&memory);
            assert_eq!(*after, fresh);
            assert!(Arc::ptr_eq(&after, &views.update(&memory)), "nothing changed meanwhile");
            let same = |(old, new): (&SegmentView, &SegmentView)| Arc::ptr_eq(&old.blocks, &new.blocks);
            shared += before.iter().zip(after.iter()).filter(|&pair| same(pair)).count();
            before = after;
        }
        assert!(shared > 1000, "{shared}");
    }
}
