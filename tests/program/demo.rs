//! The demo: the built-in story on its own lab, to its end; and in a terminal, as `demo.tape` has it filmed.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use portable_pty::CommandBuilder;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::device::sim::CardCatalog;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::session::{DeviceChoice, LabSpec, Parallel, Speed};
use vramlab::source::{self, Source};
use vramlab::tui::{self, App, Effect, GlyphTier, Message, Ranks, ReadingPace, Story};
use vramlab::workload;

use crate::terminal::{Session, in_environment};

/// The lab that plays a story, on the test's clock.
struct Told {
    source: Source,
    app: App,
    now: Duration,
}

impl Told {
    fn begin(pace: ReadingPace) -> Self {
        let story = Story::built_in().unwrap();
        let card = CardCatalog::with_user_cards(None).card(story.device.strip_prefix("sim:").unwrap()).unwrap();
        let entry = workload::Catalog::with_user_workloads(None).entry(&story.workload).unwrap();
        let device = DeviceChoice::Sim(Box::new(card));
        let of_ranks = |ranks: &Ranks| {
            assert_eq!(ranks.device, story.device);
            let parallel = Some(Parallel { parallelism: ranks.parallel, ranks: ranks.count });
            Ok::<_, Infallible>(LabSpec { device: device.clone(), parallel, ..LabSpec::new(entry.clone()) })
        };
        let story = story.clone().with_runs(of_ranks).unwrap();
        let source = source::live(LabSpec { device, speed: Speed::Max, ..LabSpec::new(entry) }).unwrap();
        let catalog = ThemeCatalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        let app = App::new(catalog, theme, GlyphTier::Unicode).with_story(story, pace);
        Self { source, app, now: Duration::ZERO }
    }

    fn tell(&mut self, message: Message) -> Vec<Effect> {
        let effects = self.app.update(message);
        for effect in &effects {
            if let Effect::Send(request) = effect {
                self.source.request(request.clone());
            }
        }
        effects
    }

