//! Blocks for which it is uncertain how much of the memory behind them belongs to them.
//!
//! The memory behind a block may be a rest that was not split off, or free memory of a block that was freed before the
//! history began. If a later block is allocated there while the first is allocated, the first ends where the later one
//! begins.

use std::collections::{BTreeMap, HashMap};

use super::evidence::EarlyBlock;
use super::space::Home;
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, MIB};
use vramlab_allocator::{PoolKind, Settings, round};

/// The blocks in doubt.
#[derive(Debug, Default)]
pub struct Doubtful {
    /// Where each block's doubtful memory begins.
    blocks: HashMap<Address, Address>,
    /// Doubtful memory by its beginning: its end, and the block before it.
    gaps: BTreeMap<Address, (Address, Address)>,
}

impl Doubtful {
    /// Examines a block that seems to occupy `size` bytes of `room`.
    pub fn consider(&mut self, block: &EarlyBlock, size: Bytes, room: Bytes, home: &Home, settings: &Settings) {
        let rounded = round(block.requested, &settings.roundup_power2_divisions);
        if home.pool == PoolKind::Small || home.range.is_some() || rounded >= room {
            return;
        }
        let oversize = rounded >= settings.max_split_size;
        // The longest rest that is not split off. Any rest shorter than that was not.
        let longest = if oversize { settings.max_non_split_rounding } else { Bytes(MIB) };
        if size == rounded || oversize {
            let begin = block.address.offset(rounded);
            let end = begin.offset((room - rounded).min(longest)).offset(Bytes(1));
            self.blocks.insert(block.address, begin);
            self.gaps.insert(begin, (end, block.address));
        }
    }

    /// The ends of blocks that a later allocation reveals, as pairs of a block's address and its end.
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
