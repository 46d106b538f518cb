//! The palette finds every command and runs it; the help opens at the keys of its screen and presses the key that it
//! finds.

use super::*;
use crate::lab_states;
use vramlab::model::MarkKind;
use vramlab::tui::{Binding, standard_keys};

/// The effects of a script of keys, and the last frame, at 120×40.
#[derive(Debug, PartialEq)]
struct Did {
    effects: Vec<Effect>,
    screen: usize,
    left: String,
}

/// Presses a key, and draws what follows: a command of another screen runs when that screen is drawn.
fn settled(app: &mut App, message: Message) -> Vec<Effect> {
    let mut effects = app.update(message);
    while app.needs_frame() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 120, 40));
        let layout = tui::draw(app, buf.area, &mut buf);
        effects.extend(app.update(Message::Drawn(layout)));
    }
    effects
}

/// All effects except requested studies, which follow from the screen.
fn asked(effects: Vec<Effect>) -> Vec<Effect> {
    effects.into_iter().filter(|effect| !matches!(effect, Effect::Send(Request::Study(_)))).collect()
}

fn on_screen(screen: usize, state: &Picture) -> App {
    let mut app = app_on(state.clone());
    for symbol in (screen + 1).to_string().chars() {
        settled(&mut app, key(KeyCode::Char(symbol), KeyModifiers::NONE));
    }
    app
}

fn did(mut app: App, effects: Vec<Effect>) -> Did {
    let left = shown(&mut app, 120, 40);
    Did { effects: asked(effects), screen: app.screen(), left }
}

/// The effect of its first key, on its screen.
fn by_key(binding: &Binding, state: &Picture) -> Did {
    let mut app = on_screen(binding.screen.unwrap_or(0), state);
    let tui::Key(modifiers, code) = binding.keys[0];
    let effects = settled(&mut app, key(code, modifiers));
    did(app, effects)
}

fn typed_in(app: &mut App, text: &str) {
    for symbol in text.chars() {
        app.update(key(KeyCode::Char(symbol), KeyModifiers::NONE));
    }
    settled(app, Message::Resized);
}

/// The effect of the palette when it finds the command by its word, from the first screen.
fn by_palette(binding: &Binding, state: &Picture) -> Option<Did> {
    let mut app = on_screen(0, state);
    settled(&mut app, key(KeyCode::Char(':'), KeyModifiers::NONE));
    typed_in(&mut app, &binding.action.word());
    // If several screens have such a command, this screen's one is further down.
    for _ in 0..24 {
        let found = shown(&mut app, 120, 40);
        let selected = found.lines().find(|line| line.contains('▸')).unwrap_or_default().to_owned();
        let of = binding.screen.map_or_else(String::new, |screen| tui::screen_names()[screen].clone());
        // Its screen and its key are shown at the right.
        let words: Vec<&str> = selected.split_whitespace().collect();
        let is_it = words.join(" ").to_lowercase().contains(&format!("{of} {} │", binding.label).to_lowercase());
        if is_it && found.contains(&binding.help[..binding.help.len().min(40)]) {
            let effects = settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE));
            return Some(did(app, effects));
        }
        settled(&mut app, key(KeyCode::Down, KeyModifiers::NONE));
    }
    None
}

#[test]
fn the_palette_finds_and_does_each_command_of_the_keymap() {
    for state in [lab_states::paused(), lab_states::recorded()] {
        for binding in standard_keys().bindings().iter().filter(|binding| !binding.is_of_dialogs()) {
            let word = binding.action.word();
            if matches!(binding.action, Action::Palette) {
                continue;
            }
            if tui::acts(binding.action, &state).is_err() {
                continue;
            }
            let found = by_palette(binding, &state).unwrap_or_else(|| panic!("{word} is not found"));
            let pressed = by_key(binding, &state);
            assert_eq!(found.effects, pressed.effects, "{word}");
            assert_eq!(found.screen, pressed.screen, "{word}");
            assert_eq!(found.left, pressed.left, "{word}:\n{}\n{}", found.left, pressed.left);
        }
    }
}

