//! The models and their data.

mod gpt;
mod hash;
mod mlp;

pub use gpt::{Gpt, GptSizes};
pub use mlp::{Mlp, MlpSizes};
