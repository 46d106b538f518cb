//! A [`Lab`] in a small part of its bytes, for a state that is kept for long and seldom looked at.

use std::mem;

use super::Lab;
use crate::curves::PackedCurves;
use crate::event::NameId;
use crate::memory::PackedMemory;

/// What [`Lab::checkpoint`] copies, without its heaviest parts: memory and curves are numbers that differ little from
/// their neighbours.
#[derive(Clone, Debug)]
pub(crate) struct PackedLab {
    rest: Lab,
    memory: PackedMemory,
    curves: PackedCurves,
    /// True if the configuration in force has the curve of the last step.
    in_force: bool,
}

impl PackedLab {
    /// Packs a lab, which is unchanged afterwards.
    pub fn of(lab: &mut Lab) -> Self {
        let (memory, curves) = (PackedMemory::of(&mut lab.memory), lab.curves.pack());
        // What is packed is not copied as well.
        let own = (mem::take(&mut lab.memory), mem::take(&mut lab.curves));
        let mut rest = lab.checkpoint();
        (lab.memory, lab.curves) = own;
        let in_force = rest.configurations.leave_out(lab.curves.last.as_ref());
        Self { rest, memory, curves, in_force }
    }

    /// The lab.
    pub fn unpack(&self) -> Lab {
        let (memory, curves) = (self.memory.unpack(), self.curves.unpack());
        let mut lab = Lab { memory, curves, ..self.rest.clone() };
        if self.in_force {
            lab.configurations.put_back(lab.curves.last.as_ref());
        }
        lab
    }

    /// The number of blocks and free pieces.
    pub const fn pieces(&self) -> usize {
        self.memory.pieces()
    }

    /// Approximate bytes, including what it alone keeps alive once the run has gone on.
    pub fn weight(&self) -> usize {
        const REST: usize = 1 << 14;
        const NAME: usize = size_of::<std::sync::Arc<str>>();
        let names = &self.rest.names;
        REST + self.memory.weight()
            + self.curves.weight()
            + names.texts().0.len() * NAME
            + names.frames() * size_of::<NameId>()
    }
}
