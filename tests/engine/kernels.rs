//! The processor device's kernels, against naive references, finite differences and each other.

mod convolution;
mod copies;
mod determinism;
mod float8;
mod forward;
mod gradients;
mod harness;
mod image_gradients;
mod images;
mod optimizers;
mod parts;
