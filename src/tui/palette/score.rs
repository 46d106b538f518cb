//! Scores how well a name matches a query: its letters in order, preferably in runs and at the beginnings of words.

/// The score of a letter that occurs.
const LETTER: i32 = 1;
/// Added if the letter follows the previous one.
const RUN: i32 = 9;
/// Added if the letter begins a word.
const WORD: i32 = 10;
/// Added if the letter begins the name.
const FIRST: i32 = 4;
/// The score of a letter in other names and in the sentence, which must contain the whole word.
const ALSO: i32 = 5;
/// Added if the name equals the query.
const WHOLE: i32 = 20;
/// How much of a long name is searched.
const LONGEST: usize = 160;

/// The score of an offer called `name`, with the other names `also` and the sentence `about`, all in lower case; `None`
/// if a word of `query` is in none of them.
pub(super) fn score(query: &str, name: &str, also: &str, about: &str) -> Option<i32> {
    let mut sum = 0;
    for word in query.split_whitespace() {
        let length = i32::try_from(word.chars().count()).unwrap_or(i32::MAX / 64);
        let told = |text: &str, each: i32| begins_a_word(text, word).then_some(length * each);
        let best = [fuzzy(name, word), told(also, ALSO + 2), told(about, ALSO)].into_iter().flatten().max();
        sum += best?;
    }
    Some(sum + if name == query.trim() { WHOLE } else { 0 })
}

/// True if a word of `text` begins with `word`.
fn begins_a_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
}

/// The best score for the letters of `word` in `name`, in order; `None` if they match too loosely.
fn fuzzy(name: &str, word: &str) -> Option<i32> {
    // Most names lack a letter, so they cost no more than this.
    let mut rest = name.chars().take(LONGEST);
    if !word.chars().all(|letter| rest.any(|other| other == letter)) {
        return None;
    }
    let letters: Vec<char> = name.chars().take(LONGEST).collect();
    let begins = |at: usize| at == 0 || !letters[at - 1].is_alphanumeric();
    let worth = |at: usize| LETTER + if begins(at) { WORD } else { 0 } + if at == 0 { FIRST } else { 0 };
    // For each letter of the name, the best score of a match that ends there, for the word's letters so far.
    let mut ending: Vec<Option<i32>> = Vec::new();
    for (place, letter) in word.chars().enumerate() {
        let mut next = vec![None; letters.len()];
        // The best score that ended earlier, minus a point for each letter in between.
        let mut before: Option<i32> = None;
        for at in 0..letters.len() {
            if letters[at] == letter {
                let run = at.checked_sub(1).and_then(|last| ending.get(last).copied().flatten());
                let run = run.map(|score| score + LETTER.max(worth(at) - RUN) + RUN);
                let jump = if place == 0 { Some(worth(at)) } else { before.map(|score| score + worth(at)) };
                next[at] = run.max(jump);
            }
            let ended = at.checked_sub(1).and_then(|last| ending.get(last).copied().flatten());
            before = before.max(ended).map(|score| score - 1);
        }
        ending = next;
    }
    let best = ending.into_iter().flatten().max()?;
    let length = i32::try_from(word.chars().count()).unwrap_or(i32::MAX / 64);
    (best >= 3 * length.min(4)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that a query finds, the best first.
    fn found<'a>(query: &str, names: &[&'a str]) -> Vec<&'a str> {
        let mut all: Vec<(i32, &str)> =
            names.iter().filter_map(|name| Some((score(query, name, "", "")?, *name))).collect();
        all.sort_by_key(|(score, _)| -score);
        all.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn beginnings_of_words_and_runs_come_first() {
        let names = ["largest hole", "whole run", "the log", "allocator"];
        assert_eq!(found("hole", &names)[0], "largest hole");
        assert_eq!(found("lh", &names)[0], "largest hole", "initials");
        assert_eq!(found("all", &["checkpoint all", "allocator", "small"])[..2], ["allocator", "checkpoint all"]);
        assert_eq!(found("ckpt", &["checkpoint", "compact pots"]), ["checkpoint"]);
        assert_eq!(found("oom", &["zoom in", "out of memory"])[0], "out of memory");
    }

    #[test]
    fn every_word_of_a_query_must_be_there_in_any_order() {
        assert_eq!(found("hole large", &["largest hole", "largest block"]), ["largest hole"]);
        assert_eq!(found("xyz", &["largest hole"]), Vec::<&str>::new());
        assert!(score("returns driver", "empty cache", "", "returns free segments to the driver").is_some());
        assert!(score("river", "empty cache", "", "returns free segments to the driver").is_none(), "words begin so");
    }

    #[test]
    fn a_name_that_is_the_query_wins() {
        assert_eq!(found("step", &["step form", "step", "this step"])[0], "step");
        let long = "a".repeat(5000);
        assert!(score("a", &long, "", "").is_some() && score(&long, "a", "", "").is_none());
    }

    #[test]
    fn letters_scattered_over_a_name_are_no_answer() {
        assert_eq!(found("peak", &["parameters read back"]), Vec::<&str>::new());
    }
}
