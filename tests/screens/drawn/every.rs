//! What holds for every screen, at any size and in any state.

use super::*;
use crate::thoroughness::Thoroughness;

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
    #![proptest_config(ProptestConfig::with_cases(Thoroughness::asked().of(60, 300)))]

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

    /// An area that extends beyond the buffer is cut, and does not panic.
    #[test]
    fn an_area_larger_than_the_buffer_is_cut((width, height) in (1u16..=130, 1u16..=50)) {
        let mut app = dark();
        app.update(Message::Picture(Arc::new(crate::lab_states::running())));
        let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
        tui::draw(&app, Rect::new(0, 0, 140, 60), &mut buf);
    }
}

/// Every memory figure on every screen belongs to the moment that the header names.
#[test]
fn every_screen_is_of_the_moment_in_the_header() {
    let running = crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false);
    let view = &running.view;
    let shown = running.shown();
    assert_ne!(view.ledger.allocated(), shown.ledger.allocated(), "the run has gone on since");
    // The same picture of a run that is at another moment: only parts that belong to the run may differ.
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
fn a_step_that_is_pinned_stands_beside_the_one_shown_on_every_screen_that_has_steps() {
    // Checkpointing was switched on before step 20.
    let state = crate::lab_states::pinned(
        crate::lab_states::with_study(crate::lab_states::running(), Grouping::Category, false),
        19,
    );
    // A study in which no op held anything at its peak.
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

/// A notice takes the place of the keys; if it needs more rows, the screen gives them up, and its frames stay complete.
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
