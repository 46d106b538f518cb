//! A claim's own figures in its expressions: `$saved` is replaced by the formula of `saved`.

use std::ops::Range;

use crate::figures::Misread;
use crate::user_input::hint;

/// The formulas of a claim's figures, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Formulas(Vec<(String, String)>);

/// A text in which names were replaced by formulas, with the origin of its pieces.
#[derive(Clone, Debug)]
pub(super) struct ExpandedFormula {
    pub text: String,
    /// The replaced pieces: their ranges in `text`, and the ranges of their names in the original.
    replaced: Vec<(Range<usize>, Range<usize>)>,
}

impl ExpandedFormula {
    /// Where the byte at `offset` of the text comes from: its offset in the original; for a replaced piece, the offset
    /// of the name.
    pub fn origin(&self, offset: usize) -> usize {
        let mut shift = 0_isize;
        for (now, before) in &self.replaced {
            if offset < now.start {
                break;
            }
            if offset < now.end {
                return before.start;
            }
            shift = before.end.cast_signed() - now.end.cast_signed();
        }
        offset.saturating_add_signed(shift)
    }
}

impl Formulas {
    /// Adds a formula: from now on `$name` is replaced by `text`, in which all names are already replaced.
    pub fn add(&mut self, name: &str, text: String) {
        self.0.push((name.to_owned(), text));
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The text with every `$name` replaced.
    ///
    /// # Errors
    /// A name that has no formula, with its place.
    pub fn expand(&self, text: &str) -> Result<ExpandedFormula, Misread> {
        let mut expanded = ExpandedFormula { text: String::new(), replaced: Vec::new() };
        let mut at = 0;
        while let Some(sign) = text[at..].find('$').map(|found| at + found) {
            expanded.text += &text[at..sign];
            let rest = &text[sign + 1..];
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = &rest[..length];
            let Some((_, formula)) = self.0.iter().find(|(known, _)| known == name) else {
                let meant = hint(name, self.0.iter().map(|(known, _)| known.as_str()));
                let reason = format!("this claim has no figure '{name}' before this{meant}");
                return Err(Misread { offset: sign, reason });
            };
            let start = expanded.text.len();
            expanded.text += &format!("({formula})");
            at = sign + 1 + length;
            expanded.replaced.push((start..expanded.text.len(), sign..at));
        }
        expanded.text += &text[at..];
        Ok(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_places_are_found_again() {
        let mut formulas = Formulas::default();
        formulas.add("saved", "1 - a / b".to_owned());
        let expanded = formulas.expand("x > $saved and y").unwrap();
        assert_eq!(expanded.text, "x > (1 - a / b) and y");
        let find = |word: &str| expanded.origin(expanded.text.find(word).unwrap());
        assert_eq!(["x", "/ b", " and", "y"].map(find), [0, 4, 10, 15]);
        assert_eq!(expanded.origin(expanded.text.len()), 16);
        let wrong = formulas.expand("1 + $save").unwrap_err();
        assert_eq!((wrong.offset, wrong.reason.contains("did you mean \"saved\"")), (4, true));
    }
}
