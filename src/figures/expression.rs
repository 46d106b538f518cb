//! Parsed expressions: conditions and quantities, how they print, and how they are evaluated.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::moments::Moments;
use super::scale::Scale;
use super::table::Figure;
use super::unit::{Amount, FigureUnit};

/// An expression that is true or false: `reserved <= before.reserved`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(pub(super) Test);

/// An expression with a unit: `before.reserved - reserved`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    pub(super) term: Term,
    pub(super) unit: FigureUnit,
}

/// Why an expression can't be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// The run does not know this figure.
    #[error("{name} is not known here")]
    Unknown {
        /// The figure as it was written, with its mark.
        name: String,
    },
    /// No moment has this mark.
    #[error("nothing was marked as {mark} yet")]
    Unmarked {
        /// The mark.
        mark: String,
    },
    /// A quotient has no value.
    #[error("{quotient} has no value: what it is divided by is 0")]
    Undefined {
        /// The quotient, as it prints.
        quotient: String,
    },
}

impl Condition {
    /// Evaluates the condition.
    ///
    /// # Errors
    /// [`EvaluationError`]: with unknown figures a condition is neither true nor false.
    pub fn holds(&self, moments: &Moments) -> Result<bool, EvaluationError> {
        self.0.holds(moments)
    }

    /// The figures in the condition, each with its mark.
    #[must_use]
    pub fn figures(&self) -> Vec<(Option<&str>, Figure)> {
        let mut found = Vec::new();
        self.0.each(&mut |mark, figure| found.push((mark, figure)));
        found
    }
}

impl Condition {
    /// Upper bounds that the condition sets on current figures: `reserved < 8 GiB`, alone or joined by `and`.
    #[must_use]
    pub fn most(&self, moments: &Moments) -> Vec<(Figure, Amount)> {
        let mut found = Vec::new();
        self.0.each_most(&mut |figure, most| {
            if let Ok(value) = most.value(moments) {
                found.push((figure, Amount { value: value / figure.unit().base(), unit: figure.unit() }));
            }
        });
        found
    }
}

impl Quantity {
    /// Evaluates the quantity.
    ///
    /// # Errors
    /// [`EvaluationError`].
    pub fn measure(&self, moments: &Moments) -> Result<Amount, EvaluationError> {
        Ok(Amount { value: self.term.value(moments)? / self.unit.base(), unit: self.unit })
    }

    /// Its unit.
    #[must_use]
    pub const fn unit(&self) -> FigureUnit {
        self.unit
    }

    /// The figures in the quantity, each with its mark.
    #[must_use]
    pub fn figures(&self) -> Vec<(Option<&str>, Figure)> {
        let mut found = Vec::new();
        self.term.each(&mut |mark, figure| found.push((mark, figure)));
        found
    }
}

/// A logical expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    Compare(Relation, Term, Term),
    /// The tolerance is a share of the value that it is compared with (`relative`), or has that value's unit.
    Within {
        measured: Term,
        tolerance: Term,
        of: Term,
        relative: bool,
    },
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
}

/// An expression with a unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Term {
    Literal(f64, Scale),
    Figure(Option<Arc<str>>, Figure),
    Negative(Box<Term>),
    Binary(Operation, Box<Term>, Box<Term>),
    Call(Function, Vec<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Different,
}

impl Relation {
    pub const ALL: [Self; 6] = [Self::Less, Self::AtMost, Self::More, Self::AtLeast, Self::Equal, Self::Different];

    pub const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::More => ">",
            Self::AtLeast => ">=",
            Self::Equal => "==",
            Self::Different => "!=",
        }
    }

    #[expect(clippy::float_cmp, reason = "bytes and counts are whole numbers; whoever compares times says `within`")]
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::More => a > b,
            Self::AtLeast => a >= b,
            Self::Equal => a == b,
            Self::Different => a != b,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Plus,
    Minus,
    Times,
    Over,
}

