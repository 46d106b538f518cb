//! Programs on the stand-in GPU: this test program itself, started again with the library, and PyTorch if there is one.
#![allow(unsafe_code, reason = "the stand-in is called as programs call CUDA")]
#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use vramlab::device::sim::CardCatalog;
use vramlab::standin::{Cards, Counts, EntryTable, Implementation, TABLES, install};
use vramlab::units::{Bytes, GIB, MIB};

mod elf;
#[path = "../../src/standin/library/plans.rs"]
mod plans;
#[path = "standin/workspaces.rs"]
mod workspaces;

/// Names the function below that the program runs when it is started on the stand-in GPU.
const CHOSEN: &str = "VRAMLAB_TEST_STANDIN";

fn tables() -> Vec<(&'static str, EntryTable)> {
    TABLES.iter().map(|(library, text)| (*library, EntryTable::read(text).unwrap())).collect()
}

/// A folder with a card in it, and the environment that a program needs.
struct Placed {
    folder: TempDir,
    variables: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

fn placed(card: &str, count: usize, memory: Option<Bytes>) -> Placed {
    let folder = tempfile::tempdir().unwrap();
    let card = CardCatalog::with_user_cards(None).card(card).unwrap();
    let variables = install(folder.path(), &Cards { card, count, memory }).unwrap();
    Placed { folder, variables }
}

impl Placed {
    /// Starts this program again on the stand-in GPU, to run one of the functions of [`FUNCTIONS`].
    fn command(&self, function: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "standin::behind_the_stand_in", "--nocapture"]).env(CHOSEN, function);
        command.envs(self.variables.iter().cloned()).env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    fn runs(&self, function: &str) -> Counts {
        let output = self.command(function).output().unwrap();
        assert!(output.status.success(), "{function}: {}\n{}", output.status, told(&output));
        assert!(told(&output).contains("1 passed"), "{function} was not run: {}", told(&output));
        Counts::read(self.folder.path())
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The functions that run on the stand-in GPU, by name.
const FUNCTIONS: [(&str, fn()); 11] = [
    ("names", names),
    ("versions", versions),
    ("segments", segments),
    ("capacity", capacity),
    ("ranges", ranges),
    ("threads", threads),
    ("forks", forks),
    ("no_card", no_card),
    ("copies", copies),
    ("captures", captures),
    ("devices", devices),
];

/// Not a test of its own: the tests below start this on the stand-in GPU.
#[test]
fn behind_the_stand_in() {
    let Ok(name) = std::env::var(CHOSEN) else { return };
    let (_, function) = FUNCTIONS.iter().find(|(known, _)| *known == name).unwrap();
    function();
}

/// The address of a name in all libraries, in the order of loading.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name has its end.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The same in one library, with a version.
fn versioned(library: *mut c_void, name: &CStr, version: &CStr) -> *mut c_void {
    // SAFETY: name and version have their ends, and the library is open.
    unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) }
}

/// A library by name; with these flags only if it is loaded already.
fn library(name: &CStr, flags: i32) -> *mut c_void {
    // SAFETY: the stand-in's libraries run nothing but their own when they are loaded.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | flags) }
}

