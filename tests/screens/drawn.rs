//! What the Lab screen looks like: whole frames at several sizes, colour and glyph tiers and states of a lab.
//!
//! A snapshot is the text of the frame; those named `…_styles` add every run of equal style.

mod apart;
mod frames;
mod ghosts;
mod heights;
mod ranks;
mod stacks;
mod units;

use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ghosts::haunted_at_the_peak;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog, Token};
use vramlab::model::{
    DeviceKind, Event, EventKind, Evidence, Finding, Gain, Grouping, KeptLine, Lab, LeakCause, Level, LogLine, Micros,
    Occupancy, Remedy, RunState, Study, Trial, View,
};
use vramlab::session;
use vramlab::source::{Cursor, Ghost, Move, Picture, Request, SourceKind};
use vramlab::tui::{self, App, Effect, GlyphTier, Message};
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::whatif::{Conditions, Follower, Places, StartState};

/// The sizes at which every screen is looked at.
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn app(theme: &str, color: ColorTier, glyphs: GlyphTier) -> App {
    let catalog = ThemeCatalog::default();
    let (theme, warnings) = catalog.load(theme, color).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    App::new(catalog, theme, glyphs)
}

fn dark() -> App {
    app("dark", ColorTier::True, GlyphTier::Unicode)
}

/// Draws until the layout has settled: the chart chooses its zoom from the width it was drawn at.
fn draw(app: &mut App, width: u16, height: u16) -> Buffer {
    loop {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        let layout = tui::draw(app, area, &mut buf);
        app.update(Message::Drawn(layout));
        if !app.needs_frame() {
            return buf;
        }
    }
}

fn frame(mut app: App, state: Picture, width: u16, height: u16) -> Buffer {
    app.update(Message::Picture(Arc::new(state)));
    draw(&mut app, width, height)
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        app.update(Message::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
    }
}

fn text(buf: &Buffer) -> String {
    let rows = buf.area.rows().map(|row| {
        let line: String = row.columns().map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect();
        line.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn styles(buf: &Buffer) -> String {
    let mut out = text(buf);
    out.push_str("\n\n");
    let mut before = None;
    for position in buf.area.positions() {
        let cell = &buf[position];
        let style = (cell.fg, cell.bg, cell.modifier);
        if before != Some(style) {
            writeln!(out, "{},{}: {} on {} {:?}", position.x, position.y, cell.fg, cell.bg, cell.modifier).unwrap();
            before = Some(style);
        }
    }
    out
}

#[test]
fn running_at_80x24() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 80, 24)));
}

#[test]
fn running_at_120x40() {
    insta::assert_snapshot!(styles(&frame(dark(), crate::lab_states::running(), 120, 40)));
}

#[test]
fn running_at_200x60() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 200, 60)));
}

#[test]
fn running_at_40x12() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 40, 12)));
}

/// One chart that can be read, not two that can't.
#[test]
fn running_at_60x20() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 60, 20)));
}

#[test]
fn running_at_50x14() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 50, 14)));
}

#[test]
fn out_of_memory_at_80x24() {
    let state = crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory);
    insta::assert_snapshot!(text(&frame(dark(), state, 80, 24)));
}

/// While steps go by it is what findings tell, of the end of a step; where nothing moves it is what the map shows.
#[test]
fn what_empty_cache_would_return_is_of_a_moment_that_is_named() {
    let state = crate::lab_states::edited(crate::lab_states::running(), |view| {
        view.rested.releasable = vramlab::units::Bytes::mib(52);
        view.ledger.releasable = vramlab::units::Bytes::mib(22);
    });
    let running = text(&frame(dark(), state.clone(), 120, 40));
    assert!(running.contains("empty_cache 52 MiB") && running.contains("e returns it when the step ends"), "{running}");
    let paused = text(&frame(dark(), crate::lab_states::with_run(state, RunState::Paused), 120, 40));
    assert!(paused.contains("empty_cache 22 MiB") && paused.contains("e returns it now"), "{paused}");
}

#[test]
fn on_a_gpu_at_80x24() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::on_gpu(), 80, 24)));
}

#[test]
fn on_a_gpu_at_100x30() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::on_gpu(), 100, 30)));
}

#[test]
fn on_a_gpu_at_120x40() {
    insta::assert_snapshot!(styles(&frame(dark(), crate::lab_states::on_gpu(), 120, 40)));
}

#[test]
fn on_a_gpu_at_200x60() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::on_gpu(), 200, 60)));
}

#[test]
fn on_a_gpu_without_colour_in_ascii() {
    let buf = frame(app("dark", ColorTier::None, GlyphTier::Ascii), crate::lab_states::on_gpu(), 120, 40);
    assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
    insta::assert_snapshot!(text(&buf));
}

