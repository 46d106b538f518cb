//! What keys and clicks do: scripts of messages against the pure state of the screen.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/lab_states.rs"]
mod lab_states;
#[path = "common/synthetic.rs"]
mod synthetic;

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::session::{Command, LabState, MemoryLimit, RunState, StepSize, Switch};
use vramlab::tui::{self, Action, App, Catalog, ColorTier, Effect, GlyphTier, Message};
use vramlab::units::Bytes;

fn app_on(state: LabState) -> App {
    let catalog = Catalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    app.update(Message::Lab(Arc::new(state)));
    app
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Message {
    Message::Key(KeyEvent::new(code, modifiers))
}

fn typed(app: &mut App, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|symbol| app.update(key(KeyCode::Char(symbol), KeyModifiers::NONE))).collect()
}

fn drawn(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let layout = tui::draw(app, buf.area, &mut buf);
    app.update(Message::Drawn(layout));
    buf
}

fn with_run(run: RunState) -> LabState {
    LabState { run, ..lab_states::running() }
}

#[test]
fn the_processor_is_offered_where_a_gpu_was_lost_and_nowhere_else() {
    assert_eq!(typed(&mut app_on(lab_states::running()), "P"), []);
    let mut lost = app_on(with_run(RunState::Lost("cuda:0 is gone".to_owned())));
    assert_eq!(typed(&mut lost, " n.P"), [Effect::Send(Command::UseProcessor)]);
}

#[test]
fn every_switch_key_sends_its_command() {
    let mut app = app_on(lab_states::running());
    let expected = [
        Command::Next(Switch::Amp),
        Command::Next(Switch::Checkpointing),
        Command::Next(Switch::Accumulation),
        Command::Next(Switch::Pinned),
        Command::Next(Switch::Optimizer),
        Command::Next(Switch::ZeroGrad),
        Command::Next(Switch::Form),
        Command::Next(Switch::Batch),
        Command::Previous(Switch::Batch),
        Command::Next(Switch::Offload),
        Command::Next(Switch::Attention),
        Command::Next(Switch::Fuse),
        Command::Next(Switch::Tf32),
        Command::Next(Switch::Schedule),
        Command::Next(Switch::Retain),
        Command::EmptyCache,
    ];
    assert_eq!(typed(&mut app, "mcapozOBbfAFtsre"), expected.map(Effect::Send));
}

fn enter(app: &mut App) -> Vec<Effect> {
    app.update(key(KeyCode::Enter, KeyModifiers::NONE))
}

#[test]
fn a_limit_is_written_and_checked_before_it_is_sent() {
    let mut app = app_on(lab_states::running());
    assert_eq!(typed(&mut app, "L12 applesq"), [], "letters are text now, not commands");
    assert_eq!(enter(&mut app), []);
    let seen: String = drawn(&mut app, 80, 24).content().iter().map(|cell| cell.symbol()).collect();
    assert!(seen.contains("is no unit of memory"), "{seen}");
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    typed(&mut app, "5");
    typed(&mut app, "00MiBx");
    app.update(key(KeyCode::Backspace, KeyModifiers::NONE));
    assert_eq!(enter(&mut app), [Effect::Send(Command::Limit(Some(MemoryLimit::Bytes(Bytes::mib(500)))))]);
    assert_eq!(typed(&mut app, "m"), [Effect::Send(Command::Next(Switch::Amp))], "the editor is closed");
    typed(&mut app, "L");
    assert_eq!(enter(&mut app), [Effect::Send(Command::Limit(None))]);
}

#[test]
fn allocator_settings_that_pytorch_refuses_are_not_sent() {
    let mut app = app_on(lab_states::running());
    typed(&mut app, "xmax_split_size_mb:1");
    assert_eq!(enter(&mut app), []);
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    typed(&mut app, "xexpandable_segments:True");
    assert_eq!(enter(&mut app), [Effect::Send(Command::Settings("expandable_segments:True".into()))]);
    typed(&mut app, "x");
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
}

