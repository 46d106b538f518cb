//! The driver's calls that the device uses, as safe functions on handles that only this module creates.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::fmt;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::grid::Grid;
use crate::process::Inside;
use vramlab_allocator::units::{Address, Bytes};

/// The driver refused a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DriverFailure(DriverError);

impl DriverFailure {
    /// True if the device is lost, so that every further call fails.
    pub fn lost(self) -> bool {
        use sys::CUresult as Code;
        matches!(
            self.0.0,
            Code::CUDA_ERROR_DEVICE_UNAVAILABLE
                | Code::CUDA_ERROR_NO_DEVICE
                | Code::CUDA_ERROR_ECC_UNCORRECTABLE
                | Code::CUDA_ERROR_NVLINK_UNCORRECTABLE
                | Code::CUDA_ERROR_ILLEGAL_ADDRESS
                | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | Code::CUDA_ERROR_MISALIGNED_ADDRESS
                | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | Code::CUDA_ERROR_INVALID_PC
                | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
                | Code::CUDA_ERROR_LAUNCH_FAILED
                | Code::CUDA_ERROR_LAUNCH_TIMEOUT
                | Code::CUDA_ERROR_ASSERT
                | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | Code::CUDA_ERROR_DEINITIALIZED
                | Code::CUDA_ERROR_SYSTEM_NOT_READY
                | Code::CUDA_ERROR_UNKNOWN
        )
    }
}

impl From<DriverError> for DriverFailure {
    fn from(error: DriverError) -> Self {
        Self(error)
    }
}

impl fmt::Debug for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.error_string().map(|text| text.to_string_lossy()).unwrap_or_default();
        let name = self.0.error_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        write!(f, "the driver answers {name} ({text})")
    }
}

impl std::error::Error for DriverFailure {}

/// A stream of the current context. Its creator destroys it when nothing is launched on it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(sys::CUstream);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new() -> Result<Self, DriverFailure> {
        Ok(Self(result::stream::create(result::stream::StreamKind::NonBlocking)?))
    }

    pub fn raw(self) -> sys::CUstream {
        self.0
    }

    pub fn synchronize(self) -> Result<(), DriverFailure> {
        // SAFETY: the holder of the stream has not destroyed it.
        Ok(unsafe { result::stream::synchronize(self.0) }?)
    }

    /// Destroys the stream after its work has ended. No copy of the handle may be used after that.
    pub fn destroy(self) {
        // SAFETY: the caller guarantees it.
        let _ = unsafe { result::stream::destroy(self.0) };
    }

    /// Makes later work wait for `event`; the host does not wait.
    pub fn wait(self, event: &Event) -> Result<(), DriverFailure> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        Ok(unsafe { result::stream::wait_event(self.0, event.0, flags) }?)
    }
}

