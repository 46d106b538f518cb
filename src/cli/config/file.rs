//! The user's settings: those in the file, those in the environment, and complaints about those that are invalid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

use super::values::{ColorArg, GlyphArg};
use crate::tui::{self, Keymap};
use crate::user_input::{FileError, TomlText, Within};

/// Frames per second that can be requested.
pub(in crate::cli) type FrameRate = Within<1, 60>;

/// The settings; `None` means not set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Config {
    /// The theme's name.
    pub theme: Option<String>,
    /// How many colours to use.
    pub color: Option<ColorArg>,
    /// Which characters to use.
    pub glyphs: Option<GlyphArg>,
    /// The workload to train.
    pub workload: Option<String>,
    /// The device to train on.
    pub device: Option<String>,
    /// Whether the program reads the mouse.
    pub mouse: Option<bool>,
    /// Whether flashing is turned off.
    pub reduced_motion: Option<bool>,
    /// Frames per second at most.
    pub frames: Option<FrameRate>,
    /// The folder for recordings.
    pub recordings: Option<PathBuf>,
    /// Keys, by the words of the commands.
    #[serde(default)]
    pub keys: BTreeMap<String, Names>,
}

/// The keys of a command.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a key such as \"q\", or a list of keys")]
pub(in crate::cli) enum Names {
    /// One key.
    One(String),
    /// Several keys, or none.
    Several(Vec<String>),
}

/// The settings in force, and a sentence for each setting that could not be understood.
#[derive(Clone, Debug)]
pub(in crate::cli) struct UserSettings {
    /// The settings.
    pub config: Config,
    /// The keys in force.
    pub keys: Keymap,
    /// Complaints to show to the user.
    pub told: Vec<String>,
}

impl UserSettings {
    /// Reads `file`, which need not exist, and the environment, which takes precedence. Settings that can't be read are
    /// ignored and reported in `told`.
    pub fn read(file: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut told = Vec::new();
        let said = file.map_or_else(Config::default, |file| {
            of_file(file).unwrap_or_else(|sentence| {
                told.push(sentence);
                Config::default()
            })
        });
        let environment = of_environment(&variable, &mut told);
        let names = |names: &Names| match names {
            Names::One(name) => vec![name.clone()],
            Names::Several(names) => names.clone(),
        };
        let wanted = said.keys.iter().map(|(word, keys)| (word.clone(), names(keys))).collect();
        let (keys, conflicts) = tui::standard_keys().rebound(&wanted);
        let place = file.map_or_else(String::new, |file| file.display().to_string());
        told.extend(conflicts.into_iter().map(|conflict| format!("{place}, [keys]: {conflict}")));
        Self { config: environment.or(said), keys, told }
    }
}

impl Config {
    /// Returns these settings, with those that are not set taken from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            theme: self.theme.or(other.theme),
            color: self.color.or(other.color),
            glyphs: self.glyphs.or(other.glyphs),
            workload: self.workload.or(other.workload),
            device: self.device.or(other.device),
            mouse: self.mouse.or(other.mouse),
            reduced_motion: self.reduced_motion.or(other.reduced_motion),
            frames: self.frames.or(other.frames),
            recordings: self.recordings.or(other.recordings),
            keys: if self.keys.is_empty() { other.keys } else { self.keys },
        }
    }
}

fn of_file(file: &Path) -> Result<Config, String> {
    let text = match TomlText::read(file) {
        Ok(text) => text,
        Err(FileError::Unreadable { reason, .. }) if reason.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Config::default());
        }
        Err(error) => return Err(error.to_string()),
    };
    text.parse().map_err(|error| {
        let (file, line, column) = (file.display(), error.line(), error.column());
        format!("{file}, line {line}, column {column}: {}; the defaults are used until it is corrected", error.reason())
    })
}

