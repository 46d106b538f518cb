//! Comparison of blocks and statistics at the end of a history.

use super::conditions::{Conditions, SYNCHRONISATIONS, Statistics};
use super::observer::Observer;
use super::peaks;
use super::player::ReplayedAllocator;
use super::report::DeviceReport;
use super::retries::AmbiguousRetries;
use crate::types::{Block, Segment, Snapshot, TraceEntry};
use vramlab_allocator::{BlockSnapshot, BlockState, Seed, SegmentSnapshot};

/// What can be compared at the end.
#[derive(Clone, Copy, Debug)]
pub struct Comparable {
    /// Blocks: our allocator is at the moment of the snapshot.
    pub blocks: bool,
    /// Statistics: they are of that moment, and count nothing else.
    pub statistics: bool,
    /// Sums since the start: the history begins with the first allocation.
    pub since_the_first: bool,
    /// The bytes that free blocks were last asked for are known.
    pub stale: bool,
}

/// A replayed history.
#[derive(Debug)]
pub struct FinishedReplay<'a> {
    pub snapshot: &'a Snapshot,
    /// The entries that were replayed.
    pub entries: &'a [TraceEntry],
    /// What the replay began with.
    pub seed: &'a Seed,
    pub ambiguous: AmbiguousRetries,
}

/// Compares the state at the end. After a mismatch our allocator is in a different state than PyTorch's, so nothing
/// counts as matched.
pub fn finish<O: Observer>(
    report: &mut DeviceReport,
    history: &FinishedReplay<'_>,
    allocator: &ReplayedAllocator<'_, '_, O>,
    conditions: &Conditions,
    recorded: Option<&Statistics>,
    comparable: Comparable,
) {
    let ambiguous = history.ambiguous;
    if comparable.blocks {
        report.pending = allocator.pending().count() as u64;
        report.ambiguous_retries = ambiguous.unsettled();
    }
    let agrees = report.first_mismatch.is_none() && comparable.statistics;
    blocks(report, history.snapshot, &allocator.segments(), comparable);
    let Some(recorded) = recorded else { return };
    let mut ours = allocator.statistics().entries();
    if !comparable.since_the_first {
        if comparable.statistics {
            stats_since(report, recorded, &ours);
        }
        return;
    }
    if comparable.blocks && !comparable.statistics {
        return;
    }
    if agrees {
        report.ambiguous_retries = ambiguous.settle(&mut ours, recorded);
    }
    if agrees
        && peaks::only_peaks_are_too_high(&ours, recorded)
        && let Some((entry, since)) = peaks::last_reset(history.entries, history.seed, conditions, recorded)
    {
        report.peak_reset = Some(entry);
        ours = since;
        ambiguous.settle(&mut ours, recorded);
    }
    stats(report, recorded, &ours, agrees);
}

/// Compares what does not depend on the time before the history: current values, and peaks unless they are older.
fn stats_since(report: &mut DeviceReport, theirs: &Statistics, ours: &[(String, i64)]) {
    for (key, mine) in ours {
        let Some(recorded) = theirs.0.get(key).copied() else { continue };
        let older = key.ends_with(".peak") && recorded > *mine;
        if older || !(key.ends_with(".current") || key.ends_with(".peak")) {
            continue;
        }
        report.stats.count(*mine == recorded);
        if *mine != recorded {
            report.differing_stats.push((key.clone(), *mine, recorded));
        }
    }
    if let Some((key, mine, recorded)) = report.differing_stats.first().cloned() {
        report.mismatch_at_end(format!("{key} = {mine}"), format!("{key} = {recorded}"));
    }
}

