//! The Lab screen in the states of a run, on a GPU and without, in colour tiers and glyph tiers.

use std::sync::Mutex;

use vramlab::device::sim::CardCatalog;
use vramlab::session::{DeviceChoice, Headless, LabSpec};
use vramlab::workload::Catalog;

use super::*;

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

/// One readable chart instead of two unreadable ones.
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

/// While steps go by, it shows what findings say about the end of a step; if nothing moves, it shows what the map
/// shows.
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

/// GPT-2 on a simulated card after a few steps: thin parts below a high curve.
fn simulated_gpt2() -> Picture {
    let entry = Catalog::with_user_workloads(None).entry("gpt2").unwrap();
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let spec = LabSpec { device: DeviceChoice::Sim(Box::new(card)), ..LabSpec::new(entry) };
    let lab = Arc::new(Mutex::new(Lab::new()));
    let listener = Arc::clone(&lab);
    let hear = move |event: &Event| listener.lock().unwrap().apply(event);
    let mut run = Headless::start_before(spec, Some(Box::new(hear))).unwrap();
    (0..3).for_each(|_| assert!(run.step().is_ok()));
    let view = lab.lock().unwrap().view();
    crate::lab_states::state_of(view, RunState::Paused)
}

/// Which parts are drawn as one depends on the plot's rows, and how many rows the legend takes on what it names.
#[test]
fn every_letter_of_the_curve_is_in_its_legend() {
    let mut seen = 0;
    for state in [crate::lab_states::running(), crate::lab_states::on_gpu(), simulated_gpt2()] {
        for (width, height) in [80, 96, 120, 160, 200].into_iter().flat_map(|width| (24..=44).map(move |h| (width, h)))
        {
            let text = text(&frame(app("dark", ColorTier::None, GlyphTier::Unicode), state.clone(), width, height));
            let Some(title) = text.lines().position(|line| line.contains("this step")) else { continue };
            let left = text.lines().nth(title).unwrap().find("this step").unwrap();
            let left = text.lines().nth(title).unwrap()[..left].chars().count();
            let panel = text.lines().skip(title).map(|line| line.chars().skip(left).collect::<String>());
            let panel: Vec<String> = panel.take_while(|line| !line.contains("forw")).collect();
            let (words, areas): (Vec<&String>, Vec<&String>) =
                panel.iter().partition(|line| line.contains(char::is_lowercase));
            let words = words.into_iter().map(|line| format!(" {line} ")).collect::<String>();
            for letter in areas.into_iter().flat_map(|line| line.chars()).filter(|at| at.is_uppercase() || *at == '&') {
                seen += 1;
                assert!(words.contains(&format!(" {letter} ")), "{letter} at {width}×{height}\n{text}");
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
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
    // A text that does not fit in three rows ends with a sign that there is more.
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

/// However few rows there are, actions take precedence over a hint.
#[test]
fn small_terminals_say_what_can_be_done() {
    for (width, height) in [(60, 20), (50, 14), (40, 12)] {
        let shown = text(&frame(dark(), crate::lab_states::running(), width, height));
        assert!(shown.contains("Try") || !shown.contains("flip a switch"), "{width}×{height}:\n{shown}");
        // Phases end where others begin.
        assert!(!shown.contains("││"), "{shown}");
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
