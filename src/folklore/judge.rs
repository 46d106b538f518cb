//! Derives the verdict from the figures of all sides.

use thiserror::Error;

use super::claim::{Claim, ClaimMetric, Verdict};
use super::reduce::Reduction;
use crate::figures::{Amount, EvaluationError, Moments};

/// The judgement of a claim by its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The claim's figures, by their names.
    pub figures: Vec<(String, Amount)>,
    /// The line that says what was measured.
    pub measured: String,
    /// The reason.
    pub reason: String,
    /// Where the claim holds.
    pub holds: String,
    /// Where it does not.
    pub fails: String,
    /// How its sides were made smaller, if they were.
    pub reduced: Option<Reduction>,
}

impl Judgement {
    /// Notes that smaller sides were run, and adapts the texts.
    pub(super) fn reduce(&mut self, reduction: Reduction) {
        for text in [&mut self.measured, &mut self.reason, &mut self.holds, &mut self.fails] {
            *text = reduction.reworded(text);
        }
        self.measured = format!("{} {reduction}", self.measured);
        self.reduced = Some(reduction);
    }
}

/// Why a claim could not be judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NotJudged {
    /// A figure that is unknown on this device.
    #[error(transparent)]
    Unanswered(#[from] EvaluationError),
    /// A condition that the claim needs does not hold.
    #[error("{0}")]
    Needs(String),
}

/// Judges a claim by the figures of its sides.
///
/// # Errors
/// [`NotJudged`].
pub(super) fn judge(claim: &Claim, moments: &Moments) -> Result<Judgement, NotJudged> {
    for need in &claim.needs {
        if !need.when.holds(moments)? {
            return Err(NotJudged::Needs(need.otherwise.clone()));
        }
    }
    let mut verdict = claim.otherwise;
    for possible in &claim.verdicts {
        if possible.when.holds(moments)? {
            verdict = possible.is;
            break;
        }
    }
    let figure =
        |measured: &ClaimMetric| Ok::<_, EvaluationError>((measured.name.clone(), measured.quantity.measure(moments)?));
    Ok(Judgement {
        verdict,
        figures: claim.figures.iter().map(figure).collect::<Result<_, _>>()?,
        measured: claim.measured.fill(moments)?,
        reason: claim.reason.fill(moments)?,
        holds: claim.holds.fill(moments)?,
        fails: claim.fails.fill(moments)?,
        reduced: None,
    })
}
