//! A goal for the learner, with the switches that may be set.

use super::action::LessonAction;
use super::answer::{Answer, MeasuredAnswer, Unclear, Worth};
use crate::figures::{Amount, Condition, Figure, Moments, Quantity};
use crate::session::Switch;

/// A goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The condition that must hold after a try. No step of the try may fail.
    pub when: Condition,
    /// Switches that may be set; the others can't be changed.
    pub allow: Vec<Switch>,
    /// Number of tries.
    pub tries: u32,
    /// The switches that reach the goal. A learner who gives up sees them, and the lesson's own check uses them.
    pub solution: Vec<LessonAction>,
    /// The cost of reaching the goal.
    pub cost: Option<Cost>,
}

/// The cost of reaching a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The expression: `last_step_ms / before.last_step_ms - 1`.
    pub what: Quantity,
    /// Up to this cost, the goal is worth a point; above it, half a point.
    pub par: Amount,
}

impl Goal {
    /// The outcome of a try.
    pub(super) fn measure(&self, moments: &Moments, failed: bool) -> Result<MeasuredAnswer, Unclear> {
        if failed {
            return Err(Unclear::OutOfMemory);
        }
        if !self.when.holds(moments)? {
            return Err(Unclear::Missed(shown(&self.when, moments)));
        }
        let cost = self.cost.as_ref().map(|cost| cost.what.measure(moments)).transpose()?;
        Ok(MeasuredAnswer::Reached { cost: cost.map(Amount::as_share) })
    }

    pub(super) fn worth(&self, answer: Answer, cost: Option<Amount>) -> Worth {
        match (answer, cost, &self.cost) {
            (Answer::Tried | Answer::Solution, Some(cost), Some(Cost { par, .. })) if cost.value > par.value => {
                Worth::Near
            }
            (Answer::Tried | Answer::Solution, ..) => Worth::Right,
            _ => Worth::Wrong,
        }
    }
}

/// Says that a goal was reached, and what that costs or saves.
pub(super) fn reached(cost: Option<Amount>) -> String {
    match cost {
        Some(cost) if cost.value < 0.0 => format!("reached, at a gain of {}", Amount { value: -cost.value, ..cost }),
        Some(cost) => format!("reached, at a cost of {cost}"),
        None => "reached".to_owned(),
    }
}

/// The values of a condition's figures, as text: `step_peak_allocated is 9.12 GiB`.
pub(super) fn shown(condition: &Condition, moments: &Moments) -> String {
    let name =
        |mark: Option<&str>, figure: Figure| mark.map_or_else(String::new, |mark| format!("{mark}.")) + figure.name();
    let shown = condition.figures().into_iter().filter_map(|(mark, figure)| {
        let amount = moments.at(mark)?.get(figure)?;
        Some(format!("{} is {amount}", name(mark, figure)))
    });
    let mut shown: Vec<String> = shown.collect();
    shown.dedup();
    shown.join(", ")
}
