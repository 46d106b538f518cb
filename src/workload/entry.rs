//! A workload's file: its model and its data.

use serde::Deserialize;

use super::bounds::{BatchSize, Extent};
use super::churn::{Churn, ChurnSizes};
use super::cs336::{Cs336, Cs336Sizes};
use super::data::{Data, DataKind};
use super::decoder::{Decoder, ModelConfig};
use super::error::CatalogError;
use super::lengths::Lengths;
use super::lora::Lora;
use super::own::{self, Input};
use super::parameters::Spread;
use super::sequential::{Layer, Sequential};
use super::sizes::{Size, Sizes};
use super::{Dcgan, LanguageSizes, MlpSizes, ResNet, ResNetSizes, VitSizes, bert, gpt, mlp, vit};
use vramlab_train::Workload;

/// Which architecture a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// A transformer whose positions see each other.
    Bert,
    /// No model: allocations of random sizes and lifetimes.
    Churn,
    /// The transformer of Stanford's CS336, of elementary ops.
    Cs336,
    /// Two nets of convolutions, trained against each other: one makes images, one tells them from real ones.
    Dcgan,
    /// A transformer that predicts the next token.
    Gpt,
    /// The layers that the file lists.
    Layers,
    /// A Llama-like model, as the table `[config]` describes it.
    Llama,
    /// Linear layers with ReLU that classify vectors.
    Mlp,
    /// Convolutions with residual connections that classify images.
    Resnet,
    /// A transformer over patches that classifies images.
    Vit,
}

/// Kinds of workloads, for a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadGroup {
    /// They read tokens.
    Language,
    /// They read or make images.
    Images,
    /// They read vectors.
    Vectors,
    /// Their requests change from step to step.
    Fragmentation,
}

impl WorkloadGroup {
    /// All, in the order of a list.
    pub const ALL: [Self; 4] = [Self::Language, Self::Images, Self::Vectors, Self::Fragmentation];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Language => "language models",
            Self::Images => "images",
            Self::Vectors => "vectors",
            Self::Fragmentation => "fragmentation",
        }
    }
}

/// Learning rates where they differ from the reference's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRates {
    /// Of Adam and AdamW.
    pub adam: Option<f64>,
    /// Of SGD, with and without momentum.
    pub sgd: Option<f64>,
}

/// One workload's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadEntry {
    /// Its name: that of the file.
    #[serde(skip)]
    pub name: String,
    /// A few words.
    pub title: String,
    /// A sentence.
    pub about: String,
    /// Its architecture.
    pub model: Architecture,
    /// Samples of a step.
    pub batch: BatchSize,
    /// What it trains on.
    pub data: DataKind,
    /// Its sizes.
    #[serde(default)]
    pub sizes: Sizes,
    /// Channels of the MLPs in CS336's model, if not four times its width (`d_ff`).
    #[serde(default)]
    pub hidden: Option<Extent>,
    /// Its learning rates.
    #[serde(default)]
    pub learning_rate: LearningRates,
    /// Write a piece of text every so many steps.
    #[serde(default)]
    pub sample_every: Option<u64>,
    /// Positions of a sample, step after step.
    #[serde(default)]
    pub lengths: Vec<Extent>,
    /// The input of a model of listed layers.
    pub input: Option<Input>,
    /// The layers of such a model.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// The spread of such a model's first weights.
    pub weights: Option<Spread>,
    /// Sizes of a churn.
    pub churn: Option<ChurnSizes>,
    /// A model of transformers: the keys of its `config.json`.
    pub config: Option<ModelConfig>,
    /// The adapters that are trained instead of such a model.
    pub lora: Option<Lora>,
}

