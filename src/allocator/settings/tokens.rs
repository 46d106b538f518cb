//! The configuration string cut into words, and the numbers in them, both read as C++ does.

use std::borrow::Cow;

/// The words of a configuration string, one at a time. White space is dropped everywhere; `, : [ ]` are words of their own.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) const fn of(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        let text = self.rest.trim_start_matches(is_space);
        let end = match text.find(is_mark) {
            // Marks are one byte long.
            Some(0) => 1,
            Some(end) => end,
            None => text.len(),
        };
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        let word = word.trim_end_matches(is_space);
        match word {
            "" => None,
            _ if word.contains(is_space) => Some(word.chars().filter(|c| !is_space(*c)).collect()),
            _ => Some(Cow::Borrowed(word)),
        }
    }
}

/// The parts of a configuration string between commas outside brackets.
pub fn setting_entries(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let parts = text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    });
    parts.filter(|part| !part.trim().is_empty())
}

const fn is_mark(c: char) -> bool {
    matches!(c, ',' | ':' | '[' | ']')
}

const fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// Why a word is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotANumber {
    /// The word does not begin with a digit.
    NoDigits,
    /// The number is too large.
    TooLarge,
}

/// The number that `word` begins with, as C++'s `stoull` reads it: the rest is ignored, and a minus sign wraps around.
pub(super) fn leading_integer(word: &str) -> Result<u64, NotANumber> {
    let (negative, digits) = match word.as_bytes() {
        [b'-', ..] => (true, &word[1..]),
        [b'+', ..] => (false, &word[1..]),
        _ => (false, word),
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 {
        return Err(NotANumber::NoDigits);
    }
    let value: u64 = digits[..length].parse().map_err(|_| NotANumber::TooLarge)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// The decimal number that `word` begins with, as C++'s `stod` reads it; the rest is ignored.
pub(super) fn leading_float(word: &str) -> Result<f64, NotANumber> {
    let number = &word[..float_length(word.as_bytes())];
    let value: f64 = number.parse().map_err(|_| NotANumber::NoDigits)?;
    let spelled_out = number.bytes().all(|c| c.is_ascii_alphabetic() || matches!(c, b'+' | b'-'));
    if value.is_infinite() && !spelled_out { Err(NotANumber::TooLarge) } else { Ok(value) }
}

/// How many bytes at the start of `word` form a number.
fn float_length(word: &[u8]) -> usize {
    let digits = |from: usize| word[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let sign = |at: usize| usize::from(matches!(word.get(at), Some(b'+' | b'-')));
    let start = sign(0);
    for name in ["infinity", "inf", "nan"] {
        let end = start + name.len();
        if word.get(start..end).is_some_and(|letters| letters.eq_ignore_ascii_case(name.as_bytes())) {
            return end;
        }
    }
    let whole = digits(start);
    let mut end = start + whole;
    if word.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if whole + fraction == 0 {
            return 0;
        }
        end += 1 + fraction;
    } else if whole == 0 {
        return 0;
    }
    if matches!(word.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + sign(end + 1);
        if exponent <= word.len() && digits(exponent) > 0 {
            end = exponent + digits(exponent);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_dropped_even_inside_words() {
        let words = |text| Words::of(text).collect::<Vec<_>>();
        assert_eq!(words(" a b : [ 1\t:2 ] ,"), ["ab", ":", "[", "1", ":", "2", "]", ","]);
        assert_eq!(words("é\x0bè:,\u{a0}"), ["éè", ":", ",", "\u{a0}"]);
        assert!(words(" \n").is_empty());
    }

    #[test]
    fn integers_are_read_as_far_as_they_go() {
        assert_eq!(leading_integer("30.7"), Ok(30));
        assert_eq!(leading_integer("+8x"), Ok(8));
        assert_eq!(leading_integer("-1"), Ok(u64::MAX));
        assert_eq!(leading_integer("x8"), Err(NotANumber::NoDigits));
        assert_eq!(leading_integer("-"), Err(NotANumber::NoDigits));
        assert_eq!(leading_integer("18446744073709551616"), Err(NotANumber::TooLarge));
    }

    #[test]
    fn floats_are_read_as_far_as_they_go() {
        assert_eq!(leading_float("0.5"), Ok(0.5));
        assert_eq!(leading_float(".25x"), Ok(0.25));
        assert_eq!(leading_float("5e-1e"), Ok(0.5));
        assert_eq!(leading_float("1e999"), Err(NotANumber::TooLarge));
        assert_eq!(leading_float("x"), Err(NotANumber::NoDigits));
        for (word, value) in [("inf", f64::INFINITY), ("-INFINITYx", f64::NEG_INFINITY), ("infinit", f64::INFINITY)] {
            assert_eq!(leading_float(word), Ok(value));
        }
        for (word, value) in [("1.", 1.0), ("1e", 1.0), ("1e+", 1.0), ("1.5e+1e", 15.0), ("+.5", 0.5), ("1.2.3", 1.2)] {
            assert_eq!(leading_float(word), Ok(value), "{word}");
        }
        for word in ["", ".", "+", "-.", "e5", ".e1", "é"] {
            assert_eq!(leading_float(word), Err(NotANumber::NoDigits), "{word}");
        }
    }

    #[test]
    fn a_long_word_is_read_once() {
        // A parser that looks again for every possible end of the number takes hours for this word.
        let digits = "1".repeat(1 << 20);
        assert_eq!(leading_float(&format!("0.{digits}x{digits}x")), Ok(1.0 / 9.0));
    }
}
