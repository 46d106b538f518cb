//! The steps and phases of somebody else's program, from the scopes that PyTorch recorded with a history (`external_annotations`).
//!
//! A step is what a profiler calls one (`ProfilerStep#7`), or what an exported run of ours does (`step 7`). Otherwise
//! it ends with the optimizer's step (`Optimizer.step#AdamW.step`), and after a `zero_grad` that follows directly.
//! Programs with several optimizers run all of them in a step. Their number shows in names that recur in the same
//! order, or in equal requests between optimizers of one name. Optimizers that step within another's step (a wrapper's)
//! are part of it.
//!
//! A phase is a scope whose name says so (`Optimizer.zero_grad#…`, `enumerate(DataLoader)#…`, `## forward ##`) and that
//! contains no scope of another phase: if a program hands its optimizer a closure, the optimizer's step contains all
//! phases.

use std::cmp::Ordering;

use vramlab_model::{Micros, Phase};
use vramlab_snapshot::{Action, Annotation, Snapshot, TextId, TraceEntry};

/// The steps and phases of a history according to its scopes, by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scopes {
    /// In order; the first is next.
    marks: Vec<(Micros, ScopeMark)>,
}

/// What happened at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeMark {
    /// A phase ended.
    PhaseEnd(Phase),
    /// A step ended, and the next begins.
    Step,
    /// A phase began.
    PhaseBegin(Phase),
}

/// A scope and its end; a scope that is open at the end of the file has none.
#[derive(Clone, Copy, Debug)]
struct ClosedScope {
    name: TextId,
    begin: Micros,
    end: Option<Micros>,
    /// Its phase, if it contains no scope of another phase.
    phase: Option<Phase>,
}

/// The most scopes that are open at once.
const DEEPEST: usize = 256;
/// The most optimizers in a step.
const OPTIMIZERS: usize = 8;

impl Scopes {
    /// The scopes of a device's history. If only other devices have scopes, these apply to all devices.
    pub fn of(snapshot: &Snapshot, device: usize) -> Self {
        let trace = snapshot.device_trace(device);
        let (Some(first), Some(last)) = (trace.first(), trace.last()) else { return Self::default() };
        let own = snapshot.annotations.iter().any(|annotation| annotation.device as usize == device);
        let mut annotations: Vec<&Annotation> =
            snapshot.annotations.iter().filter(|of| !own || of.device as usize == device).collect();
        annotations.sort_by_key(|annotation| annotation.time);
        let scopes = scopes(&annotations, |name| phase_of(snapshot.texts.get(name)));
        let text = |scope: &ClosedScope| snapshot.texts.get(scope.name);
        let mut steps = begun(&scopes, text);
        if steps.is_empty() {
            steps = ended(&scopes, text, trace);
        }
        // Scopes before the history are not steps of it.
        let mut marks: Vec<(Micros, ScopeMark)> =
            steps.into_iter().filter(|at| *at > first.time).map(|at| (at, ScopeMark::Step)).collect();
        let mut free = Micros(0);
        for scope in scopes.iter().filter(|scope| scope.phase.is_some()) {
            let end = scope.end.unwrap_or(Micros(u64::MAX));
            let Some(phase) = scope.phase.filter(|_| scope.begin >= free && end > scope.begin) else { continue };
            free = end;
            if end >= first.time && scope.begin <= last.time {
                marks.push((scope.begin, ScopeMark::PhaseBegin(phase)));
                marks.extend(scope.end.map(|end| (end, ScopeMark::PhaseEnd(phase))));
            }
        }
        marks.sort_by(|(a, mark), (b, other)| a.cmp(b).then_with(|| mark.order(*other)));
        marks.reverse();
        Self { marks }
    }

    /// True if the scopes say where steps end.
    pub fn tell_steps(&self) -> bool {
        self.marks.iter().any(|(_, mark)| *mark == ScopeMark::Step)
    }

    /// The next mark at or before a time.
    pub fn next(&mut self, time: Micros) -> Option<(Micros, ScopeMark)> {
        self.marks.pop_if(|(at, _)| *at <= time)
    }
}

impl ScopeMark {
    /// At the same time, ends come before begins.
    fn order(self, other: Self) -> Ordering {
        let rank = |mark: Self| match mark {
            Self::PhaseEnd(_) => 0,
            Self::Step => 1,
            Self::PhaseBegin(_) => 2,
        };
        rank(self).cmp(&rank(other))
    }
}