/// The exit code of a forked child, which runs `work`.
fn forked(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only calls the stand-in, which is made for that, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = work();
        // SAFETY: nothing of the parent's is run at this exit.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// A function of the stand-in.
macro_rules! cuda {
    ($name:ident($($argument:expr),*) as fn($($kind:ty),*)) => {{
        let name = CString::new(stringify!($name)).unwrap();
        let found = symbol(&name);
        assert!(!found.is_null(), "{} is not there", stringify!($name));
        // SAFETY: NVIDIA documents the function with these arguments.
        let function: extern "C" fn($($kind),*) -> i32 = unsafe { std::mem::transmute(found) };
        function($($argument),*)
    }};
}

fn malloc(bytes: usize) -> Result<u64, i32> {
    let mut address = 0;
    match cuda!(cudaMalloc(&mut address, bytes) as fn(*mut u64, usize)) {
        0 => Ok(address),
        code => Err(code),
    }
}

fn free(address: u64) -> i32 {
    cuda!(cudaFree(address) as fn(u64))
}

fn left() -> (u64, u64) {
    let (mut left, mut all) = (0, 0);
    assert_eq!(cuda!(cudaMemGetInfo(&mut left, &mut all) as fn(*mut u64, *mut u64)), 0);
    (left, all)
}

#[test]
fn every_name_of_the_table_is_exported_and_nothing_else() {
    let placed = placed("h200", 1, None);
    let library = std::fs::read(placed.folder.path().join("libvramlab-standin.so")).unwrap();
    let exported: BTreeSet<String> = elf::defined(&library).into_iter().collect();
    let mut meant = BTreeSet::new();
    for (library, table) in tables() {
        for (name, answer) in &table.entries {
            assert_eq!(exported.contains(name), *answer != Implementation::Real, "{library}: {name}: {answer:?}");
            assert!(meant.insert(name.clone()), "{name} stands in two tables");
        }
    }
    let unknown: Vec<_> = exported.iter().filter(|name| !meant.contains(*name)).collect();
    assert!(unknown.is_empty(), "exported and in no table: {unknown:?}");
    placed.runs("names");
}

/// Names resolve to the stand-in, whatever NVIDIA's own libraries define.
fn names() {
    for (_, table) in tables() {
        for (name, _) in table.entries.iter().filter(|(_, answer)| *answer != Implementation::Real) {
            let found = symbol(&CString::new(name.as_str()).unwrap());
            // SAFETY: all bytes zero are such a structure.
            let mut of: libc::Dl_info = unsafe { std::mem::zeroed() };
            // SAFETY: it is filled from any address.
            assert!(!found.is_null() && unsafe { libc::dladdr(found, &mut of) } != 0, "{name}");
            // SAFETY: the name of a file has its end.
            let file = unsafe { CStr::from_ptr(of.dli_fname) }.to_string_lossy();
            assert!(file.ends_with("libvramlab-standin.so"), "{name} is {file}'s");
        }
    }
    // The same library is found under the driver's and NVML's names.
    for name in [c"libcuda.so.1", c"libnvidia-ml.so.1"] {
        let opened = library(name, 0);
        assert!(!opened.is_null());
        // SAFETY: the library is open and the name has its end.
        let there = unsafe { libc::dlsym(opened, c"nvmlInit_v2".as_ptr()) };
        assert_eq!(there, symbol(c"nvmlInit_v2"));
    }
}

#[test]
fn cudnn_finds_cublaslt_by_name_and_version() {
    let placed = placed("h200", 1, None);
    for name in ["libcublasLt.so.12", "libcublasLt.so.13"] {
        let library = std::fs::read(placed.folder.path().join(name)).unwrap();
        assert_eq!(elf::soname(&library).as_deref(), Some(name));
        assert!(elf::defined(&library).iter().all(|symbol| symbol.starts_with("cublasLt") || symbol == name));
    }
    placed.runs("versions");
}

fn versions() {
    let (_, table) = tables().into_iter().find(|(library, _)| *library == "cublaslt").unwrap();
    for file in [c"libcublasLt.so.12", c"libcublasLt.so.13"] {
        let opened = library(file, libc::RTLD_NOLOAD);
        assert!(!opened.is_null(), "{file:?} is not preloaded");
        for (name, _) in &table.entries {
            let found = versioned(opened, &CString::new(name.as_str()).unwrap(), file);
            assert!(!found.is_null(), "{name} of {file:?}");
        }
        // It forwards to the stand-in: a descriptor that it makes is the stand-in's.
        let create = versioned(opened, c"cublasLtMatmulDescCreate", file);
        // SAFETY: NVIDIA documents the function with these arguments.
        let create: extern "C" fn(*mut u64, i32, i32) -> i32 = unsafe { std::mem::transmute(create) };
        let mut made = 0;
        assert_eq!(create(&mut made, 68, 0), 0);
        assert_ne!(made, 0);
        assert_eq!(cuda!(cublasLtMatmulDescDestroy(made) as fn(u64)), 0);
    }
}

#[test]
fn segments_never_meet_and_nothing_touches_them() {
    placed("h200", 1, None).runs("segments");
}

/// Pseudo-random numbers, the same each time.
fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

fn segments() {
    let mut number = numbers(7);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..4000 {
        if number(3) > 0 || live.is_empty() {
            let size = if number(2) == 0 { 2 * MIB * (1 + number(40)) } else { 1 + number(5 * MIB) };
            let Ok(address) = malloc(size as usize) else { continue };
            assert_eq!(address % 512, 0);
            let below = live.range(..address + size).next_back();
            assert!(
                below.is_none_or(|(start, bytes)| start + bytes <= address),
                "{address:#x} lies in another segment"
            );
            live.insert(address, size);
        } else {
            let at = *live.keys().nth(number(live.len() as u64) as usize).unwrap();
            live.remove(&at);
            assert_eq!(free(at), 0);
            assert_eq!(free(at), 1, "a second time it is nobody's");
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let untouchable = |address: u64| {
        maps.lines().any(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] = [start, end].map(|end| u64::from_str_radix(end, 16).unwrap());
            (start..end).contains(&address) && rest.starts_with("---p")
        })
    };
    assert!(live.keys().all(|address| untouchable(*address)));
    // A process that accesses one dies, as on a machine with a card.
    let (address, _) = live.first_key_value().unwrap();
    let status = forked(|| {
        // SAFETY: it is not: that is what is tested.
        unsafe { i32::from(std::ptr::read_volatile(*address as *const u8)) }
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status}");
}

#[test]
fn memory_ends_where_the_cards_does() {
    placed("rtx-4090", 1, None).runs("capacity");
    placed("h200", 1, Some(Bytes::gib(16))).runs("capacity");
}

fn capacity() {
    let (before, all) = left();
    assert!(before < all, "the context takes some");
    let mut held = Vec::new();
    while let Ok(address) = malloc(GIB as usize) {
        held.push(address);
    }
    assert_eq!(held.len() as u64, before / GIB);
    assert_eq!(left(), (before % GIB, all));
    assert_eq!(malloc((before % GIB + 512) as usize), Err(2));
    assert_eq!(cuda!(cudaGetLastError() as fn()), 2);
    assert_eq!(cuda!(cudaGetLastError() as fn()), 0, "it is told once");
    let last = malloc((before % GIB / 512 * 512) as usize).unwrap();
    assert!(left().0 < 512);
    held.push(last);
    assert!(held.into_iter().all(|address| free(address) == 0));
    assert_eq!(left(), (before, all));
    assert_eq!(malloc(usize::MAX), Err(2));
}

#[test]
fn memory_is_mapped_into_reserved_ranges() {
    placed("h200", 1, None).runs("ranges");
}

/// CUmemAllocationProp: page-locked memory of the first device.
fn wish() -> [i32; 8] {
    [1, 1, 1, 0, 0, 0, 0, 0]
}

fn ranges() {
    let (before, _) = left();
    let page = (2 * MIB) as usize;
    let reserve = |size: usize| {
        let mut base = 0_u64;
        let code = cuda!(cuMemAddressReserve(&mut base, size, 0, 0, 0) as fn(*mut u64, usize, usize, u64, u64));
        (code, base)
    };
    let (code, first) = reserve(1 << 40);
    assert_eq!((code, first), (0, 0x3_0200_0000), "where an H200's driver put its first range");
    let (_, second) = reserve(page * 8);
    assert!(second >= first + (1 << 40));
    assert_eq!(reserve(page + 1).0, 1);
    assert_eq!(left().0, before, "a range takes no memory");
    let make = |size: usize| {
        let (mut handle, wish) = (0_u64, wish());
        let code = cuda!(cuMemCreate(&mut handle, size, wish.as_ptr(), 0) as fn(*mut u64, usize, *const i32, u64));
        (code, handle)
    };
    let map =
        |at: u64, size: usize, handle: u64| cuda!(cuMemMap(at, size, 0, handle, 0) as fn(u64, usize, usize, u64, u64));
    let unmap = |at: u64, size: usize| cuda!(cuMemUnmap(at, size) as fn(u64, usize));
    let release = |handle: u64| cuda!(cuMemRelease(handle) as fn(u64));
    let (code, handle) = make(page);
    assert_eq!((code, left().0), (0, before - page as u64));
    assert_eq!(map(first + page as u64, page, handle), 0);
    assert_eq!(map(first + page as u64, page, handle), 1, "something lies there");
    assert_eq!(map(0x1000, page, handle), 1, "nothing is reserved there");
    assert_eq!(release(handle), 0);
    assert_eq!(left().0, before - page as u64, "it is still mapped");
    assert_eq!(cuda!(cuMemAddressFree(first, 1 << 40) as fn(u64, usize)), 1, "it is in use");
    assert_eq!(unmap(first + page as u64, page), 0);
    assert_eq!(left().0, before);
    assert_eq!(release(handle), 1);
    assert_eq!(make(page + 1).0, 1);
    assert_eq!(make(1 << 50).0, 2, "more than the card has");
    assert_eq!(cuda!(cuMemAddressFree(first, 1 << 40) as fn(u64, usize)), 0);
    assert_eq!(reserve(page * 4).1, first, "the lowest range is used again");
}

#[test]
fn threads_and_forks_find_everything_whole() {
    let placed = placed("t4", 2, None);
    placed.runs("threads");
    placed.runs("forks");
}

fn threads() {
    let (before, _) = left();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut number = numbers(thread);
                let mut held = Vec::new();
                for _ in 0..2000 {
                    if number(2) == 0 {
                        held.extend(malloc((1 + number(4 * MIB)) as usize));
                    } else if let Some(address) = held.pop() {
                        assert_eq!(free(address), 0);
                    }
                }
                assert!(held.into_iter().all(|address| free(address) == 0));
                // The current device belongs to each thread.
                let (device, mut current) = ((thread % 2) as i32, 7);
                assert_eq!(cuda!(cudaSetDevice(device) as fn(i32)), 0);
                assert_eq!(cuda!(cudaGetDevice(&mut current) as fn(*mut i32)), 0);
                assert_eq!(current, device);
            });
        }
    });
    assert_eq!(left().0, before);
}