impl WorkloadEntry {
    /// Its kind in a list.
    #[must_use]
    pub fn group(&self) -> WorkloadGroup {
        match (self.model, self.input) {
            _ if !self.lengths.is_empty() => WorkloadGroup::Fragmentation,
            (Architecture::Churn, _) => WorkloadGroup::Fragmentation,
            (Architecture::Bert | Architecture::Cs336 | Architecture::Gpt | Architecture::Llama, _)
            | (Architecture::Layers, Some(Input::Tokens { .. })) => WorkloadGroup::Language,
            (Architecture::Dcgan | Architecture::Resnet | Architecture::Vit, _)
            | (Architecture::Layers, Some(Input::Image { .. })) => WorkloadGroup::Images,
            (Architecture::Mlp | Architecture::Layers, _) => WorkloadGroup::Vectors,
        }
    }

    /// Positions of a sample of tokens, with `sizes` over its own; `None` for other samples.
    #[must_use]
    pub fn sequence(&self, sizes: Sizes) -> Option<usize> {
        match (self.model, self.input) {
            (Architecture::Bert | Architecture::Cs336 | Architecture::Gpt | Architecture::Llama, _) => {
                sizes.or(self.sizes).seq.map(Extent::get)
            }
            (Architecture::Layers, Some(Input::Tokens { seq, .. })) => Some(seq.get()),
            _ => None,
        }
    }

    /// A `config.json` of Hugging Face as a workload: one sample per step, of 2,048 positions, or of all positions with embeddings.
    #[must_use]
    pub fn of_config(name: &str, config: ModelConfig) -> Self {
        let most = config.learned_positions().unwrap_or(usize::MAX);
        let sizes = Sizes { seq: Some(Extent::nearest(most.min(2048))), ..Sizes::default() };
        Self {
            name: name.to_owned(),
            title: config.model_type.clone(),
            about: "a config.json".to_owned(),
            model: Architecture::Llama,
            batch: BatchSize::nearest(1),
            data: DataKind::Synthetic,
            sizes,
            hidden: None,
            learning_rate: LearningRates { adam: Some(1e-5), sgd: Some(1e-5) },
            sample_every: None,
            lengths: Vec::new(),
            input: None,
            layers: Vec::new(),
            weights: None,
            churn: None,
            config: Some(config),
            lora: None,
        }
    }

    /// Whether programs that train it on `data` usually pass a mask of padding: transformers' collators make one if samples
    /// differ in length.
    #[must_use]
    pub fn passes_attention_mask(&self, data: &Data) -> bool {
        self.config.is_some() && matches!(data, Data::Lengths(_))
    }

    /// Whether its frozen layers are in 4 bits.
    #[must_use]
    pub fn is_quantized(&self) -> bool {
        let named = || self.config.as_ref().is_some_and(|config| matches!(config.quantization(), Ok(Some(_))));
        self.lora.is_some_and(|lora| lora.quantization.is_some() || named())
    }

    /// Whether its attention always runs op by op.
    #[must_use]
    pub fn attends_eagerly(&self) -> bool {
        self.config.as_ref().is_some_and(ModelConfig::attends_eagerly)
    }

