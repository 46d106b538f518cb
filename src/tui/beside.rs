//! What is said of a ghost wherever it stands beside the run.

use crate::source::Ghost;
use crate::whatif::StartState;

/// The mark of its curve, and of its figures.
pub(crate) const MARK: &str = "╍";

/// Why there is nothing of it to see at the moment shown.
pub(crate) fn waits(ghost: &Ghost) -> String {
    match (&ghost.occupancy, ghost.catching_up.or(ghost.seeking)) {
        // It is elsewhere, and comes here with the next step.
        (Some(_), _) => "is not predicted for this step".to_owned(),
        (None, Some(share)) => format!("catches up, {:.0} %", share * 100.0),
        (None, None) => "is not predicted here yet".to_owned(),
    }
}

/// What was there when it began is no more than an estimate: it says so wherever it stands.
pub(crate) fn is_estimate(ghost: &Ghost) -> bool {
    ghost.starting == StartState::Anew
}

/// How far its figures can be trusted: it was predicted, not run.
pub(crate) const fn certainty(ghost: &Ghost) -> &'static str {
    match ghost.starting {
        StartState::Empty => "predicted",
        StartState::Recorded => "predicted from what was held",
        StartState::Anew => "predicted, its start is an estimate",
    }
}
