//! How many blocks of a kernel fit on a multiprocessor.
//!
//! A kernel's registers are unknown here; they are assumed to be few. Everything else follows the CUDA programming
//! guide.

use crate::attributes::{REGISTERS, SHARED_BLOCK, reserved_shared};
use crate::card::Card;
use crate::codes::{Code, INVALID_VALUE, NO_DEVICE, SUCCESS};
use crate::context::noted;
use crate::foreign::{put, zero};

/// Registers that a thread of any kernel is assumed to use.
const REGISTERS_OF_THREAD: i32 = 32;
const WARP: i32 = 32;

/// How many blocks with `threads` threads and `shared` bytes fit on one multiprocessor.
fn blocks(card: &Card, threads: i32, shared: usize) -> i32 {
    if threads <= 0 || threads > 1024 {
        return 0;
    }
    let warps = (threads + WARP - 1) / WARP;
    let by_threads = card.threads / WARP / warps;
    let by_registers = REGISTERS / (REGISTERS_OF_THREAD * WARP * warps);
    let of_block = i64::try_from(shared).unwrap_or(i64::MAX).saturating_add(i64::from(reserved_shared(card)));
    let by_shared = if of_block == 0 { i64::MAX } else { i64::from(card.shared) / of_block };
    let least = by_threads.min(by_registers).min(card.blocks);
    i64::from(least).min(by_shared) as i32
}

/// The version of a kernel's code that a card runs: code built for its generation, as in PyTorch's wheels. Libraries
/// that choose a kernel by it (CCCL) know no other:
/// <https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility>.
const fn code(capability: i32) -> i32 {
    match capability {
        86..90 => 86,
        90..100 => 90,
        100..120 => 100,
        120.. => 120,
        other => other,
    }
}

fn ask(count: *mut i32, threads: i32, shared: usize) -> Code {
    let Some(card) = Card::get() else { return NO_DEVICE };
    if count.is_null() {
        return INVALID_VALUE;
    }
    put(count, blocks(card, threads, shared));
    SUCCESS
}

/// cudaFuncAttributes, up to its last non-zero field.
#[repr(C)]
struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    most_threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    cache_mode: i32,
    most_shared: i32,
    carveout: i32,
}

/// Bytes of cudaFuncAttributes since CUDA 12.
const SIZE: usize = 144;

entries! {
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut i32, _stub: u64, threads: i32, shared: usize) -> Code { noted(ask(count, threads, shared)) }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count: *mut i32, _stub: u64, threads: i32, shared: usize, _flags: u32) -> Code { noted(ask(count, threads, shared)) }
    fn cudaOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, _stub: u64, blocks: i32, _threads: i32) -> Code {
        let Some(card) = Card::get() else { return noted(NO_DEVICE) };
        put(bytes, (card.shared / blocks.max(1) - reserved_shared(card)).clamp(0, card.shared_block) as usize);
        SUCCESS
    }
    fn cudaOccupancyMaxActiveClusters(clusters: *mut i32, _stub: u64, _configuration: u64) -> Code {
        let Some(card) = Card::get() else { return noted(NO_DEVICE) };
        put(clusters, card.multiprocessors);
        SUCCESS
    }
    fn cudaOccupancyMaxPotentialClusterSize(size: *mut i32, _stub: u64, _configuration: u64) -> Code {
        put(size, 8);
        SUCCESS
    }
    fn cudaFuncGetAttributes(place: *mut u8, _stub: u64) -> Code {
        let Some(card) = Card::get() else { return noted(NO_DEVICE) };
        zero(place, SIZE);
        put(place.cast(), FunctionAttributes {
            shared: 0,
            constant: 0,
            local: 0,
            most_threads: 1024,
            registers: REGISTERS_OF_THREAD,
            ptx: code(card.capability),
            binary: code(card.capability),
            cache_mode: 0,
            most_shared: SHARED_BLOCK,
            carveout: -1,
        });
        SUCCESS
    }
    fn cudaFuncSetAttribute(_stub: u64, _attribute: i32, _value: i32) -> Code { SUCCESS }
    fn cudaFuncSetCacheConfig(_stub: u64, _configuration: i32) -> Code { SUCCESS }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut i32, _function: u64, threads: i32, shared: usize) -> Code { ask(count, threads, shared) }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count: *mut i32, _function: u64, threads: i32, shared: usize, _flags: u32) -> Code { ask(count, threads, shared) }
    fn cuOccupancyMaxActiveClusters(clusters: *mut i32, function: u64, configuration: u64) -> Code { cudaOccupancyMaxActiveClusters(clusters, function, configuration) }
    fn cuFuncGetAttribute(place: *mut i32, attribute: i32, _function: u64) -> Code {
        let Some(card) = Card::get() else { return NO_DEVICE };
        put(place, match attribute {
            0 => 1024,
            4 => REGISTERS_OF_THREAD,
            5 | 6 => code(card.capability),
            8 => SHARED_BLOCK,
            9 => -1,
            _ => 0,
        });
        SUCCESS
    }
    fn cuKernelGetAttribute(place: *mut i32, attribute: i32, kernel: u64, _device: i32) -> Code { cuFuncGetAttribute(place, attribute, kernel) }
    fn cuFuncSetAttribute(_function: u64, _attribute: i32, _value: i32) -> Code { SUCCESS }
    fn cuFuncSetCacheConfig(_function: u64, _configuration: i32) -> Code { SUCCESS }
}
