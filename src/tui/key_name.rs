//! Keys in words, for settings and screens.

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyModifiers};
use thiserror::Error;

use super::action::Key;

/// The text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{0}\" is no key; write a character, or a word such as space, left, pgup, tab, f5, ctrl-x")]
pub struct NoKey(String);

/// Keys with a name: the word on screens, and other words that a person may use.
const NAMED: [(KeyCode, &str, &[&str]); 15] = [
    (KeyCode::Char(' '), "space", &[]),
    (KeyCode::Left, "←", &["left"]),
    (KeyCode::Right, "→", &["right"]),
    (KeyCode::Up, "↑", &["up"]),
    (KeyCode::Down, "↓", &["down"]),
    (KeyCode::PageUp, "PgUp", &["pageup", "page-up"]),
    (KeyCode::PageDown, "PgDn", &["pgdown", "pagedown", "page-down"]),
    (KeyCode::Home, "Home", &[]),
    (KeyCode::End, "End", &[]),
    (KeyCode::Tab, "Tab", &[]),
    (KeyCode::Enter, "Enter", &["return"]),
    (KeyCode::Esc, "Esc", &["escape"]),
    (KeyCode::Backspace, "Backspace", &[]),
    (KeyCode::Delete, "Del", &["delete"]),
    (KeyCode::Insert, "Ins", &["insert"]),
];

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(modifiers, code) = *self;
        if modifiers.contains(KeyModifiers::CONTROL) {
            f.write_str("Ctrl-")?;
        }
        if modifiers.contains(KeyModifiers::ALT) {
            f.write_str("Alt-")?;
        }
        if modifiers.contains(KeyModifiers::SHIFT) || code == KeyCode::BackTab {
            f.write_str("Shift-")?;
        }
        if let Some((_, name, _)) = NAMED.iter().find(|(named, ..)| *named == code) {
            return f.write_str(name);
        }
        match code {
            KeyCode::BackTab => f.write_str("Tab"),
            KeyCode::Char(symbol) if modifiers.contains(KeyModifiers::CONTROL) => {
                write!(f, "{}", symbol.to_ascii_uppercase())
            }
            KeyCode::Char(symbol) => write!(f, "{symbol}"),
            KeyCode::F(number) => write!(f, "F{number}"),
            _ => f.write_str("?"),
        }
    }
}

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let none = || NoKey(text.to_owned());
        let (mut modifiers, mut rest) = (KeyModifiers::NONE, text);
        // A single `-` is itself a key.
        while let Some((word, behind)) =
            rest.split_once('-').filter(|(word, behind)| !word.is_empty() && !behind.is_empty())
        {
            modifiers |= match word.to_ascii_lowercase().as_str() {
                "ctrl" | "control" | "c" => KeyModifiers::CONTROL,
                "alt" => KeyModifiers::ALT,
                "shift" => KeyModifiers::SHIFT,
                _ => break,
            };
            rest = behind;
        }
        let mut symbols = rest.chars();
        let code = match (symbols.next(), symbols.next()) {
            (Some(symbol), None) if modifiers.contains(KeyModifiers::CONTROL) => {
                KeyCode::Char(symbol.to_ascii_lowercase())
            }
            (Some(symbol), None) if !symbol.is_control() => {
                NAMED.iter().find(|(_, name, _)| *name == rest).map_or(KeyCode::Char(symbol), |(code, ..)| *code)
            }
            _ => named(&rest.to_ascii_lowercase()).ok_or_else(none)?,
        };
        Ok(match code {
            KeyCode::Tab if modifiers == KeyModifiers::SHIFT => Self(KeyModifiers::NONE, KeyCode::BackTab),
            // Shift is already in the character.
            KeyCode::Char(symbol) if modifiers == KeyModifiers::SHIFT => Self::plain(symbol.to_ascii_uppercase()),
            code => Self(modifiers, code),
        })
    }
}

fn named(word: &str) -> Option<KeyCode> {
    let function =
        word.strip_prefix('f').and_then(|number| number.parse().ok()).filter(|number| (1..=12).contains(number));
    let called =
        |(_, name, others): &&(KeyCode, &str, &[&str])| name.eq_ignore_ascii_case(word) || others.contains(&word);
    function.map(KeyCode::F).or_else(|| NAMED.iter().find(called).map(|(code, ..)| *code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_written() {
        let ctrl = |symbol| Key(KeyModifiers::CONTROL, KeyCode::Char(symbol));
        for (text, key, shown) in [
            ("q", Key::plain('q'), "q"),
            ("Q", Key::plain('Q'), "Q"),
            ("shift-q", Key::plain('Q'), "Q"),
            ("-", Key::plain('-'), "-"),
            ("space", Key::plain(' '), "space"),
            ("left", Key::named(KeyCode::Left), "←"),
            ("←", Key::named(KeyCode::Left), "←"),
            ("PageUp", Key::named(KeyCode::PageUp), "PgUp"),
            ("ctrl-L", ctrl('l'), "Ctrl-L"),
            ("Ctrl--", ctrl('-'), "Ctrl--"),
            ("shift-tab", Key::named(KeyCode::BackTab), "Shift-Tab"),
            ("f5", Key::named(KeyCode::F(5)), "F5"),
            ("alt-x", Key(KeyModifiers::ALT, KeyCode::Char('x')), "Alt-x"),
        ] {
            assert_eq!(text.parse(), Ok(key), "{text}");
            assert_eq!(key.to_string(), shown);
            assert_eq!(shown.parse(), Ok(key), "{shown}");
        }
        for text in ["", "spcae", "ctrl-", "f13", "f0", "\u{1b}", "hyper-x"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
