//! The effects of keys and clicks: scripts of messages against the pure state of the screen.

mod palette;

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::model::RunState;
use vramlab::recording::Direction::{Backward, Forward};
use vramlab::session::{Command, FlipDirection, StepSize, Switch};
use vramlab::source::{Cursor, Landmark, Move, MoveUnit, Picture, Request};
use vramlab::tui::{self, Action, App, Effect, FrameLayout, GlyphTier, Message};

fn app_on(state: Picture) -> App {
    let catalog = ThemeCatalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    app.update(Message::Picture(Arc::new(state)));
    app
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Message {
    Message::Key(KeyEvent::new(code, modifiers))
}

fn typed(app: &mut App, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|symbol| app.update(key(KeyCode::Char(symbol), KeyModifiers::NONE))).collect()
}

fn draw(app: &mut App, width: u16, height: u16) -> (Buffer, FrameLayout) {
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let layout = tui::draw(app, buf.area, &mut buf);
    app.update(Message::Drawn(layout.clone()));
    (buf, layout)
}

fn drawn(app: &mut App, width: u16, height: u16) -> Buffer {
    draw(app, width, height).0
}

fn with_run(run: RunState) -> Picture {
    crate::lab_states::with_run(crate::lab_states::running(), run)
}

fn lab(command: Command) -> Effect {
    Effect::Send(Request::Lab(command))
}

fn go(to: Move) -> Effect {
    Effect::Send(Request::Move(to))
}

fn switch(word: &str) -> Switch {
    Switch::named(word).unwrap()
}

fn flip(word: &str) -> Effect {
    lab(Command::Flip(switch(word), FlipDirection::Next))
}

fn set(word: &str, value: &str) -> Effect {
    lab(Command::Set(switch(word), value.into()))
}

#[test]
fn the_processor_is_offered_where_a_gpu_was_lost_and_nowhere_else() {
    assert_eq!(typed(&mut app_on(crate::lab_states::running()), "P"), []);
    let mut lost = app_on(with_run(RunState::Lost("cuda:0 is gone".into())));
    assert_eq!(typed(&mut lost, " n.P"), [lab(Command::UseProcessor)]);
}

#[test]
fn ranks_go_to_another_way_of_parallelism_and_one_device_does_not() {
    assert_eq!(typed(&mut app_on(crate::lab_states::running()), "W"), []);
    let mut ranks = crate::lab_states::running();
    ranks.ranks = vec![vramlab::source::RankFigures::default(); 2].into();
    assert_eq!(typed(&mut app_on(ranks), "W"), [lab(Command::NextWay)]);
}

#[test]
fn every_switch_key_sends_its_command() {
    let mut app = app_on(crate::lab_states::running());
    let mut expected: Vec<Effect> =
        ["amp", "ckpt", "accum", "pin", "opt", "zero-grad", "opt-form", "batch"].map(flip).into();
    expected.push(lab(Command::Flip(switch("batch"), FlipDirection::Previous)));
    expected.extend(["offload", "attention", "fuse", "tf32", "schedule", "retain", "on-oom"].map(flip));
    expected.push(lab(Command::EmptyCache));
    expected.push(lab(Command::ResetPeaks));
    assert_eq!(typed(&mut app, "mcapozOBbfAFtsrXeE"), expected);
    // There are no others than those and the typed ones.
    for switch in Switch::levers().chain([switch("batch")]) {
        let sent = typed(&mut app_on(crate::lab_states::running()), &switch.key().to_string());
        assert_eq!(sent, [lab(Command::Flip(switch, FlipDirection::Next))], "{switch:?}");
    }
}

#[test]
fn a_switch_that_changes_nothing_here_is_flipped_and_said_to_be_idle() {
    let mut app = app_on(crate::lab_states::running());
    assert_eq!(typed(&mut app, "t"), [flip("tf32")]);
    assert_eq!(app.notice(), Some("changes nothing here: the processor has no TF32"));
    let mut app = app_on(crate::lab_states::on_gpu());
    assert_eq!(typed(&mut app, "t"), [flip("tf32")]);
    assert_eq!(app.notice(), None);
}

