//! Every built-in lesson is parsed, played and true; the guide for authors of lessons is right.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use vramlab::device::sim::CardCatalog;
use vramlab::figures::FigureInputs;
use vramlab::lesson::{Answer, Course, CourseRequest, CourseStage, Lesson, LessonRuns, Library, MeasuredAnswer, play};
use vramlab::model::{Event, EventKind, Lab, RunState};
use vramlab::session::{self, Command, Feed, LabSpec, Session, StepSize};
use vramlab::workload::Catalog;

use crate::patience;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn runs(lesson: &Lesson) -> LessonRuns {
    let (catalog, cards) = (Catalog::with_user_workloads(None), CardCatalog::with_user_cards(None));
    lesson.runs(&catalog, &cards, None).unwrap_or_else(|error| panic!("{}: {error}", lesson.name))
}

/// Plays a lesson without an answer, then with the right ones; returns what is wrong.
fn troubles(lesson: &Arc<Lesson>) -> Vec<String> {
    let runs = runs(lesson);
    let untrue = |course: &Course| -> Vec<String> {
        let steps = lesson.steps.iter().zip(course.all_told());
        steps
            .flat_map(|(step, told)| told.untrue.iter().map(|what| format!("{}: {}: {what}", lesson.name, step.title)))
            .collect()
    };
    let first = play(Arc::clone(lesson), runs.clone(), |_| Answer::Passed).unwrap();
    let mut troubles = untrue(&first);
    if troubles.is_empty() {
        let mut right = first.all_told().iter().filter_map(|told| told.measured).map(MeasuredAnswer::as_answer);
        let second = play(Arc::clone(lesson), runs, |_| right.next().unwrap_or(Answer::Passed)).unwrap();
        troubles = untrue(&second);
        let (score, questions) = (second.score(), lesson.questions());
        if (score.halves as usize, score.of as usize, second.stage()) != (2 * questions, questions, CourseStage::Over) {
            troubles.push(format!("{}: the answers that were right are worth {score}", lesson.name));
        }
    }
    troubles
}

#[test]
fn every_lesson_is_part_of_the_program_and_has_a_place_of_its_own() {
    let library = Library::with_user_lessons(None);
    let known: BTreeSet<String> = library.names().map(str::to_owned).collect();
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let lessons = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
        lessons.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(known, names(&root().join("lab/lessons")), "src/lesson/built_in.rs lists what lies in lab/lessons");
    let (lessons, warnings) = library.all();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(lessons.len(), known.len());
    for pair in lessons.windows(2) {
        assert!(pair[0].front.order < pair[1].front.order, "{} and {} have one place", pair[0].name, pair[1].name);
    }
    for lesson in &lessons {
        assert!(
            lesson.questions() > 0 && lesson.front.minutes > 0 && !lesson.front.summary.is_empty(),
            "{}",
            lesson.name
        );
    }
}

#[test]
fn every_lesson_is_true() {
    let (lessons, _) = Library::with_user_lessons(None).all();
    let waiting = Mutex::new(lessons.into_iter().map(Arc::new).collect::<Vec<_>>());
    let troubled = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some(lesson) = next else { return };
                    let begun = Instant::now();
                    let found = troubles(&lesson);
                    eprintln!("{}: {:.1} s, twice", lesson.name, begun.elapsed().as_secs_f64());
                    troubled.lock().unwrap().extend(found);
                }
            });
        }
    });
    let troubled = troubled.into_inner().unwrap();
    assert!(troubled.is_empty(), "{}", troubled.join("\n"));
}

/// A lab that runs on a thread of its own, and a course that sees only what the lab reports.
struct Live {
    session: Session,
    lab: Lab,
    spec: LabSpec,
    /// It goes on step by step until this many are finished.
    until: u64,
    /// The number of finished steps when it was last told to go on.
    advanced: Option<u64>,
}

impl Live {
    fn start(spec: LabSpec) -> Self {
        let session = session::start(spec.clone()).unwrap();
        session.commands.send(Command::Pause).unwrap();
        let mut live = Self { session, lab: Lab::new(), spec, until: 0, advanced: None };
        while *live.lab.run() != RunState::Paused {
            live.look();
        }
        live
    }

    fn obey(&mut self, order: &CourseRequest) {
        match (order, order.command()) {
            (_, Some(command)) => self.session.commands.send(command).unwrap(),
            (CourseRequest::Steps(steps), None) => {
                self.until = self.lab.finished() + steps;
                self.advance();
            }
            (_, None) => *self = Self::start(self.spec.clone()),
        }
    }

    /// Waits for the next report; if the lab has stopped and should go on, tells it to.
    fn look(&mut self) {
        let events = match self.session.feed.blocking_recv() {
            Some(Feed::Events(events)) => events,
            Some(Feed::Aside(device, kind)) => vec![Event { device, ..Event::new(self.lab.time(), kind) }],
            Some(Feed::Sensors(_)) => return,
            None => panic!("the lab ended"),
        };
        for event in events {
            self.lab.apply(&event);
            let stopped = matches!(&event.kind, EventKind::Run(RunState::Paused));
            // It may report more than once between two steps that it has stopped.
            if stopped && self.lab.finished() < self.until && self.advanced < Some(self.lab.finished()) {
                self.advance();
            }
        }
    }

