//! The screens that study a step: its timeline and its ops.

use super::*;

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
    // The tag is where the study begins.
    let mut app = dark();
    let back = Picture { cursor: Cursor::At(state.study.as_ref().unwrap().begin), ..state.clone() };
    app.update(Message::Picture(Arc::new(back)));
    press(&mut app, "4d");
    app.update(Message::Picture(Arc::new(state)));
    insta::assert_snapshot!("ops_since_a_tag", text(&draw(&mut app, 120, 40)));
}

#[test]
fn screens_that_study_say_so_before_they_have() {
    for keys in ["3", "4"] {
        let reading = Picture { studying: Some(0.25), ..crate::lab_states::running() };
        assert!(text(&screen(dark(), keys, reading, 80, 24)).contains("reading the events … 25 %"));
        assert!(text(&screen(dark(), keys, crate::lab_states::starting(), 80, 24)).contains("building"));
    }
}
