//! The models and their data.

mod bert;
mod catalog;
mod data;
mod dcgan;
mod gpt;
mod hash;
mod image_modules;
mod inference;
mod mlp;
mod modules;
mod random;
mod resnet;
mod sequential;
mod text;
mod transformer;
mod vit;
mod writing;

pub use bert::bert;
pub use catalog::{Architecture, Catalog, CatalogError, DEFAULT, Entry, LearningRates, Sizes};
pub use data::{Data, DataKind};
pub use dcgan::Dcgan;
pub use gpt::{LanguageSizes, gpt};
pub use hash::Spread;
pub use inference::{Generation, Inference, InferenceMode, InferencePlan, Models};
pub use mlp::{MlpSizes, mlp};
pub use random::Random;
pub use resnet::{ResNet, ResNetSizes};
pub use sequential::{Description, Flow, Layer, LayerKind, Sequential};
pub use text::Text;
pub use vit::{VitSizes, vit};
