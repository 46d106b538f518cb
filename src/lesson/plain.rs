//! A lesson's texts for a terminal line by line, or for a reader that speaks them.

use unicode_width::UnicodeWidthStr;

use super::course::Asked;
use super::question::{Form, Measured};
use crate::figures::Scale;

/// The letter of a choice, counted from 0.
#[must_use]
pub fn letter(place: usize) -> char {
    u8::try_from(place).ok().filter(|place| *place < 26).map_or('?', |place| char::from(b'A' + place))
}

/// What came out, in words.
#[must_use]
pub fn measured(form: &Form, asked: &Asked, measured: Measured) -> String {
    match (form, measured) {
        (_, Measured::Choice(place)) => {
            format!("{}. {}", letter(place), asked.choices.get(place).map_or("", String::as_str))
        }
        (Form::Number { unit, .. }, Measured::Amount(amount)) if *unit != Scale::ONE => match unit.number_in(amount) {
            Some(number) => format!("{} {unit}", in_short(number)),
            None => amount.to_string(),
        },
        (_, Measured::Amount(amount)) => amount.to_string(),
    }
}

/// A number with as many decimals as tell something.
fn in_short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Markdown as plain lines of at most `width` columns: paragraphs and items of lists are wrapped, emphasis goes, code stays.
#[must_use]
pub fn wrapped(markdown: &str, width: usize) -> String {
    let mut out = Lines { text: String::new(), width: width.max(20) };
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in markdown.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            out.flow(&mut paragraph);
            in_code = !in_code;
        } else if in_code {
            out.line(&format!("    {}", line.trim_end()));
        } else if trimmed.is_empty() {
            out.flow(&mut paragraph);
            out.gap();
        } else {
            if item(trimmed).is_some() {
                out.flow(&mut paragraph);
            }
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(trimmed);
        }
    }
    out.flow(&mut paragraph);
    out.text.trim_end().to_owned()
}

/// The mark of an item of a list, and what follows it.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, rest) = line.split_once(' ')?;
    let digits = mark
        .strip_suffix('.')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    (matches!(mark, "-" | "*" | "+") || digits).then(|| (if digits { mark } else { "-" }, rest.trim_start()))
}

struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Writes a paragraph in lines, and begins another one.
    fn flow(&mut self, paragraph: &mut String) {
        let paragraph = std::mem::take(paragraph);
        let (mark, words) = item(&paragraph).unwrap_or(("", &paragraph));
        let words = words.replace("**", "");
        let indent = if mark.is_empty() { 0 } else { mark.len() + 1 };
        let mut line = mark.to_owned();
        let mut is_first = true;
        for word in words.split_whitespace() {
            if !is_first && line.width() + 1 + word.width() > self.width {
                self.line(&line);
                line = " ".repeat(indent.saturating_sub(1));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            is_first = false;
        }
        if !is_first {
            self.line(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_lines() {
        let text =
            "One **two** three\nfour five six.\n\n- an item that is long\n- `code`\n1. first\n\n```\nlet  x;\n```\nend";
        let lines =
            "One two three four\nfive six.\n\n- an item that is\n  long\n- `code`\n1. first\n\n    let  x;\nend";
        assert_eq!(wrapped(text, 20), lines);
        assert_eq!(wrapped("", 20), "");
        assert_eq!(
            wrapped("a-word-that-is-much-longer-than-a-line b", 20),
            "a-word-that-is-much-longer-than-a-line\nb"
        );
    }

    #[test]
    fn choices_have_letters() {
        assert_eq!([0, 1, 25, 26].map(letter), ['A', 'B', 'Z', '?']);
    }
}
