//! The state of Stacks: the levels of the tree, the zoom, the selection, and the filter.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::seen::ActionInput;
use crate::model::frames::FrameText;
use crate::model::{Flame, Names, Node, SegmentView, Shape, Stacks, Tags, View};
use crate::recording::Direction;
use crate::source::{Cursor, Landmark, Move};

/// An action of Stacks' own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StacksAction {
    /// Select the next row.
    Next,
    /// Select the previous row.
    Previous,
    /// Select the next sibling.
    NextSibling,
    /// Select the previous sibling.
    PreviousSibling,
    /// Zoom into the selected node.
    Into,
    /// Zoom out to the parent.
    Out,
    /// Select the node with this index; if it is already selected, zoom into it.
    Pick(u32),
    /// Show the next kind of levels.
    Shape,
    /// Move the cursor to the peak, or back to where it was.
    Peak,
    /// Zoom out to the root; if that is so, clear the filter.
    Leave,
}

impl StacksAction {
    /// The word for it in settings; empty for actions that only the mouse has.
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

/// The keys on the path from a tree's root to a node.
type NodePath = Vec<Arc<str>>;

/// The state of Stacks.
#[derive(Clone, Debug, Default)]
pub struct StacksState {
    /// The kind of levels.
    pub shape: Shape,
    /// The filter.
    pub search: Arc<str>,
    /// A person's tags for blocks.
    pub tags: Tags,
    zoom: NodePath,
    selected: NodePath,
    /// The file of the selected frame.
    file: Option<Arc<str>>,
    /// The cursor before it was moved to the peak.
    before: Option<Cursor>,
    /// The first row to show, after something was brought into view.
    scroll: Option<usize>,
    kept: RefCell<Option<LastTree>>,
}

/// The last tree, and its inputs.
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

/// A tree with its zoom and selection, with nodes by index.
#[derive(Clone, Debug)]
pub(crate) struct StackTree {
    /// The tree.
    pub flame: Arc<Flame>,
    /// The zoomed node.
    pub zoom: usize,
    /// The selected node.
    pub selected: usize,
    /// The rows of the table, with `zoom` first.
    pub rows: Vec<StackRow>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackRow {
    /// A node.
    Node(usize),
    /// The sum of a node's children after the first `shown`.
    Rest { of: usize, shown: usize },
}

/// True if a child is about as large as the largest: layers of a model differ by the workspaces that happen to be in them.
fn are_alike(bytes: u64, most: u64) -> bool {
    bytes.abs_diff(most) <= most / 16
}

impl StackTree {
    /// The most rows.
    const ROWS: usize = 2000;

    /// The row of the selection.
    pub fn row(&self) -> usize {
        self.rows.iter().position(|row| *row == StackRow::Node(self.selected)).unwrap_or(0)
    }

    /// The nodes whose children have rows when `seen` rows are visible, and how many of the children: the path to the
    /// selection, then the largest nodes first, as long as all of their children fit. Children of about equal size keep
    /// their order. The last node shows as many as fit, and a row for the rest.
    fn opened(&self, seen: usize) -> HashMap<usize, usize> {
        /// The fewest rows worth opening a node for a part of its children.
        const SOME: usize = 4;
        let children = |node: usize| self.flame.get(node).map_or(&[][..], |node| &node.children);
        let bytes = |node: usize| self.flame.get(node).map_or(0, |node| node.bytes.get());
        let least = self.least();
        let (mut opened, mut rows, mut closed) = (HashMap::new(), 1, BinaryHeap::new());
        let mut open = |node: usize, count: usize, rows: &mut usize, closed: &mut BinaryHeap<_>| {
            opened.insert(node, count);
            *rows += count;
            let parts = children(node)[..count].iter().zip(0..);
            let parts = parts.filter(|(part, _)| bytes(**part) >= least && !children(**part).is_empty());
            let most = children(node).iter().map(|part| bytes(*part)).max().unwrap_or(0);
            let size = |part: usize| if are_alike(bytes(part), most) { most } else { bytes(part) };
            closed.extend(parts.map(|(part, place)| (size(*part), Reverse((place, *part)))));
        };
        open(self.zoom, children(self.zoom).len(), &mut rows, &mut closed);
        let mut forced = Vec::new();
        while let Some(part) = closed.pop() {
            let (_, Reverse((_, node))) = part;
            if self.leads_to_selected(node) {
                open(node, children(node).len(), &mut rows, &mut closed);
            } else {
                forced.push(part);
            }
        }
        closed.extend(forced);
        while let Some((_, Reverse((_, node)))) = closed.pop() {
            let (all, left) = (children(node).len(), seen.saturating_sub(rows));
            // One of many similar layers represents all of them.
            if self.has_layers_alike(node) && left >= 2 {
                rows += 1;
                open(node, 1, &mut rows, &mut closed);
            } else if all <= left {
                open(node, all, &mut rows, &mut closed);
            } else {
                if left >= SOME {
                    open(node, left - 1, &mut rows, &mut closed);
                }
                break;
            }
        }
        opened
    }

