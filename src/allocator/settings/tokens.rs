//! The configuration string cut into words, and the numbers in them, both read as C++ does.

/// The words of a configuration string: white space is dropped wherever it stands, `, : [ ]` are words of their own.
pub(super) fn tokenize(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if matches!(c, ',' | ':' | '[' | ']') {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            words.push(c.to_string());
        } else if !c.is_ascii_whitespace() && c != '\x0b' {
            word.push(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Why a word is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotANumber {
    /// It does not begin with one.
    NoDigits,
    /// It does not fit.
    TooLarge,
}

/// The number that `word` begins with, as C++'s `stoull` reads it: the rest is ignored, a minus sign wraps around.
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
    let end = (1..=word.len())
        .rev()
        .filter(|&end| word.is_char_boundary(end))
        .find(|&end| word[..end].parse::<f64>().is_ok())
        .ok_or(NotANumber::NoDigits)?;
    let value: f64 = word[..end].parse().map_err(|_| NotANumber::NoDigits)?;
    let spelled_out = word[..end].bytes().all(|c| c.is_ascii_alphabetic() || matches!(c, b'+' | b'-'));
    if value.is_infinite() && !spelled_out { Err(NotANumber::TooLarge) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_dropped_even_inside_words() {
        assert_eq!(tokenize(" a b : [ 1\t:2 ] ,"), ["ab", ":", "[", "1", ":", "2", "]", ","]);
        assert!(tokenize(" \n").is_empty());
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
        assert_eq!(leading_float("inf"), Ok(f64::INFINITY));
    }
}
