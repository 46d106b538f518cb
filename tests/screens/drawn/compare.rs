//! The screen that compares configurations.

use super::*;

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

/// Columns are as wide as their contents: no name is cut beside a gap.
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

/// A single configuration has figures and no changes, and the screen says how to add a second one.
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

/// The configuration that follows the cursor is compared, too; Enter goes to the first step of the selected one, `d`
/// compares with it.
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
