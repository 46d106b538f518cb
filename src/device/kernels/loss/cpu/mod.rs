//! Losses in loops.

pub(super) mod bce;
pub(super) mod cross_entropy;
pub(super) mod nll;
