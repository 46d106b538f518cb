//! Kernels: they have names, launches are counted, and no kernel ever runs.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use crate::codes::{Code, INVALID_VALUE, NOT_FOUND, SUCCESS};
use crate::context::noted;
use crate::foreign::{get, put};
use crate::store::{self, Device};
use crate::{costs, launches, watchdog};

/// Launches this many kernels on a stream, which take `time` together. Afterwards the contents of device memory are
/// unknown.
pub fn launched(stream: u64, count: u64, time: u64) {
    if count == 0 {
        return;
    }
    let before = launches::add(count);
    let mut state = store::lock();
    if before < Device::LOADS_MORE || store::is_touched() {
        state.shadow.launched();
        if let Ok(device) = state.current() {
            device.launched(count);
        }
    }
    state.put_on(stream, time);
    watchdog::host_went_on(state);
}

/// Launches a kernel of the program's own.
fn launch(stub: u64, grid: Dim3, block: Dim3, stream: u64) -> Code {
    launches::set_last(stub);
    let (blocks, threads) = (grid.count(), block.count());
    let kind = launches::kind(stub);
    if kind.loads {
        store::lock().clock.work(costs::LOADING);
    }
    let all = blocks.saturating_mul(threads);
    launched(stream, 1, if kind.works_on_lists { costs::of_chunks(blocks) } else { costs::of_threads(all) });
    SUCCESS
}

/// dim3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl Dim3 {
    fn count(self) -> u64 {
        [self.x, self.y, self.z].iter().map(|size| u64::from(*size)).product()
    }
}

/// The beginning of cudaLaunchConfig_t.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Launch {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
}

/// The beginning of CUlaunchConfig.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DriverLaunch {
    grid: Dim3,
    block: Dim3,
    shared: u32,
    stream: u64,
}

/// The arguments of `<<<grid, block, shared, stream>>>`, kept until the kernel's stub fetches them.
type Configuration = (Dim3, Dim3, usize, u64);

