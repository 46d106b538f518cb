//! What the screen shows beyond the lab itself, and how keys and news change it: a pure function of messages.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::editor::{Editor, Outcome};
use super::keymap::{self, Action};
use super::theme::{Catalog, Theme};
use super::{GlyphTier, zoom};
use crate::model::{Level, LogLine, Micros, View};
use crate::session::{Command, LabState, RunState, Switch};

/// While steps are shorter than this, the figures and the block map show the fullest moment of each such interval:
/// what changes faster can't be read, and costs bytes.
const HOLD: Duration = Duration::from_millis(400);
/// A running lab's figures are renewed at most this often.
const REFRESH: Duration = Duration::from_millis(150);
/// How long a measured effect is loud.
const LOUD: Duration = Duration::from_secs(5);
/// How long a notice stands in the footer.
const NOTICE: Duration = Duration::from_secs(5);

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
    /// The lab published a picture.
    Lab(Arc<LabState>),
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
    /// Send a command to the lab.
    Send(Command),
    /// Paint every cell with the next frame.
    Repaint,
    /// Stop the process until the shell brings it back.
    Suspend,
    /// Leave.
    Quit,
}

/// What drawing a frame found out, for keys and clicks that refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where a click does what.
    pub targets: Vec<(Rect, Action)>,
    /// Rows of the block map in all, and how many are seen.
    pub block_rows: (usize, usize),
    /// Lines of the help in all, and how many are seen.
    pub help_rows: (usize, usize),
    /// Columns of the memory chart.
    pub chart_columns: usize,
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
    latest: Arc<LabState>,
    shown: Arc<LabState>,
    /// The fullest picture of the interval under way, and when the interval began.
    fullest: Option<Arc<LabState>>,
    interval: Duration,
    /// What of `latest` the screen drew: a picture that equals it needs no frame.
    zoom: zoom::Zoom,
    help: Option<usize>,
    editor: Option<Editor>,
    blocks_scroll: usize,
    notice: Option<Timed>,
    /// When the last refusal was logged that the footer has told.
    refusal: Option<Micros>,
    /// The effect being shown: its position in the event stream, whether it was complete, loud until when.
    effect: Option<(u64, bool, Duration)>,
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
            zoom: zoom::Zoom::default(),
            help: None,
            editor: None,
            blocks_scroll: 0,
            notice: None,
            refusal: None,
            effect: None,
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

    /// The last picture: for the chart, the switches, the log.
    #[must_use]
    pub fn latest(&self) -> &LabState {
        &self.latest
    }

    /// The picture whose figures and blocks are shown. While a lab runs fast it is the fullest moment of the last
    /// interval, otherwise the last picture.
    #[must_use]
    pub fn shown(&self) -> &LabState {
        &self.shown
    }

    /// Whether [`App::shown`] is the fullest moment of an interval.
    #[must_use]
    pub fn holds_fullest(&self) -> bool {
        self.latest.run == RunState::Running && is_fast(&self.latest.view)
    }

    /// The level of the memory chart: 2^level events per column.
    #[must_use]
    pub fn chart_level(&self) -> usize {
        self.zoom.level()
    }

    /// The line that is being written, if one is.
    #[must_use]
    pub(crate) const fn editor(&self) -> Option<&Editor> {
        self.editor.as_ref()
    }

    /// The first row of the block map.
    #[must_use]
    pub fn blocks_scroll(&self) -> usize {
        self.blocks_scroll
    }

    /// The first line of the help, while it is open.
    #[must_use]
    pub fn help(&self) -> Option<usize> {
        self.help
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
            Message::Lab(state) => self.take_picture(state),
            Message::Drawn(layout) => {
                self.dirty = false;
                self.blocks_scroll = self.blocks_scroll.min(last_page(layout.block_rows));
                self.help = self.help.map(|line| line.min(last_page(layout.help_rows)));
                self.layout = layout;
                self.dirty |= self.choose_zoom();
            }
            Message::Key(key) if self.editor.is_some() => return self.edit(key),
            Message::Key(key) => {
                if let Some(binding) = keymap::binding_for(key).filter(|binding| binding.is_enabled(&self.latest.run)) {
                    return self.act(binding.action);
                }
            }
            Message::Paste(text) => {
                // Outside of a line that is being written a paste is no series of commands.
                if let Some(editor) = &mut self.editor {
                    editor.insert(&text);
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

    fn take_picture(&mut self, state: Arc<LabState>) {
        let effect = state.view.effects.last().map(|effect| (effect.position, effect.measured.0 >= effect.measured.1));
        match (effect, self.effect) {
            (None, _) => self.effect = None,
            (Some((position, complete)), Some((seen, was_complete, _)))
                if (position, complete) == (seen, was_complete) => {}
            (Some((position, complete)), _) => self.effect = Some((position, complete, self.now + LOUD)),
        }
        let refusal = state.view.log.iter().rev().find(|line| line.level == Level::Warning);
        if let Some(LogLine { time, text, .. }) = refusal.filter(|line| self.refusal != Some(line.time)) {
            self.refusal = Some(*time);
            self.notify(text.to_string());
        }
        let run_changed = state.run != self.latest.run;
        self.latest = state;
        if run_changed || !self.holds_fullest() {
            if run_changed || self.latest.run != RunState::Running || self.now >= self.interval + REFRESH {
                self.show(self.latest.clone());
            }
        } else {
            let allocated = |state: &LabState| state.view.ledger.allocated();
            if self.fullest.as_ref().is_none_or(|fullest| allocated(&self.latest) >= allocated(fullest)) {
                self.fullest = Some(self.latest.clone());
            }
            if self.now >= self.interval + HOLD
                && let Some(fullest) = self.fullest.take()
            {
                self.show(fullest);
            }
        }
        self.choose_zoom();
        self.dirty = true;
    }

    fn show(&mut self, state: Arc<LabState>) {
        self.shown = state;
        self.fullest = None;
        self.interval = self.now;
    }

    fn choose_zoom(&mut self) -> bool {
        self.zoom.follow(&self.latest.view, self.layout.chart_columns)
    }

    fn act(&mut self, action: Action) -> Vec<Effect> {
        self.dirty = true;
        match action {
            Action::Flip(switch) => return self.flip(switch, Command::Next(switch)),
            Action::FlipBack(switch) => return self.flip(switch, Command::Previous(switch)),
            Action::Edit(purpose) => {
                self.editor = Some(Editor::new(purpose, &self.latest));
                self.help = None;
            }
            Action::EmptyCache => return vec![Effect::Send(Command::EmptyCache)],
            Action::TogglePause => {
                let running = self.latest.run == RunState::Running;
                return vec![Effect::Send(if running { Command::Pause } else { Command::Resume })];
            }
            Action::Advance(size) => return vec![Effect::Send(Command::Advance(size))],
            Action::UseProcessor => return vec![Effect::Send(Command::UseProcessor)],
            Action::ZoomIn => self.zoom.closer(),
            Action::ZoomOut => self.zoom.further(),
            Action::Scroll(rows) => self.scroll(rows, 1),
            Action::ScrollPage(pages) => {
                let seen = if self.help.is_some() { self.layout.help_rows.1 } else { self.layout.block_rows.1 };
                self.scroll(pages, seen.max(1));
            }
            Action::NextTheme => self.next_theme(),
            Action::ToggleHelp => self.help = if self.help.is_some() { None } else { Some(0) },
            Action::Close => self.help = None,
            Action::Repaint => return vec![Effect::Repaint],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Quit => return vec![Effect::Quit],
        }
        Vec::new()
    }

    fn flip(&mut self, switch: Switch, command: Command) -> Vec<Effect> {
        if self.latest.switches.iter().any(|state| state.switch == switch) {
            vec![Effect::Send(command)]
        } else {
            self.notify("this lab has no such switch".to_owned());
            Vec::new()
        }
    }

    /// A key goes to the line being written.
    fn edit(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.dirty = true;
        match self.editor.as_mut().map(|editor| editor.press(key)) {
            Some(Outcome::Done(command)) => {
                self.editor = None;
                return vec![Effect::Send(command)];
            }
            Some(Outcome::Closed) => self.editor = None,
            Some(Outcome::Leave) => return vec![Effect::Quit],
            Some(Outcome::Open) | None => {}
        }
        Vec::new()
    }

    fn scroll(&mut self, steps: i32, rows: usize) {
        let move_by = |line: usize, last: usize| {
            let distance = (steps.unsigned_abs() as usize).saturating_mul(rows);
            if steps < 0 { line.saturating_sub(distance) } else { line.saturating_add(distance).min(last) }
        };
        match self.help {
            Some(line) => self.help = Some(move_by(line, last_page(self.layout.help_rows))),
            None => self.blocks_scroll = move_by(self.blocks_scroll, last_page(self.layout.block_rows)),
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
            MouseEventKind::Down(MouseButton::Left) => {
                let position = Position::new(mouse.column, mouse.row);
                let target = self.layout.targets.iter().rev().find(|(area, _)| area.contains(position));
                let Some(&(_, action)) = target else { return Vec::new() };
                let enabled = keymap::BINDINGS.iter().any(|b| b.action == action && b.is_enabled(&self.latest.run));
                if enabled { self.act(action) } else { Vec::new() }
            }
            _ => Vec::new(),
        }
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
