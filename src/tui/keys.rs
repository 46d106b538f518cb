//! The commands with the keys in force: the program's own, changed by the user's bindings.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::{Action, Binding, Key, KeyGroup};
use super::dialog::DialogAction;
use crate::user_input::hint;

/// This key always ends the program.
const LAST_WAY_OUT: Key = Key(KeyModifiers::CONTROL, KeyCode::Char('c'));

/// Every command with its keys, in the order of the help and of the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap(Vec<Binding>);

impl Keymap {
    /// These commands.
    #[must_use]
    pub const fn new(bindings: Vec<Binding>) -> Self {
        Self(bindings)
    }

    /// Every command.
    #[must_use]
    pub fn bindings(&self) -> &[Binding] {
        &self.0
    }

    /// The command of a pressed key on the screen with this index.
    #[must_use]
    pub fn binding_for(&self, event: KeyEvent, screen: usize) -> Option<&Binding> {
        let key = Key::of(event);
        self.0.iter().find(|binding| binding.acts_on(screen) && binding.keys.contains(&key))
    }

    /// The action of a pressed key for the dialog on top.
    #[must_use]
    pub fn dialog_action(&self, event: KeyEvent) -> Option<DialogAction> {
        let key = Key::of(event);
        self.0.iter().find_map(|binding| match binding.action {
            Action::Dialog(action) if binding.keys.contains(&key) => Some(action),
            _ => None,
        })
    }

    /// The first key of a command in words; empty if it has none.
    #[must_use]
    pub fn key_of(&self, action: Action) -> &str {
        let binding = self.0.iter().find(|binding| binding.action == action);
        binding.map_or("", Binding::first_label)
    }

    /// `text` after the key of a command, as in `c (checkpoint on)`; alone if there is no key.
    #[must_use]
    pub fn with_key(&self, action: Action, text: &str) -> String {
        match self.key_of(action) {
            "" => text.to_owned(),
            key => format!("{key} ({text})"),
        }
    }

    /// `text` after the key that opens it, as in `w: 3 more findings`; alone if there is no key.
    #[must_use]
    pub fn opens(&self, action: Action, text: &str) -> String {
        match self.key_of(action) {
            "" => text.to_owned(),
            key => format!("{key}: {text}"),
        }
    }

    /// The keymap with other keys for some commands, by their words. Errors are returned as sentences: an unknown word
    /// or key, a key that was given twice, a command without any key left.
    #[must_use]
    pub fn rebound(&self, wanted: &BTreeMap<String, Vec<String>>) -> (Self, Vec<String>) {
        let (mut bindings, mut told) = (self.0.clone(), Vec::new());
        let mut given: Vec<usize> = Vec::new();
        for (word, names) in wanted {
            let Some(index) = bindings.iter().position(|binding| binding.action.word() == *word) else {
                let words: Vec<_> = bindings.iter().map(|binding| binding.action.word()).collect();
                told.push(format!("there is no command \"{word}\"{}", hint(word, words.iter().map(|word| &**word))));
                continue;
            };
            let mut keys = Vec::new();
            for name in names {
                let key: Key = match name.parse() {
                    Ok(key) => key,
                    Err(error) => {
                        told.push(format!("{error} (for {word})"));
                        continue;
                    }
                };
                let holds =
                    |other: &&usize| bindings[**other].meets(&bindings[index]) && bindings[**other].keys.contains(&key);
                if key == LAST_WAY_OUT {
                    told.extend(
                        (bindings[index].action != Action::Quit).then(|| "Ctrl-C always ends the program".to_owned()),
                    );
                } else if let Some(first) = given.iter().find(holds) {
                    let first = bindings[*first].action.word();
                    told.push(format!("\"{key}\" is bound to both {first} and {word}; {first} keeps it"));
                } else {
                    keys.push(key);
                }
            }
            if keys.is_empty() && !names.is_empty() {
                continue; // nothing of the binding is valid, so the command keeps its keys
            }
            if bindings[index].action == Action::Quit {
                keys.push(LAST_WAY_OUT);
            }
            // The same command may be bound on several screens.
            let action = bindings[index].action;
            for (other, binding) in bindings.iter_mut().enumerate().filter(|(_, binding)| binding.action == action) {
                binding.bind(keys.clone());
                given.push(other);
            }
        }
        for index in (0..bindings.len()).filter(|index| !given.contains(index)) {
            let taken = |key: &Key| {
                let owner = given
                    .iter()
                    .find(|other| bindings[**other].meets(&bindings[index]) && bindings[**other].keys.contains(key));
                owner.map(|owner| bindings[*owner].action.word())
            };
            let lost = bindings[index].keys.iter().find_map(|key| Some((*key, taken(key)?)));
            let kept: Vec<Key> = bindings[index].keys.iter().copied().filter(|key| taken(key).is_none()).collect();
            if let Some((key, owner)) = lost {
                if kept.is_empty() {
                    told.push(format!("{} has no key now: \"{key}\" is {owner}", bindings[index].action.word()));
                }
                bindings[index].bind(kept);
            }
        }
        (Self(bindings), told)
    }