    fn advance(&mut self) {
        self.advanced = Some(self.lab.finished());
        self.session.commands.send(Command::Advance(StepSize::Step)).unwrap();
    }
}

#[test]
fn a_course_beside_a_running_lab_comes_to_the_same() {
    let more = "\n## A clean state\n```step\ndo = [\"restart\", \"steps 2\", \"empty_cache\"]\ncheck = [\"steps == 2\", \"batch == 4\"]\n```\n";
    let lesson = Arc::new(Lesson::parse("twice", &(example() + more)).unwrap());
    let runs = runs(&lesson);
    let spec = runs.first().clone();
    let headless = play(Arc::clone(&lesson), runs, |_| Answer::Choice(1)).unwrap();
    let mut live = Live::start(spec);
    let mut course = Course::new(lesson, true);
    while course.stage() != CourseStage::Over {
        let view = live.lab.view();
        let known = FigureInputs { view: &view, statistics: None, device_memory: None };
        match (course.observe(&known), course.stage()) {
            (Some(order), _) => live.obey(&order),
            (None, CourseStage::Introduction) if course.introduction().is_empty() => live.look(),
            (None, CourseStage::Introduction | CourseStage::Explained) => course.proceed(),
            (None, CourseStage::Asking) => course.answer(Answer::Choice(1)),
            (None, _) => live.look(),
        }
    }
    for (live, headless) in course.all_told().iter().zip(headless.all_told()) {
        assert_eq!(live.untrue, [""; 0]);
        assert_eq!((live.measured, live.worth, &live.why), (headless.measured, headless.worth, &headless.why));
        assert_eq!((&live.prose, &live.after), (&headless.prose, &headless.after));
    }
}

fn guide() -> String {
    std::fs::read_to_string(root().join("lab/README.md")).unwrap()
}

/// The complete lesson in the guide.
fn example() -> String {
    let guide = guide();
    let (_, behind) = guide.split_once("````markdown\n").unwrap();
    behind.split_once("````\n").unwrap().0.to_owned()
}

#[test]
fn the_lesson_of_the_guide_is_true() {
    let lesson = Arc::new(Lesson::parse("twice", &example()).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(lesson.questions(), 2);
    assert_eq!(troubles(&lesson), [""; 0]);
}

#[test]
fn the_guide_lists_all_figures() {
    let guide = guide();
    let (_, behind) = guide.split_once("<!-- figures -->\n").unwrap();
    let (table, _) = behind.split_once("<!-- end of figures -->").unwrap();
    assert_eq!(table, vramlab::figures::list(), "put in what `vramlab lesson --figures` prints");
}

/// A home folder without settings, with the guide's lesson in it.
fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("twice.md");
    std::fs::write(&path, example()).unwrap();
    (home, path)
}

