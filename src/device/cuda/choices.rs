//! What was the fastest, on disk: a line for each thing that was timed.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::cache;

/// Choices of one device and library version, each of so many words.
pub(super) struct Choices<const WORDS: usize> {
    path: Option<PathBuf>,
    known: HashMap<u64, [u64; WORDS]>,
}

/// What stands for a value: the same in every run of one build.
pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<const WORDS: usize> Choices<WORDS> {
    /// Reads what earlier runs chose of one `kind`. Lines that can't be read are choices not made.
    pub fn open(kind: &str, device: &str, version: &str) -> Self {
        let name: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = cache::cache_folder().map(|folder| folder.join(format!("{kind}-{name}-{version}.txt")));
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Self { path, known: text.lines().filter_map(parse).collect() }
    }

    pub fn get(&self, key: &impl Hash) -> Option<[u64; WORDS]> {
        self.known.get(&fingerprint(key)).copied()
    }

    /// Remembers a choice, here and on disk.
    pub fn keep(&mut self, key: &impl Hash, choice: [u64; WORDS]) {
        self.known.insert(fingerprint(key), choice);
        let Some(path) = &self.path else { return };
        let mut lines: Vec<_> = self.known.iter().collect();
        lines.sort_unstable();
        let mut text = String::new();
        for (key, choice) in lines {
            let _ = write!(text, "{key:016x}");
            for word in choice {
                let _ = write!(text, " {word:016x}");
            }
            text.push('\n');
        }
        cache::keep(path, text.as_bytes());
    }
}

fn parse<const WORDS: usize>(line: &str) -> Option<(u64, [u64; WORDS])> {
    let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16).ok());
    let key = words.next()??;
    let mut choice = [0; WORDS];
    for word in &mut choice {
        *word = words.next()??;
    }
    words.next().is_none().then_some((key, choice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_not_written_here_are_ignored() {
        assert_eq!(parse("000000000000000a 1 2 3 4 5 6 7 8"), Some((10, [1, 2, 3, 4, 5, 6, 7, 8])));
        for line in ["", "a", "a 1 2 3 4 5 6 7", "a 1 2 3 4 5 6 7 8 9", "a 1 2 3 4 5 6 7 x"] {
            assert_eq!(parse::<8>(line), None, "{line}");
        }
    }
}
