use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::device::sim::CardCatalog;
use crate::session::DeviceChoice;
use crate::workload::Catalog;

const LESSON: &str = r#"+++
title = "What empty_cache does"
order = 2
minutes = 5
workload = "gpt-mini"
device = "sim:h200"
summary = "Reserved falls, allocated does not."
[settings]
batch = 4
pin = true
+++
We train a small model of {parameters} parameters.

## The lab runs
Allocated is {allocated}, reserved {reserved}.
```step
do = ["steps 3", "mark warm"]
check = ["reserved > allocated", "steps == 3", "malformed == 0"]
look = "ledger"
```
That is {reserved - allocated} that nobody uses.

## Empty the cache
```step
ask = "What will fall?"
hint = "{releasable} are releasable."
choices = [
  { text = "Allocated", when = "allocated < before.allocated" },
  { text = "Reserved", when = "allocated == before.allocated and reserved < before.reserved" },
  { text = "Nothing", when = "allocated == before.allocated and reserved == before.reserved" },
]
then = ["empty_cache"]
check = ["before.reserved - reserved == before.releasable", "warm.reserved == before.reserved"]
why = "From {before.reserved} to {reserved}."
```

## How much
```step
do = ["steps 1", "set batch 8"]
ask = "To how many MiB will the peak grow?"
number = "step_peak_allocated"
within = "10 %"
unit = "MiB"
then = ["steps 2"]
check = ["step_peak_allocated > before.step_peak_allocated", "batch == 8"]
why = "It grew by {step_peak_allocated / before.step_peak_allocated - 1:%}."
```

## A clean state
```step
do = ["restart", "steps 1"]
check = ["steps == 1", "batch == 4", "peak_allocated < warm.step_peak_allocated * 2"]
```
"#;

fn lesson(source: &str) -> Arc<Lesson> {
    Arc::new(Lesson::parse("empty-cache", source).unwrap_or_else(|error| panic!("{error}\n{source}")))
}

fn played(source: &str, answer: impl FnMut(&Form) -> Answer) -> Course {
    let lesson = lesson(source);
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    let runs = lesson.runs(&catalog, &cards, None).unwrap();
    play(lesson, runs, answer).unwrap()
}

fn untrue(course: &Course) -> Vec<&str> {
    course.all_told().iter().flat_map(|told| &told.untrue).map(String::as_str).collect()
}

#[test]
fn a_lesson_is_played_to_its_end() {
    let course = played(LESSON, |form| match form {
        Form::Choices(_) => Answer::Choice(1),
        Form::Goal(_) => Answer::Solution,
        Form::Number { .. } => form.read("1 B").unwrap(),
    });
    assert_eq!(untrue(&course), [""; 0]);
    assert_eq!((course.stage(), course.score()), (CourseStage::Over, Score { halves: 2, of: 2 }));
    assert!(course.introduction().starts_with("We train a small model of 1"), "{}", course.introduction());
    let [one, two, three, four] = course.all_told() else { panic!("{course:?}") };
    assert!(one.question.is_none() && one.worth.is_none() && one.after.starts_with("That is "));
    assert_eq!((two.measured, two.worth), (Some(MeasuredAnswer::Choice(1)), Some(Worth::Right)));
    assert!(two.why.as_ref().is_some_and(|why| why.starts_with("From ") && why.contains(" MiB to ")));
    assert!(matches!(three.measured, Some(MeasuredAnswer::Amount(_))));
    assert_eq!(three.worth, Some(Worth::Wrong));
    assert_eq!(four.worth, None);
}

