//! Choices and numbers of a lesson, as text.

use super::answer::MeasuredAnswer;
use super::goal::reached;
use super::question::Form;
use super::told::QuestionText;
use crate::figures::Scale;

/// The letter of a choice; its index counts from 0.
#[must_use]
pub fn letter(place: usize) -> char {
    u8::try_from(place).ok().filter(|place| *place < 26).map_or('?', |place| char::from(b'A' + place))
}

/// What was measured, in words.
#[must_use]
pub fn measured(form: &Form, asked: &QuestionText, measured: MeasuredAnswer) -> String {
    match (form, measured) {
        (_, MeasuredAnswer::Choice(place)) => {
            format!("{}. {}", letter(place), asked.choices.get(place).map_or("", String::as_str))
        }
        (Form::Number { unit, .. }, MeasuredAnswer::Amount(amount)) if *unit != Scale::ONE => {
            match unit.number_in(amount) {
                Some(number) => format!("{} {unit}", in_short(number)),
                None => amount.to_string(),
            }
        }
        (_, MeasuredAnswer::Amount(amount)) => amount.to_string(),
        (_, MeasuredAnswer::Reached { cost }) => reached(cost),
    }
}

/// A number with as many decimals as are significant.
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
    fn a_goal_says_what_it_cost_or_gained() {
        let share = |value| Some(crate::figures::Amount { value, unit: crate::figures::FigureUnit::Share });
        assert_eq!(reached(share(0.16)), "reached, at a cost of 16 %");
        assert_eq!(reached(share(-0.7)), "reached, at a gain of 70 %");
        assert_eq!(reached(None), "reached");
    }

    #[test]
    fn choices_have_letters() {
        assert_eq!([0, 1, 25, 26].map(letter), ['A', 'B', 'Z', '?']);
    }
}