#[test]
fn a_paste_is_text_for_the_line_being_written_and_nothing_elsewhere() {
    let mut app = app_on(lab_states::running());
    let paste = |app: &mut App, text: &str| app.update(Message::Paste(text.to_owned()));
    assert_eq!(paste(&mut app, "qmmq"), []);
    typed(&mut app, "L");
    assert_eq!(paste(&mut app, "\x1b[31m"), []);
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(paste(&mut app, "51\r\n2MiB\n\u{202e}"), [], "a line end is no Enter");
    assert_eq!(enter(&mut app), [Effect::Send(Command::Limit(Some(MemoryLimit::Bytes(Bytes::mib(512)))))]);
    typed(&mut app, "x");
    paste(&mut app, &"x".repeat(1_000_000));
    drawn(&mut app, 80, 24);
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    paste(&mut app, "expandable_segments:True");
    assert_eq!(enter(&mut app), [Effect::Send(Command::Settings("expandable_segments:True".into()))]);
}

#[test]
fn space_pauses_and_goes_on() {
    assert_eq!(typed(&mut app_on(with_run(RunState::Running)), " "), [Effect::Send(Command::Pause)]);
    assert_eq!(typed(&mut app_on(with_run(RunState::Paused)), " "), [Effect::Send(Command::Resume)]);
    assert_eq!(typed(&mut app_on(with_run(RunState::OutOfMemory)), " "), [Effect::Send(Command::Resume)]);
}

#[test]
fn stepping_goes_by_op_phase_and_step() {
    let expected = [StepSize::Op, StepSize::Phase, StepSize::Step].map(|size| Effect::Send(Command::Advance(size)));
    assert_eq!(typed(&mut app_on(with_run(RunState::Paused)), ".,n"), expected);
}

#[test]
fn a_lab_that_does_not_train_takes_no_commands_but_can_be_left() {
    for run in [RunState::Starting, RunState::Finished, RunState::Failed("no".into())] {
        let mut app = app_on(with_run(run));
        assert_eq!(typed(&mut app, "mcapozeOBbfAtsrLx .,n"), []);
        assert_eq!(typed(&mut app, "q"), [Effect::Quit]);
    }
}

#[test]
fn a_switch_that_the_lab_lacks_is_said_to_be_missing() {
    let mut app = app_on(LabState { switches: Vec::new(), ..lab_states::running() });
    assert_eq!(typed(&mut app, "m"), []);
    assert_eq!(app.notice(), Some("this lab has no such switch"));
}

#[test]
fn ways_to_leave_and_to_repaint() {
    let mut app = app_on(lab_states::running());
    assert_eq!(typed(&mut app, "q"), [Effect::Quit]);
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
    assert_eq!(app.update(key(KeyCode::Char('l'), KeyModifiers::CONTROL)), [Effect::Repaint]);
    assert_eq!(app.update(key(KeyCode::Char('z'), KeyModifiers::CONTROL)), [Effect::Suspend]);
    assert_eq!(app.update(key(KeyCode::Char('q'), KeyModifiers::ALT)), []);
}

#[test]
fn help_opens_scrolls_and_closes_while_switches_go_on_working() {
    let mut app = app_on(lab_states::running());
    typed(&mut app, "?");
    drawn(&mut app, 80, 24);
    assert_eq!(app.help(), Some(0));
    typed(&mut app, "jjk");
    assert_eq!(app.help(), Some(1));
    assert_eq!(app.blocks_scroll(), 0, "the help scrolls, not the blocks below it");
    assert_eq!(typed(&mut app, "m"), [Effect::Send(Command::Next(Switch::Amp))]);
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    assert_eq!(app.help(), None);
}

#[test]
fn blocks_scroll_by_rows_and_pages_within_their_ends() {
    let mut app = app_on(lab_states::running());
    drawn(&mut app, 80, 14);
    typed(&mut app, "jj");
    drawn(&mut app, 80, 14);
    let two = app.blocks_scroll();
    assert_eq!(two, 2);
    typed(&mut app, &"k".repeat(9));
    assert_eq!(app.blocks_scroll(), 0);
    for _ in 0..50 {
        app.update(key(KeyCode::Tab, KeyModifiers::NONE));
    }
    let last = app.blocks_scroll();
    assert!(last > two);
    app.update(key(KeyCode::BackTab, KeyModifiers::SHIFT));
    assert!(app.blocks_scroll() < last);
    // All rows fit now: nothing is left to scroll.
    drawn(&mut app, 200, 100);
    assert_eq!(app.blocks_scroll(), 0);
}