    fn press(&mut self, code: KeyCode) -> Vec<Effect> {
        self.tell(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    /// Lets this time pass, and returns the screen of this size.
    fn after(&mut self, time: Duration, (columns, rows): (u16, u16)) -> String {
        self.now += time;
        self.tell(Message::Clock(self.now));
        let picture = self.source.pictures.borrow_and_update().clone();
        self.tell(Message::Picture(picture));
        let mut buf = Buffer::empty(Rect::new(0, 0, columns, rows));
        let layout = tui::draw(&self.app, buf.area, &mut buf);
        self.tell(Message::Drawn(layout));
        let row = |row: Rect| row.columns().map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect::<String>();
        buf.area.rows().map(row).collect::<Vec<_>>().join("\n")
    }
}

/// For each scene of the story, the words that the screen must show before it ends.
const SHOWN: [(&str, &[&str]); 8] = [
    ("Mixed precision", &["AMP off → fp16"]),
    ("Checkpointing", &["checkpoint off → on"]),
    ("Reserved is still", &["empty_cache"]),
    ("Out of memory", &["OUT OF MEMORY"]),
    ("The leak is off", &["RUNNING"]),
    ("Two simulated cards", &["ranks fsdp · 2", "fsdp, rank 0 of 2"]),
    ("Another way", &["ranks tp · 2, all do the same"]),
    ("A pipeline", &["ranks pp-gpipe · 2", "worst"]),
];

#[test]
fn the_story_comes_to_its_end_and_each_scene_shows_what_it_tells() {
    let story = Story::built_in().unwrap();
    let mut told = Told::begin(ReadingPace::Fast);
    let mut seen = vec![String::new(); story.scenes.len()];
    let (mut last, mut begun) = (0, Duration::ZERO);
    while let Some((scene, of)) = told.app.scene() {
        assert_eq!(of, story.scenes.len());
        let screen = told.after(Duration::from_millis(20), (120, 40));
        if scene > last {
            (last, begun) = (scene, told.now);
        }
        // The story may have gone on to the next scene before this frame was drawn.
        if let Some((now, _)) = told.app.scene()
            && now == scene
        {
            seen[scene - 1] = screen;
        }
        // Waiting for something that may never come takes longer.
        assert!(told.now < begun + Duration::from_secs(85), "scene {scene} waits for ever:\n{}", seen[scene - 1]);
        std::thread::sleep(Duration::from_millis(10));
    }
    for (begins, words) in SHOWN {
        let place = story.scenes.iter().position(|scene| scene.caption.starts_with(begins)).unwrap();
        for word in words {
            assert!(seen[place].contains(word), "{word}:\n{}", seen[place]);
        }
    }
    let after = told.after(Duration::from_millis(10), (120, 40));
    assert!(!after.contains("demo ") && after.contains("RUNNING"), "the lab goes on without captions:\n{after}");
    assert!(told.press(KeyCode::Char('q')).contains(&Effect::Quit));
}

#[test]
fn a_person_stops_the_story_has_the_lab_and_leaves() {
    let mut told = Told::begin(ReadingPace::Normal);
    for size in [(80, 24), (120, 40), (200, 60), (60, 16)] {
        let screen = told.after(Duration::from_millis(100), size);
        assert!(screen.contains("demo 1/") && screen.contains("GPT-2 trains on a simulated"), "{size:?}:\n{screen}");
    }
    assert!(told.press(KeyCode::Char('m')).is_empty(), "keys are the story's");
    assert!(told.after(Duration::ZERO, (120, 40)).contains("the demo presses the keys now; space stops it"));
    told.press(KeyCode::Char(' '));
    let stopped = told.after(Duration::from_secs(600), (120, 40));
    assert!(stopped.contains("demo 1/") && stopped.contains("the lab is yours"), "time does not count:\n{stopped}");
    assert!(!told.press(KeyCode::Char('?')).contains(&Effect::Quit));
    assert!(told.after(Duration::ZERO, (120, 40)).contains("[keys]"), "the help is open");
    told.press(KeyCode::Esc);
    told.press(KeyCode::Char(' '));
    assert!(!told.after(Duration::ZERO, (120, 40)).contains("the lab is yours"));
    assert!(told.press(KeyCode::Char('q')).contains(&Effect::Quit));
}

/// The longest that a shell may take to end.
const END: Duration = Duration::from_secs(2);

/// Does what a tape for VHS does, as far as `demo.tape` uses it: types keys into a shell, and waits for texts, which
/// must come. VHS makes the pictures. No test of the program takes longer, nearly all of it at a reader's pace: it stands
/// in a module with an early name, because tests begin in the order of their names and others go on beside it.
#[test]
fn the_tape_plays_to_its_end() {
    let tape = include_str!("../../demo.tape");
    let folder = Path::new(env!("CARGO_BIN_EXE_vramlab")).parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = in_environment(CommandBuilder::new("/bin/bash"), &[("PATH", &path), ("PS1", "> ")]);
    shell.args(["--norc", "--noprofile"]);
    let mut terminal = Session::start(shell, 120, 40);
    let mut waited = 0;
    for line in tape.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "Output" | "Set" | "Env" | "Hide" | "Show" | "Sleep" | "Screenshot" => {}
            "Require" => assert!(Path::new(&folder).join(rest).exists(), "{line}"),
            "Type" => terminal.press(rest.trim_matches('"')),
            "Enter" => terminal.press("\r"),
            // What is typed before the shell has its terminal back may still be read by the program.
            "Wait" => terminal
                .wait_for("prompt", |screen| !screen.alternate_screen() && screen.contents().trim_end().ends_with('>')),
            "Wait+Screen" => {
                let pattern = regex_lite::Regex::new(rest.trim_matches('/')).unwrap();
                terminal.wait_for(line, |screen| pattern.is_match(&screen.contents()));
                waited += 1;
            }
            other => panic!("{other} is no command that this test knows"),
        }
    }
    assert!(waited > 5);
    terminal.press("exit\r");
    assert_eq!(terminal.wait_for_end(END).exit_code(), 0);
    terminal.assert_restored();
}
