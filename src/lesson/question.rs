//! Questions that come before something is tried, and their possible answers.

use std::fmt;

use super::answer::{Answer, MeasuredAnswer, Unclear, Worth};
use super::goal::Goal;
use crate::figures::{Amount, Condition, FigureUnit, Moments, Quantity, Scale, Template};

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question's text.
    pub ask: Template,
    /// The possible answers.
    pub form: Form,
}

/// The possible answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// One of several choices: the right one is the one whose condition holds afterwards.
    Choices(Vec<Choice>),
    /// A goal that the learner reaches with the lab.
    Goal(Box<Goal>),
    /// A number: the right one is the measured one.
    Number {
        /// The quantity that is measured.
        quantity: Quantity,
        /// How far off a right answer may be.
        within: Tolerance,
        /// The unit of the answer.
        unit: Scale,
    },
}

/// A choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The choice's text.
    pub text: Template,
    /// The condition under which it is right.
    pub when: Condition,
    /// The reply to learners who chose it and were wrong.
    pub reply: Option<Template>,
}

/// How far an answer may be from the measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A share of the measured value.
    Share(f64),
    /// An amount, in the unit of the measured value.
    Amount(f64),
}

impl Tolerance {
    fn of(self, measured: Amount) -> f64 {
        match self {
            Self::Share(share) => share * measured.value.abs(),
            Self::Amount(amount) => amount,
        }
    }
}

impl Form {
    /// What was measured.
    ///
    /// # Errors
    /// [`Unclear`].
    pub fn measure(&self, moments: &Moments) -> Result<MeasuredAnswer, Unclear> {
        match self {
            Self::Number { quantity, .. } => Ok(MeasuredAnswer::Amount(quantity.measure(moments)?)),
            Self::Goal(goal) => goal.measure(moments, false),
            Self::Choices(choices) => {
                let mut right = None;
                for (index, choice) in choices.iter().enumerate() {
                    if choice.when.holds(moments)? {
                        match right {
                            Some(before) => return Err(Unclear::Several(before, index)),
                            None => right = Some(index),
                        }
                    }
                }
                right.map(MeasuredAnswer::Choice).ok_or(Unclear::None)
            }
        }
    }

    /// The worth of `answer` if `measured` was the outcome.
    #[must_use]
    pub fn worth(&self, answer: Answer, measured: MeasuredAnswer) -> Worth {
        match (self, answer, measured) {
            (_, Answer::Choice(given), MeasuredAnswer::Choice(right)) if given == right => Worth::Right,
            (Self::Goal(goal), answer, MeasuredAnswer::Reached { cost }) => goal.worth(answer, cost),
            (Self::Number { within, .. }, Answer::Amount(given), MeasuredAnswer::Amount(right)) => {
                let (off, allowed) = ((given.value - right.value).abs(), within.of(right));
                // A decimal number is not exact in binary.
                let allowed = allowed * (1.0 + 1e-9);
                match off {
                    _ if off <= allowed => Worth::Right,
                    _ if off <= 3.0 * allowed => Worth::Near,
                    _ => Worth::Wrong,
                }
            }
            _ => Worth::Wrong,
        }
    }

    /// Reads an answer: the number or letter of a choice, or an amount, in the question's unit or with its own.
    ///
    /// # Errors
    /// A sentence that says which answers are possible.
    pub fn read(&self, text: &str) -> Result<Answer, String> {
        let text = text.trim();
        match self {
            Self::Choices(choices) => {
                let count = choices.len();
                let letter = |text: &str| match text.to_ascii_lowercase().as_bytes() {
                    [letter @ b'a'..=b'z'] => Some(usize::from(letter - b'a')),
                    _ => None,
                };
                let place =
                    text.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).or_else(|| letter(text));
                place.filter(|place| *place < count).map(Answer::Choice).ok_or_else(|| {
                    format!("'{text}' is none of the choices; answer with a letter or a number from 1 to {count}")
                })
            }
            Self::Goal(_) => Err("set switches, then write try".to_owned()),
            Self::Number { unit, quantity, .. } => {
                if text.is_empty() {
                    return Err(format!("a number is missing; answer with one{}", in_unit(*unit)));
                }
                let end = text.find(|symbol: char| !(symbol.is_ascii_digit() || "+-.,".contains(symbol)));
                let (number, word) = text.split_at(end.unwrap_or(text.len()));
                let number: f64 = number
                    .replace(',', ".")
                    .parse()
                    .map_err(|_| format!("'{text}' is no number; answer with a number{}", in_unit(*unit)))?;
                let scale = if word.trim().is_empty() { *unit } else { Scale::read(word.trim())? };
                let amount = scale.amount(number);
                if !fits(amount.unit, quantity.unit()) {
                    return Err(format!("'{}' is the wrong unit; answer with a number{}", word.trim(), in_unit(*unit)));
                }
                Ok(Answer::Amount(Amount { unit: quantity.unit(), ..amount }))
            }
        }
    }
}

