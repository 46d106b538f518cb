//! Performs actions: some are for the screen itself, others go to the source.

use super::message::{Effect, send};
use super::pointer::Pointer;
use super::requests;
use super::scroll::scrolled;
use super::state::App;
use crate::drawing::map::{self, Cell};
use crate::drawing::pane;
use crate::model::{Evidence, Remedy};
use crate::session::{Command, Switch};
use crate::source::{Move, Request};
use crate::tui::action::Action;
use crate::tui::clipboard;
use crate::tui::copied;
use crate::tui::hold::{self, Hold};
use crate::tui::keymap;
use crate::tui::layers::{CopyMenu, Editor, Filter, GhostEditor, GoTo, Help, Layer, PathPrompt, ThemeList};
use crate::tui::palette::OnEnter;
use crate::tui::panel::Panel;
use crate::tui::presenter::Presenter;
use crate::tui::screens::SCREENS;
use crate::tui::states::{ActionInput, BlocksAction, LabAction, LedgerAction, ScreenAction, Selection};
use crate::tui::words;

/// How many characters of a copied text the footer repeats.
const NOTICED: usize = 160;
const YOURS: &str = "the lab is yours until the lesson goes on; after changes, later answers may not count";
const NOT_YET: &str = "the lesson runs the lab now; you can take it once a step is explained";
const NO_LESSON: &str = "no lesson is open; `vramlab lesson` lists them";

