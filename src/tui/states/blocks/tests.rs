//! Tests of how keys and clicks change the state of Blocks.

use std::sync::Arc;

use super::order::SegmentOrder;
use super::{BlocksAction, BlocksState, Selection};
use crate::allocator::PoolKind;
use crate::drawing::map::{FINEST, Plan};
use crate::model::{BlockView, Category, Lab, NameId, SegmentPart, SegmentView, TouchedBlock, View};
use crate::source::Picture;
use crate::synthetic;
use crate::tui::states::ActionInput;
use crate::units::{Address, Bytes, KIB, MIB, StreamId};

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
        taken: Some(Category::Activation),
    });
    let view = View { segments: Arc::new(segments), touched: touched.into(), op: NameId(1), ..View::default() };
    Picture { view: Arc::new(view), ..Picture::default() }
}

/// The state after some actions on a map of 64 × 8 cells, and the last row that was scrolled to.
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
    // The first cell holds 4 KiB, a hole, 16 KiB, and a hole.
    assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST + 8 * KIB, false)));
    assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST, false)));
    assert_eq!(acted.act(BlocksAction::Cell(0, 0)), Some((FIRST + 8 * KIB, false)));
    assert_eq!(acted.act(BlocksAction::Cell(5, 0)), Some((FIRST + 24 * KIB, false)), "a hole");
    assert_eq!(acted.act(BlocksAction::Cell(63, 7)), Some((FIRST + 24 * KIB, false)), "nothing is drawn there");
}

#[test]
fn segments_that_share_a_strip_are_clicked_and_gone_through() {
    let mut acted = BlocksAfter::new();
    // A cell holds all three, so the blocks in it are selected in turn.
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