    /// The keys as a table for the guide; `screen` names a screen by its index.
    #[must_use]
    pub fn markdown(&self, screen: impl Fn(usize) -> &'static str) -> String {
        let mut table = String::from("| key | what it does |\n|---|---|\n");
        for group in KeyGroup::ALL {
            for binding in self.0.iter().filter(|binding| binding.group == group) {
                let keys: Vec<String> = binding.label.split(' ').map(|key| format!("`{key}`")).collect();
                let of = match binding.screen {
                    Some(index) => format!("{}: ", screen(index)),
                    None if binding.is_of_dialogs() => "in a dialog: ".to_owned(),
                    None => String::new(),
                };
                table.push_str(&format!("| {} | {of}{} |\n", keys.join(" "), binding.help));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{FlipDirection, StepSize, Switch};
    use crate::tui::keymap;

    fn rebound(wanted: &[(&str, &[&str])]) -> (Keymap, Vec<String>) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        keymap::standard().rebound(&wanted.iter().map(|(word, keys)| ((*word).to_owned(), names(keys))).collect())
    }

    fn action(keys: &Keymap, key: &str) -> Option<Action> {
        let Key(modifiers, code) = key.parse().unwrap();
        keys.binding_for(KeyEvent::new(code, modifiers), 0).map(|binding| binding.action)
    }

    #[test]
    fn a_command_gets_other_keys_and_its_old_ones_are_free() {
        let (keys, told) = rebound(&[("pause", &["f5", "ctrl-p"]), ("op", &["space"])]);
        assert_eq!(told, Vec::<String>::new());
        assert_eq!(action(&keys, "f5"), Some(Action::TogglePause));
        assert_eq!(action(&keys, "ctrl-p"), Some(Action::TogglePause));
        assert_eq!(action(&keys, "space"), Some(Action::Advance(StepSize::Op)));
        assert_eq!(action(&keys, "."), None);
        assert_eq!((keys.key_of(Action::TogglePause), keys.key_of(Action::Quit)), ("F5", "q"));
        assert!(keys.markdown(|_| "").contains("| `F5` `Ctrl-P` | pause"));
    }

    #[test]
    fn conflicts_are_told() {
        let amp = Switch::named("amp").unwrap();
        let (keys, told) = rebound(&[("pause", &["m"])]);
        assert_eq!(told, ["amp has no key now: \"m\" is pause"]);
        assert_eq!(
            (action(&keys, "m"), keys.key_of(Action::Flip(amp, FlipDirection::Next))),
            (Some(Action::TogglePause), "")
        );
        assert_eq!(keys.with_key(Action::Flip(amp, FlipDirection::Next), "AMP bf16"), "AMP bf16");
        let (keys, told) = rebound(&[("op", &["f6"]), ("pause", &["f6", "f7"])]);
        assert_eq!(told, ["\"F6\" is bound to both op and pause; op keeps it"]);
        assert_eq!(
            (action(&keys, "f6"), action(&keys, "f7")),
            (Some(Action::Advance(StepSize::Op)), Some(Action::TogglePause))
        );
        // One of two keys is lost. The other remains, so nothing needs to be reported.
        assert_eq!(rebound(&[("pause", &["h"])]).1, Vec::<String>::new());
    }

    #[test]
    fn what_is_no_command_or_no_key_is_told_and_changes_nothing() {
        let (keys, told) = rebound(&[("paus", &["y"]), ("op", &["spcae"]), ("record", &["ctrl-c"])]);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.contains(&"there is no command \"paus\" (did you mean \"pause\"?)".to_owned()), "{told:?}");
        assert!(
            told.iter().any(|line| line.contains("\"spcae\" is no key"))
                && told.contains(&"Ctrl-C always ends the program".to_owned())
        );
        assert_eq!(&keys, keymap::standard());
    }

    #[test]
    fn nothing_takes_the_last_way_out() {
        let (keys, told) = rebound(&[("quit", &[])]);
        assert_eq!(told, Vec::<String>::new());
        assert_eq!((action(&keys, "q"), action(&keys, "ctrl-c")), (None, Some(Action::Quit)));
    }

    #[test]
    fn every_command_has_a_word_of_its_own() {
        let mut actions: Vec<Action> = Vec::new();
        for binding in keymap::standard().bindings() {
            if !actions.contains(&binding.action) {
                actions.push(binding.action);
            }
        }
        let mut words: Vec<_> = actions.into_iter().map(Action::word).collect();
        assert!(words.iter().all(|word| !word.is_empty()), "{words:?}");
        words.sort();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
