//! How far a result may be from the processor's in f64: the one table of tolerances.

use crate::DType;

/// What kind of arithmetic made an output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ErrorBound {
    /// One right answer: copies, choices, integers, single roundings.
    Exact,
    /// A formula of each element by itself, rounded once.
    Formula,
    /// Sums of so many terms, or what is made of such sums.
    Sum(usize),
    /// The same of terms of about this size, which may cancel until nothing is left.
    Cancelling(usize, f64),
    /// Nothing is known of it: unused elements that a kernel may write.
    Free,
}

/// How an output is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The largest permitted error: of the whole in the Euclidean norm, and of each element, where `patience` times as
    /// much is permitted.
    pub tolerance: f64,
    pub patience: f64,
    /// An element's error is relative to its size and to this part of the output's root mean square: what cancelled is
    /// no longer seen in the element.
    pub spread: f64,
    /// The root mean square counts as no less than this.
    pub size: f64,
    /// Errors up to this are none: half of the least step of the type.
    pub step: f64,
}

impl ErrorBound {
    /// The limits of an output of `dtype`; `tf32` where factors were rounded to TensorFloat-32.
    pub fn limits(self, dtype: DType, tf32: bool) -> Limits {
        let step = if dtype == DType::F16 { 2_f64.powi(-25) * 1.01 } else { 0.0 };
        match self {
            Self::Exact | Self::Free => Limits { tolerance: 0.0, patience: 1.0, spread: 0.0, size: 0.0, step: 0.0 },
            // Half a unit in the last place and 2 % for the arithmetic before, in f32, where terms may cancel.
            Self::Formula => {
                let (tolerance, spread) = match dtype {
                    DType::F16 => (2_f64.powi(-11) * 1.02, 1e-2),
                    DType::Bf16 => (2_f64.powi(-8) * 1.02, 1.25e-3),
                    _ => (1e-5, 0.5),
                };
                Limits { tolerance, patience: 1.0, spread, size: 0.0, step }
            }
            Self::Sum(terms) | Self::Cancelling(terms, _) => {
                let size = if let Self::Cancelling(_, size) = self { size } else { 0.0 };
                let tolerance = match dtype {
                    DType::F16 => 2e-3,
                    DType::Bf16 => 1.5e-2,
                    _ if tf32 => 1e-3,
                    _ => 2e-6 * (terms.max(4) as f64).sqrt(),
                };
                Limits { tolerance, patience: 4.0, spread: 1.0, size, step }
            }
        }
    }
}
