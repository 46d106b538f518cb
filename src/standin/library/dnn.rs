//! cuDNN plans for itself: descriptors, heuristics and plans are the real library's, in its documented mode without a device.
//!
//! Where a program names its handle, the card's properties are put in instead. What needs no handle at all is not here, so that the
//! program calls NVIDIA's own. Executing a plan does nothing.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::attributes::{REGISTERS, SHARED_BLOCK, reserved_shared, value};
use crate::card::Card;
use crate::foreign::{get, put};
use crate::real::{self, Library};
use crate::{kernels, report};

static REAL: Library = Library::new(&[c"libcudnn.so.9"]);

/// CUDNN_STATUS_NOT_INITIALIZED.
const NOT_INITIALIZED: i32 = 1001;
/// Kinds of descriptors: an engine, an engine's heuristics, a device's properties.
const ENGINE: i32 = 2;
const HEURISTICS: i32 = 4;
const PROPERTIES: i32 = 38;
/// Attributes: where a graph and a plan name their handle, and where the three above take properties.
const GRAPH_HANDLE: i32 = 800;
const PLAN_HANDLE: i32 = 400;
const HEURISTICS_PROPERTIES: i32 = 204;
const ENGINE_PROPERTIES: i32 = 1307;
const PLAN_PROPERTIES: i32 = 407;
const PROPERTIES_JSON: i32 = 2702;
/// Types of attributes.
const CHARACTERS: i32 = 3;
const DESCRIPTOR: i32 = 15;

/// A function of the real library as one of this kind.
macro_rules! real {
    ($name:expr, fn($($kind:ty),*) -> $result:ty) => {
        REAL.function($name).map(|found| {
            // SAFETY: NVIDIA documents the function with these arguments.
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($kind),*) -> $result>(found) }
        })
    };
}

fn version() -> usize {
    real!(c"cudnnGetVersion", fn() -> usize).map_or(0, |ask| ask())
}

/// The card as cuDNN's JSON.
fn json(card: &Card) -> String {
    format!(
        concat!(
            r#"{{"cudnnVersion":{},"schemaVersion":1,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"#,
            r#""regsPerBlock":{},"multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":{},"#,
            r#""maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":{},"maxRegistersPerSM":{},"maxCtasPerSM":{},"#,
            r#""maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"#,
            r#""totalGlobalMem":{},"smClockRateKHz":{},"memClockRateKHz":{},"l2CacheSize":{},"cudaDeviceId":0,"deviceVer":{},"#,
            r#""driverVer":{},"deviceName":"{}"}}"#,
        ),
        version(),
        REGISTERS,
        card.multiprocessors,
        SHARED_BLOCK,
        card.shared_block,
        reserved_shared(card),
        REGISTERS,
        card.blocks,
        card.threads,
        card.memory,
        value(card, 13, 0),
        value(card, 36, 0),
        card.l2,
        card.capability * 10,
        real::driver_version(),
        card.title.replace(['"', '\\'], " "),
    )
}

/// The properties as a descriptor; none, where this cuDNN takes none.
fn properties() -> Option<u64> {
    static MADE: OnceLock<Option<u64>> = OnceLock::new();
    *MADE.get_or_init(|| {
        let json = json(Card::get()?);
        let mut made = 0_u64;
        let create = real!(c"cudnnBackendCreateDescriptor", fn(i32, *mut u64) -> i32)?;
        let finalize = real!(c"cudnnBackendFinalize", fn(u64) -> i32)?;
        let created = create(PROPERTIES, &mut made);
        let set = set(made, PROPERTIES_JSON, CHARACTERS, json.len() as i64, json.as_ptr().cast());
        let code = [created, set, finalize(made)].into_iter().find(|code| *code != 0);
        if let Some(code) = code {
            eprintln!(
                "vramlab: cuDNN {} plans nothing without a device (it says {code}): convolutions fail here.",
                version()
            );
        }
        code.is_none().then_some(made)
    })
}

fn set(descriptor: u64, name: i32, kind: i32, count: i64, values: *const c_void) -> i32 {
    let set = real!(c"cudnnBackendSetAttribute", fn(u64, i32, i32, i64, *const c_void) -> i32);
    set.map_or(NOT_INITIALIZED, |set| set(descriptor, name, kind, count, values))
}

