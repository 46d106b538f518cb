//! Whole numbers from users, on the command line and in files, with bounds in their type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Within<const LEAST: usize, const MOST: usize>(usize);

/// Why a text is no number within the bounds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given} can't be; give a whole number from {least} to {most}")]
pub struct OutOfBounds {
    given: String,
    least: usize,
    most: usize,
}

impl<const LEAST: usize, const MOST: usize> Within<LEAST, MOST> {
    /// The largest number.
    pub const MOST: Self = Self(MOST);

    /// `n`, if it is within the bounds.
    #[must_use]
    pub const fn new(n: usize) -> Option<Self> {
        if LEAST <= n && n <= MOST { Some(Self(n)) } else { None }
    }

    /// The number within the bounds that is nearest to `n`.
    #[must_use]
    pub const fn nearest(n: usize) -> Self {
        Self(if n < LEAST {
            LEAST
        } else if n > MOST {
            MOST
        } else {
            n
        })
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }

    fn refused(given: impl fmt::Display) -> OutOfBounds {
        OutOfBounds { given: given.to_string(), least: LEAST, most: MOST }
    }
}

impl<const LEAST: usize, const MOST: usize> TryFrom<i64> for Within<LEAST, MOST> {
    type Error = OutOfBounds;

    fn try_from(n: i64) -> Result<Self, OutOfBounds> {
        usize::try_from(n).ok().and_then(Self::new).ok_or_else(|| Self::refused(n))
    }
}

impl<const LEAST: usize, const MOST: usize> FromStr for Within<LEAST, MOST> {
    type Err = OutOfBounds;

    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| Self::refused(format_args!("'{text}'")))
    }
}

impl<const LEAST: usize, const MOST: usize> From<Within<LEAST, MOST>> for usize {
    fn from(n: Within<LEAST, MOST>) -> Self {
        n.0
    }
}

impl<const LEAST: usize, const MOST: usize> Default for Within<LEAST, MOST> {
    /// The least number.
    fn default() -> Self {
        Self(LEAST)
    }
}

impl<const LEAST: usize, const MOST: usize> fmt::Display for Within<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Few = Within<1, 10_000>;

    #[test]
    fn numbers_outside_are_refused_with_the_bounds() {
        assert_eq!("10000".parse::<Few>().map(Few::get), Ok(10_000));
        for wrong in ["0", "10001", "-1", "1.5", "4294967296", "18446744073709551616", ""] {
            let refused = wrong.parse::<Few>().unwrap_err().to_string();
            assert_eq!(refused, format!("'{wrong}' can't be; give a whole number from 1 to 10000"));
        }
        for wrong in [0, -1, 10_001, i64::MAX, i64::MIN] {
            assert!(Few::try_from(wrong).is_err(), "{wrong}");
        }
        assert_eq!([0, 3, 20_000].map(|n| Few::nearest(n).get()), [1, 3, 10_000]);
        assert_eq!(Within::<0, 9>::new(0).map(Within::get), Some(0));
    }
}
