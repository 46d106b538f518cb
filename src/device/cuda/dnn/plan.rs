//! From a graph to an execution plan: the engines that can compute it.

use std::rc::Rc;
use std::vec;

use cudarc::cudnn::sys::{cudnnBackendHeurMode_t as Mode, cudnnBackendNumericalNote_t as NumericalNote};

use super::descriptor::{Descriptor, EngineNote, Kind, Knob, Name, Pointer, execute};
use super::graph::Operations;
use super::handle::{DnnHandle, refused};
use crate::cuda::choices::fingerprint;
use crate::cuda::refusal::Refusal;
use vramlab_allocator::units::{Address, Bytes};

/// Notes of engines whose sums are imprecise.
const ROUGH: [NumericalNote; 2] = [
    NumericalNote::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    NumericalNote::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
];
/// The most settings of one engine that are distinguished.
const KNOBS: usize = 64;

/// The largest permitted workspace of an engine, because it is memory that PyTorch's curve may not have.
pub(super) const LARGEST_WORKSPACE: Bytes = Bytes::gib(1);

/// What engines may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// They may compute on tensor cores, which round f32 operands to TensorFloat-32.
    pub tensor_cores: bool,
    /// They may sum in less than f32, or by transforms that lose about as much precision.
    pub rough_sums: bool,
    /// The largest workspace.
    pub workspace: Bytes,
}

/// An engine set up for one graph. The order of fields is the order of dropping: each refers to those after it.
pub(crate) struct ExecutionPlan {
    plan: Descriptor,
    _config: Descriptor,
    operations: Rc<Operations>,
    workspace: usize,
    engine: Engine,
}

/// An engine and its settings, identified in the same way in every run of one library version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    /// The library's number for the engine.
    pub index: i64,
    /// Represents the engine and all of its settings.
    pub tag: u64,
}

/// The engines for one graph that obey the rules, the most promising first. Each is set up only when it is requested,
/// because that takes time.
pub(crate) struct Engines {
    operations: Rc<Operations>,
    rules: Rules,
    modes: vec::IntoIter<Mode>,
    configs: vec::IntoIter<Descriptor>,
    asked: u64,
    known: Vec<u64>,
    refusals: Refusals,
}

impl Engines {
    /// The engines that the library's heuristic considers fast, then those that always work.
    pub(super) fn new(operations: Operations, rules: Rules) -> Self {
        Self::of(vec![Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK], operations, rules)
    }

    /// The same, and also those of a second heuristic.
    pub(super) fn many(operations: Operations, rules: Rules) -> Self {
        let modes = vec![Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_B, Mode::CUDNN_HEUR_MODE_FALLBACK];
        Self::of(modes, operations, rules)
    }

    fn of(modes: Vec<Mode>, operations: Operations, rules: Rules) -> Self {
        Self {
            operations: Rc::new(operations),
            rules,
            modes: modes.into_iter(),
            configs: Vec::new().into_iter(),
            asked: 0,
            known: Vec::new(),
            refusals: Refusals::default(),
        }
    }

    /// The next engine that obeys the rules, restricted to the engine with `tag` if one is given.
    pub(super) fn next(&mut self, handle: &DnnHandle, tag: Option<u64>) -> Option<ExecutionPlan> {
        loop {
            let Some(config) = self.configs.next() else {
                match configs(&self.operations, self.modes.next()?) {
                    Ok(configs) => self.configs = configs.into_iter(),
                    Err(refusal) => self.refusals.last = Some(refusal.to_string()),
                }
                continue;
            };
            self.asked += 1;
            // An engine that doesn't identify itself is identified by its position in the list.
            let engine = engine(&config).unwrap_or(Engine { index: -1, tag: self.asked });
            if tag.is_some_and(|tag| tag != engine.tag) || self.known.contains(&engine.tag) {
                continue;
            }
            self.known.push(engine.tag);
            self.refusals.engines += 1;
            match setup(handle, &config, self.rules) {
                Ok(Ok((plan, workspace))) => {
                    let operations = Rc::clone(&self.operations);
                    return Some(ExecutionPlan { plan, _config: config, operations, workspace, engine });
                }
                Ok(Err(broken)) => self.refusals.add(broken),
                Err(refusal) => self.refusals.last = Some(refusal.to_string()),
            }
        }
    }

    /// Why there is no engine, or no further one.
    pub fn refusal(&self) -> Refusal {
        refused(self.refusals.sentence())
    }
}

impl ExecutionPlan {
    /// The first engine that obeys the rules. Nothing is timed, so that every run uses the same engine.
    pub(super) fn choose(handle: &DnnHandle, operations: Operations, rules: Rules) -> Result<Self, Refusal> {
        let mut engines = Engines::new(operations, rules);
        engines.next(handle, None).ok_or_else(|| engines.refusal())
    }

