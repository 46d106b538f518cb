//! The stacks: what the levels of the tree are, where it is looked into, what is selected and what is looked for.

use std::cell::RefCell;
use std::sync::Arc;

use super::seen::Seen;
use crate::model::frames::Frame;
use crate::model::{Flame, Names, SegmentView, Shape, Stacks, Tags, View};
use crate::recording::Direction;
use crate::source::{Cursor, Landmark, Move};

/// What the stacks' own keys and clicks ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StacksAction {
    /// Select the next row.
    Next,
    /// Select the row before.
    Previous,
    /// Select the next of those that are part of the same.
    NextSibling,
    /// Select the one before.
    PreviousSibling,
    /// Look into what is selected.
    Into,
    /// Look at what it is part of.
    Out,
    /// Select a node by its place; where it is selected, look into it.
    Pick(u32),
    /// The next kind of levels.
    Shape,
    /// Move the cursor to the peak, or back to where it was.
    Peak,
    /// Look at all; where that is so, look for nothing.
    Leave,
}

impl StacksAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Next => "next-frame",
            Self::Previous => "previous-frame",
            Self::NextSibling => "next-branch",
            Self::PreviousSibling => "previous-branch",
            Self::Into => "stacks-zoom-in",
            Self::Out => "stacks-zoom-out",
            Self::Shape => "stacks-levels",
            Self::Peak => "stacks-peak",
            Self::Leave => "stacks-all",
            Self::Pick(_) => "",
        }
    }
}

/// The keys that lead from the root of a tree to one of its nodes.
type Way = Vec<Arc<str>>;

/// What the stacks remember.
#[derive(Clone, Debug, Default)]
pub struct StacksState {
    /// What the levels are.
    pub shape: Shape,
    /// What is looked for.
    pub search: Arc<str>,
    /// The words of a person for blocks.
    pub tags: Tags,
    zoom: Way,
    selected: Way,
    /// The file that the selected frame lies in.
    file: Option<Arc<str>>,
    /// Where the cursor was before it was moved to the peak.
    before: Option<Cursor>,
    /// The first row to show, where something was to be brought into view.
    scroll: Option<usize>,
    kept: RefCell<Option<LastTree>>,
}

/// The last tree, and what it was made of.
#[derive(Clone, Debug)]
struct LastTree {
    segments: Arc<Vec<SegmentView>>,
    names: Names,
    stacks: Stacks,
    shape: Shape,
    search: Arc<str>,
    flame: Arc<Flame>,
}

impl LastTree {
    fn is_of(&self, view: &View, shape: Shape, search: &str) -> bool {
        Arc::ptr_eq(&self.segments, &view.segments)
            && Arc::ptr_eq(&self.names.0, &view.names.0)
            && self.stacks.is_same(&view.stacks)
            && (self.shape, &*self.search) == (shape, search)
    }
}

/// A tree as it is looked at: nodes by their places.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// The tree.
    pub flame: Arc<Flame>,
    /// What is looked into.
    pub zoom: usize,
    /// What is selected.
    pub selected: usize,
    /// The rows of the table, `zoom` first.
    pub rows: Vec<usize>,
}

impl Looked {
    /// Rows beyond this many have no row.
    const ROWS: usize = 2000;

    /// The row of what is selected.
    pub fn row(&self) -> usize {
        self.rows.iter().position(|row| *row == self.selected).unwrap_or(0)
    }

    /// Levels below what is looked into of which every node has a row: as many as so many rows hold, and one at least.
    fn levels(&self, seen: usize) -> usize {
        let least = self.least();
        let mut level = vec![self.zoom];
        let mut rows = 1;
        for depth in 1.. {
            let children = level.iter().filter_map(|node| self.flame.get(*node)).flat_map(|node| &node.children);
            level = children.copied().collect();
            rows += level.len();
            level.retain(|node| self.flame.get(*node).is_some_and(|node| node.bytes.get() >= least));
            if rows > seen {
                return (depth - 1).max(1);
            }
            if level.is_empty() {
                break;
            }
        }
        usize::MAX
    }

    /// Bytes below which a node has no rows for its parts.
    fn least(&self) -> u64 {
        self.flame.get(self.zoom).map_or(0, |zoom| zoom.bytes.get() / 100)
    }

    /// What is selected is part of a node.
    fn leads_to_selected(&self, node: usize) -> bool {
        let parent = |of: &usize| self.flame.get(*of).and_then(|node| node.parent);
        std::iter::successors(parent(&self.selected), parent).any(|part| part == node)
    }

    fn add_rows(&mut self, of: usize, levels: usize) {
        let flame = Arc::clone(&self.flame);
        let least = self.least();
        for child in flame.get(of).map_or(&[][..], |node| &node.children) {
            if self.rows.len() >= Self::ROWS {
                return;
            }
            self.rows.push(*child);
            let is_large = flame.get(*child).is_some_and(|node| node.bytes.get() >= least);
            if is_large && levels > 1 || levels > 0 && self.leads_to_selected(*child) {
                self.add_rows(*child, levels.saturating_sub(1).max(1));
            }
        }
    }
}

