//! The blocks: what is selected, how close the map is looked at, what blocks are told apart by, and which are looked for.

use std::cell::{Ref, RefCell};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use super::seen::ActionInput;
use crate::drawing::map::{self, Cell, Coloring, FINEST, KeptPlans, Plan, Survey};
use crate::model::{BlockView, History, NameId, Occupancy, SegmentPart, SegmentView, View};
use crate::source::Move;
use crate::units::{Address, Bytes};

/// What the blocks' own keys and clicks ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksAction {
    /// Select the next block in address order, of those that are looked for.
    Next,
    /// Select the one before.
    Previous,
    /// Select the next segment, in the order in which they are drawn.
    NextSegment,
    /// Select the one before.
    PreviousSegment,
    /// Select the largest hole; again, the next smaller one.
    LargestHole,
    /// Select the largest block of those that are looked for; again, the next smaller one.
    LargestBlock,
    /// Select a block of the op under way; again, its next one.
    OfOp,
    /// Select what is drawn in a cell of the map, by its column and row; again, what else is drawn there.
    Cell(u16, u16),
    /// Select what lies there.
    Select(Selection),
    /// Select nothing; where nothing is selected, look for nothing.
    Leave,
    /// Half as many bytes to a cell.
    ZoomIn,
    /// Twice as many, at last so many that all segments are seen.
    ZoomOut,
    /// All segments.
    ZoomAll,
    /// Tell blocks apart by the next of the ways.
    Coloring,
    /// Sort segments by the next of the ways.
    Order,
    /// Move the cursor to the fullest moment of the step.
    Peak,
}

impl BlocksAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Next => "next-block",
            Self::Previous => "previous-block",
            Self::NextSegment => "next-segment",
            Self::PreviousSegment => "previous-segment",
            Self::LargestHole => "largest-hole",
            Self::LargestBlock => "largest-block",
            Self::OfOp => "block-of-op",
            Self::Leave => "select-nothing",
            Self::ZoomIn => "blocks-zoom-in",
            Self::ZoomOut => "blocks-zoom-out",
            Self::ZoomAll => "blocks-zoom-all",
            Self::Coloring => "blocks-colouring",
            Self::Order => "blocks-order",
            Self::Peak => "blocks-peak",
            Self::Cell(..) | Self::Select(_) => "",
        }
    }
}

/// How segments of one stream and pool are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentOrder {
    /// By address.
    #[default]
    Address,
    /// The largest first.
    Size,
    /// The most stranded bytes first.
    Stranded,
    /// The smallest share in use first.
    Used,
}

impl SegmentOrder {
    const ALL: [Self; 4] = [Self::Address, Self::Size, Self::Stranded, Self::Used];

    /// The lower comes first.
    fn key(self, segment: &SegmentView, held: u64, stranded: u64) -> u64 {
        let size = segment.size.get();
        match self {
            Self::Address => segment.address.0,
            Self::Size => u64::MAX - size,
            Self::Stranded => u64::MAX - stranded,
            Self::Used => (u128::from(held) * (1 << 20) / u128::from(size.max(1))) as u64,
        }
    }

    /// The word for it on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Address => "by address",
            Self::Size => "largest first",
            Self::Stranded => "most stranded first",
            Self::Used => "least used first",
        }
    }
}

/// What is selected: what lies at an address, at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The address.
    pub address: Address,
    /// The whole segment there.
    pub whole: bool,
}

/// What a selection is in the segments that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedPart {
    /// The segment, by its place.
    pub segment: usize,
    /// What of it; `None`: all.
    pub part: Option<SegmentPart>,
}

impl SelectedPart {
    /// The block, if that is one.
    pub fn block(self, segments: &[SegmentView]) -> Option<&BlockView> {
        match self.part? {
            SegmentPart::Block(index) => segments.get(self.segment)?.blocks.get(index),
            SegmentPart::Hole(_) => None,
        }
    }

