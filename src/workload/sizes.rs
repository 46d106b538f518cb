//! Sizes of models, as files and the command line give them.

use serde::Deserialize;

use super::bounds::{Extent, Repeats};
use super::error::CatalogError;

/// Sizes; those that are `None` are the workload's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Transformer blocks, or linear layers of an MLP with its head.
    pub layers: Option<Repeats>,
    /// Channels.
    pub width: Option<Extent>,
    /// Attention heads.
    pub heads: Option<Extent>,
    /// Positions of a sequence, or values of an MLP's input.
    pub seq: Option<Extent>,
    /// Positions that the model has embeddings for; as many as `seq` unless said otherwise.
    pub context: Option<Extent>,
    /// Tokens; of a model that classifies: the same as `classes`.
    pub vocab: Option<Extent>,
    /// Classes.
    pub classes: Option<Extent>,
    /// Rows and columns of an image.
    pub image: Option<Extent>,
    /// Rows and columns of a patch of an image.
    pub patch: Option<Extent>,
    /// Blocks of each stage of a ResNet.
    pub stages: Option<[Repeats; 4]>,
}

/// A size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Layers,
    Width,
    Heads,
    Seq,
    Context,
    Vocab,
    Classes,
    Image,
    Patch,
    Stages,
}

impl Size {
    const ALL: [Self; 10] = [
        Self::Layers,
        Self::Width,
        Self::Heads,
        Self::Seq,
        Self::Context,
        Self::Vocab,
        Self::Classes,
        Self::Image,
        Self::Patch,
        Self::Stages,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::Width => "width",
            Self::Heads => "heads",
            Self::Seq => "seq",
            Self::Context => "context",
            Self::Vocab => "vocab",
            Self::Classes => "classes",
            Self::Image => "image",
            Self::Patch => "patch",
            Self::Stages => "stages",
        }
    }
}

impl Sizes {
    /// These sizes, with `defaults` for those that are `None`. A context goes with its sequence length.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            layers: self.layers.or(defaults.layers),
            width: self.width.or(defaults.width),
            heads: self.heads.or(defaults.heads),
            context: self.context.or(if self.seq.is_some() { None } else { defaults.context }),
            seq: self.seq.or(defaults.seq),
            vocab: self.vocab.or(defaults.vocab),
            classes: self.classes.or(defaults.classes),
            image: self.image.or(defaults.image),
            patch: self.patch.or(defaults.patch),
            stages: self.stages.or(defaults.stages),
        }
    }

    /// For a classifier: the vocabulary is the number of classes.
    #[must_use]
    pub fn of_classifier(mut self) -> Self {
        let vocab = self.vocab.take();
        self.classes = self.classes.or(vocab);
        self
    }

    /// The sizes that are given, by the names of their arguments. Stages are left out: no argument changes them.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, usize)> {
        let named = Size::ALL.into_iter().filter(|size| *size != Size::Stages);
        named.filter_map(|size| Some((size.word(), self.get(size)?))).collect()
    }

    fn get(&self, size: Size) -> Option<usize> {
        match size {
            Size::Layers => self.layers.map(Repeats::get),
            Size::Stages => self.stages.map(|stages| stages.into_iter().map(Repeats::get).sum()),
            _ => self.extent(size).map(Extent::get),
        }
    }

    /// A size that is not a number of layers.
    const fn extent(&self, size: Size) -> Option<Extent> {
        match size {
            Size::Layers | Size::Stages => None,
            Size::Width => self.width,
            Size::Heads => self.heads,
            Size::Seq => self.seq,
            Size::Context => self.context,
            Size::Vocab => self.vocab,
            Size::Classes => self.classes,
            Size::Image => self.image,
            Size::Patch => self.patch,
        }
    }

    /// Checks that the architecture of `workload` has all given sizes.
    ///
    /// # Errors
    /// Which size it lacks, and which ones it has.
    pub(super) fn only<'a>(self, workload: &'a str, known: &[Size]) -> Result<ArchitectureSizes<'a>, CatalogError> {
        match Size::ALL.into_iter().find(|size| self.get(*size).is_some() && !known.contains(size)) {
            Some(other) => {
                let known: Vec<_> = known.iter().map(|size| size.word()).collect();
                let has = if known.is_empty() { "none to change".to_owned() } else { known.join(", ") };
                Err(CatalogError::Data(format!(
                    "{workload} has no size '{}'; leave it out (its sizes: {has})",
                    other.word()
                )))
            }
            None => Ok(ArchitectureSizes { workload, sizes: self }),
        }
    }
}

/// Sizes that an architecture has.
pub(super) struct ArchitectureSizes<'a> {
    workload: &'a str,
    pub sizes: Sizes,
}

impl ArchitectureSizes<'_> {
    /// A size that must be given.
    ///
    /// # Errors
    /// The size is not given.
    pub fn need(&self, size: Size) -> Result<Extent, CatalogError> {
        self.sizes.extent(size).ok_or_else(|| missing(self.workload, size.word()))
    }

    /// How many layers there are.
    ///
    /// # Errors
    /// The number is not given.
    pub fn layers(&self) -> Result<Repeats, CatalogError> {
        self.sizes.layers.ok_or_else(|| missing(self.workload, "layers"))
    }

    /// The stages.
    ///
    /// # Errors
    /// The stages are not given.
    pub fn stages(&self) -> Result<[Repeats; 4], CatalogError> {
        self.sizes.stages.ok_or_else(|| missing(self.workload, "stages"))
    }
}

fn missing(workload: &str, what: &str) -> CatalogError {
    CatalogError::Data(format!("the workload {workload} does not say its {what}; add it to the sizes in its file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_follows_its_sequence_length() {
        let extent = |n| Some(Extent::nearest(n));
        let own = Sizes { seq: extent(32), context: extent(64), ..Sizes::default() };
        assert_eq!(Sizes { seq: extent(16), ..Sizes::default() }.or(own).context, None);
        assert_eq!(Sizes::default().or(own).context, extent(64));
    }

    #[test]
    fn sizes_that_a_model_lacks_are_refused_by_name() {
        let sizes = Sizes { width: Some(Extent::nearest(4)), heads: Some(Extent::nearest(2)), ..Sizes::default() };
        let error = sizes.only("mlp", &[Size::Layers, Size::Width]).err().unwrap().to_string();
        assert_eq!(error, "mlp has no size 'heads'; leave it out (its sizes: layers, width)");
        let checked = sizes.only("gpt", &[Size::Heads, Size::Width, Size::Seq]).unwrap();
        assert_eq!(checked.need(Size::Width).unwrap().get(), 4);
        assert!(checked.need(Size::Seq).is_err());
    }
}
