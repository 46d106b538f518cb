//! Which moment memory is shown of, in words: one for all screens.

use super::stage::Stage;
use crate::model::Micros;
use crate::source::{Moment, Picture, SourceKind};

/// The mark of a moment that the keeper chose, in the header and on curves.
pub(crate) const MARK: &str = "▼";

/// The moment, as the end of a phrase: `at the peak of step 12`.
pub(crate) fn words(picture: &Picture) -> String {
    let view = picture.shown();
    match picture.moment() {
        Moment::Now if picture.is_live() || picture.extent.grows => "now".to_owned(),
        Moment::Now => "at the end".to_owned(),
        Moment::Cursor if view.peak_position > 0 && view.position == view.peak_position => "at the peak".to_owned(),
        Moment::Cursor => "at the cursor".to_owned(),
        Moment::StepPeak => format!("at the peak of step {}", view.steps.finished),
        Moment::RunPeak => "at the peak".to_owned(),
        Moment::Failure => "at the failure".to_owned(),
    }
}

/// Where in the run a moment is, in pieces, the most telling first.
pub(crate) struct RunPosition {
    /// The step, or what there is in place of one: in full, and as short as it can be.
    pub step: [String; 2],
    /// The phase; empty where none is known.
    pub phase: &'static str,
    /// The op; empty where none is known.
    pub op: String,
}

/// What the step at the moment shown took, up to the begin of the next one; `None` where there is none.
pub(crate) fn took(picture: &Picture) -> Option<Micros> {
    /// How far back it is looked for.
    const FURTHEST: u64 = 256;
    let (history, position) = (&picture.history, picture.place());
    let last = history.columns();
    let begun = |index: &u64| history.column(0, *index).is_some_and(|column| column.position <= position);
    let index = (last.saturating_sub(FURTHEST)..last).rev().find(begun)?;
    let [column, next] = [index, index + 1].map(|index| history.column(0, index));
    next?.time.0.checked_sub(column?.time.0).map(Micros)
}

/// Where in the run the moment shown is.
pub(crate) fn place(stage: &Stage<'_>) -> RunPosition {
    let (picture, view) = (stage.picture, stage.shown);
    let step = view.steps.finished;
    let has_steps = picture.history.columns() > 0 || !matches!(picture.kind, SourceKind::Snapshot(_));
    let of = match picture.moment() {
        Moment::StepPeak => format!("peak of step {step} {MARK}"),
        Moment::RunPeak if has_steps => format!("peak of the run {MARK} step {step}"),
        Moment::RunPeak => format!("peak {MARK}"),
        Moment::Failure | Moment::Cursor if !has_steps => format!("event {} of {}", view.position, picture.extent.end),
        // What panels show of a moment between steps is the step that has ended.
        Moment::Cursor if step > 0 && view.phase.is_none() && view.profiles.under_way.events == 0 => {
            format!("end of step {}", step - 1)
        }
        Moment::Cursor if picture.extent.steps > step => format!("step {step} of {}", picture.extent.steps),
        _ if has_steps => format!("step {step}"),
        _ => String::new(),
    };
    let under_way = &view.profiles.under_way;
    // Between two phases it is the one that has ended, whose last op stands beside it. A stranger's program may say only some of its
    // phases: between those anything may run.
    let knows_all = view.about.history.is_none();
    let ended =
        || under_way.phases.iter().rev().filter(|_| under_way.events > 0 && knows_all).find_map(|(phase, _)| *phase);
    let phase = match view.phase.or_else(ended) {
        Some(phase) => phase.label(),
        // A user's own loop may not say which phase it is in.
        None if has_steps && under_way.events == 0 && knows_all => "between steps",
        None => "",
    };
    let short = match picture.moment() {
        Moment::StepPeak => format!("step {step} {MARK}"),
        Moment::RunPeak if has_steps => format!("{MARK} step {step}"),
        _ => of.clone(),
    };
    RunPosition { step: [of, short], phase, op: view.names.get(view.op).to_owned() }
}
