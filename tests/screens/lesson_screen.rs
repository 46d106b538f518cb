//! A lesson beside the lab: the effects of keys while a question is open, what is hidden until it is answered, and that
//! every lesson gives the same result on the screen as without one.

mod goals;
mod taken;
mod walk;

use std::time::Duration;

use crossterm::event::KeyCode;
use ratatui::style::Modifier;
use taken::Taken;
use vramlab::lesson::Library;
use vramlab::source::Request;

const LESSON: &str = r#"+++
title = "Two questions"
minutes = 1
workload = "gpt-mini"
device = "sim:h200"
summary = "One is asked before it is tried, one about what is there."
[settings]
batch = 4
+++
The introduction.

## Tried afterwards
```step
do = ["steps 2", "set batch 2", "steps 4", "set batch 4", "steps 2"]
ask = "What will the peak do?"
choices = [
  { text = "It falls", when = "step_peak_allocated < before.step_peak_allocated" },
  { text = "It stays", when = "step_peak_allocated == before.step_peak_allocated" },
  { text = "It grows", when = "step_peak_allocated > before.step_peak_allocated" },
]
then = ["set batch 8", "steps 2"]
check = ["batch == 8", "steps == 10"]
why = "It grew."
```

## There already
```step
ask = "How much is reserved?"
number = "reserved"
within = "10 %"
unit = "MiB"
why = "So much: {reserved}."
```

## A third
```step
do = ["steps 1"]
check = ["batch == 8", "steps == 11"]
```
"#;

#[test]
fn no_key_answers_or_disturbs_a_question_by_accident() {
    let mut taken = Taken::begin(LESSON, (120, 40));
    let asks = |screen: &str| assert!(screen.contains("What will the peak do?"), "{screen}");
    assert!(taken.press(KeyCode::Char('m')).contains("the lesson runs the lab; * hands it to you"));
    taken.press(KeyCode::Enter);
    taken.wait_for("What will the peak do?");
    // A learner who reads on with Enter has answered nothing.
    let (switches, steps) = (taken.switches(), taken.app.latest().view.steps.finished);
    let screen = taken.press(KeyCode::Enter);
    assert!(screen.contains("Choose first") && !screen.contains("▸"), "{screen}");
    asks(&screen);
    taken.sent.clear();
    for key in ['m', 'o', 'e', 'z', 'f', 'p', 'x', 'L', ' ', '.', ',', 'n', 'G', 'w'] {
        let screen = taken.press(KeyCode::Char(key));
        assert!(screen.contains("a question is open: answer it first, or Ctrl-N passes it"), "{key}: {screen}");
        asks(&screen);
    }
    assert!(!taken.sent.iter().any(|request| matches!(request, Request::Lab(_))), "{:?}", taken.sent);
    assert_eq!((taken.switches(), taken.app.latest().view.steps.finished), (switches, steps));
    // The effect of the flip before it is not shown; everything else of the lab can be viewed.
    let screen = taken.press(KeyCode::Char('1'));
    assert!(!screen.contains("measured effect") && !screen.contains("peak allocated"), "{screen}");
    assert!(taken.press(KeyCode::Char('6')).contains("[6 "));
    // The letters of the choices belong to them, whatever they flip elsewhere.
    assert!(taken.press(KeyCode::Char('b')).contains("▸ B."));
    assert!(taken.press(KeyCode::Char('c')).contains("▸ C."));
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("it is C.");
    assert!(screen.contains("Right: it is C.") && screen.contains("1 of 1 points"), "{screen}");
}

#[test]
fn an_answer_that_the_lab_shows_is_out_of_sight_until_it_is_given() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut taken = Taken::begin(LESSON, size);
        taken.press(KeyCode::Enter);
        taken.wait_for("What will the peak do?");
        taken.pass();
        let screen = taken.wait_for("Passed: it is");
        assert!(screen.contains("0 of 1 points") && !screen.contains("You said"), "{screen}");
        taken.press(KeyCode::Enter);
        let screen = taken.wait_for("How much is reserved?");
        for told in ["reserved ", "allocated", " ms sim"] {
            let told = screen.lines().find(|line| line.contains(told) && !line.contains("How much is reserved?"));
            assert_eq!(told, None, "{screen}");
        }
        for key in [KeyCode::Char('y'), KeyCode::Char('w'), KeyCode::Tab, KeyCode::Char('~')] {
            let screen = taken.press(key);
            assert!(screen.contains("How much is reserved?") && !screen.contains("stranded"), "{key}: {screen}");
        }
        for digit in "12 MiB".chars() {
            taken.press(KeyCode::Char(digit));
        }
        taken.press(KeyCode::Char('~'));
        taken.press(KeyCode::Enter);
        let screen = taken.wait_for("it is ");
        assert!(screen.contains("You said: 12.0 MiB") && screen.contains("So much: "), "{screen}");
    }
}

