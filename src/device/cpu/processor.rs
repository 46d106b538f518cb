//! What a kernel family needs to run on the processor.

use super::arena::Arena;
use super::cores::Cores;
use super::operand::{Access, Sharing};

/// The processor's cores, and the memory that its kernels can access.
#[derive(Clone, Copy)]
pub(crate) struct Processor<'a> {
    pub cores: &'a Cores,
    pub arena: &'a Arena,
}

impl<'a> Processor<'a> {
    /// For a kernel whose outputs may be the same operands as its inputs.
    pub fn in_place(&self) -> Access<'a> {
        Access::new(self.arena, Sharing::InPlace)
    }

    /// For a kernel whose outputs share no memory with other operands.
    pub fn apart(&self) -> Access<'a> {
        Access::new(self.arena, Sharing::Never)
    }
}
