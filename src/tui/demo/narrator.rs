//! Who tells the story: which scene it is, what is to be done next, and when. It knows no time but the clock it is told.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};

use super::story::{ReadingPace, Scene, Story, apply, binding};
use crate::session::NewRun;
use crate::source::Picture;
use crate::tui::action::Action;
use crate::tui::keys::Keymap;

/// What a caption takes at first, and for each of its words.
const FIRST: Duration = Duration::from_millis(1200);
const WORD: Duration = Duration::from_millis(230);
/// Between a caption and what is done, and between two things that are done.
const LEAD: Duration = Duration::from_millis(1200);
const BETWEEN: Duration = Duration::from_millis(700);
/// Between two characters that are written.
const CHARACTER: Duration = Duration::from_millis(120);
/// A scene waits so long for what may never come: a person may have stepped in.
const PATIENCE: Duration = Duration::from_secs(90);

/// Something that is done as a key would do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A command.
    Do(Action),
    /// A key for the line that is open.
    Press(KeyEvent),
    /// Another run.
    Begin(NewRun),
}

/// What a key that a person presses does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NarratorResponse {
    /// It is for the lab.
    Passed,
    /// The story stops, or goes on.
    Taken,
    /// It does nothing while the story is told.
    Refused,
    /// It means to leave.
    Leaves,
}

/// The story as far as it is told.
#[derive(Clone, Debug)]
pub(crate) struct Narrator {
    story: Story,
    pace: ReadingPace,
    /// The scene under way.
    scene: usize,
    /// What of it is done.
    done: usize,
    /// How long it has been under way, and when the next thing may be done.
    elapsed: Duration,
    next: Duration,
    /// The clock when it was last told.
    clock: Option<Duration>,
    /// Steps of the run when it began.
    steps: Option<u64>,
    /// A person stopped the story.
    stopped: bool,
    /// The last command of the scene: its key, and its word.
    pressed: Option<(String, String)>,
}

impl Narrator {
    /// Before the first scene.
    pub fn new(story: Story, pace: ReadingPace) -> Self {
        let mut narrator = Self {
            story,
            pace,
            scene: 0,
            done: 0,
            elapsed: Duration::ZERO,
            next: Duration::ZERO,
            clock: None,
            steps: None,
            stopped: false,
            pressed: None,
        };
        narrator.next = narrator.lead();
        narrator
    }

    /// How long the caption of the scene that begins stands before something is done: what it speaks of is looked at at once.
    fn lead(&self) -> Duration {
        let looks = self.current().is_some_and(|scene| scene.run.is_none() && scene.looks(0));
        if looks { Duration::ZERO } else { self.paced(LEAD) }
    }

    fn paced(&self, time: Duration) -> Duration {
        match self.pace {
            ReadingPace::Slow => time * 2,
            ReadingPace::Normal => time,
            ReadingPace::Fast => Duration::ZERO,
        }
    }

    fn current(&self) -> Option<&Scene> {
        self.story.scenes.get(self.scene)
    }

    /// The caption of the scene under way; empty when all is told.
    pub fn caption(&self) -> &str {
        self.current().map_or("", |scene| &scene.caption)
    }

    /// Which scene it is, counted from 1, and how many there are.
    pub fn place(&self) -> (usize, usize) {
        (self.scene + 1, self.story.scenes.len())
    }

    /// A person stopped the story.
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The key of the last command of the scene, and its word.
    pub fn pressed(&self) -> Option<(&str, &str)> {
        self.pressed.as_ref().map(|(key, word)| (key.as_str(), word.as_str()))
    }

    /// All is told.
    pub fn is_over(&self) -> bool {
        self.scene >= self.story.scenes.len()
    }

    /// The paragraphs that stand over the screen when all is told.
    pub fn closing(&self) -> &[String] {
        &self.story.closing
    }

