//! Warnings before a run on the processor that takes long, or needs more memory than there is.

use std::time::Duration;

use super::output::warn;
use crate::fit;
use crate::model::Micros;
use crate::session::LabSpec;

/// How long to examine a run before it starts.
const PATIENCE: Duration = Duration::from_secs(2);
/// A step longer than this is announced, and so is a search, in microseconds.
const LONG_STEP: Micros = Micros(5_000_000);
const LONG_SEARCH: Micros = Micros(20_000_000);

/// Announces a run whose steps take long, or which needs more memory than there is.
pub(super) fn announce(spec: &LabSpec) {
    let Some(foreseen) = spec.foresee(PATIENCE) else { return };
    let name = &spec.workload.name;
    let (needs, has) = (foreseen.needs, foreseen.has);
    let least = if foreseen.whole { "" } else { "more than " };
    if needs > has {
        warn(format_args!(
            "a step of {name} needs {least}{needs}, and there are {has} for it on the processor: it will run out of memory; choose \
             smaller sizes or a smaller --batch"
        ));
    } else if foreseen.step > LONG_STEP || !foreseen.whole {
        warn(format_args!(
            "a step of {name} takes {} on this processor, by estimate, and {least}{needs} of its {has}; Ctrl-C ends it",
            duration(foreseen.step, foreseen.whole)
        ));
    }
}

/// Announces a search that takes long.
pub(super) fn announce_search(spec: &LabSpec, steps: u64, switches: bool) {
    let Some(foreseen) = fit::foresee(spec, steps, switches, PATIENCE) else { return };
    if foreseen.time > LONG_SEARCH || !foreseen.whole {
        let runs = if foreseen.whole { String::new() } else { "more than ".to_owned() };
        warn(format_args!(
            "this search tries {runs}{} runs and takes {} on this processor, by estimate; a smaller --limit, --batch-only or fewer \
             --steps make it shorter, and Ctrl-C prints what is known",
            foreseen.probes,
            duration(foreseen.time, foreseen.whole)
        ));
    }
}

/// A time in words, to the precision of an estimate.
fn duration(time: Micros, whole: bool) -> String {
    let about = if whole { "about" } else { "more than" };
    match time.0 / 1_000_000 {
        seconds @ 0..=99 => format!("{about} {} s", seconds.max(1)),
        seconds @ 100..=5_999 => format!("{about} {} minutes", seconds.div_ceil(60)),
        seconds => format!("{about} {} hours", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_roughly_as_they_are_known() {
        let told = |seconds: u64| duration(Micros(seconds * 1_000_000), true);
        assert_eq!(told(0), "about 1 s");
        assert_eq!(told(99), "about 99 s");
        assert_eq!(told(100), "about 2 minutes");
        assert_eq!(told(7_200), "about 2 hours");
        assert_eq!(duration(Micros(3_000_000), false), "more than 3 s");
    }
}
