//! Words as a shell parses them.

use super::safe::is_safe;

/// A line that a shell parses into these words. A character that no line may have (a control character, a direction
/// mark) becomes `?`.
#[must_use]
pub fn command_line<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quoted(word.as_ref())).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let word: String = word.chars().map(|symbol| if is_safe(symbol) { symbol } else { '?' }).collect();
    let plain = |symbol: char| symbol.is_ascii_alphanumeric() || "_@%+=:,./-".contains(symbol);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_words_again() {
        let words =
            ["plain", "sim:h200", "", "two words", "it's", "$HOME", "`date`", "a;b", "*", "roundup:[256:1,>:2]", "é"];
        let line = command_line(words);
        assert!(line.starts_with("plain sim:h200 '' 'two words' "), "{line}");
        let told = Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.lines().collect::<Vec<_>>(), words);
    }

    #[test]
    fn nothing_in_a_line_commands_a_terminal() {
        assert_eq!(command_line(["a\u{1b}[2J\nb"]), "'a?[2J?b'");
    }
}
