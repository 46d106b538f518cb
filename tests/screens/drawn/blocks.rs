//! The Blocks screen.

use super::*;

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

/// The processor time of this thread, if the system reports it: other work beside the tests is not counted.
fn spent() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The system updates the account when a thread leaves its processor.
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
        // The first frame records the blocks. Whatever else this machine does, one of the others has it for itself.
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
