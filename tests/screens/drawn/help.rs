//! The help: its pages, and that it has every key and every word of the screens.

use super::*;

#[test]
fn help_at_120x40() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    press(&mut app, "?");
    insta::assert_snapshot!(text(&draw(&mut app, 120, 40)));
}

#[test]
fn help_scrolls_at_80x24() {
    let mut app = dark();
    app.update(Message::Picture(Arc::new(crate::lab_states::running())));
    press(&mut app, "?");
    draw(&mut app, 80, 24);
    press(&mut app, &"j".repeat(100));
    insta::assert_snapshot!(text(&draw(&mut app, 80, 24)));
}

/// A key is described in a whole sentence; it is short if the help has two columns.
#[test]
fn no_key_is_explained_by_a_part_of_a_sentence() {
    // The columns of the help, and the cells of a description.
    for ((width, height), columns, room) in [((80, 24), vec![2], 64), ((120, 40), vec![2, 61], 45)] {
        let mut app = dark();
        app.update(Message::Picture(Arc::new(crate::lab_states::running())));
        press(&mut app, "?");
        let mut seen = String::new();
        for _ in 0..200 {
            let buf = draw(&mut app, width, height);
            for left in &columns {
                for row in buf.area.rows().skip(1) {
                    let cells = row.columns().skip(left + 12).take(room);
                    let text: String = cells.map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect();
                    assert!(!text.contains('…'), "{width}×{height}: {text}");
                    seen.push_str(text.trim());
                    seen.push(' ');
                }
            }
            press(&mut app, "j");
        }
        for binding in tui::standard_keys().bindings() {
            let help = binding.help_in(room);
            assert!(seen.contains(help), "{width}×{height}: {help}");
        }
    }
    for binding in tui::standard_keys().bindings() {
        assert!(binding.brief.is_none_or(|brief| brief.chars().count() <= 42), "{:?}", binding.brief);
    }
}

/// Words of labels that need no explanation: names of models, units of time, and words of everyday English.
const PLAIN: &str = "\
    byte A B C Compare Enter Figures First It Lab M The What a add against all among an and another are as between by change changes do e \
    each earlier elsewhere empty ends every fastest file filled first fits for force goes good has here in inside is it known \
    its lab larger largest last least left line may model more most ms name next no none not of off on one or order out outputs per put \
    ran read reads rest return returns right run s seen shows size so sort spread stands t than that the themselves they \
    this those through to told until up use view what when where who without writes yet zoom";

/// Every label on a screen, at any size and in any state that is checked here, is explained.
#[test]
fn every_word_that_labels_use_is_in_the_help() {
    let theme = ThemeCatalog::default().load("dark", ColorTier::True).unwrap().0;
    let quiet = theme.style(Token::Dim).fg;
    let title = theme.style(Token::Title);
    let out_of_memory = crate::lab_states::state_of(crate::lab_states::out_of_memory(), RunState::OutOfMemory);
    let states =
        [crate::lab_states::running(), crate::lab_states::on_gpu(), crate::lab_states::paused(), out_of_memory]
            .map(|state| crate::lab_states::with_study(state, Grouping::Category, false));
    let mut unknown = std::collections::BTreeMap::new();
    for state in states {
        for keys in ["1", "2", "3", "4", "4v", "4vv", "4vvv", "5", "6"] {
            for (width, height) in SIZES {
                let buf = screen(dark(), keys, state.clone(), width, height);
                for row in buf.area.rows() {
                    // The header has names of models and cards; the footer and the log have words that the help has as
                    // keys.
                    if row.y < 2 || row.y + 1 == height {
                        continue;
                    }
                    let mut word = String::new();
                    for x in 0..=width {
                        let cell = (x < width).then(|| &buf[(x, row.y)]);
                        let label = cell.filter(|cell| {
                            Some(cell.fg) == quiet || (Some(cell.fg) == title.fg && cell.modifier == title.add_modifier)
                        });
                        match label.and_then(|cell| cell.symbol().chars().next()) {
                            Some(symbol) if symbol.is_alphanumeric() || "_.*-%".contains(symbol) => word.push(symbol),
                            _ => {
                                let done = std::mem::take(&mut word);
                                let known = done.is_empty()
                                    || done
                                        .chars()
                                        .any(|symbol| symbol.is_ascii_digit() || symbol == '.' || symbol == '*')
                                    || done.chars().all(|symbol| !symbol.is_alphabetic())
                                    || PLAIN.split(' ').any(|plain| plain == done)
                                    || tui::explains(&done);
                                if !known {
                                    unknown.entry(done).or_insert_with(|| format!("{keys} at {width}×{height}"));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
