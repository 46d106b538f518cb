//! The state of Blocks: the selection, the zoom, the colouring, and the filter.

mod action;
mod jumps;
mod order;
mod selection;
#[cfg(test)]
mod tests;

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use super::seen::ActionInput;
use crate::drawing::map::{self, Cell, Coloring, FINEST, KeptPlans, Plan, Survey};
use crate::model::{BlockView, History, NameId, Occupancy, SegmentView, View};
use crate::source::Move;
use crate::units::{Address, Bytes};

pub use action::BlocksAction;
use jumps::{blocks, holes, last_block, next_block, next_largest};
use order::SegmentOrder;
pub(crate) use selection::SelectedPart;
pub use selection::Selection;

/// The state of Blocks.
#[derive(Clone, Debug, Default)]
pub struct BlocksState {
    /// The property by which blocks are coloured.
    pub coloring: Coloring,
    /// The order of segments.
    pub order: SegmentOrder,
    /// Bytes per cell; `None` for the scale that shows all segments.
    pub scale: Option<u64>,
    /// The selection.
    pub selected: Option<Selection>,
    /// The filter.
    pub filter: Arc<str>,
    /// The jump that made the selection; repeating it moves on.
    jump: Option<BlocksAction>,
    /// The first row to show, after something was brought into view.
    scroll: Option<usize>,
    survey: RefCell<Survey>,
    /// The last plans of the maps of the segments and of a ghost's segments.
    plans: KeptPlans,
    plans_beside: KeptPlans,
}

