//! The devices that a program sees, and the current device of each thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::space::Space;
use crate::card::Card;
use crate::codes::{Code, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY};
use crate::report;

/// One device of this process.
#[derive(Debug)]
pub struct Device {
    /// Its address space.
    pub space: Space,
    /// Segments of cudaMalloc: bytes by address.
    pub segments: BTreeMap<u64, u64>,
    /// Used bytes, with those of the context.
    pub used: u64,
    /// Number of launched kernels, counted up to [`Self::LOADS_MORE`].
    pub launches: u64,
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The current device of this thread.
pub fn current() -> usize {
    CURRENT.with(Cell::get)
}

/// Sets the current device of this thread.
pub fn use_device(device: usize) {
    CURRENT.with(|current| current.set(device));
}

/// The indices in the machine of the visible devices, in the program's order.
pub fn visible() -> &'static [usize] {
    static VISIBLE: OnceLock<Vec<usize>> = OnceLock::new();
    VISIBLE.get_or_init(|| {
        let Some(card) = Card::get() else { return Vec::new() };
        match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => chosen(&list, card.devices),
            Err(_) => (0..card.devices).collect(),
        }
    })
}

/// The devices that `CUDA_VISIBLE_DEVICES` names, up to the first invalid name, as NVIDIA documents it.
fn chosen(list: &str, devices: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    for name in list.split(',').map(str::trim) {
        let by_uuid = || (0..devices).find(|&place| name.len() > 4 && uuid_text(place).starts_with(name));
        match name.parse().ok().filter(|place| *place < devices).or_else(by_uuid) {
            Some(place) if !chosen.contains(&place) => chosen.push(place),
            _ => break,
        }
    }
    chosen
}

/// Number of devices that the program sees.
pub fn count() -> usize {
    visible().len()
}

/// The index in the machine of a device that the program sees.
pub fn place(device: usize) -> usize {
    visible().get(device).copied().unwrap_or(device)
}

/// The UUID of a device, as 16 bytes.
pub fn uuid(place: usize) -> [u8; 16] {
    let mut bytes = *b"vramlab stand-in";
    bytes[15] = place as u8;
    bytes
}

/// The UUID in NVML's spelling.
pub fn uuid_text(place: usize) -> String {
    let hex: String = uuid(place).iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

/// The device with this number, if it exists.
pub fn checked(device: i32) -> Result<usize, Code> {
    let device = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
    match count() {
        0 => Err(NO_DEVICE),
        count if device < count => Ok(device),
        _ => Err(INVALID_DEVICE),
    }
}

impl Device {
    /// The launch at which the driver loads what kernels need. It is not the first: a recorded GPT takes a segment in
    /// between.
    const LOADS: u64 = 2;
    /// The launch by which the driver has loaded more: after the 20th, where that GPT takes another segment, and before
    /// a model's weights are set.
    pub const LOADS_MORE: u64 = 24;

    /// Notes launched kernels.
    pub fn launched(&mut self, count: u64) {
        let before = self.launches;
        self.launches = before.saturating_add(count).min(Self::LOADS_MORE);
        let passes = |launch| before < launch && launch <= self.launches;
        let (loads, loads_more) = (passes(Self::LOADS), passes(Self::LOADS_MORE));
        if loads {
            self.space.load_kernels();
        }
        if loads_more {
            self.space.load_more_kernels();
        }
    }

    /// Takes memory from the card.
    pub fn take(&mut self, bytes: u64) -> Result<(), Code> {
        let memory = Card::get().ok_or(NO_DEVICE)?.memory;
        let used = self.used.checked_add(bytes).filter(|used| *used <= memory).ok_or(OUT_OF_MEMORY)?;
        self.used = used;
        report::used(used);
        Ok(())
    }

    /// Gives memory back to the card.
    pub fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes).max(1);
    }
}
