//! Models of consecutive layers, described by sizes: GPT, BERT, ViT, MLPs, and a user's own.

mod layer;
mod network;
mod plan;

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_train::{
    Batch, BatchLayout, BatchSource, Context, Layouts, Model, OpResult, Shape, Task, TrainError, Workload,
};

use super::data::Data;
use super::hash::{self, Cycle};
use super::parameters::{Parameters, Spread};
use super::text::TextWindows;
use super::writing;
use network::Network;
use plan::{ModuleSpec, Planner};

pub use layer::{Layer, LayerKind};
pub use plan::Flow;

/// A description of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// One sample.
    pub input: Flow,
    /// What is done with it.
    pub layers: Vec<Layer>,
    /// The spread of first weights.
    pub spread: Spread,
}

/// The workload of a described model: language models learn to predict each next token, others the class of a sample.
#[derive(Clone, Debug)]
pub struct Sequential {
    name: String,
    input: Flow,
    modules: Vec<ModuleSpec>,
    spread: Spread,
    classes: usize,
    data: Data,
    seed: u64,
    writes_every: Option<u64>,
    /// Positions of a sample in each step, repeated; empty: always as many as the input has.
    lengths: Vec<usize>,
}

impl Sequential {
    /// The workload of a model that reads the four reference batches.
    ///
    /// # Errors
    /// [`TrainError::Workload`]: which layer does not fit.
    pub fn new(name: &str, description: &Description) -> Result<Self, TrainError> {
        let Description { input, ref layers, spread } = *description;
        let (modules, output) = Planner::new(input).plan(layers).map_err(TrainError::Workload)?;
        let classes = match (input, output) {
            (input, _) if input.is_empty() => {
                return Err(TrainError::Workload("a size of 0 makes no model; give sizes of at least 1".into()));
            }
            (Flow::Tokens { vocab, .. }, Flow::Rows { width, .. }) if width == vocab => vocab,
            (Flow::Tokens { vocab, .. }, output) => {
                return Err(TrainError::Workload(format!(
                    "the last layer makes {output}; let it make {vocab} values for each token, one for every next token"
                )));
            }
            (_, Flow::Vector { width }) => width,
            (_, output) => {
                return Err(TrainError::Workload(format!(
                    "the last layer makes {output}; let it make one vector, a value for every class"
                )));
            }
        };
        Ok(Self {
            name: name.into(),
            input,
            modules,
            spread,
            classes,
            data: Data::Reference,
            seed: 0,
            writes_every: None,
            lengths: Vec::new(),
        })
    }

    /// Trains on `data`; `seed` decides everything random in it.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for text that the model can't learn from.
    pub fn with_data(mut self, data: Data, seed: u64) -> Result<Self, TrainError> {
        let name = &self.name;
        if matches!(data, Data::Text(_)) {
            let why = match self.input {
                Flow::Tokens { vocab, .. } if vocab < 256 => Some(format!(
                    "text has 256 different bytes and the vocabulary is {vocab}; use --vocab 256 or --data synthetic"
                )),
                Flow::Tokens { .. } if self.sees_ahead() => Some(format!(
                    "{name} sees each next byte of a text and would learn nothing; use --data synthetic or a gpt workload"
                )),
                Flow::Tokens { .. } => None,
                Flow::Image { .. } => Some(format!(
                    "{name} classifies images and can't read text; use --data synthetic or a gpt workload"
                )),
                _ => Some(format!(
                    "{name} classifies vectors and can't read text; use --data synthetic or a gpt workload"
                )),
            };
            if let Some(why) = why {
                return Err(TrainError::Workload(why));
            }
        }
        if let Data::Lengths(lengths) = &data {
            let longest = lengths.rows()[1] as usize;
            let why = match self.input {
                Flow::Tokens { rows, .. } if longest > rows => Some(format!(
                    "a row has {longest} tokens, and {name} reads {rows}; --seq {rows} cuts longer samples"
                )),
                Flow::Tokens { .. } => None,
                _ => Some(format!("{name} reads no sequences; leave --lengths out")),
            };
            if let Some(why) = why {
                return Err(TrainError::Workload(why));
            }
        }
        (self.data, self.seed) = (data, seed);
        Ok(self)
    }

