//! Another allocator beside the run, as a front end sees it.

use std::sync::Arc;

use vramlab_model::{Column, History, Occupancy};
use vramlab_whatif::{Conditions, Figures, StartState};

/// A ghost as a screen shows it: a prediction, not a run.
#[derive(Clone, Debug)]
pub struct Ghost {
    /// Under what it works.
    pub conditions: Arc<Conditions>,
    /// Steps of the run that were finished when it began.
    pub since: u64,
    /// Where the blocks come from that were there when it began: [`StartState::Anew`] is an estimate.
    pub starting: StartState,
    /// Its figures where it is now; `None` before it has caught up.
    pub figures: Option<Figures>,
    /// The figures of the last step that ended, or of the one around a cursor that looks back, here and in the run.
    pub step: Option<(Column, Column)>,
    /// That step has ended: what is stranded is known of it.
    pub ended: bool,
    /// Where its memory stands at the cursor; `None` before it has come there, and where it did not follow yet.
    pub occupancy: Option<Arc<Occupancy>>,
    /// Every step that is known, column by column beside the run's own.
    pub history: Arc<History>,
    /// How far it has caught up, from 0 to 1; `None` where it has.
    pub catching_up: Option<f64>,
    /// How far it has got towards the cursor that looks back, from 0 to 1; `None` where nothing is under way.
    pub seeking: Option<f64>,
}