impl Operation {
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Over => "/",
        }
    }

    const fn binding(self) -> Precedence {
        match self {
            Self::Plus | Self::Minus => Precedence::Sum,
            Self::Times | Self::Over => Precedence::Product,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Abs,
    Min,
    Max,
}

impl Function {
    pub fn named(word: &str) -> Option<Self> {
        [Self::Abs, Self::Min, Self::Max].into_iter().find(|function| function.word() == word)
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// How tightly an operator binds: an expression inside a tighter one gets parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Or,
    And,
    Not,
    Comparison,
    Sum,
    Product,
    Unary,
    Whole,
}

impl Test {
    fn holds(&self, moments: &Moments) -> Result<bool, EvaluationError> {
        Ok(match self {
            Self::Compare(relation, a, b) => relation.holds(a.value(moments)?, b.value(moments)?),
            Self::Within { measured, tolerance, of, relative } => {
                let (measured, tolerance, of) =
                    (measured.value(moments)?, tolerance.value(moments)?, of.value(moments)?);
                let allowed = if *relative { tolerance * of.abs() } else { tolerance };
                (measured - of).abs() <= allowed
            }
            Self::Not(test) => !test.holds(moments)?,
            Self::And(a, b) => a.holds(moments)? & b.holds(moments)?,
            Self::Or(a, b) => a.holds(moments)? | b.holds(moments)?,
        })
    }

    fn each<'a>(&'a self, see: &mut impl FnMut(Option<&'a str>, Figure)) {
        match self {
            Self::Compare(_, a, b) => [a, b].into_iter().for_each(|term| term.each(see)),
            Self::Within { measured, tolerance, of, .. } => {
                [measured, tolerance, of].into_iter().for_each(|term| term.each(see));
            }
            Self::Not(test) => test.each(see),
            Self::And(a, b) | Self::Or(a, b) => {
                a.each(see);
                b.each(see);
            }
        }
    }

    /// Calls `see` for every upper bound on a current figure.
    fn each_most<'a>(&'a self, see: &mut impl FnMut(Figure, &'a Term)) {
        match self {
            Self::Compare(Relation::Less | Relation::AtMost, Term::Figure(None, figure), most) => see(*figure, most),
            Self::And(a, b) => {
                a.each_most(see);
                b.each_most(see);
            }
            _ => {}
        }
    }

    const fn binding(&self) -> Precedence {
        match self {
            Self::Compare(..) | Self::Within { .. } => Precedence::Comparison,
            Self::Not(_) => Precedence::Not,
            Self::And(..) => Precedence::And,
            Self::Or(..) => Precedence::Or,
        }
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, least: Precedence) -> fmt::Result {
        let bracketed = self.binding() < least;
        if bracketed {
            f.write_str("(")?;
        }
        match self {
            Self::Compare(relation, a, b) => {
                a.print(f, Precedence::Sum)?;
                write!(f, " {} ", relation.sign())?;
                b.print(f, Precedence::Sum)?;
            }
            Self::Within { measured, tolerance, of, .. } => {
                measured.print(f, Precedence::Sum)?;
                f.write_str(" within ")?;
                tolerance.print(f, Precedence::Sum)?;
                f.write_str(" of ")?;
                of.print(f, Precedence::Sum)?;
            }
            Self::Not(test) => {
                f.write_str("not ")?;
                test.print(f, Precedence::Not)?;
            }
            Self::And(a, b) => {
                a.print(f, Precedence::And)?;
                f.write_str(" and ")?;
                b.print(f, Precedence::Not)?;
            }
            Self::Or(a, b) => {
                a.print(f, Precedence::Or)?;
                f.write_str(" or ")?;
                b.print(f, Precedence::And)?;
            }
        }
        if bracketed { f.write_str(")") } else { Ok(()) }
    }
}

impl Term {
    /// The value; times are in seconds.
    fn value(&self, moments: &Moments) -> Result<f64, EvaluationError> {
        Ok(match self {
            Self::Literal(number, scale) => scale.amount(*number).value * scale.unit().base(),
            Self::Figure(mark, figure) => {
                let unmarked = || EvaluationError::Unmarked { mark: mark.as_deref().unwrap_or_default().to_owned() };
                let figures = moments.at(mark.as_deref()).ok_or_else(unmarked)?;
                let amount = figures.get(*figure).ok_or_else(|| EvaluationError::Unknown { name: self.to_string() })?;
                amount.value * amount.unit.base()
            }
            Self::Negative(term) => -term.value(moments)?,
            Self::Binary(operation, a, b) => {
                let (a, b) = (a.value(moments)?, b.value(moments)?);
                match operation {
                    Operation::Plus => a + b,
                    Operation::Minus => a - b,
                    Operation::Times => a * b,
                    Operation::Over if b == 0.0 => {
                        return Err(EvaluationError::Undefined { quotient: self.to_string() });
                    }
                    Operation::Over => a / b,
                }
            }
            Self::Call(function, arguments) => {
                let values: Result<Vec<f64>, EvaluationError> =
                    arguments.iter().map(|term| term.value(moments)).collect();
                let values = values?.into_iter();
                match function {
                    Function::Abs => values.map(f64::abs).sum(),
                    Function::Min => values.fold(f64::INFINITY, f64::min),
                    Function::Max => values.fold(f64::NEG_INFINITY, f64::max),
                }
            }
        })
    }

    fn each<'a>(&'a self, see: &mut impl FnMut(Option<&'a str>, Figure)) {
        match self {
            Self::Literal(..) => {}
            Self::Figure(mark, figure) => see(mark.as_deref(), *figure),
            Self::Negative(term) => term.each(see),
            Self::Binary(_, a, b) => {
                a.each(see);
                b.each(see);
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|term| term.each(see)),
        }
    }

    const fn binding(&self) -> Precedence {
        match self {
            Self::Literal(..) | Self::Figure(..) | Self::Call(..) => Precedence::Whole,
            Self::Negative(_) => Precedence::Unary,
            Self::Binary(operation, ..) => operation.binding(),
        }
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, least: Precedence) -> fmt::Result {
        let bracketed = self.binding() < least;
        if bracketed {
            f.write_str("(")?;
        }
        match self {
            Self::Literal(number, scale) if scale.unit() == FigureUnit::PerSecond => write!(f, "{number}{scale}")?,
            Self::Literal(number, scale) if *scale == Scale::ONE => write!(f, "{number}")?,
            Self::Literal(number, scale) => write!(f, "{number} {scale}")?,
            Self::Figure(None, figure) => f.write_str(figure.name())?,
            Self::Figure(Some(mark), figure) => write!(f, "{mark}.{}", figure.name())?,
            Self::Negative(term) => {
                f.write_str("-")?;
                term.print(f, Precedence::Unary)?;
            }
            Self::Binary(operation, a, b) => {
                a.print(f, operation.binding())?;
                write!(f, " {} ", operation.sign())?;
                let tighter =
                    if operation.binding() == Precedence::Sum { Precedence::Product } else { Precedence::Unary };
                b.print(f, tighter)?;
            }
            Self::Call(function, arguments) => {
                write!(f, "{}(", function.word())?;
                for (index, term) in arguments.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    term.print(f, Precedence::Sum)?;
                }
                f.write_str(")")?;
            }
        }
        if bracketed { f.write_str(")") } else { Ok(()) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, Precedence::Sum)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(f, Precedence::Or)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.term.fmt(f)
    }
}
