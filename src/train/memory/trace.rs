//! Turns the allocator's history into events of the model.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use vramlab_allocator::{OutOfMemory, TraceEvent, TraceSink};
use vramlab_model::{Category, EventKind, FailedRequest, NameId};

/// Where the allocator writes its history until it is turned into events.
#[derive(Clone, Default)]
pub(super) struct Journal(Rc<RefCell<Vec<TraceEvent>>>);

impl TraceSink for Journal {
    fn trace(&mut self, event: &TraceEvent) {
        self.0.borrow_mut().push(*event);
    }
}

impl Journal {
    /// Whether nothing was noted since the last [`Journal::take`].
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Hands out what was noted, oldest first, as events that concern `name`.
    pub fn take(&self, category: Category, name: NameId, mut tell: impl FnMut(EventKind)) {
        for event in self.0.borrow_mut().drain(..) {
            tell(EventKind::of_trace(&event, category, name));
        }
    }

    /// The same if the last request, for `name`, failed: the error knows more than the history.
    pub fn take_failure(&self, error: &OutOfMemory, name: NameId, mut tell: impl FnMut(EventKind)) {
        let last = self.0.borrow_mut().pop();
        debug_assert!(matches!(last, Some(TraceEvent::Oom { .. })), "the failure is noted last");
        self.take(Category::Other, NameId::NONE, &mut tell);
        tell(EventKind::Oom(Arc::new(FailedRequest::new(error, name))));
    }
}
