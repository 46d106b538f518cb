//! The cases, family by family.

mod attention;
mod batch_norm;
mod convolution;
mod copies;
mod elementwise;
mod embedding;
mod float8;
mod gemm;
mod layer_norm;
mod loss;
mod nf4;
mod optimizer;
mod pool;
mod rms_norm;
mod rotary;
mod routing;
mod softmax;
mod strided;
mod sums;

use super::session::Session;

/// Runs all of them.
pub(super) fn run(session: &mut Session<'_>) {
    copies::run(session);
    elementwise::run(session);
    strided::run(session);
    sums::run(session);
    softmax::run(session);
    layer_norm::run(session);
    rms_norm::run(session);
    gemm::run(session);
    embedding::run(session);
    loss::run(session);
    attention::run(session);
    rotary::run(session);
    routing::run(session);
    nf4::run(session);
    float8::run(session);
    convolution::run(session);
    batch_norm::run(session);
    pool::run(session);
    optimizer::run(session);
}
