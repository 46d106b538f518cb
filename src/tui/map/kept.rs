//! Strips from frame to frame: a strip is divided anew only where its segments changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::coloring::Tone;
use super::strip::Strip;
use crate::model::{BlockView, SegmentView};
use crate::units::Bytes;

/// A strip, and what it was made of.
#[derive(Clone, Debug)]
struct Divided {
    segments: Vec<(u64, Arc<Vec<BlockView>>, Bytes)>,
    of: usize,
    cells: Range<usize>,
    strip: Strip,
}

impl Divided {
    fn is_of(&self, segments: &[&SegmentView], of: usize, cells: &Range<usize>) -> bool {
        self.segments.len() == segments.len()
            && (self.of, &self.cells) == (of, cells)
            && self.segments.iter().zip(segments).all(|((address, blocks, size), now)| {
                *address == now.address.0 && Arc::ptr_eq(blocks, &now.blocks) && *size == now.size
            })
    }
}

/// Strips as they were drawn last, by the address of their first segment. All of them tell blocks apart in one way: where another
/// one is wanted, they are to be cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptStrips(RefCell<HashMap<u64, Divided>>);

impl KeptStrips {
    /// Strips that are kept, however few segments there are.
    const LEAST: usize = 1024;

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    /// Some of the cells of segments that are `of` half cells long, out of `all` segments that there are; as before where nothing
    /// changed. `tone` says how a block is drawn, `None` sets it aside.
    pub fn strip(
        &self,
        segments: &[&SegmentView],
        all: usize,
        of: usize,
        cells: Range<usize>,
        tone: impl Fn(&SegmentView, &BlockView) -> Option<Tone>,
    ) -> Strip {
        let mut kept = self.0.borrow_mut();
        let address = segments.first().map_or(0, |segment| segment.address.0);
        if let Some(known) = kept.get(&address).filter(|known| known.is_of(segments, of, &cells)) {
            return known.strip.clone();
        }
        let strip = Strip::new(segments.iter().copied(), of, cells.clone(), tone);
        // Segments that are gone are forgotten now and then.
        if kept.len() > (2 * all).max(Self::LEAST) {
            kept.clear();
        }
        let of_one = |segment: &&SegmentView| (segment.address.0, Arc::clone(&segment.blocks), segment.size);
        let segments = segments.iter().map(of_one).collect();
        kept.insert(address, Divided { segments, of, cells, strip: strip.clone() });
        strip
    }
}