fn blocks(report: &mut DeviceReport, snapshot: &Snapshot, ours: &[SegmentSnapshot], comparable: Comparable) {
    let private = |segment: &&Segment| report.history.private && !segment.pool_id.is_default();
    let mut theirs: Vec<&Segment> =
        snapshot.device_segments(report.device).filter(|segment| !private(segment)).collect();
    theirs.sort_by_key(|segment| segment.address);
    if !comparable.blocks {
        report.blocks.total = theirs.iter().map(|segment| segment.blocks.len() as u64).sum();
        return;
    }
    let mut mine = ours.iter().peekable();
    for segment in theirs {
        // Segments that only our allocator holds. Their blocks count as missed.
        while let Some(extra) = mine.next_if(|mine| mine.address < segment.address) {
            unexpected(report, extra);
        }
        let Some(mine) = mine.next_if(|mine| mine.address == segment.address && same_segment(mine, segment)) else {
            report.blocks.total += segment.blocks.len() as u64;
            report.mismatch_at_end("no such segment".into(), segment_words(segment));
            continue;
        };
        let mut candidates = mine.blocks.iter().peekable();
        for block in &segment.blocks {
            while candidates.next_if(|mine| mine.address < block.address).is_some() {}
            let found = candidates.next_if(|mine| mine.address == block.address);
            let agrees = found.is_some_and(|mine| same_block(mine, block, comparable.stale));
            report.blocks.count(agrees);
            if !agrees {
                let expected = found.map_or_else(|| "no block there".to_owned(), our_block_words);
                report.mismatch_at_end(expected, block_words(block));
            }
        }
    }
    for extra in mine {
        unexpected(report, extra);
    }
}

fn unexpected(report: &mut DeviceReport, segment: &SegmentSnapshot) {
    report.blocks.total += segment.blocks.len() as u64;
    report.mismatch_at_end(
        format!("a segment of {} bytes at {}", segment.size.0, segment.address),
        "no such segment in the snapshot".into(),
    );
}

fn same_segment(ours: &SegmentSnapshot, theirs: &Segment) -> bool {
    ours.size == theirs.total_size
        && ours.stream == theirs.stream
        && ours.pool == theirs.pool
        && ours.expandable == theirs.expandable
}

/// True if two blocks are the same. The bytes that free blocks were last asked for are compared only if they are known (`stale`).
fn same_block(ours: &BlockSnapshot, theirs: &Block, stale: bool) -> bool {
    let asked = theirs.requested.filter(|_| stale || theirs.state != BlockState::Inactive);
    ours.size == theirs.size && ours.state == theirs.state && asked.is_none_or(|requested| requested == ours.requested)
}

fn segment_words(segment: &Segment) -> String {
    format!("a segment of {} bytes at {}", segment.total_size.0, segment.address)
}

fn block_words(block: &Block) -> String {
    let requested = block.requested.map_or_else(String::new, |requested| format!(", {} asked", requested.0));
    format!("{} block of {} bytes at {}{requested}", block.state.name(), block.size.0, block.address)
}

fn our_block_words(block: &BlockSnapshot) -> String {
    let (state, size, requested) = (block.state.name(), block.size.0, block.requested.0);
    format!("{state} block of {size} bytes at {}, {requested} asked", block.address)
}

fn stats(report: &mut DeviceReport, theirs: &Statistics, ours: &[(String, i64)], comparable: bool) {
    let mut synchronisations = None;
    for (key, mine) in ours {
        let Some(recorded) = theirs.0.get(key).copied() else { continue };
        if !comparable {
            report.stats.count(false);
        } else if key == SYNCHRONISATIONS {
            synchronisations = Some((*mine, recorded));
        } else {
            report.stats.count(*mine == recorded);
            if *mine != recorded {
                report.differing_stats.push((key.clone(), *mine, recorded));
            }
        }
    }
    // An `empty_cache()` call that had nothing to return still synchronised, and shows nowhere else: if all other
    // statistics agree, the difference is the number of such calls.
    if let Some((mine, recorded)) = synchronisations {
        let silent = u64::try_from(recorded - mine).ok().filter(|_| report.differing_stats.is_empty());
        report.stats.count(silent.is_some());
        match silent {
            Some(silent) => report.silent_empty_cache = silent,
            None => report.differing_stats.push((SYNCHRONISATIONS.to_owned(), mine, recorded)),
        }
    }
    if let Some((key, mine, recorded)) = report.differing_stats.first().cloned() {
        report.mismatch_at_end(format!("{key} = {mine}"), format!("{key} = {recorded}"));
    }
}
