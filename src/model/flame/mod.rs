//! Memory at one moment as a tree, by caller frame by frame, or by line, file, module or category.
//!
//! Blocks of one name form one path, so the cost depends on the number of live names, not of blocks. If a source has no
//! stacks, the parts of names replace them: `blocks.3.attn.qkv output` becomes `blocks`, `3`, `attn`, `qkv output`.
//!
//! Branches too small to be seen are folded into one. Frames without branches between them form one node, named after
//! the most telling frame (`model::frames::telling`).

mod paths;
mod tags;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::event::{Category, NameId};
use super::study::Survivor;
use super::view::View;
use super::{Names, naming};
use paths::{PathStep, Paths};
use vramlab_allocator::units::Bytes;
use vramlab_snapshot::frames::Origin;

pub use tags::{TagError, Tags};

/// What the levels of a tree represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Frames, the outermost first; without stacks, the parts of names.
    #[default]
    Tree,
    /// The line that allocated, then its callers; without stacks, the tensor, with layers combined.
    Line,
    /// Files and their lines; without stacks, modules and their tensors.
    File,
    /// Packages and modules down to the line; without stacks, the parts of names, with layers combined.
    Module,
    /// The category of blocks, or the tags that a person gave, then the line.
    Category,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 5] = [Self::Tree, Self::Line, Self::File, Self::Module, Self::Category];

    /// The shape's name on screens, for stacks or for names.
    #[must_use]
    pub const fn label(self, stacks: bool) -> &'static str {
        match (self, stacks) {
            (Self::Tree, true) => "stack",
            (Self::Tree, false) => "module path",
            (Self::Line, true) => "line",
            (Self::Line, false) => "tensor",
            (Self::File, true) => "file",
            (Self::File, false) => "module",
            (Self::Module, true) => "module",
            (Self::Module, false) => "layer kind",
            (Self::Category, _) => "category",
        }
    }
}

/// A node of the tree: a part of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The key that tells it from its siblings.
    pub key: Arc<str>,
    /// Its name.
    pub label: Arc<str>,
    /// Live bytes (block sizes).
    pub bytes: Bytes,
    /// The number of blocks.
    pub blocks: u64,
    /// Its bytes in the order of [`Category::ALL`].
    pub by_category: [Bytes; 9],
    /// Its parent; `None` for the root.
    pub parent: Option<usize>,
    /// Its children, the most bytes first.
    pub children: Vec<usize>,
    /// The number of nodes above it.
    pub depth: usize,
    /// The frame that it is named after.
    pub frame: Option<NameId>,
    /// The labels of the levels that it combines, in order; its own label is one of them. Empty for a single level.
    pub chain: Vec<Arc<str>>,
    /// The number of small branches that it stands for; 0 for ordinary nodes.
    pub others: usize,
}

impl Node {
    /// The category of most of its bytes.
    #[must_use]
    pub fn category(&self) -> Category {
        // The first of equal categories.
        let most = Category::ALL.into_iter().rev().max_by_key(|category| self.by_category[*category as usize]);
        most.unwrap_or_default()
    }
}

/// Memory at one moment as a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flame {
    nodes: Vec<Node>,
    /// What the levels represent.
    pub shape: Shape,
    /// All live bytes, including those that the search excludes.
    pub total: Bytes,
    /// True if blocks have stacks; otherwise their names are used.
    pub stacks: bool,
    /// The bytes by name, with layers combined, the most bytes first. The search excludes none of these.
    pub names: Vec<Survivor>,
}

/// Numbered branches are sorted by their numbers if their bytes differ by at most 1/`ALIKE`.
const ALIKE: u64 = 50;

impl Flame {
    /// The most levels of a tree. Deeper frames belong to the last level.
    pub const DEEPEST: usize = 192;
    /// The most children of a node.
    pub const WIDEST: usize = 48;
    /// The most nodes before small branches are folded: far more than any program has.
    const MOST: usize = 1 << 18;
    /// A branch with less than this fraction of all bytes is folded.
    const SMALLEST: u64 = 4096;

    /// The tree of a view's blocks. A non-empty `search` selects blocks with a frame, name or category that contains
    /// it, or one of its alternatives between bars.
    #[must_use]
    pub fn of(view: &View, shape: Shape, tags: &Tags, search: &str) -> Self {
        let mut held: HashMap<(NameId, Category), (u64, u64)> = HashMap::new();
        for segment in view.segments.iter() {
            for block in segment.blocks.iter().filter(|block| !block.pending) {
                let (bytes, blocks) = held.entry((block.name, block.category)).or_default();
                *bytes += block.size.get();
                *blocks += 1;
            }
        }
        let names = named(&held, &view.names);
        let mut held: Vec<_> = held.into_iter().collect();
        // The largest first, because what there is no room for should be small.
        held.sort_unstable_by_key(|((name, category), (bytes, _))| (Reverse(*bytes), *name, *category));
        let mut paths = Paths::new(&view.names, &view.stacks, shape, tags, search);
        let mut tree = Tree::new();
        let mut total = 0;
        for ((name, category), (bytes, blocks)) in held {
            total += bytes;
            if let Some(path) = paths.of(name, category) {
                tree.add(&path, category, bytes, blocks);
            }
        }
        let stacks = !view.stacks.is_empty();
        let mut flame = Self { nodes: Vec::new(), shape, total: Bytes(total), stacks, names };
        flame.grow(&tree, 0, None);
        flame
    }

