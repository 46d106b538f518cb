//! The switches: their values, how keys and words change them, and whether they change anything here.

mod table;

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::{LabSpec, Setup};
use vramlab_model::{DeviceKind, RunSettings, Setting};
use vramlab_train::Config;
use vramlab_workload::{Architecture, BatchSize};

use table::{SwitchEntry, TABLE, Value};

/// A switch that a person can flip while the lab trains: an index in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Switch(usize);

/// The group of a switch in the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchGroup {
    /// Switches about which tensors are kept, where, and for how long.
    Memory,
    /// Switches about how the model is trained.
    Training,
}

/// How a key reaches the values of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The key cycles through a list of words.
    Round,
    /// The key goes up by powers of two, and another key goes down.
    Steps,
    /// The key opens a line to write the value.
    Written,
}

/// The direction in which a key flips a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlipDirection {
    /// To the next value.
    Next,
    /// To the previous value.
    Previous,
}

/// The position of a value in its switch's list of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice(pub usize);

/// The properties of a run that decide whether a switch changes anything.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The kind of device.
    pub device: DeviceKind,
    /// The configuration.
    pub config: &'a Config,
    /// True if the run consists only of allocations.
    pub no_model: bool,
    /// True if gradients are computed and an optimizer runs.
    pub trains: bool,
    /// True if two models are trained against each other.
    pub adversarial: bool,
    /// True if the model can replace ops by fused ones.
    pub fuses: bool,
    /// True if the model has attention.
    pub attention: bool,
    /// True if the model is written op by op, whatever is asked for.
    pub eager: bool,
    /// True if the model predicts tokens as those of transformers do.
    pub causal: bool,
    /// True if its linear layers can be converted to products in 8 bits.
    pub float8: bool,
    /// True if the model has blocks, which can be checkpointed.
    pub blocks: bool,
}

impl<'a> Scene<'a> {
    /// The scene of a run of `spec`, configured by `config`.
    #[must_use]
    pub fn of(spec: &LabSpec, config: &'a Config) -> Self {
        let model = spec.workload.model;
        let no_model = model == Architecture::Churn;
        Self {
            device: spec.device.kind(),
            config,
            no_model,
            trains: !no_model && spec.inference.is_none(),
            adversarial: model == Architecture::Dcgan,
            fuses: model != Architecture::Cs336,
            causal: model == Architecture::Llama,
            float8: model == Architecture::Llama && spec.workload.lora.is_none(),
            blocks: match model {
                Architecture::Churn | Architecture::Dcgan => false,
                Architecture::Layers => spec.workload.has_blocks(),
                _ => true,
            },
            eager: spec.workload.attends_eagerly(),
            attention: match model {
                Architecture::Bert | Architecture::Gpt | Architecture::Llama | Architecture::Vit => true,
                Architecture::Layers => spec.workload.has_attention(),
                // Its attention is written op by op, so there is no kernel to choose.
                Architecture::Churn
                | Architecture::Cs336
                | Architecture::Dcgan
                | Architecture::Mlp
                | Architecture::Resnet => false,
            },
        }
    }
}

