//! Text beside frames: no text is cut in the middle of a word, and panels name the current keys.

use std::collections::BTreeSet;

use super::*;
use crate::lab_states;

/// From the smallest terminal to a large one.
const GRID: [(u16, u16); 20] = [
    (40, 12),
    (44, 30),
    (50, 14),
    (56, 20),
    (60, 20),
    (66, 40),
    (72, 24),
    (80, 24),
    (86, 30),
    (92, 50),
    (100, 30),
    (104, 24),
    (112, 36),
    (120, 40),
    (128, 28),
    (140, 44),
    (150, 60),
    (160, 30),
    (180, 50),
    (200, 60),
];

fn states() -> Vec<Picture> {
    let out_of_memory = lab_states::state_of(lab_states::out_of_memory(), RunState::OutOfMemory);
    vec![
        lab_states::running(),
        lab_states::looking_back(),
        lab_states::on_gpu(),
        out_of_memory,
        haunted_at_the_peak("expandable_segments:True"),
        lab_states::with_ranks(lab_states::running()),
    ]
}

/// The words of a row that do not touch what follows them, and those that do: a frame, or the edge of the terminal.
fn words(row: &[&str]) -> (Vec<String>, Vec<String>) {
    let (mut free, mut cut) = (Vec::new(), Vec::new());
    let mut word = String::new();
    for (x, symbol) in row.iter().chain([&"│"]).enumerate() {
        let ends = symbol.trim().is_empty() || matches!(*symbol, "─" | "┄" | "╌" | "━");
        let is_frame = matches!(*symbol, "│" | "╮" | "┤" | "╯") || x == row.len();
        if !ends && !is_frame {
            word.push_str(symbol);
            continue;
        }
        let word = std::mem::take(&mut word);
        if word.chars().any(|letter| letter.is_ascii_alphabetic()) {
            if is_frame { cut.push(word) } else { free.push(word) }
        }
    }
    (free, cut)
}

#[test]
fn no_text_ends_at_a_frame_in_the_middle_of_a_word() {
    let mut whole: BTreeSet<String> = BTreeSet::new();
    let mut touching: Vec<(String, String)> = Vec::new();
    for (state, picture) in states().into_iter().enumerate() {
        for screen in ["1", "2", "3", "4", "5", "6", "7"] {
            for (width, height) in GRID {
                let mut app = dark();
                press(&mut app, screen);
                let buf = frame(app, picture.clone(), width, height);
                for row in buf.area.rows() {
                    let symbols: Vec<&str> = row.columns().map(|cell| buf[(cell.x, cell.y)].symbol()).collect();
                    let (free, cut) = words(&symbols);
                    whole.extend(free);
                    let place = format!("state {state}, screen {screen} at {width}×{height}, row {}", row.y);
                    touching.extend(cut.into_iter().map(|word| (word, place.clone())));
                }
            }
        }
    }
    assert!(whole.len() > 300 && touching.len() > 50, "{} {}", whole.len(), touching.len());
    let cut: Vec<&(String, String)> =
        touching.iter().filter(|(word, _)| !word.contains('…') && !whole.contains(word)).collect();
    assert!(cut.is_empty(), "{cut:#?}");
}

/// The upper edges of the panels of a screen.
fn edges(app: &mut App, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buf = draw(app, width, height);
    let layout = tui::draw(app, area, &mut buf);
    let edge = |panel: &Rect| -> String {
        (panel.left()..panel.right()).map(|x| buf[(x, panel.y)].symbol().to_owned()).collect()
    };
    layout.panels.iter().map(|(area, _)| edge(area)).collect::<Vec<_>>().join("\n")
}

#[test]
fn panels_name_their_own_keys_in_their_frames() {
    for (screen, keys) in [
        ("1", &[" [ ] zoom ", " G ghost "][..]),
        ("2", &[" v by ", " _ hole ", " # largest "]),
        ("3", &[" v by ", " 0 step or run ", " ^ peak "]),
        ("4", &[" v by ", " u sort "]),
        ("6", &[" 0 step or run ", " ^ peak "]),
    ] {
        let mut app = dark();
        app.update(Message::Picture(Arc::new(lab_states::studied(lab_states::looking_back(), 3))));
        press(&mut app, screen);
        let edges = edges(&mut app, 200, 60);
        for key in keys {
            assert!(edges.contains(key), "{key} on screen {screen}:\n{edges}");
        }
    }
}

