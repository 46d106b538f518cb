//! What the screen shows beyond its source, and how keys and news change it: a pure function of messages.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::GlyphTier;
use super::action::Action;
use super::keymap;
use super::layers::{Editor, GoTo, Layer, Pressed};
use super::stage::{Chart, Layout, Stage};
use super::theme::{Catalog, Theme};
use crate::model::{Level, LogLine, Micros, Profile, RunState, View};
use crate::recording::Direction;
use crate::session::{Command, StepSize};
use crate::source::{Move, Picture, Request, Unit};

/// While steps are shorter than this, the figures and the block map show the fullest moment of each such interval:
/// what changes faster can't be read, and costs bytes.
const HOLD: Duration = Duration::from_millis(1000);
/// A running lab's figures are renewed at most this often.
const REFRESH: Duration = Duration::from_millis(250);
/// How long a measured effect is loud.
const LOUD: Duration = Duration::from_secs(5);
/// How long a notice stands in the footer.
const NOTICE: Duration = Duration::from_secs(5);
/// The most steps of a column of the history, as a power of two.
const FURTHEST: usize = 40;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Message {
    /// The clock, since the program began. Comes before what happened at that time.
    Clock(Duration),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// The source published a picture.
    Picture(Arc<Picture>),
    /// A frame was drawn; what it learnt about the layout.
    Drawn(Layout),
}

impl Message {
    /// What a terminal's event says, if anything that matters here.
    #[must_use]
    pub fn of(event: Event) -> Option<Self> {
        match event {
            Event::Key(key) => Some(Self::Key(key)),
            Event::Mouse(mouse) => Some(Self::Mouse(mouse)),
            Event::Paste(text) => Some(Self::Paste(text)),
            Event::Resize(..) => Some(Self::Resized),
            Event::FocusGained | Event::FocusLost => None,
        }
    }
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the source for something.
    Send(Request),
    /// Paint every cell with the next frame.
    Repaint,
    /// Stop the process until the shell brings it back.
    Suspend,
    /// Leave.
    Quit,
}

fn lab(command: Command) -> Vec<Effect> {
    vec![Effect::Send(Request::Lab(command))]
}

fn go(to: Move) -> Vec<Effect> {
    vec![Effect::Send(Request::Move(to))]
}

