//! A learner who takes a lesson on the screen: the app, and a lab on a thread of its own.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use vramlab::device::sim::CardCatalog;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::lesson::{Lesson, LessonRuns, Score};
use vramlab::source::{self, Request, Source};
use vramlab::tui::{self, App, Effect, GlyphTier, Lecture, Message};
use vramlab::workload;

use crate::patience;

/// The runs of a lesson, as fast as this machine can.
pub fn runs(lesson: &Lesson) -> LessonRuns {
    let (catalog, cards) = (workload::Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    lesson.runs(&catalog, &cards, None).unwrap_or_else(|error| panic!("{}: {error}", lesson.name))
}

fn text(buf: &Buffer, row: Rect) -> String {
    row.columns().map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect()
}

/// A learner who takes the lesson.
pub struct Taken {
    source: Source,
    pub app: App,
    now: Duration,
    size: (u16, u16),
    pub sent: Vec<Request>,
}

impl Taken {
    pub fn begin(lesson: &str, size: (u16, u16)) -> Self {
        Self::take(Lesson::parse("two", lesson).unwrap_or_else(|error| panic!("{error}")), size)
    }

    pub fn take(lesson: Lesson, size: (u16, u16)) -> Self {
        let runs = runs(&lesson);
        let mut taken = Self::of(Arc::new(lesson), runs, size);
        taken.wait_for("Enter begins");
        taken
    }

    /// The same at the pace of `runs`, before its model is made.
    pub fn of(lesson: Arc<Lesson>, runs: LessonRuns, size: (u16, u16)) -> Self {
        Self::resuming(lesson, runs, size, Default::default(), Vec::new())
    }

    /// The same for a learner who was here before.
    pub fn resuming(
        lesson: Arc<Lesson>,
        runs: LessonRuns,
        size: (u16, u16),
        resumes: (usize, Score),
        following: Vec<(Arc<Lesson>, LessonRuns)>,
    ) -> Self {
        let source = source::live(runs.first().clone()).unwrap();
        let catalog = ThemeCatalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        let lecture = Lecture { lesson, runs, learner: "Ada".into(), keep: |_| None, resumes, following };
        let app = App::new(catalog, theme, GlyphTier::Unicode).with_lesson(&lecture);
        Self { source, app, now: Duration::ZERO, size, sent: Vec::new() }
    }

    pub fn tell(&mut self, message: Message) {
        for effect in self.app.update(message) {
            if let Effect::Send(request) = effect {
                self.source.request(request.clone());
                self.sent.push(request);
            }
        }
    }

    /// Shows the lab's current state to the app.
    pub fn look(&mut self) {
        self.now += Duration::from_millis(10);
        self.tell(Message::Clock(self.now));
        let picture = self.source.pictures.borrow_and_update().clone();
        self.tell(Message::Picture(picture));
    }

    /// The screen's text a moment later.
    pub fn screen(&mut self) -> String {
        let buf = self.drawn();
        buf.area.rows().map(|row| text(&buf, row)).collect::<Vec<_>>().join("\n")
    }

    /// The style of the last letter of `wanted`, if it is on the screen.
    pub fn style_of(&mut self, wanted: &str) -> Option<Style> {
        let buf = self.drawn();
        let at = |row: Rect| {
            let line = text(&buf, row);
            let before = line.get(..line.find(wanted)? + wanted.len())?.chars().count();
            Some(buf[(u16::try_from(before).ok()? - 1, row.y)].style())
        };
        buf.area.rows().find_map(at)
    }

    fn drawn(&mut self) -> Buffer {
        self.look();
        let mut buf = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        let layout = tui::draw(&self.app, buf.area, &mut buf);
        self.tell(Message::Drawn(layout));
        buf
    }

    pub fn wait_for(&mut self, text: &str) -> String {
        self.wait(text, |_, screen| screen.contains(text))
    }

    /// Looks until a condition on the app and its screen is true.
    pub fn wait(&mut self, what: &str, holds: impl Fn(&App, &str) -> bool) -> String {
        let last = Cell::default();
        let found = || {
            let screen = self.screen();
            if holds(&self.app, &screen) {
                return Some(screen);
            }
            last.set(screen);
            None
        };
        patience::find(found, || format!("{what}:\n{}", last.take()))
    }

    pub fn press(&mut self, code: KeyCode) -> String {
        self.tell(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        self.screen()
    }

    pub fn pass(&mut self) {
        self.tell(Message::Key(KeyEvent::new(KeyCode::Char('n'), KeyModifiers::CONTROL)));
    }

    pub fn switches(&self) -> String {
        format!("{:?}", self.app.latest().view.settings)
    }
}