#[test]
fn keys_in_frames_are_those_in_force_and_are_left_out_before_anything_else() {
    let wanted = [("blocks-colouring", "f5"), ("blocks-order", "f6")];
    let wanted = wanted.into_iter().map(|(word, key)| (word.to_owned(), vec![key.to_owned()])).collect();
    let (keys, told) = tui::standard_keys().rebound(&wanted);
    assert_eq!(told, Vec::<String>::new());
    let (mut by, mut sort) = (false, false);
    for (width, height) in GRID {
        for screen in ["1", "2", "3", "4", "5", "6", "7"] {
            let with = |keys| {
                let mut app = dark().with_keys(keys);
                app.update(Message::Picture(Arc::new(lab_states::running())));
                press(&mut app, screen);
                edges(&mut app, width, height)
            };
            let (named, none) = (with(keys.clone()), with(tui::Keymap::new(nothing_but_screens())));
            if screen == "2" {
                (by, sort) = (by || named.contains(" F5 by "), sort || named.contains(" F6 sort "));
                assert!(!named.contains(" v by "), "{named}");
            }
            // Every word of a title is complete, with keys and without.
            let is_edge = |(_, edge): &(&str, &str)| edge.starts_with(['╭', '─']);
            for (named, none) in named.lines().zip(none.lines()).filter(is_edge) {
                for word in none.split([' ', '─']).filter(|word| !word.is_empty()) {
                    assert!(named.contains(word), "{word} at {width}×{height} on {screen}:\n{named}\n{none}");
                }
            }
        }
    }
    assert!(by && sort, "where there is room");
}

/// The keys that show a screen, and no others.
fn nothing_but_screens() -> Vec<tui::Binding> {
    let all = tui::standard_keys().bindings().iter();
    all.filter(|binding| matches!(binding.action, tui::Action::Screen(_))).cloned().collect()
}

#[test]
fn while_it_waits_for_a_program_it_says_whom_since_when_what_for_and_where_output_goes() {
    let awaited = tui::AwaitedProgram {
        command: "python train.py --epochs 3".to_owned(),
        pid: Some(4711),
        output: Some("vramlab-watch-4711.log".into()),
        ..tui::AwaitedProgram::default()
    };
    let waiting = Picture {
        kind: SourceKind::Watched("train.py".into()),
        extent: vramlab::source::Extent { grows: true, ..Default::default() },
        ..Picture::default()
    };
    for (width, height) in GRID {
        let mut app = dark().with_awaited(awaited.clone());
        app.update(Message::Picture(Arc::new(waiting.clone())));
        draw(&mut app, width, height);
        app.update(Message::Clock(Duration::from_millis(75_300)));
        assert!(app.needs_frame(), "its clock runs");
        let shown = text(&draw(&mut app, width, height));
        let words: Vec<&str> = shown.split_whitespace().filter(|word| *word != "│").collect();
        let shown = words.join(" ");
        for said in ["train.py", "4711", "1 min 15 s", "WAITING"] {
            assert!(shown.contains(said), "{said} at {width}×{height}:\n{shown}");
        }
        if height >= 24 {
            for said in ["vramlab-watch-4711.log", "allocates", "q leaves; the program goes on"] {
                assert!(shown.contains(said), "{said} at {width}×{height}:\n{shown}");
            }
        }
        for wrong in ["building", "processor", "step 0", "space play"] {
            assert!(!shown.contains(wrong), "{wrong} at {width}×{height}:\n{shown}");
        }
        assert_eq!(app.next_change(), Some(Duration::from_secs(76)));
    }
    // Its output is shown below, and no key is named that has nothing to do yet.
    let mut app = dark().with_awaited(awaited.clone());
    app.update(Message::Picture(Arc::new(waiting.clone())));
    app.update(Message::Output(vec!["loading weights".to_owned(), "epoch 1".to_owned()]));
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("loading weights") && shown.contains("epoch 1"), "{shown}");
    // However small the screen is; whether torch is there is shown only if the system says so.
    assert!(!shown.contains("torch is"), "{shown}");
    app.update(Message::Torch(Some(false)));
    for (width, height) in GRID {
        let shown = text(&draw(&mut app, width, height));
        assert!(shown.contains("epoch 1"), "{width}×{height}:\n{shown}");
        let words: Vec<&str> = shown.split_whitespace().filter(|word| *word != "│").collect();
        assert!(words.join(" ").contains("torch is not loaded yet") || height < 20, "{width}×{height}:\n{shown}");
    }
    let keys = shown.lines().last().unwrap_or_default();
    assert!(keys.contains("help") && keys.contains("quit") && !keys.contains("record"), "{keys}");
    let over = Picture { run: RunState::Finished, extent: Default::default(), ..waiting };
    let mut app = dark().with_awaited(awaited);
    app.update(Message::Picture(Arc::new(over)));
    let shown = text(&draw(&mut app, 120, 40));
    assert!(shown.contains("ENDED") && shown.contains("no memory of a GPU was seen"), "{shown}");
    assert_eq!(app.next_change(), None);
}