    /// The bytes of the segment that it takes.
    pub fn bytes(self, segments: &[SegmentView]) -> Range<u64> {
        let Some(segment) = segments.get(self.segment) else { return 0..0 };
        match self.part {
            None => 0..segment.size.get(),
            Some(SegmentPart::Hole(hole)) => hole.offset.get()..hole.end().get(),
            Some(SegmentPart::Block(index)) => {
                segment.blocks.get(index).map_or(0..0, |block| block.offset.get()..block.end().get())
            }
        }
    }
}

/// What the blocks remember.
#[derive(Clone, Debug, Default)]
pub struct BlocksState {
    /// What blocks are told apart by.
    pub coloring: Coloring,
    /// How segments are sorted.
    pub order: SegmentOrder,
    /// Bytes of a cell; `None`: so many that all segments are seen.
    pub scale: Option<u64>,
    /// What is selected.
    pub selected: Option<Selection>,
    /// What is looked for.
    pub filter: Arc<str>,
    /// The jump that selected it: repeated, it goes on.
    jump: Option<BlocksAction>,
    /// The first row to show, where something was to be brought into view.
    scroll: Option<usize>,
    survey: RefCell<Survey>,
    /// The maps of the segments and of a ghost's, as they were drawn last.
    plans: KeptPlans,
    plans_beside: KeptPlans,
}

impl BlocksState {
    /// The sums of the segments that are shown.
    pub(crate) fn survey(&self, view: &View, history: &History) -> Ref<'_, Survey> {
        self.survey.borrow_mut().update(view, history, self.coloring, &self.filter);
        self.survey.borrow()
    }

    /// Where the segments are drawn in a map of so many cells and rows; beside one of the same size of a `ghost`, on a scale on
    /// which both fit.
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

    /// Where a ghost's segments are drawn beside [`Self::plan`].
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

    /// Segments in the order in which they are drawn.
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

    /// What the selection is; `None` where nothing is selected, or where nothing lies there any more.
    pub(crate) fn picked(&self, segments: &[SegmentView]) -> Option<SelectedPart> {
        let Selection { address, whole } = self.selected?;
        let segment = SegmentView::around(segments, address)?;
        let part = if whole { None } else { segments[segment].part_at(address) };
        Some(SelectedPart { segment, part })
    }

    /// The first row to show, once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.scroll.take()
    }

    /// Does it; says where the cursor is to go, if anywhere.
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
                // The first block of a segment that is selected as a whole begins where that does.
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
                // As they are drawn, where they are.
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

    /// What is drawn in a cell: of several blocks first the one with most bytes there, then one after the other.
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

    /// Looks closer or from further away; what is selected, or else what stands at the top, stays in its row.
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

    /// Brings what is selected into view.
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

/// The first block that begins at an address or behind it.
fn next_block(segments: &[SegmentView], from: u64, accepts: impl Fn(&BlockView) -> bool) -> Option<Address> {
    let first = segments.partition_point(|segment| segment.end() <= from);
    segments[first..].iter().find_map(|segment| {
        let behind = segment.blocks.partition_point(|block| segment.address.offset(block.offset).0 < from);
        let found = segment.blocks[behind..].iter().find(|block| accepts(block));
        found.map(|block| segment.address.offset(block.offset))
    })
}

/// The last block that begins before an address.
fn last_block(segments: &[SegmentView], to: u64, accepts: impl Fn(&BlockView) -> bool) -> Option<Address> {
    let end = segments.partition_point(|segment| segment.address.0 < to);
    segments[..end].iter().rev().find_map(|segment| {
        let behind = segment.blocks.partition_point(|block| segment.address.offset(block.offset).0 < to);
        let found = segment.blocks[..behind].iter().rev().find(|block| accepts(block));
        found.map(|block| segment.address.offset(block.offset))
    })
}

