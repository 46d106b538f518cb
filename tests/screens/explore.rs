//! Follows the guide's page "Explore" step by step: what it says is what one sees, at 120×40.

use std::cell::Cell;
use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::session::LabSpec;
use vramlab::source::{self, Picture, Source};
use vramlab::tui::{self, App, Effect, GlyphTier, Message};
use vramlab::workload;

use crate::patience;

/// The lab as a user has it: a source, the screen's state, and keys.
struct Person {
    source: Source,
    app: App,
    begun: Instant,
}

impl Person {
    fn sit_down() -> Self {
        let entry = workload::Catalog::with_user_workloads(None).entry(workload::DEFAULT).unwrap();
        let catalog = ThemeCatalog::default();
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        let app = App::new(catalog, theme, GlyphTier::Unicode);
        Self { source: source::live(LabSpec::new(entry)).unwrap(), app, begun: Instant::now() }
    }

    fn tell(&mut self, message: Message) {
        for effect in self.app.update(message) {
            if let Effect::Send(request) = effect {
                self.source.request(request);
            }
        }
    }

    fn press(&mut self, keys: &str) {
        for symbol in keys.chars() {
            let code = match symbol {
                '\n' => KeyCode::Enter,
                '←' => KeyCode::Left,
                symbol => KeyCode::Char(symbol),
            };
            self.tell(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        }
    }

    /// The current text of the screen.
    fn look(&mut self) -> String {
        self.tell(Message::Clock(self.begun.elapsed()));
        let picture = self.source.pictures.borrow_and_update().clone();
        self.tell(Message::Picture(picture));
        let mut buf = Buffer::empty(Rect::new(0, 0, 120, 40));
        let layout = tui::draw(&self.app, buf.area, &mut buf);
        self.tell(Message::Drawn(layout));
        let row = |row: Rect| row.columns().map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect::<String>();
        buf.area.rows().map(row).collect::<Vec<_>>().join("\n")
    }

    /// Looks until all of `words` are on the screen.
    fn see(&mut self, words: &[&str]) -> String {
        self.wait(&format!("{words:?}"), |seen| words.iter().all(|word| seen.contains(word)))
    }

    /// Looks until the right-hand column has a sentence.
    fn read(&mut self, sentence: &str) -> String {
        self.wait(sentence, |seen| words_at_right(seen).contains(sentence))
    }

    fn wait(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let last = Cell::default();
        let found = || {
            let seen = self.look();
            if is_there(&seen) {
                return Some(seen);
            }
            last.set(seen);
            None
        };
        patience::find(found, || format!("{what}:\n{}", last.take()))
    }

    /// Looks until a condition on the lab's picture is true.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Picture) -> bool) {
        let holds = || {
            self.look();
            holds(&self.source.pictures.borrow())
        };
        patience::wait(holds, || what.to_owned());
    }
}

/// The words of the right-hand column of panes, however they wrap.
fn words_at_right(seen: &str) -> String {
    let right: Vec<String> = seen.lines().map(|line| line.chars().skip(71).collect()).collect();
    right.iter().flat_map(|line| line.split_whitespace()).filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// The line with `label`, in the right-hand pane.
fn figure<'a>(screen: &'a str, label: &str) -> &'a str {
    screen.lines().find(|line| line.contains(label)).unwrap_or_else(|| panic!("no {label}:\n{screen}"))
}

#[test]
fn what_the_guide_says_is_what_one_sees() {
    let explore = include_str!("../../lab/guide/explore.md");
    let mut person = Person::sit_down();
    person.see(&["RUNNING", "history", "this step", "blocks", "forward", "backward"]);
    person.wait_until("steps", |picture| picture.extent.steps >= 13);

    person.press("m");
    let seen = person.see(&["AMP off → fp16 · 10 steps"]);
    assert!(explore.contains("by 27 %") && figure(&seen, "peak allocated").contains("−27 %"), "{seen}");
    assert!(explore.contains("rises by 6 %") && figure(&seen, "peak reserved").contains("+6 %"), "{seen}");

    person.press("c");
    let seen = person.see(&["checkpoint off → on · 10 steps"]);
    assert!(explore.contains("by 33 %") && figure(&seen, "peak allocated").contains("−33 %"), "{seen}");
    assert!(
        explore.contains("dotted line") && seen.contains(" before "),
        "the step before the flip is a line:\n{seen}"
    );

    person.press("e");
    let seen = person.see(&["empty_cache", "allocated again with"]);
    assert!(explore.contains("66 → 14 MiB") && seen.contains("reserved 66.0 → "), "{seen}");
    person.see(&["empty_cache · 1 step"]);
    // The history describes the step that is shown below it, which comes a moment later.
    person.wait("a lower history", |seen| {
        seen.contains("history ■ reserved ") && !seen.contains("history ■ reserved 66.0")
    });

    person.press("p");
    person.see(&["pinned off → on", " s1 "]);
    assert!(explore.contains("`s1`"));

    person.press(" ");
    person.see(&["PAUSED"]);
    let before = person.source.pictures.borrow().view.time;
    // Pending ops would delay the space below.
    person.press(".");
    person.wait_until("an op", |picture| picture.view.time > before);
    person.see(&["PAUSED"]);

    person.press("←");
    person.wait_until("a look back", |picture| !picture.is_now());
    person.see(&["PAUSED", "End now"]);
    person.press(" ");
    person.see(&["RUNNING"]);

    person.press("L22MiB\n");
    person.read("stay reserved, above the limit of 22.00 MiB");
    person.press("e");
    let seen = person.see(&["OUT OF MEMORY", "out of memory · step", "simulated)"]);
    for words in ["asked for", "(tried, simulated)", "live", "fits", "The limit of 22.0 MiB stopped it"] {
        let in_one_line = words_at_right(&seen);
        assert!(in_one_line.contains(words), "{words}:\n{seen}");
    }
    person.press("L\n ");
    person.see(&["RUNNING"]);
}
