//! What the rows of a table of combinations have in common, printed above the table.

use super::columns::TIED;
use crate::fit::CandidateCost;
use crate::session::Switch;

/// A switch that a combination changes, and to what.
type Change = (Switch, String);

/// A switch and its value, on one line.
fn change_words((switch, value): &Change) -> String {
    format!("{}{TIED}{value}", switch.word())
}

/// The changes of a combination.
pub(super) fn words(costed: &CandidateCost) -> String {
    listed(costed.candidate.changed.iter().map(change_words))
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "as it stands".to_owned() } else { words.join(", ") }
}

/// What is printed once above a table instead of in each row: the changes that all rows share, and long values, which
/// rows show by a short word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SaidOnce {
    shared: Vec<Change>,
    /// Long changes, each with the short word used in the rows.
    long: Vec<(Change, String)>,
}

impl SaidOnce {
    pub fn of(rows: &[&CandidateCost]) -> Self {
        let rows: Vec<&[Change]> = rows.iter().map(|costed| costed.candidate.changed.as_slice()).collect();
        let [first, others @ ..] = &rows[..] else { return Self::default() };
        if others.is_empty() {
            return Self::default();
        }
        let shared: Vec<Change> =
            first.iter().filter(|change| others.iter().all(|row| row.contains(change))).cloned().collect();
        let mut long: Vec<(Change, String)> = Vec::new();
        for change in rows.iter().flat_map(|row| row.iter()) {
            let is_known = shared.contains(change) || long.iter().any(|(known, _)| known == change);
            if let Some(word) = short_value(&change.1).filter(|_| !is_known) {
                long.push((change.clone(), word.to_owned()));
            }
        }
        Self { shared, long }
    }

    /// The changes of a row other than the shared ones.
    pub fn words(&self, costed: &CandidateCost) -> String {
        let own = costed.candidate.changed.iter().filter(|change| !self.shared.contains(change));
        let words = own.map(|change| {
            let long = self.long.iter().find(|(known, _)| known == change);
            long.map_or_else(|| change_words(change), |(_, word)| word.clone())
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() && !self.shared.is_empty() { "no more".to_owned() } else { listed(words.into_iter()) }
    }

    /// The line above the table.
    pub fn in_words(&self) -> Option<String> {
        let shared: Vec<String> = self.shared.iter().map(change_words).collect();
        let shared = (!shared.is_empty()).then(|| format!("all with {}", shared.join(", ")));
        let long = self.long.iter().map(|(change, word)| format!("{word}: {}", change_words(change)));
        let said: Vec<String> = shared.into_iter().chain(long).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// The short word for a setting of PyTorch that would fill a line: `expandable` for `expandable_segments:True`.
fn short_value(value: &str) -> Option<&str> {
    /// The longest value that fits in a row.
    const LONGEST: usize = 16;
    let (key, on) = value.split_once(':').filter(|_| value.len() > LONGEST)?;
    (on == "True").then(|| key.split('_').next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{Candidate, ProbeOutcome};
    use crate::session::LabSpec;
    use crate::workload::Catalog;

    fn costed(changes: &[(&str, &str)]) -> CandidateCost {
        let workload = Catalog::with_user_workloads(None).entry("gpt-mini").unwrap();
        let setup = LabSpec::new(workload).setup();
        let changed = changes.iter().map(|(word, value)| (Switch::named(word).unwrap(), (*value).to_owned())).collect();
        CandidateCost { candidate: Candidate { setup, changed }, outcome: ProbeOutcome::Stopped }
    }

    #[test]
    fn what_all_rows_change_is_said_once_and_a_long_value_by_a_word() {
        let long = ("alloc-conf", "expandable_segments:True");
        let all = [
            costed(&[("accum", "2"), ("amp", "fp16"), long]),
            costed(&[("accum", "4"), ("amp", "fp16")]),
            costed(&[("amp", "fp16")]),
        ];
        let rows: Vec<&CandidateCost> = all.iter().collect();
        let plain = |text: &str| text.replace(TIED, " ");
        let once = SaidOnce::of(&rows);
        let above = "all with amp fp16; expandable: alloc-conf expandable_segments:True";
        assert_eq!(once.in_words().as_deref().map(plain).as_deref(), Some(above));
        let words: Vec<String> = rows.iter().map(|row| plain(&once.words(row))).collect();
        assert_eq!(words, ["accum 2, expandable", "accum 4", "no more"]);
        let alone = SaidOnce::of(&rows[..1]);
        assert_eq!((alone.in_words(), plain(&alone.words(rows[0])).contains("amp fp16")), (None, true));
        let as_it_stands = costed(&[]);
        let with_base = SaidOnce::of(&[rows[0], &as_it_stands]);
        assert_eq!(with_base.words(&as_it_stands), "as it stands");
    }
}
