//! How far a result may differ from the processor's in f64: the only table of tolerances.

use crate::DType;

/// The kind of arithmetic that produced an output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ErrorBound {
    /// There is one right answer: copies, choices, integers, single roundings.
    Exact,
    /// A formula of each element alone, rounded once.
    Formula,
    /// Sums of this many terms, or values computed from such sums.
    Sum(usize),
    /// Sums of terms of about this size, which may cancel completely.
    Cancelling(usize, f64),
    /// Nothing is checked: unused elements that a kernel may write.
    Free,
}

/// How an output is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The largest permitted error of the whole output, in the Euclidean norm. For single elements, `patience` times as
    /// much is permitted.
    pub tolerance: f64,
    pub patience: f64,
    /// An element's error is relative to its size plus this share of the output's root mean square, because the
    /// element's size alone does not show what cancelled.
    pub spread: f64,
    /// The lower bound for the root mean square.
    pub size: f64,
    /// Errors up to this count as zero: half of the type's least step.
    pub step: f64,
}

impl ErrorBound {
    /// The limits for an output of `dtype`; `tf32` if factors were rounded to TensorFloat-32.
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
