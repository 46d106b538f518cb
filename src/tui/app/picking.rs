//! Performs what was found: by letters in the palette, or by a search in the help.

use super::message::{Effect, send};
use super::state::App;
use crate::session::{Command, FlipDirection, Switch};
use crate::source::{Ability, Move, Request};
use crate::tui::action::Action;
use crate::tui::hold;
use crate::tui::keymap;
use crate::tui::layers::{Help, Layer, Palette};
use crate::tui::palette::{Index, Offer, OnEnter};
use crate::tui::presenter::Presenter;

/// How many picks are remembered.
const RECENT: usize = 8;

impl App {
    /// The palette with everything that can be found now.
    pub(super) fn palette(&self) -> Layer {
        Layer::Palette(Palette::new(Index::new(&self.stage(), self.screen, self.recent.clone())))
    }

    /// Performs a pick from the palette, and remembers it.
    pub(super) fn pick(&mut self, offer: Offer) -> Vec<Effect> {
        let on_enter = offer.on_enter.clone();
        self.recent.retain(|other| other.on_enter != on_enter);
        self.recent.insert(0, offer);
        self.recent.truncate(RECENT);
        self.do_picked(on_enter)
    }

    /// Performs a pick.
    pub(super) fn do_picked(&mut self, on_enter: OnEnter) -> Vec<Effect> {
        match on_enter {
            OnEnter::Press { screen, action } => match screen.filter(|screen| *screen != self.screen) {
                // What a screen's own keys do depends on how it is drawn.
                Some(screen) => {
                    self.show(screen);
                    self.when_drawn = Some(action);
                }
                None => return self.ask(action),
            },
            OnEnter::Set(switch, value) => return self.set_switch(switch, &value),
            OnEnter::Go(to) => return self.go(to),
            OnEnter::Explain(word) => self.layers.push(Layer::Help(Help::on_word(word, self.screen))),
        }
        Vec::new()
    }

    /// Sets a switch, under the conditions under which its key flips it.
    fn set_switch(&mut self, switch: Switch, value: &str) -> Vec<Effect> {
        let (key, flip) = (Action::of_switch(switch), Action::Flip(switch, FlipDirection::Next));
        if let Some(why) = self.held_back(key) {
            self.notify(why);
            return Vec::new();
        }
        let now = self.now;
        let permitted =
            self.presenter.as_mut().map_or(Ok(()), |presenter: &mut Presenter| presenter.permits(flip, now));
        if let Err(why) = permitted.and_then(|()| keymap::acts(key, &self.latest)) {
            self.notify(why.to_owned());
            return Vec::new();
        }
        if hold::acts_on_lab(key, &self.latest) {
            self.meddle();
        }
        self.flip(switch.word(), Command::Set(switch, value.into()))
    }

    fn go(&mut self, to: Move) -> Vec<Effect> {
        match self.latest.can(Ability::Seek) {
            Ok(()) => send([Request::Move(to)]),
            Err(why) => {
                self.notify(why.to_owned());
                Vec::new()
            }
        }
    }
}