#[test]
fn what_can_not_be_done_says_why_and_is_not_done() {
    let mut app = on_screen(0, &lab_states::recorded());
    typed_in(&mut app, ":empty cache");
    let found = shown(&mut app, 120, 40);
    assert!(found.contains("a recording can't be changed"), "{found}");
    assert_eq!(settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE)), []);
    assert!(shown(&mut app, 120, 40).contains("╭─ find"), "it stays open");
    settled(&mut app, key(KeyCode::Esc, KeyModifiers::NONE));
    assert!(!shown(&mut app, 120, 40).contains("╭─ find"));
}

/// The effects of Enter after this text was typed into the palette.
fn entered(state: &Picture, text: &str) -> (Vec<Effect>, String) {
    let mut app = on_screen(0, state);
    settled(&mut app, key(KeyCode::Char('p'), KeyModifiers::CONTROL));
    typed_in(&mut app, text);
    let effects = asked(settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE)));
    (effects, shown(&mut app, 120, 40))
}

#[test]
fn it_goes_to_steps_and_moments_sets_values_and_explains_words() {
    let back = lab_states::looking_back();
    assert_eq!(entered(&back, "step 3").0, [go(Move::Step(3))]);
    assert_eq!(entered(&back, "peak").0, [go(Move::Jump(Landmark::Peak, Forward))]);
    let marks: Vec<_> = back.history.marks().collect();
    let last = |wanted: fn(&MarkKind) -> bool| {
        let mark = marks.iter().rev().find(|mark| wanted(&mark.kind)).expect("there is one");
        [go(Move::To(mark.position + 1))]
    };
    assert_eq!(entered(&back, "oom").0, last(|kind| *kind == MarkKind::OutOfMemory));
    assert_eq!(entered(&back, "next out of memory").0, [go(Move::Jump(Landmark::OutOfMemory, Forward))]);
    let flip = |kind: &MarkKind| matches!(kind, MarkKind::Flip { switch, .. } if &**switch == "ckpt");
    assert_eq!(entered(&back, "flip c").0, last(flip));
    let running = lab_states::running();
    assert_eq!(entered(&running, "bf16").0, [set("amp", "bf16")]);
    assert_eq!(entered(&running, "checkpoint on").0, [set("ckpt", "on")]);
    assert_eq!(entered(&running, "batch 24").0, [set("batch", "24")]);
    assert_eq!(entered(&running, "limit 512MiB").0, [set("limit", "512MiB")]);
    let (effects, shown) = entered(&running, "stranded");
    assert!(
        effects.is_empty() && shown.contains("help /stranded") && shown.contains("inactive_split_bytes"),
        "{shown}"
    );
}

#[test]
fn it_selects_blocks_and_segments_by_name() {
    let state = lab_states::paused();
    let block = state.view.segments.iter().flat_map(|segment| segment.blocks.iter()).max_by_key(|block| block.size);
    let name = state.view.names.get(block.expect("something is allocated").name).to_owned();
    let (effects, shown) = entered(&state, &name);
    assert_eq!(effects, []);
    assert!(shown.contains("[2 Blocks]") && shown.contains('◆') && shown.contains(&name), "{shown}");
    let address = state.view.segments.last().expect("a segment").address.to_string();
    let (_, shown) = entered(&state, &format!("segment {address}"));
    assert!(shown.contains("[2 Blocks]") && shown.contains(&address), "{shown}");
}

#[test]
fn what_was_done_lately_stands_first() {
    let mut app = on_screen(0, &lab_states::running());
    for query in ["record", "theme", "record", "step 2"] {
        typed_in(&mut app, ":");
        typed_in(&mut app, query);
        settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE));
        settled(&mut app, key(KeyCode::Esc, KeyModifiers::NONE));
    }
    typed_in(&mut app, ":");
    let found = shown(&mut app, 120, 40);
    let at = |name: &str| found.lines().position(|line| line.contains(name)).unwrap_or(usize::MAX);
    assert!(at(" step 2 ") < at(" record ") && at(" record ") < at(" theme "), "{found}");
    let second = found.lines().nth(at(" step 2 ") + 1).unwrap_or_default().to_owned();
    assert!(second.contains(" record "), "{found}");
}