fn forks() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let address = malloc(1 << 20).unwrap();
                    assert_eq!(free(address), 0);
                }
            });
        }
        for _ in 0..50 {
            // A lock that another thread held would block here for ever.
            assert_eq!(forked(|| malloc(1 << 20).map_or(1, free)), 0);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_card_that_is_not_read_is_told_and_there_is_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.txt");
    for text in [
        &b""[..],
        b"title",
        b"title = \xff",
        b"memory = -1",
        b"devices = 65",
        &[0; 100_000],
        b"title = x\nmemory = 1\n",
    ] {
        std::fs::write(&file, text).unwrap();
        garbage(Some(&file));
    }
    garbage(Some(folder.path()));
    garbage(Some(Path::new("/nowhere/card.txt")));
    garbage(None);
}

fn garbage(card: Option<&Path>) {
    let placed = placed("t4", 1, None);
    let mut command = placed.command("no_card");
    match card {
        Some(card) => command.env("VRAMLAB_CARD", card),
        None => command.env_remove("VRAMLAB_CARD"),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{card:?}: {}", told(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("there is no stand-in GPU").count(), 1, "{card:?}: {said}");
}

fn no_card() {
    let mut count = 7;
    assert_eq!(cuda!(cudaGetDeviceCount(&mut count) as fn(*mut i32)), 100);
    assert_eq!(count, 0);
    assert_eq!(cuda!(cuInit(0) as fn(u32)), 100);
    assert_eq!(malloc(1), Err(100));
    let mut stream = 0;
    assert_eq!(cuda!(cudaStreamCreate(&mut stream) as fn(*mut u64)), 100);
    assert_eq!(cuda!(nvmlInit_v2() as fn()), 9);
}

#[test]
fn what_the_host_copied_comes_back_until_a_kernel_runs() {
    let counts = placed("a100-40g", 1, None).runs("copies");
    assert_eq!((counts.processes, counts.launches), (1, 1));
    assert_eq!(counts.unknown_reads, 2, "the one behind the kernel, and the one of what never was");
}

fn copies() {
    let device = malloc(1 << 20).unwrap();
    let copy =
        |to: u64, from: u64, size: usize| cuda!(cudaMemcpyAsync(to, from, size, 4, 0) as fn(u64, u64, usize, i32, u64));
    let read = |at: u64| {
        let mut bytes = [7_u8; 4];
        assert_eq!(copy(bytes.as_mut_ptr() as u64, at, 4), 0);
        bytes
    };
    copy(device, [1_u8, 2, 3, 4].as_ptr() as u64, 4);
    assert_eq!(read(device), [1, 2, 3, 4]);
    copy(device + 512, device, 4);
    assert_eq!(read(device + 512), [1, 2, 3, 4]);
    assert_eq!(cuda!(cudaMemset(device, 5, 4) as fn(u64, i32, usize)), 0);
    assert_eq!(read(device), [5; 4]);
    let launched =
        cuda!(cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
            as fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64));
    assert_eq!(launched, 0);
    assert_eq!(read(device), [0; 4], "the kernel may have written there");
    // A large copy to the host leaves zeros, and keeps nothing of what was there before.
    let large = malloc(64 << 20).unwrap();
    let mut host = vec![9_u8; (64 << 20) + 3];
    let before = host[0];
    assert_eq!(copy(host[1..].as_mut_ptr() as u64, large, 64 << 20), 0);
    assert!(host[0] == before && host[1..=64 << 20].iter().all(|byte| *byte == 0) && host[(64 << 20) + 1..] == [9, 9]);
}

