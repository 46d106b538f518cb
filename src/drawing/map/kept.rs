//! Keeps a map from frame to frame: segments are placed anew only if one came, went or changed its size, and a strip is
//! divided anew only if its blocks changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::coloring::Tone;
use super::order::DrawOrder;
use super::plan::Plan;
use super::strip::Strip;
use vramlab_allocator::units::Bytes;
use vramlab_model::{BlockView, SegmentView};

/// The last plans of the segments.
#[derive(Clone, Debug, Default)]
pub struct KeptPlans(RefCell<PlanCache>);

/// The order of the segments, and the plans made from it.
#[derive(Clone, Debug, Default)]
struct PlanCache {
    order: DrawOrder,
    plans: Vec<(PlanSize, Arc<Plan>)>,
}

/// What identifies a plan: columns and rows of the map, and bytes per cell, or `None` for the scale that shows all segments.
type PlanSize = ((usize, usize), Option<u64>);

impl KeptPlans {
    /// How many plans of the same segments are kept.
    const MOST: usize = 4;

    /// The places of segments in a map of this size, sorted by stream and pool and then by `key`: at `scale` bytes per
    /// cell, or at the finest scale that shows all segments.
    pub fn plan(
        &self,
        segments: &[SegmentView],
        key: impl Fn(usize, &SegmentView) -> u64,
        size: (usize, usize),
        scale: Option<u64>,
    ) -> Arc<Plan> {
        let mut kept = self.0.borrow_mut();
        kept.update(segments, key);
        let wanted = (size, scale);
        if let Some((_, plan)) = kept.plans.iter().find(|(known, _)| *known == wanted) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(match scale {
            Some(scale) => Plan::at_scale(segments, kept.order.drawn(), size, scale),
            None => Plan::of_all(segments, kept.order.drawn(), size, true),
        });
        if kept.plans.len() >= Self::MOST {
            kept.plans.clear();
        }
        kept.plans.push((wanted, Arc::clone(&plan)));
        plan
    }

    /// The segments' indices in drawing order: by stream and pool, then by `key`.
    pub fn drawn(&self, segments: &[SegmentView], key: impl Fn(usize, &SegmentView) -> u64) -> Vec<usize> {
        let mut kept = self.0.borrow_mut();
        kept.update(segments, key);
        kept.order.drawn().to_vec()
    }
}

impl PlanCache {
    fn update(&mut self, segments: &[SegmentView], key: impl Fn(usize, &SegmentView) -> u64) {
        if !self.order.is_of(segments, &key) {
            *self = Self { order: DrawOrder::new(segments, &key), plans: Vec::new() };
        }
    }
}

/// A strip, and the blocks from which it was made.
#[derive(Clone, Debug)]
struct StripCache {
    segments: Vec<(u64, Arc<Vec<BlockView>>, Bytes)>,
    of: usize,
    cells: Range<usize>,
    strip: Strip,
}

impl StripCache {
    fn is_of(&self, segments: &[&SegmentView], of: usize, cells: &Range<usize>) -> bool {
        self.segments.len() == segments.len()
            && (self.of, &self.cells) == (of, cells)
            && self.segments.iter().zip(segments).all(|((address, blocks, size), now)| {
                *address == now.address.0 && Arc::ptr_eq(blocks, &now.blocks) && *size == now.size
            })
    }
}

/// The strips of the last frames, by the address of their first segment. All are coloured by the same property; they
/// must be cleared when it changes.
#[derive(Clone, Debug, Default)]
pub struct KeptStrips(RefCell<HashMap<u64, StripCache>>);

impl KeptStrips {
    /// The fewest strips that are kept, however few segments there are.
    const LEAST: usize = 1024;

    /// Forgets all strips.
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    /// The `cells` of segments that are `of` half cells long, out of `all` segments. Reused from the last frame if
    /// nothing changed. `tone` gives a block's tone, or `None` for a block that the filter excludes.
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
        // From time to time, strips of segments that no longer exist are dropped.
        if kept.len() > (2 * all).max(Self::LEAST) {
            kept.clear();
        }
        let of_one = |segment: &&SegmentView| (segment.address.0, Arc::clone(&segment.blocks), segment.size);
        let segments = segments.iter().map(of_one).collect();
        kept.insert(address, StripCache { segments, of, cells, strip: strip.clone() });
        strip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use vramlab_model::Lab;

    #[test]
    fn a_plan_that_is_kept_is_what_a_new_one_would_be() {
        let largest_first = |_: usize, segment: &SegmentView| u64::MAX - segment.size.get();
        let (mut lab, kept) = (Lab::new(), KeptPlans::default());
        let (mut before, mut made, mut asked) = (Vec::new(), 0, 0);
        for (index, event) in synthetic::training_run().iter().enumerate() {
            lab.apply(event);
            let size = (40 + index / 900 % 2, 6);
            let scale = (index / 400 % 2 > 0).then_some(1 << 20);
            let segments = lab.view().segments;
            let plan = kept.plan(&segments, largest_first, size, scale);
            asked += 1;
            if before.iter().any(|known| Arc::ptr_eq(known, &plan)) {
                if index % 7 > 0 {
                    continue;
                }
            } else {
                made += 1;
                before.push(Arc::clone(&plan));
            }
            let order = DrawOrder::new(&segments, largest_first);
            let fresh = match scale {
                Some(scale) => Plan::at_scale(&segments, order.drawn(), size, scale),
                None => Plan::of_all(&segments, order.drawn(), size, true),
            };
            assert_eq!(*plan, fresh);
            assert_eq!(kept.drawn(&segments, largest_first), order.drawn());
        }
        assert!(made > 1 && made * 5 < asked, "{made} of {asked}");
    }
}
