//! Where a person's own files lie.

use std::ffi::OsString;
use std::path::PathBuf;

/// The folder of all that a person writes for the program: `$XDG_CONFIG_HOME/vramlab`, or the same under `~/.config`.
pub fn config_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join("vramlab"))
}