fn enter(app: &mut App) -> Vec<Effect> {
    app.update(key(KeyCode::Enter, KeyModifiers::NONE))
}

#[test]
fn a_limit_is_written_and_checked_before_it_is_sent() {
    let mut app = app_on(crate::lab_states::running());
    assert_eq!(typed(&mut app, "L12 applesq"), [], "letters are text now, not commands");
    assert_eq!(enter(&mut app), []);
    let seen: String = drawn(&mut app, 80, 24).content().iter().map(|cell| cell.symbol()).collect();
    assert!(seen.contains("is no unit of memory"), "{seen}");
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    typed(&mut app, "5");
    typed(&mut app, "00MiBx");
    app.update(key(KeyCode::Backspace, KeyModifiers::NONE));
    assert_eq!(enter(&mut app), [set("limit", "500MiB")]);
    assert_eq!(typed(&mut app, "m"), [flip("amp")], "the editor is closed");
    typed(&mut app, "L");
    assert_eq!(enter(&mut app), [set("limit", "")]);
}

#[test]
fn allocator_settings_that_pytorch_refuses_are_not_sent() {
    let mut app = app_on(crate::lab_states::running());
    typed(&mut app, "xmax_split_size_mb:1");
    assert_eq!(enter(&mut app), []);
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    typed(&mut app, "xexpandable_segments:True");
    assert_eq!(enter(&mut app), [set("alloc-conf", "expandable_segments:True")]);
    typed(&mut app, "x");
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
}

#[test]
fn a_paste_is_text_for_the_line_being_written_and_nothing_elsewhere() {
    let mut app = app_on(crate::lab_states::running());
    let paste = |app: &mut App, text: &str| app.update(Message::Paste(text.to_owned()));
    assert_eq!(paste(&mut app, "qmmq"), []);
    typed(&mut app, "L");
    assert_eq!(paste(&mut app, "\x1b[31m"), []);
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(paste(&mut app, "51\r\n2MiB\n\u{202e}"), [], "a line end is no Enter");
    assert_eq!(enter(&mut app), [set("limit", "512MiB")]);
    typed(&mut app, "x");
    paste(&mut app, &"x".repeat(1_000_000));
    drawn(&mut app, 80, 24);
    app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
    paste(&mut app, "expandable_segments:True");
    assert_eq!(enter(&mut app), [set("alloc-conf", "expandable_segments:True")]);
}

#[test]
fn space_pauses_and_goes_on() {
    let space = |picture| typed(&mut app_on(picture), " ");
    assert_eq!(space(with_run(RunState::Running)), [lab(Command::Pause)]);
    assert_eq!(space(with_run(RunState::Paused)), [lab(Command::Resume)]);
    assert_eq!(space(with_run(RunState::OutOfMemory)), [go(Move::Now), lab(Command::Resume)]);
    assert_eq!(space(with_run(RunState::StepFailed("no".into()))), [lab(Command::Resume)]);
    let paused = crate::lab_states::with_run(crate::lab_states::looking_back(), RunState::Paused);
    assert_eq!(space(paused), [go(Move::Now), lab(Command::Resume)], "a stopped lab goes on from where it is");
}

#[test]
fn space_plays_what_has_happened() {
    assert_eq!(typed(&mut app_on(crate::lab_states::recorded()), " "), [Effect::Send(Request::TogglePlay)]);
    assert_eq!(typed(&mut app_on(crate::lab_states::looking_back()), " "), [Effect::Send(Request::TogglePlay)]);
    let faster = |keys| typed(&mut app_on(crate::lab_states::recorded()), keys);
    assert_eq!(faster("<>"), [Effect::Send(Request::Faster(0.5)), Effect::Send(Request::Faster(2.0))]);
    assert_eq!(typed(&mut app_on(crate::lab_states::running()), "<>"), [], "what happens now has its own speed");
}

