//! Whose allocator it is: PyTorch's releases, as far as their allocators differ.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A release of PyTorch whose allocator differs from the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TorchVersion {
    /// 2.1 to 2.10: as 2.11, but segments of the large pool have 20 MiB whatever is configured. Their source was not
    /// compared.
    #[serde(rename = "2.10")]
    V2_10,
    /// 2.11: of several equally large free blocks the lowest address is taken.
    #[default]
    #[serde(rename = "2.11")]
    V2_11,
    /// 2.12: the block whose object was made first; requests can be refused before the driver is asked.
    #[serde(rename = "2.12")]
    V2_12,
    /// 2.13: the block in the oldest segment, in it the lowest address; a limit is rounded to the nearest byte, and only a
    /// real graph capture holds events back.
    #[serde(rename = "2.13")]
    V2_13,
    /// 2.14: as 2.13.
    #[serde(rename = "2.14")]
    V2_14,
    /// 2.15: as 2.13, and how much an expandable segment reserves can be configured.
    #[serde(rename = "2.15")]
    V2_15,
}

impl TorchVersion {
    /// All versions, oldest first.
    pub const ALL: [Self; 6] = [Self::V2_10, Self::V2_11, Self::V2_12, Self::V2_13, Self::V2_14, Self::V2_15];

    /// Its number.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
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

/// A version whose allocator nobody has looked at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the allocator of PyTorch {text:?} is not known; give a version from 2.1 to 2.15, such as 2.13")]
pub struct UnknownVersion {
    /// What was given.
    pub text: String,
}

impl FromStr for TorchVersion {
    type Err = UnknownVersion;

    /// Reads `2.13`, `2.13.1` and `2.13.0+cu130`; 2.1 to 2.9 are 2.10.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion { text: text.to_owned() };
        let (release, _) = text.split_once('+').unwrap_or((text, ""));
        let mut numbers = release.split('.').map(str::parse::<u32>);
        let (Some(Ok(2)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return Err(unknown()) };
        // A third number, or what stands for one before a release (`0a0`), says nothing of the allocator.
        if numbers.count() > 1 {
            return Err(unknown());
        }
        match minor {
            1..=10 => Ok(Self::V2_10),
            11 => Ok(Self::V2_11),
            12 => Ok(Self::V2_12),
            13 => Ok(Self::V2_13),
            14 => Ok(Self::V2_14),
            15 => Ok(Self::V2_15),
            _ => Err(unknown()),
        }
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
        assert_eq!("2.1".parse(), Ok(TorchVersion::V2_10));
        assert_eq!("2.14.0a0+git1".parse(), Ok(TorchVersion::V2_14));
        for text in ["", "2", "3.0", "1.13", "2.0", "2.16", "2.x", "2.13.0.1", "v2.13", "-2.13"] {
            assert!(text.parse::<TorchVersion>().is_err(), "{text}");
        }
    }
}
