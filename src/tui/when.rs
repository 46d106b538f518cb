//! The moment whose memory all screens show, in words.

use super::stage::Stage;
use crate::model::Micros;
use crate::source::{Moment, Picture, SourceKind};

/// The mark, in the header and on curves, of a moment that the keeper chose.
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

/// The parts of a moment's position in the run, the most important first.
pub(crate) struct RunPosition {
    /// The step, or what replaces it: in full, and as short as possible.
    pub step: [String; 2],
    /// The phase; empty if unknown.
    pub phase: &'static str,
    /// The op; empty if unknown.
    pub op: String,
}

/// The duration of the step at the moment shown, up to the begin of the next; `None` if there is no step.
pub(crate) fn took(picture: &Picture) -> Option<Micros> {
    /// How many steps back it is searched for.
    const FURTHEST: u64 = 256;
    let (history, position) = (&picture.history, picture.place());
    let last = history.columns();
    let begun = |index: &u64| history.column(0, *index).is_some_and(|column| column.position <= position);
    let index = (last.saturating_sub(FURTHEST)..last).rev().find(begun)?;
    let [column, next] = [index, index + 1].map(|index| history.column(0, index));
    next?.time.0.checked_sub(column?.time.0).map(Micros)
}

/// The position of the moment shown in the run.
pub(crate) fn place(stage: &Stage<'_>) -> RunPosition {
    let (picture, view) = (stage.picture, stage.shown);
    let step = view.steps.finished;
    let has_steps = picture.history.columns() > 0 || !matches!(picture.kind, SourceKind::Snapshot(_));
    let of = match picture.moment() {
        Moment::StepPeak => format!("peak of step {step} {MARK}"),
        Moment::RunPeak if has_steps => format!("peak of the run {MARK} step {step}"),
        Moment::RunPeak => format!("peak {MARK}"),
        Moment::Failure | Moment::Cursor if !has_steps => format!("event {} of {}", view.position, picture.extent.end),
        // Between steps, panels show the step that has ended.
        Moment::Cursor if step > 0 && view.phase.is_none() && view.profiles.under_way.events == 0 => {
            format!("end of step {}", step - 1)
        }
        Moment::Cursor if picture.extent.steps > step => format!("step {step} of {}", picture.extent.steps),
        _ if has_steps => format!("step {step}"),
        _ => String::new(),
    };
    let under_way = &view.profiles.under_way;
    // Between two phases, the phase that has ended is named, because its last op is beside it. A program may report
    // only some of its phases; between those anything may run.
    let knows_all = view.about.history.is_none();
    let ended =
        || under_way.phases.iter().rev().filter(|_| under_way.events > 0 && knows_all).find_map(|(phase, _)| *phase);
    let phase = match view.phase.or_else(ended) {
        Some(phase) => phase.label(),
        // A user's own loop may not report its phases.
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
