//! The figures of all ranks of a run, side by side.

use std::sync::Arc;

use crate::model::{AlikeRanks, Lab, Ranks};
use crate::units::{Bytes, DeviceIndex};

/// One rank and those that do the same, at the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFigures {
    /// The ranks that have these figures.
    pub alike: Arc<AlikeRanks>,
    /// Allocated now.
    pub allocated: Bytes,
    /// Highest allocated so far.
    pub peak_allocated: Bytes,
    /// Highest reserved so far.
    pub peak_reserved: Bytes,
    /// A request failed, and no whole step went through since.
    pub out_of_memory: bool,
}

impl RankFigures {
    /// Those of `devices`, as far as the stream says that they are ranks.
    #[must_use]
    pub fn of(ranks: &Ranks, devices: &[DeviceIndex]) -> Arc<[Self]> {
        let figures = |lab: &Lab| {
            let memory = lab.memory();
            Some(Self {
                alike: Arc::clone(lab.alike()?),
                allocated: memory.allocated(),
                peak_allocated: memory.peak_allocated(),
                peak_reserved: memory.peak_reserved(),
                out_of_memory: lab.autopsy().is_some(),
            })
        };
        devices.iter().filter_map(|device| figures(ranks.lab(*device)?)).collect()
    }

    /// The place of the one that matters most: where memory ran out, else where most was reserved, then allocated. `None` where
    /// all are alike.
    #[must_use]
    pub fn worst(all: &[Self]) -> Option<usize> {
        let need = |of: &Self| (of.out_of_memory, of.peak_reserved, of.peak_allocated);
        let most = all.iter().map(need).max()?;
        let same = all.iter().all(|of| need(of) == most);
        if same { None } else { all.iter().position(|of| need(of) == most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_ran_out_of_memory_or_reserved_most() {
        let of = |reserved, allocated, out_of_memory| RankFigures {
            peak_reserved: Bytes::mib(reserved),
            peak_allocated: Bytes::mib(allocated),
            out_of_memory,
            ..RankFigures::default()
        };
        assert_eq!(RankFigures::worst(&[of(8, 7, false), of(8, 7, false)]), None);
        assert_eq!(RankFigures::worst(&[of(8, 6, false), of(8, 7, false)]), Some(1));
        assert_eq!(RankFigures::worst(&[of(9, 6, false), of(8, 7, false)]), Some(0));
        assert_eq!(RankFigures::worst(&[of(9, 6, false), of(8, 7, true)]), Some(1));
    }
}
