//! The moment that figures and blocks are drawn of: while steps follow each other fast, the fullest one of each interval.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Occupancy, RunState, View};
use crate::source::Picture;
use crate::units::Bytes;

/// While steps are shorter than this, the figures and the block map show the fullest moment of each such interval:
/// what changes faster can't be read, and costs bytes.
const HOLD: Duration = Duration::from_millis(1000);
/// A running lab's figures are renewed at most this often.
const REFRESH: Duration = Duration::from_millis(250);

/// The view that figures and blocks are drawn of.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    shown: Seen,
    /// The fullest view of the interval under way, and when the interval began.
    fullest: Option<Seen>,
    interval: Duration,
}

/// A view, and where the memory of a ghost stood at the same event.
#[derive(Clone, Debug, Default)]
struct Seen {
    view: Arc<View>,
    ghost: Option<Arc<Occupancy>>,
}

impl Seen {
    fn of(picture: &Picture) -> Self {
        let ghost = picture.ghost.as_ref().and_then(|ghost| ghost.occupancy.clone());
        Self { view: Arc::clone(&picture.view), ghost }
    }

    fn allocated(&self) -> Bytes {
        self.view.ledger.allocated()
    }
}

impl Held {
    /// The view to draw.
    pub fn shown(&self) -> &View {
        &self.shown.view
    }

    /// Where the memory of a ghost stood then.
    pub fn ghost(&self) -> Option<&Occupancy> {
        self.shown.ghost.as_deref()
    }

    /// Takes note of a picture that comes after `before`.
    pub fn take(&mut self, picture: &Picture, before: &Picture, now: Duration) {
        let moved = picture.run != before.run || picture.cursor != before.cursor;
        let seen = Seen::of(picture);
        if moved || !holds_fullest(picture) {
            if moved || picture.run != RunState::Running || now >= self.interval + REFRESH {
                self.show(seen, now);
            }
            return;
        }
        if self.fullest.as_ref().is_none_or(|fullest| seen.allocated() >= fullest.allocated()) {
            self.fullest = Some(seen);
        }
        if now >= self.interval + HOLD
            && let Some(fullest) = self.fullest.take()
        {
            self.show(fullest, now);
        }
    }

    fn show(&mut self, seen: Seen, now: Duration) {
        self.shown = seen;
        self.fullest = None;
        self.interval = now;
    }
}

/// Whether of such a picture the fullest moment of an interval is drawn.
pub(super) fn holds_fullest(picture: &Picture) -> bool {
    picture.is_now() && picture.run == RunState::Running && is_fast(&picture.view)
}

/// Steps follow each other faster than an eye can tell.
fn is_fast(view: &View) -> bool {
    let median = Duration::from_micros(view.steps.median.0);
    view.steps.finished < 2 || median < HOLD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Ledger, Micros, StepsView};
    use crate::source::{Cursor, Extent};

    /// What is held, and the last picture.
    #[derive(Default)]
    struct Watched {
        held: Held,
        latest: Picture,
    }

    impl Watched {
        /// What is shown once `picture` has come, so many milliseconds after the start.
        fn at(&mut self, millis: u64, picture: Picture) -> u64 {
            self.held.take(&picture, &self.latest, Duration::from_millis(millis));
            self.latest = picture;
            self.held.shown().ledger.live.0
        }
    }

    /// A lab whose steps take so many milliseconds, with so much allocated.
    fn picture(run: RunState, millis: u64, allocated: u64) -> Picture {
        let steps = StepsView { finished: 9, median: Micros(1000 * millis), ..StepsView::default() };
        let ledger = Ledger { live: Bytes(allocated), ..Ledger::default() };
        let view = View { run: run.clone(), steps, ledger, ..View::default() };
        Picture { view: Arc::new(view), run, extent: Extent { grows: true, ..Extent::default() }, ..Picture::default() }
    }

    fn fast(allocated: u64) -> Picture {
        picture(RunState::Running, 20, allocated)
    }

    #[test]
    fn while_steps_are_fast_the_fullest_moment_of_each_interval_is_shown() {
        let mut lab = Watched::default();
        assert_eq!(lab.at(100, fast(500)), 500, "the first picture is shown at once");
        assert!(holds_fullest(&lab.latest));
        assert_eq!(lab.at(300, fast(900)), 500, "the interval is not over");
        assert_eq!(lab.at(700, fast(400)), 500);
        assert_eq!(lab.at(1099, fast(600)), 500);
        assert_eq!(lab.at(1100, fast(300)), 900, "the fullest picture of the interval");
        assert_eq!(lab.at(2200, fast(200)), 200, "and of the next one, the next");
        assert_eq!(lab.at(2250, picture(RunState::Paused, 20, 100)), 100, "a paused lab is shown as it is");
        assert!(!holds_fullest(&lab.latest));
    }

    #[test]
    fn a_cursor_that_looks_back_is_shown_as_it_stands() {
        let mut lab = Watched::default();
        lab.at(100, fast(500));
        let back = |position, allocated| Picture { cursor: Cursor::At(position), ..fast(allocated) };
        assert_eq!(lab.at(150, back(7, 30)), 30);
        assert!(!holds_fullest(&lab.latest));
        assert_eq!(lab.at(180, back(8, 20)), 20, "each move at once, also to less");
        assert_eq!(lab.at(200, fast(450)), 450, "and so is the way back to now");
    }

    #[test]
    fn slow_steps_are_shown_as_they_go() {
        let mut lab = Watched::default();
        let slow = |allocated| picture(RunState::Running, 3000, allocated);
        assert_eq!(lab.at(1000, slow(5)), 5);
        assert_eq!(lab.at(1100, slow(4)), 5, "no more often than can be read");
        assert_eq!(lab.at(1260, slow(3)), 3);
    }
}
