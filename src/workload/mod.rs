//! The models and their data.

mod bert;
mod catalog;
mod data;
mod gpt;
mod hash;
mod mlp;
mod modules;
mod random;
mod sequential;
mod text;
mod transformer;
mod vit;
mod writing;

pub use bert::bert;
pub use catalog::{Architecture, Catalog, CatalogError, DEFAULT, Entry, LearningRates, Sizes};
pub use data::{Data, DataKind};
pub use gpt::{LanguageSizes, gpt};
pub use hash::Spread;
pub use mlp::{MlpSizes, mlp};
pub use random::Random;
pub use sequential::{Description, Flow, Layer, LayerKind, Sequential};
pub use text::Text;
pub use vit::{VitSizes, vit};