#[test]
fn a_page_has_the_blocks_beside_it_and_a_question_a_sketch_without_figures() {
    for size in [(120, 40), (200, 60)] {
        let lesson = Library::with_user_lessons(None).lesson("allocated-and-reserved").unwrap();
        let mut taken = Taken::take(lesson, size);
        let page = taken.wait_for("Enter begins");
        assert!(page.contains("words of this text") && page.contains("4 steps, 3 questions"), "{page}");
        assert!(page.contains("148 MiB") && !page.contains("no step has begun yet"), "the blocks: {page}");
        taken.press(KeyCode::Enter);
        let asked = taken.wait_for("How much is reserved?");
        assert!(
            asked.contains("your answer") && asked.contains("shape of this step · figures after your answer"),
            "{asked}"
        );
        assert!(asked.contains("│backward") && asked.contains("read before"), "{asked}");
        let reserved = taken.app.latest().view.ledger.reserved();
        assert!(
            reserved.get() > 1 << 32 && !asked.contains(&format!("{:.2}", reserved.get() as f64 / (1 << 30) as f64))
        );
        taken.press(KeyCode::Char('c'));
        let bar = taken.style_of("C. About as much").expect("it is on the screen");
        assert!(bar.add_modifier.contains(Modifier::REVERSED), "what is selected is a bar: {bar:?}");
        taken.press(KeyCode::Enter);
        let screen = taken.wait_for("it is C.");
        assert!(screen.contains("✓ right") && screen.contains("3 steps to come"), "{screen}");
    }
}

#[test]
fn an_audience_reads_short_lines_and_choices_set_apart() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut taken = Taken::begin(LESSON, size);
        taken.press(KeyCode::Enter);
        let screen = taken.wait_for("What will the peak do?");
        let row_of = |screen: &str, text: &str| screen.lines().position(|line| line.contains(text)).unwrap();
        assert_eq!(row_of(&screen, "B. It stays"), row_of(&screen, "A. It falls") + 1, "{screen}");
        let screen = taken.press(KeyCode::Char('V'));
        for (choice, next) in [("A. It falls", "B. It stays"), ("B. It stays", "C. It grows")] {
            assert_eq!(row_of(&screen, next), row_of(&screen, choice) + 2, "{size:?}\n{screen}");
        }
        assert!(!screen.contains("reads on"), "all of it is seen: {screen}");
        let choice = taken.style_of("A. It falls").expect("it is on the screen");
        assert!(choice.add_modifier.contains(Modifier::BOLD), "{choice:?}");
    }
}

#[test]
fn a_lab_that_somebody_let_run_on_rests_before_the_next_question() {
    let mut taken = Taken::begin(LESSON, (120, 40));
    taken.press(KeyCode::Enter);
    taken.wait_for("What will the peak do?");
    taken.pass();
    taken.wait_for("Passed: it is");
    taken.press(KeyCode::Char(' '));
    assert!(taken.screen().contains("* hands it to you"), "no key disturbs it by accident");
    taken.press(KeyCode::Char('*'));
    taken.press(KeyCode::Char(' '));
    taken.wait("a lab that has run on", |app, screen| {
        screen.contains("RUNNING") && app.latest().view.steps.finished > 10
    });
    taken.press(KeyCode::Enter);
    taken.wait_for("How much is reserved?");
    let steps = taken.app.latest().view.steps.finished;
    std::thread::sleep(Duration::from_millis(100));
    assert!(taken.screen().contains("PAUSED"));
    let view = &taken.app.latest().view;
    assert_eq!((view.steps.finished, view.phase), (steps, None), "it rests, and between two steps");
}

#[test]
fn whoever_changes_the_lab_between_two_steps_is_told_that_the_rest_need_not_hold() {
    let mut taken = Taken::begin(LESSON, (120, 40));
    taken.press(KeyCode::Enter);
    taken.wait_for("What will the peak do?");
    taken.pass();
    taken.wait_for("Passed: it is");
    taken.press(KeyCode::Enter);
    taken.wait_for("How much is reserved?");
    taken.pass();
    taken.wait_for("So much: ");
    assert!(taken.press(KeyCode::Char('m')).contains("* hands it to you"));
    assert!(taken.press(KeyCode::Char('*')).contains("the lab is yours"));
    taken.press(KeyCode::Char('n'));
    taken.wait_for("step 11");
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("step 3 of 3");
    let screen = if screen.contains("by hand") { screen } else { taken.wait_for("by hand") };
    assert!(!screen.contains("This lesson is not true"), "{screen}");
}

/// This lesson looks at loading: a run that paused in the middle of it would show less.
#[test]
fn another_run_rests_before_its_first_step_and_not_while_its_model_is_made() {
    let mut taken = Taken::take(Library::with_user_lessons(None).lesson("loading").unwrap(), (120, 40));
    taken.press(KeyCode::Enter);
    taken.wait_for("What is allocated at most?");
    taken.press(KeyCode::Char('c'));
    taken.press(KeyCode::Enter);
    let screen = taken.wait_for("it is ");
    assert!(screen.contains("Right: it is C. Twice the model"), "{screen}");
    assert!(!screen.contains("not true"), "{screen}");
}