#[test]
fn it_is_whole_at_every_size_and_says_what_it_does_not_find() {
    for (width, height) in [(40, 12), (60, 20), (80, 24), (120, 40), (200, 60)] {
        let mut app = on_screen(1, &lab_states::running());
        typed_in(&mut app, ":qqqzzz");
        assert!(shown(&mut app, width, height).contains("nothing matches"), "{width}×{height}");
        app.update(key(KeyCode::Char('u'), KeyModifiers::CONTROL));
        typed_in(&mut app, "largest hole");
        let found = shown(&mut app, width, height);
        assert!(found.contains("▸ largest hole") && found.contains(" _ "), "{width}×{height}: {found}");
        assert_eq!(app.update(key(KeyCode::Char('c'), KeyModifiers::CONTROL)), [Effect::Quit]);
    }
}

#[test]
fn help_opens_at_the_keys_of_its_screen_and_on_the_lab_at_those_of_a_run() {
    let names = tui::screen_names();
    for (screen, name) in names.iter().enumerate() {
        for (width, height) in [(80, 24), (100, 30), (120, 40), (200, 60)] {
            let mut app = on_screen(screen, &lab_states::running());
            typed_in(&mut app, "?");
            let help = shown(&mut app, width, height);
            // On the Lab, a newcomer finds first how to stop, go on and look back.
            if screen == 0 {
                assert!(
                    help.contains("pause at the next op") && help.contains("back one op"),
                    "{width}×{height}: {help}"
                );
                continue;
            }
            let first = help.lines().find(|line| line.contains("on this screen")).unwrap_or_default().to_lowercase();
            assert!(first.contains(&format!("on this screen: {name}")), "{name} at {width}×{height}: {help}");
            let own: Vec<&Binding> =
                standard_keys().bindings().iter().filter(|one| one.screen == Some(screen)).collect();
            for binding in own.iter().take(usize::from(height) - 4) {
                let label = format!(" {} ", binding.label);
                let says = |sentence: &str| help.contains(&sentence[..sentence.len().min(18)]);
                let said = says(&binding.help) || binding.brief.is_some_and(says);
                assert!(help.contains(&label) && said, "{name}: {label}\n{help}");
            }
        }
    }
}

#[test]
fn help_has_a_line_for_each_key_at_80_columns() {
    for binding in standard_keys().bindings() {
        let cells = binding.help.chars().count();
        assert!(cells <= 64, "{}: {cells} cells: {}", binding.action.word(), binding.help);
        assert!(binding.label.chars().count() <= 9, "{}", binding.label);
    }
}

#[test]
fn enter_in_the_search_of_the_help_presses_the_key_found() {
    let mut app = on_screen(0, &lab_states::running());
    typed_in(&mut app, "?/empty");
    assert!(shown(&mut app, 80, 24).contains("▸ e"), "{}", shown(&mut app, 80, 24));
    let effects = asked(settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE)));
    assert_eq!(effects, [lab(Command::EmptyCache)]);
    assert!(!shown(&mut app, 80, 24).contains("help /"), "it is closed");
    // The second of those found, on another screen.
    typed_in(&mut app, "?/segment on the map");
    let effects = settled(&mut app, key(KeyCode::Enter, KeyModifiers::NONE));
    assert_eq!((asked(effects), app.screen()), (vec![], 1));
    assert!(shown(&mut app, 120, 40).contains('◆'), "a segment is selected");
    typed_in(&mut app, "?/largest");
    settled(&mut app, key(KeyCode::Down, KeyModifiers::NONE));
    assert!(shown(&mut app, 120, 40).contains("▸ #"), "{}", shown(&mut app, 120, 40));
}
