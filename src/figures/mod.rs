//! Figures by name, and expressions over them: what lessons and claims ask of a run.
//!
//! A [`Figures`] is what is known of a run at one moment, each figure with its unit. Expressions name figures, of now
//! (`reserved`) or of a moment that was marked (`before.reserved`); their units are checked when they are read.

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