impl StacksState {
    /// The tree of a view, as it is looked at where so many rows are seen.
    pub(crate) fn looked(&self, view: &View, seen: usize) -> Looked {
        let flame = self.flame(view);
        let zoom = flame.find(&self.zoom);
        let selected = flame.find(&self.selected);
        let mut looked = Looked { flame, zoom, selected, rows: vec![zoom] };
        // Who called a line is told of one alone, and so are the parts of layers, which are alike, where not all are seen: they
        // would drown the others.
        let levels = match self.shape {
            Shape::Line => 0,
            Shape::Tree if !looked.flame.stacks => looked.levels(seen),
            _ => usize::MAX,
        };
        looked.add_rows(zoom, levels);
        if !looked.rows.contains(&selected) {
            looked.selected = zoom;
        }
        looked
    }

    /// The tree of a view; that of the last frame where it is still the same.
    fn flame(&self, view: &View) -> Arc<Flame> {
        let mut kept = self.kept.borrow_mut();
        match &*kept {
            Some(kept) if kept.is_of(view, self.shape, &self.search) => Arc::clone(&kept.flame),
            _ => {
                let flame = Arc::new(Flame::of(view, self.shape, &self.tags, &self.search));
                *kept = Some(LastTree {
                    segments: Arc::clone(&view.segments),
                    names: view.names.clone(),
                    stacks: view.stacks.clone(),
                    shape: self.shape,
                    search: Arc::clone(&self.search),
                    flame: Arc::clone(&flame),
                });
                flame
            }
        }
    }

    /// The file that the selected frame lies in, whose text is wanted.
    pub(crate) const fn file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// Looks for blocks of these lines alone, line by line.
    pub(crate) fn show_lines(&mut self, lines: &[&str]) {
        *self = Self {
            shape: Shape::Line,
            search: lines.join("|").into(),
            tags: std::mem::take(&mut self.tags),
            ..Self::default()
        };
    }

    /// Something is looked into, or looked for.
    pub(crate) fn is_narrowed(&self) -> bool {
        !self.zoom.is_empty() || !self.search.is_empty()
    }

    /// The first row to show, once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.scroll.take()
    }

    /// Does it; says where the cursor is to go, if anywhere.
    pub(super) fn act(&mut self, action: StacksAction, seen: Seen<'_>) -> Option<Move> {
        let to = self.obey(action, seen);
        let looked = self.looked(seen.shown, seen.rows.1);
        let frame = looked.flame.get(looked.selected).and_then(|node| node.frame);
        let text = frame.map(|frame| seen.shown.names.get(frame));
        self.file = text.and_then(Frame::of).map(|frame| frame.file.into());
        to
    }

    fn obey(&mut self, action: StacksAction, seen: Seen<'_>) -> Option<Move> {
        let looked = self.looked(seen.shown, seen.rows.1);
        let flame = Arc::clone(&looked.flame);
        let select = |state: &mut Self, index: usize| {
            state.selected = flame.keys(index);
            state.reveal(seen);
        };
        let row = |by: isize| looked.rows.get(looked.row().saturating_add_signed(by)).copied();
        let sibling = |by: isize| {
            let family = &flame.get(flame.get(looked.selected)?.parent?)?.children;
            let at = family.iter().position(|of| *of == looked.selected)?;
            family.get(at.checked_add_signed(by)?).copied()
        };
        let to = match action {
            StacksAction::Next => row(1),
            StacksAction::Previous => row(-1),
            StacksAction::NextSibling => sibling(1),
            StacksAction::PreviousSibling => sibling(-1),
            StacksAction::Into => {
                self.zoom_to(&flame, looked.selected);
                None
            }
            StacksAction::Out => {
                let parent = flame.get(looked.zoom).and_then(|zoom| zoom.parent);
                self.zoom = parent.map_or_else(Vec::new, |parent| flame.keys(parent));
                Some(looked.zoom)
            }
            StacksAction::Pick(index) => {
                let index = index as usize;
                if index == looked.selected {
                    self.zoom_to(&flame, index);
                }
                Some(index)
            }
            StacksAction::Shape => {
                let at = Shape::ALL.iter().position(|shape| *shape == self.shape).unwrap_or(0);
                self.shape = Shape::ALL[(at + 1) % Shape::ALL.len()];
                (self.zoom, self.selected) = (Vec::new(), Vec::new());
                self.scroll = Some(0);
                None
            }
            StacksAction::Peak => return Some(self.toggle_peak(seen)),
            StacksAction::Leave => {
                if std::mem::take(&mut self.zoom).is_empty() {
                    self.search = Arc::default();
                }
                self.reveal(seen);
                None
            }
        };
        if let Some(index) = to {
            select(self, index);
        }
        None
    }

    fn zoom_to(&mut self, flame: &Flame, index: usize) {
        if flame.get(index).is_some_and(|node| !node.children.is_empty()) {
            self.zoom = flame.keys(index);
            self.scroll = Some(0);
        }
    }

    /// To where allocated was highest; from there to where the cursor was before.
    fn toggle_peak(&mut self, seen: Seen<'_>) -> Move {
        let picture = seen.picture;
        if picture.cursor == Cursor::At(picture.view.peak_position) {
            return match self.before.take() {
                Some(Cursor::At(position)) => Move::To(position),
                Some(Cursor::Now) | None => Move::Now,
            };
        }
        self.before = Some(picture.cursor);
        Move::Jump(Landmark::Peak, Direction::Forward)
    }

    /// Brings what is selected into view.
    fn reveal(&mut self, seen: Seen<'_>) {
        let row = self.looked(seen.shown, seen.rows.1).row();
        let shown = seen.rows.1.max(1);
        if row < seen.scroll {
            self.scroll = Some(row);
        } else if row >= seen.scroll + shown {
            self.scroll = Some(row + 1 - shown);
        }
    }
}
