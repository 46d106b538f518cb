//! The state of the screen, and where each message goes.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::KeyEvent;

use super::held::{self, Held};
use super::loud::LoudEffect;
use super::message::{Effect, Message};
use super::notices::Notices;
use super::pointer::Pointer;
use super::scroll::{last_page, scrolled};
use super::{pointer, requests};
use crate::model::{Remedy, RunState, Shape, Tags};
use crate::session::{Command, Switch};
use crate::source::{Move, Picture, Request, Wanted};
use crate::tui::action::{Action, Key};
use crate::tui::clipboard;
use crate::tui::copied;
use crate::tui::demo::{Cue, Heard, Narrator, ReadingPace, Story};
use crate::tui::glyphs::GlyphTier;
use crate::tui::hold::{self, Hold};
use crate::tui::keymap;
use crate::tui::keys::Keymap;
use crate::tui::layers::{CopyMenu, Editor, Filter, GhostEditor, GoTo, Help, Layer, PathPrompt, Pressed, ThemeList};
use crate::tui::origin::Origin;
use crate::tui::pane;
use crate::tui::panel::Panel;
use crate::tui::presenter::Presenter;
use crate::tui::screens::SCREENS;
use crate::tui::stage::{Layout, Stage};
use crate::tui::states::{ScreenAction, ScreenStates, Seen};
use crate::tui::theme::{Catalog, Theme};
use crate::tui::tutor::{self, Lecture, Tutor};
use crate::tui::words;

/// Of a text that was copied the footer repeats so many characters.
const NOTICED: usize = 160;
const NO_LESSON: &str = "no lesson is open; `vramlab lesson` lists them";

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    catalog: Catalog,
    theme: Theme,
    glyphs: GlyphTier,
    keys: Arc<Keymap>,
    now: Duration,
    latest: Arc<Picture>,
    held: Held,
    screen: usize,
    /// What each screen remembers.
    states: ScreenStates,
    /// The first row of what scrolls on the screen that is shown.
    scroll: usize,
    layers: Vec<Layer>,
    /// What was asked to be studied.
    wanted: Option<Wanted>,
    /// The file that was asked for.
    reading: Option<Arc<str>>,
    notices: Notices,
    effect: LoudEffect,
    /// The request that failed whose moment was shown.
    autopsy: Option<u64>,
    /// Nothing flashes.
    calm: bool,
    /// The command that brings the screen back.
    origin: Arc<Origin>,
    /// While there is an audience.
    presenter: Option<Presenter>,
    /// While a story is told.
    narrator: Option<Box<Narrator>>,
    /// While a lesson is taken.
    tutor: Option<Box<Tutor>>,
    pointer: Pointer,
    layout: Layout,
    dirty: bool,
}

impl App {
    /// A screen that waits for its first picture.
    #[must_use]
    pub fn new(catalog: Catalog, theme: Theme, glyphs: GlyphTier) -> Self {
        Self {
            catalog,
            theme,
            glyphs,
            keys: Arc::new(keymap::standard().clone()),
            now: Duration::ZERO,
            latest: Arc::default(),
            held: Held::default(),
            screen: 0,
            states: ScreenStates::default(),
            scroll: 0,
            layers: Vec::new(),
            wanted: None,
            reading: None,
            notices: Notices::default(),
            effect: LoudEffect::default(),
            autopsy: None,
            calm: false,
            origin: Arc::default(),
            presenter: None,
            narrator: None,
            tutor: None,
            pointer: Pointer::default(),
            layout: Layout::default(),
            dirty: true,
        }
    }

    /// The same with other keys.
    #[must_use]
    pub fn with_keys(self, keys: Keymap) -> Self {
        Self { keys: Arc::new(keys), ..self }
    }

    /// The same that flashes nothing, or has an audience.
    #[must_use]
    pub fn with_manners(self, calm: bool, present: bool) -> Self {
        Self { calm, presenter: present.then(Presenter::default), ..self }
    }