#[test]
fn stepping_goes_by_op_phase_and_step() {
    let expected = [StepSize::Op, StepSize::Phase, StepSize::Step].map(|size| lab(Command::Advance(size)));
    assert_eq!(typed(&mut app_on(with_run(RunState::Paused)), ".,n"), expected);
    // In the past, the cursor steps.
    let expected = [MoveUnit::Op, MoveUnit::Phase, MoveUnit::Step].map(|unit| go(Move::By(unit, Forward)));
    assert_eq!(typed(&mut app_on(crate::lab_states::recorded()), ".,n"), expected);
    assert_eq!(typed(&mut app_on(crate::lab_states::looking_back()), ".,n"), expected);
}

#[test]
fn the_cursor_goes_by_op_and_step_to_landmarks_and_back_to_now() {
    let mut app = app_on(crate::lab_states::looking_back());
    let expected = [
        Move::By(MoveUnit::Op, Backward),
        Move::By(MoveUnit::Op, Forward),
        Move::By(MoveUnit::Step, Backward),
        Move::By(MoveUnit::Step, Forward),
        Move::Jump(Landmark::Flip, Backward),
        Move::Jump(Landmark::Flip, Forward),
        Move::Start,
        Move::Now,
    ];
    assert_eq!(typed(&mut app, "hl(){}H$"), expected.map(go));
    let named = [KeyCode::Left, KeyCode::Right, KeyCode::PageUp, KeyCode::PageDown, KeyCode::Home, KeyCode::End];
    let sent: Vec<Effect> = named.iter().flat_map(|code| app.update(key(*code, KeyModifiers::NONE))).collect();
    let [back, on, step_back, step_on, _, _, start, now] = expected.map(go);
    assert_eq!(sent, [back, on, step_back, step_on, start, now.clone()]);
    assert_eq!(app.update(key(KeyCode::Esc, KeyModifiers::NONE)), [now]);
    let mut running = app_on(crate::lab_states::running());
    assert_eq!(
        typed(&mut running, "h"),
        [go(Move::By(MoveUnit::Op, Backward))],
        "a lab that runs can be looked back into"
    );
    assert_eq!(typed(&mut running, "G"), [], "and is at its end already");
    assert_eq!(running.update(key(KeyCode::Esc, KeyModifiers::NONE)), []);
}

#[test]
fn going_to_a_place_is_one_key_more_or_a_number() {
    let mut app = app_on(crate::lab_states::recorded());
    let places = [
        ("gp", Move::Jump(Landmark::Peak, Forward)),
        ("gf", Move::Jump(Landmark::Flip, Forward)),
        ("gF", Move::Jump(Landmark::Flip, Backward)),
        ("go", Move::Jump(Landmark::OutOfMemory, Forward)),
        ("gO", Move::Jump(Landmark::OutOfMemory, Backward)),
        ("gi", Move::Jump(Landmark::Finding, Forward)),
        ("gs", Move::Start),
        ("gn", Move::Now),
    ];
    for (keys, to) in places {
        assert_eq!(typed(&mut app, keys), [go(to)], "{keys}");
    }
    assert_eq!(typed(&mut app, "g127"), []);
    app.update(key(KeyCode::Backspace, KeyModifiers::NONE));
    assert_eq!(enter(&mut app), [go(Move::Step(12))]);
    // If nothing was typed, or the line was left, the cursor stays, and keys are commands again.
    typed(&mut app, "g");
    assert_eq!(enter(&mut app), []);
    typed(&mut app, "g99");
    assert_eq!(app.update(key(KeyCode::Esc, KeyModifiers::NONE)), []);
    assert_eq!(typed(&mut app, "."), [go(Move::By(MoveUnit::Op, Forward))]);
}