/// Stranded bytes of every hole, with its address.
fn holes(segments: &[SegmentView]) -> impl Iterator<Item = (u64, Address)> {
    let of = |segment: &SegmentView| {
        let start = segment.address;
        let holes = segment.holes().filter(|hole| hole.stranded().get() > 0);
        holes.map(move |hole| (hole.stranded().get(), start.offset(hole.offset))).collect::<Vec<_>>()
    };
    segments.iter().flat_map(of)
}

fn blocks(
    segments: &[SegmentView],
    accepts: impl Fn(&BlockView) -> bool + Copy,
) -> impl Iterator<Item = (u64, Address)> {
    segments.iter().flat_map(move |segment| {
        let own = segment.blocks.iter().filter(move |block| accepts(block));
        own.map(|block| (block.size.get(), segment.address.offset(block.offset)))
    })
}

/// The largest; where one of them is there already, the one that follows it, and behind the last the first again.
fn next_largest<I: Iterator<Item = (u64, Address)>>(all: impl Fn() -> I, current: Option<Address>) -> Option<Address> {
    let key = |(size, address): (u64, Address)| (size, Reverse(address));
    let now = current.and_then(|current| all().find(|(_, address)| *address == current)).map(key);
    let next = all().map(key).filter(|each| now.is_none_or(|now| *each < now)).max();
    next.or_else(|| all().map(key).max()).map(|(_, Reverse(address))| address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::PoolKind;
    use crate::model::{Category, Lab, TouchedBlock};
    use crate::source::Picture;
    use crate::synthetic;
    use crate::units::{KIB, MIB, StreamId};

    fn segment(address: u64, size: u64, blocks: &[(u64, u64)]) -> SegmentView {
        let block = |&(offset, size): &(u64, u64)| BlockView {
            offset: Bytes(offset),
            size: Bytes(size),
            requested: Bytes(size),
            pending: false,
            category: if size > 4 * KIB { Category::Parameter } else { Category::Gradient },
            name: NameId::NONE,
            op: NameId::NONE,
            born: 0,
        };
        SegmentView {
            address: Address(address),
            size: Bytes(size),
            pool: PoolKind::Small,
            stream: StreamId::DEFAULT,
            expandable: false,
            page: None,
            blocks: Arc::new(blocks.iter().map(block).collect()),
        }
    }

    /// Two segments of 2 MiB and an empty one.
    fn picture() -> Picture {
        let segments = vec![
            segment(10 * MIB, 2 * MIB, &[(0, 4 * KIB), (8 * KIB, 16 * KIB), (MIB, KIB)]),
            segment(20 * MIB, 2 * MIB, &[(MIB, 8 * KIB)]),
            segment(30 * MIB, 2 * MIB, &[]),
        ];
        let touched = [20 * MIB + MIB, 10 * MIB].map(|address| TouchedBlock {
            address: Address(address),
            size: Bytes(KIB),
            taken: Some(vramlab_model::Category::Activation),
        });
        let view = View { segments: Arc::new(segments), touched: touched.into(), op: NameId(1), ..View::default() };
        Picture { view: Arc::new(view), ..Picture::default() }
    }

    /// The state after some actions on a map of 64 × 8 cells, with the last row that was scrolled to.
    struct BlocksAfter {
        state: BlocksState,
        picture: Picture,
        scroll: usize,
    }

    impl BlocksAfter {
        fn new() -> Self {
            Self { state: BlocksState::default(), picture: picture(), scroll: 0 }
        }

        fn act(&mut self, action: BlocksAction) -> Option<(u64, bool)> {
            let seen = ActionInput {
                picture: &self.picture,
                shown: &self.picture.view,
                ghost: None,
                history_columns: 0,
                map: (64, 8),
                rows: (0, 0),
                scroll: self.scroll,
            };
            assert_eq!(self.state.act(action, seen), None);
            self.scroll = self.state.take_scroll().unwrap_or(self.scroll);
            self.state.selected.map(|selected| (selected.address.0, selected.whole))
        }

        fn plan(&self) -> Arc<Plan> {
            let survey = self.state.survey(&self.picture.view, &self.picture.history);
            self.state.plan(&self.picture.view, None, &survey, (64, 8))
        }
    }

    const FIRST: u64 = 10 * MIB;
    const SECOND: u64 = 20 * MIB;

    #[test]
    fn blocks_are_gone_through_in_address_order_and_round() {
        let mut acted = BlocksAfter::new();
        let all = [FIRST, FIRST + 8 * KIB, FIRST + MIB, SECOND + MIB];
        for address in all.into_iter().chain([FIRST]) {
            assert_eq!(acted.act(BlocksAction::Next), Some((address, false)));
        }
        for address in all.into_iter().rev() {
            assert_eq!(acted.act(BlocksAction::Previous), Some((address, false)));
        }
        acted.state.filter = "gradients".into();
        assert_eq!(acted.act(BlocksAction::Next), Some((FIRST + MIB, false)), "those that are looked for");
        assert_eq!(acted.act(BlocksAction::Next), Some((FIRST, false)));
    }

    #[test]
    fn a_jump_goes_to_the_largest_and_repeated_to_the_next_smaller_one() {
        let mut acted = BlocksAfter::new();
        let hole = |acted: &mut BlocksAfter| acted.act(BlocksAction::LargestHole).unwrap().0;
        assert_eq!(hole(&mut acted), SECOND);
        assert_eq!(hole(&mut acted), FIRST + MIB + KIB);
        assert_eq!(hole(&mut acted), SECOND + MIB + 8 * KIB);
        assert_eq!(hole(&mut acted), FIRST + 24 * KIB);
        acted.act(BlocksAction::Next);
        assert_eq!(hole(&mut acted), SECOND, "another key between begins anew");
        for address in [FIRST + 8 * KIB, SECOND + MIB, FIRST, FIRST + MIB, FIRST + 8 * KIB] {
            assert_eq!(acted.act(BlocksAction::LargestBlock), Some((address, false)));
        }
        for address in [FIRST, SECOND + MIB, FIRST] {
            assert_eq!(acted.act(BlocksAction::OfOp), Some((address, false)));
        }
    }

    #[test]
    fn segments_are_gone_through_as_they_are_drawn() {
        let mut acted = BlocksAfter::new();
        let next = |acted: &mut BlocksAfter| acted.act(BlocksAction::NextSegment).unwrap();
        assert_eq!([next(&mut acted), next(&mut acted)], [(FIRST, true), (SECOND, true)]);
        assert_eq!(acted.act(BlocksAction::Next), Some((SECOND + MIB, false)), "its first block");
        assert_eq!(acted.act(BlocksAction::PreviousSegment), Some((FIRST, true)));
        assert_eq!(acted.act(BlocksAction::PreviousSegment), Some((30 * MIB, true)));
        for _ in 0..3 {
            acted.act(BlocksAction::Order);
        }
        assert_eq!(acted.state.order, SegmentOrder::Used);
        acted.act(BlocksAction::Leave);
        assert_eq!([next(&mut acted), next(&mut acted)], [(30 * MIB, true), (SECOND, true)], "least used first");
    }

    #[test]
    fn zooming_ends_at_512_bytes_and_at_all_segments_and_keeps_what_is_selected_in_view() {
        let mut acted = BlocksAfter::new();
        let all = acted.plan().scale;
        acted.act(BlocksAction::LargestHole);
        let mut last = all;
        while acted.plan().scale > FINEST {
            acted.act(BlocksAction::ZoomIn);
            let plan = acted.plan();
            assert_eq!(plan.scale, (last / 2).max(FINEST));
            last = plan.scale;
            let row = plan.row_of(1, 0).unwrap();
            assert!((acted.scroll..acted.scroll + 8).contains(&row), "{row} from {}", acted.scroll);
        }
        assert!(acted.scroll > 0);
        acted.act(BlocksAction::ZoomIn);
        assert_eq!(acted.plan().scale, FINEST, "no finer");
        while acted.state.scale.is_some() {
            acted.act(BlocksAction::ZoomOut);
        }
        assert_eq!(acted.plan().scale, all);
        acted.act(BlocksAction::ZoomIn);
        acted.act(BlocksAction::ZoomAll);
        assert_eq!(acted.state.scale, None);
    }

    #[test]
    fn a_jump_scrolls_to_what_it_selects() {
        let mut acted = BlocksAfter::new();
        acted.state.scale = Some(FINEST);
        acted.act(BlocksAction::LargestHole);
        let row = acted.plan().row_of(1, 0).unwrap();
        assert!(row > 8 && (acted.scroll..acted.scroll + 8).contains(&row), "{row} from {}", acted.scroll);
        let stays = acted.scroll;
        acted.act(BlocksAction::Coloring);
        assert_eq!(acted.scroll, stays);
    }

    #[test]
    fn a_click_selects_what_is_drawn_there_and_again_what_else_is() {
        let mut acted = BlocksAfter::new();
        acted.state.scale = Some(32 * KIB);
        // The first cell: 4 KiB, a hole, 16 KiB, a hole.
        assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST + 8 * KIB, false)));
        assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST, false)));
        assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST + 8 * KIB, false)));
        assert_eq!(acted.act(BlocksAction::Cell(5, 0)), Some((FIRST + 24 * KIB, false)), "a hole");
        assert_eq!(acted.act(BlocksAction::Cell(63, 7)), Some((FIRST + 24 * KIB, false)), "nothing is drawn there");
    }

    #[test]
    fn segments_that_share_a_strip_are_clicked_and_gone_through() {
        let mut acted = BlocksAfter::new();
        // A cell holds all three: the blocks in it one after the other.
        acted.state.scale = Some(16 * MIB);
        assert_eq!((acted.plan().rows, acted.plan().order().count()), (1, 3));
        let clicks: Vec<u64> = (0..5).map(|_| acted.act(BlocksAction::Cell(0, 0)).unwrap().0).collect();
        let all = [FIRST + 8 * KIB, FIRST + MIB, SECOND + MIB, FIRST];
        assert_eq!(clicks[..4], all, "and round");
        assert_eq!(clicks[4], all[0]);
        acted.act(BlocksAction::Leave);
        let segments: Vec<_> = (0..4).map(|_| acted.act(BlocksAction::NextSegment).unwrap()).collect();
        assert_eq!(segments, [FIRST, SECOND, 30 * MIB, FIRST].map(|address| (address, true)));
    }

    #[test]
    fn leaving_lets_go_of_the_selection_and_then_of_what_is_looked_for() {
        let mut acted = BlocksAfter::new();
        acted.state.filter = "gradients".into();
        acted.act(BlocksAction::Next);
        assert_eq!(acted.act(BlocksAction::Leave), None);
        assert_eq!(&*acted.state.filter, "gradients");
        acted.act(BlocksAction::Leave);
        assert_eq!(&*acted.state.filter, "");
    }

    #[test]
    fn what_is_selected_is_what_lies_at_its_address_at_any_moment() {
        let mut lab = Lab::new();
        let mut state = BlocksState::default();
        let (mut blocks, mut holes, mut gone) = (0, 0, 0);
        for event in synthetic::training_run() {
            lab.apply(&event);
            let view = lab.view();
            if state.selected.is_none() {
                let found = view.segments.iter().rev().find(|segment| !segment.blocks.is_empty());
                state.selected = found.map(|segment| Selection { address: segment.address, whole: false });
            }
            match state.picked(&view.segments).map(|picked| picked.part) {
                Some(Some(SegmentPart::Block(_))) => blocks += 1,
                Some(Some(SegmentPart::Hole(_))) => holes += 1,
                _ => gone += 1,
            }
        }
        assert!(blocks > 0 && holes + gone > 0, "{blocks} {holes} {gone}");
    }
}
