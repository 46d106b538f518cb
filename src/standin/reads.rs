//! What the processes of a program read back that no kernel computed: see `_reads.py` of the watcher's package, which writes it.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::install::files;

/// No file of ours is longer: a line of source takes a few hundred bytes.
const LONGEST: u64 = 16 << 20;

/// What all processes of a program read, together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Processes whose values were followed on the processor.
    pub processes: usize,
    /// Reads by line, rule and type; those that were read most come first.
    pub rows: Vec<Read>,
}

/// Reads of values that were not computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Read {
    /// The program's file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
    /// The rule's name, as the guide lists it.
    pub rule: String,
    /// What was taken.
    pub taken: String,
    /// PyTorch's name of the type.
    pub dtype: String,
    /// How often.
    pub count: u64,
}

#[derive(Deserialize)]
struct ReadsFile {
    version: u32,
    reads: Vec<Read>,
}

impl Reads {
    /// What was written in a folder. Files that are none of ours, or of another version, do not count.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut reads = Self::default();
        for path in files(folder, "reads") {
            let length = fs::metadata(&path).map_or(u64::MAX, |metadata| metadata.len());
            let text = if length <= LONGEST { fs::read(&path).ok() } else { None };
            let file = text.and_then(|text| serde_json::from_slice::<ReadsFile>(&text).ok());
            if let Some(ReadsFile { version: 1, reads: rows }) = file {
                reads.processes += 1;
                rows.into_iter().for_each(|row| reads.add(row));
            }
        }
        reads.rows.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.line.cmp(&other.line)));
        reads
    }

    /// Ranks read the same in the same line.
    fn add(&mut self, row: Read) {
        let same = |known: &&mut Read| {
            (&known.file, known.line, &known.rule, &known.dtype) == (&row.file, row.line, &row.rule, &row.dtype)
        };
        match self.rows.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(row.count),
            None => self.rows.push(row),
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.rows.iter().fold(0, |count, row| count.saturating_add(row.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_added_up_by_line_and_foreign_files_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let row = |line: u32, count: u64| {
            format!(
                r#"{{"file": "a.py", "line": {line}, "rule": "item", "taken": "zero", "dtype": "float32", "count": {count}}}"#
            )
        };
        write("1.reads", &format!(r#"{{"version": 1, "reads": [{}, {}]}}"#, row(3, 2), row(9, 7)));
        write("2.reads", &format!(r#"{{"version": 1, "reads": [{}]}}"#, row(3, 40)));
        write("3.reads", r#"{"version": 1, "reads": []}"#);
        write("4.reads", r#"{"version": 2, "reads": []}"#);
        write("5.reads", "garbage");
        write("6.json", r#"{"version": 1, "reads": []}"#);
        let reads = Reads::read(folder.path());
        assert_eq!(reads.processes, 3);
        let lines: Vec<_> = reads.rows.iter().map(|row| (row.line, row.count)).collect();
        assert_eq!(lines, [(3, 42), (9, 7)]);
        assert_eq!(reads.count(), 49);
        assert_eq!(Reads::read(Path::new("/nowhere")), Reads::default());
    }
}
