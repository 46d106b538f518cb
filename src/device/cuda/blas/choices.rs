//! Which algorithm was the fastest for each shape, on disk: a line for each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::product::Shape;
use crate::device::cuda::modules;

/// What cuBLASLt calls an algorithm: 64 bytes of its own.
pub(super) type AlgorithmData = [u64; 8];

/// Choices of one device and library version.
pub(super) struct Choices {
    path: Option<PathBuf>,
    known: HashMap<u64, AlgorithmData>,
}

/// A shape's key: the same in every run of one build.
fn key(shape: &Shape) -> u64 {
    let mut hasher = DefaultHasher::new();
    shape.hash(&mut hasher);
    hasher.finish()
}

impl Choices {
    /// Reads what earlier runs chose. Lines that can't be read are choices not made.
    pub fn open(device: &str, version: usize) -> Self {
        let name: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = modules::cache_folder().map(|folder| folder.join(format!("gemm-{name}-{version}.txt")));
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Self { path, known: text.lines().filter_map(parse).collect() }
    }

    pub fn get(&self, shape: &Shape) -> Option<AlgorithmData> {
        self.known.get(&key(shape)).copied()
    }

    /// Remembers a choice, here and on disk.
    pub fn keep(&mut self, shape: &Shape, algorithm: AlgorithmData) {
        self.known.insert(key(shape), algorithm);
        let Some(path) = &self.path else { return };
        let mut lines: Vec<_> = self.known.iter().collect();
        lines.sort_unstable();
        let mut text = String::new();
        for (shape, algorithm) in lines {
            let _ = write!(text, "{shape:016x}");
            for word in algorithm {
                let _ = write!(text, " {word:016x}");
            }
            text.push('\n');
        }
        modules::keep(path, text.as_bytes());
    }
}

fn parse(line: &str) -> Option<(u64, AlgorithmData)> {
    let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16).ok());
    let shape = words.next()??;
    let mut algorithm = [0; 8];
    for word in &mut algorithm {
        *word = words.next()??;
    }
    words.next().is_none().then_some((shape, algorithm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_not_written_here_are_ignored() {
        assert_eq!(parse("000000000000000a 1 2 3 4 5 6 7 8"), Some((10, [1, 2, 3, 4, 5, 6, 7, 8])));
        for line in ["", "a", "a 1 2 3 4 5 6 7", "a 1 2 3 4 5 6 7 8 9", "a 1 2 3 4 5 6 7 x"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