    /// The same that tells a story by itself.
    #[must_use]
    pub fn with_story(self, story: Story, pace: ReadingPace) -> Self {
        Self { narrator: Some(Box::new(Narrator::new(story, pace))), ..self }
    }

    /// The same beside which a lesson is taken.
    #[must_use]
    pub fn with_lesson(self, lecture: &Lecture) -> Self {
        Self { tutor: Some(Box::new(Tutor::new(lecture))), ..self }
    }

    /// Who leads through the lesson, while one is taken.
    pub(crate) fn tutor(&self) -> Option<&Tutor> {
        self.tutor.as_deref()
    }

    /// What the lesson keeps back.
    fn hold(&self) -> Hold {
        self.tutor().map_or(Hold::Nothing, |tutor| Hold::of(tutor.course()))
    }

    /// Who tells the story, while one is told.
    pub(crate) fn narrator(&self) -> Option<&Narrator> {
        self.narrator.as_deref()
    }

    /// Which scene of a story is told, counted from 1, and of how many; `None` where none is, or all is told.
    #[must_use]
    pub fn scene(&self) -> Option<(usize, usize)> {
        self.narrator().map(Narrator::place)
    }

    /// The same that shows another screen, by its place in the list.
    #[must_use]
    pub fn with_screen(self, screen: usize) -> Self {
        Self { screen, ..self }
    }

