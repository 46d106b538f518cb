//! Settings from text: given by a program, or by its environment.

use super::error::SettingsError;
use super::parser;
use super::values::Settings;
use crate::version::TorchVersion;

/// Variables that hold the configuration string, the first one set wins; the flag tells whether keys that only the
/// CUDA allocator knows are read from it.
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

    /// The same for another version of PyTorch, whose keys and rules count.
    ///
    /// # Errors
    /// [`SettingsError`]: that version would refuse the text too.
    pub fn parse_for(torch: TorchVersion, text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::of(torch);
        settings.apply(text)?;
        Ok(settings)
    }

    /// The oldest version that takes `text`: an older one stops at it. `None` if each refuses it.
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
    /// `PYTORCH_HIP_ALLOC_CONF` (keys of all back ends only), or `PYTORCH_ALLOC_CONF`. A variable set to nothing counts.
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
    /// threshold start from their defaults, everything else keeps its value unless named, and what was read before an
    /// error stays.
    ///
    /// # Errors
    /// [`SettingsError`] names the key and what is allowed.
    pub fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        parser::apply_common(self, text)?;
        parser::apply_cuda(self, text)
    }
}