/// Keys are looked up, never hard-coded: if none is bound, no screen shows one.
#[test]
fn no_screen_names_a_key_that_is_not_bound() {
    let keys: BTreeSet<&str> = tui::standard_keys()
        .bindings()
        .iter()
        .filter(|binding| !matches!(binding.action, tui::Action::Screen(_)))
        .flat_map(|binding| binding.label.split(' '))
        .collect();
    let theme = ThemeCatalog::default().load("dark", ColorTier::True).unwrap().0;
    let key = theme.style(Token::Key).fg;
    let mut shown = BTreeSet::new();
    for picture in states().into_iter().map(|state| lab_states::with_study(state, Grouping::Category, false)) {
        for screen in ["1", "2", "3", "4", "5", "6", "7"] {
            for (width, height) in SIZES {
                let mut app = dark().with_keys(tui::Keymap::new(nothing_but_screens()));
                press(&mut app, screen);
                let buf = frame(app, picture.clone(), width, height);
                for row in buf.area.rows() {
                    let inked: String = row
                        .columns()
                        .map(|cell| &buf[(cell.x, cell.y)])
                        .map(|cell| if Some(cell.fg) == key { cell.symbol() } else { " " })
                        .collect();
                    let named = inked.split_whitespace().filter(|word| keys.contains(word));
                    shown.extend(named.map(|word| format!("{word} on screen {screen} at {width}×{height}")));
                }
            }
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
}

/// Whether a row of the screen, without header and footer, has something beside frames.
fn is_filled(row: &str) -> bool {
    row.chars().any(|symbol| !matches!(symbol, ' ' | '│' | '─' | '╭' | '╮' | '╰' | '╯'))
}

#[test]
fn no_screen_leaves_a_third_of_its_rows_empty() {
    let studied = lab_states::with_study(lab_states::running(), Grouping::Category, false);
    let all = &["1", "2", "3", "4", "5", "6", "7"][..];
    // There is no study of the snapshot.
    let states = [(studied, all), (super::stacks::with_stacks(), &["1", "2", "5", "6", "7"][..])];
    for (state, (picture, screens)) in states.into_iter().enumerate() {
        for screen in screens {
            for (width, height) in SIZES {
                let mut app = dark();
                press(&mut app, screen);
                let shown = text(&frame(app, picture.clone(), width, height));
                let body: Vec<bool> = shown.lines().skip(2).map(is_filled).collect();
                let empty = body.split(|filled| *filled).map(<[bool]>::len).max().unwrap_or(0);
                assert!(
                    3 * empty < usize::from(height),
                    "state {state}, screen {screen} at {width}×{height}: {empty} rows\n{shown}"
                );
            }
        }
    }
}

#[test]
fn the_header_of_a_snapshot_cuts_no_word_and_says_that_categories_are_guessed() {
    let detail = "PyTorch snapshot · categories guessed · 123456 entries";
    let picture = lab_states::edited(super::stacks::with_stacks(), |view| {
        let about = Arc::make_mut(&mut view.about);
        about.workload = "a-name-of-some-length.pickle".into();
        about.detail = detail.into();
    });
    for width in 72..=200 {
        let shown = text(&frame(dark(), picture.clone(), width, 40));
        let header = shown.lines().next().unwrap_or_default();
        assert!(header.contains("categories guessed") && !header.contains('…'), "{width}: {header}");
    }
}
