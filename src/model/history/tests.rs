//! Pages against a plain list of all events.

use proptest::prelude::*;

use super::*;

fn column(value: u64, index: u64) -> Column {
    Column::of_event(Bytes(value), Bytes(value + 100), Bytes(value / 3), index / 10, Micros(index))
}

/// The same by definition: chunks of `2^level` events, first page position by trying strides.
fn naive(events: &[Column], level: usize, width: usize) -> Page {
    let joined: Vec<Column> =
        events.chunks(1 << level).map(|chunk| chunk.iter().copied().reduce(Column::join).unwrap()).collect();
    let mut first = 0;
    while joined.len() - first > width {
        first += (width / 2).max(1);
    }
    Page { columns: joined[first..].to_vec(), first: first as u64, marks: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_page_is_what_the_events_say(
        values in prop::collection::vec(0_u64..1000, 1..3000),
        level in 0_usize..14,
        width in 1_usize..300,
    ) {
        let mut history = History::default();
        let events: Vec<Column> = (0..).zip(values).map(|(index, value)| column(value, index)).collect();
        events.iter().for_each(|event| history.record(*event));
        prop_assert_eq!(history.page(level, width), naive(&events, level, width));
        let fitting = history.level_of_run(width);
        prop_assert!(events.len().div_ceil(1 << fitting) <= width);
        prop_assert!(fitting == 0 || events.len().div_ceil(1 << (fitting - 1)) > width);
        prop_assert_eq!(history.page(fitting, width).first, 0);
    }
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
        assert_eq!(page.columns.iter().map(|column| column.allocated_max).max(), Some(Bytes(1_000_000)), "{level}");
        assert_eq!(page.columns.iter().map(|column| column.allocated_min).min(), Some(Bytes(5)));
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

#[test]
fn marks_stand_at_the_event_that_followed_them() {
    let mut history = History::default();
    for index in 0..64 {
        if index == 33 {
            history.mark('m', "bf16".to_owned());
        }
        history.record(column(index, index));
    }
    history.mark('c', "on".to_owned());
    let at = |level: usize, width: usize| -> Vec<(usize, char)> {
        history.page(level, width).marks.iter().map(|(column, mark)| (*column, mark.key)).collect()
    };
    assert_eq!(at(0, 64), [(33, 'm'), (63, 'c')]);
    assert_eq!(at(2, 64), [(8, 'm'), (15, 'c')]);
    assert_eq!(at(0, 20), [(13, 'c')]);
}

#[test]
fn the_level_of_steps_follows_the_length_of_steps() {
    let mut history = History::default();
    assert_eq!(history.level_of_steps(100, 10), 0);
    for index in 0..4000 {
        if index > 0 && index % 100 == 0 {
            history.end_step();
        }
        history.record(column(index, index));
    }
    // 10 steps are 1000 events: 16 events a column are the least that fit.
    assert_eq!(history.level_of_steps(100, 10), 4);
    assert_eq!(history.level_of_steps(1000, 10), 0);
    assert_eq!(history.level_of_steps(50, 30), 6);
}
