//! What one open GPU consists of.

use super::blas::Blas;
use super::convolution::Convolutions;
use super::dnn::Dnn;
use super::driver::Properties;
use super::modules::Modules;
use super::scratch::Scratch;
use crate::MatrixPrecision;

/// An open GPU: everything but its memory and its streams.
pub(crate) struct Gpu {
    pub properties: Properties,
    pub modules: Modules,
    pub scratch: Scratch,
    pub blas: Blas,
    /// Refers to cuDNN's handle, which goes after it.
    pub convolutions: Convolutions,
    pub dnn: Dnn,
    /// What f32 products may be rounded to.
    pub precision: MatrixPrecision,
}