fn of_environment(variable: &impl Fn(&str) -> Option<String>, told: &mut Vec<String>) -> Config {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut refuse =
        |name: &str, value: &str, what: &str| told.push(format!("{name} is \"{value}\", which is not {what}"));
    let switch = |text: &str| match text {
        "true" | "on" | "yes" | "1" => Some(true),
        "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    };
    let mut truth = |name: &str| {
        let value = set(name)?;
        switch(&value).or_else(|| {
            refuse(name, &value, "true or false");
            None
        })
    };
    let (mouse, reduced_motion) = (truth("VRAMLAB_MOUSE"), truth("VRAMLAB_REDUCED_MOTION"));
    let color = set("VRAMLAB_COLOR").and_then(|value| {
        let color = ColorArg::from_str(&value, true);
        color.map_err(|_| refuse("VRAMLAB_COLOR", &value, "auto, never, 16, 256 or truecolor")).ok()
    });
    let glyphs = set("VRAMLAB_GLYPHS").and_then(|value| {
        let glyphs = GlyphArg::from_str(&value, true);
        glyphs.map_err(|_| refuse("VRAMLAB_GLYPHS", &value, "auto, unicode or ascii")).ok()
    });
    let frames = set("VRAMLAB_FRAMES").and_then(|value| {
        value.parse().map_err(|_| refuse("VRAMLAB_FRAMES", &value, "a whole number from 1 to 60")).ok()
    });
    Config {
        theme: set("VRAMLAB_THEME"),
        // The convention of no-color.org is part of the environment.
        color: color.or_else(|| set("NO_COLOR").map(|_| ColorArg::Never)),
        glyphs,
        workload: set("VRAMLAB_WORKLOAD"),
        device: set("VRAMLAB_DEVICE"),
        mouse,
        reduced_motion,
        frames,
        recordings: set("VRAMLAB_RECORDINGS").map(PathBuf::from),
        keys: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, environment: &[(&str, &str)]) -> UserSettings {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        UserSettings::read(Some(&file), |name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_beats_the_file_and_the_file_what_is_not_set() {
        let settings = read(
            "theme = 'nord'\nmouse = false\nframes = 5\ncolor = '256'",
            &[("VRAMLAB_THEME", "light"), ("VRAMLAB_FRAMES", "")],
        );
        assert_eq!(settings.told, Vec::<String>::new());
        let Config { theme, mouse, frames, color, glyphs, .. } = settings.config;
        assert_eq!((theme.as_deref(), mouse, frames.map(FrameRate::get)), (Some("light"), Some(false), Some(5)));
        assert_eq!((color, glyphs), (Some(ColorArg::Indexed), None));
        assert_eq!(read("color = 'truecolor'", &[("NO_COLOR", "1")]).config.color, Some(ColorArg::Never));
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_with_its_place_and_nothing_of_it_counts() {
        for (text, at, what) in [
            ("mouse = true\nthem = 'nord'", "line 2, column 1", "(did you mean \"theme\"?)"),
            ("theme = ", "line 1, column", ""),
            ("\n  frames = 61", "line 2, column 12", "give a whole number from 1 to 60"),
            ("glyphs = 'asci'", "line 1, column 10", "(did you mean \"ascii\"?)"),
            ("[keys]\npause = 7", "line 2, column", "a key such as"),
        ] {
            let settings = read(text, &[]);
            assert_eq!(settings.config, Config::default(), "{text}");
            let told = settings.told.join("\n");
            assert!(told.contains("config.toml, ") && told.contains(at) && told.contains(what), "{text}: {told}");
            assert_eq!(settings.told.len(), 1);
        }
        assert!(
            UserSettings::read(Some(Path::new("/nonexistent/config.toml")), |_| None).told.is_empty(),
            "it need not be there"
        );
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(UserSettings::read(Some(folder.path()), |_| None).told.len(), 1, "but what is there must be a file");
    }

    #[test]
    fn what_is_wrong_in_the_environment_is_told_and_the_file_counts() {
        let wrong =
            [("VRAMLAB_MOUSE", "maybe"), ("VRAMLAB_COLOR", "pink"), ("VRAMLAB_FRAMES", "0"), ("VRAMLAB_GLYPHS", "x")];
        let settings = read("mouse = false", &wrong);
        assert_eq!(settings.told.len(), 4, "{:?}", settings.told);
        assert!(settings.told.contains(&"VRAMLAB_MOUSE is \"maybe\", which is not true or false".to_owned()));
        assert_eq!(settings.config.mouse, Some(false));
    }

    #[test]
    fn keys_are_bound_anew_and_their_conflicts_are_told_with_the_file() {
        let settings = read("[keys]\npause = 'f5'\nop = ['f5', 'f6']\nstpe = 'x'", &[]);
        assert_eq!(settings.told.len(), 2, "{:?}", settings.told);
        assert!(settings.told.iter().all(|line| line.contains("config.toml, [keys]: ")), "{:?}", settings.told);
        assert_eq!(settings.keys.key_of(tui::Action::TogglePause), "space", "by the alphabet op has F5 first");
    }
}
