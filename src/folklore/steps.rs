//! Sides that train a model or run it: how the model is built, and what is done with it.

use serde::Deserialize;

use super::unfit::{SideFailure, Unfit, tell_driver};
use crate::allocator::Settings;
use crate::device::sim::CardCatalog;
use crate::figures::{FigureInputs, Figures};
use crate::session::{self, BuildError, DeviceChoice, Headless, LabSpec, Parallel, Switch};
use crate::train::{Config, TrainError};
use crate::user_input::{command_line, hint};
use crate::workload::{Catalog, Data, Extent, Generation, InferenceMode, InferencePlan, Models, Sizes, WorkloadEntry};

/// The most milliseconds that a simulated H200 may need for a side that is to run on the processor, which takes some
/// hundred times as long.
const PROCESSOR: f64 = 120.0;

/// A model, how it is run, and the actions.
#[derive(Clone, Debug)]
pub struct Training {
    /// The workload's name.
    pub workload: String,
    /// The data to train on; `None` for the workload's own.
    pub data: Option<DataWord>,
    /// Sizes that replace the workload's.
    pub sizes: Sizes,
    /// How the model is run, if it is not trained.
    pub inference: Option<InferenceWord>,
    /// Whether parameters and inputs are fp16.
    pub half: bool,
    /// How many models run.
    pub models: ModelsWord,
    /// The switches at the start, each with its value as on the command line.
    pub settings: Vec<(Switch, String)>,
    /// The actions, in their order.
    pub actions: Vec<ClaimAction>,
    /// How work is shared, if the side is one of several ranks; its batch is that of all ranks.
    pub parallel: Option<Parallel>,
    /// The rank.
    pub rank: usize,
    /// Whether running out of memory is an answer, and ends the side. If not, a side that runs out of memory can't be
    /// measured on the device.
    pub may_run_out: bool,
}

/// The data of a side, in the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataWord {
    /// The reference batches, kept on the device.
    Reference,
    /// Made on the device in every step.
    Fresh,
    /// Kept in host memory.
    Host,
    /// Copied to the device in every step.
    Synthetic,
}

impl DataWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Fresh => "fresh",
            Self::Host => "host",
            Self::Synthetic => "synthetic",
        }
    }

    const fn data(self) -> Data {
        match self {
            Self::Reference => Data::Reference,
            Self::Fresh => Data::Fresh,
            Self::Host => Data::Host,
            Self::Synthetic => Data::Streamed,
        }
    }
}

/// The inference mode of a side, in the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InferenceWord {
    /// Under torch.no_grad().
    NoGrad,
    /// model.eval() alone.
    Eval,
    /// Training mode, forward only.
    Train,
    /// Token after token, with a growing cache of keys and values.
    Generate,
    /// The same with a cache that is allocated once.
    GenerateStatic,
}

/// How many models a side runs, and how, in the words of the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelsWord {
    /// One model.
    #[default]
    One,
    /// Two models on the device at once.
    Together,
    /// Two models with the same parameters.
    Shared,
    /// Two models, one after the other.
    InTurn,
}

impl ModelsWord {
    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::One => &[],
            Self::Together => &["--models", "together"],
            Self::Shared => &["--models", "shared"],
            Self::InTurn => &["--models", "in-turn"],
        }
    }

    const fn models(self) -> Models {
        match self {
            Self::One => Models::One,
            Self::Together => Models::Together,
            Self::Shared => Models::Shared,
            Self::InTurn => Models::InTurn,
        }
    }
}

impl InferenceWord {
    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::NoGrad => &["--inference", "no_grad"],
            Self::Eval => &["--inference", "eval"],
            Self::Train => &["--inference", "train"],
            Self::Generate => &["--inference", "generate"],
            Self::GenerateStatic => &["--inference", "generate", "--static-cache"],
        }
    }

    fn plan(self, sizes: Sizes, half: bool, models: ModelsWord) -> InferencePlan {
        let new_tokens = sizes.seq.map_or(1, Extent::get) / 2;
        let mode = match self {
            Self::NoGrad => InferenceMode::NoGrad,
            Self::Eval => InferenceMode::Eval,
            Self::Train => InferenceMode::Train,
            Self::Generate => InferenceMode::Generate(Generation { new_tokens, preallocated: false }),
            Self::GenerateStatic => InferenceMode::Generate(Generation { new_tokens, preallocated: true }),
        };
        InferencePlan { mode, half, models: models.models() }
    }
}

/// An action on a run.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimAction {
    /// Runs this many steps.
    Steps(u64),
    /// Sets a switch.
    Set(Switch, String),
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// `torch.cuda.reset_peak_memory_stats()`.
    ResetPeaks,
    /// Gives the current figures a name.
    Mark(String),
}

