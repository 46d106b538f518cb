//! Remedies for a failed request: a row for each change that was tried, the one that reserves least first.

use unicode_width::UnicodeWidthStr;

use crate::drawing::figures::bytes;
use crate::model::{Autopsy, Remedy, RemedyTrial};
use crate::units::Bytes;

/// The least and the greatest width of a bar in cells.
const BAR: (usize, usize) = (4, 20);
/// The remark after the rows.
const HOW: &str = "(tried, simulated)";

/// A change with which the same steps went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// The change.
    name: String,
    /// Highest reserved bytes with it.
    reserved: Bytes,
    /// How much of the limit it leaves, if the limit is known and not what is changed.
    leaves: Option<Bytes>,
}

/// The rows of changes that fit, the lowest reserved peak first.
pub(super) fn table(autopsy: &Autopsy, word: &dyn Fn(&Remedy) -> String) -> Vec<Fit> {
    let mut fits: Vec<Fit> = autopsy
        .remedied
        .iter()
        .filter(|tried| tried.fits)
        .map(|tried| Fit {
            name: short(&word(&tried.remedy)),
            reserved: tried.peak_reserved,
            leaves: autopsy.limit.and_then(|limit| limit.get().checked_sub(tried.peak_reserved.get())).map(Bytes),
        })
        .collect();
    fits.sort_by_key(|fit| fit.reserved);
    fits
}

/// A key and its effect without brackets: `a (accumulate 2)` becomes `a  accumulate 2`.
fn short(word: &str) -> String {
    match word.split_once(" (").zip(word.strip_suffix(')')) {
        Some(((key, what), _)) => format!("{key}  {}", what.trim_end_matches(')')),
        None => word.to_owned(),
    }
}

/// The rows in lines of at most `width` cells: name, reserved, a bar, the rest. `None` if there are none, or no room for columns.
pub(super) fn lines(fits: &[Fit], width: usize) -> Option<Vec<String>> {
    let column = |cells: fn(&Fit) -> usize| fits.iter().map(cells).max().unwrap_or(0);
    let (names, figures) = (column(|fit| fit.name.width()), column(|fit| bytes(fit.reserved).width()));
    if fits.is_empty() || names + 2 + figures > width {
        return None;
    }
    // The unit is written once if both have the same.
    let left = |fit: &Fit| {
        let Some(left) = fit.leaves else { return String::new() };
        let (reserved, left) = (bytes(fit.reserved), bytes(left));
        let unit = reserved.rsplit(' ').next().unwrap_or_default();
        format!("{} left", left.strip_suffix(unit).map_or(&*left, str::trim_end))
    };
    let lefts = fits.iter().map(|fit| left(fit).width()).max().unwrap_or(0);
    let room = width - names - 2 - figures;
    // A single row has nothing to be compared with, unless the limit is known.
    let compares = fits.len() > 1 || lefts > 0;
    let bar = |room: Option<usize>| room.filter(|cells| compares && *cells >= BAR.0).map(|cells| cells.min(BAR.1));
    // If there is no room for both, the bar shows what is left.
    let both = bar(room.checked_sub(lefts + 2 + 1));
    let has_left = both.is_some() || room >= lefts + 2;
    let bar = both.or_else(|| if has_left { None } else { bar(room.checked_sub(1)) });
    // A full bar is the limit, or else the highest of all.
    let full = fits.iter().map(|fit| fit.reserved.get() + fit.leaves.map_or(0, Bytes::get)).max().unwrap_or(0).max(1);
    let line = |fit: &Fit| {
        let mut line = format!("{:<names$}  {:>figures$}", fit.name, bytes(fit.reserved));
        if let Some(cells) = bar {
            line.push_str(&format!(" {:<cells$}", filled(fit.reserved.get(), full, cells)));
        }
        if has_left {
            line.push_str(&format!("  {}", left(fit)));
        }
        line.trim_end().to_owned()
    };
    let mut lines: Vec<String> = fits.iter().map(line).collect();
    match lines.last_mut().filter(|last| last.width() + 1 + HOW.width() <= width) {
        Some(last) => last.push_str(&format!(" {HOW}")),
        None => lines.push(HOW.to_owned()),
    }
    Some(lines)
}

/// A bar of `cells` at `full`, to an eighth of a cell. A value above zero is always visible.
fn filled(value: u64, full: u64, cells: usize) -> String {
    let all = 8 * cells as u128;
    let eighths = (u128::from(value) * all / u128::from(full.max(1))).clamp(u128::from(value > 0), all) as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{rest}", "█".repeat(eighths / 8))
}

/// The changes that fit, in a sentence.
pub(super) fn fits(autopsy: &Autopsy, word: &dyn Fn(&Remedy) -> String) -> String {
    let remedied = &autopsy.remedied;
    if autopsy.tried && remedied.is_empty() {
        return "nothing was tried: the host has too little memory left for it".to_owned();
    }
    // Nothing can be tried for a request in a snapshot.
    if remedied.is_empty() && autopsy.request.attempts.is_empty() {
        return String::new();
    }
    if remedied.is_empty() {
        return "trying what would have made it fit …".to_owned();
    }
    let mut fitting: Vec<&RemedyTrial> = remedied.iter().filter(|tried| tried.fits).collect();
    fitting.sort_by_key(|tried| tried.peak_reserved);
    let words = |tried: &RemedyTrial| format!("{}, reserving {}", word(&tried.remedy), bytes(tried.peak_reserved));
    let fitting: Vec<String> = fitting.into_iter().map(words).collect();
    match fitting.is_empty() {
        true => "with nothing that was tried (simulated)".to_owned(),
        false => format!("with {} {HOW}", fitting.join(", or ")),
    }
}

/// The changes that were tried and did not help.
pub(super) fn fits_not(autopsy: &Autopsy, word: &dyn Fn(&Remedy) -> String) -> String {
    let failing = autopsy.remedied.iter().filter(|tried| !tried.fits).map(|tried| word(&tried.remedy));
    let failing: Vec<String> = failing.collect();
    if failing.is_empty() { String::new() } else { format!("with {}", failing.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(name: &str, reserved: u64, leaves: Option<u64>) -> Fit {
        Fit { name: name.to_owned(), reserved: Bytes::gib(reserved), leaves: leaves.map(Bytes::gib) }
    }

    #[test]
    fn a_row_has_a_name_a_figure_a_bar_and_what_is_left_as_far_as_there_is_room() {
        let fits = [fit("a (accumulate 2)", 11, Some(11)), fit("c (checkpoint on)", 20, Some(2))];
        let wide = lines(&fits, 90).unwrap();
        assert_eq!(wide[0], "a (accumulate 2)   11.00 GiB ██████████            11.00 left");
        assert!(wide[1].ends_with("2.00 left (tried, simulated)") && wide.len() == 2, "{wide:?}");
        let narrow = lines(&fits, 43).unwrap();
        assert_eq!(narrow[1], "c (checkpoint on)  20.00 GiB  2.00 left");
        assert_eq!(narrow[2], HOW, "it is always said how that is known");
        assert_eq!(lines(&fits, 37).unwrap()[0], "a (accumulate 2)   11.00 GiB ████");
        assert_eq!(lines(&fits, 30).unwrap()[0], "a (accumulate 2)   11.00 GiB");
        assert_eq!(short("c c (checkpoint every:2)"), "c c  checkpoint every:2");
        assert_eq!(lines(&fits, 20), None);
        assert_eq!(lines(&[fit("r (leak off)", 7, None)], 90).unwrap(), ["r (leak off)  7.00 GiB (tried, simulated)"]);
        assert_eq!(lines(&[], 90), None);
    }
}