#[test]
fn a_gpu_that_tells_little_is_shown_with_what_it_tells() {
    let state = crate::lab_states::edited(crate::lab_states::on_gpu(), |view| {
        view.gpu = Some(Arc::new(vramlab::model::Reading { busy: Some(3), ..Default::default() }));
    });
    for (width, height) in SIZES {
        let text = text(&frame(dark(), state.clone(), width, height));
        assert!(text.contains("GPU") && text.contains("3 %"), "{width}×{height}:\n{text}");
    }
}

#[test]
fn too_small() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::running(), 30, 8)));
}

#[test]
fn ascii_without_colour() {
    let buf = frame(app("dark", ColorTier::None, GlyphTier::Ascii), crate::lab_states::running(), 100, 30);
    assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
    insta::assert_snapshot!(styles(&buf));
}

#[test]
fn sixteen_colours() {
    insta::assert_snapshot!(styles(&frame(
        app("dark", ColorTier::Ansi, GlyphTier::Unicode),
        crate::lab_states::paused(),
        80,
        24
    )));
}

#[test]
fn help_at_120x40() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    press(&mut app, "?");
    insta::assert_snapshot!(text(&draw(&mut app, 120, 40)));
}

#[test]
fn help_scrolls_at_80x24() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    press(&mut app, "?");
    draw(&mut app, 80, 24);
    press(&mut app, &"j".repeat(100));
    insta::assert_snapshot!(text(&draw(&mut app, 80, 24)));
}

/// What a key does is said in a whole sentence, a short one where the help has two columns.
#[test]
fn no_key_is_explained_by_a_part_of_a_sentence() {
    // The columns of the help, and cells of a description.
    for ((width, height), columns, room) in [((80, 24), vec![2], 64), ((120, 40), vec![2, 61], 45)] {
        let mut app = dark();
        app.update(Message::Picture(Arc::new(crate::lab_states::running())));
        press(&mut app, "?");
        let mut seen = String::new();
        for _ in 0..200 {
            let buf = draw(&mut app, width, height);
            for left in &columns {
                for row in buf.area.rows().skip(1) {
                    let cells = row.columns().skip(left + 12).take(room);
                    let text: String = cells.map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect();
                    assert!(!text.contains('…'), "{width}×{height}: {text}");
                    seen.push_str(text.trim());
                    seen.push(' ');
                }
            }
            press(&mut app, "j");
        }
        for binding in tui::standard_keys().bindings() {
            let help = binding.help_in(room);
            assert!(seen.contains(help), "{width}×{height}: {help}");
        }
    }
    for binding in tui::standard_keys().bindings() {
        assert!(binding.brief.is_none_or(|brief| brief.chars().count() <= 42), "{:?}", binding.brief);
    }
}

/// A notice stands in the place of the keys; what it needs more the screen gives, whose frames stay whole.
#[test]
fn a_notice_covers_nothing() {
    let count = |text: &str, corner: char| text.chars().filter(|symbol| *symbol == corner).count();
    for (width, height) in SIZES {
        let mut app = dark();
        let mut shown = |state: Picture, keys: &str| {
            app.update(Message::Picture(Arc::new(state)));
            draw(&mut app, width, height);
            press(&mut app, keys);
            (app.notice().unwrap_or_default().to_owned(), text(&draw(&mut app, width, height)))
        };
        let (_, plain) = shown(crate::lab_states::running(), "");
        let (notice, short) = shown(crate::lab_states::running(), "t");
        let above = |text: &str| text.lines().take(usize::from(height) - 1).map(str::to_owned).collect::<Vec<_>>();
        assert!(short.lines().last().unwrap().trim() == notice && !notice.is_empty(), "{short}");
        assert_eq!(above(&short), above(&plain), "{width}×{height}");
        let said = "a sentence that is told whole where it has room, ".repeat(4);
        let warned = crate::lab_states::edited(crate::lab_states::running(), |view| {
            let line = LogLine { time: Micros(9), step: 9, level: Level::Warning, text: said.trim_end().into() };
            view.log = view.log.iter().cloned().chain([line]).collect();
        });
        let (_, long) = shown(warned, "");
        let told = long.lines().rev().take_while(|line| line.contains("whole")).count();
        assert!((1..=3).contains(&told), "{long}");
        assert_eq!(count(&long, '╭'), count(&long, '╰'), "{long}");
        assert_eq!(count(&long, '╮'), count(&long, '╯'), "{long}");
    }
}

#[test]
fn starting() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::starting(), 80, 24)));
}

#[test]
fn paused_with_a_switch_pending() {
    insta::assert_snapshot!(text(&frame(dark(), crate::lab_states::paused(), 120, 40)));
}

#[test]
fn out_of_memory() {
    let state = crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory);
    insta::assert_snapshot!(text(&frame(dark(), state, 120, 40)));
}

