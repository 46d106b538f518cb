//! The ways to compute a convolution, and the fastest one for each shape.

mod form;
mod products;

pub(crate) use form::{Convolutions, Form};
pub(crate) use products::{Products, ScratchOrder, Task};
