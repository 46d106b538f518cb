//! The runs of a lesson: the one that it begins with, and others that its steps begin.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::action;
use super::block::{Block, SourceText};
use super::error::{LessonError, LineIndex};
use crate::allocator::{Settings, TorchVersion};
use crate::device::sim::CardCatalog;
use crate::session::{self, DeviceChoice, LabSpec, MemoryLimit, Parallel, Speed, Switch};
use crate::train::OptimizerForm;
use crate::workload::{
    Catalog, CheckpointLoad, Data, InferenceMode, InferencePlan, LengthPolicy, Lengths, Models, Sizes, WorkloadEntry,
};

/// What is run, and the values of its switches at the start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LessonRun {
    /// The workload.
    pub workload: String,
    /// The device on which the figures are true: `cpu`, or `sim:` and a card.
    pub device: String,
    settings: Vec<(Switch, Arc<str>)>,
    sizes: Sizes,
    inference: Option<InferencePlan>,
    data: Option<LessonData>,
    lengths: Option<Lengths>,
    seed: u64,
    load: Option<CheckpointLoad>,
    preallocate: Option<MemoryLimit>,
    /// How work is shared, if the run is one of several ranks.
    parallel: Option<Parallel>,
    /// The rank.
    rank: usize,
    /// Whether a learner may choose another device for it.
    movable: bool,
    places: RunPlaces,
}

/// The places in the file of values that are checked against catalogs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RunPlaces {
    workload: usize,
    device: usize,
}

/// The data to train on, if it is not the workload's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LessonData {
    Reference,
    Fresh,
    Host,
    Synthetic,
}

/// How a model is run that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LessonInference {
    NoGrad,
    InferenceMode,
    Eval,
    Train,
}

/// A run as the front matter describes it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRun {
    pub workload: Option<SourceText>,
    pub device: Option<SourceText>,
    pub settings: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    pub sizes: Sizes,
    pub inference: Option<LessonInference>,
    pub half: bool,
    pub data: Option<LessonData>,
    pub lengths: Option<Spanned<Vec<u32>>>,
    #[serde(rename = "length-policy")]
    pub length_policy: Option<Spanned<LengthPolicy>>,
    pub seed: Option<u64>,
    pub load: Option<SourceText>,
    pub preallocate: Option<SourceText>,
    pub parallel: Option<SourceText>,
    pub ranks: Option<usize>,
    pub rank: Option<usize>,
}

/// The device of a lesson that names none.
const USUAL_DEVICE: &str = "sim:h200";