/// What stands in the column of panes at the right where there is one, else everything: in one line.
/// A recording whose cursor looks back into a step that was studied.
fn studied() -> Picture {
    let events = crate::lab_states::run_on(DeviceKind::Processor);
    let cursor = crate::lab_states::recorded().view.position as usize;
    let begins = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
    let begin = events[..cursor].iter().rposition(begins).unwrap();
    let end = cursor + events[cursor..].iter().position(begins).unwrap();
    let (mut before, mut after) = (Lab::new(), Lab::new());
    events[..begin].iter().for_each(|event| before.apply(event));
    events[..end].iter().for_each(|event| after.apply(event));
    let study = Study::of(begin as u64..end as u64, before.memory(), after.names(), Grouping::Category, |each| {
        (begin as u64..).zip(&events[begin..end]).for_each(|(position, event)| each(position, event));
    });
    Picture { study: Some(Arc::new(study)), ..crate::lab_states::recorded() }
}

/// The blocks after some keys.
fn blocks(mut app: App, state: Picture, keys: &str, width: u16, height: u16) -> Buffer {
    app.update(Message::Picture(Arc::new(state)));
    for key in format!("2{keys}").chars() {
        press(&mut app, &key.to_string());
        draw(&mut app, width, height);
    }
    draw(&mut app, width, height)
}

#[test]
fn blocks_at_80x24() {
    insta::assert_snapshot!(text(&blocks(dark(), studied(), "_", 80, 24)));
}

#[test]
fn blocks_at_120x40() {
    insta::assert_snapshot!(styles(&blocks(dark(), studied(), "#", 120, 40)));
}

#[test]
fn blocks_at_200x60() {
    insta::assert_snapshot!(text(&blocks(dark(), crate::lab_states::running(), "vu", 200, 60)));
}

#[test]
fn blocks_of_a_snapshot_that_are_looked_for() {
    let snapshot = Picture { kind: SourceKind::Snapshot("run.pickle".into()), ..studied() };
    insta::assert_snapshot!(text(&blocks(dark(), snapshot, "/weight;", 200, 60)));
}

#[test]
fn blocks_without_colour_in_ascii() {
    let app = app("dark", ColorTier::None, GlyphTier::Ascii);
    insta::assert_snapshot!(styles(&blocks(app, studied(), "_", 80, 24)));
}

/// What this thread has had of a processor, where the system says so: what else runs beside the tests is not counted.
fn spent() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The account is written up when a thread leaves its processor.
    std::thread::sleep(Duration::from_nanos(1));
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = account.split(' ').next().and_then(|ran| ran.parse().ok());
    ran.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

#[test]
fn a_million_blocks_are_drawn_in_under_16_ms() {
    let mut lab = Lab::new();
    for event in crate::lab_states::told(DeviceKind::Processor, crate::synthetic::crowded(1_000_000)) {
        lab.apply(&event);
    }
    let view = lab.view();
    assert_eq!(view.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>(), 1_000_000);
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::state_of(view, RunState::Running))));
    let area = Rect::new(0, 0, 200, 60);
    let mut buf = Buffer::empty(area);
    for keys in ["2", "_", "#", "v", "+", "+", "u"] {
        press(&mut app, keys);
        // The first frame takes note of the blocks. Whatever else this machine does, one of the others has it for itself.
        let frames = (0..6).map(|_| {
            let began = spent();
            let layout = tui::draw(&app, area, &mut buf);
            let took = spent() - began;
            app.update(Message::Drawn(layout));
            took
        });
        let fastest = frames.min().unwrap();
        assert!(fastest < Duration::from_millis(16), "{fastest:?} after {keys}");
    }
}

#[test]
fn the_largest_hole_says_who_holds_it_at_every_size() {
    for (width, height) in [(60, 20), (80, 24), (120, 40), (200, 60)] {
        let state = studied();
        let largest = state.view.largest_hole;
        let segment =
            state.view.segments.iter().find(|segment| segment.holes().any(|hole| hole.size == largest)).unwrap();
        let holder = segment.blocks.iter().max_by_key(|block| block.size).unwrap();
        let name = state.view.names.get(holder.name).to_owned();
        let text = text(&blocks(dark(), state, "_", width, height));
        assert!(text.contains("held by") && text.contains(&name), "{name} at {width}×{height}:\n{text}");
        assert!(text.contains('◆'), "{text}");
    }
}

#[test]
fn blocks_that_are_looked_for_are_counted_and_escape_lets_go_of_them() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(studied())));
    press(&mut app, "2/gelu activ");
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("/gelu activ") && shown.contains("filter · Enter keeps it"), "{shown}");
    app.update(Message::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)));
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("/gelu activ") && !shown.contains("Enter keeps it"), "{shown}");
    for left in [false, true] {
        press(&mut app, "i");
        let shown = text(&draw(&mut app, 120, 40));
        assert!(shown.contains("gelu output") || left, "{shown}");
        let escape = |app: &mut App| app.update(Message::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
        assert_eq!(escape(&mut app), []);
        assert!(text(&draw(&mut app, 120, 40)).contains("all segments"));
        if !left {
            assert_eq!(escape(&mut app), []);
            assert!(!text(&draw(&mut app, 120, 40)).contains("/gelu activ"));
        } else {
            assert_eq!(escape(&mut app), [Effect::Send(Request::Move(Move::Now))], "nothing is left to let go of");
        }
    }
}

