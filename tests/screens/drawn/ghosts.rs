//! A ghost beside the run.

use super::*;

/// A run with another allocator beside it.
fn beside(state: Picture, conditions: Arc<Conditions>, ghost: &Follower, occupancy: Option<Arc<Occupancy>>) -> Picture {
    let history = Arc::new(ghost.history().clone());
    let ghost = Ghost {
        conditions,
        since: 0,
        starting: ghost.starting(),
        figures: Some(ghost.figures()),
        step: history.latest().zip(state.history.latest()),
        ended: occupancy.is_none(),
        occupancy,
        history,
        catching_up: None,
        seeking: None,
    };
    Picture { ghost: Some(Arc::new(ghost)), ..state }
}

/// A picture in which another allocator followed the run.
fn haunted(conf: &str) -> Picture {
    let conditions = Arc::new(Conditions::parse(conf, None).unwrap());
    let mut ghost = Follower::new(&conditions, Places::Simulated, DeviceIndex::FIRST);
    crate::synthetic::training_run().iter().for_each(|event| ghost.apply(event));
    beside(crate::lab_states::running(), conditions, &ghost, None)
}

/// A run at the moment when most of it is allocated, with another allocator.
pub(super) fn haunted_at_the_peak(conf: &str) -> Picture {
    let events = crate::lab_states::run_on(DeviceKind::Simulated);
    let mut lab = Lab::new();
    let conditions = Arc::new(Conditions::parse(conf, None).unwrap());
    let mut ghost = Follower::new(&conditions, Places::Simulated, DeviceIndex::FIRST);
    let mut most = (vramlab::units::Bytes::ZERO, 0);
    for (index, event) in events.iter().enumerate() {
        lab.apply(event);
        most = most.max((lab.memory().allocated(), index + 1));
    }
    let mut lab = Lab::new();
    for event in &events[..most.1] {
        lab.apply(event);
        ghost.apply(event);
    }
    let view = lab.view();
    let occupancy = Some(Arc::new(ghost.occupancy(&view.segments)));
    beside(crate::lab_states::state_of(view, RunState::Paused), conditions, &ghost, occupancy)
}

#[test]
fn a_ghost_has_its_map_and_its_accounts_beside_the_runs() {
    for (screen, name) in [("2", "blocks"), ("6", "ledger")] {
        for (width, height) in SIZES {
            let mut app = dark();
            press(&mut app, screen);
            let state = haunted_at_the_peak("expandable_segments:True");
            insta::assert_snapshot!(format!("ghost_{name}_{width}x{height}"), text(&frame(app, state, width, height)));
        }
    }
}

#[test]
fn the_block_that_is_selected_is_marked_in_the_ghosts_map_too() {
    let mut app = dark();
    press(&mut app, "2");
    let state = haunted_at_the_peak("expandable_segments:True");
    let before = text(&frame(app.clone(), state.clone(), 120, 40));
    app.update(Message::Picture(Arc::new(state)));
    draw(&mut app, 120, 40);
    press(&mut app, "#");
    let shown = text(&draw(&mut app, 120, 40));
    let marks = |text: &str, from: usize, to: usize| -> usize {
        text.lines().map(|line| line.chars().skip(from).take(to - from).filter(|symbol| *symbol == '◆').count()).sum()
    };
    assert_eq!(marks(&before, 0, 120), 0);
    assert!(marks(&shown, 0, 60) > 0 && marks(&shown, 60, 120) > 0, "{shown}");
}

#[test]
fn a_ghost_that_begins_with_an_estimate_says_so_wherever_it_stands() {
    for (width, height) in SIZES {
        for screen in ["1", "2", "6"] {
            let shown = |starting| {
                let mut state = haunted_at_the_peak("expandable_segments:True");
                Arc::make_mut(state.ghost.as_mut().unwrap()).starting = starting;
                let mut app = dark();
                press(&mut app, screen);
                text(&frame(app, state, width, height))
            };
            let says = |text: &str| {
                text.lines().any(|line| line.contains("ghost") && line.contains("estimate"))
                    || text.contains("estimate  ")
                    || text.contains("start is an estimate")
            };
            let (estimated, known) = (shown(StartState::Anew), shown(StartState::Empty));
            assert!(says(&estimated) && !says(&known), "screen {screen} at {width}×{height}: {estimated}");
        }
    }
}

#[test]
fn a_ghost_that_is_not_there_yet_says_so() {
    let mut state = haunted_at_the_peak("");
    let ghost = Arc::make_mut(state.ghost.as_mut().unwrap());
    (ghost.occupancy, ghost.catching_up) = (None, Some(0.4));
    for screen in ["2", "6"] {
        for (width, height) in SIZES {
            let mut app = dark();
            press(&mut app, screen);
            let shown = text(&frame(app, state.clone(), width, height));
            assert!(shown.contains("catches up, 40 %"), "screen {screen} at {width}×{height}: {shown}");
        }
    }
}

#[test]
fn a_ghost_stands_beside_the_run_at_every_size() {
    for (width, height) in SIZES {
        insta::assert_snapshot!(
            format!("ghost_{width}x{height}"),
            text(&frame(dark(), haunted("expandable_segments:True"), width, height))
        );
    }
    let plain = app("plain", ColorTier::None, GlyphTier::Ascii);
    insta::assert_snapshot!("ghost_ascii", text(&frame(plain, haunted("limit:1MiB"), 120, 40)));
}

#[test]
fn a_ghost_is_chosen_and_written() {
    let mut app = dark();
    frame(app.clone(), haunted(""), 80, 24);
    app.update(Message::Picture(Arc::new(haunted("expandable_segments:True"))));
    press(&mut app, "G,limit:many");
    app.update(Message::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)));
    insta::assert_snapshot!("ghost_editor_refuses", text(&draw(&mut app, 80, 24)));
}
