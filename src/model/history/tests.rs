//! Compares pages with a plain list of all steps.

use proptest::prelude::*;

use super::*;

fn column(value: u64, step: u64) -> Column {
    Column {
        floor: Bytes(value / 2),
        peak: Bytes(value),
        reserved: Bytes(value + 100),
        stranded: Bytes(value / 3),
        limit: (!value.is_multiple_of(3)).then_some(Bytes(value + 200)),
        step,
        position: step * 10,
        time: Micros(step),
        failed: value.is_multiple_of(97),
    }
}

/// The page by definition: chunks of `2^level` steps; the first page position is found by trying strides.
fn naive(steps: &[Column], level: usize, width: usize) -> Page {
    let joined: Vec<Column> = steps
        .chunks(1 << level)
        .map(|chunk| Column {
            floor: chunk.iter().map(|column| column.floor).min().unwrap(),
            peak: chunk.iter().map(|column| column.peak).max().unwrap(),
            reserved: chunk.iter().map(|column| column.reserved).max().unwrap(),
            stranded: chunk.iter().map(|column| column.stranded).max().unwrap(),
            limit: chunk.iter().filter_map(|column| column.limit).min(),
            failed: chunk.iter().any(|column| column.failed),
            ..chunk[0]
        })
        .collect();
    let mut first = 0;
    while joined.len() - first > width {
        first += (width / 2).max(1);
    }
    Page { columns: joined[first..].to_vec(), first: first as u64, marks: Vec::new() }
}

/// A history of these steps. The last step may still be in progress.
fn history_of(steps: &[Column], open: bool) -> History {
    let mut history = History::default();
    let (whole, last) = steps.split_at(steps.len() - usize::from(open));
    for column in whole {
        history.begin(Column { stranded: Bytes::ZERO, ..*column });
        history.end(column.stranded);
    }
    last.iter().for_each(|column| history.begin(*column));
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_page_is_what_the_steps_say(
        values in prop::collection::vec(0_u64..1000, 1..3000),
        level in 0_usize..14,
        width in 1_usize..300,
        open in any::<bool>(),
    ) {
        // Steps that are given up are tested separately.
        let steps: Vec<Column> =
            (0..).zip(values).map(|(step, value)| Column { failed: false, ..column(value, step) }).collect();
        let history = history_of(&steps, open);
        prop_assert_eq!(history.columns(), steps.len() as u64);
        prop_assert_eq!(history.page(level, width), naive(&steps, level, width));
        let fitting = history.level_of_run(width);
        prop_assert!(steps.len().div_ceil(1 << fitting) <= width);
        prop_assert!(fitting == 0 || steps.len().div_ceil(1 << (fitting - 1)) > width);
        prop_assert_eq!(history.page(fitting, width).first, 0);
    }

    #[test]
    fn columns_of_several_steps_tell_of_all_of_them(values in prop::collection::vec(0_u64..1000, 1..500)) {
        let mut history = History::default();
        let steps: Vec<Column> = (0..).zip(values).map(|(step, value)| column(value, step)).collect();
        steps.iter().for_each(|column| history.record(*column));
        for level in 0..10 {
            prop_assert_eq!(history.page(level, 600), naive(&steps, level, 600));
        }
    }
}

#[test]
fn a_step_that_never_ended_was_given_up() {
    let mut history = History::default();
    history.begin(column(7, 0));
    history.open_mut().unwrap().peak = Bytes(50);
    history.begin(column(11, 0));
    history.end(Bytes(5));
    let page = history.page(0, 10);
    let told: Vec<_> = page.columns.iter().map(|c| (c.peak.0, c.stranded.0, c.failed)).collect();
    assert_eq!(told, [(50, 2, true), (11, 5, false)], "a step given up keeps what was known when it began");
    assert!(history.page(1, 10).columns[0].failed, "also where it is one of several");
    history.end(Bytes(6));
    assert_eq!(history.columns(), 2, "nothing ends twice");
}

#[test]
fn old_columns_go_and_a_spike_stays_on_every_level() {
    let mut history = History::default();
    for index in 0..100_000 {
        history.record(column(if index == 99_000 { 1_000_000 } else { 5 }, index));
    }
    assert!(history.levels[0].full.len() <= History::COLUMNS / 64 && history.levels.len() == 17);
    for level in 0..20 {
        let page = history.page(level, History::COLUMNS);
        assert_eq!(page.columns.iter().map(|column| column.peak).max(), Some(Bytes(1_000_000)), "{level}");
        assert_eq!(page.columns.iter().map(|column| column.floor).min(), Some(Bytes(2)));
        assert!(page.columns.len() > History::COLUMNS / 2 || page.first == 0);
    }
}

#[test]
fn a_page_fills_from_the_left_and_strides_by_half() {
    let mut history = History::default();
    let mut firsts = Vec::new();
    for index in 0..100 {
        history.record(column(index, index));
        let page = history.page(0, 20);
        assert!(page.columns.len() <= 20);
        assert_eq!(page.columns.last().map(|column| column.time), Some(Micros(index)));
        firsts.push(page.first);
    }
    assert!(firsts[..20].iter().all(|first| *first == 0));
    assert_eq!((firsts[20], firsts[29], firsts[30]), (10, 10, 20));
}

fn flip(switch: &str) -> MarkKind {
    MarkKind::Flip { switch: switch.into(), to: "on".into() }
}