    /// True if the children of a node are numbered layers of about equal size.
    pub fn has_layers_alike(&self, node: usize) -> bool {
        /// Fewer layers have a row each.
        const MANY: usize = 4;
        let parts = || {
            let children = self.flame.get(node).map_or(&[][..], |node| &node.children);
            children.iter().filter_map(|part| self.flame.get(*part))
        };
        let most = parts().map(|part| part.bytes.get()).max().unwrap_or(0);
        let is_layer = |part: &Node| part.label.parse::<u32>().is_ok() && are_alike(part.bytes.get(), most);
        parts().count() >= MANY && parts().all(is_layer)
    }

    /// A node with less than this many bytes has no rows for its children.
    fn least(&self) -> u64 {
        self.flame.get(self.zoom).map_or(0, |zoom| zoom.bytes.get() / 100)
    }

    /// True if the selection is below a node.
    pub fn leads_to_selected(&self, node: usize) -> bool {
        let parent = |of: &usize| self.flame.get(*of).and_then(|node| node.parent);
        std::iter::successors(parent(&self.selected), parent).any(|part| part == node)
    }

    /// Adds a row for each child of a node, and for their children. `is_open` says how many children have rows.
    fn add_rows(&mut self, of: usize, is_open: &dyn Fn(&Self, usize) -> usize) {
        let flame = Arc::clone(&self.flame);
        let children = flame.get(of).map_or(&[][..], |node| &node.children);
        let shown = is_open(self, of).min(children.len());
        for child in &children[..shown] {
            if self.rows.len() >= Self::ROWS {
                return;
            }
            self.rows.push(StackRow::Node(*child));
            self.add_rows(*child, is_open);
        }
        if shown > 0 && shown < children.len() {
            self.rows.push(StackRow::Rest { of, shown });
        }
    }
}

impl StacksState {
    /// The tree of a view with its zoom and selection, for `seen` visible rows.
    pub(crate) fn looked(&self, view: &View, seen: usize) -> StackTree {
        let flame = self.flame(view);
        let zoom = flame.find(&self.zoom);
        let selected = flame.find(&self.selected);
        let mut looked = StackTree { flame, zoom, selected, rows: vec![StackRow::Node(zoom)] };
        let least = looked.least();
        match self.shape {
            // The callers of a line are shown only for the zoomed line.
            Shape::Line => looked.add_rows(zoom, &|_, node| if node == zoom { usize::MAX } else { 0 }),
            // Layers are many and similar. If not all are visible, they would hide everything else.
            Shape::Tree if !looked.flame.stacks => {
                let opened = looked.opened(seen);
                looked.add_rows(zoom, &|_, node| opened.get(&node).copied().unwrap_or(0));
            }
            _ => looked.add_rows(zoom, &|looked, node| {
                let is_large = looked.flame.get(node).is_some_and(|node| node.bytes.get() >= least);
                if is_large || looked.leads_to_selected(node) { usize::MAX } else { 0 }
            }),
        }
        if !looked.rows.contains(&StackRow::Node(selected)) {
            looked.selected = zoom;
        }
        looked
    }

    /// The tree of a view, reused from the last frame if it is still the same.
    pub(crate) fn flame(&self, view: &View) -> Arc<Flame> {
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

    /// The file of the selected frame, whose text is wanted.
    pub(crate) const fn file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// Filters by these lines, shown line by line.
    pub(crate) fn show_lines(&mut self, lines: &[&str]) {
        *self = Self {
            shape: Shape::Line,
            search: lines.join("|").into(),
            tags: std::mem::take(&mut self.tags),
            ..Self::default()
        };
    }

    /// True if a node is zoomed, or a filter is set.
    pub(crate) fn is_narrowed(&self) -> bool {
        !self.zoom.is_empty() || !self.search.is_empty()
    }

    /// The first row to show, returned once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.scroll.take()
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub(super) fn act(&mut self, action: StacksAction, seen: ActionInput<'_>) -> Option<Move> {
        let to = self.obey(action, seen);
        let looked = self.looked(seen.shown, seen.rows.1);
        let frame = looked.flame.get(looked.selected).and_then(|node| node.frame);
        let text = frame.map(|frame| seen.shown.names.get(frame));
        self.file = text.and_then(FrameText::of).map(|frame| frame.file.into());
        to
    }

    fn obey(&mut self, action: StacksAction, seen: ActionInput<'_>) -> Option<Move> {
        let looked = self.looked(seen.shown, seen.rows.1);
        let flame = Arc::clone(&looked.flame);
        let select = |state: &mut Self, index: usize| {
            state.selected = flame.keys(index);
            state.reveal(seen);
        };
        // Rows with sums are skipped.
        let row = |by: isize| {
            let rows = (1..).map(|times| looked.rows.get(looked.row().checked_add_signed(by * times)?).copied());
            rows.take_while(Option::is_some).flatten().find_map(|row| match row {
                StackRow::Node(node) => Some(node),
                StackRow::Rest { .. } => None,
            })
        };
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

    /// Moves to the allocated peak, or from there back to where the cursor was before.
    fn toggle_peak(&mut self, seen: ActionInput<'_>) -> Move {
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

    /// Brings the selection into view.
    fn reveal(&mut self, seen: ActionInput<'_>) {
        let row = self.looked(seen.shown, seen.rows.1).row();
        let shown = seen.rows.1.max(1);
        if row < seen.scroll {
            self.scroll = Some(row);
        } else if row >= seen.scroll + shown {
            self.scroll = Some(row + 1 - shown);
        }
    }
}
