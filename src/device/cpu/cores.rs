//! The cores that a kernel spreads over, where it pays.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use gemm_common::Parallelism;
use rayon::prelude::*;

use super::operand::{KernelRefusal, KernelResult};
use super::real::Real;
use crate::{DeviceError, HostAccount, HostMemoryRefused, HostVec, Plain};
use vramlab_allocator::units::Bytes;

/// Work below this many estimated nanoseconds stays on the calling thread: waking others costs more.
const WORTH_SPREADING: usize = 60_000;
/// The largest piece of scratch that a thread keeps between kernels.
const KEPT: Bytes = Bytes::mib(16);

/// A pool of worker threads, the vector instructions of this processor, and the memory that kernels work in.
///
/// Only what is inlined into the function behind [`Cores::vectorised`] is compiled for the wide instructions: closures
/// on the way there are marked `#[inline(always)]`, because large ones would otherwise stay functions of their own.
///
/// Results never depend on the number of threads: tasks are cut by the shapes of operands alone.
pub(crate) struct Cores {
    pool: Option<rayon::ThreadPool>,
    arch: pulp::Arch,
    threads: usize,
    account: HostAccount,
    /// The first scratch that the present kernel did not get.
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

    /// Runs `body` with `n` elements of scratch, whose contents are what the last kernel left. Where there is no memory for
    /// them `body` does not run, and the kernel has failed ([`Cores::finish`]).
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
    /// The first scratch that it did not get: a part of it has not run.
    pub(crate) fn finish(&self) -> KernelResult {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        refused.map_or(Ok(()), |refused| Err(KernelRefusal::Memory(refused)))
    }

    /// Runs `body` compiled for the widest vector instructions there are.
    #[inline(always)]
    pub(crate) fn vectorised<T>(&self, body: impl FnOnce() -> T) -> T {
        self.arch.dispatch(body)
    }

    /// Runs `operation` with the widest vectors there are.
    ///
    /// Never inlined: within [`Cores::vectorised`] each call would otherwise hold two more copies of the operation.
    #[inline(never)]
    pub(crate) fn dispatch<T: pulp::WithSimd>(&self, operation: T) -> T::Output {
        self.arch.dispatch(operation)
    }

    /// Runs `task(0..tasks)`, on all cores if `nanos` (an estimate of all of it) is worth it.
    #[inline(always)]
    pub(crate) fn for_each(&self, tasks: usize, nanos: usize, task: impl Fn(usize) + Sync) {
        // Behind a pointer so that there is one copy of `task`: the compiler inlines it into the vectorised function
        // and so compiles it for the wide instructions, which it would not do twice.
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
    /// Not generic: rayon's part would otherwise be compiled again for each loop of each kernel, a third of this crate.
    fn spread(&self, tasks: usize, nanos: usize, run: &(dyn Fn(Range<usize>) + Sync)) {
        match &self.pool {
            Some(pool) if tasks > 1 && nanos >= WORTH_SPREADING => {
                pool.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(|i| run(i..i + 1)));
            }
            _ => run(0..tasks),
        }
    }

    /// Runs `body` in the pool with gemm's own parallelism where `nanos` is worth it.
    pub(crate) fn for_gemm(&self, nanos: usize, body: impl FnOnce(Parallelism) + Send) {
        match &self.pool {
            Some(pool) if nanos >= WORTH_SPREADING => pool.install(|| body(Parallelism::Rayon(self.threads))),
            _ => body(Parallelism::None),
        }
    }
}