/// An event. It can be recorded again once its last mark is no longer needed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event(sys::CUevent);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event. [`Event::since`] only works with `timing`; without it, recording costs less.
    pub fn new(timing: bool) -> Result<Self, DriverFailure> {
        let flags =
            if timing { sys::CUevent_flags::CU_EVENT_DEFAULT } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING };
        Ok(Self(result::event::create(flags)?))
    }

    pub fn record(&self, stream: Stream) -> Result<(), DriverFailure> {
        // SAFETY: both are alive.
        Ok(unsafe { result::event::record(self.0, stream.0) }?)
    }

    /// True if all work before the event is done.
    pub fn is_done(&self) -> Result<bool, DriverFailure> {
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.0) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub fn synchronize(&self) -> Result<(), DriverFailure> {
        // SAFETY: the event is alive.
        Ok(unsafe { result::event::synchronize(self.0) }?)
    }

    /// Milliseconds of device time since `earlier`. Both events must have been reached.
    pub fn since(&self, earlier: &Self) -> Result<f32, DriverFailure> {
        // SAFETY: both are alive.
        Ok(unsafe { result::event::elapsed(earlier.0, self.0) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is alive and not used again; the driver keeps it while work on it is in progress.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Function(sys::CUfunction);

/// A loaded cubin, unloaded when dropped: its functions must not be launched after that.
#[derive(Debug)]
pub(crate) struct Module(sys::CUmodule);

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module is loaded; the holder of its functions is dropped with it. The driver waits for running
        // kernels.
        let _ = unsafe { result::module::unload(self.0) };
    }
}

impl Module {
    /// Loads machine code for the current device.
    pub fn load(image: &[u8]) -> Result<Self, DriverFailure> {
        // SAFETY: the driver reads the image's own length and checks it; it is copied.
        Ok(Self(unsafe { result::module::load_data(image.as_ptr().cast()) }?))
    }

    /// The kernel of that name; `None` if this module does not contain it.
    pub fn function(&self, name: &str) -> Result<Option<Function>, DriverFailure> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        // SAFETY: the module is loaded.
        match unsafe { result::module::get_function(self.0, name) } {
            Ok(function) => Ok(Some(Function(function))),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Function {
    /// Permits blocks of the function up to `bytes` of dynamic shared memory.
    pub fn permit_shared(self, bytes: u32) -> Result<(), DriverFailure> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let set = unsafe { sys::cuFuncSetAttribute(self.0, attribute, i32::try_from(bytes).unwrap_or(i32::MAX)) };
        Ok(set.result()?)
    }
}

/// Launches `function`. `arguments` points to one value for each of its parameters, at least of the parameter's size.
pub(crate) fn launch(
    function: Function,
    grid: Grid,
    stream: Stream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverFailure> {
    let [x, y, z] = grid.blocks;
    // SAFETY: the module stays loaded as long as `Modules` hands out its functions; the driver copies the arguments
    // before it returns. The caller of `Device::launch` guarantees that the pointers among them are of live blocks.
    let launched =
        unsafe { result::launch_kernel(function.0, (x, y, z), (grid.threads, 1, 1), grid.shared, stream.0, arguments) };
    Ok(launched?)
}

/// Allocates device memory (cuMemAlloc).
pub(crate) fn allocate(bytes: Bytes) -> Result<Address, DriverFailure> {
    // SAFETY: a context is current.
    let address = unsafe { result::malloc_sync(usize::try_from(bytes.get()).unwrap_or(usize::MAX)) }?;
    Ok(Address(address))
}

/// Frees memory from [`allocate`].
pub(crate) fn free(address: Address) -> Result<(), DriverFailure> {
    // SAFETY: the address came from `allocate`; the driver waits for kernels that use it.
    Ok(unsafe { result::free_sync(address.0) }?)
}

/// Free and total memory of the device.
pub(crate) fn memory() -> Result<(Bytes, Bytes), DriverFailure> {
    let (free, total) = result::mem_get_info()?;
    Ok((Bytes(free as u64), Bytes(total as u64)))
}

/// Queues a copy to the device. If `from` is not page-locked, the call waits until the copy has been staged.
pub(crate) fn upload(from: &[u8], to: Address, stream: Stream) -> Result<(), DriverFailure> {
    // SAFETY: the target is a live block of that size, as `Device`'s copies demand; a page-locked source stays as it is
    // until an event tells that the copy is over, as `Device::copy_pinned` demands.
    Ok(unsafe { result::memcpy_htod_async(to.0, from, stream.0) }?)
}

/// Queues a copy to the host, the reverse of [`upload`].
pub(crate) fn download(from: Address, to: &mut [u8], stream: Stream) -> Result<(), DriverFailure> {
    // SAFETY: as for `upload`.
    Ok(unsafe { result::memcpy_dtoh_async(to, from.0, stream.0) }?)
}

/// Allocates unified memory, not initialised.
pub(crate) fn take_managed(bytes: Bytes) -> Result<Address, DriverFailure> {
    let size = usize::try_from(bytes.get()).unwrap_or(usize::MAX).max(1);
    // SAFETY: nobody reads it before a kernel or a copy has written it.
    let taken = unsafe { result::malloc_managed(size, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL) }?;
    Ok(Address(taken))
}

/// Frees memory from [`take_managed`].
pub(crate) fn give_managed(address: Address) -> Result<(), DriverFailure> {
    // SAFETY: it was taken by `take_managed`, and no work that reaches it is under way.
    Ok(unsafe { result::free_sync(address.0) }?)
}

/// Page-locks host memory, so that copies from it do not block.
pub(crate) fn lock_host(address: Address, bytes: Bytes) -> Result<(), DriverFailure> {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address.0).unwrap_or_default());
    // SAFETY: the pages belong to a mapping of this process that outlives the lock.
    let locked = unsafe { sys::cuMemHostRegister_v2(start, usize::try_from(bytes.get()).unwrap_or_default(), 0) };
    Ok(locked.result()?)
}

/// Undoes [`lock_host`].
pub(crate) fn unlock_host(address: Address) -> Result<(), DriverFailure> {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address.0).unwrap_or_default());
    // SAFETY: the pages were locked by `lock_host`.
    Ok(unsafe { sys::cuMemHostUnregister(start) }.result()?)
}

/// Properties of the device.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub ordinal: u32,
    pub name: String,
    /// Compute capability, major times ten plus minor.
    pub capability: u32,
    pub multiprocessors: u32,
}

