//! `torch.cuda.memory_summary()`: the statistics as a table in PyTorch's layout.

use std::fmt::Write as _;

use crate::statistics::{Counter, PoolCounters, Statistics};

/// Width of the box.
const WIDTH: usize = 77;

/// The unit of a row's numbers.
#[derive(Clone, Copy)]
enum CellUnit {
    Bytes,
    Count,
}

impl CellUnit {
    /// The scale of a column (divisor and name), chosen by the value in its first row.
    const fn scale(self, value: i64) -> (i64, &'static str) {
        let (most, step, names): (i64, i64, &[&str]) = match self {
            Self::Bytes => (768 * 1024, 1024, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]),
            Self::Count => (750_000, 1000, &[" ", "K", "M"]),
        };
        let (mut divisor, mut left, mut name) = (1, value, 0);
        while left >= most && name + 1 < names.len() {
            left /= step;
            divisor *= step;
            name += 1;
        }
        (divisor, names[name])
    }

    fn write(self, value: i64, (divisor, name): (i64, &str)) -> String {
        let number = value / divisor;
        match self {
            Self::Bytes => format!("{number:>6} {name}"),
            Self::Count => format!("{number:>7} {name} "),
        }
    }
}

impl Statistics {
    /// The table of `torch.cuda.memory_summary()` for the device numbered `device`, ending in a newline. An abbreviated
    /// table has no rows per pool.
    #[must_use]
    pub fn summary(&self, device: usize, abbreviated: bool) -> String {
        let double = format!("|{}|\n", "=".repeat(WIDTH - 2));
        let single = format!("|{}|\n", "-".repeat(WIDTH - 2));
        let mut text = double.clone();
        let _ = writeln!(text, "| {:16} PyTorch CUDA memory summary, device ID {device:<17} |", "");
        text += &single;
        let (ooms, retries) = (self.num_ooms, self.num_alloc_retries);
        let _ = writeln!(text, "|  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  |", "", "");
        text += &double;
        text += "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n";
        let rows: [(&str, &PoolCounters, CellUnit); 9] = [
            ("Allocated memory", &self.allocated_bytes, CellUnit::Bytes),
            ("Active memory", &self.active_bytes, CellUnit::Bytes),
            ("Requested memory", &self.requested_bytes, CellUnit::Bytes),
            ("GPU reserved memory", &self.reserved_bytes, CellUnit::Bytes),
            ("Non-releasable memory", &self.inactive_split_bytes, CellUnit::Bytes),
            ("Allocations", &self.allocation, CellUnit::Count),
            ("Active allocs", &self.active, CellUnit::Count),
            ("GPU reserved segments", &self.segment, CellUnit::Count),
            ("Non-releasable allocs", &self.inactive_split, CellUnit::Count),
        ];
        for (name, pools, unit) in rows {
            text += &single;
            push_row(&mut text, name, &pools.all, &pools.all, unit);
            if !abbreviated {
                push_row(&mut text, "      from large pool", &pools.large_pool, &pools.all, unit);
                push_row(&mut text, "      from small pool", &pools.small_pool, &pools.all, unit);
            }
        }
        for (name, counter) in
            [("Oversize allocations", &self.oversize_allocations), ("Oversize GPU segments", &self.oversize_segments)]
        {
            text += &single;
            push_row(&mut text, name, counter, counter, CellUnit::Count);
        }
        text += &double;
        text
    }
}

/// Writes one row, in the units that fit `scale_of`.
fn push_row(text: &mut String, name: &str, counter: &Counter, scale_of: &Counter, unit: CellUnit) {
    let _ = write!(text, "| {name:<22}|");
    for (value, first) in [
        (counter.current, scale_of.current),
        (counter.peak, scale_of.peak),
        (counter.allocated, scale_of.allocated),
        (counter.freed, scale_of.freed),
    ] {
        let _ = write!(text, " {} |", unit.write(value, unit.scale(first)));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    /// What PyTorch printed on an H200.
    const PRINTED: &str = include_str!("tests/memory_summary.txt");

    /// Reads the numbers of a printed row, in bytes or counts.
    fn read(line: &str) -> Counter {
        let values: Vec<i64> = (line.split('|').skip(2))
            .filter(|cell| !cell.is_empty())
            .map(|cell| {
                let mut words = cell.split_whitespace();
                let number: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
                match words.next() {
                    Some("KiB") => number << 10,
                    Some("MiB") => number << 20,
                    _ => number,
                }
            })
            .collect();
        Counter { current: values[0], peak: values[1], allocated: values[2], freed: values[3] }
    }

    fn read_pools(name: &str) -> PoolCounters {
        let mut lines = PRINTED.lines().skip_while(|line| !line.starts_with(&format!("| {name}")));
        let mut next = || lines.next().map(read).unwrap_or_default();
        let (all, large_pool) = (next(), next());
        PoolCounters { all, small_pool: next(), large_pool }
    }

    #[test]
    fn the_table_is_pytorchs_to_the_last_space() {
        let mut statistics = Statistics::new(Bytes(u64::MAX), crate::TorchVersion::V2_11);
        statistics.allocated_bytes = read_pools("Allocated memory");
        statistics.active_bytes = read_pools("Active memory");
        statistics.requested_bytes = read_pools("Requested memory");
        statistics.reserved_bytes = read_pools("GPU reserved memory");
        statistics.inactive_split_bytes = read_pools("Non-releasable memory");
        statistics.allocation = read_pools("Allocations");
        statistics.active = read_pools("Active allocs");
        statistics.segment = read_pools("GPU reserved segments");
        statistics.inactive_split = read_pools("Non-releasable allocs");
        assert_eq!(statistics.summary(0, false).trim_end(), PRINTED.trim_end());
        let short = statistics.summary(0, true);
        assert!(!short.contains("pool") && short.contains("Allocations"));
    }

    #[test]
    fn units_change_at_three_quarters_of_a_million() {
        assert_eq!(CellUnit::Bytes.scale(768 * 1024 - 1), (1, "B  "));
        assert_eq!(CellUnit::Bytes.scale(768 * 1024), (1024, "KiB"));
        assert_eq!(CellUnit::Bytes.scale(768 << 20), (1 << 20, "MiB"));
        assert_eq!(CellUnit::Count.scale(749_999), (1, " "));
        assert_eq!(CellUnit::Count.scale(750_000), (1000, "K"));
        assert_eq!(CellUnit::Count.scale(i64::MAX), (1_000_000, "M"));
    }
}
