//! The verdict that follows from the figures of all sides.

use thiserror::Error;

use super::claim::{Claim, ClaimMetric, Verdict};
use super::reduce::Reduction;
use crate::figures::{Amount, EvaluationError, Moments};

/// A claim, judged by what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The claim's figures, by their names.
    pub figures: Vec<(String, Amount)>,
    /// What was measured, in a line.
    pub measured: String,
    /// Why it is so.
    pub reason: String,
    /// Where the claim holds.
    pub holds: String,
    /// Where it does not.
    pub fails: String,
    /// How its sides were made smaller, where they were.
    pub reduced: Option<Reduction>,
}

impl Judgement {
    /// Its sides were smaller ones: the texts say so.
    pub(super) fn reduce(&mut self, reduction: Reduction) {
        for text in [&mut self.measured, &mut self.reason, &mut self.holds, &mut self.fails] {
            *text = reduction.reworded(text);
        }
        self.measured = format!("{} {reduction}", self.measured);
        self.reduced = Some(reduction);
    }
}

/// Why there is no judgement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NotJudged {
    /// A figure that the device can't know.
    #[error(transparent)]
    Unanswered(#[from] EvaluationError),
    /// What the claim needs does not hold.
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
