//! The tutor: what of a lesson is shown, what keys do to it, and what it asks of the lab.

use std::sync::Arc;
use std::time::Duration;

use super::{KeepCourse, Lecture};
use crate::figures::FigureInputs;
use crate::lesson::{Answer, Course, CourseRequest, CourseStage, Lesson, LessonRuns, Look};
use crate::model::{LessonNote, RunState};
use crate::session::{Command, LabSpec, NewRun, StepSize, Switch};
use crate::source::{Move, Picture, Request};
use crate::tui::action::Action;
use crate::tui::hold::Hold;

/// How often a recording notes that the learner is still there.
const BEAT: Duration = Duration::from_secs(10);
/// A course that asks for more at once never ends.
const MOST_ORDERS: usize = 64;

/// Leads a learner through a lesson.
#[derive(Clone, Debug)]
pub(crate) struct Tutor {
    pub(super) course: Course,
    runs: LessonRuns,
    learner: Arc<str>,
    keep: KeepCourse,
    /// The lessons after this one, in order.
    following: Vec<(Arc<Lesson>, LessonRuns)>,
    /// The current run.
    spec: Arc<LabSpec>,
    /// The number of events before the current run, when it was last seen.
    begun: u64,
    /// True if another run was requested and has not begun.
    awaited: bool,
    /// True if the learner let the lab run on, and it was asked to pause after its step.
    settling: bool,
    /// The index of the selected choice; none at first, so that scrolling does not answer.
    pub chosen: Option<usize>,
    /// The number that is being written.
    pub written: String,
    /// The error in it.
    pub wrong: Option<String>,
    /// The first visible line of the text.
    pub first: usize,
    /// True if the pane is small.
    pub folded: bool,
    /// True if the hint was requested.
    pub hinted: bool,
    /// True if the learner has the lab until the lesson goes on.
    pub taken: bool,
    /// The earlier step that is viewed again.
    pub back: Option<usize>,
    /// The clock when it was last seen, when the step began, and when the next beat is due.
    now: Duration,
    since: Duration,
    beat: Duration,
    told: Option<LessonNote>,
    shown: (CourseStage, usize),
}

/// The result of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TutorResponse {
    /// The key is for the lab.
    Passed,
    /// The pane has changed.
    Taken,
    /// The course advanced, and sends requests.
    WentOn(Vec<Request>),
}

impl Tutor {
    /// A tutor before the first step of a lesson.
    pub fn new(lecture: &Lecture) -> Self {
        let Lecture { lesson, runs, learner, keep, resumes: (steps, earlier), following } = lecture.clone();
        let course = Course::on(&lesson, runs.first());
        Self {
            course: course.resuming(steps, earlier),
            following,
            spec: Arc::new(runs.first().clone()),
            runs,
            learner,
            keep,
            begun: 0,
            awaited: true,
            settling: false,
            chosen: None,
            written: String::new(),
            wrong: None,
            first: 0,
            folded: false,
            hinted: false,
            taken: false,
            back: None,
            now: Duration::ZERO,
            since: Duration::ZERO,
            beat: BEAT,
            told: None,
            shown: (CourseStage::Introduction, 0),
        }
    }

    /// The course.
    pub const fn course(&self) -> &Course {
        &self.course
    }

    /// What the lesson holds back now.
    pub fn hold(&self) -> Hold {
        if self.has_lab() { Hold::Nothing } else { Hold::of(&self.course) }
    }

    fn has_lab(&self) -> bool {
        self.taken && self.course.stage() == CourseStage::Explained
    }

    /// True if the lesson waits for something that it asked of the lab, and must see what happens now.
    pub fn is_busy(&self) -> bool {
        matches!(self.course.stage(), CourseStage::Preparing | CourseStage::Trying)
    }

    /// True if `action` would change something that the current goal fixes.
    pub fn keeps(&self, action: Action) -> bool {
        match action {
            Action::Flip(switch, _) | Action::Edit(switch) => {
                self.allowed().is_some_and(|allowed| !allowed.contains(&switch))
            }
            _ => false,
        }
    }

