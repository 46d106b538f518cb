//! The ways to compute a convolution, and which was chosen for each convolution so far.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::products::Products;
use crate::cuda::choices::Choices;
use crate::cuda::dnn::{ConvolutionKey, ExecutionPlan};

/// What is known about each convolution.
#[derive(Default)]
pub(crate) struct Convolutions {
    pub(crate) forms: HashMap<ConvolutionKey, Form>,
    pub(crate) choices: Option<Choices<4>>,
    pub(crate) notes: Vec<String>,
}

impl Convolutions {
    /// The choices, each with its time.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().cloned()
    }
}

/// A way to compute a convolution.
#[derive(Clone)]
pub(crate) enum Form {
    Engine(Rc<ExecutionPlan>),
    /// An engine for the convolution [`ConvolutionKey::turned`].
    Turned(Rc<ExecutionPlan>),
    Products(Products),
    /// This crate's own kernels, which multiply in tiles and need no workspace.
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
    /// Its form on disk: its kind, and its number within the kind.
    pub fn words(&self) -> [u64; 2] {
        match self {
            Self::Tiles => [0, 0],
            Self::Engine(plan) => [1, plan.engine().tag],
            Self::Products(products) => [2, products.tag()],
            Self::Turned(plan) => [3, plan.engine().tag],
        }
    }
}
