//! How fast simulated time passes for a person who watches.

use std::time::{Duration, Instant};

use vramlab_model::{Event, EventKind, Micros};
use vramlab_train::{Answer, Observer, SafePoint};

/// The speed of a simulated device's clock. A real device has its own speed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Speed {
    /// As fast as this machine can.
    #[default]
    Max,
    /// This many times as fast as the card.
    Times(f64),
    /// As fast as the card, or faster if a step would take longer than [`LONGEST`].
    Watchable,
}

/// The longest step of [`Speed::Watchable`].
const LONGEST: Duration = Duration::from_millis(300);

/// Slows a run down so that its clock keeps pace with real time. Pauses are not made up for: clocks are compared from
/// the beginning of each step.
#[derive(Debug)]
pub struct Pace {
    speed: Speed,
    now: Micros,
    /// When the current step began, on both clocks; `None` before the first step.
    begun: Option<(Instant, Micros)>,
    last_step: Duration,
}

impl Pace {
    /// A pace for `speed`.
    #[must_use]
    pub const fn new(speed: Speed) -> Self {
        Self { speed, now: Micros(0), begun: None, last_step: Duration::ZERO }
    }

    /// Notes the time of an event.
    pub fn observe(&mut self, event: &Event) {
        self.now = event.time;
        match &event.kind {
            EventKind::StepBegin { .. } => self.begun = Some((Instant::now(), event.time)),
            EventKind::StepEnd(report) => self.last_step = Duration::from_micros(report.total.0),
            _ => {}
        }
    }

    /// How long to wait until real time has caught up with simulated time.
    #[must_use]
    pub fn due(&self) -> Duration {
        let Some((wall, simulated)) = self.begun else { return Duration::ZERO };
        let passed = Duration::from_micros(self.now.0.saturating_sub(simulated.0));
        let passed = match self.speed {
            Speed::Max => return Duration::ZERO,
            Speed::Times(factor) => Duration::try_from_secs_f64(passed.as_secs_f64() / factor).unwrap_or(LONGEST),
            Speed::Watchable if self.last_step > LONGEST => {
                passed.mul_f64(LONGEST.as_secs_f64() / self.last_step.as_secs_f64())
            }
            Speed::Watchable => passed.min(LONGEST),
        };
        passed.saturating_sub(wall.elapsed())
    }
}

/// Paces a run without a front end.
impl Observer for Pace {
    fn event(&mut self, event: Event) {
        self.observe(&event);
    }

    fn safe_point(&mut self, _: SafePoint) -> Answer {
        std::thread::sleep(self.due());
        Answer::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pace: &mut Pace, millis: u64, kind: EventKind) {
        pace.observe(&Event::new(Micros(millis * 1000), kind));
    }

    #[test]
    fn simulated_time_is_waited_for() {
        for (speed, most) in
            [(Speed::Max, 0), (Speed::Times(4.0), 50), (Speed::Times(0.5), 400), (Speed::Watchable, 200)]
        {
            let mut pace = Pace::new(speed);
            at(&mut pace, 1000, EventKind::StepBegin { step: 0 });
            at(&mut pace, 1200, EventKind::OpEnd);
            let (due, most) = (pace.due(), Duration::from_millis(most));
            assert!(due <= most && due + Duration::from_millis(40) >= most, "{speed:?}: {due:?}");
        }
    }

    #[test]
    fn a_step_of_seconds_is_cut_short() {
        let mut pace = Pace::new(Speed::Watchable);
        at(&mut pace, 0, EventKind::StepBegin { step: 0 });
        at(&mut pace, 5000, EventKind::OpEnd);
        assert!(pace.due() <= LONGEST);
    }
}
