//! The blocks that an exception's frames hold.
//!
//! An exception refers to its traceback, a traceback to the frames that were left, and a frame to its variables. While a program
//! keeps the exception, or is still within the `except` block that caught it, everything stays alive that was alive when a
//! request failed, except what PyTorch's own C++ code held.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// A block that is freed with its last handle.
pub(crate) type BlockHandle = Rc<dyn Any>;

/// The blocks of a step that its frames may hold.
#[derive(Default)]
pub(super) struct Frames {
    /// Blocks allocated since the step began; `None` while they are not noted.
    taken: RefCell<Option<Vec<Weak<dyn Any>>>>,
    /// What the node that runs backward has saved.
    unpacked: RefCell<Vec<Weak<dyn Any>>>,
    /// Of these, what was alive when a request failed.
    caught: RefCell<Vec<BlockHandle>>,
}

impl Frames {
    /// Begins a step; `held`: the program keeps the frames if the step fails.
    pub fn begin(&self, held: bool) {
        self.taken.replace(held.then(Vec::new));
        self.begin_node();
    }

    /// Whether blocks are noted.
    pub fn are_watched(&self) -> bool {
        self.taken.borrow().is_some()
    }

    /// Notes an allocated block.
    pub fn took(&self, block: &BlockHandle) {
        if let Some(taken) = &mut *self.taken.borrow_mut() {
            taken.push(Rc::downgrade(block));
            // The last request failed, but something else has served it.
            self.caught.borrow_mut().clear();
        }
    }

    /// Begins the backward of another node.
    pub fn begin_node(&self) {
        self.unpacked.borrow_mut().clear();
        self.caught.borrow_mut().clear();
    }

    /// The node that runs backward reads a saved block: its graph holds the block until the node has run.
    pub fn unpacked(&self, block: &BlockHandle) {
        if self.are_watched() {
            self.unpacked.borrow_mut().push(Rc::downgrade(block));
        }
    }

    /// Notes that a request failed.
    pub fn fail(&self) {
        if self.are_watched() {
            let alive: Vec<BlockHandle> = self.unpacked.borrow().iter().filter_map(Weak::upgrade).collect();
            self.caught.replace(alive);
        }
    }

    /// Returns all blocks of the step that are still held, and what the failed node had saved; stops noting.
    pub fn catch(&self) -> Vec<BlockHandle> {
        let taken = self.taken.take().unwrap_or_default();
        let mut alive: Vec<BlockHandle> = taken.iter().filter_map(Weak::upgrade).collect();
        for held in self.caught.take() {
            if !alive.iter().any(|block| Rc::ptr_eq(block, &held)) {
                alive.push(held);
            }
        }
        alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_is_caught_and_what_the_node_had_saved() {
        let frames = Frames::default();
        frames.took(&(Rc::new(1) as BlockHandle));
        frames.begin(true);
        let (variable, saved): (BlockHandle, BlockHandle) = (Rc::new(2), Rc::new(3));
        let gone: BlockHandle = Rc::new(4);
        for block in [&variable, &saved, &gone] {
            frames.took(block);
        }
        frames.unpacked(&saved);
        drop(gone);
        frames.fail();
        drop(saved);
        let caught: Vec<i32> = frames.catch().iter().filter_map(|held| held.downcast_ref().copied()).collect();
        assert_eq!(caught, [2, 3]);
        assert!(frames.catch().is_empty() && !frames.are_watched());
    }

    #[test]
    fn a_request_that_another_one_replaces_catches_nothing() {
        let frames = Frames::default();
        frames.begin(true);
        let saved: BlockHandle = Rc::new(1);
        frames.unpacked(&saved);
        frames.fail();
        let smaller: BlockHandle = Rc::new(2);
        frames.took(&smaller);
        drop(saved);
        assert_eq!(frames.catch().len(), 1);
    }
}