#[test]
fn captured_streams_become_graphs_and_events_carry_the_capture() {
    assert_eq!(placed("h200", 1, None).runs("captures").launches, 2 + 2 * 2);
}

fn captures() {
    let stream = || {
        let mut stream = 0;
        assert_eq!(cuda!(cudaStreamCreate(&mut stream) as fn(*mut u64)), 0);
        stream
    };
    let is_capturing = |stream: u64| {
        let mut status = 7;
        assert_eq!(cuda!(cudaStreamIsCapturing(stream, &mut status) as fn(u64, *mut i32)), 0);
        status
    };
    let launch = |stream: u64| {
        let code = cuda!(cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
            as fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64));
        assert_eq!(code, 0);
    };
    let (origin, side, mut event) = (stream(), stream(), 0);
    assert_eq!(cuda!(cudaEventCreateWithFlags(&mut event, 2) as fn(*mut u64, u32)), 0);
    assert_eq!(cuda!(cudaStreamBeginCapture(origin, 0) as fn(u64, i32)), 0);
    assert_eq!(cuda!(cudaEventRecord(event, origin) as fn(u64, u64)), 0);
    assert_eq!((is_capturing(origin), is_capturing(side)), (1, 0));
    assert_eq!(cuda!(cudaStreamWaitEvent(side, event, 0) as fn(u64, u64, u32)), 0);
    assert_eq!(is_capturing(side), 1);
    launch(origin);
    launch(side);
    let (mut graph, mut runs) = (0, 0);
    assert_eq!(cuda!(cudaStreamEndCapture(side, &mut graph) as fn(u64, *mut u64)), 903, "it was not begun there");
    assert_eq!(cuda!(cudaStreamEndCapture(origin, &mut graph) as fn(u64, *mut u64)), 0);
    assert_eq!((is_capturing(origin), is_capturing(side)), (0, 0));
    assert_eq!(cuda!(cudaGraphInstantiate(&mut runs, graph, 0) as fn(*mut u64, u64, u64)), 0);
    assert_eq!(cuda!(cudaGraphDestroy(graph) as fn(u64)), 0);
    for _ in 0..2 {
        assert_eq!(cuda!(cudaGraphLaunch(runs, origin) as fn(u64, u64)), 0);
    }
    assert_eq!(cuda!(cudaGraphLaunch(graph, origin) as fn(u64, u64)), 400, "it is gone");
}