    /// The root node.
    #[must_use]
    pub fn root(&self) -> &Node {
        &self.nodes[0]
    }

    /// The node with this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Node> {
        self.nodes.get(index)
    }

    /// Combines some children of a node into one, as small branches are folded.
    #[must_use]
    pub fn sum(&self, of: usize, parts: Range<usize>) -> Option<Node> {
        let parent = self.nodes.get(of)?;
        let children = parent.children.get(parts)?;
        let parts = || children.iter().filter_map(|part| self.nodes.get(*part));
        let mut by_category = [Bytes::ZERO; 9];
        parts().for_each(|part| by_category.iter_mut().zip(part.by_category).for_each(|(sum, bytes)| *sum += bytes));
        let others = parts().map(|part| part.others.max(1)).sum();
        let sums = BranchSums { bytes: by_category, blocks: parts().map(|part| part.blocks).sum(), others };
        Some(sums.node(of, parent.depth + 1))
    }

    /// The keys of the path from the root to a node.
    #[must_use]
    pub fn keys(&self, index: usize) -> Vec<Arc<str>> {
        let mut keys = Vec::new();
        let mut at = self.nodes.get(index);
        while let Some(node) = at.filter(|node| node.parent.is_some()) {
            keys.push(Arc::clone(&node.key));
            at = node.parent.and_then(|parent| self.nodes.get(parent));
        }
        keys.reverse();
        keys
    }

    /// The node at the end of a path of keys, as far as the path exists.
    #[must_use]
    pub fn find(&self, keys: &[Arc<str>]) -> usize {
        keys.iter()
            .try_fold(0, |at, key| {
                let next = self.nodes[at].children.iter().find(|child| self.nodes[**child].key == *key);
                next.copied().ok_or(at)
            })
            .unwrap_or_else(|last| last)
    }

    /// Adds a node of the whole tree and everything below it. A chain of nodes without branches becomes one.
    fn grow(&mut self, tree: &Tree, from: usize, parent: Option<usize>) -> usize {
        let mut chain = vec![from];
        let mut last = from;
        // The root is never combined with its child.
        while from != 0
            && let [only] = &tree.nodes[last].children[..]
            && tree.nodes[*only].bytes == tree.nodes[last].bytes
            && tree.nodes[*only].blocks == tree.nodes[last].blocks
        {
            last = *only;
            chain.push(last);
        }
        // Of several frames with one origin, the innermost.
        let inmost = |at: usize| if self.shape == Shape::Line { Reverse(at) } else { Reverse(chain.len() - at) };
        let telling = |(at, index): &(usize, usize)| {
            let part = &tree.nodes[*index].part;
            (part.frame.is_some(), part.origin, inmost(*at))
        };
        let called = chain.iter().copied().enumerate().max_by_key(telling).map_or(from, |(_, index)| index);
        let (first, called, end) = (&tree.nodes[from], &tree.nodes[called], &tree.nodes[last]);
        let index = self.nodes.len();
        let depth = parent.and_then(|parent| self.nodes.get(parent)).map_or(0, |parent| parent.depth + 1);
        let label = |index: &usize| Arc::clone(&tree.nodes[*index].part.label);
        // These labels are the parts of one name.
        let joined = called.part.frame.is_none() && matches!(self.shape, Shape::Tree | Shape::Module);
        let labels: Vec<Arc<str>> = chain.iter().map(label).collect();
        self.nodes.push(Node {
            key: Arc::clone(&first.part.key),
            label: if joined { labels.join(".").into() } else { Arc::clone(&called.part.label) },
            bytes: Bytes(first.bytes.iter().sum()),
            blocks: first.blocks,
            by_category: first.bytes.map(Bytes),
            parent,
            children: Vec::new(),
            depth,
            frame: called.part.frame,
            chain: if chain.len() > 1 && !joined { labels } else { Vec::new() },
            others: 0,
        });
        let mut children = end.children.clone();
        let sum = |child: &usize| tree.nodes[*child].bytes.iter().sum::<u64>();
        let counted = |child: &usize| tree.nodes[*child].part.label.parse().unwrap_or(u64::MAX);
        // Equally large branches are in counting order: 5, 8, 10. Layers of a model count as equal.
        children.sort_by_key(|child| (Reverse(sum(child)), counted(child)));
        let alike = |a: &usize, b: &usize| {
            counted(a) != u64::MAX && counted(b) != u64::MAX && sum(a).abs_diff(sum(b)) <= sum(a) / ALIKE
        };
        for run in children.chunk_by_mut(alike) {
            run.sort_by_key(counted);
        }
        let least = self.total.get() / Self::SMALLEST;
        let seen = children.iter().take(Self::WIDEST).take_while(|child| sum(child) > least).count();
        // A single small branch keeps its name.
        let seen = if children.len() - seen == 1 { children.len() } else { seen };
        for child in &children[..seen] {
            let child = self.grow(tree, *child, Some(index));
            self.nodes[index].children.push(child);
        }
        if seen < children.len() {
            let others = self.fold(tree, &children[seen..], index);
            self.nodes[index].children.push(others);
        }
        index
    }

    /// Adds one node that stands for many branches.
    fn fold(&mut self, tree: &Tree, branches: &[usize], parent: usize) -> usize {
        let mut sums = BranchSums { bytes: [Bytes::ZERO; 9], blocks: 0, others: branches.len() };
        for branch in branches {
            let node = &tree.nodes[*branch];
            sums.bytes.iter_mut().zip(node.bytes).for_each(|(sum, bytes)| *sum += Bytes(bytes));
            sums.blocks += node.blocks;
        }
        let index = self.nodes.len();
        self.nodes.push(sums.node(parent, self.nodes[parent].depth + 1));
        index
    }
}

