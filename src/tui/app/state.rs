//! The state of the screen, and where each message goes.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::KeyEvent;

use super::loud::LoudEffect;
use super::message::{Effect, Message, send};
use super::notices::Notices;
use super::pointer::{self, Pointer};
use super::scroll::last_page;
use crate::drawing::theme::{Theme, ThemeCatalog};
use crate::model::{RunState, Shape, Tags};
use crate::source::{Move, Picture, Request, SourceKind, StudyRequest};
use crate::tui::action::{Action, Key};
use crate::tui::aim::Aim;
use crate::tui::demo::{Narrator, ReadingPace, Story};
use crate::tui::glyphs::GlyphTier;
use crate::tui::keymap;
use crate::tui::keys::Keymap;
use crate::tui::layers::{Layer, LayerResponse};
use crate::tui::origin::OpeningCommand;
use crate::tui::palette::Offer;
use crate::tui::presenter::Presenter;
use crate::tui::screens::SCREENS;
use crate::tui::stage::{FrameLayout, Stage};
use crate::tui::states::ScreenStates;
use crate::tui::tutor::{self, Lecture, Tutor};
use crate::tui::waiting::AwaitedProgram;

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    pub(super) catalog: ThemeCatalog,
    pub(super) theme: Theme,
    pub(super) glyphs: GlyphTier,
    pub(super) keys: Arc<Keymap>,
    pub(super) now: Duration,
    pub(super) latest: Arc<Picture>,
    pub(super) screen: usize,
    /// What each screen remembers.
    pub(super) states: ScreenStates,
    /// The first row of the list that scrolls on the current screen.
    pub(super) scroll: usize,
    pub(super) layers: Vec<Layer>,
    /// Picks from the palette, the last first.
    pub(super) recent: Vec<Offer>,
    /// An action to perform once the screen it was picked for is drawn.
    pub(super) when_drawn: Option<Action>,
    /// The last study that was requested.
    pub(super) wanted: Option<StudyRequest>,
    /// The last file that was requested.
    pub(super) reading: Option<Arc<str>>,
    pub(super) notices: Notices,
    pub(super) effect: LoudEffect,
    /// The failed request whose moment was shown.
    pub(super) autopsy: Option<u64>,
    /// True if nothing may flash.
    pub(super) calm: bool,
    /// What is known of a watched program before it says anything.
    pub(super) awaited: Arc<AwaitedProgram>,
    /// The command that brings the screen back.
    pub(super) origin: Arc<OpeningCommand>,
    /// Present while there is an audience.
    pub(super) presenter: Option<Presenter>,
    /// Present while a story is told.
    pub(super) narrator: Option<Box<Narrator>>,
    /// Present while a lesson is taken.
    pub(super) tutor: Option<Box<Tutor>>,
    pub(super) pointer: Pointer,
    pub(super) layout: FrameLayout,
    pub(super) dirty: bool,
}

impl App {
    /// A screen that waits for its first picture.
    #[must_use]
    pub fn new(catalog: ThemeCatalog, theme: Theme, glyphs: GlyphTier) -> Self {
        Self {
            catalog,
            theme: glyphs.dressed(theme),
            glyphs,
            keys: Arc::new(keymap::standard().clone()),
            now: Duration::ZERO,
            latest: Arc::default(),
            screen: 0,
            states: ScreenStates::default(),
            scroll: 0,
            layers: Vec::new(),
            recent: Vec::new(),
            when_drawn: None,
            wanted: None,
            reading: None,
            notices: Notices::default(),
            effect: LoudEffect::default(),
            autopsy: None,
            calm: false,
            awaited: Arc::default(),
            origin: Arc::default(),
            presenter: None,
            narrator: None,
            tutor: None,
            pointer: Pointer::default(),
            layout: FrameLayout::default(),
            dirty: true,
        }
    }

    /// Uses other keys.
    #[must_use]
    pub fn with_keys(self, keys: Keymap) -> Self {
        Self { keys: Arc::new(keys), ..self }
    }

    /// Sets whether nothing flashes, and whether there is an audience.
    #[must_use]
    pub fn with_manners(self, calm: bool, present: bool) -> Self {
        Self { calm, presenter: present.then(Presenter::default), ..self }
    }