fn right_column(text: &str, width: u16) -> String {
    let left = if width < 100 { 0 } else { usize::from(width - (width / 3).clamp(49, 62)) };
    let parts: Vec<String> = text.lines().map(|line| line.chars().skip(left).collect()).collect();
    let words = parts.iter().flat_map(|part| part.split_whitespace()).filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_gpu_that_is_lost() {
    let reason = "cuda:0 is gone: the driver answers CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)";
    for (width, height) in SIZES {
        let state = crate::lab_states::with_run(crate::lab_states::on_gpu(), RunState::Lost(reason.into()));
        let text = text(&frame(dark(), state, width, height));
        let in_one_line = right_column(&text, width);
        let offer = format!("{reason}. Press P for the processor, q to leave.");
        for words in ["DEVICE LOST", &offer, "P train on the processor"] {
            assert!(in_one_line.contains(words) || text.contains(words), "{words}:\n{text}");
        }
    }
}

#[test]
fn a_step_that_failed() {
    let reason = "cuda:0 has no kernel for cast_strided of these types; turn fused ops off";
    for (width, height) in SIZES {
        let state = crate::lab_states::with_run(crate::lab_states::on_gpu(), RunState::StepFailed(reason.into()));
        let text = text(&frame(dark(), state, width, height));
        let in_one_line = right_column(&text, width);
        let what_to_do = format!("{reason}. The switches go back to what worked: press space to go on");
        for words in ["STEP FAILED", &what_to_do, "space go on"] {
            assert!(in_one_line.contains(words) || text.contains(words), "{words}:\n{text}");
        }
    }
}

#[test]
fn what_was_refused_is_told_in_the_footer() {
    for (width, height) in SIZES {
        let sentence = "refused: batch norm needs micro-batches of 2; raise batch or accumulate less (and why)";
        let told = LogLine { time: Micros(7), step: 3, level: Level::Warning, text: sentence.into() };
        let state = crate::lab_states::edited(crate::lab_states::running(), |view| view.log.push(told));
        let shown = text(&frame(dark(), state, width, height));
        let rows: Vec<&str> = shown.lines().rev().take(3).map(str::trim).collect();
        let footer = rows.into_iter().rev().collect::<Vec<_>>().join(" ");
        assert!(footer.ends_with(sentence), "{shown}");
    }
    // One that no three rows hold says that there is more.
    let long = "a sentence that goes on and on, ".repeat(20);
    let told = LogLine { time: Micros(7), step: 3, level: Level::Warning, text: long.into() };
    let state = crate::lab_states::edited(crate::lab_states::running(), |view| view.log.push(told));
    let shown = text(&frame(dark(), state, 80, 24));
    assert!(shown.lines().last().is_some_and(|line| line.ends_with('…')), "{shown}");
}

#[test]
fn failed() {
    let reason = "the limit of 8.00 MiB is too small for the model; raise --limit";
    let state = crate::lab_states::state_of(View::default(), RunState::Failed(reason.into()));
    insta::assert_snapshot!(text(&frame(dark(), state, 80, 24)));
}

#[test]
fn a_simulated_device_says_so_at_every_size() {
    for (width, height) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
        let text = text(&frame(dark(), crate::lab_states::simulated(), width, height));
        assert!(text.contains("simulated"), "{width}×{height}:\n{text}");
        let text = self::text(&frame(dark(), crate::lab_states::running(), width, height));
        assert!(text.contains("processor"), "{width}×{height}:\n{text}");
    }
}

#[test]
fn without_colour_the_values_in_force_stand_there() {
    let buf = frame(app("dark", ColorTier::None, GlyphTier::Unicode), crate::lab_states::running(), 120, 40);
    let all = text(&buf);
    assert!(all.contains("bf16") && all.contains("checkpoint"), "{all}");
    assert!(buf.content().iter().any(|cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED)));
}

#[test]
fn a_resized_screen_equals_a_fresh_one() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    for (width, height) in [(200, 60), (12, 3), (80, 24), (1, 1), (120, 40)] {
        app.update(Message::Resized);
        draw(&mut app, width, height);
    }
    let fresh = frame(dark(), crate::lab_states::running(), 120, 40);
    assert_eq!(text(&draw(&mut app, 120, 40)), text(&fresh));
}

#[test]
fn the_effect_becomes_quiet_by_itself() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    assert!(app.effect_is_loud());
    draw(&mut app, 120, 40);
    assert!(!app.needs_frame());
    let then = app.next_change().expect("the screen changes when the effect becomes quiet");
    app.update(Message::Clock(then + Duration::from_millis(1)));
    assert!(!app.effect_is_loud());
    assert!(app.needs_frame());
}

