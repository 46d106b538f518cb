//! Drives a course without a screen: line by line, or for tests that answer every question.

use std::sync::Arc;

use super::answer::Answer;
use super::course::{Course, CourseStage};
use super::order::CourseRequest;
use super::question::Form;
use super::run::LessonRuns;
use super::score::Score;
use super::script::Lesson;
use crate::figures::{FigureInputs, Figures};
use crate::model::{EventKind, RunState, View};
use crate::session::{BuildError, Headless, LabSpec, Listener, Switch};

/// A course, and its run.
pub struct LessonPlayer {
    course: Course,
    run: Headless,
    runs: LessonRuns,
    /// The specification of the current run.
    spec: LabSpec,
    learner: Arc<str>,
}

impl LessonPlayer {
    /// Begins a lesson on the first of its runs. A listener is told everything that happens, and where `learner` is in
    /// the lesson.
    ///
    /// # Errors
    /// If the run can't begin.
    pub fn begin(
        lesson: Arc<Lesson>,
        runs: LessonRuns,
        learner: &str,
        listener: Option<Listener>,
    ) -> Result<Self, BuildError> {
        Self::resume(lesson, runs, learner, listener, (0, Score::default()))
    }

    /// The same for a learner who has finished this many steps before, with this score.
    ///
    /// # Errors
    /// If the run can't begin.
    pub fn resume(
        lesson: Arc<Lesson>,
        runs: LessonRuns,
        learner: &str,
        listener: Option<Listener>,
        (steps, earlier): (usize, Score),
    ) -> Result<Self, BuildError> {
        let spec = runs.first().clone();
        let course = Course::on(&lesson, &spec).resuming(steps, earlier);
        let run = Headless::start_before(spec.clone(), listener)?;
        let mut player = Self { course, run, runs, spec, learner: learner.into() };
        player.observe();
        player.note();
        Ok(player)
    }

    /// The course.
    #[must_use]
    pub const fn course(&self) -> &Course {
        &self.course
    }

    /// The run.
    pub const fn run_mut(&mut self) -> &mut Headless {
        &mut self.run
    }

    /// Whether the figures come from a simulation.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.run.is_simulated()
    }

    /// The run's current state.
    pub fn view(&mut self) -> View {
        self.run.view()
    }

    /// All current figures.
    pub fn figures(&mut self) -> Figures {
        let (view, statistics) = (self.run.view(), self.run.statistics());
        Figures::of(&known(&view, &statistics, &self.run))
    }

    /// Goes on from the text that was shown, up to the next text or question.
    ///
    /// # Errors
    /// If a run can't begin again.
    pub fn proceed(&mut self) -> Result<(), BuildError> {
        self.course.proceed();
        self.go_on()
    }

    /// Answers the question, and goes on up to the explanation.
    ///
    /// # Errors
    /// If a run can't begin again.
    pub fn answer(&mut self, answer: Answer) -> Result<(), BuildError> {
        self.course.answer(answer);
        self.go_on()
    }

    /// Sets a switch for a try, if the goal allows it.
    ///
    /// # Errors
    /// A sentence that says which switches can be set here, or why the value is impossible.
    pub fn set(&mut self, switch: Switch, value: &str) -> Result<(), String> {
        let allowed = self.course.goal().filter(|_| self.course.stage() == CourseStage::Acting).map(|goal| &goal.allow);
        match allowed {
            Some(allowed) if allowed.contains(&switch) => self.run.set(switch, value),
            Some(allowed) => {
                let words: Vec<&str> = allowed.iter().map(|switch| switch.word()).collect();
                Err(format!("{} stays as it is here; you may set {}", switch.word(), words.join(", ")))
            }
            None => Err("there is no goal to reach now".to_owned()),
        }
    }

    fn go_on(&mut self) -> Result<(), BuildError> {
        while let Some(order) = self.observe() {
            self.obey(&order)?;
        }
        self.note();
        Ok(())
    }

    /// Tells the listener where in the lesson the run is.
    fn note(&mut self) {
        let note = self.course.note(&self.learner);
        self.run.announce(EventKind::Lesson(Arc::new(note)));
    }

    fn observe(&mut self) -> Option<CourseRequest> {
        let (view, statistics) = (self.run.view(), self.run.statistics());
        self.course.observe(&known(&view, &statistics, &self.run))
    }

    fn obey(&mut self, order: &CourseRequest) -> Result<(), BuildError> {
        match order {
            CourseRequest::Steps(steps) => {
                for _ in 0..*steps {
                    // The view shows how a step ended.
                    if self.run.step().is_err() {
                        break;
                    }
                }
            }
            CourseRequest::Set(switch, value) => {
                if let Err(why) = self.run.set(*switch, value) {
                    self.course.refused(&why);
                }
            }
            CourseRequest::EmptyCache => self.run.empty_cache(),
            CourseRequest::ResetPeaks => self.run.reset_peaks(),
            // A headless run does nothing between requests.
            CourseRequest::Pause => self.run.announce(EventKind::Run(RunState::Paused)),
            CourseRequest::Resume => self.run.announce(EventKind::Run(RunState::Running)),
            CourseRequest::Restart => self.run = self.run.begin_anew(self.spec.clone())?,
            CourseRequest::Run(name) => match self.runs.named(name) {
                Some(spec) => {
                    self.spec = spec.clone();
                    self.run = self.run.begin_anew(self.spec.clone())?;
                }
                None => self.course.refused("the lesson has no such run"),
            },
        }
        Ok(())
    }
}

fn known<'a>(view: &'a View, statistics: &'a crate::allocator::Statistics, run: &Headless) -> FigureInputs<'a> {
    FigureInputs { view, statistics: Some(statistics), device_memory: Some(run.trainer().device_info().memory) }
}

/// Plays a lesson to its end; `answer` answers every question.
///
/// # Errors
/// If a run can't begin.
pub fn play(
    lesson: Arc<Lesson>,
    runs: LessonRuns,
    mut answer: impl FnMut(&Form) -> Answer,
) -> Result<Course, BuildError> {
    let mut player = LessonPlayer::begin(lesson, runs, "", None)?;
    loop {
        match player.course.stage() {
            CourseStage::Over => return Ok(player.course),
            CourseStage::Asking | CourseStage::Acting => {
                let form = player.course.step().question.as_ref().map(|question| &question.form);
                let answer = form.map_or(Answer::Passed, &mut answer);
                player.answer(answer)?;
            }
            CourseStage::Introduction | CourseStage::Explained => player.proceed()?,
            CourseStage::Preparing | CourseStage::Trying => {
                // A headless run carries out every request at once: a request that is still open here would stay open
                // for ever.
                player.course.refused("the run does not get there");
                player.go_on()?;
            }
        }
    }
}