#[test]
fn a_failed_request_is_looked_at_where_it_failed_once() {
    let failed = || Arc::new(crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory));
    let position = failed().view.autopsy.as_ref().unwrap().position;
    let mut app = app_on(crate::lab_states::running());
    assert_eq!(app.update(Message::Picture(failed())), [go(Move::To(position + 1))]);
    assert_eq!(app.update(Message::Picture(failed())), [], "a person who goes back to now stays there");
    let mut recorded = app_on(crate::lab_states::recorded());
    let past = Picture { cursor: Cursor::At(7), ..(*failed()).clone() };
    assert_eq!(recorded.update(Message::Picture(Arc::new(past))), [], "nobody is moved who looks elsewhere");
}

#[test]
fn what_a_source_can_not_do_is_said() {
    for (keys, why) in [
        ("m", "a recording can't be changed"),
        ("e", "a recording can't be changed"),
        ("L", "a recording can't be changed"),
        ("R", "this is a recording already"),
    ] {
        let mut app = app_on(crate::lab_states::recorded());
        assert_eq!(typed(&mut app, keys), [], "{keys}");
        assert_eq!(app.notice(), Some(why), "{keys}");
    }
    assert_eq!(typed(&mut app_on(crate::lab_states::running()), "R"), [Effect::Send(Request::ToggleRecording)]);
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
    let mut app =
        app_on(crate::lab_states::edited(crate::lab_states::running(), |view| view.settings = Arc::default()));
    assert_eq!(typed(&mut app, "m"), []);
    assert_eq!(app.notice(), Some("this lab has no such switch"));
}

#[test]
fn ways_to_leave_and_to_repaint() {
    let mut app = app_on(crate::lab_states::running());
    assert_eq!(typed(&mut app, "q"), [Effect::Quit]);
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
    assert_eq!(app.update(key(KeyCode::Char('l'), KeyModifiers::CONTROL)), [Effect::Repaint]);
    assert_eq!(app.update(key(KeyCode::Char('z'), KeyModifiers::CONTROL)), [Effect::Suspend]);
    assert_eq!(app.update(key(KeyCode::Char('q'), KeyModifiers::ALT)), []);
}

/// Everything that a key opens, or two of them in a row: whatever lies over the screen can be left.
#[test]
fn every_layer_is_left_by_escape_and_q_and_by_ctrl_c() {
    let start = app_on(crate::lab_states::running());
    let fresh = || start.clone();
    let symbols: Vec<char> = (' '..='~').filter(|symbol| *symbol != 'q').collect();
    let presses = |app: &mut App, first: char, second: Option<char>, text: bool| {
        typed(app, &first.to_string());
        if text {
            app.update(Message::Paste("paste".to_owned()));
        }
        second.is_some_and(|second| typed(app, &second.to_string()).contains(&Effect::Quit))
    };
    for &first in &symbols {
        for second in symbols.iter().copied().map(Some).chain([None]) {
            let text = second.is_none();
            let mut app = fresh();
            if presses(&mut app, first, second, text) {
                continue;
            }
            let keys = [Some(first), second];
            // In front of an audience the first one asks.
            let ctrl_c = |app: &mut App| app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
            let out = [ctrl_c(&mut app), ctrl_c(&mut app)].concat();
            assert!(out.contains(&Effect::Quit), "Ctrl-C after {keys:?}: {out:?}");
            let mut app = fresh();
            presses(&mut app, first, second, text);
            // One layer may lie over another.
            let left = (0..4).any(|_| {
                app.update(key(KeyCode::Esc, KeyModifiers::NONE));
                typed(&mut app, "qq").contains(&Effect::Quit)
            });
            assert!(left, "Esc and q after {keys:?}");
        }
    }
}

