//! The paths from a tree's root to the blocks of a name.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Shape, Tags};
use crate::event::{Category, NameId};
use crate::naming;
use crate::view::{Names, Stacks};
use vramlab_snapshot::frames::{self, FrameText, Origin};

/// One level of a path.
#[derive(Clone, Debug)]
pub(super) struct PathStep {
    /// The key that tells it from its siblings.
    pub key: Arc<str>,
    /// Its name.
    pub label: Arc<str>,
    /// Whose code it is.
    pub origin: Origin,
    /// The frame that it stands for.
    pub frame: Option<NameId>,
}

impl PathStep {
    fn plain(text: &str) -> Self {
        let text: Arc<str> = text.into();
        Self { key: Arc::clone(&text), label: text, origin: Origin::Own, frame: None }
    }
}

/// Builds paths, and remembers what it found out about frames.
pub(super) struct Paths<'a> {
    names: &'a Names,
    stacks: &'a Stacks,
    shape: Shape,
    tags: &'a Tags,
    /// Search terms in lower case, any of which selects.
    search: Vec<String>,
    parts: HashMap<NameId, PathStep>,
    /// Whether a frame's text contains a search term.
    found: HashMap<NameId, bool>,
}

impl<'a> Paths<'a> {
    pub fn new(names: &'a Names, stacks: &'a Stacks, shape: Shape, tags: &'a Tags, search: &str) -> Self {
        let (parts, found) = (HashMap::new(), HashMap::new());
        let words = search.split('|').map(|word| word.trim().to_lowercase());
        let search = words.filter(|word| !word.is_empty()).collect();
        Self { names, stacks, shape, tags, search, parts, found }
    }

    /// The path to the blocks of a name; `None` if the search excludes them.
    pub fn of(&mut self, name: NameId, category: Category) -> Option<Vec<PathStep>> {
        let stacks = self.stacks;
        let stack = stacks.frames(name);
        let tag = self.tags.of(self.names.get(name), || stack.iter().map(|frame| self.names.get(*frame)));
        let word = tag.map_or(category.label(), |tag| tag);
        if !self.is_looked_for(name, stack, category, word) {
            return None;
        }
        let mut path = if self.shape == Shape::Category { vec![PathStep::plain(word)] } else { Vec::new() };
        match stack {
            [] => self.of_name(name, category, &mut path),
            stack => self.of_stack(stack, &mut path),
        }
        Some(path)
    }

    fn is_looked_for(&mut self, name: NameId, stack: &[NameId], category: Category, word: &str) -> bool {
        let search = &self.search;
        if search.is_empty() {
            return true;
        }
        let holds = |text: &str| {
            let (text, starred) = (text.to_lowercase(), naming::starred(text).to_lowercase());
            search.iter().any(|word| text.contains(&**word) || starred.contains(&**word))
        };
        let (names, found) = (self.names, &mut self.found);
        let mut frame = |frame: NameId| *found.entry(frame).or_insert_with(|| holds(names.get(frame)));
        holds(word) || holds(category.label()) || frame(name) || stack.iter().any(|of| frame(*of))
    }

    fn of_stack(&mut self, stack: &[NameId], path: &mut Vec<PathStep>) {
        let names = self.names;
        let told: Vec<Option<FrameText<'a>>> = stack.iter().map(|frame| FrameText::of(names.get(*frame))).collect();
        let origins = || told.iter().map(|frame| frame.map_or(Origin::Plumbing, |frame| frame.origin()));
        let asked = frames::telling(origins());
        match self.shape {
            Shape::Tree => path.extend(stack.iter().rev().map(|frame| self.frame(*frame))),
            Shape::Line => path.extend(stack[asked..].iter().map(|frame| self.frame(*frame))),
            Shape::File => {
                let file = told[asked].map_or("?", |frame| frame.file);
                let part = PathStep::plain(file);
                path.push(PathStep { label: told[asked].map_or("?", |frame| frame.file_name()).into(), ..part });
                path.push(self.frame(stack[asked]));
            }
            Shape::Module => {
                // The caller within packages, in the form in which a person would import it.
                let asks = origins().position(|origin| origin != Origin::Plumbing).unwrap_or(0);
                let module = told[asks].map_or_else(|| "?".to_owned(), |frame| frame.module());
                path.extend(module.split('.').map(PathStep::plain));
                path.push(self.frame(stack[asks]));
            }
            Shape::Category => path.push(self.frame(stack[asked])),
        }
    }

    fn frame(&mut self, frame: NameId) -> PathStep {
        let names = self.names;
        let part = || {
            let key = names.shared(frame);
            let told = FrameText::of(&key);
            let label = told.map_or_else(|| Arc::clone(&key), |frame| frame.short().into());
            let origin = told.map_or(Origin::Plumbing, |frame| frame.origin());
            PathStep { key, label, origin, frame: Some(frame) }
        };
        self.parts.entry(frame).or_insert_with(part).clone()
    }

    fn of_name(&self, name: NameId, category: Category, path: &mut Vec<PathStep>) {
        let text = self.names.get(name);
        match (text, self.stacks.is_empty()) {
            ("", false) => return path.push(PathStep::plain(&format!("{} without a stack", category.label()))),
            ("", true) if self.shape == Shape::Category => return,
            ("", true) => return path.push(PathStep::plain(category.label())),
            _ => {}
        }
        let dotted = |path: &mut Vec<PathStep>, text: &str| {
            let (before, what) = text.split_once(' ').unwrap_or((text, ""));
            path.extend(before.split('.').map(PathStep::plain));
            match path.last_mut() {
                _ if what.is_empty() => {}
                None => {}
                // A tensor belongs to the module that made it; a tensor of the layer itself is listed among the layer's modules.
                Some(last) if naming::is_layer(&last.label) => {
                    path.push(PathStep { key: format!(" {what}").into(), ..PathStep::plain(what) });
                }
                Some(last) => *last = PathStep::plain(&format!("{} {what}", last.label)),
            }
        };
        match self.shape {
            // A source line in a name is not a path of modules.
            _ if text.ends_with(')') => path.push(PathStep::plain(text)),
            Shape::Tree => dotted(path, text),
            Shape::Line | Shape::Category => {
                let starred = naming::starred(text);
                path.push(PathStep::plain(&starred));
                if starred != text {
                    path.push(PathStep::plain(text));
                }
            }
            Shape::File => path.extend([PathStep::plain(&naming::module(text)), PathStep::plain(text)]),
            Shape::Module => dotted(path, &naming::starred(text)),
        }
    }
}
