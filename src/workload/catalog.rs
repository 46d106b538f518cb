//! The workloads by name: `lab/workloads/*.toml`, embedded, and the user's own over them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::data::{Data, DataKind};
use super::{Dcgan, LanguageSizes, MlpSizes, ResNet, ResNetSizes, bert, gpt, mlp};
use crate::train::{TrainError, Workload};

const BUILT_IN: [(&str, &str); 12] = [
    ("bert-large", include_str!("../../lab/workloads/bert-large.toml")),
    ("bert-mini", include_str!("../../lab/workloads/bert-mini.toml")),
    ("dcgan", include_str!("../../lab/workloads/dcgan.toml")),
    ("dcgan-mini", include_str!("../../lab/workloads/dcgan-mini.toml")),
    ("gpt-char", include_str!("../../lab/workloads/gpt-char.toml")),
    ("gpt-mini", include_str!("../../lab/workloads/gpt-mini.toml")),
    ("gpt2", include_str!("../../lab/workloads/gpt2.toml")),
    ("mlp", include_str!("../../lab/workloads/mlp.toml")),
    ("mlp-mini", include_str!("../../lab/workloads/mlp-mini.toml")),
    ("resnet-mini", include_str!("../../lab/workloads/resnet-mini.toml")),
    ("resnet152", include_str!("../../lab/workloads/resnet152.toml")),
    ("resnet50", include_str!("../../lab/workloads/resnet50.toml")),
];

/// The workload that opens when none is named.
pub const DEFAULT: &str = "gpt-char";

/// Which architecture a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// A transformer whose positions see each other.
    Bert,
    /// Two nets of convolutions, trained against each other: one makes images, one tells them from real ones.
    Dcgan,
    /// A transformer that predicts the next token.
    Gpt,
    /// Linear layers with ReLU that classify vectors.
    Mlp,
    /// Convolutions with residual connections that classify images.
    Resnet,
}

impl Architecture {
    /// Samples are sequences of tokens.
    #[must_use]
    pub const fn reads_tokens(self) -> bool {
        matches!(self, Self::Bert | Self::Gpt)
    }
}

/// Sizes; what is `None` is the workload's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Transformer blocks, or linear layers of an MLP with its head.
    pub layers: Option<usize>,
    /// Channels.
    pub width: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Positions of a sequence, or values of an MLP's input.
    pub seq: Option<usize>,
    /// Positions that the model has embeddings for; as many as `seq` unless said otherwise.
    pub context: Option<usize>,
    /// Tokens, or classes.
    pub vocab: Option<usize>,
    /// Rows and columns of an image.
    pub image: Option<usize>,
    /// Blocks of each stage of a ResNet.
    pub stages: Option<[usize; 4]>,
}

impl Sizes {
    /// These, and `defaults` where they say nothing. A context goes with its sequence length.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            layers: self.layers.or(defaults.layers),
            width: self.width.or(defaults.width),
            heads: self.heads.or(defaults.heads),
            context: self.context.or(if self.seq.is_some() { None } else { defaults.context }),
            seq: self.seq.or(defaults.seq),
            vocab: self.vocab.or(defaults.vocab),
            image: self.image.or(defaults.image),
            stages: self.stages.or(defaults.stages),
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
pub struct Entry {
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
    pub batch: usize,
    /// `text` or `synthetic`.
    pub data: DataKind,
    /// Its sizes.
    pub sizes: Sizes,
    /// Its learning rates.
    #[serde(default)]
    pub learning_rate: LearningRates,
    /// Write a piece of text every so many steps.
    #[serde(default)]
    pub sample_every: Option<u64>,
}

/// Why there is no such workload.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// No file has the name.
    #[error("there is no workload '{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A file does not parse.
    #[error("the workload file {name}.toml is not understood: {reason}")]
    Malformed {
        /// The file's name.
        name: String,
        /// What the parser said.
        reason: String,
    },
    /// The sizes make no model.
    #[error(transparent)]
    Sizes(#[from] TrainError),
    /// The model and the data do not go together.
    #[error("{0}")]
    Data(String),
}

/// All workloads.
#[derive(Clone, Debug)]
pub struct Catalog {
    sources: BTreeMap<String, String>,
}

impl Catalog {
    /// The built-in workloads and, over them, the `.toml` files in `folder`.
    #[must_use]
    pub fn with_user_workloads(folder: Option<&Path>) -> Self {
        let mut sources: BTreeMap<_, _> =
            BUILT_IN.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect();
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if let (Some(name), Some("toml")) = (stem, path.extension().and_then(|e| e.to_str()))
                && let Ok(source) = std::fs::read_to_string(&path)
            {
                sources.insert(name.to_owned(), source);
            }
        }
        Self { sources }
    }

