//! ViT: patches by a strided convolution, learned positions, pre-norm blocks whose positions see each other, mean pooling.

use vramlab_train::TrainError;

use super::bounds::{Extent, Repeats};
use super::error::CatalogError;
use super::parameters::Spread;
use super::sequential::{Description, Flow, Layer, LayerKind, Sequential};
use super::sizes::{Size, Sizes};

/// Sizes of a ViT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VitSizes {
    /// Pixels along each side of an image.
    pub image: Extent,
    /// Pixels along each side of a patch; they divide the image's.
    pub patch: Extent,
    /// Width of the residual stream.
    pub width: Extent,
    /// Blocks.
    pub layers: Repeats,
    /// Attention heads; they divide the width.
    pub heads: Extent,
    /// Classes.
    pub classes: Extent,
}

impl VitSizes {
    /// Those of the workload `name`.
    pub(super) fn of(name: &str, sizes: Sizes) -> Result<Self, CatalogError> {
        let known = [Size::Layers, Size::Width, Size::Heads, Size::Image, Size::Patch, Size::Classes];
        let checked = sizes.only(name, &known)?;
        Ok(Self {
            image: checked.need(Size::Image)?,
            patch: checked.need(Size::Patch)?,
            width: checked.need(Size::Width)?,
            layers: checked.layers()?,
            heads: checked.need(Size::Heads)?,
            classes: checked.need(Size::Classes)?,
        })
    }
}

/// The workload of a ViT.
///
/// # Errors
/// [`TrainError::Workload`] for sizes of which no model can be made.
pub fn vit(name: &str, sizes: VitSizes) -> Result<Sequential, TrainError> {
    let VitSizes { image, patch, width, layers: repeat, heads, classes } = sizes;
    let layers = [
        ("patch", LayerKind::Patches { side: patch, width }),
        ("blocks", LayerKind::Transformer { heads, causal: false, post_norm: false, tanh: false, repeat }),
        ("ln_f", LayerKind::LayerNorm),
        ("mean", LayerKind::Mean),
        ("head", LayerKind::Linear { outputs: classes, bias: true }),
    ];
    Sequential::new(
        name,
        &Description {
            input: Flow::Image { channels: 3, side: image.get() },
            layers: layers.into_iter().map(|(name, kind)| Layer::named(name, kind)).collect(),
            spread: Spread::Transformer,
        },
    )
}