impl LessonRun {
    /// The run that `raw` describes; keys that it leaves out are taken from `base`. Sizes and data belong to a
    /// workload: a run with another workload has that workload's own.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn read(raw: &RawRun, base: Option<&Self>, block: &Block<'_>) -> Result<Self, LessonError> {
        let named = raw.settings.iter().map(|(word, value)| setting(word, value, block));
        let named: Vec<_> = named.collect::<Result<_, _>>()?;
        let inherited = base.into_iter().flat_map(|base| &base.settings).cloned();
        let inherited = inherited.filter(|(switch, _)| named.iter().all(|(own, _)| own != switch));
        let settings: Vec<_> = inherited.chain(named.iter().cloned()).collect();
        let of_workload = base.filter(|_| raw.workload.is_none());
        let mode = raw.inference.map(|word| match word {
            LessonInference::NoGrad => InferenceMode::NoGrad,
            LessonInference::InferenceMode => InferenceMode::InferenceMode,
            LessonInference::Eval => InferenceMode::Eval,
            LessonInference::Train => InferenceMode::Train,
        });
        let plan = mode.map(|mode| InferencePlan { mode, half: raw.half, models: Models::One });
        let seed = raw.seed.or(base.map(|base| base.seed)).unwrap_or(1);
        let lengths = match &raw.lengths {
            Some(own) => Some(samples(own, raw.data, seed, block)?),
            None => of_workload.filter(|_| raw.data.is_none()).and_then(|base| base.lengths.clone()),
        };
        let lengths = match (lengths, &raw.length_policy) {
            (Some(lengths), Some(policy)) => Some(lengths.under(*policy.get_ref())),
            (None, Some(policy)) => {
                let reason = "batches of what? give the samples too: lengths = [512, 480, 4096]";
                return Err(block.wrong_behind(policy.span().start, reason));
            }
            (lengths, None) => lengths,
        };
        let place = |written: &Option<SourceText>, other: usize| written.as_ref().map_or(other, |at| block.offset(at));
        let places = base.map_or_else(RunPlaces::default, |base| base.places);
        Ok(Self {
            workload: text(raw.workload.as_ref(), base.map_or("", |base| &base.workload)),
            device: text(raw.device.as_ref(), base.map_or(USUAL_DEVICE, |base| &base.device)),
            settings,
            sizes: of_workload.map_or(raw.sizes, |base| raw.sizes.or(base.sizes)),
            inference: plan.or(base.and_then(|base| base.inference)),
            data: raw.data.or(of_workload.and_then(|base| base.data)),
            lengths,
            seed,
            load: given(raw.load.as_ref(), block)?.or(base.and_then(|base| base.load)),
            preallocate: given(raw.preallocate.as_ref(), block)?.or(base.and_then(|base| base.preallocate)),
            parallel: parallel(raw, base, block)?,
            rank: raw.rank.or(base.map(|base| base.rank)).unwrap_or_default(),
            movable: base.is_none() || raw.device.is_none(),
            places: RunPlaces {
                workload: place(&raw.workload, places.workload),
                device: place(&raw.device, places.device),
            },
        })
    }

    /// The run's specification on its own device; on `other`, if it may run on another device.
    ///
    /// # Errors
    /// If the workload or the device does not exist, or the workload does not allow what the lesson requires.
    pub fn spec(
        &self,
        source: &str,
        catalog: &Catalog,
        cards: &CardCatalog,
        other: Option<&DeviceChoice>,
    ) -> Result<LabSpec, LessonError> {
        let own = self.device(source, cards)?;
        let device = other.filter(|_| self.movable).unwrap_or(&own).clone();
        let wrong = |reason: String| LineIndex(source).wrong(self.places.workload, reason);
        let small = (device == DeviceChoice::Cpu && own != device).then(|| small(&self.workload)).flatten();
        let workload = small.unwrap_or(&self.workload);
        let entry: WorkloadEntry = catalog.entry(workload).map_err(|error| wrong(error.to_string()))?;
        let data = match (&self.lengths, self.data) {
            (Some(lengths), _) => Data::Lengths(lengths.clone()),
            (None, None) => entry.data.data(),
            (None, Some(LessonData::Reference)) => Data::Reference,
            (None, Some(LessonData::Fresh)) => Data::Fresh,
            (None, Some(LessonData::Host)) => Data::Host,
            (None, Some(LessonData::Synthetic)) => Data::Streamed,
        };
        entry.workload(self.sizes, data.clone(), self.seed).map_err(|error| wrong(error.to_string()))?;
        let spec = LabSpec::new(entry);
        let mut setup = spec.setup();
        for (switch, value) in &self.settings {
            switch.set(&mut setup, value).map_err(wrong)?;
        }
        let is_given = |word: &str| self.settings.iter().any(|(switch, _)| switch.word() == word);
        if setup.config.fuse && !is_given("opt-form") {
            setup.config.form = OptimizerForm::Fused;
        }
        if setup.config.accumulation > setup.config.batch {
            let (batch, accum) = (setup.config.batch, setup.config.accumulation);
            return Err(wrong(format!("a batch of {batch} can't be cut into {accum} micro-batches; lower accum")));
        }
        setup.config.data = data.path();
        setup.config.attention_mask |= !is_given("attention-mask") && spec.workload.passes_attention_mask(&data);
        let settings = Settings::parse_for(TorchVersion::default(), &setup.alloc_conf);
        let spec = LabSpec {
            settings: settings.map_err(|error| wrong(error.to_string()))?,
            sizes: self.sizes,
            data,
            seed: self.seed,
            config: setup.config,
            device,
            alloc_conf: setup.alloc_conf,
            limit: setup.limit,
            rests: true,
            inference: self.inference,
            load: self.load,
            preallocate: self.preallocate,
            ..spec
        };
        let Some(parallel) = self.parallel else { return Ok(spec) };
        if !matches!(spec.device, DeviceChoice::Sim(_)) {
            return Err(wrong("its ranks train on simulated cards; take it on sim:h200 or another".to_owned()));
        }
        if self.rank >= parallel.ranks {
            return Err(wrong(format!("of {} ranks there is no rank {}: the first is 0", parallel.ranks, self.rank)));
        }
        session::of_rank(parallel, &spec, self.rank, 0).map_err(|error| wrong(error.to_string()))
    }

    /// The run's own device.
    fn device(&self, source: &str, cards: &CardCatalog) -> Result<DeviceChoice, LessonError> {
        let wrong = |reason: String| LineIndex(source).wrong(self.places.device, reason);
        match self.device.split_once(':') {
            None if self.device == "cpu" => Ok(DeviceChoice::Cpu),
            Some(("sim", name)) => {
                cards.card(name).map(|card| DeviceChoice::Sim(Box::new(card))).map_err(|error| wrong(error.to_string()))
            }
            _ => Err(wrong(format!("'{}' is no device for a lesson; write cpu, or sim:h200", self.device))),
        }
    }
}

