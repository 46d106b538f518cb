//! Ranks that train together, side by side on the Lab screen.

use vramlab::source::{RankFigures, RankState};

use super::*;
use crate::lab_states;

fn edited(picture: Picture, edit: impl FnOnce(&mut Vec<RankFigures>)) -> Picture {
    let mut ranks = picture.ranks.to_vec();
    edit(&mut ranks);
    Picture { ranks: ranks.into(), ..picture }
}

#[test]
fn ranks_stand_side_by_side() {
    for (width, height) in SIZES {
        let state = lab_states::with_ranks(lab_states::running());
        insta::assert_snapshot!(format!("ranks_{width}x{height}"), text(&frame(dark(), state, width, height)));
    }
}

#[test]
fn a_rank_that_ran_out_of_memory_is_the_one_that_matters() {
    let short = |ranks: &mut Vec<RankFigures>| ranks[2].state = RankState::OutOfMemory;
    for (width, height) in SIZES {
        let state = edited(lab_states::with_ranks(lab_states::paused()), short);
        let text = text(&frame(dark(), state, width, height));
        let row = text.lines().find(|line| line.contains("out of memory")).unwrap_or_default();
        assert!(row.contains("196.0") && !text.contains("worst"), "{text}");
    }
}

/// If a rank does something else than the run, this is shown in place of the worst; the times of steps have room beside
/// it.
#[test]
fn a_silent_rank_and_those_that_wait_for_it_are_said_so() {
    let silent = |ranks: &mut Vec<RankFigures>| {
        (ranks[0].state, ranks[1].state, ranks[2].state) = (RankState::Waits, RankState::Waits, RankState::Silent(14));
    };
    for (width, height) in SIZES {
        let state = edited(lab_states::with_ranks(lab_states::running()), silent);
        let text = text(&frame(dark(), state, width, height));
        let row = text.lines().find(|line| line.contains("silent 14 s")).unwrap_or_default();
        assert!(row.contains("196.0") && !text.contains("worst"), "{text}");
        assert_eq!(text.matches(" waits ").count(), if width >= 120 { 2 } else { 0 }, "{text}");
        assert_eq!(row.contains("20.4 ms, comm    3.1"), width >= 120, "{text}");
    }
}

#[test]
fn ranks_that_all_do_the_same_are_one_row_and_no_key_goes_on() {
    let alike = |ranks: &mut Vec<RankFigures>| {
        ranks.truncate(1);
        let mut all = (*ranks[0].alike).clone();
        all.ranks = vec![0, 1, 2, 3];
        ranks[0].alike = Arc::new(all);
    };
    let state = edited(lab_states::with_ranks(lab_states::running()), alike);
    let text = text(&frame(dark(), state, 120, 40));
    assert!(text.contains("ranks fsdp · 4, all do the same · █ allocated now") && text.contains(" 0–3 "), "{text}");
    assert!(!text.contains("next rank") && !text.contains("worst"), "{text}");
}

#[test]
fn of_very_many_ranks_the_one_shown_and_the_worst_have_room_first() {
    let many = |ranks: &mut Vec<RankFigures>| {
        let first = ranks[1].clone();
        *ranks = (0..64)
            .map(|rank| {
                let mut alike = (*first.alike).clone();
                (alike.world, alike.ranks) = (64, vec![rank]);
                let peak_reserved = first.peak_reserved + Bytes::mib(u64::from(rank == 63));
                RankFigures { alike: Arc::new(alike), peak_reserved, ..first.clone() }
            })
            .collect();
    };
    for (width, height) in SIZES {
        let mut state = edited(lab_states::with_ranks(lab_states::running()), many);
        state.device = vramlab::source::ShownDevice { place: 40, of: 64 };
        let text = text(&frame(dark(), state, width, height));
        assert!(text.contains("▶40") || text.contains("▶ 40"), "{text}");
        assert!(text.lines().any(|line| line.contains("63") && line.contains("worst")), "{text}");
        assert!(text.contains(" more"), "{text}");
    }
}

#[test]
fn bars_of_ranks_can_be_told_apart_without_colour() {
    let state = lab_states::with_ranks(lab_states::running());
    let buf = frame(app("dark", ColorTier::None, GlyphTier::Ascii), state, 120, 40);
    assert!(buf.content().iter().all(|cell| cell.symbol().is_ascii()));
    let text = text(&buf);
    assert!(text.contains("#~") && text.contains("~:"), "{text}");
}