    /// Whether its listed layers contain attention.
    #[must_use]
    pub fn has_attention(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind.has_attention())
    }

    /// Whether its listed layers contain blocks.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind.is_block())
    }

    /// Makes the workload with `sizes` over its own, on `data`.
    ///
    /// # Errors
    /// [`CatalogError::Sizes`], [`CatalogError::Data`].
    pub fn workload(&self, sizes: Sizes, data: Data, seed: u64) -> Result<Box<dyn Workload>, CatalogError> {
        let name = &*self.name;
        let all = sizes.or(self.sizes);
        let data = match data {
            Data::Lengths(lengths) => Data::Lengths(self.packed(lengths, sizes)),
            data => data,
        };
        let of_classifier = sizes.of_classifier().or(self.sizes.of_classifier());
        let model = match self.model {
            Architecture::Gpt => gpt(name, LanguageSizes::of(name, all)?)?.writing_every(self.sample_every),
            Architecture::Bert => bert(name, LanguageSizes::of(name, all)?)?,
            Architecture::Mlp => mlp(name, MlpSizes::of(name, of_classifier)?)?,
            Architecture::Vit => vit(name, VitSizes::of(name, of_classifier)?)?,
            Architecture::Layers => self.own_model(all)?,
            Architecture::Llama => return Ok(Box::new(self.decoder(all, data, seed)?)),
            Architecture::Cs336 => {
                let sizes = Cs336Sizes::of(name, all, self.hidden)?;
                return Ok(Box::new(Cs336::new(name, sizes, data, seed)?));
            }
            Architecture::Resnet => {
                self.only_images(&data)?;
                return Ok(Box::new(ResNet::new(name, ResNetSizes::of(name, of_classifier)?)?));
            }
            Architecture::Dcgan => {
                self.only_images(&data)?;
                return Ok(Box::new(Dcgan::new(name, all.only(name, &[Size::Width])?.need(Size::Width)?)));
            }
            Architecture::Churn => {
                all.only(name, &[])?;
                if matches!(data, Data::Lengths(_)) {
                    return Err(CatalogError::Data(format!("{name} reads no sequences; leave --lengths out")));
                }
                let sizes = self.churn.ok_or_else(|| self.lacks("table [churn] with count, largest_mib and kept"))?;
                return Ok(Box::new(Churn::new(name, sizes, seed)));
            }
        };
        let lengths = self.lengths.iter().copied().map(Extent::get).collect();
        Ok(Box::new(model.with_data(data, seed)?.with_lengths(lengths)?))
    }

    /// Lengths; if they are packed, into rows of the model's length.
    #[must_use]
    pub fn packed(&self, lengths: Lengths, sizes: Sizes) -> Lengths {
        let row = self.sequence(sizes).and_then(|row| u32::try_from(row).ok());
        match row {
            Some(row) => lengths.in_rows_of(row),
            None => lengths,
        }
    }

    fn decoder(&self, sizes: Sizes, data: Data, seed: u64) -> Result<Decoder, CatalogError> {
        let checked = sizes.only(&self.name, &[Size::Layers, Size::Seq, Size::Vocab])?;
        if !self.lengths.is_empty() {
            return Err(CatalogError::Data(format!(
                "{} has sequences of one length; leave its lengths out",
                self.name
            )));
        }
        let config = self.config.as_ref().ok_or_else(|| self.lacks("table [config] with the keys of a config.json"))?;
        let mut sizes = config
            .sizes(checked.need(Size::Seq)?, sizes.layers, sizes.vocab)
            .map_err(|why| CatalogError::Data(format!("{}: {why}", self.name)))?;
        let named = config.quantization().map_err(|why| CatalogError::Data(format!("{}: {why}", self.name)))?;
        if named.is_some() && self.lora.is_none() {
            let text = format!("the layers of {} are in 4 bits, which no step changes; add --lora", self.name);
            return Err(CatalogError::Data(text));
        }
        sizes.lora = self.lora.map(|lora| Lora { quantization: lora.quantization.or(named), ..lora });
        Ok(Decoder::new(&self.name, sizes, data, seed)?)
    }

    fn own_model(&self, sizes: Sizes) -> Result<Sequential, CatalogError> {
        sizes.only(&self.name, &[])?;
        let input = self.input.ok_or_else(|| self.lacks("input"))?;
        let description = own::describe(input, &self.layers, self.weights);
        Ok(Sequential::new(&self.name, &description)?.writing_every(self.sample_every))
    }

    fn lacks(&self, what: &str) -> CatalogError {
        CatalogError::Data(format!("the workload {} has no {what}; add it to its file", self.name))
    }

    fn only_images(&self, data: &Data) -> Result<(), CatalogError> {
        match data {
            Data::Text(_) => Err(CatalogError::Data(format!(
                "{} is trained on images and can't read text; use --data synthetic or a gpt workload",
                self.name
            ))),
            Data::Lengths(_) => Err(CatalogError::Data(format!(
                "{} is trained on images, which have no length; leave --lengths out",
                self.name
            ))),
            Data::Reference | Data::Fresh | Data::Host | Data::Streamed => Ok(()),
        }
    }
}
