//! The releases of PyTorch whose allocators are known.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A release of PyTorch: decides which settings exist, and how the allocator decides.
///
/// Releases before 2.11 decide as 2.11 does: random programs run through the released allocators of 2.6 and 2.10 show
/// no difference. For releases before 2.6 only the settings were examined.
///
/// Recordings store a version by its position in this list, so a new version goes at the end. Versions compare by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TorchVersion {
    /// Like 2.9, with its own parser of settings, which takes 20 MiB as the smallest `max_split_size_mb`.
    #[serde(rename = "2.10")]
    V2_10 = 10,
    /// The lowest of several equally large free blocks is taken first; the size of large segments can be configured.
    #[default]
    #[serde(rename = "2.11")]
    V2_11 = 11,
    /// The block whose object was made first is taken first; requests can be refused before the driver is asked.
    #[serde(rename = "2.12")]
    V2_12 = 12,
    /// The block in the oldest segment is taken first, and within it the lowest address; a limit is rounded to the
    /// nearest byte, and only a real graph capture holds events back.
    #[serde(rename = "2.13")]
    V2_13 = 13,
    /// Like 2.13.
    #[serde(rename = "2.14")]
    V2_14 = 14,
    /// Like 2.13; the address space that an expandable segment reserves can be configured.
    #[serde(rename = "2.15")]
    V2_15 = 15,
    /// The first release with expandable segments.
    #[serde(rename = "2.1")]
    V2_1 = 1,
    /// Like 2.1, with settings for page-locked memory.
    #[serde(rename = "2.2")]
    V2_2 = 2,
    /// Like 2.2.
    #[serde(rename = "2.3")]
    V2_3 = 3,
    /// Like 2.2.
    #[serde(rename = "2.4")]
    V2_4 = 4,
    /// Like 2.2.
    #[serde(rename = "2.5")]
    V2_5 = 5,
    /// Like 2.2; how much of an oversize block may stay unused can be configured.
    #[serde(rename = "2.6")]
    V2_6 = 6,
    /// Like 2.6.
    #[serde(rename = "2.7")]
    V2_7 = 7,
    /// Like 2.6.
    #[serde(rename = "2.8")]
    V2_8 = 8,
    /// Like 2.6.
    #[serde(rename = "2.9")]
    V2_9 = 9,
}

impl TorchVersion {
    /// All versions, oldest first.
    pub const ALL: [Self; 15] = [
        Self::V2_1,
        Self::V2_2,
        Self::V2_3,
        Self::V2_4,
        Self::V2_5,
        Self::V2_6,
        Self::V2_7,
        Self::V2_8,
        Self::V2_9,
        Self::V2_10,
        Self::V2_11,
        Self::V2_12,
        Self::V2_13,
        Self::V2_14,
        Self::V2_15,
    ];

    /// The environment variable from which a job reads its allocator's settings. Later versions still accept the older name.
    #[must_use]
    pub fn settings_variable(self) -> &'static str {
        if self < Self::V2_10 { "PYTORCH_CUDA_ALLOC_CONF" } else { "PYTORCH_ALLOC_CONF" }
    }

    /// The version's number as text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2_1 => "2.1",
            Self::V2_2 => "2.2",
            Self::V2_3 => "2.3",
            Self::V2_4 => "2.4",
            Self::V2_5 => "2.5",
            Self::V2_6 => "2.6",
            Self::V2_7 => "2.7",
            Self::V2_8 => "2.8",
            Self::V2_9 => "2.9",
            Self::V2_10 => "2.10",
            Self::V2_11 => "2.11",
            Self::V2_12 => "2.12",
            Self::V2_13 => "2.13",
            Self::V2_14 => "2.14",
            Self::V2_15 => "2.15",
        }
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A version whose allocator has not been compared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the allocator of PyTorch {text:?} is not known; give a version from 2.1 to 2.15, such as 2.13")]
pub struct UnknownVersion {
    /// The text that was given.
    pub text: String,
}

impl FromStr for TorchVersion {
    type Err = UnknownVersion;

    /// Reads `2.13`, `2.13.1` and `2.13.0+cu130`.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion { text: text.to_owned() };
        let (release, _) = text.split_once('+').unwrap_or((text, ""));
        let mut numbers = release.split('.').map(str::parse::<u32>);
        let (Some(Ok(2)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return Err(unknown()) };
        // A third number, or a pre-release suffix (`0a0`) in its place, makes no difference to the allocator.
        if numbers.count() > 1 {
            return Err(unknown());
        }
        let index = usize::try_from(minor).ok().and_then(|minor| minor.checked_sub(1));
        index.and_then(|index| Self::ALL.get(index)).copied().ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_pytorch_writes_them() {
        for version in TorchVersion::ALL {
            assert_eq!(version.name().parse(), Ok(version));
            assert_eq!(format!("{version}.1+cu130").parse(), Ok(version));
            assert_eq!(serde_json::to_value(version).unwrap(), version.name());
        }
        assert_eq!("2.1".parse(), Ok(TorchVersion::V2_1));
        assert!(TorchVersion::ALL.is_sorted());
        assert_eq!("2.14.0a0+git1".parse(), Ok(TorchVersion::V2_14));
        for text in ["", "2", "3.0", "1.13", "2.0", "2.16", "2.x", "2.13.0.1", "v2.13", "-2.13"] {
            assert!(text.parse::<TorchVersion>().is_err(), "{text}");
        }
    }
}
