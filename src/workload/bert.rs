//! BERT: learned positions, post-norm blocks whose positions see each other, a tied head over every position.

use vramlab_train::TrainError;

use super::gpt::LanguageSizes;
use super::sequential::{Layer, LayerKind, Sequential};

/// The workload of a BERT.
///
/// # Errors
/// [`TrainError::Workload`] for sizes of which no model can be made.
pub fn bert(name: &str, sizes: LanguageSizes) -> Result<Sequential, TrainError> {
    let LanguageSizes { heads, layers: repeat, .. } = sizes;
    let blocks = LayerKind::Transformer { heads, causal: false, post_norm: true, tanh: false, repeat };
    let layers = [Layer::named("ln_e", LayerKind::LayerNorm), Layer::named("blocks", blocks)];
    Sequential::new(name, &sizes.describe(layers))
}
