//! Quantities used everywhere: bytes, device addresses, streams.
//!
//! They are separate types because mixing them up is the likeliest bug in this field: an address is not a size, and a
//! stream handle is neither.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One KiB in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// A number of bytes. Displays with a binary unit: `512 B`, `1.50 MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n * KIB)
    }

    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n * MIB)
    }

    /// `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n * GIB)
    }

    /// The bare number, for arithmetic that leaves the unit behind.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `self - other`, or zero where that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Reads `8GiB`, `512 MiB`, `1.5g`, `4096`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => KIB,
            "m" | "mib" => MIB,
            "g" | "gib" => GIB,
            other => return Err(format!("'{other}' is no unit of memory; write KiB, MiB or GiB")),
        };
        let number: f64 = number.parse().map_err(|_| "a size is a number and a unit, such as 8GiB".to_owned())?;
        let bytes = number * unit as f64;
        if !(1.0..=9.0e18).contains(&bytes) {
            return Err("a size must be at least one byte and below 8 EiB".to_owned());
        }
        Ok(Self(bytes as u64))
    }
}

/// Saturates, because a damaged file can give any number as a size.
impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
        let n = self.0 as f64;
        let text = match self.0 {
            0..KIB => format!("{} B", self.0),
            KIB..MIB => format!("{:.2} KiB", n / KIB as f64),
            MIB..GIB => format!("{:.2} MiB", n / MIB as f64),
            _ => format!("{:.2} GiB", n / GIB as f64),
        };
        f.pad(&text)
    }
}

/// An address in device memory. Arithmetic goes through [`Address::offset`] and [`Address::distance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` above this one.
    #[must_use]
    pub const fn offset(self, bytes: Bytes) -> Self {
        Self(self.0 + bytes.0)
    }

    /// Bytes from `start` up to this address; `start` must not be above it.
    #[must_use]
    pub const fn distance(self, start: Self) -> Bytes {
        Bytes(self.0 - start.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The index of a device among several: its rank. 0 if there is only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceIndex(pub u16);

impl DeviceIndex {
    /// The only device, or the first of several.
    pub const FIRST: Self = Self(0);
}

/// A CUDA stream, by its raw handle as PyTorch traces show it; 0 is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The default stream, used by all work that names no other.
    pub const DEFAULT: Self = Self(0);
}

/// A point in time in microseconds: since the source began (live run), or since 1970 (PyTorch's snapshots).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        let bytes = |text: &str| text.parse::<Bytes>();
        assert_eq!(bytes("8GiB"), Ok(Bytes::gib(8)));
        assert_eq!(bytes("512 MiB"), Ok(Bytes::mib(512)));
        assert_eq!(bytes("1.5g"), Ok(Bytes::mib(1536)));
        assert_eq!(bytes("4096"), Ok(Bytes(4096)));
        for wrong in ["8 apples", "GiB", "0", "-3GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_display_with_the_largest_unit_below_them() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes::mib(20).to_string(), "20.00 MiB");
        assert_eq!(format!("{:>10}", Bytes::gib(1)), "  1.00 GiB");
    }
}