/// A line that stands in the footer for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Timed {
    text: String,
    until: Duration,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    catalog: Catalog,
    theme: Theme,
    glyphs: GlyphTier,
    now: Duration,
    latest: Arc<Picture>,
    shown: Arc<View>,
    /// The fullest view of the interval under way, and when the interval began.
    fullest: Option<Arc<View>>,
    interval: Duration,
    screen: usize,
    layers: Vec<Layer>,
    zoom: Option<usize>,
    scroll: usize,
    notice: Option<Timed>,
    /// The last warning of the log that the footer has told.
    told: Option<(Micros, Arc<str>)>,
    /// The effect being shown: its position in the event stream, whether it was complete, loud until when.
    effect: Option<(u64, bool, Duration)>,
    /// The request that failed whose moment was shown.
    autopsy: Option<u64>,
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
            now: Duration::ZERO,
            latest: Arc::default(),
            shown: Arc::default(),
            fullest: None,
            interval: Duration::ZERO,
            screen: 0,
            layers: Vec::new(),
            zoom: None,
            scroll: 0,
            notice: None,
            told: None,
            effect: None,
            autopsy: None,
            layout: Layout::default(),
            dirty: true,
        }
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
            shown: &self.shown,
            fullest: self.holds_fullest(),
            theme: &self.theme,
            zoom: self.zoom,
            scroll: self.scroll,
            loud: self.effect_is_loud(),
        }
    }

    /// Whether figures and blocks are those of the fullest moment of an interval.
    #[must_use]
    pub fn holds_fullest(&self) -> bool {
        self.latest.is_now() && self.latest.run == RunState::Running && is_fast(&self.latest.view)
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
        self.notice.as_ref().map(|notice| notice.text.as_str())
    }

    /// Whether the measured effect is to be loud.
    #[must_use]
    pub fn effect_is_loud(&self) -> bool {
        self.effect.is_some_and(|(_, _, until)| self.now < until)
    }

    /// Whether the next frame would differ from the last.
    #[must_use]
    pub fn needs_frame(&self) -> bool {
        self.dirty
    }

    /// When the screen changes by itself, if nothing happens before.
    #[must_use]
    pub fn next_change(&self) -> Option<Duration> {
        let notice = self.notice.as_ref().map(|notice| notice.until);
        let effect = self.effect.map(|(_, _, until)| until).filter(|&until| until > self.now);
        notice.into_iter().chain(effect).min()
    }

    /// Shows `text` in the footer for a while.
    pub fn notify(&mut self, text: String) {
        self.notice = Some(Timed { text, until: self.now + NOTICE });
        self.dirty = true;
    }

    /// Takes note of what happened; says what is to be done about it.
    pub fn update(&mut self, message: Message) -> Vec<Effect> {
        match message {
            Message::Clock(now) => self.advance_clock(now),
            Message::Resized => self.dirty = true,
            Message::Picture(picture) => return self.take_picture(picture),
            Message::Drawn(layout) => {
                self.dirty = false;
                self.scroll = self.scroll.min(last_page(layout.rows));
                if let Some(line) = self.layers.last_mut().and_then(Layer::first_line) {
                    *line = (*line).min(last_page(layout.layer_rows));
                }
                self.layout = layout;
            }
            Message::Key(key) => return self.press(key),
            Message::Paste(text) => {
                // Outside of a line that is being written a paste is no series of commands.
                if let Some(layer) = self.layers.last_mut() {
                    layer.paste(&text);
                    self.dirty = true;
                }
            }
            Message::Mouse(mouse) => return self.point(mouse),
        }
        Vec::new()
    }

    fn advance_clock(&mut self, now: Duration) {
        let was_loud = self.effect_is_loud();
        self.now = now;
        self.dirty |= was_loud != self.effect_is_loud();
        if self.notice.as_ref().is_some_and(|notice| notice.until <= now) {
            self.notice = None;
            self.dirty = true;
        }
    }

    fn take_picture(&mut self, picture: Arc<Picture>) -> Vec<Effect> {
        let view = &picture.view;
        let effect = view.effects.last().map(|effect| (effect.position, !effect.is_under_way()));
        match (effect, self.effect) {
            (None, _) => self.effect = None,
            (Some((position, complete)), Some((seen, was_complete, _)))
                if (position, complete) == (seen, was_complete) => {}
            (Some((position, complete)), _) => self.effect = Some((position, complete, self.now + LOUD)),
        }
        let warning = view.log.iter().rev().find(|line| line.level == Level::Warning);
        if let Some(LogLine { time, text, .. }) = warning
            && self.told.replace((*time, Arc::clone(text))) != Some((*time, Arc::clone(text)))
        {
            self.notify(text.to_string());
        }
        let moved = picture.run != self.latest.run || picture.cursor != self.latest.cursor;
        self.latest = picture;
        if moved || !self.holds_fullest() {
            if moved || self.latest.run != RunState::Running || self.now >= self.interval + REFRESH {
                self.show(Arc::clone(&self.latest.view));
            }
        } else {
            let allocated = |view: &View| view.ledger.allocated();
            if self.fullest.as_ref().is_none_or(|fullest| allocated(&self.latest.view) >= allocated(fullest)) {
                self.fullest = Some(Arc::clone(&self.latest.view));
            }
            if self.now >= self.interval + HOLD
                && let Some(fullest) = self.fullest.take()
            {
                self.show(fullest);
            }
        }
        self.dirty = true;
        self.stand_at_failure()
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
        go(Move::To(position + 1))
    }

    fn show(&mut self, view: Arc<View>) {
        self.shown = view;
        self.fullest = None;
        self.interval = self.now;
    }

    fn press(&mut self, key: KeyEvent) -> Vec<Effect> {
        if let Some(top) = self.layers.last_mut() {
            let pressed = top.press(key);
            if !matches!(pressed, Pressed::Passed) {
                self.dirty = true;
            }
            match pressed {
                Pressed::Passed => {}
                Pressed::Taken => return Vec::new(),
                Pressed::Closed => {
                    self.layers.pop();
                    return Vec::new();
                }
                Pressed::Done(requests) => {
                    self.layers.pop();
                    return requests.into_iter().map(Effect::Send).collect();
                }
                Pressed::Leave => return vec![Effect::Quit],
            }
        }
        match keymap::binding_for(key, self.screen) {
            Some(binding) => self.ask(binding.action),
            None => Vec::new(),
        }
    }

    /// Does what is asked for, or says why that can't be.
    fn ask(&mut self, action: Action) -> Vec<Effect> {
        match keymap::acts(action, &self.latest) {
            Ok(()) => self.act(action),
            Err("") => Vec::new(),
            Err(why) => {
                self.notify(why.to_owned());
                Vec::new()
            }
        }
    }

    fn act(&mut self, action: Action) -> Vec<Effect> {
        self.dirty = true;
        match action {
            Action::Flip(switch, way) => return self.flip(switch.word(), Command::Flip(switch, way)),
            Action::Edit(switch) => self.layers.push(Layer::Editor(Editor::new(switch, self.latest.switches()))),
            Action::EmptyCache => return lab(Command::EmptyCache),
            Action::TogglePause => return self.toggle_pause(),
            Action::Advance(size) if self.latest.is_live() && self.latest.is_now() => {
                return lab(Command::Advance(size));
            }
            Action::Advance(size) => {
                let unit = match size {
                    StepSize::Op => Unit::Op,
                    StepSize::Phase => Unit::Phase,
                    StepSize::Step => Unit::Step,
                };
                return go(Move::By(unit, Direction::Forward));
            }
            Action::UseProcessor => return lab(Command::UseProcessor),
            Action::Cursor(unit, direction) => return go(Move::By(unit, direction)),
            Action::Jump(landmark, direction) => return go(Move::Jump(landmark, direction)),
            Action::HistoryColumn(column, of) => return self.history_column(column, of),
            Action::StepColumn(column, of) => return self.step_column(column, of),
            Action::CursorStart => return go(Move::Start),
            Action::CursorNow => return go(Move::Now),
            Action::Faster(power) => return vec![Effect::Send(Request::Faster(f64::from(power).exp2()))],
            Action::GoTo => self.layers.push(Layer::GoTo(GoTo::default())),
            Action::Record => return vec![Effect::Send(Request::ToggleRecording)],
            Action::ZoomIn => {
                let level = self.zoom.unwrap_or_else(|| self.level_of_run());
                self.zoom = Some(level.saturating_sub(1));
            }
            Action::ZoomOut => {
                let whole = self.level_of_run();
                // All that there are is as far as it goes, and stays so as the run grows.
                self.zoom = self.zoom.map(|level| level + 1).filter(|&level| level < whole.min(FURTHEST));
            }
            Action::Scroll(rows) => self.scroll(rows, 1),
            Action::ScrollPage(pages) => {
                let seen = if self.layers.is_empty() { self.layout.rows.1 } else { self.layout.layer_rows.1 };
                self.scroll(pages, seen.max(1));
            }
            Action::Screen(index) => {
                self.screen = index;
                self.scroll = 0;
            }
            Action::ToggleHelp => self.toggle(action, Layer::Help(0)),
            Action::ToggleFindings => self.toggle(action, Layer::Findings(0)),
            Action::NextTheme => self.next_theme(),
            Action::Close => {
                if self.layers.pop().is_none() && !self.latest.is_now() {
                    return go(Move::Now);
                }
            }
            Action::Repaint => return vec![Effect::Repaint],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Quit => return vec![Effect::Quit],
        }
        Vec::new()
    }

    fn toggle(&mut self, action: Action, layer: Layer) {
        match self.layers.last() {
            Some(top) if top.is_of(action) => drop(self.layers.pop()),
            _ => self.layers.push(layer),
        }
    }

    fn toggle_pause(&self) -> Vec<Effect> {
        let play = || vec![Effect::Send(Request::TogglePlay)];
        match (&self.latest.run, self.latest.is_live(), self.latest.is_now()) {
            (_, false, _) => play(),
            (RunState::Running, true, false) => play(),
            (_, true, false) => [go(Move::Now), lab(Command::Resume)].concat(),
            (RunState::Running, true, true) => lab(Command::Pause),
            (_, true, true) => lab(Command::Resume),
        }
    }

    fn flip(&mut self, word: &str, command: Command) -> Vec<Effect> {
        match self.latest.switches().get(word).map(|setting| setting.idle.clone()) {
            Some(Some(why)) => {
                self.notify(format!("changes nothing here: {why}"));
                lab(command)
            }
            Some(None) => lab(command),
            None => {
                self.notify("this lab has no such switch".to_owned());
                Vec::new()
            }
        }
    }

    fn level_of_run(&self) -> usize {
        self.latest.history.level_of_run(self.layout.history_columns.max(1))
    }

    /// The moment that a column of the history stands for.
    fn history_column(&self, column: u16, of: u16) -> Vec<Effect> {
        let level = self.zoom.unwrap_or_else(|| self.latest.history.level_of_run(usize::from(of)));
        let page = self.latest.history.page(level, usize::from(of));
        page.columns.get(usize::from(column)).map_or_else(Vec::new, |column| go(Move::To(column.position + 1)))
    }

    /// The moment that a column of the step's curve stands for.
    fn step_column(&self, column: u16, of: u16) -> Vec<Effect> {
        let Some(profile) = self.latest.shown_step() else { return Vec::new() };
        let event = u128::from(column) * u128::from(profile.events) / u128::from(of.max(1));
        go(Move::To(Profile::position_of(profile, u64::try_from(event).unwrap_or(u64::MAX)) + 1))
    }

    fn scroll(&mut self, steps: i32, rows: usize) {
        let move_by = |line: usize, last: usize| {
            let distance = (steps.unsigned_abs() as usize).saturating_mul(rows);
            if steps < 0 { line.saturating_sub(distance) } else { line.saturating_add(distance).min(last) }
        };
        let last = last_page(self.layout.layer_rows);
        match self.layers.last_mut().and_then(Layer::first_line) {
            Some(line) => *line = move_by(*line, last),
            None => self.scroll = move_by(self.scroll, last_page(self.layout.rows)),
        }
    }

    /// Goes on to the next theme that can be had; says why those before it can't.
    fn next_theme(&mut self) {
        let mut warnings = Vec::new();
        let found = self.catalog.after(self.theme.name()).find_map(|name| {
            let loaded = self.catalog.load(name, self.theme.tier());
            loaded.map_err(|error| warnings.push(error.to_string())).ok()
        });
        if let Some((theme, more)) = found {
            warnings.extend(more);
            warnings.push(format!("theme {}", theme.name()));
            self.theme = theme;
        }
        if let Some(first) = warnings.into_iter().next() {
            self.notify(first);
        }
    }

    fn point(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        match mouse.kind {
            MouseEventKind::ScrollDown => self.act(Action::Scroll(1)),
            MouseEventKind::ScrollUp => self.act(Action::Scroll(-1)),
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left) => {
                let position = Position::new(mouse.column, mouse.row);
                if let Some(action) = self.chart_at(position) {
                    return self.act(action);
                }
                if matches!(mouse.kind, MouseEventKind::Drag(_)) {
                    return Vec::new();
                }
                let target = self.layout.targets.iter().rev().find(|(area, _)| area.contains(position));
                target.map(|(_, action)| *action).map_or_else(Vec::new, |action| self.ask(action))
            }
            _ => Vec::new(),
        }
    }

    fn chart_at(&self, position: Position) -> Option<Action> {
        let inside = |(area, _): &&(Rect, Chart)| area.contains(position);
        let &(area, chart) = self.layout.charts.iter().find(inside)?;
        let column = position.x - area.x;
        Some(match chart {
            Chart::History => Action::HistoryColumn(column, area.width),
            Chart::Step => Action::StepColumn(column, area.width),
        })
    }
}

