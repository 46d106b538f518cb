//! A height of memory that a lesson is about: its goal, or the measured answer to a question.

use crate::drawing::chart::Ceiling;
use crate::drawing::theme::Token;
use crate::figures::{Amount, Figure, FigureUnit, Figures};
use crate::lesson::{Course, CourseStage, Form, MeasuredAnswer};
use crate::units::Bytes;

/// Figures that are heights in a memory chart, with their names there.
const HEIGHTS: [(&str, &str); 9] = [
    ("allocated", "allocated"),
    ("reserved", "reserved"),
    ("step_peak_allocated", "peak"),
    ("peak_allocated", "peak"),
    ("max_memory_allocated", "peak"),
    ("step_peak_reserved", "reserved"),
    ("peak_reserved", "reserved"),
    ("max_memory_reserved", "reserved"),
    ("step_floor", "floor"),
];

/// A height that a lesson is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    name: &'static str,
    /// The height.
    pub bytes: Bytes,
    token: Token,
}

impl Aim {
    /// The current goal, from its announcement to the end of the step; otherwise the answer, once it was measured.
    pub fn of(course: &Course) -> Option<Self> {
        let asks = matches!(course.stage(), CourseStage::Acting | CourseStage::Trying | CourseStage::Explained);
        if let Some(goal) = course.goal().filter(|_| asks) {
            let mut most = goal.when.most(course.moments()).into_iter();
            return most.find_map(|(figure, amount)| Self::goal(figure, amount));
        }
        if course.stage() != CourseStage::Explained {
            return None;
        }
        let form = &course.step().question.as_ref()?.form;
        match (form, course.told().measured?) {
            (Form::Number { quantity, .. }, MeasuredAnswer::Amount(amount)) => match quantity.figures()[..] {
                [(None, figure)] => Self::measured(figure, amount),
                _ => None,
            },
            (Form::Choices(choices), MeasuredAnswer::Choice(place)) => {
                let asked = choices.get(place)?.when.figures().into_iter();
                let now: &Figures = &course.moments().now;
                let mut asked = asked.filter(|(mark, _)| mark.is_none());
                asked.find_map(|(_, figure)| Self::measured(figure, now.get(figure)?))
            }
            _ => None,
        }
    }

    fn goal(figure: Figure, amount: Amount) -> Option<Self> {
        Some(Self { name: "goal", token: Token::Ok, ..Self::measured(figure, amount)? })
    }

    fn measured(figure: Figure, amount: Amount) -> Option<Self> {
        let (_, name) = HEIGHTS.into_iter().find(|(height, _)| *height == figure.name())?;
        let is_height = amount.unit == FigureUnit::Bytes && amount.value >= 1.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, and more than none")]
        is_height.then_some(Self { name, bytes: Bytes(amount.value as u64), token: Token::Warn })
    }

    /// The aim as a line in a chart.
    pub const fn line(self) -> Ceiling {
        Ceiling::spoken_of(self.name, self.bytes, self.token)
    }
}
