//! What a workload trains on.

use serde::Deserialize;

use std::cell::RefCell;
use std::rc::Rc;

use super::lengths::{Epochs, Lengths};
use super::text::Text;
use vramlab_device::DType;
use vramlab_train::{BatchLayout, DataPath, Layouts, Shape};

/// What a workload trains on.
#[derive(Clone, Debug)]
pub enum Data {
    /// The four reference batches, kept on the device.
    Reference,
    /// The same four, made again on the device in every step.
    Fresh,
    /// The same four, kept in host memory and copied when needed.
    Host,
    /// The same four, copied to the device each time, ahead of use if memory is page-locked.
    Streamed,
    /// Random windows of a text.
    Text(Text),
    /// Sequences of the lengths of given samples, streamed.
    Lengths(Lengths),
}

impl Data {
    /// The data path of its batches.
    #[must_use]
    pub const fn path(&self) -> DataPath {
        match self {
            Self::Reference => DataPath::Resident,
            Self::Fresh => DataPath::Fresh,
            Self::Host => DataPath::Host,
            Self::Streamed | Self::Text(_) | Self::Lengths(_) => DataPath::Streamed,
        }
    }

    /// The layouts of its streamed batches of tokens: `samples` of `rows` each, unless the data say how long each one is.
    #[must_use]
    pub(super) fn token_layouts(&self, samples: usize, rows: usize) -> Layouts {
        let layout = |samples: usize, rows: usize| {
            let tokens = (Shape::new(&[samples, rows]), DType::I64);
            BatchLayout::new(tokens, tokens)
        };
        let Self::Lengths(lengths) = self else { return Layouts::Alike(layout(samples, rows)) };
        let epochs = RefCell::new(Epochs::new(lengths, samples));
        Layouts::Each(Rc::new(move |number| {
            let mut epochs = epochs.borrow_mut();
            let batch = epochs.batch(number);
            let lengths = batch.is_padded().then(|| epochs.lengths(number));
            BatchLayout { lengths, ..layout(batch.samples as usize, batch.length as usize) }
        }))
    }

    /// Average tokens of a sample: `rows`, unless the data say how long each sample is.
    #[must_use]
    pub(super) fn mean_length(&self, rows: usize) -> usize {
        match self {
            Self::Lengths(lengths) => usize::try_from(lengths.tokens() / lengths.count().max(1) as u64).unwrap_or(rows),
            _ => rows,
        }
    }
}

/// What a workload trains on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Text, byte by byte.
    Text,
    /// The reference batches, streamed.
    Synthetic,
    /// The reference batches, made again on the device for each step.
    Fresh,
}

impl DataKind {
    /// The data of this kind: the text is vramlab's own source.
    #[must_use]
    pub fn data(self) -> Data {
        match self {
            Self::Text => Data::Text(Text::source()),
            Self::Synthetic => Data::Streamed,
            Self::Fresh => Data::Fresh,
        }
    }
}
