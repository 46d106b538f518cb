//! Searches for the largest number that fits: gallops away from the start, then bisects, then tries the neighbours
//! above the border.

/// How many numbers above the border are also tried: near it a larger number may fit although a smaller one does not,
/// because the cache is cut differently.
const NEIGHBOURS: usize = 3;

/// The largest number from 1 to `most` that `fits`, starting at `start`; the inner `None` if none does, the outer
/// `None` if `fits` reports that the search was stopped. `fits` is called more than once for some numbers.
///
/// # Errors
/// The errors of `fits`.
pub fn largest<E>(
    start: usize,
    most: usize,
    mut fits: impl FnMut(usize) -> Result<Option<bool>, E>,
) -> Result<Option<Option<usize>>, E> {
    let Some(first) = fits(start)? else { return Ok(None) };
    // Invariant from here on: `low` fits, or is 0, and `high` does not.
    let (mut low, mut high) = if first { (start, start) } else { (0, start) };
    if first {
        loop {
            if low >= most {
                return Ok(Some(Some(low)));
            }
            high = low.saturating_mul(2).min(most);
            match fits(high)? {
                None => return Ok(None),
                Some(true) => low = high,
                Some(false) => break,
            }
        }
    } else {
        while high > 1 {
            let half = high / 2;
            match fits(half)? {
                None => return Ok(None),
                Some(true) => {
                    low = half;
                    break;
                }
                Some(false) => high = half,
            }
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match fits(middle)? {
            None => return Ok(None),
            Some(true) => low = middle,
            Some(false) => high = middle,
        }
    }
    if low == 0 {
        return Ok(Some(None));
    }
    let mut next = low + 1;
    while next <= (low + 1 + NEIGHBOURS).min(most) {
        match fits(next)? {
            None => return Ok(None),
            Some(true) => low = next,
            Some(false) => {}
        }
        next += 1;
    }
    Ok(Some(Some(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(start: usize, most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let found: Result<_, ()> = largest(start, most, |number| Ok(Some(fits(number))));
        found.unwrap().unwrap()
    }

    #[test]
    fn the_edge_is_found_from_below_and_above() {
        for edge in 1..70 {
            for start in [1, 2, 16, 64, 100] {
                assert_eq!(search(start, 128, |number| number <= edge), Some(edge), "from {start}");
            }
        }
        assert_eq!(search(8, 128, |_| false), None);
        assert_eq!(search(8, 128, |_| true), Some(128));
        assert_eq!(search(1, 128, |number| number <= 9 || number == 12), Some(12), "a larger one may fit");
    }

    #[test]
    fn it_stops_when_it_is_told() {
        let stopped: Result<_, ()> = largest(4, 128, |number| Ok((number < 16).then_some(true)));
        assert_eq!(stopped, Ok(None));
        assert_eq!(largest(4, 128, |_| Err("why")), Err("why"));
    }
}
