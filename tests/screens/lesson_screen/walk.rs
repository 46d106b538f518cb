//! Takes every lesson on the screen, with labs and screens of several speeds: the result is the same as without a
//! screen. If only a part of all cases runs ([`Thoroughness`]), a lesson has one of the speeds, and the next lesson
//! another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use vramlab::lesson::{
    Answer, Course, CourseStage, Form, Lesson, LessonStep, Library, MeasuredAnswer, StepText, letter, play,
};
use vramlab::session::Speed;

use super::taken::{Taken, runs};
use crate::thoroughness::Thoroughness;

/// The speed of the lab, and how long the screen takes for each picture.
#[derive(Clone, Copy, Debug)]
struct Pace {
    lab: Speed,
    screen: Duration,
}

const PACES: [Pace; 3] = [
    Pace { lab: Speed::Max, screen: Duration::from_millis(2) },
    Pace { lab: Speed::Max, screen: Duration::from_millis(120) },
    // As on the screen: no step of a simulated card is faster than it would be, up to 0.3 s.
    Pace { lab: Speed::Watchable, screen: Duration::from_millis(60) },
];

/// The number of lessons that are taken at the same time.
const AT_ONCE: usize = 10;

/// A lesson that takes this long hangs.
const LONGEST: Duration = Duration::from_secs(600);

/// Takes a lesson to its end on the screen; `right` has the answers, which are given by their keys.
fn take(lesson: &Arc<Lesson>, pace: Pace, right: &[Option<Answer>]) -> Result<Course, String> {
    let mut taken = Taken::of(Arc::clone(lesson), runs(lesson).paced(pace.lab), (120, 40));
    let begun = Instant::now();
    loop {
        taken.look();
        let course = taken.app.course().unwrap();
        let place = course.place();
        match course.stage() {
            CourseStage::Over => return Ok(course.clone()),
            CourseStage::Asking => answer(&mut taken, right[place]),
            // The lesson's own solution.
            CourseStage::Acting => taken.pass(),
            CourseStage::Introduction | CourseStage::Explained => {
                taken.press(KeyCode::Enter);
            }
            CourseStage::Preparing | CourseStage::Trying => thread::sleep(pace.screen),
        }
        if begun.elapsed() > LONGEST {
            let course = taken.app.course().unwrap();
            let under_way = course.under_way().next().map(ToString::to_string);
            return Err(format!("{}: hangs at step {} ({under_way:?})", lesson.name, course.place() + 1));
        }
    }
}

fn answer(taken: &mut Taken, right: Option<Answer>) {
    match right {
        Some(Answer::Choice(place)) => {
            taken.press(KeyCode::Char(letter(place).to_ascii_lowercase()));
        }
        Some(Answer::Amount(amount)) => {
            let asked = taken.app.course().unwrap().step().question.as_ref().unwrap().form.clone();
            let Form::Number { unit, .. } = asked else { panic!("a number was measured") };
            for symbol in format!("{:.3}", unit.number_in(amount).unwrap()).chars() {
                taken.press(KeyCode::Char(symbol));
            }
        }
        _ => return taken.pass(),
    }
    let place = taken.app.course().unwrap().place();
    // If the text is longer than its pane, Enter reads on first.
    while taken.app.course().is_some_and(|course| course.place() == place && course.stage() == CourseStage::Asking) {
        taken.press(KeyCode::Enter);
    }
}

/// The differences between both.
fn differences(lesson: &Lesson, pace: Pace, on_screen: &Course, without: &Course) -> Vec<String> {
    let steps = lesson.steps.iter().zip(on_screen.all_told()).zip(without.all_told());
    let told = |told: &StepText| StepText { answer: None, worth: None, ..told.clone() };
    let mut found: Vec<String> = steps
        .filter(|((_, screen), plain)| told(screen) != told(plain))
        .map(|((step, screen), plain)| {
            format!("{} at {pace:?}: {}:\n{:#?}\n{:#?}", lesson.name, step.title, told(screen), told(plain))
        })
        .collect();
    if on_screen.introduction() != without.introduction() {
        found.push(format!("{} at {pace:?}: its introduction: {}", lesson.name, on_screen.introduction()));
    }
    let score = on_screen.score();
    let goals = lesson.steps.iter().filter(|step| is_goal(step)).count();
    if score.halves as usize != 2 * (lesson.questions() - goals) {
        found.push(format!("{} at {pace:?}: the right answers are worth {score}", lesson.name));
    }
    found
}

fn is_goal(step: &LessonStep) -> bool {
    step.question.as_ref().is_some_and(|question| matches!(question.form, Form::Goal(_)))
}

fn compared(lesson: &Arc<Lesson>, pace: Pace, without: &Course) -> Vec<String> {
    let right: Vec<_> = without.all_told().iter().map(|told| told.measured.map(MeasuredAnswer::as_answer)).collect();
    match take(lesson, pace, &right) {
        Ok(on_screen) => differences(lesson, pace, &on_screen, without),
        Err(hangs) => vec![hangs],
    }
}

#[test]
fn every_lesson_comes_to_the_same_on_the_screen_however_fast_the_lab_is() {
    let (lessons, _) = Library::with_user_lessons(None).all();
    let only = std::env::var("ONLY_LESSON").ok();
    let lessons = lessons.into_iter().filter(|lesson| only.as_ref().is_none_or(|only| *only == lesson.name));
    let lessons: Vec<_> = lessons.map(|lesson| (Arc::new(lesson), OnceLock::<Course>::new())).collect();
    // The slowest pace comes first, so that none is left at the end for a single thread.
    let thoroughness = Thoroughness::asked();
    let walks = PACES.iter().enumerate().rev().flat_map(|(at, &pace)| {
        let first = lessons.iter().skip(thoroughness.of(at, 0));
        first.step_by(thoroughness.of(PACES.len(), 1)).map(move |lesson| (lesson, pace))
    });
    let waiting = Mutex::new(walks.collect::<VecDeque<_>>());
    let found = Mutex::new(Vec::new());
    // Most of the time is spent waiting for clocks.
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(((lesson, without), pace)) = waiting.lock().unwrap().pop_front() else { return };
                    let without =
                        without.get_or_init(|| play(Arc::clone(lesson), runs(lesson), |_| Answer::Passed).unwrap());
                    let begun = Instant::now();
                    let differences = compared(lesson, pace, without);
                    found.lock().unwrap().extend(differences);
                    eprintln!("{} at {pace:?}: {:.1} s", lesson.name, begun.elapsed().as_secs_f64());
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