/// Steps follow each other faster than an eye can tell.
fn is_fast(view: &View) -> bool {
    let median = Duration::from_micros(view.steps.median.0);
    view.steps.finished < 2 || median < HOLD
}

/// The first row of the last page of `rows` in all, of which so many are seen.
fn last_page((rows, seen): (usize, usize)) -> usize {
    rows.saturating_sub(seen)
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;
    use crate::model::{Ledger, StepsView};
    use crate::source::{Cursor, Extent};
    use crate::tui::ColorTier;
    use crate::units::Bytes;

    fn app() -> App {
        let catalog = Catalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        App::new(catalog, theme, GlyphTier::Unicode)
    }

    /// A lab whose steps take so many milliseconds, with so much allocated.
    fn picture(run: RunState, millis: u64, allocated: u64) -> Picture {
        let steps = StepsView { finished: 9, median: Micros(1000 * millis), ..StepsView::default() };
        let ledger = Ledger { live: Bytes(allocated), ..Ledger::default() };
        let view = View { run: run.clone(), steps, ledger, ..View::default() };
        Picture { view: Arc::new(view), run, extent: Extent { grows: true, ..Extent::default() }, ..Picture::default() }
    }

    fn at(app: &mut App, millis: u64, picture: Picture) -> u64 {
        app.update(Message::Clock(Duration::from_millis(millis)));
        app.update(Message::Picture(Arc::new(picture)));
        app.stage().shown.ledger.live.0
    }

    fn typed(app: &mut App, keys: &str) {
        for symbol in keys.chars() {
            app.update(Message::Key(KeyEvent::new(KeyCode::Char(symbol), KeyModifiers::NONE)));
        }
    }

    #[test]
    fn while_steps_are_fast_the_fullest_moment_of_each_interval_is_shown() {
        let mut app = app();
        let fast = |allocated| picture(RunState::Running, 20, allocated);
        assert_eq!(at(&mut app, 100, fast(500)), 500, "the first picture is shown at once");
        assert!(app.holds_fullest());
        assert_eq!(at(&mut app, 300, fast(900)), 500, "the interval is not over");
        assert_eq!(at(&mut app, 700, fast(400)), 500);
        assert_eq!(at(&mut app, 1099, fast(600)), 500);
        assert_eq!(at(&mut app, 1100, fast(300)), 900, "the fullest picture of the interval");
        assert_eq!(app.latest().view.ledger.live, Bytes(300), "what else is shown is of now");
        assert_eq!(at(&mut app, 2200, fast(200)), 200, "and of the next one, the next");
        assert_eq!(at(&mut app, 2250, picture(RunState::Paused, 20, 100)), 100, "a paused lab is shown as it is");
        assert!(!app.holds_fullest());
    }

    #[test]
    fn a_cursor_that_looks_back_is_shown_as_it_stands() {
        let mut app = app();
        let fast = |allocated| picture(RunState::Running, 20, allocated);
        at(&mut app, 100, fast(500));
        let back = |position, allocated| Picture { cursor: Cursor::At(position), ..fast(allocated) };
        assert_eq!(at(&mut app, 150, back(7, 30)), 30);
        assert!(!app.holds_fullest());
        assert_eq!(at(&mut app, 180, back(8, 20)), 20, "each move at once, also to less");
        assert_eq!(at(&mut app, 200, fast(450)), 450, "and so is the way back to now");
    }

    #[test]
    fn slow_steps_are_shown_as_they_go() {
        let mut app = app();
        let slow = |allocated| picture(RunState::Running, 3000, allocated);
        assert_eq!(at(&mut app, 1000, slow(5)), 5);
        assert_eq!(at(&mut app, 1100, slow(4)), 5, "no more often than can be read");
        assert_eq!(at(&mut app, 1260, slow(3)), 3);
    }

    #[test]
    fn the_history_zooms_in_and_out_to_the_whole_run_and_stays_where_it_was_put() {
        let mut app = app();
        let mut whole = picture(RunState::Running, 20, 1);
        let mut lab = crate::model::Lab::new();
        for event in crate::model::synthetic::training_run() {
            lab.apply(&event);
        }
        whole.history = Arc::clone(&lab.view().history);
        app.update(Message::Picture(Arc::new(whole.clone())));
        // 31 steps in 5 columns: 8 steps to each.
        app.update(Message::Drawn(Layout { history_columns: 5, ..Layout::default() }));
        assert_eq!(app.stage().zoom, None, "all that there are");
        typed(&mut app, "]");
        assert_eq!(app.stage().zoom, Some(2));
        typed(&mut app, "++++");
        assert_eq!(app.stage().zoom, Some(0), "no closer than a step");
        typed(&mut app, "[");
        app.update(Message::Picture(Arc::new(whole)));
        assert_eq!(app.stage().zoom, Some(1), "news does not change it");
        typed(&mut app, "--");
        assert_eq!(app.stage().zoom, None, "and out to the whole run again");
        typed(&mut app, "--");
        assert_eq!(app.stage().zoom, None);
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
            app.update(Message::Key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE)));
        }
        assert_eq!(app.stage().scroll, 42, "the last page is a whole one");
        app.update(Message::Key(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT)));
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
        assert!(matches!(app.layers(), [Layer::Help(1)]));
        typed(&mut app, &"j".repeat(90));
        assert!(matches!(app.layers(), [Layer::Help(20)]));
        assert_eq!(app.stage().scroll, 0);
        typed(&mut app, "?");
        assert!(app.layers().is_empty());
    }

    #[test]
    fn a_refusal_is_told_once() {
        let mut app = app();
        let told = |text: &str, micros| {
            let mut picture = picture(RunState::Running, 20, 1);
            let line = LogLine { time: Micros(micros), step: 1, level: Level::Warning, text: text.into() };
            Arc::make_mut(&mut picture.view).log.push(line);
            picture
        };
        at(&mut app, 10, told("refused: no", 5));
        assert_eq!(app.notice(), Some("refused: no"));
        at(&mut app, 10 + 5000, told("refused: no", 5));
        assert_eq!(app.notice(), None, "it stood there long enough");
        at(&mut app, 5100, told("refused: again", 6));
        assert_eq!(app.notice(), Some("refused: again"));
    }
}
