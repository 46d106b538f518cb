//! Wording for a ghost wherever it is shown beside the run.

use crate::source::Ghost;
use crate::whatif::StartState;

/// The mark of its curve and of its figures.
pub(crate) const MARK: &str = "╍";

/// Why nothing of it is visible at the moment shown.
pub(crate) fn waits(ghost: &Ghost) -> String {
    match (&ghost.occupancy, ghost.catching_up.or(ghost.seeking)) {
        // It is elsewhere, and gets here with the next step.
        (Some(_), _) => "is not predicted for this step".to_owned(),
        (None, Some(share)) => format!("catches up, {:.0} %", share * 100.0),
        (None, None) => "is not predicted here yet".to_owned(),
    }
}

/// True if the memory that existed when it began is only an estimate, which is then mentioned everywhere.
pub(crate) fn is_estimate(ghost: &Ghost) -> bool {
    ghost.starting == StartState::Anew
}

/// How far its figures can be trusted: they were predicted, not run.
pub(crate) const fn certainty(ghost: &Ghost) -> &'static str {
    match ghost.starting {
        StartState::Empty => "predicted",
        StartState::Recorded => "predicted from what was held",
        StartState::Anew => "predicted, its start is an estimate",
    }
}