/// How work is shared, if it is; among two ranks unless another number is given.
fn parallel(raw: &RawRun, base: Option<&LessonRun>, block: &Block<'_>) -> Result<Option<Parallel>, LessonError> {
    let base = base.and_then(|base| base.parallel);
    let way = given(raw.parallel.as_ref(), block)?.or(base.map(|base| base.parallelism));
    let ranks = raw.ranks.or(base.map(|base| base.ranks)).unwrap_or(2);
    Ok(way.map(|parallelism| Parallel { parallelism, ranks }))
}

/// The workload that replaces this one on the processor, if a step of it would take a minute there.
fn small(workload: &str) -> Option<&'static str> {
    Some(match workload {
        "gpt2" => "gpt-mini",
        "bert-large" => "bert-mini",
        "cs336-small" | "cs336-xl" => "cs336-mini",
        "vit-b16" => "vit-mini",
        "resnet50" | "resnet152" => "resnet-mini",
        "mlp" => "mlp-mini",
        "varlen" => "varlen-mini",
        "dcgan" => "dcgan-mini",
        _ => return None,
    })
}

fn text(written: Option<&SourceText>, other: &str) -> String {
    written.map_or(other, SourceText::text).to_owned()
}

/// Samples with these lengths.
fn samples(
    written: &Spanned<Vec<u32>>,
    data: Option<LessonData>,
    seed: u64,
    block: &Block<'_>,
) -> Result<Lengths, LessonError> {
    let wrong = |reason| block.wrong_behind(written.span().start, reason);
    if data.is_some() {
        return Err(wrong("samples of these lengths are the data; leave data out"));
    }
    let all = written.get_ref();
    Lengths::new(all.clone(), None, seed)
        .filter(|_| !all.contains(&0))
        .ok_or_else(|| wrong("the tokens of each sample, such as [512, 480, 4096]"))
}

/// Parses a text, with an error at its place.
fn given<T: std::str::FromStr<Err = String>>(
    written: Option<&SourceText>,
    block: &Block<'_>,
) -> Result<Option<T>, LessonError> {
    let read =
        |written: &SourceText| written.text().parse().map_err(|reason: String| block.wrong_at(written, 0, reason));
    written.map(read).transpose()
}

/// A switch and its value.
fn setting(
    word: &Spanned<String>,
    value: &Spanned<toml::Value>,
    block: &Block<'_>,
) -> Result<(Switch, Arc<str>), LessonError> {
    let text = match value.get_ref() {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(on) => (if *on { "on" } else { "off" }).to_owned(),
        _ => return Err(block.wrong_behind(value.span().start, "a switch has a text, a whole number, true or false")),
    };
    let at = if Switch::named(word.get_ref()).is_some() { value.span() } else { word.span() };
    action::set(word.get_ref(), &text).map_err(|reason| block.wrong_behind(at.start, reason))
}

/// The runs of a lesson, ready to start.
#[derive(Clone, Debug)]
pub struct LessonRuns {
    first: LabSpec,
    named: BTreeMap<Arc<str>, LabSpec>,
}

impl LessonRuns {
    pub(super) const fn new(first: LabSpec, named: BTreeMap<Arc<str>, LabSpec>) -> Self {
        Self { first, named }
    }

    /// The run that the lesson begins with.
    #[must_use]
    pub const fn first(&self) -> &LabSpec {
        &self.first
    }

    /// The same runs, with simulated clocks at this speed.
    #[must_use]
    pub fn paced(self, speed: Speed) -> Self {
        let paced = |spec: LabSpec| LabSpec { speed, ..spec };
        Self {
            first: paced(self.first),
            named: self.named.into_iter().map(|(name, spec)| (name, paced(spec))).collect(),
        }
    }

    /// The run of this name, which `run NAME` begins.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&LabSpec> {
        self.named.get(name)
    }
}
