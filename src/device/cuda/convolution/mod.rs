//! Convolutions by the fastest way there is. cuDNN's heuristics don't look for engines that repeat bit for bit and do not
//! round, so for every shape several of its engines, and products of matrices, are timed once; what was the fastest is
//! remembered on disk, so that a run can be repeated.

mod form;
mod products;

pub(crate) use form::{Convolutions, Form};
pub(crate) use products::{Order, Products, Task};
