//! The cores among which large kernels are divided.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use gemm_common::Parallelism;
use rayon::prelude::*;

use super::operand::{KernelRefusal, KernelResult};
use super::real::Real;
use crate::{DeviceError, HostAccount, HostMemoryRefused, HostVec, Plain};
use vramlab_allocator::units::Bytes;

/// Work of fewer estimated nanoseconds stays on the calling thread, because waking other threads costs more.
const WORTH_SPREADING: usize = 60_000;
/// The largest scratch buffer that a thread keeps between kernels.
const KEPT: Bytes = Bytes::mib(16);

/// A pool of worker threads, the vector instructions of this processor, and the memory that kernels work in.
///
/// Only code inlined into the function behind [`Cores::vectorised`] is compiled for the wide instructions. Closures on
/// the way there are marked `#[inline(always)]`, because large ones would otherwise remain separate functions.
///
/// Results never depend on the number of threads: only the shapes of operands decide how work is cut into tasks.
pub(crate) struct Cores {
    pool: Option<rayon::ThreadPool>,
    arch: pulp::Arch,
    threads: usize,
    account: HostAccount,
    /// The first request for scratch that was refused to the current kernel.
    refused: Mutex<Option<HostMemoryRefused>>,
}

impl Cores {
    pub(crate) fn new(threads: usize, account: HostAccount) -> Result<Self, DeviceError> {
        let pool = match threads {
            0 | 1 => None,
            n => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(n)
                    .thread_name(|i| format!("cpu-device-{i}"))
                    .build()
                    .map_err(|e| DeviceError::Unavailable {
                        device: "cpu".into(),
                        reason: format!("{n} worker threads could not be started ({e}); ask for fewer"),
                    })?,
            ),
        };
        let (arch, refused) = (pulp::Arch::new(), Mutex::default());
        Ok(Self { pool, arch, threads: threads.max(1), account, refused })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `body` with `n` elements of scratch, which still contain data of earlier kernels. If there is no memory for
    /// them, `body` does not run and the kernel fails ([`Cores::finish`]).
    #[inline(always)]
    pub(crate) fn scratch<R: Real>(&self, n: usize, body: impl FnOnce(&mut [R])) {
        let mut buffer = R::scratch().with_borrow_mut(Vec::pop).unwrap_or_default();
        if buffer.len() < n {
            drop(buffer);
            match self.account.vec(n) {
                Ok(larger) => buffer = larger,
                Err(refused) => return self.refuse(refused),
            }
        }
        body(&mut buffer[..n]);
        if buffer.held() <= KEPT {
            R::scratch().with_borrow_mut(|free| free.push(buffer));
        }
    }

    /// Zeroed elements for one kernel.
    pub(crate) fn vec<T: Plain>(&self, n: usize) -> KernelResult<HostVec<T>> {
        self.account.vec(n).map_err(KernelRefusal::Memory)
    }

    #[cold]
    fn refuse(&self, refused: HostMemoryRefused) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(refused);
    }

    /// Ends a kernel.
    ///
    /// # Errors
    /// The first refused request for scratch: a part of the kernel has not run.
    pub(crate) fn finish(&self) -> KernelResult {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        refused.map_or(Ok(()), |refused| Err(KernelRefusal::Memory(refused)))
    }

    /// Runs `body` compiled for the widest available vector instructions.
    #[inline(always)]
    pub(crate) fn vectorised<T>(&self, body: impl FnOnce() -> T) -> T {
        self.arch.dispatch(body)
    }

    /// Runs `operation` with the widest available vectors.
    ///
    /// Never inlined: otherwise each call within [`Cores::vectorised`] would contain two more copies of the operation.
    #[inline(never)]
    pub(crate) fn dispatch<T: pulp::WithSimd>(&self, operation: T) -> T::Output {
        self.arch.dispatch(operation)
    }

    /// Runs `task(0..tasks)`, on all cores if `nanos` (an estimate for all tasks) is worth it.
    #[inline(always)]
    pub(crate) fn for_each(&self, tasks: usize, nanos: usize, task: impl Fn(usize) + Sync) {
        // The pointer ensures that there is only one copy of `task`: the compiler inlines it into the vectorised
        // function and so compiles it for the wide instructions, which it would not do twice.
        let run: &(dyn Fn(Range<usize>) + Sync) = &|tasks| {
            self.vectorised(
                #[inline(always)]
                || {
                    for i in tasks {
                        task(i);
                    }
                },
            );
        };
        self.spread(tasks, nanos, run);
    }

    /// Runs `run` over `0..tasks`, in pieces on all cores if `nanos` is worth it.
    ///
    /// Not generic: otherwise rayon's part would be compiled again for each loop of each kernel, a third of this crate.
    fn spread(&self, tasks: usize, nanos: usize, run: &(dyn Fn(Range<usize>) + Sync)) {
        match &self.pool {
            Some(pool) if tasks > 1 && nanos >= WORTH_SPREADING => {
                pool.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(|i| run(i..i + 1)));
            }
            _ => run(0..tasks),
        }
    }

    /// Runs `body` in the pool, with gemm's own parallelism if `nanos` is worth it.
    pub(crate) fn for_gemm(&self, nanos: usize, body: impl FnOnce(Parallelism) + Send) {
        match &self.pool {
            Some(pool) if nanos >= WORTH_SPREADING => pool.install(|| body(Parallelism::Rayon(self.threads))),
            _ => body(Parallelism::None),
        }
    }
}
