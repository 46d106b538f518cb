//! Splits an expression into words, numbers and signs.

use thiserror::Error;

use super::scale::Scale;

/// Why a text is no expression, with the place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Misread {
    /// The offset in the text, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub reason: String,
}

impl Misread {
    pub(super) fn new(offset: usize, reason: impl Into<String>) -> Self {
        Self { offset, reason: reason.into() }
    }

    /// The line and the column in characters, both counted from 1; `text` is the text that was parsed.
    #[must_use]
    pub fn place(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// A token of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Number(f64, Scale),
    Word(&'a str),
    Sign(&'static str),
}

/// Words that can't be names.
pub(super) const KEYWORDS: [&str; 8] = ["and", "or", "not", "within", "of", "abs", "min", "max"];

/// All signs; longer ones come first.
const SIGNS: [&str; 15] = ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ",", ".", "="];

/// The tokens of `text`, each with its offset.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, Misread> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(symbol) = text[at..].chars().next() {
        let rest = &text[at..];
        if symbol.is_whitespace() {
            at += symbol.len_utf8();
        } else if symbol.is_ascii_digit() {
            let (length, number) = number(rest).map_err(|reason| Misread::new(at, reason))?;
            let (more, scale) =
                scale(&rest[length..]).map_err(|(from, reason)| Misread::new(at + length + from, reason))?;
            found.push((at, Token::Number(number, scale)));
            at += length + more;
        } else if symbol.is_ascii_alphabetic() || symbol == '_' {
            let length = word(rest);
            found.push((at, Token::Word(&rest[..length])));
            at += length;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            found.push((at, Token::Sign(sign)));
            at += sign.len();
        } else {
            return Err(Misread::new(at, format!("'{}' has no meaning here", symbol.escape_debug())));
        }
    }
    Ok(found)
}

/// How many bytes at the beginning of `text` belong to a name.
fn word(text: &str) -> usize {
    text.find(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '_').unwrap_or(text.len())
}

/// The number that `text` begins with, and its length in bytes.
fn number(text: &str) -> Result<(usize, f64), String> {
    let length = text.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '.').unwrap_or(text.len());
    let written = &text[..length];
    match written.parse::<f64>() {
        Ok(number) if number.is_finite() && !written.ends_with('.') => Ok((length, number)),
        _ => Err(format!("'{written}' is no number; write 12 or 1.5")),
    }
}

/// The unit after a number, and its length in bytes, with the space before it.
fn scale(text: &str) -> Result<(usize, Scale), (usize, String)> {
    let per_second = |rest: &str| rest.starts_with("/s") && word(&rest[1..]) == 1;
    if per_second(text) {
        return Ok((2, Scale::named("/s").unwrap_or(Scale::ONE)));
    }
    let space = text.len() - text.trim_start().len();
    let rest = &text[space..];
    if rest.starts_with('%') {
        return Ok((space + 1, Scale::named("%").unwrap_or(Scale::ONE)));
    }
    let length = word(rest);
    if length == 0 || rest.starts_with(|symbol: char| symbol.is_ascii_digit()) || KEYWORDS.contains(&&rest[..length]) {
        return Ok((0, Scale::ONE));
    }
    let length = if per_second(&rest[length..]) { length + 2 } else { length };
    Scale::read(&rest[..length]).map(|scale| (space + length, scale)).map_err(|reason| (space, reason))
}
