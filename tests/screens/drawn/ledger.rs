//! The Ledger screen.

use super::*;

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

/// Enter goes where the selected finding can be seen, `d` applies its remedy.
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
    // If there is room, it stands beside the curve that it is about.
    let beside = text(&draw(&mut app, 120, 40));
    assert!(beside.contains("(optimizer sgd)") && beside.contains("this step peak 204.2 MiB ⠒⠒ before ─"), "{beside}");
    press(&mut app, "w");
    press(&mut app, "6");
    // It comes first, before a more severe one for which no remedy is known.
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
