//! The word that somebody probably meant.

/// The most alike of `known` to `word`, where one is alike: a few letters are wrong, missing, too many or exchanged, or it
/// begins so.
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

/// How many letters must change, go, come or be exchanged with the next; more than `most` where the lengths alone say so.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return most + 1;
    }
    // The rows of the usual table: two letters of `a` ago, one ago, and the one under way.
    let (mut older, mut old): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = old[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(old[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(older[j - 2] + 1);
            }
            row.push(least);
        }
        older = std::mem::replace(&mut old, row);
    }
    old[b.len()]
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
