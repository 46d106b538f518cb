//! Figures by name, and expressions over them: what lessons and claims read from a run.
//!
//! A [`Figures`] holds the known figures of a run at one moment, each with its unit. Expressions name figures: current
//! ones (`reserved`), or those of a marked moment (`before.reserved`). Units are checked when an expression is parsed.

mod algebra;
mod expression;
mod failure;
mod moments;
mod parser;
mod scale;
mod table;
mod template;
mod token;
mod unit;

#[cfg(test)]
mod tests;

pub use expression::{Condition, EvaluationError, Quantity};
pub use moments::Moments;
pub use parser::Scope;
pub use scale::Scale;
pub use table::{Figure, FigureInputs, Figures, list};
pub use template::Template;
pub use token::Misread;
pub use unit::{Amount, FigureUnit};