/// All scopes, by their begin.
fn scopes(annotations: &[&Annotation], phase_of: impl Fn(TextId) -> Option<Phase>) -> Vec<ClosedScope> {
    struct OpenScopes {
        index: usize,
        mixed: bool,
    }
    let mut scopes: Vec<ClosedScope> = Vec::new();
    let mut open: Vec<OpenScopes> = Vec::new();
    // A scope that contains a scope of another phase is not a phase itself.
    let close = |scopes: &mut Vec<ClosedScope>, open: &mut Vec<OpenScopes>, end: Option<Micros>| {
        let Some(OpenScopes { index, mixed }) = open.pop() else { return };
        scopes[index].end = end;
        if mixed {
            scopes[index].phase = None;
        }
        if mixed || scopes[index].phase.is_some() {
            open.iter_mut().for_each(|around| around.mixed = true);
        }
    };
    for annotation in annotations {
        if annotation.start {
            if open.len() == DEEPEST {
                continue;
            }
            let within = |phase: &Phase| open.iter().any(|around| scopes[around.index].phase == Some(*phase));
            let phase = phase_of(annotation.name).filter(|phase| !within(phase));
            let scope = ClosedScope { name: annotation.name, begin: annotation.time, end: None, phase };
            open.push(OpenScopes { index: scopes.len(), mixed: false });
            scopes.push(scope);
        } else if let Some(at) = open.iter().rposition(|of| scopes[of.index].name == annotation.name) {
            while open.len() > at {
                close(&mut scopes, &mut open, Some(annotation.time));
            }
        }
    }
    while !open.is_empty() {
        close(&mut scopes, &mut open, None);
    }
    scopes
}

/// Where steps begin, according to a profiler or an export of ours; empty if there is neither.
fn begun<'a>(scopes: &[ClosedScope], text: impl Fn(&ClosedScope) -> &'a str) -> Vec<Micros> {
    let numbered = |scope: &ClosedScope, before: &str| {
        text(scope).strip_prefix(before).is_some_and(|number| number.parse::<u64>().is_ok())
    };
    for before in ["ProfilerStep#", "step "] {
        let steps: Vec<&ClosedScope> = scopes.iter().filter(|scope| numbered(scope, before)).collect();
        if steps.len() > 1 {
            // What follows the last step is not a step.
            return steps.iter().map(|scope| scope.begin).chain(steps.last().and_then(|last| last.end)).collect();
        }
    }
    Vec::new()
}

/// Where steps end, according to optimizers.
fn ended<'a>(scopes: &[ClosedScope], text: impl Fn(&ClosedScope) -> &'a str, trace: &[TraceEntry]) -> Vec<Micros> {
    let is_step = |scope: &ClosedScope| text(scope).starts_with("Optimizer.step");
    let mut runs: Vec<(TextId, Micros)> = Vec::new();
    let mut behind = Micros(0);
    for scope in scopes {
        let Some(end) = scope.end.filter(|end| is_step(scope) && *end > behind) else { continue };
        // A scope within the last one belongs to a wrapper.
        if scope.begin >= behind || runs.is_empty() {
            runs.push((scope.name, end));
            behind = end;
        }
    }
    let requests = |from: Micros, to: Micros| {
        let part = |time: Micros| trace.partition_point(|entry| entry.time < time);
        let (from, to) = (part(from), part(to));
        trace.get(from..to).unwrap_or_default().iter().filter(|entry| entry.action == Action::Alloc).count()
    };
    let between: Vec<usize> = runs.windows(2).map(|pair| requests(pair[0].1, pair[1].1)).collect();
    let names: Vec<TextId> = runs.iter().map(|(name, _)| *name).collect();
    let together = optimizers(&names, &between);
    let zeroed = |end: Micros| {
        let next = scopes.partition_point(|scope| scope.begin < end);
        let zero = scopes.get(next).filter(|scope| text(scope).contains("zero_grad"))?;
        zero.end.filter(|zeroed| requests(end, *zeroed) == 0)
    };
    let ends = runs.iter().skip(together - 1).step_by(together);
    ends.map(|(_, end)| zeroed(*end).unwrap_or(*end)).collect()
}

/// The number of optimizer runs in a step, from their names and from the requests between two of them.
fn optimizers(names: &[TextId], between: &[usize]) -> usize {
    let repeats = |every: usize| names.len() >= 2 * every && names.iter().zip(&names[every..]).all(|(a, b)| a == b);
    if !repeats(1) {
        return (2..=OPTIMIZERS).find(|every| repeats(*every)).unwrap_or(1);
    }
    let share = |every: usize| {
        let pairs = between.len().checked_sub(every).filter(|pairs| *pairs >= 3)?;
        let same = between.iter().zip(&between[every..]).filter(|(a, b)| a == b).count();
        Some(same as f64 / pairs as f64)
    };
    // One name: consecutive steps differ in their requests, which repeat only after several.
    if share(1).is_none_or(|same| same > 0.2) {
        return 1;
    }
    (2..=OPTIMIZERS).find(|every| share(*every).is_some_and(|same| same > 0.6)).unwrap_or(1)
}

