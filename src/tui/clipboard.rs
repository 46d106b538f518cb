//! Text for the clipboard of the user's terminal, however far away that is: the sequence that terminals know as OSC 52.
//!
//! The text travels as base64 and nothing else, so that nothing in it can command the terminal or what lies between.

use base64::prelude::{BASE64_STANDARD, Engine as _};

/// Bytes of text that are sent at most: terminals refuse a sequence that is longer than some 74 KB of base64.
pub const MOST: usize = 54_000;
/// Base64 to a sequence of GNU screen, which forgets longer ones.
const SCREEN_CHUNK: usize = 240;

/// What lies between the program and the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multiplexer {
    /// Nothing that would keep the sequence.
    #[default]
    None,
    /// tmux.
    Tmux,
    /// GNU screen.
    Screen,
}

impl Multiplexer {
    /// What the environment tells of: both set their variable, the inner one last, and tmux in screen is rarer than a
    /// variable that screen left behind.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
        if is_set("TMUX") {
            Self::Tmux
        } else if is_set("STY") {
            Self::Screen
        } else {
            Self::None
        }
    }
}

/// `text` as far as it fits, cut at the end of a line where it has several; whether something was cut.
#[must_use]
pub fn fitting(text: &str) -> (&str, bool) {
    if text.len() <= MOST {
        return (text, false);
    }
    let end = (0..=MOST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let cut = &text[..end];
    (cut.rfind('\n').map_or(cut, |line| &cut[..line]), true)
}

/// The bytes that put `text` on the clipboard.
#[must_use]
pub fn sequence(text: &str, through: Multiplexer) -> Vec<u8> {
    let payload = BASE64_STANDARD.encode(fitting(text).0);
    let plain = format!("\x1b]52;c;{payload}\x07");
    match through {
        Multiplexer::None => plain.into_bytes(),
        // tmux takes it where `set-clipboard` is on, and hands it on where `allow-passthrough` is: each is off somewhere.
        Multiplexer::Tmux => format!("{plain}\x1bPtmux;\x1b{plain}\x1b\\").into_bytes(),
        Multiplexer::Screen => {
            let chunks = plain.as_bytes().chunks(SCREEN_CHUNK);
            chunks.flat_map(|chunk| [b"\x1bP", chunk, b"\x1b\\"].concat()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_travels_as_base64() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("é\u{1b}]0;x\u{7}", "w6kbXTA7eAc="),
        ] {
            assert_eq!(sequence(text, Multiplexer::None), format!("\x1b]52;c;{encoded}\x07").into_bytes());
        }
    }

    #[test]
    fn tmux_gets_it_both_ways_and_screen_in_pieces() {
        let through = sequence("foo", Multiplexer::Tmux);
        assert_eq!(through, b"\x1b]52;c;Zm9v\x07\x1bPtmux;\x1b\x1b]52;c;Zm9v\x07\x1b\\");
        let long = "x".repeat(1000);
        let through = String::from_utf8(sequence(&long, Multiplexer::Screen)).unwrap();
        let pieces: Vec<&str> = through.split("\x1b\\").filter(|piece| !piece.is_empty()).collect();
        assert!(pieces.iter().all(|piece| piece.starts_with("\x1bP") && piece.len() <= SCREEN_CHUNK + 2));
        let whole: String = pieces.iter().map(|piece| &piece[2..]).collect();
        assert_eq!(whole.into_bytes(), sequence(&long, Multiplexer::None));
    }

    #[test]
    fn what_is_too_long_is_cut_at_the_end_of_a_line() {
        let rows = "twelve bytes\n".repeat(10_000);
        let (kept, cut) = fitting(&rows);
        assert!(cut && kept.len() <= MOST && kept.ends_with("twelve bytes"));
        assert_eq!(fitting("short\nlines"), ("short\nlines", false));
        let wide = "é".repeat(MOST);
        assert_eq!(fitting(&wide).0.len(), MOST, "no character is cut in two");
        assert!(sequence(&rows, Multiplexer::None).len() < 74_994, "what terminals take");
    }

    #[test]
    fn the_environment_tells_what_lies_between() {
        let of = |set: &'static [&'static str]| Multiplexer::detect(|name| set.contains(&name).then(|| "1".to_owned()));
        assert_eq!(
            [of(&[]), of(&["STY"]), of(&["TMUX"]), of(&["STY", "TMUX"])],
            [Multiplexer::None, Multiplexer::Screen, Multiplexer::Tmux, Multiplexer::Tmux]
        );
    }
}
