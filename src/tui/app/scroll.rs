//! Lists of which only some rows are visible: the number of rows, and how many are visible.

/// The first row of the last page.
pub(super) fn last_page((rows, seen): (usize, usize)) -> usize {
    rows.saturating_sub(seen)
}

/// The first visible row after `steps` steps of `each` rows.
pub(super) fn scrolled(first: usize, steps: i32, each: usize, list: (usize, usize)) -> usize {
    let distance = (steps.unsigned_abs() as usize).saturating_mul(each);
    if steps < 0 { first.saturating_sub(distance) } else { first.saturating_add(distance).min(last_page(list)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_scroll_by_rows_and_pages_within_their_ends() {
        assert_eq!(scrolled(0, 2, 1, (50, 8)), 2);
        assert_eq!(scrolled(2, -9, 1, (50, 8)), 0);
        assert_eq!(scrolled(0, 50, 8, (50, 8)), 42, "the last page is a whole one");
        assert_eq!(scrolled(42, -1, 8, (50, 8)), 34);
        assert_eq!(scrolled(0, 1, 1, (50, 100)), 0, "all rows fit");
        assert_eq!(scrolled(usize::MAX, i32::MAX, usize::MAX, (3, 1)), 2);
    }
}
