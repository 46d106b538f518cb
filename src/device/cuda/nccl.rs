//! NCCL: exchanges between GPUs. Communicators do not block the host, so that one rank can abort what another waits
//! for.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUstream;
use libloading::os::unix::Library;

use super::driver::Stream;
use super::libraries::{self, LibraryKind};
use super::refusal::Refusal;
use crate::collective::{Abort, Collective};
use crate::{DType, Operand};

/// How long a thread sleeps before it checks again whether a communicator is ready.
const PAUSE: Duration = Duration::from_micros(50);

/// NCCL lets GPUs of one process read each other's buffers directly. This is disabled, because segments are mapped for
/// their own GPU only, and because PyTorch's ranks are processes, which never read directly either.
const IN_PLACE: &str = "NCCL_P2P_DIRECT_DISABLE";

/// `ncclResult_t`, as a number because later versions have more values.
type Status = c_int;
const SUCCESS: Status = 0;
const IN_PROGRESS: Status = 7;

/// `ncclComm_t`.
type CommHandle = *mut c_void;

/// `ncclUniqueId`, by which the ranks of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclConfig_t` in the layout of NCCL 2.17. Later versions read as much of it as `size` tells.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    fewest_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
}

impl Config {
    /// The configuration of a communicator whose calls return before they are done.
    const fn nonblocking() -> Self {
        const MAGIC: c_uint = 0xcafe_beef;
        const VERSION: c_uint = 21_700;
        const UNDEFINED: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: VERSION,
            blocking: 0,
            cluster_size: UNDEFINED,
            fewest_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

type Reduction = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, CommHandle, CUstream) -> Status;

/// NCCL's functions, which stay loaded.
struct Functions {
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    init: unsafe extern "C" fn(*mut CommHandle, c_int, UniqueId, c_int, *mut Config) -> Status,
    abort: unsafe extern "C" fn(CommHandle) -> Status,
    async_error: unsafe extern "C" fn(CommHandle, *mut Status) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, CommHandle, CUstream) -> Status,
    all_reduce: Reduction,
    reduce_scatter: Reduction,
    reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, CommHandle, CUstream) -> Status,
    broadcast: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, CommHandle, CUstream) -> Status,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, CommHandle, CUstream) -> Status,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, CommHandle, CUstream) -> Status,
}

impl Functions {
    fn load() -> Result<Self, String> {
        libraries::load(LibraryKind::Nccl)?;
        if std::env::var_os(IN_PLACE).is_none() {
            // SAFETY: `cuda::prepare_ranks` runs this before any ranks exist; no other code of this program sets
            // variables.
            unsafe { std::env::set_var(IN_PLACE, "1") };
        }
        let told = |error: libloading::Error| format!("NCCL can't be used: {error}");
        // SAFETY: NVIDIA's library, opened before; its initialisers have run.
        let library = unsafe { Library::new(libraries::NCCL) }.map_err(told)?;
        // SAFETY: each has the type that nccl.h gives the function of this name, in every version 2.17 and later.
        let functions = unsafe {
            Self {
                get_unique_id: *library.get(b"ncclGetUniqueId").map_err(told)?,
                init: *library.get(b"ncclCommInitRankConfig").map_err(told)?,
                abort: *library.get(b"ncclCommAbort").map_err(told)?,
                async_error: *library.get(b"ncclCommGetAsyncError").map_err(told)?,
                error_string: *library.get(b"ncclGetErrorString").map_err(told)?,
                all_gather: *library.get(b"ncclAllGather").map_err(told)?,
                all_reduce: *library.get(b"ncclAllReduce").map_err(told)?,
                reduce_scatter: *library.get(b"ncclReduceScatter").map_err(told)?,
                reduce: *library.get(b"ncclReduce").map_err(told)?,
                broadcast: *library.get(b"ncclBroadcast").map_err(told)?,
                send: *library.get(b"ncclSend").map_err(told)?,
                receive: *library.get(b"ncclRecv").map_err(told)?,
            }
        };
        std::mem::forget(library);
        Ok(functions)
    }

    fn accept(&self, status: Status) -> Result<(), Refusal> {
        if matches!(status, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: NCCL answers every number with its own static text.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(refused(text.to_string_lossy().into_owned()))
    }
}

fn refused(status: String) -> Refusal {
    Refusal::Library { library: "NCCL", status }
}

fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::load).as_ref().map_err(Clone::clone)
}

/// Loads NCCL. Must run before threads of ranks exist.
///
/// # Errors
/// A sentence that names what is missing and the places that were searched.
pub fn prepare_ranks() -> Result<(), String> {
    functions().map(|_| ())
}

