//! Settings read from text: from a program's argument, or from the environment.

use super::error::SettingsError;
use super::parser;
use super::values::Settings;
use crate::version::TorchVersion;

/// Variables that hold the configuration string; the first one that is set wins. The flag says whether keys that only
/// the CUDA allocator knows are read from it.
const VARIABLES: [(&str, bool); 3] =
    [("PYTORCH_CUDA_ALLOC_CONF", true), ("PYTORCH_HIP_ALLOC_CONF", false), ("PYTORCH_ALLOC_CONF", true)];

impl Settings {
    /// The defaults with `text` applied.
    ///
    /// # Errors
    /// [`SettingsError`]: PyTorch would refuse the text too.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        settings.apply(text)?;
        Ok(settings)
    }

    /// Like [`Settings::parse`], with the keys and rules of another version of PyTorch.
    ///
    /// # Errors
    /// [`SettingsError`]: that version would refuse the text too.
    pub fn parse_for(torch: TorchVersion, text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::of(torch);
        settings.apply(text)?;
        Ok(settings)
    }

    /// The oldest version that accepts `text`; `None` if every version refuses it.
    #[must_use]
    pub fn since(text: &str) -> Option<TorchVersion> {
        TorchVersion::ALL.into_iter().find(|torch| Self::parse_for(*torch, text).is_ok())
    }

    /// The defaults of a version.
    #[must_use]
    pub fn of(torch: TorchVersion) -> Self {
        Self { torch, ..Self::default() }
    }

    /// The defaults with the environment's configuration string applied: `PYTORCH_CUDA_ALLOC_CONF`, or
    /// `PYTORCH_HIP_ALLOC_CONF` (only the keys of all back ends), or `PYTORCH_ALLOC_CONF`. A variable set to the empty
    /// string counts as set.
    ///
    /// # Errors
    /// [`SettingsError`], as [`Settings::parse`].
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some((text, cuda_keys)) = VARIABLES.iter().find_map(|&(name, cuda)| Some((variable(name)?, cuda))) {
            parser::apply_common(&mut settings, &text)?;
            if cuda_keys {
                parser::apply_cuda(&mut settings, &text)?;
            }
        }
        Ok(settings)
    }

    /// Reads a configuration string at run time (`torch.cuda.memory._set_allocator_settings`).
    ///
    /// As in PyTorch this is not a transaction: `max_split_size`, `max_non_split_rounding`, the roundup table and the
    /// threshold start from their defaults, every other setting keeps its value unless it is named, and settings read
    /// before an error stay.
    ///
    /// # Errors
    /// [`SettingsError`] names the key and what is allowed.
    pub fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        parser::apply_common(self, text)?;
        parser::apply_cuda(self, text)
    }
}
