//! A lesson's front matter: what it is called, and the run that it begins with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::action;
use super::block::{Block, Written};
use super::error::{LessonError, Places};
use crate::allocator::{Settings, TorchVersion};
use crate::device::sim::CardCatalog;
use crate::session::{DeviceChoice, LabSpec, Switch};
use crate::train::OptimizerForm;
use crate::workload::{Catalog, Data, Entry, InferenceMode, InferencePlan, Models, Sizes};

/// What a lesson is called, and the run that it begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// Its title.
    pub title: String,
    /// Its place among lessons.
    pub order: u32,
    /// About how long it takes.
    pub minutes: u32,
    /// One sentence for a list.
    pub summary: String,
    /// What is trained.
    pub workload: String,
    /// Where its figures hold: `cpu`, or `sim:` and a card.
    pub device: String,
    /// Switches at the start.
    settings: Vec<(Switch, Arc<str>)>,
    sizes: Sizes,
    inference: Option<InferencePlan>,
    data: Option<DataWord>,
    seed: u64,
    places: FrontPlaces,
}

/// Where in the file what can be wrong with catalogs stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FrontPlaces {
    workload: usize,
    device: usize,
}

/// What it trains on, where that is not the workload's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DataWord {
    Reference,
    Fresh,
    Host,
    Synthetic,
}

/// How to run a model that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InferenceWord {
    NoGrad,
    InferenceMode,
    Eval,
    Train,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    #[serde(default = "last")]
    order: u32,
    minutes: u32,
    summary: String,
    workload: Written,
    device: Option<Written>,
    #[serde(default)]
    settings: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    sizes: Sizes,
    inference: Option<InferenceWord>,
    #[serde(default)]
    half: bool,
    data: Option<DataWord>,
    #[serde(default = "first")]
    seed: u64,
}

const fn last() -> u32 {
    u32::MAX
}

const fn first() -> u64 {
    1
}

/// Where a lesson runs that names no device.
const USUAL_DEVICE: &str = "sim:h200";

impl Front {
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn parse(block: &Block<'_>, source: &str, start: usize) -> Result<Self, LessonError> {
        let raw: Raw = block.parse()?;
        let settings = raw.settings.iter().map(|(word, value)| {
            setting(word, value).map_err(|(offset, reason)| Places(source).wrong(start + offset, reason))
        });
        let mode = raw.inference.map(|word| match word {
            InferenceWord::NoGrad => InferenceMode::NoGrad,
            InferenceWord::InferenceMode => InferenceMode::InferenceMode,
            InferenceWord::Eval => InferenceMode::Eval,
            InferenceWord::Train => InferenceMode::Train,
        });
        Ok(Self {
            settings: settings.collect::<Result<_, _>>()?,
            places: FrontPlaces {
                workload: block.offset(&raw.workload),
                device: raw.device.as_ref().map_or(0, |device| block.offset(device)),
            },
            title: raw.title,
            order: raw.order,
            minutes: raw.minutes,
            summary: raw.summary,
            workload: raw.workload.text().to_owned(),
            device: raw.device.as_ref().map_or(USUAL_DEVICE, Written::text).to_owned(),
            sizes: raw.sizes,
            inference: mode.map(|mode| InferencePlan { mode, half: raw.half, models: Models::One }),
            data: raw.data,
            seed: raw.seed,
        })
    }

    /// The device that it asks for.
    ///
    /// # Errors
    /// Where there is no such device.
    pub(super) fn device(&self, source: &str, cards: &CardCatalog) -> Result<DeviceChoice, LessonError> {
        let wrong = |reason: String| Places(source).wrong(self.places.device, reason);
        match self.device.split_once(':') {
            None if self.device == "cpu" => Ok(DeviceChoice::Cpu),
            Some(("sim", name)) => {
                cards.card(name).map(|card| DeviceChoice::Sim(Box::new(card))).map_err(|error| wrong(error.to_string()))
            }
            _ => Err(wrong(format!("'{}' is no device for a lesson; write cpu, or sim:h200", self.device))),
        }
    }

    /// The run that it begins with, on `device`.
    ///
    /// # Errors
    /// Where there is no such workload, or it can't be as the lesson wants it.
    pub(super) fn spec(&self, source: &str, catalog: &Catalog, device: DeviceChoice) -> Result<LabSpec, LessonError> {
        let wrong = |reason: String| Places(source).wrong(self.places.workload, reason);
        let entry: Entry = catalog.entry(&self.workload).map_err(|error| wrong(error.to_string()))?;
        let data = match self.data {
            None => entry.data.data(),
            Some(DataWord::Reference) => Data::Reference,
            Some(DataWord::Fresh) => Data::Fresh,
            Some(DataWord::Host) => Data::Host,
            Some(DataWord::Synthetic) => Data::Streamed,
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
        let settings = Settings::parse_for(TorchVersion::default(), &setup.alloc_conf);
        Ok(LabSpec {
            settings: settings.map_err(|error| wrong(error.to_string()))?,
            sizes: self.sizes,
            data,
            seed: self.seed,
            config: setup.config,
            device,
            alloc_conf: setup.alloc_conf,
            limit: setup.limit,
            inference: self.inference,
            ..spec
        })
    }
}

/// A switch and its value; else where what is wrong stands in the front matter, and what.
fn setting(word: &Spanned<String>, value: &Spanned<toml::Value>) -> Result<(Switch, Arc<str>), (usize, String)> {
    let text = match value.get_ref() {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(on) => (if *on { "on" } else { "off" }).to_owned(),
        _ => return Err((value.span().start, "a switch has a text, a whole number, true or false".to_owned())),
    };
    let at = if Switch::named(word.get_ref()).is_some() { value.span() } else { word.span() };
    action::set(word.get_ref(), &text).map_err(|reason| (at.start, reason))
}