    /// The user's folder: `$XDG_CONFIG_HOME/vramlab/workloads`, or the same under `~/.config`.
    pub fn user_folder(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")))?;
        Some(config.join("vramlab").join("workloads"))
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// The workload of that name.
    ///
    /// # Errors
    /// When there is none, or its file is not understood.
    pub fn entry(&self, name: &str) -> Result<Entry, CatalogError> {
        let source = self.sources.get(name).ok_or_else(|| CatalogError::Unknown {
            name: name.to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })?;
        let entry: Entry = toml::from_str(source)
            .map_err(|error| CatalogError::Malformed { name: name.to_owned(), reason: error.message().to_owned() })?;
        Ok(Entry { name: name.to_owned(), ..entry })
    }
}

impl Entry {
    /// Makes the workload with `sizes` over its own, on `data`.
    ///
    /// # Errors
    /// [`CatalogError::Sizes`], [`CatalogError::Data`].
    pub fn workload(&self, sizes: Sizes, data: Data, seed: u64) -> Result<Box<dyn Workload>, CatalogError> {
        let sizes = sizes.or(self.sizes);
        let need = |size: Option<usize>, what: &str| {
            size.ok_or_else(|| CatalogError::Data(format!("the workload {} does not say its {what}", self.name)))
        };
        let language = || -> Result<_, CatalogError> {
            let seq = need(sizes.seq, "seq")?;
            Ok(LanguageSizes {
                vocab: need(sizes.vocab, "vocab")?,
                context: sizes.context.unwrap_or(seq),
                seq,
                width: need(sizes.width, "width")?,
                layers: need(sizes.layers, "layers")?,
                heads: need(sizes.heads, "heads")?,
            })
        };
        let workload = match self.model {
            Architecture::Gpt => {
                let sizes = language()?;
                if matches!(data, Data::Text(_)) && sizes.vocab < 256 {
                    return Err(CatalogError::Data(format!(
                        "text has 256 different bytes and the vocabulary is {}; use --vocab 256 or --data synthetic",
                        sizes.vocab
                    )));
                }
                gpt(&self.name, sizes)?.writing_every(self.sample_every)
            }
            Architecture::Bert => {
                if matches!(data, Data::Text(_)) {
                    return Err(CatalogError::Data(format!(
                        "{} sees each next byte of a text and would learn nothing; use --data synthetic or a gpt workload",
                        self.name
                    )));
                }
                bert(&self.name, language()?)?
            }
            Architecture::Mlp => {
                if matches!(data, Data::Text(_)) {
                    return Err(CatalogError::Data(format!(
                        "{} classifies vectors and can't read text; use --data synthetic or a gpt workload",
                        self.name
                    )));
                }
                if sizes.heads.is_some() {
                    return Err(CatalogError::Data(format!("{} has no attention; leave --heads out", self.name)));
                }
                let sizes = MlpSizes {
                    inputs: need(sizes.seq, "seq")?,
                    width: need(sizes.width, "width")?,
                    depth: need(sizes.layers, "layers")?,
                    classes: need(sizes.vocab, "vocab")?,
                };
                mlp(&self.name, sizes)?
            }
            Architecture::Resnet => {
                self.only_images(&data)?;
                let stages = sizes
                    .stages
                    .ok_or_else(|| CatalogError::Data(format!("the workload {} does not say its stages", self.name)))?;
                let sizes = ResNetSizes {
                    stages,
                    classes: need(sizes.vocab, "vocab")?,
                    width: need(sizes.width, "width")?,
                    image: need(sizes.image, "image")?,
                };
                return Ok(Box::new(ResNet::new(&self.name, sizes)?));
            }
            Architecture::Dcgan => {
                self.only_images(&data)?;
                if sizes.image.is_some() {
                    return Err(CatalogError::Data(format!("{} makes images of 64²; leave --image out", self.name)));
                }
                return Ok(Box::new(Dcgan::new(&self.name, need(sizes.width, "width")?)?));
            }
        };
        Ok(Box::new(workload.with_data(data, seed)))
    }
}

impl Entry {
    fn only_images(&self, data: &Data) -> Result<(), CatalogError> {
        match data {
            Data::Text(_) => Err(CatalogError::Data(format!(
                "{} is trained on images and can't read text; use --data synthetic or a gpt workload",
                self.name
            ))),
            Data::Reference | Data::Fresh | Data::Streamed => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::Text;
    use super::*;

    #[test]
    fn every_built_in_workload_parses_and_builds() {
        let catalog = Catalog::with_user_workloads(None);
        for name in catalog.names() {
            let entry = catalog.entry(name).unwrap();
            assert_eq!(entry.name, name);
            entry.workload(Sizes::default(), Data::Reference, 1).unwrap();
        }
        catalog.entry(DEFAULT).unwrap();
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = Catalog::with_user_workloads(None).entry("gpt-5").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no workload 'gpt-5'; there are bert-large, bert-mini, dcgan, dcgan-mini, gpt-char, gpt-mini, \
             gpt2, mlp, mlp-mini, resnet-mini, resnet152, resnet50"
        );
    }

    #[test]
    fn a_users_file_wins_and_a_broken_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpt-mini.toml"), "title = 3").unwrap();
        let catalog = Catalog::with_user_workloads(Some(folder.path()));
        assert!(matches!(catalog.entry("gpt-mini"), Err(CatalogError::Malformed { .. })));
    }

    #[test]
    fn a_context_follows_its_sequence_length() {
        let own = Sizes { seq: Some(32), context: Some(64), ..Sizes::default() };
        assert_eq!(Sizes { seq: Some(16), ..Sizes::default() }.or(own).context, None);
        assert_eq!(Sizes::default().or(own).context, Some(64));
    }

    #[test]
    fn impossible_sizes_and_data_are_refused() {
        let catalog = Catalog::with_user_workloads(None);
        let gpt = catalog.entry("gpt-mini").unwrap();
        let sizes = Sizes { heads: Some(5), ..Sizes::default() };
        assert!(matches!(gpt.workload(sizes, Data::Reference, 1), Err(CatalogError::Sizes(_))));
        let small = Sizes { vocab: Some(100), ..Sizes::default() };
        assert!(matches!(gpt.workload(small, Data::Text(Text::source()), 1), Err(CatalogError::Data(_))));
        let mlp = catalog.entry("mlp-mini").unwrap();
        assert!(matches!(mlp.workload(Sizes::default(), Data::Text(Text::source()), 1), Err(CatalogError::Data(_))));
    }
}
