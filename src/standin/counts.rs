//! The counts of a program's processes, which `library/report.rs` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::install::files;
use crate::units::Bytes;

#[cfg(standin)]
include!(concat!(env!("OUT_DIR"), "/names.rs"));
#[cfg(not(standin))]
/// The names of the generated entry points; empty, because none were built.
pub const NAMES: &[&str] = &[];

/// The first bytes of a file of counts.
const MAGIC: u64 = u64::from_le_bytes(*b"VRLCNT01");
/// Numbers in a file before those of the generated entry points.
const FIRST: usize = 9;
/// The longest file that is read, in bytes; our own are shorter.
const LONGEST: u64 = 1 << 20;

/// The counts of all processes of a program together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of processes that used a device.
    pub processes: usize,
    /// Number of launched kernels.
    pub launches: u64,
    /// Number of reads of values that no kernel computed.
    pub unknown_reads: u64,
    /// Number of reads that a rule answered.
    pub ruled_reads: u64,
    /// The most page-locked host memory of one process.
    pub pinned_peak: Bytes,
    /// The most memory used on a device, with its context.
    pub used_peak: Bytes,
    /// Number of cuDNN workspaces whose size is an estimate.
    pub estimated_workspaces: u64,
    /// Number of calls of each generated entry point, by name.
    pub generated: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// The counts in a folder. Files of other programs or versions are ignored.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut counts = Self::default();
        for path in files(folder, "counts") {
            let length = fs::metadata(&path).map_or(u64::MAX, |metadata| metadata.len());
            if length <= LONGEST
                && let Ok(bytes) = fs::read(&path)
            {
                counts.add(&bytes);
            }
        }
        counts
    }

    fn add(&mut self, bytes: &[u8]) {
        let (numbers, _) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_ne_bytes(*number)).collect();
        let Some((
            &[magic, entries, launches, unknown_reads, ruled_reads, _, pinned_peak, used_peak, estimated_workspaces],
            generated,
        )) = numbers.split_first_chunk::<FIRST>()
        else {
            return;
        };
        if magic != MAGIC || entries != NAMES.len() as u64 || generated.len() != NAMES.len() {
            return;
        }
        self.processes += 1;
        self.launches += launches;
        self.unknown_reads += unknown_reads;
        self.ruled_reads += ruled_reads;
        self.pinned_peak = self.pinned_peak.max(Bytes(pinned_peak));
        self.used_peak = self.used_peak.max(Bytes(used_peak));
        self.estimated_workspaces += estimated_workspaces;
        for (name, calls) in NAMES.iter().zip(generated).filter(|(_, calls)| **calls > 0) {
            *self.generated.entry(name).or_default() += calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up_and_foreign_files_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut numbers = vec![MAGIC, NAMES.len() as u64, 10, 2, 1, 0, 4096, 8192, 3];
        numbers.resize(FIRST + NAMES.len(), 0);
        let write = |name: &str, numbers: &[u64]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        write("1.counts", &numbers);
        numbers[2] = 5;
        write("2.counts", &numbers);
        write("3.counts", &numbers[..5]);
        write("4.counts", &[1; 9]);
        write("card.txt", &numbers);
        let counts = Counts::read(folder.path());
        assert_eq!((counts.processes, counts.launches, counts.unknown_reads), (2, 15, 4));
        assert_eq!(counts.estimated_workspaces, 6);
        assert_eq!((counts.pinned_peak, counts.used_peak), (Bytes(4096), Bytes(8192)));
        assert_eq!(Counts::read(Path::new("/nowhere")), Counts::default());
    }
}
