//! Where a user's own files are.

use std::ffi::OsString;
use std::path::PathBuf;

/// The folder for everything that a user writes for the program: `$XDG_CONFIG_HOME/vramlab`, or the same under
/// `~/.config`.
pub fn config_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join("vramlab"))
}
