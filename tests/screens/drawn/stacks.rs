//! The Stacks screen.

use super::*;

/// A snapshot of a small program with its stacks.
pub(super) fn with_stacks() -> Picture {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/gpt-frames.pickle.xz");
    let whole = vramlab::source::Whole::read(&path, None, |_| {}).unwrap();
    let read = |end| {
        let mut lab = Lab::new();
        let each = |_, event: &Event| {
            lab.apply(event);
            Ok::<_, vramlab::recording::RecordingError>(())
        };
        whole.each(0..end, each).unwrap();
        lab.view()
    };
    let peak = read(whole.end()).peak_position;
    let picture = crate::lab_states::state_of(read(peak), RunState::Finished);
    Picture { kind: SourceKind::Snapshot("gpt-frames.pickle.xz".into()), cursor: Cursor::At(peak), ..picture }
}

fn stacks(mut app: App, state: Picture, keys: &[KeyCode], (width, height): (u16, u16)) -> String {
    press(&mut app, "7");
    app.update(Message::Picture(Arc::new(state)));
    draw(&mut app, width, height);
    for key in keys {
        app.update(Message::Key(KeyEvent::new(*key, KeyModifiers::NONE)));
        draw(&mut app, width, height);
    }
    text(&draw(&mut app, width, height))
}

#[test]
fn stacks_of_a_snapshot_at_its_peak() {
    for size in SIZES {
        let name = format!("stacks_of_a_snapshot_at_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, stacks(dark(), with_stacks(), &[], size));
    }
}

#[test]
fn stacks_without_colour_in_ascii() {
    let app = app("dark", ColorTier::None, GlyphTier::Ascii);
    let keys = [KeyCode::Down, KeyCode::Down, KeyCode::Enter];
    insta::assert_snapshot!(stacks(app, with_stacks(), &keys, (80, 24)));
}

#[test]
fn stacks_of_a_run_are_its_module_paths() {
    insta::assert_snapshot!(stacks(dark(), crate::lab_states::paused(), &[KeyCode::Down], (120, 40)));
}

#[test]
fn stacks_are_looked_into_and_out_of_again() {
    let size = (120, 40);
    let first = |text: &str| {
        let line = text.lines().find(|line| line.contains("and its parts")).unwrap();
        line.split_once(" · MiB").unwrap().0.to_owned()
    };
    let all = stacks(dark(), with_stacks(), &[], size);
    let (down, enter, back) = (KeyCode::Down, KeyCode::Enter, KeyCode::Backspace);
    let inside = stacks(dark(), with_stacks(), &[down, down, enter], size);
    assert!(first(&all).ends_with("─ all and its parts"), "{all}");
    assert!(first(&inside).contains("train and its parts"), "{inside}");
    let out = stacks(dark(), with_stacks(), &[down, down, enter, back, back], size);
    assert_eq!(first(&out), first(&all));
    assert_eq!(first(&stacks(dark(), with_stacks(), &[down, down, enter, KeyCode::Esc], size)), first(&all));
    // A search word leaves the paths that contain it.
    let word: Vec<KeyCode> = "/_init_group".chars().map(KeyCode::Char).chain([enter]).collect();
    let found = stacks(dark(), with_stacks(), &word, size);
    assert!(found.contains("_init_group") && !found.contains("layer_norm"), "{found}");
    assert!(found.contains(" of 978.4 MiB"), "{found}");
}

#[test]
fn the_file_of_a_frame_that_is_selected_is_asked_for() {
    let mut app = dark();
    press(&mut app, "7");
    app.update(Message::Picture(Arc::new(with_stacks())));
    draw(&mut app, 120, 40);
    let asked = |app: &mut App, key| app.update(Message::Key(KeyEvent::new(key, KeyModifiers::NONE)));
    let effects = asked(&mut app, KeyCode::Down);
    let path = effects.iter().find_map(|effect| match effect {
        Effect::Send(Request::Read(path)) => path.clone(),
        _ => None,
    });
    let path = path.unwrap();
    assert!(path.ends_with("/traces.py"), "{path}");
    let lines = (1..=300).map(|line| format!("    line {line} of it")).collect();
    let listing = vramlab::source::Listing { path, lines: Some(lines), changed: Some(Micros(u64::MAX)) };
    app.update(Message::Picture(Arc::new(Picture { listing: Some(Arc::new(listing)), ..with_stacks() })));
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("line 191 of it") && shown.contains("the file changed after the snapshot"), "{shown}");
    assert!(text(&draw(&mut app, 80, 24)).contains("line 191 of it"));
}

/// Layers have rows as far as the table has room for them; the rest is summed up.
#[test]
fn the_largest_is_open_as_far_as_it_fits_and_no_area_goes_without_a_word() {
    for size in SIZES {
        let shown = stacks(dark(), crate::lab_states::paused(), &[], size);
        let rows: Vec<&str> = shown.lines().skip_while(|line| !line.contains("who asked")).skip(1).collect();
        let table = |line: &&str| line.contains('■') && line.contains('%');
        let names: Vec<&str> = rows.iter().copied().filter(table).collect();
        assert!(names.len() > 4, "{shown}");
        // No row is free while the largest node is still closed, unless there are fewer than four free rows.
        let free = rows.iter().filter(|line| line.trim_matches(['│', ' ']).is_empty()).count();
        let largest = names.iter().find(|name| name.contains("blocks"));
        assert!(largest.is_some(), "{shown}");
        assert!(names.iter().any(|name| name.trim_start_matches(['│', ' ']).starts_with("■ 0")) || free < 5, "{shown}");
        // Slivers side by side share one edge, and their number.
        let areas = shown.lines().skip(3).take_while(|line| !line.contains("and its parts"));
        for line in areas {
            assert!(!line.contains("▏▏▏"), "{shown}");
        }
    }
}

#[test]
fn rows_that_leak_are_marked() {
    let mut leaking = with_stacks();
    let line = leaking.view.names.get(leaking.view.segments[0].blocks[0].name).to_owned();
    let kept = KeptLine { line: line.as_str().into(), rise: Bytes::mib(3) };
    let evidence = Evidence::Leak {
        rise: Bytes::mib(3),
        steps: 9,
        cause: LeakCause::Unknown,
        held: Bytes::mib(30),
        lines: vec![kept],
    };
    let finding = Finding { level: Level::Warning, evidence, remedies: Vec::new(), position: None, gain: None };
    leaking = crate::lab_states::edited(leaking, |view| view.findings = vec![finding]);
    let place = line.rsplit_once(" (").map_or(&*line, |(_, place)| place.trim_end_matches(')'));
    for size in SIZES {
        let shown = stacks(dark(), leaking.clone(), &[KeyCode::Char('v')], size);
        let marked: Vec<&str> = shown.lines().filter(|line| line.contains("▲ +3 MiB a step")).collect();
        assert!(marked.iter().all(|row| row.contains(place)) && !marked.is_empty(), "{line}:\n{shown}");
    }
}
