//! PyTorch's libraries: which properties of a device they see, and which memory they take from the caching allocator, and
//! when.

mod convolution;
mod four_bit;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::DType;
use vramlab_model::Category;

use super::error::{Interrupt, MemoryKind, OpResult, TrainError};
use super::memory::Memory;
use super::shape::Shape;
use super::tensor::Tensor;

pub(crate) use convolution::{Arithmetic, Convolution, Pass};

/// Properties of a device that PyTorch and its libraries read before they choose a kernel or a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libraries {
    /// Compute capability, major times ten plus minor: 90 on an H200.
    pub compute_capability: u32,
    /// Streaming multiprocessors: 132 on an H200.
    pub multiprocessors: usize,
    /// Whether cuBLAS and cuBLASLt keep workspaces. Scratch that lives within one op (row sums, attention) is part of the
    /// op and requested on every device.
    pub workspaces: bool,
}

impl Libraries {
    /// An H200 or H100.
    pub const HOPPER: Self = Self { compute_capability: 90, multiprocessors: 132, workspaces: true };
    /// A processor's kernels need no blocks of their own; everything else is as on an H200.
    pub const PROCESSOR: Self = Self { workspaces: false, ..Self::HOPPER };

    /// An AMD card with PyTorch for ROCm: gfx942 and gfx950.
    #[must_use]
    pub const fn rocm(self) -> bool {
        matches!(self.compute_capability, 94 | 95)
    }

    /// Bytes of a cuBLAS workspace, one per handle and stream: PyTorch's default, which is larger for Hopper. `None` if every
    /// product goes to hipBLASLt, as on AMD's Instincts (`Context::blasPreferredBackend`).
    #[must_use]
    pub const fn cublas(self) -> Option<Bytes> {
        match self.compute_capability {
            _ if self.rocm() => None,
            90 => Some(Bytes::mib(32)),
            _ => Some(Bytes::kib(2 * 4096 + 8 * 16)),
        }
    }

    /// Bytes of a cuBLASLt workspace, or of hipBLASLt's, one per handle and stream (`parseCUDABlasLtWorkspaceSize`).
    #[must_use]
    pub const fn cublas_lt(self) -> Bytes {
        if self.rocm() { Bytes::mib(76) } else { Bytes::mib(1) }
    }

    /// Threads that a multiprocessor holds, by compute capability (CUDA C++ Programming Guide, technical
    /// specifications).
    #[must_use]
    pub const fn threads_per_multiprocessor(self) -> usize {
        match self.compute_capability {
            75 => 1024,
            86 | 87 | 89 | 120 => 1536,
            _ => 2048,
        }
    }
}

impl Default for Libraries {
    fn default() -> Self {
        Self::PROCESSOR
    }
}

/// The two threads of PyTorch that own library handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thread {
    /// Runs the forward pass and the optimizer.
    #[default]
    Main,
    /// Runs backward and what backward recomputes.
    Backward,
}

/// Library workspaces that were requested and are kept until the trainer ends.
#[derive(Default)]
pub(crate) struct Library {
    pub policy: Libraries,
    pub thread: Thread,
    cublas: [Option<Tensor>; 2],
    cublas_lt: [Option<Tensor>; 2],
    /// The workspace of the plan that each convolution last ran with: PyTorch keeps one plan per thread, and tries it first.
    settled: BTreeMap<(Thread, Pass, Convolution, Arithmetic), usize>,
}

impl Library {
    pub fn new(policy: Libraries) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Prepares a GEMM on this thread's cuBLAS handle.
    pub fn gemm(&mut self, memory: &Memory) -> OpResult<()> {
        if !self.policy.workspaces {
            return Ok(());
        }
        let Some(size) = self.policy.cublas() else { return self.gemm_lt(memory, "hipBLASLt workspace") };
        let slot = &mut self.cublas[self.thread as usize];
        if slot.is_none() {
            *slot = Some(workspace(memory, size, "cuBLAS workspace")?);
        }
        self.lend(memory);
        Ok(())
    }