    /// The plan's engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Queues the plan on the handle's stream. `tensors` are the graph's stored tensors, in the order in which they
    /// were added.
    pub(super) fn execute(&self, handle: &DnnHandle, tensors: &[Pointer], workspace: Address) -> Result<(), Refusal> {
        let ids = self.operations.placed();
        debug_assert_eq!(ids.len(), tensors.len());
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, tensors)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Pointer::from(workspace)])?
            .finalise()?;
        execute(handle, &self.plan, &pack)
    }
}

/// Engines for the graph, the most promising first.
fn configs(operations: &Operations, mode: Mode) -> Result<Vec<Descriptor>, Refusal> {
    let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .link(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[operations.descriptor()])?
        .set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .finalise()?;
    heuristics.list(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
}

/// The engine of a configuration.
fn engine(config: &Descriptor) -> Result<Engine, Refusal> {
    let engine = config.first(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
    let index = match engine.first() {
        Some(engine) => engine.number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?,
        None => -1,
    };
    let choices =
        config.first(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, KNOBS)?;
    let knob = |choice: &Descriptor| -> Result<(Knob, i64), Refusal> {
        let mut knob = [Knob::default()];
        choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &mut knob)?;
        Ok((knob[0], choice.number(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?))
    };
    let knobs: Vec<(Knob, i64)> = choices.iter().map(knob).collect::<Result<_, _>>()?;
    Ok(Engine { index, tag: fingerprint(&(index, knobs)) })
}

/// A rule that an engine would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineFault {
    Repeatable,
    Precision,
    Workspace,
}

/// The plan of a configuration and its workspace in bytes.
fn setup(
    handle: &DnnHandle,
    config: &Descriptor,
    rules: Rules,
) -> Result<Result<(Descriptor, usize), EngineFault>, Refusal> {
    if let Some(broken) = broken(&notes(config)?, rules) {
        return Ok(Err(broken));
    }
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .of(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)?
        .link(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config])?
        .finalise()?;
    let workspace = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    let fits = u64::try_from(workspace).is_ok_and(|bytes| bytes <= rules.workspace.get());
    Ok(if fits { Ok((plan, usize::try_from(workspace).unwrap_or_default())) } else { Err(EngineFault::Workspace) })
}

/// An engine's notes about its arithmetic.
fn notes(config: &Descriptor) -> Result<Vec<EngineNote>, Refusal> {
    let engine = config.first(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
    let Some(engine) = engine.first() else { return Ok(Vec::new()) };
    let mut notes = [EngineNote::default(); 32];
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?;
    Ok(notes[..count.min(notes.len())].to_vec())
}

/// The rule that an engine with these notes would break: PyTorch's rules, and that runs can be repeated bit for bit.
fn broken(notes: &[EngineNote], rules: Rules) -> Option<EngineFault> {
    let says = |note: NumericalNote| notes.contains(&EngineNote::from(note));
    if says(NumericalNote::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) {
        Some(EngineFault::Repeatable)
    } else if says(NumericalNote::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        || (!rules.tensor_cores && says(NumericalNote::CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
        || (!rules.rough_sums && ROUGH.into_iter().any(says))
    {
        Some(EngineFault::Precision)
    } else {
        None
    }
}

/// Why no engine was taken.
#[derive(Default)]
struct Refusals {
    engines: usize,
    broken: Vec<EngineFault>,
    /// The library's last message.
    last: Option<String>,
}

impl Refusals {
    fn add(&mut self, broken: EngineFault) {
        self.broken.push(broken);
    }

    fn sentence(&self) -> String {
        let count = |rule| self.broken.iter().filter(|&&broken| broken == rule).count();
        let mut sentence = format!(
            "none of {} engines ({} not repeatable, {} of less precision, {} with too large a workspace)",
            self.engines,
            count(EngineFault::Repeatable),
            count(EngineFault::Precision),
            count(EngineFault::Workspace),
        );
        if let Some(last) = &self.last {
            sentence += "; last: ";
            sentence += last;
        }
        sentence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_left_out_that_round_or_do_not_repeat() {
        use NumericalNote as N;
        let exact = Rules { tensor_cores: false, rough_sums: false, workspace: Bytes::ZERO };
        let rounded = Rules { tensor_cores: true, ..exact };
        let tensor_cores = [EngineNote::from(N::CUDNN_NUMERICAL_NOTE_TENSOR_CORE)];
        assert_eq!(broken(&[], exact), None);
        assert_eq!(broken(&tensor_cores, exact), Some(EngineFault::Precision));
        assert_eq!(broken(&tensor_cores, rounded), None);
        let converts = [EngineNote::from(N::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)];
        assert_eq!(broken(&converts, rounded), Some(EngineFault::Precision));
        let halves = [EngineNote::from(N::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)];
        assert_eq!(broken(&halves, rounded), Some(EngineFault::Precision));
        assert_eq!(broken(&halves, Rules { rough_sums: true, ..rounded }), None);
        let atomics = [tensor_cores[0], EngineNote::from(N::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)];
        assert_eq!(broken(&atomics, rounded), Some(EngineFault::Repeatable));
    }
}
