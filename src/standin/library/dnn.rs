//! cuDNN makes its plans itself: descriptors, heuristics and plans are the real library's, in its documented mode
//! without a device.
//!
//! If a program sets a cuDNN handle in a descriptor, the card's properties are set instead. Functions that need no
//! handle are not defined here, so the program calls NVIDIA's own. Executing a plan does nothing.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::attributes::{REGISTERS, SHARED_BLOCK, reserved_shared, value};
use crate::card::Card;
use crate::foreign::{get, put};
use crate::placement::DeviceLibrary;
use crate::plans::{self, Plan, WorkspaceSource};
use crate::{costs, kernels, real, report, store};

/// CUDNN_STATUS_NOT_INITIALIZED.
const NOT_INITIALIZED: i32 = 1001;
/// Types of descriptors: engine, engine configuration, engine heuristics, plan, knob choice, device properties.
const ENGINE: i32 = 2;
const CONFIGURATION: i32 = 3;
const HEURISTICS: i32 = 4;
const PLAN: i32 = 5;
const CHOICE: i32 = 7;
const PROPERTIES: i32 = 38;
/// Attributes: where a graph and a plan have their handle, and where the other three have device properties.
const GRAPH_HANDLE: i32 = 800;
const PLAN_HANDLE: i32 = 400;
const HEURISTICS_PROPERTIES: i32 = 204;
const ENGINE_PROPERTIES: i32 = 1307;
const PLAN_PROPERTIES: i32 = 407;
const PROPERTIES_JSON: i32 = 2702;
/// Attributes: the parts of a configuration, of a choice, and of a plan.
const CONFIGURATION_ENGINE: i32 = 300;
const CONFIGURATION_CHOICES: i32 = 302;
const CHOICE_KIND: i32 = 600;
const CHOICE_VALUE: i32 = 601;
const PLAN_CONFIGURATION: i32 = 401;
const PLAN_WORKSPACE: i32 = 402;
const PLAN_JSON: i32 = 405;
/// Types of attributes.
const INTEGERS: i32 = 3;
const KINDS_OF_CHOICES: i32 = 9;
const DESCRIPTOR: i32 = 15;
const CHARACTERS: i32 = 24;

/// From this many bytes on, a workspace contains copies of tensors, in addition to cuBLASLt's workspace.
const LEAST_COPY: u64 = 1024;

fn version() -> usize {
    real!(c"cudnnGetVersion", fn() -> usize).map_or(0, |ask| ask())
}

/// The card in cuDNN's JSON format.
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

