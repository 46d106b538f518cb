//! `torch.cuda.memory_summary()`: the statistics as a table in PyTorch's layout.

use std::fmt::Write as _;

use crate::allocator::caching::CachingAllocator;
use crate::allocator::{Counter, PoolCounters, SegmentSource, Statistics, TraceSink};

/// Width of the box.
const WIDTH: usize = 77;

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// The table of `torch.cuda.memory_summary()` for the device numbered `device`, with a newline at its end. Abbreviated it has no rows per pool.
    pub fn memory_summary(&self, device: usize, abbreviated: bool) -> String {
        self.statistics.summary(device, abbreviated)
    }
}

/// How the numbers of a row are written.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Count,
}

impl Unit {
    /// The scale (divisor and name) for a column, chosen by the value of its first row.
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
    fn summary(&self, device: usize, abbreviated: bool) -> String {
        let double = format!("|{}|\n", "=".repeat(WIDTH - 2));
        let single = format!("|{}|\n", "-".repeat(WIDTH - 2));
        let mut text = double.clone();
        let title = format!("PyTorch CUDA memory summary, device ID {device}");
        let _ = writeln!(text, "|{}|", title_line(&title));
        text += &single;
        let _ = writeln!(
            text,
            "|  {:^34}|  {:^37}|",
            format!("CUDA OOMs: {:<12}", self.num_ooms),
            format!("cudaMalloc retries: {:<8}", self.num_alloc_retries)
        );
        text += &double;
        text += "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n";
        let rows: [(&str, &PoolCounters, Unit); 9] = [
            ("Allocated memory", &self.allocated_bytes, Unit::Bytes),
            ("Active memory", &self.active_bytes, Unit::Bytes),
            ("Requested memory", &self.requested_bytes, Unit::Bytes),
            ("GPU reserved memory", &self.reserved_bytes, Unit::Bytes),
            ("Non-releasable memory", &self.inactive_split_bytes, Unit::Bytes),
            ("Allocations", &self.allocation, Unit::Count),
            ("Active allocs", &self.active, Unit::Count),
            ("GPU reserved segments", &self.segment, Unit::Count),
            ("Non-releasable allocs", &self.inactive_split, Unit::Count),
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
            push_row(&mut text, name, counter, counter, Unit::Count);
        }
        text += &double;
        text
    }
}

fn title_line(title: &str) -> String {
    format!(" {:<1$}", format!("{:>17}{title}", ""), WIDTH - 3)
}

/// One line; the units are those that fit `scale_of`.
fn push_row(text: &mut String, name: &str, counter: &Counter, scale_of: &Counter, unit: Unit) {
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