#[test]
fn help_opens_scrolls_and_closes_while_switches_go_on_working() {
    let mut app = app_on(crate::lab_states::running());
    let without = drawn(&mut app, 80, 24);
    typed(&mut app, "?");
    let (help, layout) = draw(&mut app, 80, 24);
    assert!(layout.layer_rows.0 > layout.layer_rows.1 && layout.layer_rows.1 > 0, "{:?}", layout.layer_rows);
    assert_eq!(layout.targets, [], "what lies below takes no clicks");
    typed(&mut app, "jjk");
    assert_ne!(drawn(&mut app, 80, 24), help);
    typed(&mut app, "k");
    assert_eq!(drawn(&mut app, 80, 24), help);
    assert_eq!(typed(&mut app, "m"), [flip("amp")]);
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    assert_eq!(drawn(&mut app, 80, 24), without, "and what lies below was not scrolled");
}

#[test]
fn findings_open_and_close_with_one_key() {
    let mut app = app_on(crate::lab_states::running());
    let without = drawn(&mut app, 80, 24);
    typed(&mut app, "w");
    assert!(draw(&mut app, 80, 24).1.layer_rows.0 > 0);
    typed(&mut app, "w");
    assert_eq!(drawn(&mut app, 80, 24), without);
}

#[test]
fn the_list_of_themes_shows_each_at_once_and_keeps_or_gives_back() {
    let mut app = app_on(crate::lab_states::running());
    typed(&mut app, "T");
    assert_eq!(app.theme().name(), "dark");
    typed(&mut app, "j");
    assert_eq!(app.theme().name(), "light", "worn before it is kept");
    typed(&mut app, "Gjk");
    assert_eq!(app.theme().name(), "gruvbox");
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    assert_eq!(app.theme().name(), "dark");
    assert_eq!(typed(&mut app, "m"), [flip("amp")], "the list is closed");
    typed(&mut app, "Tj");
    assert_eq!(enter(&mut app), [Effect::KeepTheme("light".to_owned())]);
    assert_eq!(app.theme().name(), "light");
    assert_eq!(typed(&mut app, "m"), [flip("amp")]);
    // After as many presses as there are themes, it is back at the first, however many there are.
    let themes = ThemeCatalog::default().names().count();
    typed(&mut app, &"T".repeat(themes + 1));
    assert_eq!(app.theme().name(), "light");
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
}

#[test]
fn a_theme_that_can_not_be_had_is_told_in_the_list_and_not_worn() {
    let mut catalog = ThemeCatalog::default();
    catalog.insert("broken", "styles = 3");
    let (theme, _) = catalog.load("nord", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    typed(&mut app, "TG");
    assert_eq!(app.theme().name(), "nord");
    let text = |app: &mut App, width, height| -> String {
        drawn(app, width, height).content().iter().map(|cell| cell.symbol()).collect()
    };
    assert!(text(&mut app, 80, 24).contains("line 1"), "{}", text(&mut app, 80, 24));
    assert!(text(&mut app, 50, 14).contains("broken"), "the chosen one is in sight on a small screen, too");
    enter(&mut app);
    assert!(text(&mut app, 50, 14).contains("broken"), "nothing to keep");
    typed(&mut app, "g");
    assert_eq!(app.theme().name(), "dark");
    assert!(text(&mut app, 50, 14).contains("▸ dark"));
}

fn bound(wanted: &[(&str, &str)]) -> App {
    let wanted = wanted.iter().map(|(word, key)| ((*word).to_owned(), vec![(*key).to_owned()])).collect();
    let (keys, told) = tui::standard_keys().rebound(&wanted);
    assert_eq!(told, Vec::<String>::new());
    let catalog = ThemeCatalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    App::new(catalog, theme, GlyphTier::Unicode).with_keys(keys)
}

#[test]
fn every_place_that_shows_a_key_shows_the_one_in_force() {
    let mut app = bound(&[
        ("amp", "Q"),
        ("empty-cache", "f5"),
        ("pause", "N"),
        ("findings", "f2"),
        ("help", "f1"),
        ("close", "Y"),
    ]);
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    assert_eq!(typed(&mut app, "m e"), [], "the old keys are free");
    assert_eq!(typed(&mut app, "QN"), [flip("amp"), lab(Command::Pause)]);
    let text = |app: &mut App| -> String { drawn(app, 200, 60).content().iter().map(|cell| cell.symbol()).collect() };
    let seen = text(&mut app);
    for shown in [" Q AMP", " F5 empty_cache", "N pause", "F2 why", "F1 help"] {
        assert!(seen.contains(shown), "{shown} in {seen}");
    }
    assert!(!seen.contains("space pause") && !seen.contains(" m AMP"));
    app.update(key(KeyCode::F(1), KeyModifiers::NONE));
    let help = text(&mut app);
    assert!(help.contains("F1 or Y closes") && help.contains("  Q  "), "{help}");
}

#[test]
fn an_audience_sees_keys_and_nothing_ends_by_accident() {
    let mut app = app_on(crate::lab_states::running());
    let seen = |app: &mut App| -> String { drawn(app, 80, 24).content().iter().map(|cell| cell.symbol()).collect() };
    typed(&mut app, "V");
    assert_eq!(typed(&mut app, "mr"), [flip("amp")], "the leak is off");
    assert_eq!(app.notice(), Some("presenting: the leak is off"));
    assert!(seen(&mut app).contains(" m  amp") && seen(&mut app).contains(" r  retain"), "{}", seen(&mut app));
    let gone = std::time::Duration::from_secs(9);
    app.update(Message::Clock(gone));
    assert!(!seen(&mut app).contains(" m  amp"), "after a while they go");
    assert_eq!(typed(&mut app, "q"), []);
    assert!(app.notice().unwrap().contains("again to end"));
    assert_eq!(typed(&mut app, "q"), [Effect::Quit]);
    app.update(Message::Clock(gone * 2));
    typed(&mut app, "L");
    assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [], "not even from a line being written");
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    typed(&mut app, "V");
    assert_eq!(typed(&mut app, "rq"), [flip("retain"), Effect::Quit], "without an audience all is as before");
}