    /// Tells a story by itself.
    #[must_use]
    pub fn with_story(self, story: Story, pace: ReadingPace) -> Self {
        Self { narrator: Some(Box::new(Narrator::new(story, pace))), ..self }
    }

    /// Adds a lesson beside the lab.
    #[must_use]
    pub fn with_lesson(self, lecture: &Lecture) -> Self {
        Self { tutor: Some(Box::new(Tutor::new(lecture))), ..self }
    }

    /// The tutor, while a lesson is taken.
    pub(crate) fn tutor(&self) -> Option<&Tutor> {
        self.tutor.as_deref()
    }

    /// The narrator, while a story is told.
    pub(crate) fn narrator(&self) -> Option<&Narrator> {
        self.narrator.as_deref()
    }

    /// The current scene of a story, counted from 1, and the number of scenes; `None` if there is no story, or it is over.
    #[must_use]
    pub fn scene(&self) -> Option<(usize, usize)> {
        self.narrator().map(Narrator::place)
    }

    /// Shows another screen, by its index in the list.
    #[must_use]
    pub fn with_screen(self, screen: usize) -> Self {
        Self { screen, ..self }
    }

    /// Sets the command that opened it.
    #[must_use]
    pub fn with_origin(self, origin: OpeningCommand) -> Self {
        Self { origin: Arc::new(origin), ..self }
    }

    /// Adds a person's tags for blocks, by which memory is then shown first.
    #[must_use]
    pub fn with_tags(mut self, tags: Tags) -> Self {
        if !tags.is_empty() {
            self.states.stacks.shape = Shape::Category;
        }
        self.states.stacks.tags = tags;
        self
    }

    /// The keys in force.
    #[must_use]
    pub fn keys(&self) -> &Keymap {
        &self.keys
    }

    /// The theme in force.
    #[must_use]
    pub fn theme(&self) -> &Theme {
        &self.theme
    }

    /// The characters in use.
    #[must_use]
    pub fn glyphs(&self) -> GlyphTier {
        self.glyphs
    }

    /// The last picture.
    #[must_use]
    pub fn latest(&self) -> &Picture {
        &self.latest
    }