#[test]
fn several_devices_are_several_and_those_that_are_hidden_none() {
    let placed = placed("h100-80g", 4, None);
    placed.runs("devices");
    for (visible, count) in [("2,0", 2), ("", 0), ("3,9,1", 1), ("-1", 0)] {
        let output =
            placed.command("devices").env("CUDA_VISIBLE_DEVICES", visible).env("COUNT", count.to_string()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{visible}: {}", told(&output));
    }
}

fn devices() {
    let expected: i32 = std::env::var("COUNT").map_or(4, |count| count.parse().unwrap());
    let mut count = 0;
    let code = cuda!(cudaGetDeviceCount(&mut count) as fn(*mut i32));
    assert_eq!((code, count), (if expected == 0 { 100 } else { 0 }, expected));
    assert_eq!(cuda!(cudaSetDevice(expected) as fn(i32)), if expected == 0 { 100 } else { 101 });
    let mut addresses = BTreeSet::new();
    for device in 0..expected {
        assert_eq!(cuda!(cudaSetDevice(device) as fn(i32)), 0);
        let (before, _) = left();
        let address = malloc(1 << 30).unwrap();
        assert_eq!(left().0, before - (1 << 30), "each has its own memory");
        addresses.insert(address);
        let mut of = 7;
        assert_eq!(cuda!(cuPointerGetAttribute(&mut of, 9, address) as fn(*mut i32, i32, u64)), 0);
        assert_eq!(of, device);
        let mut name = [0_u8; 64];
        assert_eq!(cuda!(cuDeviceGetName(name.as_mut_ptr().cast(), 64, device) as fn(*mut c_char, i32, i32)), 0);
        assert_eq!(CStr::from_bytes_until_nul(&name).unwrap(), c"NVIDIA H100 80GB HBM3");
        let mut properties = [7_u8; 1008];
        let place: *mut c_void = properties.as_mut_ptr().cast();
        assert_eq!(cuda!(cudaGetDeviceProperties(place, device) as fn(*mut c_void, i32)), 0);
        // CUDA 13's layout, if no runtime of NVIDIA's is loaded: memory, capability, multiprocessors.
        let memory = u64::from_ne_bytes(properties[288..296].try_into().unwrap());
        let int = |at: usize| i32::from_ne_bytes(properties[at..at + 4].try_into().unwrap());
        assert_eq!((memory, int(360), int(364), int(384)), (84_938_850_304, 9, 0, 132));
        let mut twelve = [7_u8; 1032];
        let place: *mut c_void = twelve.as_mut_ptr().cast();
        assert_eq!(cuda!(cudaGetDeviceProperties_v2(place, device) as fn(*mut c_void, i32)), 0);
        let int = |at: usize| i32::from_ne_bytes(twelve[at..at + 4].try_into().unwrap());
        assert_eq!((int(360), int(364), int(388), int(616), int(712)), (9, 0, 132, 50 << 20, 32));
    }
    assert_eq!(addresses.len() as i32, expected);
}

#[test]
fn a_folder_that_the_loader_cannot_name_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let card = CardCatalog::with_user_cards(None).card("t4").unwrap();
    let cards = Cards { card, count: 1, memory: None };
    for name in ["with space", "with:colon"] {
        let told = install(&home.path().join(name), &cards).unwrap_err().to_string();
        assert!(told.contains("a space or a colon"), "{told}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Runs `vramlab fit` with a program; returns the largest batch, and the output.
fn fit(arguments: &[&str]) -> (Option<i32>, String, String) {
    let home = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/batch.py");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command
        .args(["fit", "--device", "sim:t4", "--limit", "2GiB", "--batch", "5", "--json", "--", "python3"])
        .arg(program);
    let output = command.args(arguments).env("XDG_RUNTIME_DIR", home.path()).output().unwrap();
    let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), said, told)
}

#[test]
fn the_largest_batch_of_any_program_is_found() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 here");
        return;
    }
    let (code, said, told) = fit(&["--batch={}", "0"]);
    assert_eq!(code, Some(0), "{told}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    // 2 GiB less a context of 150 MiB and PyTorch's kernels of 92 MiB.
    assert_eq!((&found["card"], &found["largest"], &found["complete"]), (&"t4".into(), &18.into(), &true.into()));
    let tried: Vec<(u64, bool)> = found["tried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|probe| (probe["batch"].as_u64().unwrap(), probe["fits"].as_bool().unwrap()))
        .collect();
    assert!(tried.iter().all(|(batch, fits)| *fits == (*batch <= 18)), "{tried:?}");
    // A program that fails for another reason ends the search, with its own message.
    let (code, _, told) = fit(&["--batch={}", "5"]);
    assert!(code == Some(1) && told.contains("this is no batch of mine"), "{told}");
    let (code, _, told) = fit(&["--batch=5", "0"]);
    assert!(code == Some(2) && told.contains("none of the program's arguments holds {}"), "{told}");
}

#[test]
fn pytorch_trains_on_a_card_that_is_not_there() {
    let Some(python) = crate::pytorch::python() else { return };
    let home = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/train.py");
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["watch", "--device", "sim:rtx-4090", "--record", "run.vram", "--", &python])
        .arg(program)
        .current_dir(home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let figure = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {said}"));
        line.trim().to_owned()
    };
    assert_eq!(figure("card"), "NVIDIA GeForce RTX 4090 25393364992");
    assert_eq!(figure("steps"), "5");
    // cuDNN's weights are one block: two layers of four gates, and two biases for each.
    let weights = 4 * 128 * (64 + 128 + 2 + 128 + 128 + 2) * 4;
    assert_eq!(figure("recurrent"), format!("[512, 128] {weights}"));
    assert!(told(&output).contains("of cuDNN's convolutions or recurrent nets estimated"), "{}", told(&output));
    // Memory runs out where it would on the card, with PyTorch's message, and training goes on afterwards.
    assert!(
        figure("refused")
            .starts_with("CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 23.65 GiB")
    );
    let (peak, reserved): (u64, u64) = (figure("allocated").parse().unwrap(), figure("reserved").parse().unwrap());
    assert!(peak > 0 && reserved >= peak && reserved % (2 * MIB) == 0, "{said}");
    assert!(home.path().join("run.vram").exists());
    let left: Vec<_> = std::fs::read_dir(home.path().join("vramlab-watch")).unwrap().collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
}