    /// The same that was opened by another command.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Arc::new(origin), ..self }
    }

    /// The same with the words of a person for blocks, by which memory is shown first.
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

    /// What screens are drawn from.
    pub(crate) fn stage(&self) -> Stage<'_> {
        Stage {
            picture: &self.latest,
            shown: self.held.shown(),
            ghost: self.latest.ghost.as_ref().and_then(|_| self.held.ghost()),
            fullest: self.holds_fullest(),
            theme: &self.theme,
            keys: &self.keys,
            states: &self.states,
            scroll: self.scroll,
            loud: self.effect_is_loud(),
            hold: self.hold(),
            pressed: self.presenter.as_ref().map_or(&[], Presenter::shown),
        }
    }

    /// Whether there is an audience.
    #[must_use]
    pub const fn is_presenting(&self) -> bool {
        self.presenter.is_some()
    }

    /// Whether figures and blocks are those of the fullest moment of an interval.
    #[must_use]
    pub fn holds_fullest(&self) -> bool {
        held::holds_fullest(&self.latest)
    }

    /// The screen that is shown, by its place in the list.
    #[must_use]
    pub const fn screen(&self) -> usize {
        self.screen
    }

    /// What lies over it, the top one last.
    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The line that stands in the footer for a while.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notices.text()
    }

    /// Whether the measured effect is to be loud.
    #[must_use]
    pub fn effect_is_loud(&self) -> bool {
        !self.calm && self.effect.until(self.now).is_some()
    }

    /// Whether the next frame would differ from the last.
    #[must_use]
    pub fn needs_frame(&self) -> bool {
        self.dirty
    }

    /// When the screen changes by itself, if nothing happens before.
    #[must_use]
    pub fn next_change(&self) -> Option<Duration> {
        let pressed = self.presenter.as_ref().and_then(Presenter::next_change);
        let told = self.narrator().and_then(Narrator::next_change);
        self.notices.until().into_iter().chain(self.effect.until(self.now)).chain(pressed).chain(told).min()
    }

    /// Shows `text` in the footer for a while.
    pub fn notify(&mut self, text: String) {
        self.notices.tell(text, self.now);
        self.dirty = true;
    }

    /// Takes note of what happened; says what is to be done about it.
    pub fn update(&mut self, message: Message) -> Vec<Effect> {
        let mut effects = self.hear(message);
        effects.extend(self.study());
        effects
    }

    /// Does what the story says is to be done now.
    fn narrate(&mut self) -> Vec<Effect> {
        let Some(narrator) = &mut self.narrator else { return Vec::new() };
        let scene = narrator.place();
        let cue = narrator.due(self.now, &self.latest, &self.keys);
        self.dirty |= cue.is_some() || narrator.place() != scene;
        if narrator.is_over() {
            self.narrator = None;
        }
        match cue {
            Some(Cue::Do(action)) => self.ask(action),
            Some(Cue::Press(key)) => self.press(key),
            None => Vec::new(),
        }
    }

    /// A key of a person's while a story is told; `None` where it is for the lab.
    fn interrupt(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let action = self.keys.binding_for(key, self.screen).map(|binding| binding.action);
        let heard = self.narrator.as_mut()?.hear(action);
        match heard {
            Heard::Passed => return None,
            Heard::Leaves => return Some(self.ask(Action::Quit)),
            Heard::Taken => self.dirty = true,
            Heard::Refused => {
                let key = self.keys.key_of(Action::TogglePause).to_owned();
                self.notify(format!("the demo presses the keys now; {key} stops it"));
            }
        }
        Some(Vec::new())
    }

    fn hear(&mut self, message: Message) -> Vec<Effect> {
        match message {
            Message::Clock(now) => {
                self.advance_clock(now);
                return self.narrate();
            }
            Message::Resized => self.dirty = true,
            Message::Picture(picture) => return self.take_picture(picture),
            Message::Drawn(layout) => self.take_layout(layout),
            Message::Compared(other) => {
                self.states.compare.others.push(other);
                self.dirty = true;
            }
            Message::Completed(completion) => {
                if let Some(Layer::Path(prompt)) = self.layers.last_mut() {
                    prompt.complete(&completion);
                    self.dirty = true;
                }
            }
            Message::Key(key) => return self.interrupt(key).unwrap_or_else(|| self.press(key)),
            Message::Paste(text) => {
                // Outside of a line that is being written a paste is no series of commands.
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
        let was_loud = self.effect_is_loud();
        self.now = now;
        self.dirty |= self.notices.expire(now);
        self.dirty |= was_loud != self.effect_is_loud();
        self.dirty |= self.presenter.as_mut().is_some_and(|presenter| presenter.forget(now));
    }

    fn take_picture(&mut self, picture: Arc<Picture>) -> Vec<Effect> {
        self.effect.take(&picture.view, self.now);
        self.notices.hear(&picture.view.log, self.now);
        self.held.take(&picture, &self.latest, self.now);
        self.latest = picture;
        self.dirty = true;
        // A lesson sees that memory ran out before the cursor goes back to where.
        let mut effects = self.teach();
        effects.extend(self.stand_at_failure());
        effects
    }

    /// A request that failed is looked at where it failed: what follows it is the clearing up.
    fn stand_at_failure(&mut self) -> Vec<Effect> {
        let failed = self.latest.view.autopsy.as_ref().map(|autopsy| autopsy.position);
        let Some(position) = failed.filter(|_| self.latest.is_now() && self.latest.run == RunState::OutOfMemory) else {
            return Vec::new();
        };
        if self.autopsy.replace(position) == Some(position) {
            return Vec::new();
        }
        send([Request::Move(Move::To(position + 1))])
    }

    fn take_layout(&mut self, layout: Layout) {
        self.dirty = false;
        self.scroll = self.scroll.min(last_page(layout.rows));
        if let Some(line) = self.layers.last_mut().and_then(Layer::first_line) {
            *line = (*line).min(last_page(layout.layer_rows));
        }
        self.layout = layout;
    }

    fn press(&mut self, key: KeyEvent) -> Vec<Effect> {
        let action = self.keys.binding_for(key, self.screen).map(|binding| binding.action);
        if self.layers.is_empty() && action != Some(Action::ToggleHelp) {
            self.pointer.rest();
        }
        if let Some(presenter) = &mut self.presenter {
            let shown = match self.layers.last() {
                None => action,
                // What a dialog takes is no command; what only scrolls lets others through.
                Some(top) if top.takes_text() => None,
                Some(_) => self.keys.dialog_action(key).map(Action::Dialog).or(action),
            };
            presenter.press(Key::of(key), shown, self.now);
            self.dirty = true;
        }
        if let Some(top) = self.layers.last_mut() {
            let pressed = top.press(key, &self.keys, self.screen);
            if !matches!(pressed, Pressed::Passed) {
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
                tutor::Heard::Passed => {}
                tutor::Heard::Taken => {
                    self.dirty = true;
                    return Vec::new();
                }
                tutor::Heard::WentOn(requests) => return self.went_on(requests),
            }
        }
        action.map_or_else(Vec::new, |action| self.ask(action))
    }

    /// A person did something to the lab of a lesson.
    fn meddle(&mut self) {
        if let Some(tutor) = &mut self.tutor {
            tutor.meddled = true;
        }
    }

    /// The lesson went on by what a person did.
    fn went_on(&mut self, requests: Vec<Request>) -> Vec<Effect> {
        self.dirty = true;
        let mut effects = send(requests);
        effects.extend(self.taught());
        effects
    }

    /// Shows the lesson what happened.
    fn teach(&mut self) -> Vec<Effect> {
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

    /// A lesson went on: the screen that shows it best, and how far somebody is.
    fn taught(&mut self) -> Vec<Effect> {
        let Some(tutor) = &self.tutor else { return Vec::new() };
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

    /// Does what a key came to in the layer on top; `None` where it was not for it.
    fn pressed(&mut self, pressed: Pressed) -> Option<Vec<Effect>> {
        let mut effects = Vec::new();
        match pressed {
            Pressed::Passed => return None,
            Pressed::Taken => {}
            Pressed::Closed => drop(self.layers.pop()),
            Pressed::Done(requests) => {
                self.layers.pop();
                let hold = self.hold();
                if requests.iter().any(|request| matches!(request, Request::Lab(_))) {
                    // It may have been opened before the lesson came to its question.
                    if hold != Hold::Nothing {
                        self.notify(hold.why(&self.keys));
                        return Some(effects);
                    }
                    self.meddle();
                }
                effects = send(requests);
            }
            Pressed::Filter { of, text, done } => {
                self.states.look_for(of, text);
                if done {
                    self.layers.pop();
                }
            }
            Pressed::Wear { theme, done, keep } => {
                self.theme = *theme;
                if done {
                    self.layers.pop();
                }
                if keep {
                    effects.push(Effect::KeepTheme(self.theme.name().to_owned()));
                }
            }
            Pressed::Scroll { by, pages } => {
                let rows = if pages { self.layout.layer_rows.1.max(1) } else { 1 };
                self.scroll(by, rows);
            }
            Pressed::Compare(path) => {
                self.layers.pop();
                effects.push(Effect::Compare(path));
            }
            Pressed::Complete(text) => effects.push(Effect::Complete(text)),
            Pressed::Copy(text) => {
                self.layers.pop();
                effects = self.copy(text);
            }
            Pressed::Leave => return Some(self.ask(Action::Quit)),
        }
        Some(effects)
    }

    /// Does what is asked for, or says why that can't be.
    fn ask(&mut self, action: Action) -> Vec<Effect> {
        let hold = self.hold();
        if !hold.permits(action, &self.latest) {
            self.notify(hold.why(&self.keys));
            return Vec::new();
        }
        let permitted = self.presenter.as_mut().map_or(Ok(()), |presenter| presenter.permits(action, self.now));
        match permitted.and_then(|()| keymap::acts(action, &self.latest)) {
            Ok(()) => {
                // Whoever only opens a line has done nothing yet.
                if hold::acts_on_lab(action, &self.latest) && !matches!(action, Action::Edit(_)) {
                    self.meddle();
                }
                self.act(action)
            }
            Err("") => Vec::new(),
            Err(why) => {
                self.notify(why.to_owned());
                Vec::new()
            }
        }
    }

    /// Hands an action to whom it concerns.
    fn act(&mut self, action: Action) -> Vec<Effect> {
        self.dirty = true;
        match action {
            Action::EmptyCache
            | Action::TogglePause
            | Action::Advance(_)
            | Action::UseProcessor
            | Action::Cursor(..)
            | Action::Jump(..)
            | Action::CursorStart
            | Action::CursorNow
            | Action::Faster(_)
            | Action::NextDevice
            | Action::Record => return send(requests::of(action, &self.latest)),
            Action::Flip(switch, way) => return self.flip(switch.word(), Command::Flip(switch, way)),
            Action::Own(action) => return self.act_on_screen(action),
            Action::Remedy => return self.do_remedy(),
            Action::Edit(switch) => self.layers.push(Layer::Editor(Editor::new(switch, self.latest.switches()))),
            Action::GoTo => self.layers.push(Layer::GoTo(GoTo::default())),
            Action::Filter(of) => self.layers.push(Layer::Filter(Filter::new(of, self.states.looked_for(of)))),
            Action::Ghost => self.layers.push(Layer::Ghost(GhostEditor::new(&self.latest))),
            Action::ToggleHelp => self.toggle(action, Layer::Help(self.help(self.asked_about()))),
            Action::HelpOn(panel) => self.layers.push(Layer::Help(self.help(Some(panel)))),
            Action::Dialog(_) => {}
            Action::ToggleFindings => self.toggle(action, Layer::Findings(0)),
            Action::Close => {
                if self.layers.pop().is_some() {
                    return Vec::new();
                }
                if let Some(action) = self.layout.leave {
                    return self.ask(action);
                }
                if !self.latest.is_now() {
                    return send([Request::Move(Move::Now)]);
                }
            }
            Action::Scroll(rows) => self.scroll(rows, 1),
            Action::ScrollPage(pages) => {
                let seen = if self.layers.is_empty() { self.layout.rows.1 } else { self.layout.layer_rows.1 };
                self.scroll(pages, seen.max(1));
            }
            Action::Screen(index) => self.show(index),
            Action::NextScreen(places) => {
                let count = SCREENS.len() as isize;
                let next = (self.screen as isize + isize::from(places)).rem_euclid(count.max(1));
                self.show(next.unsigned_abs());
            }
            Action::TogglePresenting => self.presenter = self.presenter.is_none().then(Presenter::default),
            Action::ChooseTheme => self.layers.push(Layer::Themes(ThemeList::new(&self.catalog, &self.theme))),
            Action::SaveScreen => return vec![Effect::SaveScreen],
            Action::CompareFile => self.layers.push(Layer::Path(PathPrompt::default())),
            Action::Copy => self.layers.push(Layer::Copy(self.copies())),
            Action::Repaint => return vec![Effect::Repaint],
            Action::Suspend => return vec![Effect::Suspend],
            Action::LessonAnew => {
                if let Some(tutor) = &mut self.tutor {
                    return send(tutor.begin_anew(&self.latest));
                }
                self.notify(NO_LESSON.to_owned());
            }
            Action::FoldLesson => match &mut self.tutor {
                Some(tutor) => tutor.folded = !tutor.folded,
                None => self.notify(NO_LESSON.to_owned()),
            },
            Action::PassQuestion => match &mut self.tutor {
                Some(tutor) if Hold::of(tutor.course()).asks() => {
                    let requests = tutor.pass(&self.latest);
                    return self.went_on(requests);
                }
                Some(_) => self.notify("no question is open".to_owned()),
                None => self.notify(NO_LESSON.to_owned()),
            },
            Action::Quit => return vec![Effect::Quit],
        }
        Vec::new()
    }

    /// What can be copied: what the screen has selected, the finding that is looked at, the command.
    fn copies(&self) -> CopyMenu {
        let stage = self.stage();
        let findings = &stage.view().findings;
        let selected = SCREENS.get(self.screen).map(|screen| ('y', (screen.copied)(&stage)));
        let finding = self.states.ledger.selected(findings).and_then(|place| findings.get(place));
        let finding = finding.map(|finding| ('f', copied::finding(&stage, finding)));
        let command = ('c', copied::Copied::new("command", &self.origin.command(&self.latest)));
        CopyMenu::new(selected.into_iter().chain(finding).chain([command]).collect())
    }

    fn copy(&mut self, text: String) -> Vec<Effect> {
        let (kept, cut) = clipboard::fitting(&text);
        let told = pane::cut(&kept.replace(['\n', '\t'], " · "), NOTICED);
        self.notify(if cut {
            format!("copied the first {} KB, terminals take no more: {told}", kept.len() / 1000)
        } else {
            format!("copied: {told}")
        });
        vec![Effect::Copy(text)]
    }

    /// The help, about a panel or about keys.
    fn help(&self, panel: Option<Panel>) -> Help {
        let mut panels: Vec<Panel> = Vec::new();
        for (area, panel) in &self.layout.panels {
            if !area.is_empty() && !panels.contains(panel) {
                panels.push(*panel);
            }
        }
        Help::new(panel, panels, self.screen)
    }

    /// The panel that the mouse is at on this screen; else that of what a person has selected there.
    fn asked_about(&self) -> Option<Panel> {
        self.pointer.panel(&self.layout).or(self.layout.focus)
    }

    fn show(&mut self, screen: usize) {
        if self.screen != screen {
            self.pointer = Pointer::default();
        }
        self.screen = screen;
        self.scroll = 0;
    }

    /// Asks for what the screen wants studied, where that is something else than before.
    fn study(&mut self) -> Option<Effect> {
        let wants = SCREENS.get(self.screen).map(|screen| screen.wants)?;
        let wanted = wants(&mut self.states, &self.latest);
        (std::mem::replace(&mut self.wanted, wanted) != wanted).then_some(Effect::Send(Request::Study(wanted)))
    }

    fn act_on_screen(&mut self, action: ScreenAction) -> Vec<Effect> {
        let map = self.layout.map.map_or((0, 0), |area| (usize::from(area.width), usize::from(area.height)));
        let seen = Seen {
            picture: &self.latest,
            shown: self.held.shown(),
            ghost: self.latest.ghost.as_ref().and_then(|_| self.held.ghost()),
            history_columns: self.layout.history_columns,
            map,
            rows: self.layout.rows,
            scroll: self.scroll,
        };
        let to = self.states.act(action, seen);
        if let Some(first) = self.states.take_scroll() {
            self.scroll = first;
        }
        let mut effects = send(to.map(Request::Move));
        if self.reading.as_ref() != self.states.stacks.file() {
            self.reading = self.states.stacks.file().cloned();
            effects.extend(send([Request::Read(self.reading.clone())]));
        }
        effects
    }

    /// Does the remedy that is selected, as its own key would.
    fn do_remedy(&mut self) -> Vec<Effect> {
        let Some(remedy) = self.states.ledger.remedy(&self.latest.view.findings).cloned() else {
            self.notify("nothing need be done about it".to_owned());
            return Vec::new();
        };
        match (Command::of_remedy(&remedy), &remedy) {
            (Some(command), Remedy::Flip { switch, .. }) => self.flip(switch, command),
            (Some(command), _) => send([Request::Lab(command)]),
            (None, Remedy::HigherLimit) => {
                Switch::named("limit").map_or_else(Vec::new, |limit| self.act(Action::Edit(limit)))
            }
            (None, _) => {
                self.notify(format!("the program has to change: {}", words::remedy(&self.stage(), &remedy)));
                Vec::new()
            }
        }
    }

    fn toggle(&mut self, action: Action, layer: Layer) {
        match self.layers.last() {
            Some(top) if top.is_of(action) => drop(self.layers.pop()),
            _ => self.layers.push(layer),
        }
    }

    fn flip(&mut self, word: &str, command: Command) -> Vec<Effect> {
        match self.latest.switches().get(word).map(|setting| setting.idle.clone()) {
            Some(idle) => {
                if let Some(why) = idle {
                    self.notify(format!("changes nothing here: {why}"));
                }
                send([Request::Lab(command)])
            }
            None => {
                self.notify("this lab has no such switch".to_owned());
                Vec::new()
            }
        }
    }

    /// Scrolls what is on top.
    fn scroll(&mut self, steps: i32, rows: usize) {
        match self.layers.last_mut().and_then(Layer::first_line) {
            Some(line) => *line = scrolled(*line, steps, rows, self.layout.layer_rows),
            None => self.scroll = scrolled(self.scroll, steps, rows, self.layout.rows),
        }
    }
}

fn send(requests: impl IntoIterator<Item = Request>) -> Vec<Effect> {
    requests.into_iter().map(Effect::Send).collect()
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    use ratatui::layout::Rect;

    use super::*;
    use crate::model::{Ledger, Level, LogLine, Micros, StepsView, View};
    use crate::source::Extent;
    use crate::tui::theme::ColorTier;
    use crate::units::Bytes;

    fn app() -> App {
        let catalog = Catalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        App::new(catalog, theme, GlyphTier::Unicode)
    }

    /// A lab that trains fast, with so much allocated.
    fn fast(allocated: u64) -> Picture {
        let steps = StepsView { finished: 9, median: Micros(20_000), ..StepsView::default() };
        let ledger = Ledger { live: Bytes(allocated), ..Ledger::default() };
        let (run, extent) = (RunState::Running, Extent { grows: true, ..Extent::default() });
        let view = View { run: run.clone(), steps, ledger, ..View::default() };
        Picture { view: Arc::new(view), run, extent, ..Picture::default() }
    }

    fn at(app: &mut App, millis: u64, picture: Picture) {
        app.update(Message::Clock(Duration::from_millis(millis)));
        app.update(Message::Picture(Arc::new(picture)));
    }

    fn typed(app: &mut App, keys: &str) {
        for symbol in keys.chars() {
            app.update(Message::Key(KeyEvent::new(KeyCode::Char(symbol), KeyModifiers::NONE)));
        }
    }

    #[test]
    fn figures_and_blocks_are_of_the_fullest_moment_and_the_rest_is_of_now() {
        let mut app = app();
        at(&mut app, 100, fast(900));
        at(&mut app, 1000, fast(300));
        assert!(app.holds_fullest() && app.stage().fullest);
        assert_eq!(app.stage().shown.ledger.live, Bytes(900));
        assert_eq!(app.latest().view.ledger.live, Bytes(300));
    }

    #[test]
    fn a_screens_own_keys_change_what_it_remembers_and_news_does_not() {
        let mut app = app();
        let mut whole = fast(1);
        let mut lab = crate::model::Lab::new();
        for event in crate::model::synthetic::training_run() {
            lab.apply(&event);
        }
        whole.history = Arc::clone(&lab.view().history);
        at(&mut app, 0, whole.clone());
        // 31 steps in 5 columns: 8 steps to each.
        app.update(Message::Drawn(Layout { history_columns: 5, ..Layout::default() }));
        typed(&mut app, "]+");
        assert!(app.needs_frame());
        assert_eq!(app.stage().states.lab.zoom, Some(1));
        at(&mut app, 10, whole);
        assert_eq!(app.stage().states.lab.zoom, Some(1));
    }

    #[test]
    fn blocks_scroll_by_rows_and_pages_within_their_ends() {
        let mut app = app();
        let rows = |rows| Message::Drawn(Layout { rows, ..Layout::default() });
        app.update(rows((50, 8)));
        typed(&mut app, "jj");
        assert_eq!(app.stage().scroll, 2);
        typed(&mut app, &"k".repeat(9));
        assert_eq!(app.stage().scroll, 0);
        for _ in 0..50 {
            app.update(Message::Key(KeyEvent::new(KeyCode::Char('J'), KeyModifiers::SHIFT)));
        }
        assert_eq!(app.stage().scroll, 42, "the last page is a whole one");
        app.update(Message::Key(KeyEvent::new(KeyCode::Char('K'), KeyModifiers::SHIFT)));
        assert_eq!(app.stage().scroll, 34);
        app.update(rows((20, 8)));
        assert_eq!(app.stage().scroll, 12, "fewer rows have another end");
        app.update(rows((50, 100)));
        assert_eq!(app.stage().scroll, 0, "all rows fit now: nothing is left to scroll");
    }

    #[test]
    fn what_is_on_top_scrolls_and_what_lies_below_stays() {
        let mut app = app();
        let drawn = Message::Drawn(Layout { rows: (50, 8), layer_rows: (30, 10), ..Layout::default() });
        typed(&mut app, "?");
        app.update(drawn);
        typed(&mut app, "jjk");
        assert!(matches!(app.layers(), [Layer::Help(help)] if help.first() == 1));
        typed(&mut app, &"j".repeat(90));
        assert!(matches!(app.layers(), [Layer::Help(help)] if help.first() == 20));
        assert_eq!(app.stage().scroll, 0);
        typed(&mut app, "?");
        assert!(app.layers().is_empty());
    }

    #[test]
    fn help_begins_with_what_the_mouse_is_at_and_a_mouse_that_moves_draws_nothing() {
        let mut app = app();
        at(&mut app, 0, fast(1));
        let panels = vec![(Rect::new(0, 0, 80, 10), Panel::History), (Rect::new(0, 10, 80, 10), Panel::Map)];
        let drawn = Message::Drawn(Layout { panels, ..Layout::default() });
        let mouse = |kind, row| Message::Mouse(MouseEvent { kind, column: 5, row, modifiers: KeyModifiers::NONE });
        let (moved, clicked) = (MouseEventKind::Moved, MouseEventKind::Down(MouseButton::Left));
        let helped = |app: &mut App| {
            typed(app, "?");
            let about = match app.layers() {
                [Layer::Help(help)] => help.panel(),
                other => panic!("{other:?}"),
            };
            typed(app, "?");
            app.update(drawn.clone());
            about
        };
        app.update(drawn.clone());
        assert_eq!(helped(&mut app), None, "the mouse was not seen yet");
        for row in 0..20 {
            assert_eq!(app.update(mouse(moved, row)), []);
            assert!(!app.needs_frame(), "row {row}");
        }
        assert_eq!(helped(&mut app), Some(Panel::Map));
        assert_eq!(helped(&mut app), Some(Panel::Map), "asked again");
        typed(&mut app, "j");
        app.update(drawn.clone());
        assert_eq!(helped(&mut app), None, "a key was pressed since, and the mouse only lies there");
        app.update(mouse(clicked, 3));
        app.update(mouse(moved, 15));
        app.update(drawn.clone());
        assert_eq!(helped(&mut app), Some(Panel::Map), "it moved on");
        typed(&mut app, "j");
        app.update(drawn.clone());
        assert_eq!(helped(&mut app), Some(Panel::History), "the last that was clicked");
        typed(&mut app, "2");
        app.update(drawn.clone());
        assert_eq!(helped(&mut app), None, "another screen");
    }

    #[test]
    fn a_warning_of_the_log_stands_in_the_footer_for_a_while() {
        let mut app = app();
        let mut picture = fast(1);
        let line = LogLine { time: Micros(5), step: 1, level: Level::Warning, text: "refused: no".into() };
        Arc::make_mut(&mut picture.view).log.push(line);
        at(&mut app, 10, picture.clone());
        assert_eq!((app.notice(), app.next_change()), (Some("refused: no"), Some(Duration::from_millis(5010))));
        app.update(Message::Drawn(Layout::default()));
        app.update(Message::Clock(Duration::from_millis(5009)));
        assert!(!app.needs_frame());
        app.update(Message::Clock(Duration::from_millis(5010)));
        assert!(app.needs_frame());
        assert_eq!((app.notice(), app.next_change()), (None, None));
    }
}