/// The phase that a scope's name gives.
fn phase_of(name: &str) -> Option<Phase> {
    let name = name.to_lowercase();
    let has = |word: &str| name.contains(word);
    if has("zero_grad") {
        Some(Phase::ZeroGrad)
    } else if has("optimizer") {
        Some(Phase::Optimizer)
    } else if has("backward") {
        Some(Phase::Backward)
    } else if has("forward") {
        Some(Phase::Forward)
    } else if has("dataloader") || name.trim_matches(['#', ' ']) == "data" {
        Some(Phase::Data)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::{Address, Bytes, StreamId};
    use vramlab_snapshot::StackId;

    /// A history with a request at each of these times, and scopes as `(name, begin, end)`.
    fn of(requests: &[u64], scopes: &[(&str, u64, u64)]) -> Vec<(u64, ScopeMark)> {
        let mut snapshot = Snapshot::default();
        let entry = |&time: &u64| TraceEntry {
            action: Action::Alloc,
            address: Address(time),
            size: Bytes(512),
            stream: StreamId::DEFAULT,
            time: Micros(time),
            stack: StackId::EMPTY,
            metadata: TextId::default(),
            pool: None,
        };
        snapshot.entries = requests.iter().map(entry).collect();
        snapshot.device_traces = std::iter::once(0..requests.len()).collect();
        for &(name, begin, end) in scopes {
            let name = snapshot.texts.intern(name).0;
            for (start, time) in [(true, begin), (false, end)] {
                snapshot.annotations.push(Annotation { name, start, device: 0, time: Micros(time) });
            }
        }
        let mut scopes = Scopes::of(&snapshot, 0);
        std::iter::from_fn(|| scopes.next(Micros(u64::MAX))).map(|(at, mark)| (at.0, mark)).collect()
    }

    fn steps(marks: &[(u64, ScopeMark)]) -> Vec<u64> {
        marks.iter().filter(|(_, mark)| *mark == ScopeMark::Step).map(|(at, _)| *at).collect()
    }

    const ADAM: &str = "Optimizer.step#AdamW.step";
    const ZERO: &str = "Optimizer.zero_grad#AdamW.zero_grad";

    #[test]
    fn a_step_ends_behind_its_optimizer_and_the_zero_grad_that_follows_at_once() {
        let requests: Vec<u64> = (0..40).collect();
        let marks = of(&requests, &[(ADAM, 8, 9), (ADAM, 18, 19), (ADAM, 28, 29)]);
        assert_eq!(steps(&marks), [9, 19, 29]);
        let (at, phase) = (8, Phase::Optimizer);
        assert_eq!(
            marks[..3],
            [(at, ScopeMark::PhaseBegin(phase)), (9, ScopeMark::PhaseEnd(phase)), (9, ScopeMark::Step)]
        );
        // There is no request between them.
        let marks = of(&[1, 5, 15, 25], &[(ADAM, 8, 9), (ZERO, 10, 11), (ADAM, 18, 19), (ZERO, 26, 27)]);
        assert_eq!(steps(&marks), [11, 19]);
    }

    #[test]
    fn a_profilers_steps_and_our_own_exports_count_before_optimizers() {
        let requests: Vec<u64> = (0..40).collect();
        for name in ["ProfilerStep#", "step "] {
            let names = [7, 8, 9].map(|step| format!("{name}{step}"));
            let scopes = [(&*names[0], 5, 14), (ADAM, 12, 13), (&*names[1], 15, 24), (&*names[2], 25, 34)];
            assert_eq!(steps(&of(&requests, &scopes)), [5, 15, 25, 34], "{name}");
        }
    }

    #[test]
    fn optimizers_of_one_step_are_told_by_their_names_or_by_the_requests_between_them() {
        // The generator's and the discriminator's optimizers, with two names and with one.
        let (mut two, mut one, mut requests, mut time) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..5 {
            for (name, count) in [("Optimizer.step#Adam.step", 3), ("Optimizer.step#SGD.step", 7)] {
                requests.extend((0..count).map(|n| time + n));
                time += 10;
                two.push((name, time, time + 1));
                one.push((ADAM, time, time + 1));
                time += 2;
            }
        }
        let expected = [23, 47, 71, 95, 119];
        assert_eq!(steps(&of(&requests, &two)), expected);
        assert_eq!(steps(&of(&requests, &one)), expected);
        // With gradient accumulation the steps have one optimizer.
        let same: Vec<(&str, u64, u64)> = (1..9).map(|n| (ADAM, 10 * n, 10 * n + 1)).collect();
        let even: Vec<u64> = (0..90).collect();
        assert_eq!(steps(&of(&even, &same)).len(), 8);
    }

    #[test]
    fn a_step_that_holds_all_phases_is_no_phase() {
        let requests: Vec<u64> = (0..40).collect();
        let closure = [(ADAM, 5, 19), (ZERO, 6, 7), ("## forward ##", 8, 12)];
        let marks = of(&requests, &closure);
        let phases: Vec<Phase> = marks
            .iter()
            .filter_map(|(_, mark)| match mark {
                ScopeMark::PhaseBegin(phase) => Some(*phase),
                _ => None,
            })
            .collect();
        assert_eq!((phases, steps(&marks)), (vec![Phase::ZeroGrad, Phase::Forward], vec![19]));
    }

    #[test]
    fn without_scopes_nothing_is_said() {
        assert_eq!(of(&[1, 2, 3], &[]), []);
        assert_eq!(of(&[], &[(ADAM, 1, 2)]), []);
    }
}
