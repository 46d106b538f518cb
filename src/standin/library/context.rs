//! Contexts, of which each device has exactly one, and the last error of each thread.

use std::cell::Cell;

use crate::audit;
use crate::codes::{Code, INVALID_CONTEXT, INVALID_VALUE, SUCCESS, of};
use crate::foreign::put;
use crate::store::{self, checked};

/// The handle of the first device's context; it points to nothing.
const FIRST: u64 = 0x1000;

thread_local! {
    static LAST_ERROR: Cell<Code> = const { Cell::new(SUCCESS) };
    /// Whether the program has told the driver which context is current.
    static CHOSEN: Cell<bool> = const { Cell::new(false) };
}

/// Stores a failure as the thread's last error, as the runtime does.
pub fn noted(code: Code) -> Code {
    if code != SUCCESS {
        LAST_ERROR.with(|last| last.set(code));
    }
    code
}

/// The handle of a device's context.
pub fn handle(device: usize) -> u64 {
    FIRST + device as u64
}

fn device_of(context: u64) -> Option<usize> {
    let device = context.checked_sub(FIRST)? as usize;
    (device < store::count()).then_some(device)
}

/// Makes this thread use a device, and creates its context, as the runtime does.
fn choose(device: usize) -> Code {
    store::use_device(device);
    CHOSEN.with(|chosen| chosen.set(true));
    of(store::lock().device(device).map(|_| ()))
}

/// The current context: every thread that used the runtime has one.
fn current() -> Option<u64> {
    let chosen = CHOSEN.with(Cell::get) || store::lock().has_context(store::current());
    chosen.then(|| handle(store::current()))
}

entries! {
    fn cudaGetLastError() -> Code { LAST_ERROR.with(|last| last.replace(SUCCESS)) }
    fn cudaPeekAtLastError() -> Code { LAST_ERROR.with(Cell::get) }
    fn cudaGetDeviceCount(count: *mut i32) -> Code {
        audit::once();
        put(count, store::count() as i32);
        noted(if store::count() == 0 { crate::codes::NO_DEVICE } else { SUCCESS })
    }
    fn cudaGetDevice(device: *mut i32) -> Code {
        put(device, store::current() as i32);
        SUCCESS
    }
    fn cudaSetDevice(device: i32) -> Code { noted(checked(device).map_or_else(|code| code, choose)) }
    fn cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) -> Code {
        noted(of(checked(device).and_then(|device| store::lock().device(device).map(|_| ()))))
    }
    fn cudaChooseDevice(device: *mut i32, _properties: u64) -> Code {
        put(device, 0);
        SUCCESS
    }

    fn cuInit(_flags: u32) -> Code { if store::count() == 0 { crate::codes::NO_DEVICE } else { SUCCESS } }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) -> Code {
        of(checked(device).map(|device| {
            put(flags, 0);
            put(active, i32::from(store::lock().has_context(device)));
        }))
    }
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> Code {
        of(checked(device).and_then(|device| store::lock().device(device).map(|_| put(context, handle(device)))))
    }
    fn cuCtxCreate_v2(context: *mut u64, _flags: u32, device: i32) -> Code { create(context, device) }
    fn cuCtxCreate_v3(context: *mut u64, _affinity: u64, _affinities: i32, _flags: u32, device: i32) -> Code { create(context, device) }
    fn cuCtxCreate_v4(context: *mut u64, _parameters: u64, _flags: u32, device: i32) -> Code { create(context, device) }
    fn cuCtxGetCurrent(context: *mut u64) -> Code {
        put(context, current().unwrap_or(0));
        SUCCESS
    }
    fn cuCtxSetCurrent(context: u64) -> Code {
        if context == 0 {
            CHOSEN.with(|chosen| chosen.set(false));
            return SUCCESS;
        }
        device_of(context).map_or(INVALID_CONTEXT, choose)
    }
    fn cuCtxPushCurrent_v2(context: u64) -> Code { device_of(context).map_or(INVALID_CONTEXT, choose) }
    fn cuCtxPopCurrent_v2(context: *mut u64) -> Code {
        put(context, current().unwrap_or(0));
        SUCCESS
    }
    fn cuCtxPushCurrent(context: u64) -> Code { cuCtxPushCurrent_v2(context) }
    fn cuCtxPopCurrent(context: *mut u64) -> Code { cuCtxPopCurrent_v2(context) }
    fn cuCtxGetDevice(device: *mut i32) -> Code {
        put(device, store::current() as i32);
        SUCCESS
    }
    fn cuCtxGetDevice_v2(device: *mut i32, context: u64) -> Code {
        let Some(of_context) = device_of(context) else { return INVALID_CONTEXT };
        put(device, of_context as i32);
        SUCCESS
    }
    fn cuCtxGetApiVersion(_context: u64, version: *mut u32) -> Code {
        put(version, 3020);
        SUCCESS
    }
    fn cuCtxGetId(context: u64, number: *mut u64) -> Code {
        put(number, context);
        SUCCESS
    }
    fn cuCtxGetFlags(flags: *mut u32) -> Code {
        put(flags, 0);
        SUCCESS
    }
    fn cuStreamGetCtx(_stream: u64, context: *mut u64) -> Code {
        put(context, handle(store::current()));
        SUCCESS
    }
    fn cuStreamGetCtx_v2(_stream: u64, context: *mut u64, green: *mut u64) -> Code {
        put(context, handle(store::current()));
        put(green, 0);
        SUCCESS
    }
    fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> Code {
        put(least, 0);
        put(greatest, -5);
        SUCCESS
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> Code { cudaDeviceGetStreamPriorityRange(least, greatest) }
    fn cudaDeviceGetLimit(value: *mut usize, limit: i32) -> Code {
        put(value, of_limit(limit));
        SUCCESS
    }
    fn cuCtxGetLimit(value: *mut usize, limit: i32) -> Code { cudaDeviceGetLimit(value, limit) }
    fn cudaDeviceSetLimit(_limit: i32, _value: usize) -> Code { SUCCESS }
    fn cudaGetDeviceFlags(flags: *mut u32) -> Code {
        put(flags, 0);
        SUCCESS
    }
}

fn create(context: *mut u64, device: i32) -> Code {
    if context.is_null() {
        return INVALID_VALUE;
    }
    checked(device).map_or_else(
        |code| code,
        |device| {
            put(context, handle(device));
            choose(device)
        },
    )
}

/// The documented defaults, in bytes: a thread's stack, printf's buffer, the device's heap.
fn of_limit(limit: i32) -> usize {
    match limit {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        _ => 0,
    }
}
