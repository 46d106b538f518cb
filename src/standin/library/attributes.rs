//! The attributes of a card, by the numbers that runtime and driver share (cudaDeviceAttr, CUdevice_attribute).
//!
//! Values that are the same on every card since Turing are written here, from the CUDA programming guide's table of
//! compute capabilities. The others come from the card.
//! comes from the card.

use crate::card::Card;
use crate::codes::{Code, NO_DEVICE, of};
use crate::context::noted;
use crate::foreign::put;
use crate::store::{self, checked};

/// The first device's number on the bus; the others follow.
pub const FIRST_BUS: usize = 0x10;
/// Registers of a multiprocessor, and of a block.
pub const REGISTERS: i32 = 65536;
/// Shared memory of a block, unless its kernel requests more.
pub const SHARED_BLOCK: i32 = 49152;
/// Shared memory that the system reserves in each block, from compute capability 8.0 on.
pub fn reserved_shared(card: &Card) -> i32 {
    if card.capability >= 80 { 1024 } else { 0 }
}

/// The value of an attribute; 0 if it is unknown.
pub fn value(card: &Card, attribute: i32, device: usize) -> i32 {
    match attribute {
        1..=3 => 1024,
        4 => 64,
        5 | 11 => i32::MAX,
        6 | 7 => 65535,
        8 => SHARED_BLOCK,
        9 => 65536,
        10 => 32,
        12 | 82 => REGISTERS,
        13 => card.clock,
        14 => 512,
        16 => card.multiprocessors,
        // Memory that the host maps, concurrent kernels, one address space, priorities, both first-level caches.
        15 | 19 | 31 | 41 | 78 | 79 | 80 => 1,
        // Error correction; GeForce cards have none.
        32 => i32::from(!card.title.contains("GeForce")),
        30 => 512,
        33 => (FIRST_BUS + store::place(device)) as i32,
        36 => card.memory_clock,
        37 => card.bus,
        38 => card.l2,
        39 => card.threads,
        40 => 3,
        51 => 32,
        75 => card.major(),
        76 => card.minor(),
        81 => card.shared,
        // Managed memory, which this stand-in has.
        83 | 89 | 90 | 91 => 1,
        // Ratio of single to double precision: 2 on data-centre cards, 64 or 32 on others.
        87 => match card.capability {
            60 | 70 | 80 | 90 | 100 => 2,
            75 => 32,
            _ => 64,
        },
        // Cooperative launches.
        95 | 96 => 1,
        97 => card.shared_block,
        // Memory that the host registers, virtual memory, handles as file descriptors.
        99 | 102 | 103 => 1,
        106 => card.blocks,
        109 => 128 << 20,
        111 => reserved_shared(card),
        // Timeline semaphores, memory pools, events of other processes, function pointers.
        114 | 115 | 125 | 129 => 1,
        // Waits for values in memory.
        122 | 123 => 1,
        // Launches in clusters, and tensor maps.
        120 | 127 => i32::from(card.capability >= 90),
        // No part of the host's memory belongs to this device.
        131 => -1,
        _ => 0,
    }
}

fn ask(place: *mut i32, attribute: i32, device: i32) -> Code {
    of(checked(device).and_then(|device| {
        let card = Card::get().ok_or(NO_DEVICE)?;
        put(place, value(card, attribute, device));
        Ok(())
    }))
}

entries! {
    fn cudaDeviceGetAttribute(place: *mut i32, attribute: i32, device: i32) -> Code { noted(ask(place, attribute, device)) }
    fn cuDeviceGetAttribute(place: *mut i32, attribute: i32, device: i32) -> Code { ask(place, attribute, device) }
}
