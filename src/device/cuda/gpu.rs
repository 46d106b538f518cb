//! The parts of one open GPU.

use super::blas::Blas;
use super::convolution::Convolutions;
use super::dnn::Dnn;
use super::driver::Properties;
use super::modules::Modules;
use super::scratch::Scratch;
use crate::MatrixPrecision;

/// An open GPU, except for its memory and its streams.
pub(crate) struct Gpu {
    pub properties: Properties,
    pub modules: Modules,
    pub scratch: Scratch,
    pub blas: Blas,
    /// Refers to cuDNN's handle, which is dropped after it.
    pub convolutions: Convolutions,
    pub dnn: Dnn,
    /// The permitted rounding of f32 products.
    pub precision: MatrixPrecision,
}
