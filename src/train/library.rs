//! Memory that PyTorch's libraries take from the caching allocator, at the moment they take it.

use crate::device::DType;
use crate::model::Category;
use crate::units::{Bytes, StreamId};

use super::error::OpResult;
use super::memory::Memory;
use super::tensor::{Shape, Tensor};

/// Which library workspaces a device has. Scratch that lives within one op (row sums, attention) is part of the op
/// and asked for on every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LibraryMemory {
    /// None: a processor's kernels need no blocks of their own.
    #[default]
    None,
    /// What PyTorch 2.11 asks for on an sm_90 device.
    Hopper,
}

impl LibraryMemory {
    /// Bytes of a cuBLAS workspace, one per handle and stream.
    const CUBLAS: Bytes = Bytes::mib(32);
    /// Bytes of a cuBLASLt workspace, one per handle and stream.
    const CUBLAS_LT: Bytes = Bytes::mib(1);
}

/// The two threads of PyTorch that own library handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Runs the forward pass and the optimizer.
    #[default]
    Main,
    /// Runs backward and what backward recomputes.
    Backward,
}

/// Library workspaces that were asked for and are kept until the trainer ends.
#[derive(Default)]
pub(crate) struct Library {
    pub policy: LibraryMemory,
    pub thread: Thread,
    cublas: [Option<Tensor>; 2],
    cublas_lt: [Option<Tensor>; 2],
}

impl Library {
    pub fn new(policy: LibraryMemory) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A GEMM runs on this thread's cuBLAS handle.
    pub fn gemm(&mut self, memory: &Memory) -> OpResult<()> {
        if self.policy == LibraryMemory::None {
            return Ok(());
        }
        let slot = &mut self.cublas[self.thread as usize];
        if slot.is_none() {
            *slot = Some(workspace(memory, LibraryMemory::CUBLAS, "cuBLAS workspace")?);
        }
        Ok(())
    }

    /// A GEMM with a bias epilogue runs on this thread's cuBLASLt handle, which is reached through the cuBLAS handle.
    pub fn gemm_with_bias(&mut self, memory: &Memory) -> OpResult<()> {
        self.gemm(memory)?;
        if self.policy == LibraryMemory::None {
            return Ok(());
        }
        let slot = &mut self.cublas_lt[self.thread as usize];
        if slot.is_none() {
            *slot = Some(workspace(memory, LibraryMemory::CUBLAS_LT, "cuBLASLt workspace")?);
        }
        Ok(())
    }
}

fn workspace(memory: &Memory, bytes: Bytes, name: &str) -> OpResult<Tensor> {
    let len = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
    memory.named_tensor(Shape::new(&[len]), DType::U8, Category::Workspace, memory.name(name), StreamId::DEFAULT)
}
