//! The values that a program's processes read back although no kernel computed them; `_reads.py` of the watcher's
//! package writes the file.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::install::files;

/// The longest file that is read, in bytes: a line of source takes a few hundred.
const LONGEST: u64 = 16 << 20;

/// The reads of all processes of a program together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Number of processes whose values were followed on the processor.
    pub processes: usize,
    /// Reads by line, rule and type; the most frequent come first.
    pub rows: Vec<Read>,
}

/// Reads of values that were not computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Read {
    /// The file of the program's source.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
    /// The rule's name, as the guide lists it.
    pub rule: String,
    /// The value that was used instead.
    pub taken: String,
    /// PyTorch's name for the type.
    pub dtype: String,
    /// Number of reads.
    pub count: u64,
}

#[derive(Deserialize)]
struct ReadsFile {
    version: u32,
    reads: Vec<Read>,
}

impl Reads {
    /// The reads in a folder. Files of other programs or versions are ignored.
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

    /// Adds a row: the ranks' reads in the same line are counted together.
    fn add(&mut self, row: Read) {
        let same = |known: &&mut Read| {
            (&known.file, known.line, &known.rule, &known.dtype) == (&row.file, row.line, &row.rule, &row.dtype)
        };
        match self.rows.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(row.count),
            None => self.rows.push(row),
        }
    }

    /// The number of all reads.
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
