//! What a lesson says of choices and numbers.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_letters() {
        assert_eq!([0, 1, 25, 26].map(letter), ['A', 'B', 'Z', '?']);
    }
}