impl App {
    /// Performs an action, or says why it is not possible.
    pub(super) fn ask(&mut self, action: Action) -> Vec<Effect> {
        if let Some(why) = self.held_back(action) {
            self.notify(why);
            return Vec::new();
        }
        let permitted = self.presenter.as_mut().map_or(Ok(()), |presenter| presenter.permits(action, self.now));
        match permitted.and_then(|()| keymap::acts(action, &self.latest)) {
            Ok(()) => {
                // Opening a line of input changes nothing yet.
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

    /// Hands an action to whoever performs it.
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        self.dirty = true;
        match action {
            Action::EmptyCache
            | Action::ResetPeaks
            | Action::TogglePause
            | Action::Advance(_)
            | Action::UseProcessor
            | Action::NextWay
            | Action::Cursor(..)
            | Action::Jump(..)
            | Action::CursorStart
            | Action::CursorNow
            | Action::Faster(_)
            | Action::NextDevice
            | Action::Pin
            | Action::Record => return send(requests::of(action, &self.latest)),
            Action::Flip(switch, way) => return self.flip(switch.word(), Command::Flip(switch, way)),
            Action::Own(action) => return self.act_on_screen(action),
            Action::Remedy => return self.do_remedy(),
            Action::Edit(switch) => self.layers.push(Layer::Editor(Editor::new(switch, &self.latest))),
            Action::GoTo => self.layers.push(Layer::GoTo(GoTo::default())),
            Action::Filter(of) => self.layers.push(Layer::Filter(Filter::new(of, self.states.looked_for(of)))),
            Action::Ghost => self.layers.push(Layer::Ghost(GhostEditor::new(&self.latest))),
            Action::Palette => self.layers.push(self.palette()),
            Action::ToggleHelp if self.tutor.as_mut().is_some_and(|tutor| tutor.show_hint()) => {}
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
                    return send(tutor.begin_anew());
                }
                self.notify(NO_LESSON.to_owned());
            }
            Action::LessonBack => match self.tutor.as_mut().map(|tutor| tutor.look_back()) {
                Some(true) => {}
                Some(false) => self.notify("there is no earlier step".to_owned()),
                None => self.notify(NO_LESSON.to_owned()),
            },
            Action::TakeLab => {
                let told = match self.tutor.as_mut().map(|tutor| tutor.take_lab()) {
                    Some(true) => YOURS,
                    Some(false) => NOT_YET,
                    None => NO_LESSON,
                };
                self.notify(told.to_owned());
            }
            Action::FoldLesson => match &mut self.tutor {
                Some(tutor) => tutor.folded = !tutor.folded,
                None => self.notify(NO_LESSON.to_owned()),
            },
            Action::PassQuestion => match &mut self.tutor {
                Some(tutor) if tutor.hold().asks() || tutor.hold() == Hold::Goal => {
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

    /// What can be copied: the screen's selection, the finding in view, the command.
    pub(super) fn copies(&self) -> CopyMenu {
        let stage = self.stage();
        let findings = &stage.findings();
        let selected = SCREENS.get(self.screen).map(|screen| ('y', (screen.copied)(&stage)));
        let finding = self.states.ledger.selected(findings).and_then(|place| findings.get(place));
        let finding = finding.map(|finding| ('f', copied::finding(&stage, finding)));
        let command = ('c', copied::Clipping::new("command", &self.origin.command(&self.latest)));
        CopyMenu::new(selected.into_iter().chain(finding).chain([command]).collect())
    }

    pub(super) fn copy(&mut self, text: String) -> Vec<Effect> {
        let (kept, cut) = clipboard::fitting(&text);
        let told = pane::cut(&kept.replace(['\n', '\t'], " · "), NOTICED);
        self.notify(if cut {
            format!("copied the first {} KB, the most a terminal takes: {told}", kept.len() / 1000)
        } else {
            format!("copied: {told}")
        });
        vec![Effect::Copy(text)]
    }

    /// The help for a panel, or for keys.
    pub(super) fn help(&self, panel: Option<Panel>) -> Help {
        let mut panels: Vec<Panel> = Vec::new();
        for (area, panel) in &self.layout.panels {
            if !area.is_empty() && !panels.contains(panel) {
                panels.push(*panel);
            }
        }
        Help::new(panel, panels, self.screen)
    }

    /// The panel under the mouse on this screen, or else the panel of the selection.
    pub(super) fn asked_about(&self) -> Option<Panel> {
        self.pointer.panel(&self.layout).or(self.layout.focus)
    }

    pub(super) fn show(&mut self, screen: usize) {
        if self.screen != screen {
            self.pointer = Pointer::default();
        }
        if let Some(tutor) = &mut self.tutor {
            tutor.make_way();
        }
        self.screen = screen;
        self.scroll = 0;
    }

    pub(super) fn act_on_screen(&mut self, action: ScreenAction) -> Vec<Effect> {
        if let ScreenAction::Lab(LabAction::Cell(column, row)) = action {
            return self.show_cell([usize::from(row), usize::from(column)]);
        }
        let map = self.layout.map.map_or((0, 0), |area| (usize::from(area.width), usize::from(area.height)));
        let seen = ActionInput {
            picture: &self.latest,
            shown: self.latest.shown(),
            ghost: self.latest.shown_ghost(),
            history_columns: self.layout.history_columns,
            map,
            rows: self.layout.rows,
            scroll: self.scroll,
        };
        let to = self.states.act(action, seen);
        if action == ScreenAction::Ledger(LedgerAction::Go) {
            self.show_leak();
        }
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

    /// Shows the content of a cell of the Lab's map on Blocks.
    fn show_cell(&mut self, [row, column]: [usize; 2]) -> Vec<Effect> {
        let Some(area) = self.layout.overview else { return Vec::new() };
        let segments = &self.latest.shown().segments;
        let plan = self.states.lab.overview(segments, (usize::from(area.width), usize::from(area.height)));
        let first = self.scroll.min(plan.rows.saturating_sub(usize::from(area.height)));
        let cell = Cell::at(&plan, segments, [first + row, column]);
        let address = cell.and_then(|cell| map::largest(&cell.blocks(|_| true)).or_else(|| cell.first()));
        let screen = SCREENS.iter().position(|screen| screen.title == "Blocks");
        let (Some(address), Some(screen)) = (address, screen) else { return Vec::new() };
        let action = BlocksAction::Select(Selection { address, whole: false });
        let action = Action::Own(ScreenAction::Blocks(action));
        self.do_picked(OnEnter::Press { screen: Some(screen), action })
    }

    /// Shows who allocated the surviving blocks, if the selected finding is a leak whose lines are known.
    fn show_leak(&mut self) {
        let findings = self.latest.findings();
        let finding = self.states.ledger.selected(&findings).and_then(|place| findings.get(place));
        let Some(Evidence::Leak { lines, .. }) = finding.map(|finding| &finding.evidence) else { return };
        let lines: Vec<&str> = lines.iter().map(|kept| &*kept.line).collect();
        if let Some(screen) = SCREENS.iter().position(|screen| screen.title == "Stacks")
            && !lines.is_empty()
        {
            self.states.stacks.show_lines(&lines);
            self.show(screen);
        }
    }

    /// Applies the selected remedy, as its own key would.
    pub(super) fn do_remedy(&mut self) -> Vec<Effect> {
        let Some(remedy) = self.states.ledger.remedy(&self.latest.findings()).cloned() else {
            self.notify("no setting was found that helps with this finding".to_owned());
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

    pub(super) fn toggle(&mut self, action: Action, layer: Layer) {
        match self.layers.last() {
            Some(top) if top.is_of(action) => drop(self.layers.pop()),
            _ => self.layers.push(layer),
        }
    }

    pub(super) fn flip(&mut self, word: &str, command: Command) -> Vec<Effect> {
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

    /// Scrolls the topmost list.
    pub(super) fn scroll(&mut self, steps: i32, rows: usize) {
        match self.layers.last_mut().and_then(Layer::first_line) {
            Some(line) => *line = scrolled(*line, steps, rows, self.layout.layer_rows),
            None => self.scroll = scrolled(self.scroll, steps, rows, self.layout.rows),
        }
    }
}