/// The frame of the screen with this key.
fn on_screen(mut app: App, key: &str, state: Picture, width: u16, height: u16) -> Buffer {
    press(&mut app, key);
    frame(app, state, width, height)
}

#[test]
fn the_ledger_of_a_run_on_a_gpu() {
    let state = crate::lab_states::studied(crate::lab_states::on_gpu(), 21);
    insta::assert_snapshot!("ledger_at_80x24", text(&on_screen(dark(), "6", state.clone(), 80, 24)));
    insta::assert_snapshot!("ledger_at_120x40", text(&on_screen(dark(), "6", state.clone(), 120, 40)));
    insta::assert_snapshot!("ledger_at_200x60", text(&on_screen(dark(), "6", state, 200, 60)));
}

#[test]
fn the_ledger_of_a_recording_at_its_cursor_without_colour_in_ascii() {
    let state = crate::lab_states::studied(crate::lab_states::recorded(), 12);
    let buf = screen(app("dark", ColorTier::None, GlyphTier::Ascii), "6", state, 100, 30);
    assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
    let shown = text(&buf);
    assert!(shown.contains("at the cursor") && shown.contains("for the next run"), "{shown}");
    insta::assert_snapshot!("ledger_of_a_recording", shown);
}

/// Enter goes where the finding selected can be seen, `d` does what can be done about it.
#[test]
fn the_ledgers_findings_lead_to_their_places_and_their_remedies() {
    // What flips would save was tried meanwhile.
    let gain = Gain { from: Bytes::mib(204), to: Bytes::mib(106), trial: Trial::Simulated };
    let state = crate::lab_states::edited(crate::lab_states::studied(crate::lab_states::running(), 21), |view| {
        view.findings[1].remedies = vec![Remedy::flip("opt", "sgd")];
        view.findings[1].gain = Some(gain);
    });
    let place = state.view.findings[1].position.unwrap();
    let remedy = session::Command::of_remedy(&state.view.findings[1].remedies[0]).unwrap();
    let mut app = dark();
    app.update(Message::Picture(Arc::new(state.clone())));
    press(&mut app, "w");
    let all = text(&draw(&mut app, 80, 40));
    assert!(all.contains("(optimizer sgd): in a fresh run, peak 204.00 →"), "{all}");
    // Where there is room it stands beside the curve that it speaks of.
    let beside = text(&draw(&mut app, 120, 40));
    assert!(beside.contains("(optimizer sgd)") && beside.contains("this step peak 204.2 MiB ⠒⠒ before ─"), "{beside}");
    press(&mut app, "w");
    press(&mut app, "6");
    // It stands first, before a louder one of which nothing is known to help.
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("findings 1 of") && shown.contains(&format!("event {place}")), "{shown}");
    let mut effects = |code| app.update(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    assert_eq!(effects(KeyCode::Enter), [Effect::Send(Request::Move(Move::To(place)))]);
    assert_eq!(effects(KeyCode::Char('d')), [Effect::Send(Request::Lab(remedy))]);
    let recorded = Picture { kind: vramlab::source::SourceKind::Recording("run".into()), ..state };
    app.update(Message::Picture(Arc::new(recorded)));
    press(&mut app, "d");
    assert_eq!(app.notice(), Some("a recording can't be changed"));
}

#[test]
fn what_the_ledger_cannot_know_it_says() {
    let told = |state: Picture, words: &str| {
        for (width, height) in [(80, 24), (120, 40), (200, 60)] {
            let shown = text(&on_screen(dark(), "6", state.clone(), width, height));
            let in_one_line = shown.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
            assert!(in_one_line.contains(words), "{width}×{height}: {words}\n{shown}");
        }
    };
    told(crate::lab_states::running(), "no GPU here");
    told(crate::lab_states::simulated(), "a simulated GPU");
    told(
        crate::lab_states::edited(crate::lab_states::on_gpu(), |view| view.gpu = None),
        "the driver has not been read",
    );
    let kind = vramlab::source::SourceKind::Snapshot("a.pickle".into());
    told(Picture { kind, ..crate::lab_states::running() }, "a snapshot does not say");
}

#[test]
fn configurations_side_by_side() {
    let state = crate::lab_states::state_of(crate::lab_states::finished(), RunState::Finished);
    insta::assert_snapshot!("compare_at_80x24", text(&on_screen(dark(), "5", state.clone(), 80, 24)));
    insta::assert_snapshot!("compare_at_120x40", text(&on_screen(dark(), "5", state.clone(), 120, 40)));
    insta::assert_snapshot!("compare_at_200x60", text(&on_screen(dark(), "5", state.clone(), 200, 60)));
    let buf = on_screen(app("dark", ColorTier::None, GlyphTier::Ascii), "5", state, 100, 30);
    assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
    insta::assert_snapshot!("compare_without_colour", text(&buf));
}