#[test]
fn with_reduced_motion_no_effect_is_loud() {
    let loud = |calm| {
        let mut app = bound(&[]).with_manners(calm, false);
        app.update(Message::Picture(Arc::new(crate::lab_states::running())));
        app.effect_is_loud()
    };
    assert!(loud(false) && !loud(true));
}

#[test]
fn a_click_does_what_stands_there() {
    let mut app = app_on(crate::lab_states::running());
    let (buf, layout) = draw(&mut app, 120, 40);
    let row = (0..40)
        .find(|&y| (0..120).map(|x| buf[(x, y)].symbol().to_owned()).collect::<String>().contains(" c checkpoint"))
        .unwrap();
    let click = |column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    assert_eq!(app.update(click(90, row)), [flip("ckpt")]);
    let areas = || layout.targets.iter().map(|(area, _)| area).chain(layout.charts.iter().map(|(area, _)| area));
    let nothing = buf.area.positions().find(|&position| !areas().any(|area| area.contains(position))).unwrap();
    assert_eq!(app.update(click(nothing.x, nothing.y)), [], "nothing stands there");
    let mut finished = app_on(with_run(RunState::Finished));
    drawn(&mut finished, 120, 40);
    assert_eq!(finished.update(click(90, row)), [], "a finished lab has nothing to flip");
}

#[test]
fn a_click_into_a_chart_goes_to_that_moment() {
    let mut app = app_on(crate::lab_states::running());
    let (_, layout) = draw(&mut app, 120, 40);
    let click = |column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    for (area, chart) in &layout.charts {
        assert!(!area.is_empty(), "{chart:?}");
        let moment = |app: &mut App, column: u16| match &*app.update(click(area.x + column, area.y)) {
            [Effect::Send(Request::Move(Move::To(position)))] => *position,
            other => panic!("{chart:?}: {other:?}"),
        };
        let (first, later) = (moment(&mut app, 0), moment(&mut app, area.width / 3));
        assert!(first > 0 && first < later, "{chart:?}: {first} and {later}");
        assert!(later <= app.latest().extent.end);
    }
    assert_eq!(layout.charts.len(), 2);
}

