//! Compares two figures: the change in words, and whether it is good news.

use crate::drawing::figures;
use crate::drawing::theme::Token;
use crate::model::Figure;

/// The change in per cent, with the usual spread of steps. A smaller change is noise.
pub(crate) fn change(before: &Figure, after: &Figure) -> String {
    let noise = 2.0 * before.spread().max(after.spread());
    if !before.differs(after) {
        return if noise > 0.0 { "noise".to_owned() } else { "same".to_owned() };
    }
    let Some(change) = figures::change(before.median, after.median) else { return String::new() };
    // A change too small to be written is no change.
    if change.starts_with('±') {
        return "same".to_owned();
    }
    match (100.0 * noise / before.median).round() {
        percent if percent >= 1.0 => format!("{change} ±{percent:.0}"),
        _ => change,
    }
}

/// Whether a change is good news, bad news or none.
pub(crate) fn verdict(before: &Figure, after: &Figure, less_is_good: bool) -> Token {
    if !before.differs(after) || (after.median - before.median).abs() < before.median.abs() * 0.005 {
        Token::Dim
    } else if (after.median < before.median) == less_is_good {
        Token::Ok
    } else {
        Token::Warn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(low: f64, median: f64, high: f64) -> Figure {
        Figure { median, low, high }
    }

    #[test]
    fn less_is_good_news_and_what_steps_differ_anyway_is_none() {
        let exact = |value: f64| figure(value, value, value);
        assert_eq!(verdict(&exact(100.0), &exact(70.0), true), Token::Ok);
        assert_eq!(verdict(&exact(100.0), &exact(130.0), true), Token::Warn);
        assert_eq!(verdict(&exact(100.0), &exact(130.0), false), Token::Ok);
        let noisy = figure(95.0, 100.0, 105.0);
        assert_eq!((change(&noisy, &exact(109.0)), verdict(&noisy, &exact(109.0), true)), ("noise".into(), Token::Dim));
        assert_eq!(change(&noisy, &exact(150.0)), "+50 % ±10");
        assert_eq!(change(&exact(8.0), &exact(8.0)), "same");
        assert_eq!(change(&exact(22_840.0), &exact(22_841.0)), "same", "one word for what is no change");
    }
}
