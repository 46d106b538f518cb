//! Puts text on the clipboard of the user's terminal, however far away, with the sequence that terminals know as OSC 52.
//!
//! The text travels as base64, so that nothing in it can command the terminal or a multiplexer.

use base64::prelude::{BASE64_STANDARD, Engine as _};

/// The most bytes of text that are sent: terminals refuse a sequence longer than about 74 KB of base64.
pub const MOST: usize = 54_000;
/// How many characters of base64 go into one sequence for GNU screen, which drops longer ones.
const SCREEN_CHUNK: usize = 240;

/// A multiplexer between the program and the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multiplexer {
    /// None.
    #[default]
    None,
    /// tmux.
    Tmux,
    /// GNU screen.
    Screen,
}

impl Multiplexer {
    /// Detects the multiplexer from the environment. Both set a variable. If both are set, tmux is assumed: tmux inside
    /// screen is rarer than a variable left over from screen.
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

/// The part of `text` that fits, cut at the end of a line if it has several lines, and whether it was cut.
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
        // tmux takes the sequence if `set-clipboard` is on, and passes it on if `allow-passthrough` is on. Each is off
        // in some setups.
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