impl ClaimAction {
    /// Parses `steps 6`, `set amp fp16`, `empty_cache`, `mark before`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["steps", count] => match count.parse() {
                Ok(count @ 1..=1000) => Ok(Self::Steps(count)),
                _ => Err(format!("'{count}' is no number of steps; write one from 1 to 1000")),
            },
            ["set", word, ref value @ ..] if !value.is_empty() => {
                let switch = switch(word)?;
                let value = value.join(" ");
                check(switch, &value, &Config::new(1))?;
                Ok(Self::Set(switch, value))
            }
            ["empty_cache"] => Ok(Self::EmptyCache),
            ["reset_peaks"] => Ok(Self::ResetPeaks),
            ["mark", name] => Ok(Self::Mark(name.to_owned())),
            _ => Err(format!(
                "'{text}' is no action; write steps N, set SWITCH VALUE, empty_cache, reset_peaks or mark NAME"
            )),
        }
    }

    fn told(&self) -> Option<String> {
        match self {
            Self::Steps(1) => Some("1 step".to_owned()),
            Self::Steps(count) => Some(format!("{count} steps")),
            Self::Set(switch, value) => Some(format!("{} {value}", switch.label())),
            Self::EmptyCache => Some("empty_cache".to_owned()),
            Self::ResetPeaks => Some("reset_peaks".to_owned()),
            Self::Mark(_) => None,
        }
    }
}

/// The switch with this word.
///
/// # Errors
/// A sentence that says there is no such switch, and names a similar one.
pub(super) fn switch(word: &str) -> Result<Switch, String> {
    Switch::named(word).ok_or_else(|| {
        let meant = hint(word, Switch::all().map(Switch::word));
        format!("there is no switch '{word}'{meant}")
    })
}

/// Checks that a switch can have this value.
///
/// # Errors
/// A sentence that says what is wrong.
pub(super) fn check(switch: Switch, value: &str, config: &Config) -> Result<(), String> {
    switch.set(&mut crate::session::Setup::new(*config), value)
}