    /// Whether positions attend to later ones.
    fn sees_ahead(&self) -> bool {
        ModuleSpec::any(
            &self.modules,
            &|module| matches!(module, ModuleSpec::Transformer { style, .. } if !style.causal),
        )
    }

    /// Writes a piece of text after every so many steps, where it trains on text.
    #[must_use]
    pub const fn writing_every(mut self, steps: Option<u64>) -> Self {
        self.writes_every = steps;
        self
    }

    /// Trains on sequences of another length in each step: `lengths`, repeated.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for lengths that the model can't read, and for data that are made before the step is known.
    pub fn with_lengths(mut self, lengths: Vec<usize>) -> Result<Self, TrainError> {
        let refused = |text: String| Err(TrainError::Workload(text));
        if lengths.is_empty() {
            return Ok(self);
        }
        let Flow::Tokens { rows, .. } = self.input else {
            return refused(format!("{} reads no sequences; leave its lengths out", self.name));
        };
        if let Some(length) = lengths.iter().find(|length| **length == 0 || **length > rows) {
            return refused(format!(
                "a length of {length} is not from 1 to {rows}; choose other lengths or a longer seq"
            ));
        }
        if !matches!(self.data, Data::Fresh) {
            return refused(format!(
                "{} has other lengths in each step, so its batches are made anew; use --data fresh",
                self.name
            ));
        }
        self.lengths = lengths;
        Ok(self)
    }

    /// The input of `samples` samples.
    fn input_shape(&self, samples: usize) -> Shape {
        match self.input {
            Flow::Tokens { rows, .. } => Shape::new(&[samples, rows]),
            Flow::Rows { rows, width } | Flow::Patches { rows, width } => Shape::new(&[samples, rows, width]),
            Flow::Image { channels, side } => Shape::new(&[samples, channels, side, side]),
            Flow::Vector { width } => Shape::new(&[samples, width]),
        }
    }
}

impl Workload for Sequential {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let mut all = Parameters::new(self.spread);
        let network = Network::make(cx, &mut all, &self.modules)?;
        all.initialise(cx)?;
        Ok(Task::Supervised(Rc::new(network)))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, step: u64) -> OpResult<Batch> {
        match self.input {
            Flow::Tokens { rows, vocab } => {
                let turn = usize::try_from(step).unwrap_or(0).checked_rem(self.lengths.len());
                let rows = turn.and_then(|turn| self.lengths.get(turn)).copied().unwrap_or(rows);
                hash::tokens(cx, batch, samples, rows, vocab)
            }
            _ => hash::labelled(cx, batch, self.input_shape(samples), self.classes),
        }
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        let input = self.input_shape(samples);
        match self.input {
            Flow::Tokens { rows, .. } => self.data.token_layouts(samples, rows),
            _ => Layouts::Alike(BatchLayout::new((input, DType::F32), (Shape::new(&[samples]), DType::I64))),
        }
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(match (self.input, &self.data) {
            (Flow::Tokens { rows, .. }, Data::Text(text)) => Box::new(TextWindows::new(text.clone(), rows, self.seed)?),
            (Flow::Tokens { vocab, .. }, _) => Box::new(Cycle::tokens(vocab)),
            _ => Box::new(Cycle::labelled(self.classes)),
        })
    }

    fn least_micro_batch(&self) -> usize {
        let lone = |module: &ModuleSpec| matches!(module, ModuleSpec::BatchNorm { values: 1, .. });
        if ModuleSpec::any(&self.modules, &lone) { 2 } else { 1 }
    }

    fn items_per_sample(&self) -> usize {
        match self.input {
            Flow::Tokens { rows, .. } => {
                let each = self.lengths.iter().sum::<usize>().checked_div(self.lengths.len());
                each.unwrap_or_else(|| self.data.mean_length(rows))
            }
            _ => 1,
        }
    }

    fn writes_every(&self) -> Option<u64> {
        self.writes_every
    }

    fn write(&self, cx: &mut Context, model: &dyn Model, step: u64) -> OpResult<Option<String>> {
        match (self.input, &self.data) {
            (Flow::Tokens { rows, vocab }, Data::Text(_)) => {
                writing::write(cx, model, [rows, vocab], self.seed ^ step).map(Some)
            }
            _ => Ok(None),
        }
    }
}
