//! The processor's losses.

pub(super) mod bce;
pub(super) mod cross_entropy;
pub(super) mod nll;