/// The sums of several branches.
struct BranchSums {
    bytes: [Bytes; 9],
    blocks: u64,
    others: usize,
}

impl BranchSums {
    /// As one node.
    fn node(self, parent: usize, depth: usize) -> Node {
        Node {
            // No frame has this key.
            key: "\u{0}others".into(),
            label: format!("{} others", self.others).into(),
            bytes: self.bytes.into_iter().sum(),
            blocks: self.blocks,
            by_category: self.bytes,
            parent: Some(parent),
            children: Vec::new(),
            depth,
            frame: None,
            chain: Vec::new(),
            others: self.others,
        }
    }
}

/// Live bytes and blocks by name, with layers combined, the most bytes first.
fn named(held: &HashMap<(NameId, Category), (u64, u64)>, names: &Names) -> Vec<Survivor> {
    let mut sums: BTreeMap<(String, Category), (u64, u64)> = BTreeMap::new();
    for ((name, category), (bytes, blocks)) in held {
        let name = match names.get(*name) {
            "" => category.label().to_owned(),
            name => naming::starred(name),
        };
        let sum = sums.entry((name, *category)).or_default();
        *sum = (sum.0 + bytes, sum.1 + blocks);
    }
    let survivor = |((name, category), (bytes, blocks))| Survivor { name, category, bytes: Bytes(bytes), blocks };
    let mut named: Vec<Survivor> = sums.into_iter().map(survivor).collect();
    named.sort_by_key(|survivor| Reverse(survivor.bytes));
    named
}

/// The whole tree while it is built.
struct Tree {
    nodes: Vec<Branch>,
    /// The children by parent and key.
    places: HashMap<(usize, Arc<str>), usize>,
}

struct Branch {
    part: PathStep,
    bytes: [u64; 9],
    blocks: u64,
    children: Vec<usize>,
}

impl Tree {
    fn new() -> Self {
        let part = PathStep { key: "".into(), label: "all".into(), origin: Origin::Own, frame: None };
        Self { nodes: vec![Branch { part, bytes: [0; 9], blocks: 0, children: Vec::new() }], places: HashMap::new() }
    }

    fn add(&mut self, path: &[PathStep], category: Category, bytes: u64, blocks: u64) {
        let mut at = 0;
        self.hold(at, category, bytes, blocks);
        for part in path.iter().take(Flame::DEEPEST) {
            let key = (at, Arc::clone(&part.key));
            at = match self.places.get(&key) {
                Some(known) => *known,
                None if self.nodes.len() >= Flame::MOST => return,
                None => {
                    let next = self.nodes.len();
                    self.nodes.push(Branch { part: part.clone(), bytes: [0; 9], blocks: 0, children: Vec::new() });
                    self.nodes[at].children.push(next);
                    self.places.insert(key, next);
                    next
                }
            };
            self.hold(at, category, bytes, blocks);
        }
    }

    fn hold(&mut self, at: usize, category: Category, bytes: u64, blocks: u64) {
        let node = &mut self.nodes[at];
        node.bytes[category as usize] += bytes;
        node.blocks += blocks;
    }
}

#[cfg(test)]
mod tests;
