//! Another allocator that follows the run, as a front end sees it.

use std::sync::Arc;

use vramlab_model::{Column, History, Occupancy};
use vramlab_whatif::{Conditions, Figures, StartState};

/// A ghost for a screen: a prediction, not a run.
#[derive(Clone, Debug)]
pub struct Ghost {
    /// Its conditions.
    pub conditions: Arc<Conditions>,
    /// The number of the run's steps that were finished when it began.
    pub since: u64,
    /// The origin of the blocks that existed when it began; [`StartState::Anew`] is an estimate.
    pub starting: StartState,
    /// Its current figures; `None` before it has caught up.
    pub figures: Option<Figures>,
    /// The figures of the last step that ended, or of the step around a cursor that looks back: the ghost's and the run's.
    pub step: Option<(Column, Column)>,
    /// True if that step has ended, so that its stranded bytes are known.
    pub ended: bool,
    /// Its memory at the cursor; `None` until it has got there, and where it did not follow yet.
    pub occupancy: Option<Arc<Occupancy>>,
    /// All known steps, column by column like the run's own.
    pub history: Arc<History>,
    /// How far it has caught up, from 0 to 1; `None` once it has.
    pub catching_up: Option<f64>,
    /// How far it has got towards a cursor that looks back, from 0 to 1; `None` if it is not on the way.
    pub seeking: Option<f64>,
}