/// Whether an amount in one unit can answer a question in the other.
pub(super) fn fits(a: FigureUnit, b: FigureUnit) -> bool {
    a == b || (a.is_bare() && b.is_bare())
}

fn in_unit(unit: Scale) -> String {
    let word = unit.to_string();
    if word.is_empty() { String::new() } else { format!(" in {word}") }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{} %", (share * 1000.0).round() / 10.0),
            Self::Amount(amount) => write!(f, "{amount}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Figures, Scope};

    fn moments(steps: f64) -> Moments {
        let mut figures = Figures::default();
        figures.set(Figure::named("steps").unwrap(), steps);
        figures.set(Figure::named("reserved").unwrap(), 1000.0 * 1048576.0);
        Moments::new(figures)
    }

    fn choices(conditions: &[&str]) -> Form {
        let choice = |when: &&str| {
            let when = Condition::parse(when, &Scope::NOW).unwrap();
            Choice { text: Template::default(), when, reply: None }
        };
        Form::Choices(conditions.iter().map(choice).collect())
    }

    #[test]
    fn exactly_one_choice_is_right() {
        let form = choices(&["steps < 3", "steps >= 3 and steps < 9", "steps > 7"]);
        assert_eq!(form.measure(&moments(2.0)), Ok(MeasuredAnswer::Choice(0)));
        assert_eq!(form.measure(&moments(8.0)), Err(Unclear::Several(1, 2)));
        assert_eq!(choices(&["steps < 3", "steps > 3"]).measure(&moments(3.0)), Err(Unclear::None));
        assert!(matches!(choices(&["loss < 3", "loss >= 3"]).measure(&moments(3.0)), Err(Unclear::Unanswered(_))));
        for (text, place) in [("1", 0), (" 3 ", 2), ("b", 1), ("C", 2)] {
            assert_eq!(form.read(text), Ok(Answer::Choice(place)));
        }
        for text in ["0", "4", "d", "", "yes"] {
            assert!(form.read(text).unwrap_err().contains("from 1 to 3"), "{text}");
        }
        assert_eq!(form.worth(Answer::Choice(1), MeasuredAnswer::Choice(1)), Worth::Right);
        assert_eq!(form.worth(Answer::Choice(0), MeasuredAnswer::Choice(1)), Worth::Wrong);
        assert_eq!(form.worth(Answer::Passed, MeasuredAnswer::Choice(1)), Worth::Wrong);
    }

    #[test]
    fn a_number_is_right_near_or_wrong() {
        let quantity = Quantity::parse("reserved", &Scope::NOW).unwrap();
        let unit = Scale::named("MiB").unwrap();
        let form = Form::Number { quantity, within: Tolerance::Share(0.1), unit };
        let measured = form.measure(&moments(1.0)).unwrap();
        for (text, worth) in [
            ("1000", Worth::Right),
            ("1100", Worth::Right),
            ("900MiB", Worth::Right),
            ("1.3 GiB", Worth::Wrong),
            ("1,2 GiB", Worth::Near),
            ("700", Worth::Near),
            ("-1000", Worth::Wrong),
        ] {
            assert_eq!(form.worth(form.read(text).unwrap(), measured), worth, "{text}");
        }
        for (text, part) in [("", "in MiB"), ("five", "no number"), ("5 ms", "wrong unit"), ("5 GB", "GiB")] {
            assert!(form.read(text).is_err_and(|reason| reason.contains(part)), "{text}: {:?}", form.read(text));
        }
    }
}
