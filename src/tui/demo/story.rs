//! Stories: what `lab/demo.toml` says, or a user's own file.

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
    /// What is trained.
    pub workload: String,
    /// Where.
    pub device: String,
    /// One after the other.
    pub scenes: Vec<Scene>,
    /// Paragraphs that stand over the screen when all is told.
    #[serde(default)]
    pub closing: Vec<String>,
}

/// Ranks that train the story's workload together, from its start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// On what each of them runs.
    pub device: String,
    /// How many they are.
    pub count: usize,
    /// How they share the work.
    pub parallel: Parallelism,
}

/// A caption, what is done, and what is waited for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// What is to be seen.
    pub caption: String,
    /// Another run begins first, of these ranks.
    #[serde(default)]
    pub ranks: Option<Ranks>,
    /// That run.
    #[serde(skip)]
    pub(super) run: Option<NewRun>,
    /// Commands by their words, in the order in which they are done.
    #[serde(default, rename = "do")]
    pub commands: Vec<String>,
    /// What is written into the line that the last of them opens.
    #[serde(default)]
    pub write: Option<String>,
    /// What must be so before the next scene.
    #[serde(default)]
    pub until: SceneEnd,
}

/// What a scene waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SceneEnd {
    /// Nothing.
    #[default]
    Read,
    /// So many steps, trained in this scene.
    Steps(u64),
    /// The effect of this switch, or of `empty_cache`, is measured.
    Measured(String),
    /// The run is in this state.
    Run(AwaitedRun),
    /// Ranks that share their work so have all trained a step.
    Ranks(Parallelism),
}

/// A state of the run that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwaitedRun {
    /// It trains.
    Running,
    /// It is paused.
    Paused,
    /// A request failed, and what would have made it fit was tried.
    OutOfMemory,
}

/// How long captions stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadingPace {
    /// For an audience that is talked to.
    Slow,
    /// For an audience that reads.
    #[default]
    Normal,
    /// No longer than what they wait for.
    Fast,
}

impl Story {
    /// The story of the lab.
    ///
    /// # Errors
    /// Never, unless the program was built from a story that is none.
    pub fn built_in() -> Result<Self, TomlError> {
        TomlText::built_in(BUILT_IN.into()).parse()
    }

    /// Has the runs of its scenes made, which it only names.
    ///
    /// # Errors
    /// What `make` says of ranks that can't train.
    pub fn with_runs<E>(mut self, make: impl Fn(&Ranks) -> Result<LabSpec, E>) -> Result<Self, E> {
        for scene in &mut self.scenes {
            scene.run = scene.ranks.as_ref().map(&make).transpose()?.map(|spec| NewRun(Arc::new(spec)));
        }
        Ok(self)
    }

    /// Whether every command is one of `keys`, and every value is written into a line.
    ///
    /// # Errors
    /// A sentence about the first that is not.
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
    /// Whether its command of this place only looks elsewhere: another screen, or another time.
    pub(super) fn looks(&self, place: usize) -> bool {
        let command = self.commands.get(place);
        command.is_some_and(|word| word.starts_with("screen-") || word == "now")
    }

    /// Things that are done: another run, commands, a line that is written and taken.
    pub(super) fn cues(&self) -> usize {
        let written = self.write.as_deref().map_or(0, |text| text.chars().count() + 1);
        usize::from(self.run.is_some()) + self.commands.len() + written
    }
}

/// The command of this word.
pub(super) fn binding<'a>(keys: &'a Keymap, word: &str) -> Option<&'a Binding> {
    keys.bindings().iter().find(|binding| binding.action.word() == word)
}

/// What takes a line that is written.
pub(super) fn apply(keys: &Keymap) -> Option<&Binding> {
    keys.bindings().iter().find(|binding| binding.action == Action::Dialog(DialogAction::Apply))
}

impl SceneEnd {
    /// Whether it is so; `begun` is how many steps the run had when the scene began.
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
