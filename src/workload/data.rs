//! What a workload trains on.

use serde::Deserialize;

use super::text::Text;
use vramlab_train::DataPath;

/// What a workload trains on.
#[derive(Clone, Debug)]
pub enum Data {
    /// The four reference batches, kept on the device.
    Reference,
    /// The same four, made anew on the device in every step.
    Fresh,
    /// The same four, kept in host memory and copied when their turn comes.
    Host,
    /// The same four, brought to the device anew each time, ahead of their turn where memory is page-locked.
    Streamed,
    /// Random windows of a text.
    Text(Text),
}

impl Data {
    /// The way that its batches take.
    #[must_use]
    pub const fn path(&self) -> DataPath {
        match self {
            Self::Reference => DataPath::Resident,
            Self::Fresh => DataPath::Fresh,
            Self::Host => DataPath::Host,
            Self::Streamed | Self::Text(_) => DataPath::Streamed,
        }
    }
}

/// What a workload trains on unless somebody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Text, byte by byte.
    Text,
    /// The reference batches, streamed.
    Synthetic,
    /// The reference batches, made anew on the device.
    Fresh,
}

impl DataKind {
    /// The data themselves: the text is vramlab's own source.
    #[must_use]
    pub fn data(self) -> Data {
        match self {
            Self::Text => Data::Text(Text::source()),
            Self::Synthetic => Data::Streamed,
            Self::Fresh => Data::Fresh,
        }
    }
}