/// The text that the keys copy to the clipboard.
fn copied(app: &mut App, keys: &str) -> String {
    match &*typed(app, keys) {
        [Effect::Copy(text)] => text.clone(),
        other => panic!("{keys}: {other:?}"),
    }
}

#[test]
fn every_screen_has_something_to_copy() {
    let mut app = app_on(crate::lab_states::running());
    for (screen, begins) in [("1", "gpt-char on"), ("2", "all segments of gpt-char"), ("3", "gpt-char on")] {
        typed(&mut app, screen);
        assert!(copied(&mut app, "yy").starts_with(begins), "screen {screen}");
        assert!(app.notice().unwrap().starts_with(&format!("copied: {begins}")), "{:?}", app.notice());
        drawn(&mut app, 80, 24);
    }
    // The selection there: the largest block.
    typed(&mut app, "2#");
    let block = copied(&mut app, "yy");
    assert!(block.starts_with("block of gpt-char") && block.contains("\nsize: "), "{block}");
    typed(&mut app, "5");
    assert!(copied(&mut app, "yy").contains("\nallocated "));
    assert!(copied(&mut app, "yc").starts_with("vramlab run gpt-char --device cpu"));
    let findings = app.latest().findings().into_owned();
    assert!(copied(&mut app, "yf").starts_with(&findings[0].to_string()), "with nothing selected, the first");
    assert_eq!(typed(&mut app, "yz"), [], "no text has that key");
    assert_eq!(typed(&mut app, "q"), [], "it closes the menu");
    assert_eq!(typed(&mut app, "q"), [Effect::Quit]);
}

#[test]
fn nothing_changes_without_a_message() {
    let mut app = app_on(crate::lab_states::running());
    drawn(&mut app, 120, 40);
    drawn(&mut app, 120, 40);
    assert!(!app.needs_frame());
    app.update(key(KeyCode::Char('Y'), KeyModifiers::NONE));
    assert!(!app.needs_frame(), "an unbound key draws nothing");
}

#[test]
fn actions_of_the_footer_are_clickable() {
    let mut app = app_on(crate::lab_states::running());
    let mut buf = Buffer::empty(Rect::new(0, 0, 120, 40));
    let layout = tui::draw(&app, buf.area, &mut buf);
    assert!(layout.targets.iter().any(|(_, action)| *action == Action::Quit));
    app.update(Message::Drawn(layout));
}

#[test]
fn the_guide_has_the_key_table() {
    let command = "VRAMLAB_UPDATE=1 cargo test --test screens keys writes it";
    crate::made::assert_part("lab/guide/keys.md", "keys", &tui::keys_markdown(), command);
}

fn shown(app: &mut App, width: u16, height: u16) -> String {
    let buf = drawn(app, width, height);
    let rows = buf.area.rows().map(|row| row.columns().map(|cell| buf[(cell.x, cell.y)].symbol()).collect::<String>());
    rows.collect::<Vec<_>>().join("\n")
}

