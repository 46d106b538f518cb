//! What the figures of all sides come to.

use super::claim::{Claim, Verdict};
use crate::figures::{Amount, Moments, Unanswered};

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
}

/// Judges a claim by the figures of its sides.
///
/// # Errors
/// [`Unanswered`]: a figure that the device can't know.
pub(super) fn judge(claim: &Claim, moments: &Moments) -> Result<Judgement, Unanswered> {
    let mut verdict = claim.otherwise;
    for possible in &claim.verdicts {
        if possible.when.holds(moments)? {
            verdict = possible.is;
            break;
        }
    }
    let figure = |measured: &super::claim::Measured| Ok((measured.name.clone(), measured.quantity.measure(moments)?));
    Ok(Judgement {
        verdict,
        figures: claim.figures.iter().map(figure).collect::<Result<_, _>>()?,
        measured: claim.measured.fill(moments)?,
        reason: claim.reason.fill(moments)?,
        holds: claim.holds.fill(moments)?,
        fails: claim.fails.fill(moments)?,
    })
}
