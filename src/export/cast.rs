//! Asciicast version 2, the format of asciinema and its players: a header line, then a line for each piece of output.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

/// A recording that is being written.
#[derive(Debug)]
pub struct Cast<W> {
    out: W,
}

impl<W: Write> Cast<W> {
    /// Starts a recording of this many columns and rows.
    ///
    /// # Errors
    /// If `out` refuses to write.
    pub fn new(mut out: W, (columns, rows): (u16, u16), title: &str) -> io::Result<Self> {
        let env = json!({ "TERM": "xterm-256color" });
        writeln!(out, "{}", json!({ "version": 2, "width": columns, "height": rows, "title": title, "env": env }))?;
        Ok(Self { out })
    }

    /// Shows `bytes` at this time after the start. Times must not decrease.
    ///
    /// # Errors
    /// If the file refuses to write.
    pub fn show(&mut self, at: Duration, bytes: &[u8]) -> io::Result<()> {
        let seconds = (at.as_secs_f64() * 1e6).round() / 1e6;
        writeln!(self.out, "{}", json!([seconds, "o", String::from_utf8_lossy(bytes)]))
    }

    /// Flushes all output.
    ///
    /// # Errors
    /// If the file refuses to write.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_lines_of_json_that_hold_no_escape_sequence() {
        let mut out = Vec::new();
        let mut cast = Cast::new(&mut out, (80, 24), "a \"run\"\u{1b}").unwrap();
        cast.show(Duration::ZERO, "\u{1b}[2Jé".as_bytes()).unwrap();
        cast.show(Duration::from_micros(1_500_000), b"x").unwrap();
        cast.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&lines[0]["version"], &lines[0]["width"], &lines[0]["height"]),
            (&json!(2), &json!(80), &json!(24))
        );
        assert_eq!(lines[1..], [json!([0.0, "o", "\u{1b}[2Jé"]), json!([1.5, "o", "x"])]);
    }
}