    /// The switches that the current goal leaves to the learner.
    pub fn allowed(&self) -> Option<&[Switch]> {
        let goal = self.course.goal().filter(|_| self.course.stage() == CourseStage::Acting)?;
        Some(&goal.allow)
    }

    /// Hands the lab to the learner until the lesson goes on. Returns false if that is not possible.
    pub fn take_lab(&mut self) -> bool {
        self.taken = self.course.stage() == CourseStage::Explained;
        self.taken
    }

    /// Notes that the learner changed something in the lab. If a goal asks for that, nothing is spoilt.
    pub fn meddle(&mut self) {
        self.make_way();
        if self.course.stage() != CourseStage::Acting {
            self.course.spoil();
        }
    }

    /// Shows the hint of the open question. Returns false if there is none, or it is already shown.
    pub fn show_hint(&mut self) -> bool {
        let is_open = matches!(self.course.stage(), CourseStage::Asking | CourseStage::Acting);
        let has_hint = self.course.told().question.as_ref().is_some_and(|asked| asked.hint.is_some());
        let shows = is_open && has_hint && !self.hinted;
        self.hinted |= shows;
        shows
    }

    /// True while the last page has the screen, until somebody looks at the lab.
    pub fn is_at_end(&self) -> bool {
        self.course.stage() == CourseStage::Over && self.back.is_none() && !self.folded
    }

    /// Shrinks the last page, because somebody looks at the lab.
    pub fn make_way(&mut self) {
        self.folded |= self.is_at_end();
    }

    /// Goes back to the step before the one shown. Returns false if there is none.
    pub fn look_back(&mut self) -> bool {
        let shown = self.back.unwrap_or(match self.course.stage() {
            CourseStage::Introduction => 0,
            CourseStage::Over => self.course.place() + 1,
            _ => self.course.place(),
        });
        let before = shown.checked_sub(1);
        (self.back, self.first) = (before.or(self.back), 0);
        before.is_some()
    }

    /// The number and title of the next lesson, once this one is over.
    pub fn next_title(&self) -> Option<String> {
        let (lesson, _) = self.following.first().filter(|_| self.course.stage() == CourseStage::Over)?;
        Some(format!("{} {}", lesson.front.order, lesson.front.title))
    }

    /// Begins the next lesson.
    pub(super) fn begin_next(&mut self) -> Vec<Request> {
        if self.following.is_empty() {
            return Vec::new();
        }
        let (lesson, runs) = self.following.remove(0);
        self.course = Course::on(&lesson, runs.first());
        (self.spec, self.runs) = (Arc::new(runs.first().clone()), runs);
        // A learner who looked at the lab behind the last page must see the next lesson's first page.
        self.folded = false;
        self.begin_course()
    }

    /// Takes in the clock. From time to time tells a recording that the learner is still there.
    pub fn advance(&mut self, now: Duration, is_recorded: bool) -> Option<Request> {
        self.now = now;
        if now < self.beat {
            return None;
        }
        self.beat = now + BEAT;
        is_recorded.then(|| Request::Lab(Command::Lesson(Arc::new(self.noted()))))
    }

    /// When the next beat is due, if `is_recorded`.
    pub fn next_change(&self, is_recorded: bool) -> Option<Duration> {
        is_recorded.then_some(self.beat)
    }

    fn noted(&self) -> LessonNote {
        let seconds = u32::try_from(self.now.saturating_sub(self.since).as_secs()).unwrap_or(u32::MAX);
        LessonNote { seconds, ..self.course.note(&self.learner) }
    }

    /// The screen that shows the step best.
    pub fn look(&self) -> Option<Look> {
        match self.course.stage() {
            CourseStage::Trying | CourseStage::Explained => self.course.step().look,
            _ => None,
        }
    }

    /// Shows the course the run. Returns the requests to the lab. Events before the cursor are not new.
    pub fn see(&mut self, picture: &Picture) -> Vec<Request> {
        self.settling &= picture.run == RunState::Running;
        if !picture.is_now() || self.settling || !self.is_begun(picture) {
            return Vec::new();
        }
        let mut requests = Vec::new();
        let device_memory = self.spec.memory().or(picture.memory).map(|memory| memory.total);
        for _ in 0..MOST_ORDERS {
            let known = FigureInputs { view: &picture.view, statistics: None, device_memory };
            let Some(order) = self.course.observe(&known) else { break };
            requests.extend(self.obey(order));
            if self.awaited {
                break;
            }
        }
        requests.extend(self.note());
        requests
    }