impl Training {
    /// The marks that its actions set.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.actions
            .iter()
            .filter_map(|action| if let ClaimAction::Mark(name) = action { Some(name.as_str()) } else { None })
    }

    fn steps(&self) -> u64 {
        self.actions.iter().map(|action| if let ClaimAction::Steps(count) = action { *count } else { 0 }).sum()
    }

    /// Shell commands that run the same on the device of this name.
    pub(super) fn commands(&self, device: &str) -> Vec<String> {
        let mut words = vec!["vramlab".to_owned(), "run".to_owned(), self.workload.clone()];
        match self.parallel {
            Some(Parallel { parallelism, ranks }) => words.extend([
                "--device".to_owned(),
                format!("{device}x{ranks}"),
                "--parallel".to_owned(),
                parallelism.to_string(),
            ]),
            None => words.extend(["--device".to_owned(), device.to_owned()]),
        }
        words.extend(self.inference.into_iter().flat_map(InferenceWord::flags).map(|word| (*word).to_owned()));
        words.extend(self.half.then(|| "--half".to_owned()));
        words.extend(self.models.flags().iter().map(|word| (*word).to_owned()));
        words.extend(self.data.iter().flat_map(|data| ["--data".to_owned(), data.word().to_owned()]));
        for (name, value) in self.sizes.given() {
            words.extend([format!("--{name}"), value.to_string()]);
        }
        for (switch, value) in &self.settings {
            match switch.alone() {
                Some(alone) if alone == value => words.push(format!("--{}", switch.word())),
                Some(_) => words.push(format!("--{}={value}", switch.word())),
                None => words.extend([format!("--{}", switch.word()), value.clone()]),
            }
        }
        words.extend(["--steps".to_owned(), self.steps().to_string()]);
        let mut lines = vec![command_line(&words)];
        let told: Vec<String> = self.actions.iter().filter_map(ClaimAction::told).collect();
        if told.len() > 1 {
            lines.push(format!("# done here: {}; in the lab `vramlab`, e is empty_cache", told.join(", ")));
        }
        lines
    }

    /// The specification of its run on `device`.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(super) fn spec(&self, device: &DeviceChoice, workloads: &Catalog) -> Result<LabSpec, Unfit> {
        let entry: WorkloadEntry = workloads.entry(&self.workload).map_err(|error| Unfit(error.to_string()))?;
        let sizes = self.sizes.or(entry.sizes);
        let mut spec = LabSpec { device: device.clone(), sizes: self.sizes, ..LabSpec::new(entry) };
        if let Some(data) = self.data {
            spec.data = data.data();
            spec.config.data = spec.data.path();
        }
        let mut setup = spec.setup();
        for (switch, value) in &self.settings {
            switch.set(&mut setup, value).map_err(Unfit)?;
        }
        spec.settings =
            Settings::parse_for(setup.torch, &setup.alloc_conf).map_err(|error| Unfit(error.to_string()))?;
        spec.inference = self.inference.map(|word| word.plan(sizes, self.half, self.models));
        let spec = LabSpec { config: setup.config, limit: setup.limit, alloc_conf: setup.alloc_conf, ..spec };
        let Some(parallel) = self.parallel else { return Ok(spec) };
        if !matches!(device, DeviceChoice::Sim(_)) {
            return Err(Unfit("its ranks train on simulated cards".to_owned()));
        }
        if self.rank >= parallel.ranks {
            return Err(Unfit(format!("of {} ranks there is no rank {}: the first is 0", parallel.ranks, self.rank)));
        }
        session::of_rank(parallel, &spec, self.rank, 0).map_err(|error| Unfit(error.to_string()))
    }

    /// Runs the side on `device` from a clean state. `mark` gets the figures of every mark, and `go_on` is called
    /// before every step.
    ///
    /// # Errors
    /// [`SideFailure`].
    pub(super) fn run(
        &self,
        device: &DeviceChoice,
        workloads: &Catalog,
        mut mark: impl FnMut(&str, Figures),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Figures, SideFailure> {
        if matches!(device, DeviceChoice::Cpu) {
            self.is_for_the_processor(workloads)?;
        }
        let mut run = self.start(device, workloads)?;
        'actions: for action in &self.actions {
            match action {
                ClaimAction::Steps(count) => {
                    for _ in 0..*count {
                        if !go_on() {
                            return Err(SideFailure::Cancelled);
                        }
                        match run.step() {
                            Ok(_) => {}
                            Err(TrainError::OutOfMemory { .. }) if self.may_run_out => break 'actions,
                            Err(error @ TrainError::OutOfMemory { .. }) => return Err(too_large(&error)),
                            Err(error) => return Err(Unfit(error.to_string()).into()),
                        }
                    }
                }
                ClaimAction::Set(switch, value) => {
                    run.set(*switch, value).map_err(|why| SideFailure::Unfit(Unfit(why)))?
                }
                ClaimAction::EmptyCache => run.empty_cache(),
                ClaimAction::ResetPeaks => run.reset_peaks(),
                ClaimAction::Mark(name) => mark(name, figures(&mut run)),
            }
        }
        Ok(figures(&mut run))
    }

    fn start(&self, device: &DeviceChoice, workloads: &Catalog) -> Result<Headless, SideFailure> {
        Headless::start(self.spec(device, workloads)?).map_err(|error| match error {
            BuildError::TooSmall { cause, .. } => too_large(&cause),
            other => Unfit(other.to_string()).into(),
        })
    }

    /// Checks on a simulated card that the side is small enough for the processor.
    fn is_for_the_processor(&self, workloads: &Catalog) -> Result<(), SideFailure> {
        let card = CardCatalog::with_user_cards(None).card("h200").map_err(|error| Unfit(error.to_string()))?;
        let mut run = self.start(&DeviceChoice::Sim(Box::new(card)), workloads)?;
        let mut needed = 0.0;
        for _ in 0..self.steps() {
            match run.step() {
                Ok(report) => needed += report.total.0 as f64 / 1e3,
                Err(_) => break,
            }
            if needed > PROCESSOR {
                let why = "is too large for the processor: it would compute for minutes; try --device sim:h200";
                return Err(SideFailure::TooLarge(Unfit(format!("{} {why}", self.workload))));
            }
        }
        Ok(())
    }
}

fn too_large(error: &TrainError) -> SideFailure {
    SideFailure::TooLarge(Unfit(format!("it does not fit in its memory ({error}); try a larger card")))
}

fn figures(run: &mut Headless) -> Figures {
    let (view, statistics) = (run.view(), run.statistics());
    let device_memory = Some(run.trainer().device_info().memory);
    let mut figures = Figures::of(&FigureInputs { view: &view, statistics: Some(&statistics), device_memory });
    tell_driver(&mut figures, &run.spec().device, view.ledger.reserved());
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_and_nonsense_is_refused() {
        let amp = Switch::named("amp").unwrap();
        assert_eq!(ClaimAction::parse("steps 6"), Ok(ClaimAction::Steps(6)));
        assert_eq!(ClaimAction::parse("set amp fp16"), Ok(ClaimAction::Set(amp, "fp16".to_owned())));
        assert_eq!(ClaimAction::parse(" mark  before "), Ok(ClaimAction::Mark("before".to_owned())));
        for (wrong, words) in [
            ("steps 0", "no number of steps"),
            ("steps many", "no number of steps"),
            ("set amp", "no action"),
            ("set ampp fp16", "did you mean \"amp\""),
            ("set amp fp8", "none of them"),
            ("empty", "no action"),
        ] {
            let refused = ClaimAction::parse(wrong).unwrap_err();
            assert!(refused.contains(words), "{wrong}: {refused}");
        }
    }
}
