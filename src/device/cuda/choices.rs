//! The fastest choices, on disk: one line for each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::cache;

/// Ranks of one process share a file of choices.
static WRITING: Mutex<()> = Mutex::new(());

/// Choices for one device and library version, each as `WORDS` words.
pub(crate) struct Choices<const WORDS: usize> {
    path: Option<PathBuf>,
    known: HashMap<u64, [u64; WORDS]>,
}

/// A number that represents a value, the same in every run of one build.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<const WORDS: usize> Choices<WORDS> {
    /// Reads the choices of one `kind` from earlier runs. Unreadable lines are ignored.
    pub fn open(kind: &str, device: &str, version: &str) -> Self {
        let name: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = cache::cache_folder().map(|folder| folder.join(format!("{kind}-{name}-{version}.txt")));
        let known = path.as_deref().map(read).unwrap_or_default();
        Self { path, known }
    }

    pub fn get(&self, key: &impl Hash) -> Option<[u64; WORDS]> {
        self.known.get(&fingerprint(key)).copied()
    }

    /// Stores a choice in memory and on disk, together with choices that other ranks have stored there meanwhile.
    pub fn keep(&mut self, key: &impl Hash, choice: [u64; WORDS]) {
        self.known.insert(fingerprint(key), choice);
        let Some(path) = &self.path else { return };
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, choice) in read(path) {
            self.known.entry(key).or_insert(choice);
        }
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

/// Reads the choices on disk.
fn read<const WORDS: usize>(path: &Path) -> HashMap<u64, [u64; WORDS]> {
    fs::read_to_string(path).unwrap_or_default().lines().filter_map(parse).collect()
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
    fn what_one_rank_keeps_is_not_lost_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("choices.txt");
        let [mut one, mut other] = [(); 2].map(|()| Choices::<1> { path: Some(path.clone()), known: HashMap::new() });
        one.keep(&"a product", [1]);
        other.keep(&"another", [2]);
        one.keep(&"a third", [3]);
        assert_eq!(read::<1>(&path).len(), 3);
        assert_eq!(other.get(&"another"), Some([2]));
        assert_eq!(one.get(&"another"), Some([2]));
    }

    #[test]
    fn lines_that_were_not_written_here_are_ignored() {
        assert_eq!(parse("000000000000000a 1 2 3 4 5 6 7 8"), Some((10, [1, 2, 3, 4, 5, 6, 7, 8])));
        for line in ["", "a", "a 1 2 3 4 5 6 7", "a 1 2 3 4 5 6 7 8 9", "a 1 2 3 4 5 6 7 x"] {
            assert_eq!(parse::<8>(line), None, "{line}");
        }
    }
}