/// Creates a name for a new communicator, which all of its ranks receive.
pub(super) fn name() -> Result<Vec<u8>, Refusal> {
    let functions = functions().map_err(refused)?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: NCCL writes one name.
    functions.accept(unsafe { (functions.get_unique_id)(&raw mut id) })?;
    Ok(id.0.to_vec())
}

/// The handle, or `None` once the communicator was aborted.
struct Live(Option<CommHandle>);

// SAFETY: NCCL accepts a handle from any thread, one at a time, which the lock around it ensures.
unsafe impl Send for Live {}

/// One rank's communicator.
pub(super) struct Communicator {
    functions: &'static Functions,
    live: Mutex<Live>,
    size: usize,
    rank: usize,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl Communicator {
    /// Joins the communicator of that name as rank `rank` of `size`, in the current context, without waiting for the
    /// others.
    pub fn join(name: &[u8], size: usize, rank: usize) -> Result<Arc<Self>, Refusal> {
        let functions = functions().map_err(refused)?;
        let id = name.try_into().map(UniqueId).map_err(|_| refused("a name of another length".to_owned()))?;
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::nonblocking());
        let number = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        // SAFETY: NCCL reads the configuration, which it copies, and writes one handle.
        let status = unsafe { (functions.init)(&raw mut handle, number(size), id, number(rank), &raw mut config) };
        functions.accept(status)?;
        Ok(Arc::new(Self { functions, live: Mutex::new(Live(Some(handle))), size: size.max(1), rank }))
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `ask` with the handle if it is alive.
    fn with(&self, ask: impl FnOnce(CommHandle) -> Status) -> Result<(), Refusal> {
        match self.lock().0 {
            Some(handle) => self.functions.accept(ask(handle)),
            None => Err(refused("that another rank has ended".to_owned())),
        }
    }

    /// Waits until NCCL has accepted the last call. The lock is free in between, so that another thread can abort it.
    fn settle(&self) -> Result<(), Refusal> {
        loop {
            let mut status = SUCCESS;
            // SAFETY: the handle is alive; NCCL writes one status.
            self.with(|handle| unsafe { (self.functions.async_error)(handle, &raw mut status) })?;
            self.functions.accept(status)?;
            if status == SUCCESS {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Queues a collective on `stream`.
    pub fn run(&self, collective: &Collective, stream: Stream) -> Result<(), Refusal> {
        const SUM: c_int = 0;
        const AVERAGE: c_int = 4;
        let (functions, stream) = (self.functions, stream.raw());
        let peer = |rank: usize| c_int::try_from(rank).unwrap_or(c_int::MAX);
        self.settle()?;
        // SAFETY: for all calls, the handle is alive and the stream is of its device. The caller of `Device::launch`
        // guarantees that operands lie in live blocks, and stay there until the stream has finished with them.
        self.with(|comm| unsafe {
            match collective {
                Collective::AllGather(all) => {
                    let (start, count) = (pointer(all), all.len / self.size);
                    let before = usize::try_from(all.dtype.size()).unwrap_or_default() * count * self.rank;
                    let own = start.wrapping_byte_add(before);
                    (functions.all_gather)(own, start, count, dtype(all.dtype), comm, stream)
                }
                Collective::ReduceScatter { given, own } => (functions.reduce_scatter)(
                    pointer(given),
                    pointer(own),
                    own.len,
                    dtype(given.dtype),
                    AVERAGE,
                    comm,
                    stream,
                ),
                Collective::AllReduce(all) => {
                    (functions.all_reduce)(pointer(all), pointer(all), all.len, dtype(all.dtype), SUM, comm, stream)
                }
                Collective::Reduce { tensor, to } => {
                    let at = pointer(tensor);
                    (functions.reduce)(at, at, tensor.len, dtype(tensor.dtype), SUM, peer(*to), comm, stream)
                }
                Collective::Broadcast { tensor, from } => {
                    let at = pointer(tensor);
                    (functions.broadcast)(at, at, tensor.len, dtype(tensor.dtype), peer(*from), comm, stream)
                }
                Collective::Send { tensor, to } => {
                    (functions.send)(pointer(tensor), tensor.len, dtype(tensor.dtype), peer(*to), comm, stream)
                }
                Collective::Receive { tensor, from } => {
                    (functions.receive)(pointer(tensor), tensor.len, dtype(tensor.dtype), peer(*from), comm, stream)
                }
            }
        })?;
        self.settle()
    }
}

impl Abort for Communicator {
    fn abort(&self) {
        if let Some(handle) = self.lock().0.take() {
            // SAFETY: the handle is alive and can't be obtained any more.
            let _ = unsafe { (self.functions.abort)(handle) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

fn pointer(operand: &Operand) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(operand.address.0).unwrap_or_default())
}

/// `ncclDataType_t`.
const fn dtype(of: DType) -> c_int {
    match of {
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
        DType::E4M3 => 10,
        DType::E5M2 => 11,
    }
}
