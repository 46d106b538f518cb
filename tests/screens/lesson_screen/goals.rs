//! What a learner does without guidance: goals, hints, looking back, resuming, the next lesson.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use vramlab::lesson::{Lesson, Score};
use vramlab::tui::Message;

use super::taken::{Taken, runs};

const GOAL: &str = r#"+++
title = "A goal"
minutes = 1
workload = "gpt-mini"
device = "sim:h200"
summary = "Something to reach."
[settings]
batch = 8
+++
The introduction.

## Lower
Some prose.

```step
do = ["steps 2"]
ask = "Get the peak down."
hint = "Smaller pieces."
goal = "step_peak_allocated < before.step_peak_allocated"
allow = ["accum", "limit"]
tries = 2
then = ["steps 3"]
solution = ["set accum 4"]
check = ["batch == 8"]
why = "Now {step_peak_allocated}, {steps:step|steps}."
```

## Asked
```step
ask = "Which?"
choices = [
  { text = "No steps", when = "steps < 1", reply = "There were {steps:step|steps}." },
  { text = "Some", when = "steps >= 1" },
]
why = "Some."
```
"#;

fn lesson(name: &str) -> Arc<Lesson> {
    Arc::new(Lesson::parse(name, GOAL).unwrap_or_else(|error| panic!("{error}")))
}

fn taken() -> Taken {
    let lesson = lesson("goal");
    let mut taken = Taken::of(Arc::clone(&lesson), runs(&lesson), (120, 40));
    taken.wait_for("Enter begins");
    taken.press(KeyCode::Enter);
    taken.wait_for("Yours: ");
    taken
}

fn control(taken: &mut Taken, letter: char) -> String {
    taken.tell(Message::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)));
    taken.screen()
}

#[test]
fn a_goal_is_reached_by_the_learners_own_switches_and_by_no_other() {
    let mut taken = taken();
    let screen = taken.screen();
    assert!(screen.contains("2 tries left") && !screen.contains("Smaller pieces"), "{screen}");
    assert!(taken.press(KeyCode::Char('?')).contains("Hint: Smaller pieces."));
    for key in ['o', 'm', 'e', ' ', 'n'] {
        assert!(taken.press(KeyCode::Char(key)).contains("not for this goal"), "{key}");
    }
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("One try left");
    assert!(screen.contains("Tried nothing changed: not yet: step_peak_allocated is "), "{screen}");
    taken.press(KeyCode::Char('a'));
    taken.wait_for("PAUSED");
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("reached: a point.");
    assert!(screen.contains("1 of 1 points") && screen.contains("8 steps."), "{screen}");
    assert!(!screen.contains("by hand"), "what a goal asks for spoils nothing:\n{screen}");
}

/// A value that is typed in a line is allowed as much as a key.
#[test]
fn a_switch_that_is_written_counts_for_a_goal_as_one_that_is_flipped() {
    let mut taken = taken();
    taken.press(KeyCode::Char('L'));
    for symbol in "40GiB".chars() {
        taken.press(KeyCode::Char(symbol));
    }
    taken.press(KeyCode::Enter);
    taken.press(KeyCode::Char('a'));
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("reached: a point.");
    assert!(screen.contains("limit 40"), "{screen}");
}

#[test]
fn who_misses_a_goal_sees_one_way_to_it() {
    let mut taken = taken();
    taken.press(KeyCode::Enter);
    taken.wait_for("One try left");
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("One way: set accum 4");
    assert!(screen.contains("0 of 1 points") && !screen.contains("not true"), "{screen}");
}

#[test]
fn a_wrong_choice_is_answered_and_the_step_before_can_be_seen_again() {
    let mut taken = taken();
    taken.pass();
    taken.wait_for("One way: ");
    taken.press(KeyCode::Enter);
    taken.wait_for("Which?");
    let screen = control(&mut taken, 'b');
    assert!(screen.contains("Get the peak down.") && screen.contains("Enter returns"), "{screen}");
    assert!(control(&mut taken, 'b').contains("there is no earlier step"));
    assert!(taken.press(KeyCode::Enter).contains("Which?"));
    taken.press(KeyCode::Char('a'));
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("Wrong: it is B. Some");
    assert!(screen.contains("There were 5 steps."), "{screen}");
}

#[test]
fn a_lesson_goes_on_where_it_was_left_and_the_next_one_by_a_key() {
    let lesson = lesson("goal");
    let next = self::lesson("next");
    let following = vec![(Arc::clone(&next), runs(&next))];
    let earlier = Score { halves: 2, of: 1 };
    let mut taken = Taken::resuming(Arc::clone(&lesson), runs(&lesson), (120, 40), (1, earlier), following);
    let screen = taken.wait_for("Enter goes on there");
    assert!(screen.contains("You have done 1 of 2 steps"), "{screen}");
    taken.press(KeyCode::Enter);
    taken.wait_for("Which?");
    taken.press(KeyCode::Char('b'));
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("Right: it is B. Some");
    assert!(screen.contains("2 of 2 points"), "{screen}");
    taken.press(KeyCode::Enter);
    taken.wait_for(" next: ");
    // Even from the lab, which had replaced the last page.
    taken.press(KeyCode::Char('~'));
    taken.wait_for("the lesson is over");
    taken.press(KeyCode::Enter);
    taken.wait_for("Enter begins");
    assert_eq!(taken.app.course().map(|course| course.lesson().name.clone()).as_deref(), Some("next"));
}