/// Columns are as wide as what stands in them: a name that is cut is not cut beside a gap.
#[test]
fn no_gap_is_left_between_figures_where_names_are_cut() {
    let state = crate::lab_states::state_of(crate::lab_states::finished(), RunState::Finished);
    for (width, height) in [(112, 40), (120, 40), (140, 40), (160, 50)] {
        let shown = text(&on_screen(dark(), "5", state.clone(), width, height));
        let rows: Vec<Vec<char>> = shown
            .lines()
            .skip_while(|line| !line.contains("allocated MiB"))
            .take_while(|line| !line.contains('╰'))
            .map(|line| line.chars().collect())
            .collect();
        assert!(rows.len() > 2, "{shown}");
        let begin = rows[0].iter().collect::<String>().chars().position(|symbol| symbol == 'a').unwrap();
        let end = rows[0].iter().rposition(|symbol| symbol.is_alphanumeric()).unwrap();
        let blank: Vec<bool> = (begin..end).map(|x| rows.iter().all(|row| row[x] == ' ')).collect();
        let longest = blank.chunk_by(|one, other| one == other).filter(|run| run[0]).map(<[bool]>::len).max();
        // With the cell of the mark of the best.
        assert!(longest.unwrap_or(0) <= 4, "{width}: {shown}");
    }
}

/// However few rows there are, what can be done comes before a hint.
#[test]
fn small_terminals_say_what_can_be_done() {
    for (width, height) in [(60, 20), (50, 14), (40, 12)] {
        let shown = text(&frame(dark(), crate::lab_states::running(), width, height));
        assert!(shown.contains("Try") || !shown.contains("flip a switch"), "{width}×{height}:\n{shown}");
        // Phases end where others begin.
        assert!(!shown.contains("││"), "{shown}");
    }
}

/// A single configuration has figures and no changes, and what makes a second is said.
#[test]
fn a_configuration_with_none_beside_it() {
    let mut state = crate::lab_states::recorded();
    state.configurations = state.configurations.iter().take(1).cloned().collect();
    insta::assert_snapshot!("compare_of_one_at_120x40", text(&on_screen(dark(), "5", state.clone(), 120, 40)));
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let shown = text(&on_screen(dark(), "5", state.clone(), width, height));
        assert!(shown.contains("adds another file"), "{shown}");
        for absent in [" base ", "flip", "noise", "changes against", "until"] {
            assert!(!shown.contains(absent), "{absent}: {shown}");
        }
    }
}

/// What follows the cursor is compared too; Enter goes to the first step of the one selected, `d` compares with it.
#[test]
fn a_configuration_leads_to_its_first_step_and_is_what_others_are_compared_with() {
    let state = crate::lab_states::recorded();
    let all = Arc::clone(&state.configurations);
    assert_eq!(all.len(), 3, "the cursor stands in the second");
    let mut app = dark();
    press(&mut app, "5");
    app.update(Message::Picture(Arc::new(state)));
    press(&mut app, "kd");
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("changes against 2") && shown.contains("▸ 2  AMP bf16"), "{shown}");
    let enter = app.update(Message::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)));
    assert_eq!(enter, [Effect::Send(Request::Move(Move::To(all[1].position)))]);
}

#[test]
fn what_can_not_be_compared_says_why() {
    let kind = vramlab::source::SourceKind::Snapshot("a.pickle".into());
    let snapshot = crate::lab_states::edited(crate::lab_states::running(), |view| view.configurations.clear());
    let snapshot = Picture { kind, configurations: Arc::from([]), marked: None, ..snapshot };
    for (width, height) in [(60, 20), (80, 24), (200, 60)] {
        let shown = text(&on_screen(dark(), "5", snapshot.clone(), width, height));
        assert!(shown.contains("no history here"), "{shown}");
        let one = crate::lab_states::edited(crate::lab_states::running(), |view| view.configurations.truncate(1));
        let one = Picture { marked: None, ..one };
        let shown = text(&on_screen(dark(), "5", one, width, height));
        assert!(shown.contains("Flip a switch") && shown.contains("initial settings"), "{shown}");
    }
}

