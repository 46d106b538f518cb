//! The precision in which a kernel computes.

use crate::DType;
use crate::cpu::operand::View;
use crate::cpu::real::Real;

/// Calls a function generic over [`Real`] with f64 if any of the types needs it, otherwise with f32.
macro_rules! real {
    ($dtypes:expr, $function:ident($($argument:expr),* $(,)?)) => {
        if $dtypes.into_iter().any($crate::cpu::dispatch::needs_f64) {
            $function::<f64>($($argument),*)
        } else {
            $function::<f32>($($argument),*)
        }
    };
}
pub(crate) use real;

/// Integers of 32 and 64 bits are exact in f64 (up to 2⁵³), not in f32.
pub(crate) const fn needs_f64(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::I64 | DType::I32)
}

/// One element as f64.
pub(crate) fn scalar(view: &View<'_>) -> f64 {
    let mut value = [0.0];
    f64::load(view, 0, &mut value);
    value[0]
}
