//! The card's clock: when streams and events finish, and what PyTorch's watchdog sees of it.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{INT64, Ranks, SUM, device, joined};
use crate::patience;

/// cudaErrorNotReady.
const NOT_READY: i32 = 600;
/// CUDA_R_16BF, CUBLAS_COMPUTE_32F.
const BF16: i32 = 14;
const COMPUTE: i32 = 68;

/// Placeholder for arguments of a product that are not read.
type Rest = u64;

/// Some milliseconds of products on a stream: 8192³ in 16 bits take more than one millisecond on any existing card.
fn products(stream: u64, count: usize) {
    let mut handle = 0_u64;
    assert_eq!(call!(cublasCreate_v2(&mut handle) as fn(*mut u64)), 0);
    assert_eq!(call!(cublasSetStream_v2(handle, stream) as fn(u64, u64)), 0);
    for _ in 0..count {
        let code = call!(cublasGemmEx(
            handle, 0, 0, 8192, 8192, 8192, 0, 0, BF16, 8192, 0, BF16, 8192, 0, 0, BF16, 8192, COMPUTE, 0
        )
            as fn(u64, i32, i32, i32, i32, i32, Rest, Rest, i32, i32, Rest, i32, i32, Rest, Rest, i32, i32, i32, i32));
        assert_eq!(code, 0);
    }
}

/// A small kernel: it costs only the host's time.
fn launches(count: usize) {
    for _ in 0..count {
        let code = call!(cuLaunchKernel(1, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)
            as fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64));
        assert_eq!(code, 0);
    }
}

fn stream() -> u64 {
    let mut stream = 0;
    assert_eq!(call!(cudaStreamCreateWithFlags(&mut stream, 1) as fn(*mut u64, u32)), 0);
    stream
}

fn recorded(stream: u64) -> u64 {
    let mut event = 0;
    assert_eq!(call!(cudaEventCreateWithFlags(&mut event, 2) as fn(*mut u64, u32)), 0);
    assert_eq!(call!(cudaEventRecord(event, stream) as fn(u64, u64)), 0);
    event
}

fn query(event: u64) -> i32 {
    call!(cudaEventQuery(event) as fn(u64))
}

#[test]
fn streams_are_done_as_late_as_their_kernels() {
    Ranks::of(1).run("is_late");
}

pub fn is_late() {
    let (side, other) = (stream(), stream());
    products(side, 20);
    let event = recorded(side);
    assert_eq!(query(event), NOT_READY);
    assert_eq!(call!(cudaStreamQuery(side) as fn(u64)), NOT_READY);
    // The other stream has no work until it waits for the first.
    assert_eq!(call!(cudaStreamQuery(other) as fn(u64)), 0);
    assert_eq!(call!(cudaStreamWaitEvent(other, event, 0) as fn(u64, u64, u32)), 0);
    assert_eq!(call!(cudaStreamQuery(other) as fn(u64)), NOT_READY);
    assert_eq!(call!(cudaEventSynchronize(event) as fn(u64)), 0);
    assert_eq!(query(event), 0);
    assert_eq!(call!(cudaStreamQuery(other) as fn(u64)), 0);
    // The host's own launches advance the time, and so do queries.
    products(side, 1);
    let event = recorded(side);
    launches(1000);
    assert_eq!(query(event), 0);
    products(side, 20);
    let event = recorded(side);
    assert!((0..64).any(|_| query(event) == 0));
}

#[test]
fn a_message_comes_when_both_ranks_are_ready() {
    Ranks::of(2).run("comes_late");
}

/// Rank 1 sends after a quarter of a second of work, and rank 0 has less to do.
pub fn comes_late() {
    let (communicator, rank, _) = joined();
    let (buffer, own) = (device(4 << 20), stream());
    if rank == 1 {
        products(own, 200);
        assert_eq!(
            call!(ncclSend(buffer, 1 << 18, INT64, 0, communicator, own) as fn(u64, usize, i32, i32, u64, u64)),
            0
        );
        assert_eq!(call!(cudaStreamSynchronize(own) as fn(u64)), 0);
        return;
    }
    let work = stream();
    products(work, 100);
    let event = recorded(work);
    assert_eq!(call!(ncclRecv(buffer, 1 << 18, INT64, 1, communicator, own) as fn(u64, usize, i32, i32, u64, u64)), 0);
    assert_eq!(query(event), NOT_READY);
    assert_eq!(call!(cudaStreamSynchronize(own) as fn(u64)), 0);
    assert_eq!(query(event), 0, "the message came before the other rank was ready");
}

#[test]
fn a_watchdog_sees_a_collective_half_of_its_rest_later() {
    Ranks::of(2).run("is_watched");
}

/// A thread that launches nothing looks now and then, as PyTorch's watchdog does.
pub fn is_watched() {
    let (communicator, ..) = joined();
    let buffer = device(8 << 20);
    let code =
        call!(ncclAllReduce(buffer, buffer, 1 << 20, INT64, SUM, communicator, 0)
            as fn(u64, u64, usize, i32, i32, u64, u64));
    assert_eq!(code, 0);
    let event = recorded(0);
    assert_eq!(call!(cudaStreamSynchronize(0) as fn(u64)), 0);
    let [looks, seen] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (looked, sees) = (looks.clone(), seen.clone());
    let watchdog = thread::spawn(move || {
        let done = || {
            let done = query(event) == 0;
            looked.store(true, Ordering::SeqCst);
            done
        };
        patience::wait(done, || "the end of a collective".to_owned());
        sees.store(true, Ordering::SeqCst);
    });
    patience::wait(|| looks.load(Ordering::SeqCst), || "a watchdog's first look".to_owned());
    launches(1000);
    assert!(!seen.load(Ordering::SeqCst), "it is done, but the watchdog has not looked on a card");
    launches(1000);
    assert!(seen.load(Ordering::SeqCst), "the host went on before the watchdog had looked");
    watchdog.join().unwrap();
}
