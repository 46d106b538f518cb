//! The cases, family by family.

mod elementwise;
mod gemm;
mod layer_norm;
mod softmax;
mod strided;
mod sums;

use super::session::Session;

/// Runs all of them.
pub(super) fn run(session: &mut Session<'_>) {
    elementwise::run(session);
    strided::run(session);
    sums::run(session);
    softmax::run(session);
    layer_norm::run(session);
    gemm::run(session);
}