/// The device properties as a descriptor; `None` if this cuDNN does not accept them.
fn properties() -> Option<u64> {
    static MADE: OnceLock<Option<u64>> = OnceLock::new();
    *MADE.get_or_init(|| {
        let json = json(Card::get()?);
        let mut made = 0_u64;
        let create = real!(c"cudnnBackendCreateDescriptor", fn(i32, *mut u64) -> i32)?;
        let finalize = real!(c"cudnnBackendFinalize", fn(u64) -> i32)?;
        let created = create(PROPERTIES, &mut made);
        let set = set(made, PROPERTIES_JSON, INTEGERS, json.len() as i64, json.as_ptr().cast());
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

fn ask<T>(descriptor: u64, name: i32, kind: i32, values: &mut [T]) -> Option<usize> {
    let ask = real!(c"cudnnBackendGetAttribute", fn(u64, i32, i32, i64, *mut i64, *mut c_void) -> i32)?;
    let mut count = 0;
    let code = ask(descriptor, name, kind, values.len() as i64, &mut count, values.as_mut_ptr().cast());
    (code == 0).then_some(count as usize)
}

/// Temporary descriptors of our own, which are destroyed on drop.
#[derive(Default)]
struct OwnDescriptors(Vec<u64>);

impl OwnDescriptors {
    fn new(&mut self, kind: i32) -> Option<u64> {
        let mut made = 0_u64;
        let create = real!(c"cudnnBackendCreateDescriptor", fn(i32, *mut u64) -> i32)?;
        (create(kind, &mut made) == 0).then(|| self.0.push(made))?;
        Some(made)
    }
}

impl Drop for OwnDescriptors {
    fn drop(&mut self) {
        let Some(destroy) = real!(c"cudnnBackendDestroyDescriptor", fn(u64) -> i32) else { return };
        for made in self.0.drain(..).rev() {
            destroy(made);
        }
    }
}

fn put_attribute<T>(descriptor: u64, name: i32, kind: i32, values: &[T]) -> Option<()> {
    (set(descriptor, name, kind, values.len() as i64, values.as_ptr().cast()) == 0).then_some(())
}

fn finalize(descriptor: u64) -> Option<()> {
    let finalize = real!(c"cudnnBackendFinalize", fn(u64) -> i32)?;
    (finalize(descriptor) == 0).then_some(())
}

/// The workspace of the same plan if it may not share sums: what remains are copies of tensors.
fn without_sharing(configuration: u64, plan: &Plan) -> Option<u64> {
    let mut own = OwnDescriptors::default();
    let mut engine = [own.new(ENGINE)?];
    ask(configuration, CONFIGURATION_ENGINE, DESCRIPTOR, &mut engine)?;
    let mut choices = Vec::new();
    for (kind, value) in plan.choices() {
        let choice = own.new(CHOICE)?;
        put_attribute(choice, CHOICE_KIND, KINDS_OF_CHOICES, &[*kind as i32])?;
        put_attribute(choice, CHOICE_VALUE, INTEGERS, &[if *kind == plans::WORKSPACE { 1 } else { *value }])?;
        finalize(choice)?;
        choices.push(choice);
    }
    let other = own.new(CONFIGURATION)?;
    put_attribute(other, CONFIGURATION_ENGINE, DESCRIPTOR, &engine)?;
    put_attribute(other, CONFIGURATION_CHOICES, DESCRIPTOR, &choices)?;
    finalize(other)?;
    let made = own.new(PLAN)?;
    put_attribute(made, PLAN_CONFIGURATION, DESCRIPTOR, &[other])?;
    (set_properties(made, PLAN_PROPERTIES) == 0).then_some(())?;
    finalize(made)?;
    let mut bytes = [0_i64];
    ask(made, PLAN_WORKSPACE, INTEGERS, &mut bytes)?;
    u64::try_from(bytes[0]).ok()
}

/// The workspace of a plan on the card, if it differs from what cuDNN computes without one.
fn workspace_on_card(made: u64, configuration: Option<u64>) -> Option<u64> {
    let card = Card::get()?;
    let mut json = vec![0_u8; 1 << 14];
    let length = ask(made, PLAN_JSON, CHARACTERS, &mut json)?.min(json.len());
    let plan = Plan::read(&String::from_utf8_lossy(&json[..length]))?;
    let known = plan.known(card.chip());
    if known.is_estimate() {
        report::estimated_workspace();
        if report::is_told() {
            eprintln!("vramlab: the workspace of this plan is an estimate: {}", plan.spelled());
        }
    }
    let stated = || {
        let mut bytes = [0_i64];
        ask(made, PLAN_WORKSPACE, INTEGERS, &mut bytes)?;
        u64::try_from(bytes[0]).ok()
    };
    match known {
        WorkspaceSource::Computed | WorkspaceSource::Usual => None,
        WorkspaceSource::Recorded(bytes) | WorkspaceSource::Borrowed(bytes) => Some(bytes),
        WorkspaceSource::Uncounted => plans::without_counter(stated()?),
        WorkspaceSource::Nothing => (stated()? < LEAST_COPY).then_some(0),
        WorkspaceSource::Shared(bytes) => without_sharing(configuration?, &plan)
            .map(|copies| plans::without_counter(copies).unwrap_or(copies) + bytes),
    }
}

/// The program's plans: the configuration of each, and its workspace if it differs from what cuDNN computes.
#[derive(Default)]
struct Plans {
    configurations: HashMap<u64, u64>,
    workspaces: HashMap<u64, u64>,
}

static PLANS: Mutex<Option<Plans>> = Mutex::new(None);

fn known_plans<T>(act: impl FnOnce(&mut Plans) -> T) -> T {
    act(PLANS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Plans::default))
}

/// Notes that a plan was made, or refused with this code.
fn planned(made: u64, code: i32) {
    let configuration = known_plans(|plans| plans.configurations.remove(&made));
    if code == 0
        && let Some(bytes) = workspace_on_card(made, configuration)
    {
        known_plans(|plans| plans.workspaces.insert(made, bytes));
    }
}

/// The kind of each of the program's descriptors.
static KINDS: Mutex<Option<HashMap<u64, i32>>> = Mutex::new(None);

fn kinds<T>(act: impl FnOnce(&mut HashMap<u64, i32>) -> T) -> T {
    act(KINDS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

/// Reports a plan that cuDNN refused.
fn tell_failure(kind: Option<i32>, code: i32) {
    let mut text = [0_u8; 2048];
    if let Some(ask) = real!(c"cudnnGetLastErrorString", fn(*mut u8, usize) -> ()) {
        ask(text.as_mut_ptr(), text.len());
    }
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
    eprintln!("vramlab: cuDNN refuses a descriptor of kind {kind:?}: {code} {text}");
}

/// The stream of each handle.
static STREAMS: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);
const FIRST: u64 = 0x5800_0000_0000;

fn streams<T>(act: impl FnOnce(&mut HashMap<u64, u64>) -> T) -> T {
    act(STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

entries! {
    fn cudnnCreate(place: *mut u64) -> i32 {
        store::lock().begin(DeviceLibrary::Convolutions);
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
        if kinds(|kinds| kinds.remove(&descriptor)) == Some(PLAN) {
            known_plans(|plans| {
                plans.configurations.remove(&descriptor);
                plans.workspaces.remove(&descriptor);
            });
        }
        real!(c"cudnnBackendDestroyDescriptor", fn(u64) -> i32).map_or(NOT_INITIALIZED, |destroy| destroy(descriptor))
    }
    fn cudnnBackendSetAttribute(descriptor: u64, name: i32, kind: i32, count: i64, values: *const c_void) -> i32 {
        match name {
            GRAPH_HANDLE => 0,
            PLAN_HANDLE => set_properties(descriptor, PLAN_PROPERTIES),
            PLAN_CONFIGURATION => {
                if let Some(configuration) = get(values.cast::<u64>()) {
                    known_plans(|plans| plans.configurations.insert(descriptor, configuration));
                }
                set(descriptor, name, kind, count, values)
            }
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
        if kind == Some(PLAN) {
            planned(descriptor, code);
        }
        if code != 0 && report::is_told() {
            tell_failure(kind, code);
        }
        code
    }
    fn cudnnBackendGetAttribute(descriptor: u64, name: i32, kind: i32, wanted: i64, count: *mut i64, values: *mut c_void) -> i32 {
        if name == PLAN_WORKSPACE
            && wanted > 0
            && let Some(bytes) = known_plans(|plans| plans.workspaces.get(&descriptor).copied())
        {
            put(count, 1);
            put(values.cast::<i64>(), bytes as i64);
            return 0;
        }
        let ask = real!(c"cudnnBackendGetAttribute", fn(u64, i32, i32, i64, *mut i64, *mut c_void) -> i32);
        ask.map_or(NOT_INITIALIZED, |ask| ask(descriptor, name, kind, wanted, count, values))
    }
    fn cudnnBackendExecute(handle: u64, _plan: u64, _pack: u64) -> i32 {
        kernels::launched(streams(|streams| streams.get(&handle).copied().unwrap_or(0)), 1, costs::PLANNED);
        0
    }
    /// Bytes of the states of dropout's generators: 24 for each of the card's threads, 6,488,064 on an H200.
    fn cudnnDropoutGetStatesSize(_handle: u64, bytes: *mut usize) -> i32 {
        put(bytes, Card::get().map_or(0, |card| card.multiprocessors as usize * card.threads as usize * 24));
        0
    }
}