impl Switch {
    /// Every switch, in the order of the panel.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..TABLE.len()).map(Self)
    }

    /// Every switch that has a list of values.
    pub fn levers() -> impl DoubleEndedIterator<Item = Self> + Clone {
        Self::all().filter(|switch| !switch.values().is_empty())
    }

    /// The switch with this word on the command line.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        TABLE.iter().position(|entry| entry.word == word).map(Self)
    }

    /// The switch that `key` flips, and the direction.
    #[must_use]
    pub fn of_key(key: char) -> Option<(Self, FlipDirection)> {
        Self::all().find_map(|switch| {
            let entry = switch.entry();
            let back = (entry.back == Some(key)).then_some((switch, FlipDirection::Previous));
            (entry.key == key).then_some((switch, FlipDirection::Next)).or(back)
        })
    }

    const fn entry(self) -> &'static SwitchEntry {
        &TABLE[self.0]
    }

    /// Its name on the command line and in the event stream: `ckpt`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.entry().word
    }

    /// The key that flips it to the next value.
    #[must_use]
    pub const fn key(self) -> char {
        self.entry().key
    }

    /// The key that flips it to the previous value.
    #[must_use]
    pub const fn key_back(self) -> Option<char> {
        self.entry().back
    }

    /// Its name in the panel: `checkpoint`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.entry().label
    }

    /// Its default value; a batch has none.
    #[must_use]
    pub fn usual(self) -> Option<Cow<'static, str>> {
        (self.reach() != Reach::Steps).then(|| self.value(&Setup::new(Config::new(1))))
    }

    /// Its group in the panel.
    #[must_use]
    pub const fn group(self) -> SwitchGroup {
        self.entry().group
    }

    /// A description for the help on keys and the command line.
    #[must_use]
    pub const fn help(self) -> &'static str {
        self.entry().help
    }

    /// A shorter description for the list of keys.
    #[must_use]
    pub const fn brief(self) -> &'static str {
        self.entry().brief
    }

    /// One sentence about what flipping it does to memory.
    #[must_use]
    pub const fn teaches(self) -> &'static str {
        self.entry().teaches
    }

    /// Its values; empty if they are not a list.
    #[must_use]
    pub const fn values(self) -> &'static [&'static str] {
        match self.entry().value {
            Value::List { words, .. } => words,
            Value::Count { stops, .. } | Value::Open { stops, .. } => stops,
            Value::Text { .. } => &[],
        }
    }

    /// The value that the flag without a value stands for on the command line.
    #[must_use]
    pub const fn alone(self) -> Option<&'static str> {
        match self.entry().value {
            Value::List { alone, .. } | Value::Open { alone, .. } => alone,
            Value::Count { .. } | Value::Text { .. } => None,
        }
    }

    /// How its key reaches its values.
    #[must_use]
    pub const fn reach(self) -> Reach {
        match self.entry().value {
            Value::Count { stops: [], .. } => Reach::Steps,
            Value::List { .. } | Value::Count { .. } | Value::Open { .. } => Reach::Round,
            Value::Text { .. } => Reach::Written,
        }
    }

    /// What may be written for it besides its listed values.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self.entry().value {
            Value::Text { hint, .. } | Value::Open { hint, .. } => hint,
            Value::Count { .. } => "a count from 1 on",
            Value::List { .. } => "",
        }
    }

    /// True if only listed values are accepted.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self.entry().value, Value::List { .. })
    }

    /// Its value in `setup`, in words.
    #[must_use]
    pub fn value(self, setup: &Setup) -> Cow<'static, str> {
        match &self.entry().value {
            Value::List { words, get, .. } => words[get(&setup.config)].into(),
            Value::Count { get, .. } => get(&setup.config).to_string().into(),
            Value::Open { get, .. } => get(&setup.config).into(),
            Value::Text { get, .. } => get(setup),
        }
    }

    /// Sets it to the value named by `text`.
    ///
    /// # Errors
    /// A sentence that says why that is not a value.
    pub fn set(self, setup: &mut Setup, text: &str) -> Result<(), String> {
        match &self.entry().value {
            Value::List { words, set, .. } => {
                let choice = words.iter().position(|word| *word == text);
                let choice = choice
                    .ok_or_else(|| format!("{} is {}; '{text}' is none of them", self.label(), words.join(", ")))?;
                set(&mut setup.config, choice);
            }
            Value::Count { set, .. } => set(&mut setup.config, table::count(text)?),
            Value::Open { set, .. } => set(&mut setup.config, text)?,
            Value::Text { set, .. } => set(setup, text.trim())?,
        }
        Ok(())
    }

    /// The index of its value in [`Switch::values`]: for a count between two listed ones, that of the next larger one;
    /// for a word that is not listed, the last index.
    #[must_use]
    pub fn choice(self, config: &Config) -> Choice {
        Choice(match &self.entry().value {
            Value::List { get, .. } => get(config),
            Value::Count { stops, get, .. } => {
                let count = get(config);
                let stop = |stop: &&str| stop.parse::<usize>().is_ok_and(|stop| stop >= count);
                stops.iter().position(stop).unwrap_or(0)
            }
            Value::Open { stops, get, .. } => {
                let word = get(config);
                stops.iter().position(|stop| *stop == word).unwrap_or(stops.len() - 1)
            }
            Value::Text { .. } => 0,
        })
    }

    /// `config` with this switch at `choice`; unchanged if there is no such value.
    #[must_use]
    pub fn with(self, config: &Config, choice: Choice) -> Config {
        let mut next = *config;
        let Some(word) = self.values().get(choice.0) else { return next };
        match &self.entry().value {
            Value::List { set, .. } => set(&mut next, choice.0),
            Value::Count { set, .. } => set(&mut next, word.parse().unwrap_or(1)),
            // Listed values are always accepted.
            Value::Open { set, .. } => drop(set(&mut next, word)),
            Value::Text { .. } => {}
        }
        next
    }

    /// `config` with this switch flipped: to the next value of its list, or to the next power of two.
    #[must_use]
    pub fn flipped(self, config: &Config, way: FlipDirection) -> Config {
        let values = self.values().len();
        match (&self.entry().value, way) {
            (Value::Count { stops: [], get, set }, _) => {
                let (mut next, count) = (*config, get(config));
                let count = match way {
                    FlipDirection::Next => (count + 1).next_power_of_two().min(BatchSize::MOST.get()),
                    FlipDirection::Previous => (count.max(2).next_power_of_two() / 2).max(1),
                };
                set(&mut next, count);
                next
            }
            (Value::Text { .. }, _) => *config,
            (_, FlipDirection::Next) => self.with(config, Choice((self.choice(config).0 + 1) % values)),
            (_, FlipDirection::Previous) => self.with(config, Choice((self.choice(config).0 + values - 1) % values)),
        }
    }

    /// Why it changes nothing in a run, if that is so.
    #[must_use]
    pub fn idle(self, scene: &Scene<'_>) -> Option<&'static str> {
        (self.entry().idle)(scene)
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for Switch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.word().serialize(serializer)
    }
}

/// A switch whose values differ in two setups.
pub(super) struct Difference {
    pub switch: Switch,
    pub from: Cow<'static, str>,
    pub to: Cow<'static, str>,
}

/// All switches whose values differ in two setups.
pub(super) fn differences(from: &Setup, to: &Setup) -> impl Iterator<Item = Difference> {
    Switch::all().filter_map(|switch| {
        let (before, after) = (switch.value(from), switch.value(to));
        (before != after).then_some(Difference { switch, from: before, to: after })
    })
}

/// The values of all switches, in force and wanted.
#[must_use]
pub fn settings(in_force: &Setup, wanted: &Setup, scene: &Scene<'_>) -> RunSettings {
    let setting = |switch: Switch| {
        let (value, then) = (switch.value(in_force), switch.value(wanted));
        Setting {
            switch: switch.word().into(),
            wanted: (value != then).then(|| then.as_ref().into()),
            value: value.as_ref().into(),
            idle: switch.idle(scene).map(Into::into),
        }
    };
    RunSettings(Switch::all().map(setting).collect())
}

#[cfg(test)]
mod tests;
