//! Figures of panels side by side belong to one moment and have one unit.

use vramlab::allocator::PoolKind;
use vramlab::model::{Category, NameId, StepReport};
use vramlab::units::{Address, StreamId};

use super::*;

/// A run that reserves this much, and whose steps take more from one to the next. Memory is shown at the peak of the
/// last step but one, as while steps go by faster than frames.
fn run(reserved: Bytes, peaks: [Bytes; 4]) -> Picture {
    let (address, stream, pool) = (Address(1 << 30), StreamId::DEFAULT, PoolKind::Large);
    let mut kinds = vec![
        EventKind::Begin(Arc::new(crate::lab_states::about(DeviceKind::Simulated))),
        EventKind::Run(RunState::Running),
        EventKind::SegmentAlloc { address, size: reserved, stream, pool },
    ];
    let mut marks = Vec::new();
    for (step, size) in (0..).zip(peaks) {
        let (category, name) = (Category::Activation, NameId::NONE);
        kinds.extend([
            EventKind::StepBegin { step },
            EventKind::Alloc { address, size, requested: size, stream, category, name },
        ]);
        marks.push(kinds.len() as u64);
        let times = [Micros(0); 5];
        let (total, copy, exchange) = (Micros(900), Micros(0), Micros(0));
        let report =
            StepReport { step, loss: None, total, phases: times, copy, exchange, items: 1, optimizer_ran: true };
        kinds.extend([
            EventKind::FreeRequested { address },
            EventKind::FreeCompleted { address },
            EventKind::StepEnd(report),
        ]);
    }
    let events: Vec<Event> = (0..).map(Micros).zip(kinds).map(|(time, kind)| Event::new(time, kind)).collect();
    let mut lab = Lab::new();
    let mut curve = None;
    for event in &events {
        lab.apply(event);
        let ended = lab.last_profile().filter(|profile| profile.step == 2);
        curve = curve.or_else(|| ended.cloned());
    }
    let marked = crate::lab_states::marked_at(&events, marks[2], vramlab::source::Moment::StepPeak, curve);
    Picture { marked: Some(marked), ..crate::lab_states::state_of(lab.view(), RunState::Running) }
}

/// The peak in a title, and the unit after it.
fn told<'a>(screen: &'a str, title: &str) -> Option<(&'a str, &'a str)> {
    let line = screen.lines().find(|line| line.contains(title))?;
    let mut words = line.split(title).nth(1)?.split_whitespace().skip_while(|word| *word != "peak").skip(1);
    let figure = words.next()?;
    Some((figure, words.find(|word| ["GiB", "MiB", "KiB"].contains(word))?))
}

#[test]
fn the_history_and_the_step_tell_one_moment_in_one_unit() {
    for (reserved, peaks, peak) in [
        (1399, [100, 300, 463, 500], ("0.45", "GiB")),
        (1399, [463, 500, 1200, 463], ("1.17", "GiB")),
        (1020, [100, 300, 463, 500], ("463.0", "MiB")),
        (25_000, [1000, 300, 90, 4000], ("90.0", "MiB")),
    ] {
        let state = run(Bytes::mib(reserved), peaks.map(Bytes::mib));
        for size in SIZES {
            let screen = text(&on_screen(dark(), "1", state.clone(), size.0, size.1));
            let (history, step) = (told(&screen, " history "), told(&screen, " this step "));
            assert_eq!(step, Some(peak), "{screen}");
            // If one unit would leave nothing to read of the smaller figure, each figure has its own.
            if reserved < 10_000 {
                assert_eq!(history, step, "{screen}");
            }
        }
    }
}
