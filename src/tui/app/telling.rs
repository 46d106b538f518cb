//! Guidance: a story that tells itself, or a lesson that asks.

use crossterm::event::KeyEvent;

use super::message::{Effect, send};
use super::state::App;
use crate::session::Command;
use crate::source::Request;
use crate::tui::action::Action;
use crate::tui::demo::{Cue, NarratorResponse};
use crate::tui::hold::Hold;
use crate::tui::layers::{Closing, Layer};
use crate::tui::screens::SCREENS;
use crate::tui::tutor::Tutor;

impl App {
    /// What the lesson holds back.
    pub(super) fn hold(&self) -> Hold {
        self.tutor().map_or(Hold::Nothing, Tutor::hold)
    }

    /// Why a lesson does not allow `action` now; `None` if it does.
    pub(super) fn held_back(&self, action: Action) -> Option<String> {
        let hold = self.hold();
        let is_kept = self.tutor().is_some_and(|tutor| tutor.keeps(action)) || !hold.permits(action, &self.latest);
        is_kept.then(|| hold.why(&self.keys))
    }

    /// Why a lesson does not allow `request` now. It may come from a dialog that was opened before.
    pub(super) fn held_back_request(&self, request: &Request) -> Option<String> {
        match request {
            Request::Lab(Command::Set(switch, _)) => self.held_back(Action::of_switch(*switch)),
            Request::Lab(_) if self.hold() != Hold::Nothing => Some(self.hold().why(&self.keys)),
            _ => None,
        }
    }

    /// The current lesson's course.
    #[must_use]
    pub fn course(&self) -> Option<&crate::lesson::Course> {
        self.tutor().map(Tutor::course)
    }

    /// Performs what is due in the story.
    pub(super) fn narrate(&mut self) -> Vec<Effect> {
        let Some(narrator) = &mut self.narrator else { return Vec::new() };
        let scene = narrator.place();
        let cue = narrator.due(self.now, &self.latest, &self.keys);
        self.dirty |= cue.is_some() || narrator.place() != scene;
        if narrator.is_over() {
            let closing = narrator.closing().to_vec();
            self.narrator = None;
            if !closing.is_empty() {
                self.layers.push(Layer::Closing(Closing::new(closing)));
            }
        }
        match cue {
            Some(Cue::Do(action)) => self.ask(action),
            Some(Cue::Press(key)) => self.press(key),
            Some(Cue::Begin(run)) => send(vec![Request::Lab(Command::Begin(run))]),
            None => Vec::new(),
        }
    }

    /// Handles a person's key during a story; `None` if the key is for the lab.
    pub(super) fn interrupt(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let action = self.keys.binding_for(key, self.screen).map(|binding| binding.action);
        let heard = self.narrator.as_mut()?.hear(action);
        match heard {
            NarratorResponse::Passed => return None,
            NarratorResponse::Leaves => return Some(self.ask(Action::Quit)),
            NarratorResponse::Taken => self.dirty = true,
            NarratorResponse::Refused => {
                let key = self.keys.key_of(Action::TogglePause).to_owned();
                self.notify(format!("the demo presses the keys now; {key} stops it"));
            }
        }
        Some(Vec::new())
    }

    /// Notes that a person changed something in a lesson's lab.
    pub(super) fn meddle(&mut self) {
        if let Some(tutor) = &mut self.tutor {
            tutor.meddle();
        }
    }

    /// Handles the requests of a lesson that a person advanced.
    pub(super) fn went_on(&mut self, requests: Vec<Request>) -> Vec<Effect> {
        self.dirty = true;
        let mut effects = send(requests);
        effects.extend(self.taught());
        effects
    }

    /// Shows the lesson what happened.
    pub(super) fn teach(&mut self) -> Vec<Effect> {
        let Some(tutor) = &mut self.tutor else { return Vec::new() };
        let before = (tutor.course().stage(), tutor.course().place());
        let requests = tutor.see(&self.latest);
        let went_on = before != (tutor.course().stage(), tutor.course().place());
        let mut effects = send(requests);
        if went_on {
            effects.extend(self.taught());
        }
        effects
    }

    /// Follows a lesson that advanced: shows the best screen for it, and notes how far the learner is.
    pub(super) fn taught(&mut self) -> Vec<Effect> {
        let Some(tutor) = &self.tutor else { return Vec::new() };
        // Notices about the previous step are of no use in this one.
        self.notices.forget();
        let kept = tutor.keep();
        let look = tutor.look().map(crate::lesson::Look::word);
        let screen = look.and_then(|word| SCREENS.iter().position(|screen| screen.title.eq_ignore_ascii_case(word)));
        if let Some(screen) = screen {
            self.show(screen);
        }
        if let Some(why) = kept {
            self.notify(why);
        }
        Vec::new()
    }
}
