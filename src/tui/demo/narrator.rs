//! Tells the story: the current scene, the next cue, and its time. The narrator knows no clock but the one it is given.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};

use super::story::{ReadingPace, Scene, Story, apply, binding};
use crate::session::NewRun;
use crate::source::Picture;
use crate::tui::action::Action;
use crate::tui::keys::Keymap;

/// How long a caption stands at least, and how much longer for each of its words.
const FIRST: Duration = Duration::from_millis(1200);
const WORD: Duration = Duration::from_millis(230);
/// The time between a caption and the first cue, and between two cues.
const LEAD: Duration = Duration::from_millis(1200);
const BETWEEN: Duration = Duration::from_millis(700);
/// The time between two characters of a text.
const CHARACTER: Duration = Duration::from_millis(120);
/// How long a scene waits for its end, which may never come: a person may have intervened.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cue: something done as a key would do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A command.
    Do(Action),
    /// Press a key in an open line.
    Press(KeyEvent),
    /// Begin another run.
    Begin(NewRun),
}

/// The narrator's response to a person's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NarratorResponse {
    /// The key is for the lab.
    Passed,
    /// The narrator took the key: the story stops, or goes on.
    Taken,
    /// The key does nothing during a story.
    Refused,
    /// The key leaves the program.
    Leaves,
}

/// A story, and how far it has been told.
#[derive(Clone, Debug)]
pub(crate) struct Narrator {
    story: Story,
    pace: ReadingPace,
    /// The index of the current scene.
    scene: usize,
    /// How many cues of the scene are done.
    done: usize,
    /// How long the scene has lasted, and when the next cue is due.
    elapsed: Duration,
    next: Duration,
    /// The clock when it was last given.
    clock: Option<Duration>,
    /// The run's number of steps when the scene began.
    steps: Option<u64>,
    /// True if a person stopped the story.
    stopped: bool,
    /// The scene's last command: its key and its word.
    pressed: Option<(String, String)>,
}

impl Narrator {
    /// A narrator before the first scene.
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

    /// How long the new scene's caption stands before the first cue. A scene about something visible elsewhere shows it at once.
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

    /// The caption of the current scene; empty after the last.
    pub fn caption(&self) -> &str {
        self.current().map_or("", |scene| &scene.caption)
    }

    /// The number of the current scene, counted from 1, and the number of scenes.
    pub fn place(&self) -> (usize, usize) {
        (self.scene + 1, self.story.scenes.len())
    }

    /// True if a person stopped the story.
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The key and the word of the scene's last command.
    pub fn pressed(&self) -> Option<(&str, &str)> {
        self.pressed.as_ref().map(|(key, word)| (key.as_str(), word.as_str()))
    }

    /// True after the last scene.
    pub fn is_over(&self) -> bool {
        self.scene >= self.story.scenes.len()
    }

    /// The paragraphs shown over the screen after the last scene.
    pub fn closing(&self) -> &[String] {
        &self.story.closing
    }

    /// Handles a person's key; `action` is what it means in the lab.
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

    /// The next cue, if one is due.
    pub fn due(&mut self, now: Duration, picture: &Picture, keys: &Keymap) -> Option<Cue> {
        let passed = now.saturating_sub(self.clock.replace(now).unwrap_or(now));
        if self.stopped {
            return None;
        }
        self.elapsed += passed;
        // Another run counts its steps from its own start.
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

    /// The scene's next cue; `Some(None)` if its time has not come.
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
                // Between two commands that only look elsewhere there is nothing to read; after the last one the caption is read.
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

    /// When it goes on by itself, on the clock it was last given.
    pub fn next_change(&self) -> Option<Duration> {
        let scene = self.current().filter(|_| !self.stopped)?;
        let read = self.paced(FIRST + WORD * u32::try_from(scene.caption.split(' ').count()).unwrap_or(0));
        let due = if self.done < scene.cues() {
            self.next
        } else if self.elapsed < read {
            read
        } else {
            // Pictures come by themselves, but not from a run that stands still.
            self.elapsed + Duration::from_millis(200)
        };
        Some(self.clock.unwrap_or_default() + due.saturating_sub(self.elapsed))
    }
}
