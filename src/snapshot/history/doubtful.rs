//! Blocks of which it is open how much of the memory behind them is theirs.
//!
//! A rest that was not cut off lies behind its block, and so may free memory whose block went before the history began.
//! While the block is held, the next one that is taken from there begins where it ends.

use std::collections::{BTreeMap, HashMap};

use super::evidence::EarlyBlock;
use super::space::Home;
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, MIB};
use vramlab_allocator::{PoolKind, Settings, round};

/// Blocks in doubt.
#[derive(Debug, Default)]
pub struct Doubtful {
    /// Where what may be theirs begins, by block.
    blocks: HashMap<Address, Address>,
    /// That, by its beginning: its end, and the block.
    gaps: BTreeMap<Address, (Address, Address)>,
}

impl Doubtful {
    /// Looks at a block that seems to have `size` bytes of `room`.
    pub fn consider(&mut self, block: &EarlyBlock, size: Bytes, room: Bytes, home: &Home, settings: &Settings) {
        let rounded = round(block.requested, &settings.roundup_power2_divisions);
        if home.pool == PoolKind::Small || home.range.is_some() || rounded >= room {
            return;
        }
        let oversize = rounded >= settings.max_split_size;
        // As much as may have been left uncut; where it is less, it was.
        let longest = if oversize { settings.max_non_split_rounding } else { Bytes(MIB) };
        if size == rounded || oversize {
            let begin = block.address.offset(rounded);
            let end = begin.offset((room - rounded).min(longest)).offset(Bytes(1));
            self.blocks.insert(block.address, begin);
            self.gaps.insert(begin, (end, block.address));
        }
    }

    /// Where blocks end that a later one tells of.
    pub fn settle(mut self, trace: &[TraceEntry]) -> Vec<(Address, Address)> {
        let mut settled = Vec::new();
        for entry in trace {
            if self.gaps.is_empty() {
                break;
            }
            match entry.action {
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(begin) = self.blocks.remove(&entry.address) {
                        self.gaps.remove(&begin);
                    }
                }
                Action::Alloc => {
                    let gap = self.gaps.range(..=entry.address).next_back().map(|(begin, gap)| (*begin, *gap));
                    if let Some((begin, (end, block))) = gap.filter(|(_, (end, _))| entry.address < *end) {
                        self.gaps.remove(&begin);
                        self.blocks.remove(&block);
                        settled.push((block, entry.address.min(end)));
                    }
                }
                _ => {}
            }
        }
        settled
    }
}
