//! Stories from `lab/demo.toml`, or from a user's own file.

use std::sync::Arc;

use serde::Deserialize;

use crate::model::{Parallelism, RunState};
use crate::session::{LabSpec, NewRun};
use crate::source::{Picture, RankFigures};
use crate::tui::action::{Action, Binding};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::user_input::{TomlError, TomlText};

const BUILT_IN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/demo.toml"));

/// A story.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// The scenes in order.
    pub scenes: Vec<Scene>,
    /// Paragraphs shown over the screen after the last scene.
    #[serde(default)]
    pub closing: Vec<String>,
}

/// Ranks that train the story's workload together from the start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// The device of each rank.
    pub device: String,
    /// The number of ranks.
    pub count: usize,
    /// How they share the work.
    pub parallel: Parallelism,
}

/// A caption, cues, and the condition that ends the scene.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// The caption, which says what is visible.
    pub caption: String,
    /// The ranks of another run that begins first.
    #[serde(default)]
    pub ranks: Option<Ranks>,
    /// The run of these ranks.
    #[serde(skip)]
    pub(super) run: Option<NewRun>,
    /// The words of commands, in order.
    #[serde(default, rename = "do")]
    pub commands: Vec<String>,
    /// The text for the line that the last command opens.
    #[serde(default)]
    pub write: Option<String>,
    /// The condition for the next scene.
    #[serde(default)]
    pub until: SceneEnd,
}

/// The condition that ends a scene.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SceneEnd {
    /// None.
    #[default]
    Read,
    /// This many steps were trained in the scene.
    Steps(u64),
    /// The effect of this switch, or of `empty_cache`, was measured.
    Measured(String),
    /// The run is in this state.
    Run(AwaitedRun),
    /// Ranks that share their work in this way have all trained a step.
    Ranks(Parallelism),
}

/// A state of the run that a scene can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwaitedRun {
    /// It trains.
    Running,
    /// It is paused.
    Paused,
    /// A request failed, and remedies were tried.
    OutOfMemory,
}

/// How long captions stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadingPace {
    /// Long, for an audience that listens to a speaker.
    Slow,
    /// For an audience that reads.
    #[default]
    Normal,
    /// Only as long as their scene waits for something.
    Fast,
}

impl Story {
    /// The built-in story.
    ///
    /// # Errors
    /// Only if the program was built with a malformed story.
    pub fn built_in() -> Result<Self, TomlError> {
        TomlText::built_in(BUILT_IN.into()).parse()
    }

    /// Makes the runs that its scenes only name.
    ///
    /// # Errors
    /// The error of `make` if ranks can't train.
    pub fn with_runs<E>(mut self, make: impl Fn(&Ranks) -> Result<LabSpec, E>) -> Result<Self, E> {
        for scene in &mut self.scenes {
            scene.run = scene.ranks.as_ref().map(&make).transpose()?.map(|spec| NewRun(Arc::new(spec)));
        }
        Ok(self)
    }

    /// Checks that every command is one of `keys`, and every value is written into a line.
    ///
    /// # Errors
    /// A sentence about the first error.
    pub fn check(&self, keys: &Keymap) -> Result<(), String> {
        if self.scenes.is_empty() {
            return Err("the story has no scenes; give it one: [[scenes]] with a caption".to_owned());
        }
        for scene in &self.scenes {
            if let Some(word) = scene.commands.iter().find(|word| binding(keys, word).is_none()) {
                return Err(format!("the story does \"{word}\", which is no command; `vramlab config` lists all"));
            }
            let opens = scene.commands.last().and_then(|word| binding(keys, word));
            if scene.write.is_some() && !opens.is_some_and(|binding| matches!(binding.action, Action::Edit(_))) {
                return Err(format!(
                    "the story types \"{}\" but no line is open; do limit or alloc-conf first",
                    scene.write.as_deref().unwrap_or_default()
                ));
            }
        }
        Ok(())
    }
}

impl Scene {
    /// True if the command at this index only changes the view: the screen or the time.
    pub(super) fn looks(&self, place: usize) -> bool {
        let command = self.commands.get(place);
        command.is_some_and(|word| word.starts_with("screen-") || word == "now")
    }

    /// The number of cues: another run, commands, a written line and its confirmation.
    pub(super) fn cues(&self) -> usize {
        let written = self.write.as_deref().map_or(0, |text| text.chars().count() + 1);
        usize::from(self.run.is_some()) + self.commands.len() + written
    }
}

/// The command with this word.
pub(super) fn binding<'a>(keys: &'a Keymap, word: &str) -> Option<&'a Binding> {
    keys.bindings().iter().find(|binding| binding.action.word() == word)
}

/// The command that confirms a written line.
pub(super) fn apply(keys: &Keymap) -> Option<&Binding> {
    keys.bindings().iter().find(|binding| binding.action == Action::Dialog(DialogAction::Apply))
}

impl SceneEnd {
    /// Whether the condition is met; `begun` is the run's number of steps when the scene began.
    pub(super) fn holds(&self, picture: &Picture, begun: u64) -> bool {
        match self {
            Self::Read => true,
            Self::Steps(steps) => picture.extent.steps >= begun + steps,
            Self::Measured(word) => picture.view.effects.iter().any(|effect| {
                let is_of = match &effect.flips[..] {
                    [] => word == "empty_cache" && effect.emptied.is_some_and(|emptied| emptied.allocs.is_some()),
                    flips => flips.iter().any(|flip| *flip.switch == **word),
                };
                is_of && effect.step >= begun && !effect.is_under_way()
            }),
            Self::Ranks(way) => {
                let trained = |rank: &RankFigures| rank.alike.parallelism == Some(*way) && rank.step.is_some();
                !picture.ranks.is_empty() && picture.ranks.iter().all(trained)
            }
            Self::Run(AwaitedRun::Running) => picture.run == RunState::Running,
            Self::Run(AwaitedRun::Paused) => picture.run == RunState::Paused,
            Self::Run(AwaitedRun::OutOfMemory) => {
                picture.run == RunState::OutOfMemory
                    && picture.view.autopsy.as_ref().is_some_and(|autopsy| autopsy.tried)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap;

    fn story(text: &'static str) -> Result<Story, String> {
        TomlText::built_in(text.into()).parse::<Story>().map_err(|error| error.to_string())
    }

    #[test]
    fn the_built_in_story_is_one() {
        let story = Story::built_in().unwrap();
        assert_eq!(story.check(keymap::standard()), Ok(()));
        assert!(story.scenes.len() > 5 && story.scenes.iter().all(|scene| scene.caption.chars().count() <= 150));
    }

    #[test]
    fn what_is_no_story_is_told() {
        let refused = |text| story(text).and_then(|story| story.check(keymap::standard())).unwrap_err();
        assert!(refused("workload = 'a'\ndevice = 'cpu'\nscenes = []").contains("no scenes"));
        let word = refused("workload = 'a'\ndevice = 'cpu'\n[[scenes]]\ncaption = 'x'\ndo = ['jump']");
        assert!(word.contains("\"jump\", which is no command"), "{word}");
        let line = refused("workload = 'a'\ndevice = 'cpu'\n[[scenes]]\ncaption = 'x'\ndo = ['amp']\nwrite = '7'");
        assert!(line.contains("but no line is open"), "{line}");
        let until = refused("workload = 'a'\ndevice = 'cpu'\n[[scenes]]\ncaption = 'x'\nuntil = { moon = 1 }");
        assert!(until.starts_with("line 5"), "{until}");
    }
}