fn any_state() -> impl Strategy<Value = Picture> {
    let states: Vec<Picture> = vec![
        Picture::default(),
        crate::lab_states::starting(),
        crate::lab_states::running(),
        crate::lab_states::on_gpu(),
        crate::lab_states::paused(),
        crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory),
        crate::lab_states::state_of(crate::lab_states::finished(), RunState::Finished),
        crate::lab_states::state_of(View::default(), RunState::Failed("no".repeat(200).into())),
        crate::lab_states::with_run(crate::lab_states::on_gpu(), RunState::Lost("gone".repeat(100).into())),
        crate::lab_states::simulated(),
        crate::lab_states::looking_back(),
        crate::lab_states::recorded(),
        crate::lab_states::studied(crate::lab_states::running(), 21),
        crate::lab_states::studied(crate::lab_states::recorded(), 12),
    ];
    (0..states.len()).prop_map(move |index| states[index].clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any size, any state, any keys: no panic, and nothing is drawn outside the area.
    #[test]
    fn every_size_is_drawn_inside_its_area(
        state in any_state(),
        (width, height) in (1u16..=300, 1u16..=100),
        (x, y) in (0u16..4, 0u16..4),
        keys in "[1-6]?[mcapozfrLxObBAtse .,nhjklgwGH(){}<>T?+2_#iI;:'@/vu0d-]{0,6}",
        tier in prop::sample::select(vec![ColorTier::None, ColorTier::Ansi, ColorTier::Indexed, ColorTier::True]),
    ) {
        let mut app = app("dark", tier, GlyphTier::Unicode);
        app.update(Message::Picture(Arc::new(state)));
        press(&mut app, &keys);
        let whole = Rect::new(0, 0, width + 8, height + 8);
        let mut buf = Buffer::empty(whole);
        for position in whole.positions() {
            buf[position].set_symbol("#");
        }
        let area = Rect::new(x, y, width, height);
        let layout = tui::draw(&app, area, &mut buf);
        for position in whole.positions().filter(|&position| !area.contains(position)) {
            prop_assert_eq!(buf[position].symbol(), "#", "{:?} is outside {:?}", position, area);
        }
        for (target, _) in &layout.targets {
            prop_assert_eq!(target.intersection(area), *target);
        }
        app.update(Message::Drawn(layout));
    }

    /// An area that reaches beyond the buffer is cut, not a panic.
    #[test]
    fn an_area_larger_than_the_buffer_is_cut((width, height) in (1u16..=130, 1u16..=50)) {
        let mut app = dark();
        app.update(Message::Picture(Arc::new(crate::lab_states::running())));
        let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
        tui::draw(&app, Rect::new(0, 0, 140, 60), &mut buf);
    }
}

#[test]
fn a_simulated_lab_says_so_wherever_a_time_stands() {
    for (width, height) in [(200, 60), (120, 40), (100, 30), (80, 24), (40, 12)] {
        let text = text(&frame(dark(), crate::lab_states::simulated(), width, height));
        for line in text.lines().filter(|line| line.contains(" ms")) {
            assert!(line.contains(" ms sim"), "{width}×{height}: {line}");
        }
        assert!(text.contains("sim"), "{width}×{height}");
    }
}

/// A frame of the screen behind `keys`.
fn screen(mut app: App, keys: &str, state: Picture, width: u16, height: u16) -> Buffer {
    app.update(Message::Picture(Arc::new(state)));
    press(&mut app, keys);
    draw(&mut app, width, height)
}

#[test]
fn the_step_at_every_size() {
    for (width, height) in SIZES {
        let state = crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false);
        insta::assert_snapshot!(format!("step_at_{width}x{height}"), text(&screen(dark(), "3", state, width, height)));
    }
}

#[test]
fn the_step_by_module_of_the_whole_run_and_without_colour() {
    let state = crate::lab_states::with_study(crate::lab_states::paused(), Grouping::Module, true);
    insta::assert_snapshot!("step_of_the_run_by_module", text(&screen(dark(), "30", state.clone(), 120, 40)));
    let plain = app("plain", ColorTier::None, GlyphTier::Ascii);
    insta::assert_snapshot!("step_without_colour", text(&screen(plain, "3", state, 80, 24)));
}

#[test]
fn the_ops_at_every_size() {
    for (width, height) in SIZES {
        let state = crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false);
        insta::assert_snapshot!(format!("ops_at_{width}x{height}"), text(&screen(dark(), "4", state, width, height)));
    }
}

#[test]
fn the_ops_by_module_and_since_a_tag() {
    let state = crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false);
    insta::assert_snapshot!("ops_by_module", text(&screen(dark(), "4vu", state.clone(), 120, 40)));
    let empty = text(&screen(dark(), "4d", state.clone(), 80, 24));
    assert!(empty.contains("the tag is set"), "{empty}");
    // The tag stands where the study begins.
    let mut app = dark();
    let back = Picture { cursor: Cursor::At(state.study.as_ref().unwrap().begin), ..state.clone() };
    app.update(Message::Picture(Arc::new(back)));
    press(&mut app, "4d");
    app.update(Message::Picture(Arc::new(state)));
    insta::assert_snapshot!("ops_since_a_tag", text(&draw(&mut app, 120, 40)));
}

