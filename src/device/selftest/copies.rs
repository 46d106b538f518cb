//! Copies that run concurrently with the compute stream, and the events that order them.

use std::time::{Duration, Instant};

use crate::kernels::Elementwise;
use crate::selftest::session::Session;
use crate::selftest::values::{decode, encode};
use crate::{DType, Device, DeviceError, HostBuffer, Operand};
use vramlab_allocator::HostMemorySource;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// Rounds of one copy in, one kernel, one copy out.
const ROUNDS: usize = 4;
/// How long a copy may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(session: &mut Session<'_>) {
    const KERNEL: &str = "copies";
    if !session.wants_kernel(KERNEL) {
        return;
    }
    for len in [1, 33, 1000, 4096, 100_003] {
        let result = there_and_back(session, len);
        session.record(KERNEL, "pinned", &format!("{len} elements through both streams"), result);
        let result = pageable(session, len);
        session.record(KERNEL, "pageable", &format!("{} bytes", 4 * len - 1), result);
    }
}

/// Copies an odd number of bytes at odd addresses.
fn pageable(session: &mut Session<'_>, len: usize) -> Result<(), String> {
    let bytes: Vec<u8> = (0..4 * len - 1).map(|i| (i % 251) as u8).collect();
    let memory = session.memory();
    let base = memory.take(Bytes(bytes.len() as u64 + 64)).map_err(|trouble| format!("{trouble:?}"))?;
    for offset in [0, 1, 2, 7] {
        let (at, mut back) = (base.offset(Bytes(offset)), vec![0; bytes.len()]);
        memory.device.copy_pageable(&bytes, at, StreamId::DEFAULT).map_err(told)?;
        memory.device.read(at, &mut back, StreamId::DEFAULT).map_err(told)?;
        if let Some(index) = (0..bytes.len()).find(|&i| bytes[i] != back[i]) {
            return Err(format!("byte {index} at offset {offset} is {}, should be {}", back[index], bytes[index]));
        }
    }
    Ok(())
}

/// Copies page-locked numbers to the device on the copy stream, doubles them on the compute stream, and copies them
/// back on the copy stream. Several rounds are in flight at once, and only events order them.
fn there_and_back(session: &mut Session<'_>, len: usize) -> Result<(), String> {
    let size = DType::F32.bytes(len);
    let apart = size.get().next_multiple_of(512);
    let memory = session.memory();
    let base = memory.take(Bytes(apart * ROUNDS as u64)).map_err(|trouble| format!("{trouble:?}"))?;
    let mut source = memory.device.pinned_source();
    let mut buffers = Vec::new();
    for _ in 0..2 * ROUNDS {
        let address = source.allocate(size).map_err(|_| "the system has no page-locked memory left".to_owned())?;
        buffers.push(HostBuffer { address, bytes: size });
    }
    let result = rounds(memory.device, &buffers, |round| base.offset(Bytes(apart * round as u64)), len);
    memory.device.synchronize();
    for buffer in buffers {
        source.free(buffer.address, size);
    }
    result
}

fn rounds(
    device: &mut dyn Device,
    buffers: &[HostBuffer],
    place: impl Fn(usize) -> Address,
    len: usize,
) -> Result<(), String> {
    let (copies, host) = (device.copy_stream(), device.pinned_memory());
    let number = |round: usize, i: usize| (round * 1000 + i % 1000) as f64;
    let mut done = device.record_event(copies).map_err(told)?;
    for (round, pair) in buffers.chunks_exact(2).enumerate() {
        let values: Vec<f64> = (0..len).map(|i| number(round, i)).collect();
        let content = encode(DType::F32, &values);
        host.with_bytes(pair[0], |bytes| bytes.copy_from_slice(&content)).map_err(told)?;
        host.with_bytes(pair[1], |bytes| bytes.fill(0xFF)).map_err(told)?;
        let operand = Operand { address: place(round), dtype: DType::F32, len };
        device.copy_pinned(pair[0], operand.address, copies).map_err(told)?;
        let arrived = device.record_event(copies).map_err(told)?;
        device.wait_event(StreamId::DEFAULT, arrived).map_err(told)?;
        let double = Elementwise::Scale { src: operand, dst: operand, factor: 2.0 }.into();
        device.launch(&double, StreamId::DEFAULT).map_err(told)?;
        let doubled = device.record_event(StreamId::DEFAULT).map_err(told)?;
        device.wait_event(copies, doubled).map_err(told)?;
        device.copy_to_pinned(operand.address, pair[1], copies).map_err(told)?;
        done = device.record_event(copies).map_err(told)?;
    }
    let started = Instant::now();
    while !device.query_event(done) {
        if started.elapsed() > PATIENCE {
            return Err("the event behind the last copy is not reached".to_owned());
        }
        std::thread::yield_now();
    }
    for (round, pair) in buffers.chunks_exact(2).enumerate() {
        let found = host.with_bytes(pair[1], |bytes| decode(DType::F32, bytes)).map_err(told)?;
        if let Some(index) = (0..len).find(|&i| found[i] != 2.0 * number(round, i)) {
            let expected = 2.0 * number(round, index);
            return Err(format!("element {index} of round {round} is {}, should be {expected}", found[index]));
        }
    }
    Ok(())
}

fn told(error: DeviceError) -> String {
    error.to_string()
}