fn vramlab(home: &Path, arguments: &[&str]) -> process::Command {
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(arguments).env("HOME", home).env("XDG_CONFIG_HOME", home.join("config"));
    command.env("XDG_STATE_HOME", home.join("state")).env("USER", "ada").current_dir(home);
    command
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The program's output for a user who types these lines.
fn spoken(home: &Path, arguments: &[&str], lines: &str) -> String {
    let mut child =
        vramlab(home, arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let (out, error, code) = said(&child.wait_with_output().unwrap());
    assert_eq!((error.as_str(), code), ("", Some(0)), "{out}");
    out
}

#[test]
fn a_lesson_is_taken_line_by_line_and_a_class_is_followed() {
    let (home, _) = home();
    let home = home.path();
    let mut pending = vramlab(home, &["class", "ada.vram", "--json"]);
    let (out, _, code) = said(&pending.output().unwrap());
    assert_eq!(code, Some(0));
    assert!(out.contains("not there yet"), "{out}");

    // The introduction and the first step are read, the first question is answered wrong, the second is asked and
    // answered right.
    let lines = "\n\n?\nnonsense\nA\n\n1 TiB\n\n";
    let arguments = ["lesson", "twice.md", "--plain", "--as", "Ada", "--record", "ada.vram"];
    let out = spoken(home, &arguments, lines);
    for part in [
        "A batch of twice the size\ngpt-mini on sim:h200 (simulated)",
        "== 1 of 3: Three steps",
        "Every sample has activations of its own.",
        "'nonsense' is none of the choices",
        "Wrong: it is B. They double, about",
        "Wrong: it is ",
        "That was the last step: 0 of 2 points.",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("not true"), "{out}");

    let (out, error, code) = said(&vramlab(home, &["class", "ada.vram", "--once"]).output().unwrap());
    assert_eq!((error.as_str(), code), ("", Some(0)));
    for part in ["Ada", "A batch of twice the size: 1 learner, 1 finished", "○○", "0 of 2", "○ wrong", "simulated"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (out, _, _) = said(&vramlab(home, &["class", ".", "--json"]).output().unwrap());
    let class: serde_json::Value = serde_json::from_str(&out).unwrap();
    let ada = &class["class"][0];
    assert_eq!(
        (&ada["who"], &ada["lesson"]["doing"], &ada["lesson"]["steps"]),
        (&"Ada".into(), &"over".into(), &3.into())
    );

    // A learner who leaves in the middle is listed there.
    spoken(home, &["lesson", "twice.md", "--record", "other.vram"], "\n\nB\nq\n");
    let (out, _, _) = said(&vramlab(home, &["class", "other.vram", "--once"]).output().unwrap());
    for part in ["ada", "2 of 3, reading", "●·", "1 of 1"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // Learners with the same name are distinguished by the file.
    std::fs::copy(home.join("other.vram"), home.join("third.vram")).unwrap();
    let (out, _, _) = said(&vramlab(home, &["class", ".", "--once"]).output().unwrap());
    for part in ["3 learners, 2 at step 2, 1 finished", "Ada  ", "other  ", "third  "] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("ada  "), "{out}");
}

#[test]
fn progress_is_kept_until_it_is_forgotten() {
    let (home, lesson) = home();
    let folder = home.path().join("config/vramlab/lessons");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(lesson, folder.join("twice.md")).unwrap();
    let listed = || said(&vramlab(home.path(), &["lesson"]).output().unwrap()).0;
    let line = |listed: String| listed.lines().find(|line| line.contains("twice")).unwrap().to_owned();
    assert!(line(listed()).ends_with("A batch of twice the size · 3 min"));
    spoken(home.path(), &["lesson", "twice"], "\n\nB\nq\n");
    assert!(line(listed()).ends_with("at step 3 of 3"), "{}", listed());
    spoken(home.path(), &["lesson", "twice"], "\n\nB\n\n-\n\n");
    assert!(line(listed()).ends_with("1 of 2"), "{}", listed());
    let (_, _, code) = said(&vramlab(home.path(), &["lesson", "--reset"]).output().unwrap());
    assert_eq!(code, Some(0));
    assert!(line(listed()).ends_with("3 min"), "{}", listed());
    std::fs::write(home.path().join("state/vramlab/progress.toml"), "broken").unwrap();
    let (out, error, code) = said(&vramlab(home.path(), &["lesson"]).output().unwrap());
    assert!(out.contains("twice") && error.contains("progress starts again") && code == Some(0), "{error}");
}

#[test]
fn files_are_checked_and_sheets_printed() {
    let (home, lesson) = home();
    let home = home.path();
    let check =
        |arguments: &[&str]| said(&vramlab(home, &[&["lesson", "check"], arguments].concat()).output().unwrap());
    let (out, error, code) = check(&["twice.md", "--play"]);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    assert!(out.contains("3 steps") && out.contains("2 questions") && out.contains("true, "), "{out}");

    let text = std::fs::read_to_string(lesson).unwrap();
    std::fs::write(home.join("a.md"), text.replace("reserved == before.reserved", "reservd == before.reserved"))
        .unwrap();
    std::fs::write(home.join("b.md"), text.replace("reserved == before.reserved", "reserved < before.reserved"))
        .unwrap();
    let (_, error, code) = check(&["a.md", "b.md"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("a.md: line ") && error.contains("did you mean \"reserved\"?"), "{error}");
    assert!(error.ends_with("1 of 2 lessons must be corrected\n"), "{error}");
    let (_, error, code) = check(&["b.md", "--play"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("step 3 (What is left behind): reserved < before.reserved does not hold: reserved is "),
        "{error}"
    );

    let sheet = |arguments: &[&str]| {
        said(&vramlab(home, &[&["lesson", "--export", "twice.md"], arguments].concat()).output().unwrap())
    };
    let (questions, _, _) = sheet(&[]);
    let (answers, _, code) = sheet(&["--answers"]);
    assert_eq!(code, Some(0));
    assert!(questions.contains("- [ ] B. They double") && !questions.contains("Measured"), "{questions}");
    assert!(answers.contains("Measured: B. They double"), "{answers}");
    let (_, error, code) = said(&vramlab(home, &["lesson", "no-such"]).output().unwrap());
    assert!(error.contains("there is no lesson 'no-such'") && code == Some(2), "{error}");
}

#[test]
fn a_class_is_followed_while_it_goes_on() {
    let (home, _) = home();
    let home = home.path();
    let told = home.join("class.txt");
    let mut class = vramlab(home, &["class", "late.vram"]).stdout(File::create(&told).unwrap()).spawn().unwrap();
    let wait_for = |words: &str| {
        let told = || std::fs::read_to_string(&told).unwrap();
        patience::wait(|| told().contains(words), || format!("{words:?}: {}", told()));
    };
    wait_for("not there yet");
    spoken(home, &["lesson", "twice.md", "--as", "Late", "--record", "late.vram"], "\n\nB\n\n-\n\n");
    wait_for("Late");
    wait_for("finished");
    class.kill().unwrap();
    class.wait().unwrap();
}