/// `benchmark/data/all_benchmark_data.csv` of linkedin/Liger-Kernel, its rows of PyTorch's own ops, measured on an A100
/// and an H100 with releases of 2024. It is printed from 24-bit values.
#[test]
fn single_ops_take_what_liger_published() {
    let Some(python) = crate::pytorch::python() else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin");
    let published = include_str!("../standin/liger.txt");
    let figures = |text: &str| -> Vec<(String, f64)> {
        let rows = text.lines().filter_map(|line| line.rsplit_once(' '));
        rows.map(|(op, figure)| (op.to_owned(), figure.parse().unwrap())).collect()
    };
    let (home, published) = (tempfile::tempdir().unwrap(), figures(published));
    let asked: String = published.iter().map(|(op, _)| format!("{op}\n")).collect();
    std::fs::write(home.path().join("ops.txt"), asked).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["watch", "--device", "sim:a100-80g", "--record", "run.vram", "--", &python])
        .arg(tests.join("single_ops.py"))
        .current_dir(home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .stdin(std::fs::File::open(home.path().join("ops.txt")).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let seen = figures(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(seen.len(), 57);
    let mut left: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((op, seen), (asked, published)) in seen.iter().zip(&published) {
        assert_eq!(op, asked);
        if let Some((embedding, _)) = op.split_once(' ').filter(|(op, _)| op.starts_with("embedding")) {
            left.entry(embedding).or_default().push(published - seen);
            continue;
        }
        assert!((seen / published - 1.0).abs() < 1e-7, "{op}: {seen} MB, published {published}");
    }
    // Every row of a width has the same addition, left over from the previous measurements: 16 tables of each
    // vocabulary of the sweep.
    let of_sweep = f64::from(255 * 1024 * 768 * 4 / (1 << 20));
    assert_eq!(left["embedding_768"], [16.0 * of_sweep; 8]);
    assert_eq!(left["embedding_4096"], [left["embedding_4096"][0]; 8]);
}

#[test]
fn a_pytorch_that_nobody_tried_is_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/python/vramlab_watch");
    let remark = |version: &str| {
        let code = "import sys, _versions; print(_versions.remark(sys.argv[1]) or '')";
        Command::new("python3")
            .args(["-c", code, version])
            .current_dir(&folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
    };
    if remark("2.11.0").is_err() {
        eprintln!("SKIPPED: there is no python3 here");
        return;
    }
    let said = |version: &str| told(&remark(version).unwrap()).trim().to_owned();
    for minor in 8..=15 {
        assert_eq!(said(&format!("2.{minor}.0+cu130")), "");
    }
    for version in ["2.3.1", "2.16.0.dev20261101", "3.0.0", "of my own"] {
        assert!(said(version).contains("was not tried on a simulated card"), "{version}: {}", said(version));
    }
    for version in ["2.4.1", "2.5.1", "2.6.0+cu124", "2.7.1+cu126"] {
        assert!(said(version).contains("its convolutions fail"), "{version}: {}", said(version));
    }
    assert!(said("2.4.1").contains("what it reads back is not computed"));
    // The guide states the same.
    let guide = include_str!("../../lab/guide/stand-in.md");
    for row in ["| 2.8, 2.10 to 2.15 |", "| 2.5 to 2.7 |", "| 2.4 |", "| 2.3 and before |"] {
        assert!(guide.contains(row), "{row}");
    }
}