fn click(app: &mut App, button: MouseButton, column: u16, row: u16) {
    let kind = MouseEventKind::Down(button);
    app.update(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
}

#[test]
fn help_opens_at_the_panel_under_the_mouse_with_its_words() {
    let mut app = app_on(crate::lab_states::running());
    let (_, layout) = draw(&mut app, 120, 40);
    let (area, _) = *layout.panels.iter().find(|(_, panel)| *panel == tui::Panel::Switches).unwrap();
    let first = |app: &mut App| shown(app, 120, 40).lines().take(2).collect::<String>();
    let opened = |text: &str| text.contains("[words]") && text.contains("switches");
    click(&mut app, MouseButton::Right, area.x + 1, area.y);
    assert!(opened(&first(&mut app)), "{}", first(&mut app));
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    drawn(&mut app, 120, 40);
    // The mouse is still there.
    typed(&mut app, "?");
    assert!(opened(&first(&mut app)), "{}", first(&mut app));
    app.update(key(KeyCode::Tab, KeyModifiers::NONE));
    assert!(shown(&mut app, 120, 40).contains("[keys]"));
    typed(&mut app, "?2?");
    assert!(shown(&mut app, 120, 40).contains("[keys]"), "on another screen it has been nowhere yet");
}

#[test]
fn keys_and_words_are_searched_together_as_one_types() {
    let mut app = app_on(crate::lab_states::running());
    drawn(&mut app, 120, 40);
    typed(&mut app, "?/strandedq");
    assert!(shown(&mut app, 120, 40).contains("no key and no word says that"), "letters are text while one searches");
    app.update(key(KeyCode::Backspace, KeyModifiers::NONE));
    let found = shown(&mut app, 120, 40);
    assert!(
        found.contains("inactive_split_bytes") && found.contains("of reserved") && found.contains("keys ·"),
        "{found}"
    );
    app.update(key(KeyCode::Esc, KeyModifiers::NONE));
    assert!(shown(&mut app, 120, 40).contains("[keys]"), "the search is over, the help is still there");
}

#[test]
fn what_lies_over_a_screen_scrolls_with_keys_of_its_own_and_they_can_be_others() {
    let wanted = [("dialog-next", "f2"), ("dialog-cancel", "f3"), ("dialog-apply", "f4"), ("help", "f1")];
    let wanted = wanted.into_iter().map(|(word, key)| (word.to_owned(), vec![key.to_owned()])).collect();
    let (keys, told) = tui::standard_keys().rebound(&wanted);
    assert_eq!(told, Vec::<String>::new());
    let f = |number| key(KeyCode::F(number), KeyModifiers::NONE);
    let mut app = app_on(crate::lab_states::running()).with_keys(keys);
    app.update(f(1));
    let before = shown(&mut app, 80, 24);
    app.update(f(2));
    assert_ne!(shown(&mut app, 80, 24), before);
    app.update(f(1));
    // The list of themes says which keys it takes.
    typed(&mut app, "T");
    assert!(shown(&mut app, 80, 24).contains("F4 keeps, F3 cancels"));
    app.update(f(2));
    assert!(matches!(app.update(f(4))[..], [Effect::KeepTheme(_)]));
    typed(&mut app, "L5");
    app.update(f(3));
    assert_eq!(typed(&mut app, "m"), [flip("amp")], "the editor is closed");
    // On a screen that selects with j, the help scrolls and nothing is selected below it.
    let mut app = app_on(crate::lab_states::running());
    typed(&mut app, "5");
    let below = shown(&mut app, 80, 24);
    typed(&mut app, "?");
    let help = shown(&mut app, 80, 24);
    typed(&mut app, "j");
    assert_ne!(shown(&mut app, 80, 24), help);
    typed(&mut app, "?");
    assert_eq!(shown(&mut app, 80, 24), below);
}

#[test]
fn an_audience_gets_large_figures_and_a_small_terminal_keeps_its_rows() {
    let mut app = app_on(crate::lab_states::running());
    let plain = shown(&mut app, 120, 40);
    typed(&mut app, "V");
    let large = shown(&mut app, 120, 40);
    assert!(
        !plain.contains("allocated at the peak, MiB")
            && large.contains("allocated at the peak, MiB")
            && large.contains("ms a step"),
        "{large}"
    );
    let digits = |text: &str| text.lines().skip(3).take(5).all(|line| line.trim_start().starts_with("██"));
    assert!(digits(&large) && !digits(&plain), "{large}");
    let has_air = |screen: &str| screen.lines().nth(2).is_some_and(|row| row.trim().is_empty());
    assert!(has_air(&large), "a row of air below the header:\n{large}");
    let small = shown(&mut app, 80, 24);
    assert!(small.contains("reserved") && small.matches("at the peak, MiB").count() == 2, "{small}");
    assert!(has_air(&small), "a row of air below the header:\n{small}");
    assert!(!shown(&mut app, 60, 20).contains("at the peak, MiB"));
}