    /// Prepares work on this thread's cuBLASLt handle.
    fn gemm_lt(&mut self, memory: &Memory, name: &'static str) -> OpResult<()> {
        let slot = &mut self.cublas_lt[self.thread as usize];
        if slot.is_none() {
            *slot = Some(workspace(memory, self.policy.cublas_lt(), name)?);
        }
        Ok(())
    }

    /// Lends the workspace of this thread's cuBLAS handle to the product that follows.
    fn lend(&self, memory: &Memory) {
        if let Some(workspace) = &self.cublas[self.thread as usize] {
            memory.with_device(|device| device.lend_workspace(workspace.operand()));
        }
    }

    /// Prepares a GEMM with a bias epilogue on this thread's cuBLASLt handle, which PyTorch reaches through the cuBLAS handle.
    pub fn gemm_with_bias(&mut self, memory: &Memory) -> OpResult<()> {
        self.gemm(memory)?;
        if self.policy.workspaces { self.gemm_lt(memory, "cuBLASLt workspace") } else { Ok(()) }
    }

    /// The workspace that cuDNN takes for one pass of a convolution, to be dropped when the pass is launched; `None` if it
    /// takes none. `ask` requests that many bytes.
    ///
    /// If memory is short, PyTorch goes through cuDNN's plans until it gets a workspace, and keeps that plan.
    pub fn convolution(
        &mut self,
        (pass, convolution, arithmetic): (Pass, &Convolution, Arithmetic),
        ask: impl Fn(usize) -> OpResult<Tensor>,
    ) -> OpResult<WorkspaceGrant> {
        if !self.policy.workspaces {
            return Ok(WorkspaceGrant::default());
        }
        let key = (self.thread, pass, *convolution, arithmetic);
        let first = convolution::workspace(pass, convolution, arithmetic);
        let settled = self.settled.get(&key).copied();
        let mut refused = match offer(settled.unwrap_or(first), &ask)? {
            Offer::Granted(workspace) => {
                self.settled.entry(key).or_insert(first);
                return Ok(WorkspaceGrant { workspace, in_place_of: None });
            }
            Offer::Refused(refused) => refused,
        };
        // If the kept plan is refused, all plans are tried, the kept one among them.
        let anew = settled.map(|_| first);
        for bytes in anew.into_iter().chain(convolution::further(pass, convolution, arithmetic, first)) {
            match offer(bytes, &ask)? {
                Offer::Granted(workspace) => {
                    self.settled.insert(key, bytes);
                    return Ok(WorkspaceGrant { workspace, in_place_of: Some(first) });
                }
                Offer::Refused(error) => refused = error,
            }
        }
        Err(refused.into())
    }
}

/// A workspace, or none if the plan takes none.
#[derive(Default)]
pub(crate) struct WorkspaceGrant {
    /// The block.
    pub workspace: Option<Tensor>,
    /// Bytes for the plan that cuDNN prefers, if its workspace was just refused.
    pub in_place_of: Option<usize>,
}

enum Offer {
    Granted(Option<Tensor>),
    Refused(TrainError),
}

fn offer(bytes: usize, ask: impl Fn(usize) -> OpResult<Tensor>) -> OpResult<Offer> {
    if bytes == 0 {
        return Ok(Offer::Granted(None));
    }
    match ask(bytes) {
        Ok(workspace) => Ok(Offer::Granted(Some(workspace))),
        Err(Interrupt::Failed(error @ TrainError::OutOfMemory { kind: MemoryKind::Device, .. })) => {
            Ok(Offer::Refused(error))
        }
        Err(other) => Err(other),
    }
}

fn workspace(memory: &Memory, bytes: Bytes, name: &str) -> OpResult<Tensor> {
    let len = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
    memory.named_tensor(Shape::new(&[len]), DType::U8, Category::Workspace, memory.name(name), StreamId::DEFAULT)
}
