//! The ways to compute a convolution, and what is known of each that was met.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::products::Products;
use crate::cuda::choices::Choices;
use crate::cuda::dnn::{ConvolutionKey, ExecutionPlan};

/// What is known of each convolution.
#[derive(Default)]
pub(crate) struct Convolutions {
    pub(crate) forms: HashMap<ConvolutionKey, Form>,
    pub(crate) choices: Option<Choices<4>>,
    pub(crate) notes: Vec<String>,
}

impl Convolutions {
    /// What was chosen, with the time that it took.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().cloned()
    }
}

/// A way to compute a convolution.
#[derive(Clone)]
pub(crate) enum Form {
    Engine(Rc<ExecutionPlan>),
    /// An engine for [`ConvolutionKey::turned`].
    Turned(Rc<ExecutionPlan>),
    Products(Products),
    /// Own kernels that multiply in tiles, and need no memory.
    Tiles,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(plan) => write!(f, "engine {}", plan.engine().index),
            Self::Turned(plan) => write!(f, "turned, engine {}", plan.engine().index),
            Self::Products(products) => products.fmt(f),
            Self::Tiles => f.write_str("tiles"),
        }
    }
}

impl Form {
    /// What is written down: its kind and which of them.
    pub fn words(&self) -> [u64; 2] {
        match self {
            Self::Tiles => [0, 0],
            Self::Engine(plan) => [1, plan.engine().tag],
            Self::Products(products) => [2, products.tag()],
            Self::Turned(plan) => [3, plan.engine().tag],
        }
    }
}
