//! A multilayer perceptron: hidden layers of Linear and ReLU, then a head.

use vramlab_train::TrainError;

use super::bounds::{Extent, Repeats};
use super::error::CatalogError;
use super::parameters::Spread;
use super::sequential::{Description, Flow, Layer, LayerKind, Sequential};
use super::sizes::{Size, Sizes};

/// Sizes of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpSizes {
    /// Elements of a sample.
    pub inputs: Extent,
    /// Width of the hidden layers.
    pub width: Extent,
    /// Number of linear layers, with the head.
    pub depth: Repeats,
    /// Number of classes.
    pub classes: Extent,
}

impl MlpSizes {
    /// The sizes of the workload `name`.
    pub(super) fn of(name: &str, sizes: Sizes) -> Result<Self, CatalogError> {
        let checked = sizes.only(name, &[Size::Layers, Size::Width, Size::Seq, Size::Classes])?;
        Ok(Self {
            inputs: checked.need(Size::Seq)?,
            width: checked.need(Size::Width)?,
            depth: checked.layers()?,
            classes: checked.need(Size::Classes)?,
        })
    }
}

/// The workload of an MLP.
///
/// # Errors
/// [`TrainError::Workload`] for sizes that make no model.
pub fn mlp(name: &str, sizes: MlpSizes) -> Result<Sequential, TrainError> {
    let linear = |outputs| LayerKind::Linear { outputs, bias: true };
    let unnamed = |kind| Layer { name: None, kind };
    let layers = vec![unnamed(linear(sizes.width)), unnamed(LayerKind::Relu { saves_input: false })];
    let hidden = Repeats::new(sizes.depth.get() - 1)
        .map(|repeat| Layer::named("hidden", LayerKind::Block { layers, residual: false, autocast: true, repeat }));
    let head = Layer::named("head", linear(sizes.classes));
    Sequential::new(
        name,
        &Description {
            input: Flow::Vector { width: sizes.inputs.get() },
            layers: hidden.into_iter().chain([head]).collect(),
            spread: Spread::FanIn,
        },
    )
}
