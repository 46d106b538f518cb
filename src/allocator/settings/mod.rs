//! The allocator's settings, as `PYTORCH_ALLOC_CONF` writes them.

mod error;
mod keys;
mod parser;
mod read;
mod tokens;
mod values;

#[cfg(test)]
mod tests;

pub use error::{ErrorClass, SettingsError};
pub use tokens::setting_entries;
pub use values::{Reserve, RoundupTable, Settings};
