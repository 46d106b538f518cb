//! `vramlab config`: every setting with its default, and the path of the settings file.

mod file;
mod keep;
mod values;

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr, eyre};

use super::output::{stdout, warn};
use super::{Status, spec};
use crate::tui::{self, KeyGroup};
use crate::user_input;

pub(super) use file::UserSettings;
pub(super) use values::{ColorArg, GlyphArg};

/// Arguments of `vramlab config`.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Write the file if there is none yet.
    #[arg(long)]
    init: bool,
}

/// Prints every setting with its default, or writes the file.
pub(super) fn run(args: &ConfigArgs) -> Result<Status> {
    let file = place();
    if args.init {
        let file = file.ok_or_else(|| eyre!("there is no folder for settings; set HOME or XDG_CONFIG_HOME"))?;
        if fs::symlink_metadata(&file).is_ok() {
            return Err(eyre!("{} is there already; edit it, or move it away first", file.display()));
        }
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder.and_then(|()| fs::write(&file, documented()));
        written.wrap_err_with(|| format!("{} can't be written", file.display()))?;
        writeln!(stdout(), "{} has every setting with its default now.", file.display())?;
        return Ok(Status::DONE);
    }
    let mut out = stdout();
    match &file {
        Some(file) if file.exists() => writeln!(out, "# {} is read. What there can be in it:", file.display())?,
        Some(file) => {
            writeln!(out, "# {} is not there yet: `vramlab config --init` writes this to it.", file.display())?
        }
        None => writeln!(out, "# There is no folder for settings: set HOME or XDG_CONFIG_HOME.")?,
    }
    write!(out, "{}", documented())?;
    out.flush()?;
    settings().told.iter().for_each(warn);
    Ok(Status::DONE)
}

/// The path of the settings file.
pub(super) fn place() -> Option<PathBuf> {
    Some(user_input::config_folder(|name| std::env::var_os(name))?.join("config.toml"))
}

/// Saves a theme in the settings file. Returns a sentence that says where, or why it failed.
pub(super) fn keep_theme(name: &str) -> String {
    let Some(file) = place() else {
        return "this theme holds until you quit: there is no folder for settings; set HOME or XDG_CONFIG_HOME"
            .to_owned();
    };
    match keep::theme(&file, name, documented) {
        Ok(()) => format!("theme \"{name}\" is kept in {}", file.display()),
        Err(error) => format!("this theme holds until you quit: {error}"),
    }
}

/// The settings in force.
pub(super) fn settings() -> UserSettings {
    UserSettings::read(place().as_deref(), |name| std::env::var(name).ok())
}

impl UserSettings {
    /// The device that is set, if it is available; else adds the reason to the complaints.
    pub fn device(&mut self) -> Option<String> {
        let text = self.config.device.clone().filter(|text| text != "auto")?;
        let checked = spec::device(&text);
        checked.map_err(|error| self.told.push(format!("in the settings: {error}"))).ok().map(|_| text)
    }

    /// The workload that is set, if it exists; else adds a complaint.
    pub fn workload(&mut self) -> Option<String> {
        let name = self.config.workload.clone()?;
        let entry = spec::workloads().entry(&name);
        entry.map_err(|error| self.told.push(format!("in the settings: {error}"))).ok().map(|_| name)
    }

    /// The folder for recordings, if one is set.
    pub fn recordings(&self) -> Option<PathBuf> {
        let folder = self.config.recordings.as_deref()?;
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        match folder.strip_prefix("~") {
            Ok(below) => Some(home()?.join(below)),
            Err(_) => Some(folder.to_owned()),
        }
    }
}

/// A settings file in which every setting has its default, with a description.
fn documented() -> String {
    let mut text = include_str!("default.toml").to_owned();
    // A command of several screens has the same keys on all of them.
    let mut told = Vec::new();
    for group in KeyGroup::ALL {
        text.push_str(&format!("\n# {}\n", group.title()));
        for binding in tui::standard_keys().bindings().iter().filter(|binding| binding.group == group) {
            if told.contains(&binding.action) {
                continue;
            }
            told.push(binding.action);
            let keys: Vec<String> = binding.keys.iter().map(|key| format!("\"{key}\"")).collect();
            let setting = format!("# {} = [{}]", binding.action.word(), keys.join(", "));
            text.push_str(&format!("{setting:<34} # {}\n", binding.help));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::file::Config;
    use super::*;
    use crate::user_input::TomlText;

    /// The documented file with every setting active instead of commented out.
    fn at_its_word() -> String {
        let is_setting = |line: &str| {
            let word = line.split(" = ").next().unwrap_or_default();
            line.contains(" = ") && word.chars().all(|symbol| symbol.is_ascii_alphanumeric() || "-_".contains(symbol))
        };
        let lines = documented();
        let lines = lines.lines().map(|line| match line.strip_prefix("# ") {
            Some(setting) if is_setting(setting) => setting,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_documented_file_says_nothing_and_every_line_of_it_is_the_default() {
        let nothing: Config = TomlText::built_in(documented().into()).parse().unwrap();
        assert_eq!(nothing, Config::default());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs::write(&file, at_its_word()).unwrap();
        let settings = UserSettings::read(Some(&file), |_| None);
        assert_eq!(settings.told, Vec::<String>::new());
        let set = &settings.config;
        assert!(set.theme.as_deref() == Some("auto") && set.device.as_deref() == Some("auto"));
        assert_eq!(set.workload.as_deref(), Some(crate::workload::DEFAULT));
        assert_eq!((set.color.and_then(ColorArg::tier), set.glyphs.and_then(GlyphArg::tier)), (None, None));
        assert_eq!(
            (set.mouse, set.reduced_motion, set.frames.map(|frames| frames.get())),
            (Some(true), Some(false), Some(30))
        );
        assert_eq!(set.recordings.as_deref(), Some(std::path::Path::new(".")));
        let keys =
            |keymap: &tui::Keymap| keymap.bindings().iter().map(|binding| binding.keys.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&settings.keys), keys(tui::standard_keys()));
        for binding in tui::standard_keys().bindings() {
            assert!(set.keys.contains_key(&*binding.action.word()), "{} is in it", binding.label);
        }
    }
}
