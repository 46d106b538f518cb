//! How long a measured effect is highlighted, and how long it counts as news.

use std::time::Duration;

use crate::model::View;

/// How long an effect is highlighted.
const LOUD: Duration = Duration::from_secs(5);
/// How long a person needs at least to read it. In that time a fast lab trains hundreds of steps.
const NEWS: Duration = Duration::from_secs(20);

/// The last effect that was shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoudEffect(Option<ShownNews>);

#[derive(Clone, Copy, Debug)]
struct ShownNews {
    /// Its position in the event stream.
    position: u64,
    /// True if its measurement is complete.
    complete: bool,
    until: Duration,
    /// When it stops being news.
    old: Duration,
}

impl LoudEffect {
    /// Takes in the last effect of a view: it is highlighted when it is new, and again when it is complete.
    pub fn take(&mut self, view: &View, now: Duration) {
        let Some(effect) = view.effects.last() else {
            self.0 = None;
            return;
        };
        let (position, complete) = (effect.position, !effect.is_under_way());
        if self.0.is_none_or(|shown| (shown.position, shown.complete) != (position, complete)) {
            self.0 = Some(ShownNews { position, complete, until: now + LOUD, old: now + NEWS });
        }
    }

    /// True while it is news.
    pub fn is_news(&self, now: Duration) -> bool {
        self.0.is_some_and(|shown| now < shown.old)
    }

    /// When the highlight or the news ends, whichever is next; `None` once both have ended.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        self.0.and_then(|shown| [shown.until, shown.old].into_iter().find(|&change| now < change))
    }

    /// When the highlight ends; `None` if there is none.
    pub fn until(&self, now: Duration) -> Option<Duration> {
        self.0.map(|shown| shown.until).filter(|&until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EventKind, Lab};
    use crate::synthetic;

    #[test]
    fn an_effect_is_loud_when_it_before_and_when_it_is_known() {
        let mut lab = Lab::new();
        let (mut loud, mut now) = (LoudEffect::default(), Duration::ZERO);
        let (mut seen, mut before) = (Vec::new(), None);
        for event in synthetic::training_run() {
            lab.apply(&event);
            if !matches!(event.kind, EventKind::SwitchFlipped { .. } | EventKind::StepEnd(_)) {
                continue;
            }
            let view = lab.view();
            loud.take(&view, now);
            let last = view.effects.last().map(|effect| (effect.position, effect.is_under_way()));
            let until = loud.until(now);
            if last != before {
                assert_eq!(until, Some(now + LOUD), "news: {last:?}");
                seen.push(last);
            }
            before = last;
            now += Duration::from_secs(1);
        }
        assert!(seen.len() >= 4, "{seen:?}");
        assert_eq!(loud.until(now + LOUD), None);
        let old = loud.next_change(now + LOUD);
        assert!(old > Some(now + LOUD) && loud.is_news(now + LOUD), "it is silent, and can still be read: {old:?}");
        assert!(!loud.is_news(now + NEWS));
        assert_eq!(loud.next_change(now + NEWS), None);
        loud.take(&View::default(), now);
        assert_eq!(loud.until(now), None, "another run has none yet");
    }
}