    /// The stage for drawing screens.
    pub(crate) fn stage(&self) -> Stage<'_> {
        Stage {
            picture: &self.latest,
            shown: self.latest.shown(),
            ghost: self.latest.shown_ghost(),
            theme: &self.theme,
            keys: &self.keys,
            states: &self.states,
            scroll: self.scroll,
            loud: self.effect_is_loud(),
            news: self.is_news(),
            hold: self.hold(),
            aim: self.tutor().and_then(|tutor| Aim::of(tutor.course())),
            allowed: self.tutor().and_then(Tutor::allowed),
            pressed: self.presenter.as_ref().map_or(&[], Presenter::shown),
            presenting: self.is_presenting(),
        }
    }

    /// True if there is an audience.
    #[must_use]
    pub const fn is_presenting(&self) -> bool {
        self.presenter.is_some()
    }

    /// The index of the current screen.
    #[must_use]
    pub const fn screen(&self) -> usize {
        self.screen
    }

    /// The layers over the screen, the topmost last.
    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The notice in the footer.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notices.text()
    }

    /// True if the measured effect is highlighted.
    #[must_use]
    pub fn effect_is_loud(&self) -> bool {
        !self.calm && self.effect.until(self.now).is_some()
    }

    /// True if somebody may still be reading about the last flip. In a recording, the number of steps after it decides.
    fn is_news(&self) -> bool {
        self.latest.is_live() && self.effect.is_news(self.now)
    }

    /// True if the next frame would differ from the last.
    #[must_use]
    pub fn needs_frame(&self) -> bool {
        self.dirty
    }

    /// When the screen next changes by itself, if nothing happens before.
    #[must_use]
    pub fn next_change(&self) -> Option<Duration> {
        let pressed = self.presenter.as_ref().and_then(Presenter::next_change);
        let told = self.narrator().and_then(Narrator::next_change);
        let beat = self.tutor().and_then(|tutor| tutor.next_change(self.latest.recording.is_some()));
        let waiting = self.waits_on().then(|| Duration::from_secs(self.now.as_secs() + 1));
        waiting
            .into_iter()
            .chain(self.notices.until())
            .chain(self.effect.next_change(self.now))
            .chain(pressed)
            .chain(told)
            .chain(beat)
            .min()
    }

    /// Shows `text` in the footer for a while.
    pub fn notify(&mut self, text: String) {
        self.notices.tell(text, self.now);
        self.dirty = true;
    }

    /// Takes in a message. Returns the effects to perform.
    pub fn update(&mut self, message: Message) -> Vec<Effect> {
        let mut effects = self.hear(message);
        effects.extend(self.study());
        effects
    }

    fn hear(&mut self, message: Message) -> Vec<Effect> {
        match message {
            Message::Clock(now) => {
                self.advance_clock(now);
                let recorded = self.latest.recording.is_some();
                let beat = self.tutor.as_mut().and_then(|tutor| tutor.advance(now, recorded));
                let mut effects = send(beat);
                effects.extend(self.narrate());
                return effects;
            }
            Message::Resized => self.dirty = true,
            Message::Picture(picture) => return self.take_picture(picture),
            Message::Drawn(layout) => {
                self.take_layout(layout);
                return self.when_drawn.take().map_or_else(Vec::new, |action| self.ask(action));
            }
            Message::Compared(other) => {
                self.states.compare.others.push(other);
                self.dirty = true;
            }
            Message::Output(lines) => self.printed(lines),
            Message::Torch(loaded) => self.loaded(loaded),
            Message::Completed(completion) => {
                if let Some(Layer::Path(prompt)) = self.layers.last_mut() {
                    prompt.complete(&completion);
                    self.dirty = true;
                }
            }
            Message::Key(key) => return self.interrupt(key).unwrap_or_else(|| self.press(key)),
            Message::Paste(text) => {
                // Unless a line is being written, pasted text is not a series of commands.
                if let Some(layer) = self.layers.last_mut() {
                    let pressed = layer.paste(&text);
                    self.dirty = true;
                    return self.pressed(pressed).unwrap_or_default();
                }
            }
            Message::Mouse(mouse) => {
                self.pointer.take(mouse);
                return pointer::action_of(mouse, &self.layout).map_or_else(Vec::new, |action| self.ask(action));
            }
        }
        Vec::new()
    }

    fn advance_clock(&mut self, now: Duration) {
        let was = (self.effect_is_loud(), self.is_news());
        // The screen shows a running clock.
        self.dirty |= self.waits_on() && self.now.as_secs() != now.as_secs();
        self.now = now;
        self.dirty |= self.notices.expire(now);
        self.dirty |= was != (self.effect_is_loud(), self.is_news());
        self.dirty |= self.presenter.as_mut().is_some_and(|presenter| presenter.forget(now));
    }

    fn take_picture(&mut self, picture: Arc<Picture>) -> Vec<Effect> {
        self.effect.take(&picture.view, self.now);
        match picture.kind {
            SourceKind::Live | SourceKind::Watched(_) => self.notices.hear(&picture.view.log, self.now),
            // Messages in a recording were said at that time.
            SourceKind::Recording(_) => self.notices.hear_of(picture.said.as_ref(), self.now),
            // What a file lacks is not news: it is in the findings, and in the Lab's log.
            SourceKind::Snapshot(_) => {}
        }
        self.latest = picture;
        self.dirty = true;
        // The lesson must see that memory ran out before the cursor moves back to the failure.
        let mut effects = self.teach();
        effects.extend(self.stand_at_failure());
        effects
    }

    /// Moves the cursor to a failed request, because only cleanup follows it.
    fn stand_at_failure(&mut self) -> Vec<Effect> {
        let failed = self.latest.view.autopsy.as_ref().map(|autopsy| autopsy.position);
        let Some(position) = failed.filter(|_| self.latest.is_now() && self.latest.run == RunState::OutOfMemory) else {
            return Vec::new();
        };
        if self.tutor().is_some_and(Tutor::is_busy) || self.autopsy.replace(position) == Some(position) {
            return Vec::new();
        }
        send([Request::Move(Move::To(position + 1))])
    }

    fn take_layout(&mut self, layout: FrameLayout) {
        self.dirty = false;
        self.scroll = self.scroll.min(last_page(layout.rows));
        if let Some(line) = self.layers.last_mut().and_then(Layer::first_line) {
            *line = (*line).min(last_page(layout.layer_rows));
        }
        self.layout = layout;
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Vec<Effect> {
        let action = self.keys.binding_for(key, self.screen).map(|binding| binding.action);
        if self.layers.is_empty() && action != Some(Action::ToggleHelp) {
            self.pointer.rest();
        }
        if let Some(presenter) = &mut self.presenter {
            let shown = match self.layers.last() {
                None => action.filter(|_| !self.tutor.as_ref().is_some_and(|tutor| tutor.takes(key))),
                // A key that a dialog takes is not a command. A dialog that only scrolls lets other keys through.
                Some(top) if top.takes_text() => None,
                Some(_) => self.keys.dialog_action(key).map(Action::Dialog).or(action),
            };
            presenter.press(Key::of(key), shown, self.now);
            self.dirty = true;
        }
        if let Some(top) = self.layers.last_mut() {
            let pressed = top.press(key, &self.keys, self.screen);
            if !matches!(pressed, LayerResponse::Passed) {
                self.dirty = true;
            }
            if let Some(effects) = self.pressed(pressed) {
                return effects;
            }
        }
        if self.layers.is_empty()
            && let Some(tutor) = &mut self.tutor
        {
            match tutor.press(key, &self.keys, &self.latest, self.layout.lesson_rows) {
                tutor::TutorResponse::Passed => {}
                tutor::TutorResponse::Taken => {
                    self.dirty = true;
                    return Vec::new();
                }
                tutor::TutorResponse::WentOn(requests) => return self.went_on(requests),
            }
        }
        action.map_or_else(Vec::new, |action| self.ask(action))
    }

    /// Performs what a key does in the layer on top; `None` if it does nothing there.
    pub(super) fn pressed(&mut self, pressed: LayerResponse) -> Option<Vec<Effect>> {
        let mut effects = Vec::new();
        match pressed {
            LayerResponse::Passed => return None,
            LayerResponse::Taken => {}
            LayerResponse::Closed => drop(self.layers.pop()),
            LayerResponse::Done(requests) => {
                self.layers.pop();
                if let Some(why) = requests.iter().find_map(|request| self.held_back_request(request)) {
                    self.notify(why);
                    return Some(effects);
                }
                if requests.iter().any(|request| matches!(request, Request::Lab(_))) {
                    self.meddle();
                }
                effects = send(requests);
            }
            LayerResponse::Filter { of, text, done } => {
                self.states.look_for(of, text);
                if done {
                    self.layers.pop();
                }
            }
            LayerResponse::Wear { theme, done, keep } => {
                self.theme = self.glyphs.dressed(*theme);
                if done {
                    self.layers.pop();
                }
                if keep {
                    effects.push(Effect::KeepTheme(self.theme.name().to_owned()));
                }
            }
            LayerResponse::Scroll { by, pages } => {
                let rows = if pages { self.layout.layer_rows.1.max(1) } else { 1 };
                self.scroll(by, rows);
            }
            LayerResponse::Compare(path) => {
                self.layers.pop();
                effects.push(Effect::Compare(path));
            }
            LayerResponse::Complete(text) => effects.push(Effect::Complete(text)),
            LayerResponse::Copy(text) => {
                self.layers.pop();
                effects = self.copy(text);
            }
            LayerResponse::Pick(offer) => {
                self.layers.pop();
                effects = self.pick(*offer);
            }
            LayerResponse::Do(on_enter) => {
                self.layers.pop();
                effects = self.do_picked(on_enter);
            }
            LayerResponse::Leave => return Some(self.ask(Action::Quit)),
        }
        Some(effects)
    }

    /// Requests the study that the screen wants, if it differs from the last one.
    fn study(&mut self) -> Option<Effect> {
        let wants = SCREENS.get(self.screen).map(|screen| screen.wants)?;
        let wanted = wants(&mut self.states, &self.latest);
        (std::mem::replace(&mut self.wanted, wanted) != wanted).then_some(Effect::Send(Request::Study(wanted)))
    }
}