#[test]
fn marks_stand_at_the_step_that_followed_them() {
    let mut history = History::default();
    for index in 0..64 {
        if index == 33 {
            history.mark(330, 33, flip("amp"));
        }
        history.record(column(index, index));
    }
    history.mark(640, 64, MarkKind::OutOfMemory);
    let at = |level: usize, width: usize| -> Vec<(usize, u64)> {
        history.page(level, width).marks.iter().map(|(column, mark)| (*column, mark.position)).collect()
    };
    assert_eq!(at(0, 64), [(33, 330), (63, 640)]);
    assert_eq!(at(2, 64), [(8, 330), (15, 640)]);
    assert_eq!(at(0, 20), [(13, 640)]);
}

#[test]
fn a_mark_within_a_step_stands_at_that_step() {
    let mut history = history_of(&[column(1, 0), column(2, 1), column(3, 2)], true);
    history.mark(25, 2, MarkKind::OutOfMemory);
    history.begin(column(4, 2));
    assert_eq!(history.page(0, 10).marks.iter().map(|(column, _)| *column).collect::<Vec<_>>(), [2]);
    assert!(history.page(0, 10).columns[2].failed);
}

#[test]
fn what_an_empty_cache_returned_is_amended_and_nothing_else() {
    let mut history = History::default();
    history.mark(1, 0, MarkKind::EmptyCache { released: Bytes::ZERO });
    history.amend_released(Bytes(512));
    history.amend_released(Bytes(1024));
    history.mark(2, 0, flip("amp"));
    history.amend_released(Bytes(4096));
    let kinds: Vec<MarkKind> = history.marks().map(|mark| mark.kind.clone()).collect();
    assert_eq!(kinds, [MarkKind::EmptyCache { released: Bytes(1024) }, flip("amp")]);
}

#[test]
fn ten_thousand_flips_stay_bounded_and_every_out_of_memory_is_kept() {
    const FLIPS: u64 = 10_000;
    let mut history = History::default();
    let mut failures = Vec::new();
    for step in 0..FLIPS {
        history.mark(step * 10, step, flip("ckpt"));
        if step % 97 == 13 {
            history.mark(step * 10 + 5, step, MarkKind::OutOfMemory);
            failures.push(step * 10 + 5);
        }
        history.record(column(step, step));
        assert!(history.marks().count() <= History::MARKS);
    }
    let marks: Vec<&Mark> = history.marks().collect();
    assert!(marks.len() > History::MARKS / 2, "{} marks are fewer than there is room for", marks.len());
    assert!(marks.is_sorted_by_key(|mark| mark.position));
    let kept = marks.iter().filter(|mark| mark.kind == MarkKind::OutOfMemory).map(|mark| mark.position);
    assert_eq!(kept.collect::<Vec<_>>(), failures);
    // A mark that was dropped shares a column of the whole run with another, so the picture shows as many as before.
    let width = 512;
    let page = history.page(history.level_of_run(width), width);
    for column in 0..page.columns.len() {
        assert!(page.marks.iter().any(|(at, _)| *at == column), "column {column} has lost its marks");
    }
    assert_eq!(marks.last().map(|mark| mark.step), Some(FLIPS - 1), "the newest are all there");
    let last = marks.iter().rev().take(200).filter(|mark| mark.kind != MarkKind::OutOfMemory);
    assert!(last.map(|mark| mark.step).is_sorted_by(|later, earlier| *later == earlier + 1));
}

#[test]
fn even_nothing_but_failures_is_bounded() {
    let mut history = History::default();
    for step in 0..3 * History::MARKS as u64 {
        history.mark(step, step, MarkKind::OutOfMemory);
        history.record(column(step, step));
    }
    assert_eq!(history.marks().count(), History::MARKS);
    assert_eq!(history.marks().last().map(|mark| mark.step), Some(3 * History::MARKS as u64 - 1));
}

#[test]
fn a_position_lies_in_a_step_and_long_ago_in_one_of_several() {
    let steps: Vec<Column> = (0..5000).map(|step| column(100 + step % 7, step)).collect();
    let history = history_of(&steps, true);
    assert_eq!(history.step_at(49_990), Some((4999, 1)), "the step under way");
    assert_eq!(history.step_at(49_989), Some((4998, 1)));
    assert_eq!(history.step_at(40_005), Some((4000, 1)));
    assert_eq!(history.step_at(12_345), Some((1234, 2)), "older than what is kept of each step");
    assert_eq!(history.step_at(15), Some((0, 4)));
    assert_eq!(History::default().step_at(7), None);
    for (position, back, begin) in
        [(50_100, 0, 49_990), (50_100, 1, 49_980), (50_100, 100, 48_990), (40_005, 0, 40_000), (40_005, 9, 39_910)]
    {
        assert_eq!(history.begin_of(position, back), Some(begin), "{position} {back}");
    }
    assert_eq!(history.begin_of(50_100, 5000), None, "there are not so many");
}

#[test]
fn a_tail_goes_on_as_the_whole_does() {
    let steps: Vec<Column> = (0..700).map(|step| column(step * 7 % 113 + 1, step)).collect();
    for forked in [0, 1, 2, 63, 64, 65, 127, 128, 300] {
        let whole = history_of(&steps, false);
        let mut tail = history_of(&steps[..forked], false).tail();
        assert!(tail.levels.iter().all(|level| level.full.is_empty() && level.open.len() <= 2));
        assert_eq!(tail.latest(), history_of(&steps[..forked], false).latest());
        for column in &steps[forked..] {
            tail.begin(Column { stranded: Bytes::ZERO, ..*column });
            tail.end(column.stranded);
        }
        assert_eq!((tail.columns(), tail.latest()), (whole.columns(), whole.latest()));
        for level in 0..4 {
            // From the column on that contains the fork: what it had become before is in the tail.
            for index in (forked as u64 >> level)..700 >> level {
                assert_eq!(tail.column(level, index), whole.column(level, index), "{forked}: {level}, {index}");
            }
        }
    }
}
