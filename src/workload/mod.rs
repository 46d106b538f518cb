//! The models and their data.

mod catalog;
mod gpt;
mod hash;
mod mlp;
mod random;
mod text;
mod writing;

pub use catalog::{Architecture, Catalog, CatalogError, DEFAULT, Data, DataKind, Entry, LearningRates, Sizes};
pub use gpt::{Gpt, GptSizes};
pub use mlp::{Mlp, MlpSizes};
pub use random::Random;
pub use text::Text;
