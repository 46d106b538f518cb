//! A moment of a run, in the user's terms.

use std::str::FromStr;

use thiserror::Error;

use super::devices::Devices;
use crate::model::EventKind;
use crate::recording::RecordingError;
use crate::source::Whole;

/// A moment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportMoment {
    /// Its end.
    #[default]
    Now,
    /// When most memory was allocated, on any device: the first time, if the peak was reached several times.
    Peak,
    /// Right after the last request that finally failed.
    Oom,
    /// The start of the step before which this many steps were finished.
    Step(u64),
    /// After this many events.
    Event(u64),
}

/// The run has no such moment.
#[derive(Debug, Error)]
pub enum MomentError {
    /// The events can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// No request failed.
    #[error("no request for memory failed in it; give --at peak or --at now")]
    NoOom,
    /// There is no such step.
    #[error("step {0} is not in it: {1}; give --at another step")]
    NoStep(u64, String),
    /// There are fewer events.
    #[error("it has {1} events, not {0}; give --at a smaller number")]
    NoEvent(u64, u64),
}

impl FromStr for ExportMoment {
    type Err = String;

    /// Reads `now`, `peak`, `oom`, `step:12`, `step 12` and `event:3000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim_start_matches([':', '=', ' ']).parse::<u64>().ok();
        let wanted = match text.trim() {
            "now" => Some(Self::Now),
            "peak" => Some(Self::Peak),
            "oom" => Some(Self::Oom),
            other => match (other.strip_prefix("step"), other.strip_prefix("event")) {
                (Some(step), _) => number(step).map(Self::Step),
                (_, Some(event)) => number(event).map(Self::Event),
                _ => None,
            },
        };
        wanted.ok_or_else(|| "a moment is now, peak, oom, step:N or event:N, such as step:12".to_owned())
    }
}

impl ExportMoment {
    /// The number of events before it.
    ///
    /// # Errors
    /// [`MomentError`].
    pub fn position(self, whole: &Whole) -> Result<u64, MomentError> {
        match self {
            Self::Now => Ok(whole.end()),
            Self::Peak => Ok(peak(whole)?),
            Self::Oom => last(whole, |kind| matches!(kind, EventKind::Oom(_)))?.ok_or(MomentError::NoOom),
            Self::Step(step) => {
                match last(whole, |kind| matches!(kind, EventKind::StepBegin { step: s } if *s == step))? {
                    Some(position) => Ok(position),
                    None => Err(MomentError::NoStep(step, steps(whole)?)),
                }
            }
            Self::Event(event) if event > whole.end() => Err(MomentError::NoEvent(event, whole.end())),
            Self::Event(event) => Ok(event),
        }
    }
}

fn peak(whole: &Whole) -> Result<u64, RecordingError> {
    let (mut devices, mut peak, mut position) = (Devices::default(), 0, 0);
    whole.each(0..whole.end(), |index, event| {
        let device = devices.apply(event);
        let allocated = device.map_or(0, |device| device.state().statistics().allocated_bytes.all.current);
        if allocated > peak {
            (peak, position) = (allocated, index + 1);
        }
        Ok::<_, RecordingError>(())
    })?;
    Ok(position)
}

/// The position after the last event of a kind.
fn last(whole: &Whole, wanted: impl Fn(&EventKind) -> bool) -> Result<Option<u64>, RecordingError> {
    let mut found = None;
    whole.each(0..whole.end(), |index, event| {
        if wanted(&event.kind) {
            found = Some(index + 1);
        }
        Ok::<_, RecordingError>(())
    })?;
    Ok(found)
}

/// A description of which steps exist.
fn steps(whole: &Whole) -> Result<String, RecordingError> {
    let (mut first, mut most) = (u64::MAX, 0);
    whole.each(0..whole.end(), |_, event| {
        if let EventKind::StepBegin { step } = event.kind {
            (first, most) = (first.min(step), most.max(step));
        }
        Ok::<_, RecordingError>(())
    })?;
    Ok(if first > most { "it has no steps".to_owned() } else { format!("it has {first} to {most}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        for (text, moment) in [
            ("now", ExportMoment::Now),
            ("peak", ExportMoment::Peak),
            ("oom", ExportMoment::Oom),
            ("step 12", ExportMoment::Step(12)),
            ("step:12", ExportMoment::Step(12)),
            ("step=0", ExportMoment::Step(0)),
            ("event:3000", ExportMoment::Event(3000)),
        ] {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        for wrong in ["", "then", "step", "step:-1", "12", "event"] {
            assert!(wrong.parse::<ExportMoment>().unwrap_err().contains("step:N"), "{wrong}");
        }
    }
}