#[test]
fn a_step_that_is_pinned_stands_beside_the_one_shown_on_every_screen_that_has_steps() {
    // Checkpointing was switched on before step 20.
    let state = crate::lab_states::pinned(
        crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false),
        19,
    );
    // One of which no op held anything at its peak.
    let other = Some(Arc::new(vramlab::model::Study::default()));
    let mut pinned = state.pinned.as_deref().unwrap().clone();
    pinned.study = other;
    let otherwise = Picture { pinned: Some(Arc::new(pinned)), ..state.clone() };
    for (width, height) in SIZES {
        for (key, wanted) in [("1", "step 19"), ("4", "as step 19: no op differs"), ("6", "step 19")] {
            if (key, width) == ("6", 80) {
                continue; // accounts are two lines there
            }
            let shown = text(&on_screen(dark(), key, state.clone(), width, height));
            assert!(shown.contains(wanted), "{key} at {width}×{height}:\n{shown}");
        }
        let ops = text(&on_screen(dark(), "4", otherwise.clone(), width, height));
        assert!(ops.contains("Δ against step 19") && ops.contains("▼ Δ at peak"), "{ops}");
    }
    let unpinned = text(&on_screen(dark(), "4", Picture { pinned: None, ..state }, 120, 40));
    assert!(!unpinned.contains('Δ'), "{unpinned}");
}

/// Every figure of memory on every screen is of the moment that the header names.
#[test]
fn every_screen_is_of_the_moment_in_the_header() {
    let running = crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false);
    let view = &running.view;
    let shown = running.shown();
    assert_ne!(view.ledger.allocated(), shown.ledger.allocated(), "the run has gone on since");
    // The same picture, whose run stands somewhere else: only what is of the run may differ.
    let elsewhere = crate::lab_states::edited(running.clone(), |view| {
        view.ledger = Default::default();
        view.segments = Default::default();
        view.by_category = Default::default();
        (view.phase, view.largest_hole) = (None, Default::default());
        view.touched.clear();
        view.position += 7;
    });
    for (width, height) in SIZES {
        for key in ["1", "2", "3", "4", "5", "6", "7"] {
            let at = |state: &Picture| text(&on_screen(dark(), key, state.clone(), width, height));
            assert_eq!(at(&running), at(&elsewhere), "screen {key} at {width}×{height} looks past the mark");
            let header: String = at(&running).lines().take(2).collect();
            assert!(header.contains("step 21 ▼"), "{header}");
        }
    }
}

#[test]
fn screens_that_study_say_so_before_they_have() {
    for keys in ["3", "4"] {
        let reading = Picture { studying: Some(0.25), ..crate::lab_states::running() };
        assert!(text(&screen(dark(), keys, reading, 80, 24)).contains("reading the events … 25 %"));
        assert!(text(&screen(dark(), keys, crate::lab_states::starting(), 80, 24)).contains("building"));
    }
}

/// Names of models and units of time aside, words of everyday English that labels are made of.
const PLAIN: &str = "\
    byte A B C Compare Enter Figures First It Lab M The What a add against all among an and another are as between by change changes do e \
    each earlier elsewhere empty ends every fastest file filled first fits for force goes good has here in inside is it known \
    its lab larger largest last least left line may model more most ms name next no none not of off on one or order out outputs per put \
    ran read reads rest return returns right run s seen shows size so sort spread stands t than that the themselves they \
    this those through to told until up use view what when where who without writes yet zoom";

/// Every label that stands on a screen, at any size and in any state that is looked at here, is explained.
#[test]
fn every_word_that_labels_use_is_in_the_help() {
    let theme = ThemeCatalog::default().load("dark", ColorTier::True).unwrap().0;
    let quiet = theme.style(Token::Dim).fg;
    let title = theme.style(Token::Title);
    let out_of_memory = crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory);
    let states =
        [crate::lab_states::running(), crate::lab_states::on_gpu(), crate::lab_states::paused(), out_of_memory]
            .map(|state| crate::lab_states::with_study(state, Grouping::Category, false));
    let mut unknown = std::collections::BTreeMap::new();
    for state in states {
        for keys in ["1", "2", "3", "4", "4v", "4vv", "4vvv", "5", "6"] {
            for (width, height) in SIZES {
                let buf = screen(dark(), keys, state.clone(), width, height);
                for row in buf.area.rows() {
                    // The header tells names of models and cards, the footer and the log what help has as keys.
                    if row.y < 2 || row.y + 1 == height {
                        continue;
                    }
                    let mut word = String::new();
                    for x in 0..=width {
                        let cell = (x < width).then(|| &buf[(x, row.y)]);
                        let label = cell.filter(|cell| {
                            Some(cell.fg) == quiet || (Some(cell.fg) == title.fg && cell.modifier == title.add_modifier)
                        });
                        match label.and_then(|cell| cell.symbol().chars().next()) {
                            Some(symbol) if symbol.is_alphanumeric() || "_.*-%".contains(symbol) => word.push(symbol),
                            _ => {
                                let done = std::mem::take(&mut word);
                                let known = done.is_empty()
                                    || done
                                        .chars()
                                        .any(|symbol| symbol.is_ascii_digit() || symbol == '.' || symbol == '*')
                                    || done.chars().all(|symbol| !symbol.is_alphabetic())
                                    || PLAIN.split(' ').any(|plain| plain == done)
                                    || tui::explains(&done);
                                if !known {
                                    unknown.entry(done).or_insert_with(|| format!("{keys} at {width}×{height}"));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