#[test]
fn the_chart_zooms_and_then_stays_where_a_person_put_it() {
    let mut app = app_on(lab_states::running());
    drawn(&mut app, 120, 40);
    let level = app.chart_level();
    assert!(level > 0, "a page shows several steps");
    typed(&mut app, "[[");
    assert_eq!(app.chart_level(), level + 2);
    typed(&mut app, "+");
    app.update(Message::Lab(Arc::new(lab_states::paused())));
    drawn(&mut app, 120, 40);
    assert_eq!(app.chart_level(), level + 1);
}

#[test]
fn a_theme_that_can_not_be_had_is_told_and_passed_over() {
    let mut catalog = Catalog::default();
    catalog.insert("broken", "styles = 3");
    catalog.insert("mine", "parent = \"dark\"");
    let (theme, _) = catalog.load("contrast", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    typed(&mut app, "T");
    assert_eq!(app.theme().name(), "mine");
    assert!(app.notice().unwrap().contains("\"broken\" can't be read (line 1: "), "{:?}", app.notice());
}

#[test]
fn themes_go_round() {
    let mut app = app_on(lab_states::running());
    let mut seen = Vec::new();
    for _ in 0..4 {
        typed(&mut app, "T");
        seen.push(app.theme().name().to_owned());
    }
    assert_eq!(seen, ["light", "plain", "contrast", "dark"]);
    assert_eq!(app.notice(), Some("theme dark"));
    let later = app.next_change().unwrap();
    app.update(Message::Clock(later));
    assert_eq!(app.notice(), None);
}

#[test]
fn a_click_does_what_stands_there() {
    let mut app = app_on(lab_states::running());
    let buf = drawn(&mut app, 120, 40);
    let row = (0..40)
        .find(|&y| (0..120).map(|x| buf[(x, y)].symbol().to_owned()).collect::<String>().contains(" c checkpoint"))
        .unwrap();
    let click = |column| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    assert_eq!(app.update(click(90)), [Effect::Send(Command::Next(Switch::Checkpointing))]);
    assert_eq!(app.update(click(10)), [], "the chart is no switch");
    let mut starting = app_on(with_run(RunState::Finished));
    drawn(&mut starting, 120, 40);
    assert_eq!(starting.update(click(90)), [], "a finished lab has nothing to flip");
}

#[test]
fn while_steps_are_fast_the_fullest_moment_is_shown() {
    let mut app = app_on(lab_states::running());
    let at = |app: &mut App, millis: u64, run: RunState, step: u64| {
        app.update(Message::Clock(Duration::from_millis(millis)));
        app.update(Message::Lab(Arc::new(lab_states::state_of(lab_states::in_forward(step), run))));
    };
    let allocated = |state: &LabState| state.view.ledger.allocated();
    at(&mut app, 100, RunState::Running, 5);
    let first = allocated(app.shown());
    at(&mut app, 200, RunState::Running, 21);
    assert_eq!(allocated(app.shown()), first, "the interval is not over");
    at(&mut app, 500, RunState::Running, 21);
    assert!(allocated(app.latest()) < allocated(app.shown()), "the fullest picture of the interval");
    at(&mut app, 550, RunState::Paused, 21);
    assert_eq!(allocated(app.shown()), allocated(app.latest()), "a paused lab is shown as it is");
}

#[test]
fn nothing_changes_without_a_message() {
    let mut app = app_on(lab_states::running());
    drawn(&mut app, 120, 40);
    drawn(&mut app, 120, 40);
    assert!(!app.needs_frame());
    app.update(key(KeyCode::Char('X'), KeyModifiers::NONE));
    assert!(!app.needs_frame(), "an unbound key draws nothing");
}

#[test]
fn actions_of_the_footer_are_clickable() {
    let mut app = app_on(lab_states::running());
    let mut buf = Buffer::empty(Rect::new(0, 0, 120, 40));
    let layout = tui::draw(&app, buf.area, &mut buf);
    assert!(layout.targets.iter().any(|(_, action)| *action == Action::Quit));
    app.update(Message::Drawn(layout));
}

/// `VRAMLAB_UPDATE=1 cargo test --test keys` writes it.
#[test]
fn the_readme_has_the_key_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let (before, rest) = readme.split_once("<!-- keys -->").unwrap();
    let (_, after) = rest.split_once("<!-- /keys -->").unwrap();
    let wanted = format!("{before}<!-- keys -->\n{}<!-- /keys -->{after}", tui::keys_markdown());
    if std::env::var_os("VRAMLAB_UPDATE").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), wanted);
}
