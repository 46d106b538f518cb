//! Guesses the word that a user meant.

/// The word of `known` that is most similar to `word`, if one is similar: a few letters are wrong, missing, too many or
/// swapped, or it begins with `word`.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let letters = word.chars().count();
    let most = (letters / 3).max(1);
    let alike = |known: &&str| {
        let begins = letters >= 3 && known.starts_with(&word);
        (begins, distance(&word, &known.to_lowercase(), most))
    };
    let scored = known.into_iter().map(|known| (known, alike(&known)));
    let candidates = scored.filter(|(_, (begins, distance))| *begins || *distance <= most);
    candidates.min_by_key(|(_, (begins, distance))| if *begins { 0 } else { *distance }).map(|(known, _)| known)
}

/// ` (did you mean "X"?)`, or nothing.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    near(word, known).map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"))
}

/// The number of letters that must be changed, inserted, removed or swapped with the next; more than `most` if the
/// lengths alone differ by more.
fn distance(a: &str, b: &str, most: usize) -> usize {
    if a.chars().count().abs_diff(b.chars().count()) > most {
        return most + 1;
    }
    strsim::osa_distance(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_word_and_another_word_does_not() {
        let known = ["theme", "glyphs", "workload", "device", "mouse", "recordings"];
        for (word, meant) in [
            ("them", Some("theme")),
            ("tehme", Some("theme")),
            ("Theme", Some("theme")),
            ("glyph", Some("glyphs")),
            ("worklaod", Some("workload")),
            ("record", Some("recordings")),
            ("colour", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(near(word, known), meant, "{word}");
        }
        assert_eq!(hint("mous", known), " (did you mean \"mouse\"?)");
        assert_eq!(hint("gpu", known), "");
    }
}
