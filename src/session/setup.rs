//! Everything that can be switched, as one value: the training configuration and the bounds of memory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use vramlab_allocator::units::Bytes;
use vramlab_allocator::{Settings, TorchVersion};
use vramlab_train::Config;

/// The most that the allocator may reserve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum MemoryLimit {
    /// This many bytes.
    Bytes(Bytes),
    /// A share of the device's memory (`torch.cuda.set_per_process_memory_fraction`), above 0 and up to 1.
    Fraction(f64),
}

impl MemoryLimit {
    /// The limit on a device with `memory`.
    #[must_use]
    pub fn of(self, memory: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u64")]
            #[expect(clippy::cast_precision_loss, reason = "PyTorch multiplies as f64 too")]
            Self::Fraction(share) => Bytes((memory.get() as f64 * share) as u64),
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = String;

    /// Reads `8GiB`, `512 MiB`, `50%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else { return text.parse().map(Self::Bytes) };
        match percent.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Fraction(percent / 100.0)),
            _ => Err("a share of the device's memory is above 0 % and at most 100 %, such as 50%".to_owned()),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Fraction(share) => write!(f, "{:.0} %", share * 100.0),
        }
    }
}

/// Everything that can be switched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The training configuration.
    pub config: Config,
    /// The most that may be reserved; `None` for all of the device's memory.
    pub limit: Option<MemoryLimit>,
    /// The allocator settings last asked for, in PyTorch's syntax; empty for the defaults.
    pub alloc_conf: Arc<str>,
    /// The version of PyTorch whose allocator is used. Not a switch, but it decides which settings exist.
    pub torch: TorchVersion,
}

impl Setup {
    /// A configuration with all of the device's memory and the allocator's defaults.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, limit: None, alloc_conf: "".into(), torch: TorchVersion::default() }
    }
}

/// Checks whether that version of PyTorch would accept these allocator settings.
///
/// # Errors
/// A sentence that says what is wrong with them.
pub fn check_settings(torch: TorchVersion, text: &str) -> Result<(), String> {
    Settings::parse_for(torch, text).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bytes_or_shares() {
        let limit = |text: &str| text.parse::<MemoryLimit>();
        assert_eq!(limit("8GiB"), Ok(MemoryLimit::Bytes(Bytes::gib(8))));
        assert_eq!(limit("50%"), Ok(MemoryLimit::Fraction(0.5)));
        assert_eq!(MemoryLimit::Fraction(0.5).of(Bytes::gib(80)), Bytes::gib(40));
        for wrong in ["0%", "120%", "half", "-3GiB"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