/// A device's primary context, current on the thread that entered it, and retained as long as this value exists.
#[derive(Debug)]
pub(crate) struct Context {
    device: sys::CUdevice,
    _inside: Inside,
}

impl Context {
    /// Initialises the driver and makes the context of GPU `ordinal` current on this thread.
    pub fn enter(ordinal: u32) -> Result<Self, DriverFailure> {
        let inside = Inside::enter();
        result::init()?;
        let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
        // SAFETY: the device comes from the driver.
        let context = unsafe { result::primary_ctx::retain(device) }?;
        let entered = Self { device, _inside: inside };
        // SAFETY: the context has just been retained.
        unsafe { result::ctx::set_current(context) }?;
        Ok(entered)
    }
}

// SAFETY: the device's number, which any thread may release.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was retained once for this value. Handles created in it were dropped before.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// The properties of a context's device.
pub(crate) fn properties(context: &Context, ordinal: u32) -> Result<Properties, DriverFailure> {
    let device = context.device;
    let attribute = |which| -> Result<u32, DriverFailure> {
        // SAFETY: the device comes from the driver.
        let value = unsafe { result::device::get_attribute(device, which) }?;
        Ok(u32::try_from(value).unwrap_or_default())
    };
    use sys::CUdevice_attribute as Attribute;
    Ok(Properties {
        ordinal,
        name: result::device::get_name(device)?,
        capability: 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

/// The UUID of a visible GPU, in the form that NVIDIA's tools write after `GPU-`. The driver must be present.
pub(crate) fn uuid(ordinal: u32) -> Result<String, DriverFailure> {
    result::init()?;
    let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
    let bytes = result::device::get_uuid(device)?.bytes;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", byte.cast_unsigned()));
    }
    Ok(text)
}

/// Ranges of device addresses whose pages are mapped one by one.
pub(crate) mod pages {
    use super::*;

    /// Physical memory of the device, for one mapping.
    #[derive(Debug)]
    pub struct Page(sys::CUmemGenericAllocationHandle);

    fn properties(ordinal: u32) -> sys::CUmemAllocationProp {
        // SAFETY: all of its fields may be zero.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device_number(ordinal);
        properties
    }

    fn device_number(ordinal: u32) -> i32 {
        i32::try_from(ordinal).unwrap_or_default()
    }

    /// Reserves addresses (cuMemAddressReserve).
    pub fn reserve(size: Bytes) -> Result<Address, DriverFailure> {
        let mut address = 0;
        // SAFETY: the driver writes one address.
        unsafe { sys::cuMemAddressReserve(&raw mut address, length(size), 0, 0, 0) }.result()?;
        Ok(Address(address))
    }

    /// Releases reserved addresses.
    pub fn release(address: Address, size: Bytes) -> Result<(), DriverFailure> {
        // SAFETY: the range came from `reserve` and nothing is mapped in it.
        Ok(unsafe { sys::cuMemAddressFree(address.0, length(size)) }.result()?)
    }

    /// Maps memory to `[address, address + size)` that this device may read and write.
    pub fn map(address: Address, size: Bytes, ordinal: u32) -> Result<Page, DriverFailure> {
        let (mut handle, properties) = (0, properties(ordinal));
        // SAFETY: the driver reads the properties and writes one handle.
        unsafe { sys::cuMemCreate(&raw mut handle, length(size), &raw const properties, 0) }.result()?;
        let page = Page(handle);
        // SAFETY: the range is reserved and not mapped, as the allocator keeps account.
        unsafe { sys::cuMemMap(address.0, length(size), 0, page.0, 0) }.result()?;
        // SAFETY: all of its fields may be zero.
        let mut access: sys::CUmemAccessDesc = unsafe { std::mem::zeroed() };
        access.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device_number(ordinal);
        access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        // SAFETY: the range has just been mapped.
        let permitted = unsafe { sys::cuMemSetAccess(address.0, length(size), &raw const access, 1) }.result();
        if let Err(error) = permitted {
            // SAFETY: as above.
            let _ = unsafe { sys::cuMemUnmap(address.0, length(size)) };
            return Err(error.into());
        }
        Ok(page)
    }

    /// Unmaps the memory.
    pub fn unmap(address: Address, size: Bytes) -> Result<(), DriverFailure> {
        // SAFETY: the range is mapped as a whole page, and the caller has waited for all work that uses it.
        Ok(unsafe { sys::cuMemUnmap(address.0, length(size)) }.result()?)
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the handle came from cuMemCreate; memory still mapped stays until it is unmapped.
            let _ = unsafe { sys::cuMemRelease(self.0) };
        }
    }

    fn length(bytes: Bytes) -> usize {
        usize::try_from(bytes.get()).unwrap_or(usize::MAX)
    }
}
