//! Makes text of files, names and snapshots safe for a terminal: characters that would control the terminal are spelled
//! out.

use std::borrow::Cow;
use std::io::{self, Write};

/// Whether a terminal only shows this character: it neither controls the terminal nor reorders the text around it.
#[must_use]
pub fn is_safe(symbol: char) -> bool {
    // Embeddings, overrides and isolates of bidirectional text, and separators of lines and paragraphs.
    let reorders = matches!(symbol, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !symbol.is_control() && !reorders && symbol != '\u{61c}'
}

/// `text` with every other character replaced by its escape, except line ends and tabs. The escape `\u001b` has the
/// same meaning in JSON.
#[must_use]
pub fn safe(text: &str) -> Cow<'_, str> {
    let shown = |symbol: char| is_safe(symbol) || matches!(symbol, '\n' | '\t');
    if text.chars().all(shown) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for symbol in text.chars() {
        if shown(symbol) { out.push(symbol) } else { out.push_str(&format!("\\u{:04x}", u32::from(symbol))) }
    }
    Cow::Owned(out)
}

/// Passes on what is written as [`safe`] text.
#[derive(Debug)]
pub struct SafeWriter<W>(W);

impl<W: Write> SafeWriter<W> {
    /// Wraps `inner`, which then gets no escape sequence.
    pub const fn new(inner: W) -> Self {
        Self(inner)
    }
}

impl<W: Write> Write for SafeWriter<W> {
    /// Takes all bytes: formatted text comes in whole characters.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(safe(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_spelt_out() {
        assert_eq!(safe("naïve\t→ 漢字\n"), "naïve\t→ 漢字\n");
        assert!(matches!(safe("plain"), Cow::Borrowed(_)));
        assert_eq!(safe("\x1b[31mred\r\u{9b}2J\u{7f}"), r"\u001b[31mred\u000d\u009b2J\u007f");
        assert_eq!(safe("a\u{202e}b\u{2028}c"), r"a\u202eb\u2028c");
    }

    #[test]
    fn a_writer_lets_no_escape_sequence_through() {
        let mut out = Vec::new();
        let title = "\x1b]0;title\x07";
        write!(SafeWriter::new(&mut out), "{title} {:>4}|", 'é').unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\\u001b]0;title\\u0007    é|");
    }
}