#[test]
fn what_stops_being_true_is_told() {
    for (from, to, part) in [
        ("steps == 3\"", "steps == 4\"", "steps == 4 does not hold: steps is 3"),
        ("allocated < before.allocated", "reserved < before.reserved", "choices 1 and 2 are both right here"),
        (
            "\"Reserved\", when = \"allocated",
            "\"Reserved\", when = \"1 > 2 and allocated",
            "none of the choices is right",
        ),
        ("malformed == 0", "loss < 9", "can't be checked: loss is not known here"),
        ("{before.reserved} to", "{loss} to", "a text has no figure: loss is not known here"),
        ("\"set batch 8\"", "\"set limit 100%\", \"set batch 8\", \"set offload optimizer\", \"set opt sgd\"", ""),
        ("\"steps 2\"]", "\"set limit 1MiB\", \"empty_cache\", \"steps 2\"]", "step_peak_allocated > before"),
    ] {
        let source = LESSON.replace(from, to);
        assert_ne!(source, LESSON, "{from}");
        let course = played(&source, |_| Answer::Passed);
        let untrue = untrue(&course).join("\n");
        assert!(untrue.contains(part), "{to}: {untrue}");
        assert_eq!(course.stage(), CourseStage::Over);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_line_and_column() {
    for (from, to, at, part) in [
        ("title = \"What", "titel = \"What", "titel", "did you mean \"title\"?"),
        ("batch = 4", "batsh = 4", "batsh", "no switch 'batsh' (did you mean \"batch\"?)"),
        ("batch = 4", "batch = 0", "0\npin", "from 1 to"),
        ("pin = true", "amp = 'fp61'", "'fp61", "did you mean \"fp16\"?"),
        ("{parameters}", "{parametres}", "parametres", "did you mean \"parameters\"?"),
        ("{reserved}.", "{reserved - steps}.", "- steps}", "bytes and count can't be subtracted"),
        ("\"steps 3\"", "\"stpes 3\"", "stpes", "did you mean \"steps\"?"),
        ("steps == 3\"", "steps == 3 MiB\"", "== 3 MiB", "count and bytes can't be compared"),
        ("look = \"ledger\"", "look = \"leger\"", "\"leger", "did you mean \"ledger\"?"),
        ("look = \"ledger\"", "sketch = \"stpe\"", "\"stpe", "did you mean \"step\"?"),
        ("ask = \"What will fall?\"\n", "", "hint = ", "an answer and no question"),
        ("check = [\"before", "chekc = [\"before", "chekc", "did you mean \"check\"?"),
        ("warm.reserved ==", "wram.reserved ==", "wram", "did you mean \"warm\"?"),
        ("{before.reserved} to", "{before.reservd} to", "reservd", "did you mean \"reserved\"?"),
        ("within = \"10 %\"\n", "", "step_peak_allocated\"\nunit", "how near is right?"),
        ("unit = \"MiB\"", "unit = \"ms\"", "ms\"\nthen", "no unit of bytes"),
        ("unit = \"MiB\"", "unit = \"MB\"", "MB\"\nthen", "did you mean \"MiB\"?"),
        ("unit = \"MiB\"\n", "", "step_peak_allocated\"\nwithin", "in which unit?"),
        ("within = \"10 %\"", "within = \"10 ms\"", "10 ms", "write a share"),
        ("number = \"step_peak_allocated\"", "number = \"steps > 1\"", "steps > 1", "leave the comparison out"),
        (
            ", when = \"allocated == before.allocated and reserved == before.reserved\" }",
            " }",
            "{ text = \"Nothing",
            "when",
        ),
        ("hint = \"{releasable} ", "hint = \"{releasable ", "{releasable ", "a brace opens"),
        (
            "Allocated is {allocated}, res",
            "Allocated is {allocated, res",
            "{allocated, res",
            "a brace opens and none closes",
        ),
    ] {
        let source = LESSON.replacen(from, to, 1);
        assert_ne!(source, LESSON, "{from}");
        let error = Lesson::parse("x", &source).err().unwrap_or_else(|| panic!("{to} was read"));
        assert!(error.reason.contains(part), "{to}: {error}");
        let before = &source[..source.find(at).unwrap()];
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        assert_eq!((error.line, error.column), (before.matches('\n').count() + 1, column), "{to}: {error}");
    }
    let lesson = lesson(&LESSON.replace("gpt-mini", "gpt-mimi"));
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    let error = lesson.runs(&catalog, &cards, None).unwrap_err();
    assert_eq!((error.line, error.column), (5, 12));
}

#[test]
fn a_run_can_be_the_first_of_several_ranks() {
    let named = "pin = true\n[run.sharded]\ndevice = \"sim:h200\"\ndata = \"reference\"\nparallel = \"fsdp\"\nranks = 4\n\
        [run.sharded.settings]\nbatch = 8\n";
    let steps = "## Shards\n```step\ndo = [\"mark one\", \"run sharded\", \"steps 2\"]\n\
        check = [\"batch == 2\", \"parameters < 0.4 * one.parameters\"]\n```\n";
    let source = format!("{}{steps}", LESSON.replace("pin = true\n", named));
    assert_eq!(untrue(&played(&source, |_| Answer::Passed)), [""; 0]);
    let error = Lesson::parse("x", &source.replace("\"fsdp\"", "\"fdsp\"")).unwrap_err();
    assert!(error.reason.contains("there is no way of parallelism 'fdsp'"), "{error}");
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    for (from, to, part) in [
        ("ranks = 4", "ranks = 3", "8 samples can't be split over 3 ranks"),
        ("ranks = 4", "ranks = 4\nrank = 4", "of 4 ranks there is no rank 4: the first is 0"),
        ("ranks = 4", "ranks = 1", "give from 2 to 1024"),
        ("device = \"sim:h200\"\ndata", "device = \"cpu\"\ndata", "its ranks train on simulated cards"),
    ] {
        let error = lesson(&source.replace(from, to)).runs(&catalog, &cards, None).unwrap_err();
        assert!(error.reason.contains(part), "{to}: {error}");
    }
}

#[test]
fn a_lesson_has_several_runs() {
    let named = "pin = true\n[run.watched]\nworkload = \"gpt2\"\ninference = \"no_grad\"\npreallocate = \"1GiB\"\nload = \"kept\"\n\
        [run.watched.settings]\naccum = 2\n[run.on_processor]\nworkload = \"mlp-mini\"\ndevice = \"cpu\"\n";
    let steps = "## Others\n```step\ndo = [\"run watched\", \"steps 1\", \"mark watched\", \"restart\", \"mark again\", \
        \"run on_processor\", \"steps 2\"]\ncheck = [\"watched.steps == 1\", \"watched.reserved > 1 GiB\", \
        \"watched.optimizer == 0 B\", \"watched.other > 0.9 * watched.parameters\", \"again.steps == 0\", \"again.accum == 2\", \
        \"again.batch == 4\", \"steps == 2\", \"accum == 1\", \"loss > 0\", \"optimizer > 0 B\", \"workspaces == 0 B\"]\n```\n";
    let source = format!("{}{steps}", LESSON.replace("pin = true\n", named));
    assert_eq!(untrue(&played(&source, |_| Answer::Passed)), [""; 0]);
    for (from, to, part) in [
        ("\"run watched\"", "\"run wacthed\"", "no table [run.wacthed] (did you mean \"watched\"?)"),
        ("[run.on_processor]", "[run.On]", "small letters"),
        ("load = \"kept\"", "load = \"usb\"", "device, kept or host"),
        ("[run.watched.settings]", "[run.wacthed.settings]", "no step begins this run; write \"run wacthed\""),
        ("\"1GiB\"", "\"150%\"", "at most 100 %"),
    ] {
        let error = Lesson::parse("x", &source.replace(from, to)).unwrap_err();
        assert!(error.reason.contains(part), "{to}: {error}");
    }
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    let other = DeviceChoice::Sim(Box::new(cards.card("t4").unwrap()));
    let runs = lesson(&source).runs(&catalog, &cards, Some(&other)).unwrap();
    assert_eq!((&runs.first().device, &runs.named("watched").unwrap().device), (&other, &other));
    assert_eq!(runs.named("on_processor").unwrap().device, DeviceChoice::Cpu, "it says where it runs");
}

#[test]
fn a_lesson_trains_on_samples_of_several_lengths() {
    let named = "pin = true\n[run.lengths]\nworkload = \"llama-mini\"\nlengths = [8, 9, 10, 200, 11, 12, 13, 14]\n\
        [run.sorted]\nworkload = \"llama-mini\"\nlengths = [8, 9, 10, 200, 11, 12, 13, 14]\nlength-policy = \"longest-first\"\n";
    let steps = "## Lengths\n```step\ndo = [\"run lengths\", \"steps 1\", \"mark long\", \"steps 1\", \"mark short\", \
        \"run sorted\", \"steps 1\"]\ncheck = [\"long.peak_activations > 2 * short.peak_activations\", \
        \"step_peak_allocated == long.step_peak_allocated\"]\n```\n";
    let source = format!("{}{steps}", LESSON.replace("pin = true\n", named));
    assert_eq!(untrue(&played(&source, |_| Answer::Passed)), [""; 0]);
    for (from, to, part) in [
        ("lengths = [8, 9, 10, 200, 11, 12, 13, 14]\n[", "lengths = []\n[", "the tokens of each sample"),
        ("lengths = [8, 9, 10, 200, 11, 12, 13, 14]\n[", "lengths = [8, 0]\n[", "the tokens of each sample"),
        ("lengths = [8, 9, 10, 200, 11, 12, 13, 14]\n[", "lengths = [8]\ndata = \"fresh\"\n[", "leave data out"),
        ("lengths = [8, 9, 10, 200, 11, 12, 13, 14]\nlength-policy", "length-policy", "give the samples too"),
        ("longest-first", "longest-last", "unknown variant"),
    ] {
        assert!(source.contains(from), "{from}");
        let error = Lesson::parse("x", &source.replace(from, to)).unwrap_err();
        assert!(error.reason.contains(part), "{to}: {error}");
    }
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    let images = lesson(&source.replace("workload = \"llama-mini\"", "workload = \"resnet-mini\""));
    assert!(images.runs(&catalog, &cards, None).is_err(), "images have no lengths");
}

#[test]
fn a_sheet_has_the_questions_and_only_where_wanted_the_answers() {
    let course = played(LESSON, |_| Answer::Passed);
    let questions = sheet(&course, Sheet::Questions, "sim:h200, simulated");
    let answers = sheet(&course, Sheet::Answers, "sim:h200, simulated");
    for part in
        ["# What empty_cache does\n", "**What will fall?**", "- [ ] B. Reserved\n", "I expect: ______________ MiB"]
    {
        assert!(questions.contains(part) && answers.contains(part), "{part}: {questions}");
    }
    assert!(!questions.contains("Measured") && questions.contains("Name: ___"));
    assert!(answers.contains("Measured: B. Reserved\n") && answers.contains("It grew by"), "{answers}");
}

#[test]
fn every_look_has_its_word() {
    for look in Look::ALL {
        let source = LESSON.replace("\"ledger\"", &format!("\"{}\"", look.word()));
        assert_eq!(lesson(&source).steps[0].look, Some(look));
    }
}

/// A random edit of these tests' lesson: where it begins, how much text it replaces, and the new text.
fn slip() -> impl Strategy<Value = (usize, usize, String)> {
    let pieces = [
        "```step\n",
        "```",
        "+++\n",
        "## \u{3000}\n",
        "\"\"\"",
        "{",
        "}",
        "\\",
        "\r\n",
        "\u{a0}",
        "é",
        "[run.a]\n",
        "= 3",
    ];
    let piece = prop_oneof![prop::sample::select(pieces.map(str::to_owned).to_vec()), any::<String>()];
    (0..LESSON.len(), 0..40_usize, piece)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_file_panics(slips in prop::collection::vec(slip(), 1..4), text in any::<String>()) {
        let mut source = LESSON.to_owned();
        for (at, length, piece) in slips {
            let boundary = |at: usize| (0..=at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
            let range = boundary(at)..boundary(at + length);
            source.replace_range(range, &piece);
        }
        for source in [source, text] {
            if let Err(error) = Lesson::parse("x", &source) {
                prop_assert!(error.line >= 1 && error.column >= 1 && error.line <= source.matches('\n').count() + 1);
            }
        }
    }
}