    /// True if the requested run exists, and pauses before its first step or can't be built.
    fn is_begun(&mut self, picture: &Picture) -> bool {
        let view = &picture.view;
        let rests = !matches!(view.run, RunState::Starting | RunState::Running);
        if self.awaited && view.begun != self.begun && rests {
            (self.awaited, self.begun) = (false, view.begun);
        }
        !self.awaited
    }

    fn obey(&mut self, order: CourseRequest) -> Vec<Request> {
        let lab = |command| vec![Request::Lab(command)];
        match order {
            CourseRequest::Steps(steps) => lab(Command::Train(steps)),
            CourseRequest::Restart => self.begin(),
            CourseRequest::Run(name) => match self.runs.named(&name) {
                Some(spec) => {
                    self.spec = Arc::new(spec.clone());
                    self.begin()
                }
                None => {
                    self.course.refused("the lesson has no such run");
                    Vec::new()
                }
            },
            order => order.command().map_or_else(Vec::new, lab),
        }
    }

    /// Begins the run again. It pauses before its first step.
    fn begin(&mut self) -> Vec<Request> {
        self.awaited = true;
        self.settling = false;
        vec![Request::Lab(Command::Begin(NewRun(Arc::clone(&self.spec))))]
    }

    /// Begins the lesson again, with a run as at its start.
    pub fn begin_anew(&mut self) -> Vec<Request> {
        let lesson = Arc::clone(self.course.lesson());
        self.spec = Arc::new(self.runs.first().clone());
        self.course = Course::on(&lesson, &self.spec);
        self.begin_course()
    }

    fn begin_course(&mut self) -> Vec<Request> {
        let mut requests = vec![Request::Move(Move::Now)];
        requests.extend(self.begin());
        requests.extend(self.note());
        requests
    }

    /// Reports the course's position to the stream if it is new, and stores it.
    fn note(&mut self) -> Option<Request> {
        let shown = (self.course.stage(), self.course.place());
        if self.shown != shown {
            self.shown = shown;
            (self.chosen, self.first, self.back) = (None, 0, None);
            (self.written, self.wrong) = (String::new(), None);
            (self.hinted, self.taken, self.since) = (false, false, self.now);
            // The result of the lesson is shown, however small the pane was.
            self.folded &= self.course.stage() != CourseStage::Over;
        }
        let note = self.course.note(&self.learner);
        if self.told.as_ref() == Some(&note) {
            return None;
        }
        self.told = Some(note.clone());
        let note = self.noted();
        Some(Request::Lab(Command::Lesson(Arc::new(note))))
    }

    /// Stores the learner's progress. Returns a sentence if that fails.
    pub fn keep(&self) -> Option<String> {
        match self.course.stage() {
            CourseStage::Explained | CourseStage::Over => (self.keep)(&self.course),
            _ => None,
        }
    }

    /// Makes the lab pause between two steps, because the next request needs that.
    pub(super) fn settle(&mut self, picture: &Picture) -> Vec<Request> {
        self.settling = picture.run == RunState::Running;
        let stop = self.settling.then_some(Request::Lab(Command::Advance(StepSize::Step)));
        stop.into_iter().collect()
    }

    /// Measures the open question without an answer.
    pub fn pass(&mut self, picture: &Picture) -> Vec<Request> {
        self.course.answer(Answer::Passed);
        self.go_on(picture)
    }

    /// Goes on now, wherever the cursor was.
    pub(super) fn go_on(&mut self, picture: &Picture) -> Vec<Request> {
        // Even if the picture shows now, the cursor may be on its way to a failed request.
        let mut requests = vec![Request::Move(Move::Now)];
        requests.extend(self.see(picture));
        requests.extend(self.note());
        requests
    }
}