impl BlocksState {
    /// The sums of the segments that are shown.
    pub(crate) fn survey(&self, view: &View, history: &History) -> Ref<'_, Survey> {
        self.survey.borrow_mut().update(view, history, self.coloring, &self.filter);
        self.survey.borrow()
    }

    /// The places of the segments in a map of this size; with a `ghost` beside it in a map of the same size, at a scale
    /// at which both fit.
    pub(crate) fn plan(
        &self,
        view: &View,
        ghost: Option<&Occupancy>,
        survey: &Survey,
        size: (usize, usize),
    ) -> Arc<Plan> {
        self.plan_at(self.scale, view, ghost, survey, size)
    }

    fn plan_at(
        &self,
        scale: Option<u64>,
        view: &View,
        ghost: Option<&Occupancy>,
        survey: &Survey,
        size: (usize, usize),
    ) -> Arc<Plan> {
        let plan = |scale| self.plans.plan(&view.segments, self.key(survey), size, scale);
        let wanted = plan(scale);
        let beside = ghost.filter(|_| scale.is_none()).map_or(0, |ghost| self.plan_of_ghost(ghost, size, None).scale);
        if beside > wanted.scale { plan(Some(beside)) } else { wanted }
    }

    /// The places of a ghost's segments beside [`Self::plan`].
    pub(crate) fn plan_beside(
        &self,
        view: &View,
        ghost: &Occupancy,
        survey: &Survey,
        size: (usize, usize),
    ) -> Arc<Plan> {
        let scale = self.plan(view, Some(ghost), survey, size).scale;
        self.plan_of_ghost(ghost, size, Some(scale).filter(|scale| *scale > 0))
    }

    fn plan_of_ghost(&self, ghost: &Occupancy, size: (usize, usize), scale: Option<u64>) -> Arc<Plan> {
        let key = |_: usize, segment: &SegmentView| {
            let held: Bytes = segment.blocks.iter().map(|block| block.size).sum();
            let stranded: Bytes = segment.holes().map(|hole| hole.stranded()).sum();
            self.order.key(segment, held.get(), stranded.get())
        };
        self.plans_beside.plan(&ghost.segments, key, size, scale)
    }

    /// The segments in drawing order.
    pub(crate) fn ordered(&self, view: &View, survey: &Survey) -> Vec<usize> {
        self.plans.drawn(&view.segments, self.key(survey))
    }

    fn key(&self, survey: &Survey) -> impl Fn(usize, &SegmentView) -> u64 {
        |index, segment| {
            let sum = survey.sum(index);
            let (held, stranded) = sum.map_or((0, 0), |sum| (sum.held.get(), sum.stranded.get()));
            self.order.key(segment, held, stranded)
        }
    }

    /// What is selected; `None` if nothing is selected, or nothing lies there any more.
    pub(crate) fn picked(&self, segments: &[SegmentView]) -> Option<SelectedPart> {
        let Selection { address, whole } = self.selected?;
        let segment = SegmentView::around(segments, address)?;
        let part = if whole { None } else { segments[segment].part_at(address) };
        Some(SelectedPart { segment, part })
    }

    /// The first row to show, returned once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.scroll.take()
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub(super) fn act(&mut self, action: BlocksAction, seen: ActionInput<'_>) -> Option<Move> {
        let repeated = self.jump == Some(action);
        match action {
            BlocksAction::ZoomIn | BlocksAction::ZoomOut | BlocksAction::ZoomAll => self.zoom(action, seen),
            BlocksAction::Coloring => self.coloring = self.coloring.next(),
            BlocksAction::Order => {
                let at = SegmentOrder::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
                self.order = SegmentOrder::ALL[(at + 1) % SegmentOrder::ALL.len()];
                self.reveal(seen);
            }
            BlocksAction::Leave => {
                if self.selected.take().is_none() {
                    self.filter = Arc::default();
                }
                self.jump = None;
            }
            BlocksAction::Peak => {
                return seen.picture.study.as_ref()?.peak.map(|peak| Move::To(peak.position));
            }
            _ => {
                if let Some(selected) = self.choose(action, repeated, seen) {
                    (self.selected, self.jump) = (Some(selected), Some(action));
                    self.reveal(seen);
                }
            }
        }
        None
    }

    /// What a key or a click selects.
    fn choose(&self, action: BlocksAction, repeated: bool, seen: ActionInput<'_>) -> Option<Selection> {
        let view = seen.shown;
        let segments = view.segments.as_slice();
        let survey = self.survey(view, &seen.picture.history);
        let accepts = |block: &BlockView| survey.accepts(block);
        let current = self.selected.filter(|_| repeated).map(|selected| selected.address);
        let part = |address: Address| Selection { address, whole: false };
        match action {
            BlocksAction::Next => {
                // If a whole segment is selected, the search starts at its beginning, before its first block.
                let from =
                    self.selected.map_or(0, |selected| selected.address.0.saturating_add(u64::from(!selected.whole)));
                next_block(segments, from, accepts).or_else(|| next_block(segments, 0, accepts)).map(part)
            }
            BlocksAction::Previous => {
                let to = self.selected.map_or(u64::MAX, |selected| selected.address.0);
                last_block(segments, to, accepts).or_else(|| last_block(segments, u64::MAX, accepts)).map(part)
            }
            BlocksAction::LargestHole => next_largest(|| holes(segments), current).map(part),
            BlocksAction::LargestBlock => next_largest(|| blocks(segments, accepts), current).map(part),
            BlocksAction::OfOp => {
                let of_op = view.touched.iter().filter(|_| view.op != NameId::NONE);
                let mut touched: Vec<Address> = of_op.map(|touched| touched.address).collect();
                touched.sort_unstable();
                let next = touched.iter().find(|address| current.is_none_or(|current| **address > current));
                next.or(touched.first()).copied().map(part)
            }
            BlocksAction::NextSegment | BlocksAction::PreviousSegment => {
                let plan = self.plan(view, seen.ghost, &survey, seen.map);
                // In the drawing order, if they are drawn.
                let order = if plan.rows > 0 { plan.order().collect() } else { self.ordered(view, &survey) };
                let picked = self.picked(segments).and_then(|picked| order.iter().position(|at| *at == picked.segment));
                let next = match (picked, action) {
                    (None, BlocksAction::NextSegment) => 0,
                    (Some(at), BlocksAction::NextSegment) => at + 1,
                    (at, _) => at.unwrap_or(0) + order.len().saturating_sub(1),
                };
                let segment = segments.get(*order.get(next % order.len().max(1))?)?;
                Some(Selection { address: segment.address, whole: true })
            }
            BlocksAction::Select(selection) => Some(selection),
            BlocksAction::Cell(column, row) => self.in_cell(column, row, seen, &survey).map(part),
            _ => None,
        }
    }

    /// The block drawn in a cell: of several, first the one with most bytes there, then the others in turn.
    fn in_cell(&self, column: u16, row: u16, seen: ActionInput<'_>, survey: &Survey) -> Option<Address> {
        let plan = self.plan(seen.shown, seen.ghost, survey, seen.map);
        let first = seen.scroll.min(plan.rows.saturating_sub(seen.map.1));
        let at = [first + usize::from(row), usize::from(column)];
        let cell = Cell::at(&plan, &seen.shown.segments, at)?;
        let drawn = cell.blocks(|block| survey.accepts(block));
        let current = self.selected.filter(|selected| !selected.whole).map(|selected| selected.address);
        if let Some(at) = drawn.iter().position(|(_, address)| Some(*address) == current) {
            return drawn.get((at + 1) % drawn.len()).map(|(_, address)| *address);
        }
        map::largest(&drawn).or_else(|| cell.first())
    }

    /// Zooms in or out. The selection, or else what is at the top, stays in its row.
    fn zoom(&mut self, action: BlocksAction, seen: ActionInput<'_>) {
        let height = seen.map.1;
        let view = seen.shown;
        let survey = self.survey(view, &seen.picture.history);
        let before = self.plan(view, seen.ghost, &survey, seen.map);
        let first = seen.scroll.min(before.rows.saturating_sub(height));
        let all = self.plan_at(None, view, seen.ghost, &survey, seen.map).scale;
        if all == 0 {
            return;
        }
        let scale = match action {
            BlocksAction::ZoomIn => Some((before.scale / 2).max(FINEST)),
            BlocksAction::ZoomOut => Some(before.scale.saturating_mul(2)),
            _ => None,
        };
        let scale = scale.filter(|scale| *scale < all || action == BlocksAction::ZoomIn);
        let after = self.plan_at(scale, view, seen.ghost, &survey, seen.map);
        drop(survey);
        self.scale = scale;
        let picked = self.picked(&view.segments).map(|picked| (picked.segment, picked.bytes(&view.segments).start));
        let top = || {
            let (place, cell) = before.at(first, 0)?;
            before.segment_at(place, place.bytes_of(cell).start)
        };
        self.scroll = picked.or_else(top).and_then(|(segment, offset)| {
            let above = before.row_of(segment, offset)?.saturating_sub(first).min(height.saturating_sub(1));
            Some(after.row_of(segment, offset)?.saturating_sub(above))
        });
    }

    /// Brings the selection into view.
    fn reveal(&mut self, seen: ActionInput<'_>) {
        let height = seen.map.1;
        let segments = seen.shown.segments.as_slice();
        let Some(picked) = self.picked(segments) else { return };
        let plan = self.plan(seen.shown, seen.ghost, &self.survey(seen.shown, &seen.picture.history), seen.map);
        let Some(row) = plan.row_of(picked.segment, picked.bytes(segments).start) else { return };
        let first = seen.scroll.min(plan.rows.saturating_sub(height));
        if !(first..first + height).contains(&row) {
            self.scroll = Some(row.saturating_sub(height / 2));
        }
    }
}