fn set_properties(descriptor: u64, name: i32) -> i32 {
    let Some(properties) = properties() else { return NOT_INITIALIZED };
    set(descriptor, name, DESCRIPTOR, 1, (&raw const properties).cast())
}

/// The kind of each descriptor that the program has.
static KINDS: Mutex<Option<HashMap<u64, i32>>> = Mutex::new(None);

fn kinds<T>(act: impl FnOnce(&mut HashMap<u64, i32>) -> T) -> T {
    act(KINDS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

/// What is said of a plan that is not made.
fn tell_failure(kind: Option<i32>, code: i32) {
    let mut text = [0_u8; 2048];
    if let Some(ask) = real!(c"cudnnGetLastErrorString", fn(*mut u8, usize) -> ()) {
        ask(text.as_mut_ptr(), text.len());
    }
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
    eprintln!("vramlab: cuDNN refuses a descriptor of kind {kind:?}: {code} {text}");
}

/// A handle: the stream that it was given.
static STREAMS: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);
const FIRST: u64 = 0x5800_0000_0000;

fn streams<T>(act: impl FnOnce(&mut HashMap<u64, u64>) -> T) -> T {
    act(STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

entries! {
    fn cudnnCreate(place: *mut u64) -> i32 {
        streams(|streams| {
            let handle = FIRST + (streams.len() as u64 + 1) * 256;
            streams.insert(handle, 0);
            put(place, handle);
        });
        0
    }
    fn cudnnDestroy(_handle: u64) -> i32 { 0 }
    fn cudnnSetStream(handle: u64, stream: u64) -> i32 {
        streams(|streams| streams.insert(handle, stream));
        0
    }
    fn cudnnGetStream(handle: u64, stream: *mut u64) -> i32 {
        put(stream, streams(|streams| streams.get(&handle).copied().unwrap_or(0)));
        0
    }
    fn cudnnBackendCreateDescriptor(kind: i32, place: *mut u64) -> i32 {
        let Some(create) = real!(c"cudnnBackendCreateDescriptor", fn(i32, *mut u64) -> i32) else { return NOT_INITIALIZED };
        let code = create(kind, place);
        if let (0, Some(made)) = (code, get(place)) {
            kinds(|kinds| kinds.insert(made, kind));
        }
        code
    }
    fn cudnnBackendDestroyDescriptor(descriptor: u64) -> i32 {
        kinds(|kinds| kinds.remove(&descriptor));
        real!(c"cudnnBackendDestroyDescriptor", fn(u64) -> i32).map_or(NOT_INITIALIZED, |destroy| destroy(descriptor))
    }
    fn cudnnBackendSetAttribute(descriptor: u64, name: i32, kind: i32, count: i64, values: *const c_void) -> i32 {
        match name {
            GRAPH_HANDLE => 0,
            PLAN_HANDLE => set_properties(descriptor, PLAN_PROPERTIES),
            _ => set(descriptor, name, kind, count, values),
        }
    }
    fn cudnnBackendFinalize(descriptor: u64) -> i32 {
        let kind = kinds(|kinds| kinds.get(&descriptor).copied());
        match kind {
            Some(HEURISTICS) => drop(set_properties(descriptor, HEURISTICS_PROPERTIES)),
            Some(ENGINE) => drop(set_properties(descriptor, ENGINE_PROPERTIES)),
            _ => {}
        }
        let Some(finalize) = real!(c"cudnnBackendFinalize", fn(u64) -> i32) else { return NOT_INITIALIZED };
        let code = finalize(descriptor);
        if code != 0 && report::is_told() {
            tell_failure(kind, code);
        }
        code
    }
    fn cudnnBackendGetAttribute(descriptor: u64, name: i32, kind: i32, wanted: i64, count: *mut i64, values: *mut c_void) -> i32 {
        let ask = real!(c"cudnnBackendGetAttribute", fn(u64, i32, i32, i64, *mut i64, *mut c_void) -> i32);
        ask.map_or(NOT_INITIALIZED, |ask| ask(descriptor, name, kind, wanted, count, values))
    }
    fn cudnnBackendExecute(_handle: u64, _plan: u64, _pack: u64) -> i32 {
        kernels::launched(1);
        0
    }
    /// Measured on an H200: states of dropout's generators.
    fn cudnnDropoutGetStatesSize(_handle: u64, bytes: *mut usize) -> i32 {
        put(bytes, 1_638_400);
        0
    }
}