    /// A key that a person pressed; `action` is what it asks of the lab.
    pub fn hear(&mut self, action: Option<Action>) -> NarratorResponse {
        match action {
            Some(Action::Quit) => NarratorResponse::Leaves,
            Some(Action::TogglePause) => {
                self.stopped = !self.stopped;
                NarratorResponse::Taken
            }
            Some(Action::Repaint | Action::Suspend) => NarratorResponse::Passed,
            _ if self.stopped => NarratorResponse::Passed,
            _ => NarratorResponse::Refused,
        }
    }

    /// What is to be done now, one thing at a time; `None` where nothing is.
    pub fn due(&mut self, now: Duration, picture: &Picture, keys: &Keymap) -> Option<Cue> {
        let passed = now.saturating_sub(self.clock.replace(now).unwrap_or(now));
        if self.stopped {
            return None;
        }
        self.elapsed += passed;
        // Another run counts from its own start.
        let begun =
            self.steps.map_or(picture.extent.steps, |begun| if begun > picture.extent.steps { 0 } else { begun });
        self.steps = Some(begun);
        if let Some(cue) = self.next_cue(keys) {
            return cue;
        }
        let scene = self.current()?;
        let read = self.paced(FIRST + WORD * u32::try_from(scene.caption.split(' ').count()).unwrap_or(0));
        if self.elapsed >= read && (scene.until.holds(picture, begun) || self.elapsed >= PATIENCE) {
            self.scene += 1;
            (self.done, self.elapsed) = (0, Duration::ZERO);
            self.next = self.lead();
            (self.steps, self.pressed) = (Some(picture.extent.steps), None);
        }
        None
    }

    /// What of the scene is not done yet: `Some(None)` where its time has not come.
    fn next_cue(&mut self, keys: &Keymap) -> Option<Option<Cue>> {
        let scene = self.current()?;
        if self.done >= scene.cues() {
            return None;
        }
        if self.elapsed < self.next {
            return Some(None);
        }
        let begun = usize::from(scene.run.is_some());
        if let Some(run) = scene.run.clone().filter(|_| self.done < begun) {
            self.done += 1;
            self.next = self.elapsed + self.paced(BETWEEN);
            return Some(Some(Cue::Begin(run)));
        }
        let (cue, pause) = match scene.commands.get(self.done - begun) {
            Some(word) => {
                let binding = binding(keys, word)?;
                let place = self.done - begun;
                // From one look to the next nothing is to be read; from the last one on the caption is.
                let pause = match (scene.looks(place), scene.looks(place + 1)) {
                    (true, true) => Duration::ZERO,
                    (true, false) if begun == 0 => LEAD,
                    _ => BETWEEN,
                };
                self.pressed = Some((binding.first_label().to_owned(), word.clone()));
                (Cue::Do(binding.action), pause)
            }
            None => {
                match scene.write.as_deref().and_then(|text| text.chars().nth(self.done - begun - scene.commands.len()))
                {
                    Some(symbol) => (Cue::Press(KeyEvent::from(KeyCode::Char(symbol))), CHARACTER),
                    None => {
                        let key = apply(keys)?.keys.first()?;
                        (Cue::Press(KeyEvent::new(key.1, key.0)), BETWEEN)
                    }
                }
            }
        };
        self.done += 1;
        self.next = self.elapsed + self.paced(pause);
        Some(Some(cue))
    }

    /// When it goes on by itself, on the clock it was told last.
    pub fn next_change(&self) -> Option<Duration> {
        let scene = self.current().filter(|_| !self.stopped)?;
        let read = self.paced(FIRST + WORD * u32::try_from(scene.caption.split(' ').count()).unwrap_or(0));
        let due = if self.done < scene.cues() {
            self.next
        } else if self.elapsed < read {
            read
        } else {
            // Pictures come by themselves; a run that stands still has none.
            self.elapsed + Duration::from_millis(200)
        };
        Some(self.clock.unwrap_or_default() + due.saturating_sub(self.elapsed))
    }
}