thread_local! {
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// A handle for loaded code; nobody reads what it points to.
fn code() -> u64 {
    static HANDLE: OnceLock<Box<[u64; 8]>> = OnceLock::new();
    HANDLE.get_or_init(|| Box::new([0; 8])).as_ptr() as u64
}

entries! {
    /// The address of a module's handle identifies the module.
    fn __cudaRegisterFatBinary(_binary: u64) -> u64 { Box::into_raw(Box::new([0_u64; 8])) as u64 }
    fn __cudaRegisterFatBinaryEnd(_handle: u64) {}
    fn __cudaUnregisterFatBinary(_handle: u64) {}
    fn __cudaInitModule(_handle: u64) -> u8 { 0 }
    fn __cudaRegisterFunction(module: u64, stub: u64, _function: u64, name: u64, _limit: i32, _tid: u64, _bid: u64, _block: u64, _grid: u64, _warp: u64) {
        launches::register(module, stub, name);
    }
    fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: u64) -> u32 {
        PUSHED.with_borrow_mut(|pushed| pushed.push((grid, block, shared, stream)));
        0
    }
    fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut u64) -> Code {
        let Some((of_grid, of_block, of_shared, of_stream)) = PUSHED.with_borrow_mut(Vec::pop) else { return INVALID_VALUE };
        put(grid, of_grid);
        put(block, of_block);
        put(shared, of_shared);
        put(stream, of_stream);
        SUCCESS
    }
    fn __cudaGetKernel(kernel: *mut u64, stub: u64) -> Code {
        put(kernel, stub);
        SUCCESS
    }
    fn __cudaLaunchKernel(kernel: u64, grid: Dim3, block: Dim3, _arguments: u64, _shared: usize, stream: u64) -> Code {
        launch(kernel, grid, block, stream)
    }
    fn cudaLaunchKernel(stub: u64, grid: Dim3, block: Dim3, _arguments: u64, _shared: usize, stream: u64) -> Code {
        launch(stub, grid, block, stream)
    }
    fn cudaLaunchKernelExC(configuration: *const Launch, stub: u64, _arguments: u64) -> Code {
        let given = get(configuration).unwrap_or_default();
        launch(stub, given.grid, given.block, given.stream)
    }
    fn cudaLaunchCooperativeKernel(stub: u64, grid: Dim3, block: Dim3, _arguments: u64, _shared: usize, stream: u64) -> Code {
        launch(stub, grid, block, stream)
    }
    fn cudaGetFuncBySymbol(function: *mut u64, stub: u64) -> Code {
        put(function, stub);
        SUCCESS
    }
    fn cudaGetKernel(kernel: *mut u64, stub: u64) -> Code {
        put(kernel, stub);
        SUCCESS
    }
    fn cudaFuncGetName(place: *mut u64, stub: u64) -> Code {
        let found = launches::name(stub).map(|name| name.as_ptr() as u64);
        put(place, found.unwrap_or(c"".as_ptr() as u64));
        if found.is_some() { SUCCESS } else { noted(NOT_FOUND) }
    }
    fn cudaGetSymbolAddress(place: *mut u64, _symbol: u64) -> Code {
        noted(crate::codes::of(store::lock().current().map(|device| put(place, device.space.of_symbols()))))
    }
    fn cudaGetSymbolSize(size: *mut usize, _symbol: u64) -> Code {
        put(size, 8);
        SUCCESS
    }

    fn cuLaunchKernel(function: u64, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, _shared: u32, stream: u64, _arguments: u64, _extra: u64) -> Code {
        launch(function, Dim3 { x, y, z }, Dim3 { x: bx, y: by, z: bz }, stream)
    }
    fn cuLaunchKernelEx(configuration: *const DriverLaunch, function: u64, _arguments: u64, _extra: u64) -> Code {
        let given = get(configuration).unwrap_or_default();
        launch(function, given.grid, given.block, given.stream)
    }
    fn cuLaunchCooperativeKernel(function: u64, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, _shared: u32, stream: u64, _arguments: u64) -> Code {
        launch(function, Dim3 { x, y, z }, Dim3 { x: bx, y: by, z: bz }, stream)
    }
    fn cuModuleLoad(module: *mut u64, _name: u64) -> Code { loaded(module) }
    fn cuModuleLoadData(module: *mut u64, _image: u64) -> Code { loaded(module) }
    fn cuModuleLoadDataEx(module: *mut u64, _image: u64, _options: u32, _names: u64, _values: u64) -> Code { loaded(module) }
    fn cuModuleLoadFatBinary(module: *mut u64, _image: u64) -> Code { loaded(module) }
    fn cuModuleGetFunction(function: *mut u64, _module: u64, _name: u64) -> Code { loaded(function) }
    fn cuModuleGetFunctionCount(count: *mut u32, _module: u64) -> Code {
        put(count, 1);
        SUCCESS
    }
    fn cuModuleGetGlobal_v2(address: *mut u64, size: *mut usize, _module: u64, _name: u64) -> Code { symbol(address, size) }
    fn cuModuleGetLoadingMode(mode: *mut i32) -> Code {
        put(mode, 2);
        SUCCESS
    }
    fn cuLibraryLoadData(library: *mut u64, _code: u64, _options: u64, _values: u64, _count: u32, _more: u64, _more_values: u64, _more_count: u32) -> Code { loaded(library) }
    fn cuLibraryLoadFromFile(library: *mut u64, _name: u64, _options: u64, _values: u64, _count: u32, _more: u64, _more_values: u64, _more_count: u32) -> Code { loaded(library) }
    fn cuLibraryGetKernel(kernel: *mut u64, _library: u64, _name: u64) -> Code { loaded(kernel) }
    fn cuLibraryGetModule(module: *mut u64, _library: u64) -> Code { loaded(module) }
    fn cuLibraryGetGlobal(address: *mut u64, size: *mut usize, _library: u64, _name: u64) -> Code { symbol(address, size) }
    fn cuKernelGetFunction(function: *mut u64, _kernel: u64) -> Code { loaded(function) }
    fn cuKernelGetName(name: *mut *const c_char, _kernel: u64) -> Code {
        put(name, c"kernel".as_ptr());
        SUCCESS
    }
    fn cuFuncGetName(name: *mut *const c_char, _function: u64) -> Code {
        put(name, c"kernel".as_ptr());
        SUCCESS
    }
    fn cuFuncGetModule(module: *mut u64, _function: u64) -> Code { loaded(module) }
    fn cuLinkCreate_v2(_count: u32, _options: u64, _values: u64, state: *mut u64) -> Code { loaded(state) }
    fn cuLinkComplete(_state: u64, cubin: *mut *const c_void, size: *mut usize) -> Code {
        put(cubin, c"".as_ptr().cast());
        put(size, 1);
        SUCCESS
    }
}

/// Code is accepted unread: none of it will run.
fn loaded(place: *mut u64) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    put(place, code());
    SUCCESS
}

fn symbol(address: *mut u64, size: *mut usize) -> Code {
    crate::codes::of(store::lock().device(store::current()).map(|device| {
        put(address, device.space.of_symbols());
        put(size, 8);
    }))
}
