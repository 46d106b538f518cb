//! Notes on the figures.

use super::ComparisonFrame;
use crate::source::SourceKind;
use crate::tui::action::Action;
use crate::tui::states::{CompareAction, ScreenAction};

/// Notes on the selected configuration's figures. For a single one, they are about what was measured.
pub(super) fn notes(compared: &ComparisonFrame<'_>) -> Vec<String> {
    let (all, selected) = (&compared.all, compared.selected);
    let configuration = &all[selected];
    let recorded = configuration.knows_no_steps();
    let after = if compared.is_one() { "" } else { ", without those right after a flip" };
    let measured = match configuration.measured {
        Some(_) if recorded => "Peaks of the whole recording, and what was stranded when most was reserved.".to_owned(),
        Some((1, _)) if configuration.steps == 1 => "Figures of its one step.".to_owned(),
        Some((1, _)) => format!("Figures of one of its {} steps.", configuration.steps),
        Some((steps, _)) => format!("Medians of its last {steps} of {} steps{after}.", configuration.steps),
        None => "No step finished.".to_owned(),
    };
    let failed = match (configuration.out_of_memory, recorded) {
        (true, true) => "Memory ran out.",
        (true, false) if configuration.measured.is_none() => "Its first step ran out of memory.",
        (true, false) => "It ran out of memory.",
        (false, _) => "",
    };
    if compared.is_one() {
        return [failed.to_owned(), measured].into_iter().filter(|note| !note.is_empty()).collect();
    }
    // Only a live run can still empty its cache.
    let keeps = match compared.stage.picture.kind {
        SourceKind::Live => {
            let empties = compared.stage.keys.with_key(Action::EmptyCache, "empty_cache");
            format!("Reserved keeps what an earlier configuration took, until {empties}.")
        }
        _ => "Reserved keeps what an earlier configuration took, until empty_cache.".to_owned(),
    };
    let go = Action::Own(ScreenAction::Compare(CompareAction::Go));
    vec![
        failed.to_owned(),
        match &compared.files[selected] {
            Some(file) => format!("Of {file}."),
            None if recorded => String::new(),
            None => {
                let goes = match compared.stage.keys.key_of(go) {
                    "" => String::new(),
                    key => format!("; {key} goes there"),
                };
                format!("First used at step {}{goes}.", configuration.step)
            }
        },
        measured,
        "A change no larger than the spread among steps is noise.".to_owned(),
        if recorded || selected == 0 { String::new() } else { keeps },
    ]
}
