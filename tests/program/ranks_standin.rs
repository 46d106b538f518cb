//! Ranks on the stand-in GPU: processes that form NCCL communicators, what they send each other, and what happens to
//! the others when one ends.
#![allow(unsafe_code, reason = "the stand-in is called as programs call NCCL")]
#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use vramlab::device::sim::CardCatalog;
use vramlab::standin::{Cards, Variable, install};

use crate::patience::{self, PATIENCE};

/// Names the function below that a process runs, and its rank and the number of ranks.
const CHOSEN: &str = "VRAMLAB_TEST_RANKS";
const RANK: &str = "VRAMLAB_TEST_RANK";
const WORLD: &str = "VRAMLAB_TEST_WORLD";
/// A folder that the ranks share, apart from what is tested.
const FOLDER: &str = "VRAMLAB_TEST_FOLDER";

/// ncclInt32, ncclInt64 and ncclUint8.
const INT32: i32 = 2;
const INT64: i32 = 4;
const UINT8: i32 = 1;
/// ncclSum, ncclMax, ncclMin.
const SUM: i32 = 0;
const MAX: i32 = 2;
const MIN: i32 = 3;
const REMOTE_ERROR: i32 = 6;
const INVALID_ARGUMENT: i32 = 4;

/// Several processes on as many cards.
struct Ranks {
    folder: TempDir,
    variables: Vec<Variable>,
    world: usize,
}

impl Ranks {
    fn of(world: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
        let variables = install(&folder.path().join("card"), &Cards { card, count: world, memory: None }).unwrap();
        Self { folder, variables, world }
    }

    fn start(&self, function: &str, rank: usize) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ranks_standin::behind_the_stand_in", "--nocapture"]);
        command.env(CHOSEN, function).env(RANK, rank.to_string()).env(WORLD, self.world.to_string());
        command.env(FOLDER, self.folder.path()).env("VRAMLAB_STANDIN_PATIENCE", "2");
        command.envs(self.variables.iter().cloned()).env_remove("CUDA_VISIBLE_DEVICES");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn start_all(&self, function: &str) -> Vec<Child> {
        (0..self.world).map(|rank| self.start(function, rank)).collect()
    }

    /// Asserts that each process succeeds; returns the output of each.
    fn run(&self, function: &str) -> Vec<String> {
        let children = self.start_all(function);
        let end = |(rank, child): (usize, Child)| {
            let (ended, said) = end(child);
            assert!(ended, "rank {rank} of {} in {function}:\n{said}", self.world);
            assert!(said.contains("1 passed"), "{function} was not run:\n{said}");
            said
        };
        children.into_iter().enumerate().map(end).collect()
    }

    /// Files of communicators that still exist.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("card")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("vramlab-")).collect()
    }
}

/// Waits for a process; returns whether it succeeded, and its output.
fn end(child: Child) -> (bool, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.success(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// The functions that run on the stand-in GPU, by name.
const FUNCTIONS: [(&str, fn()); 12] = [
    ("exchanges", exchanges),
    ("messages", messages),
    ("splits", splits),
    ("is_killed", is_killed),
    ("does_not_come", does_not_come),
    ("unknown", unknown),
    ("garbage", garbage),
    ("waits_on_streams", waits_on_streams),
    ("all_in_one", all_in_one),
    ("is_late", clock::is_late),
    ("comes_late", clock::comes_late),
    ("is_watched", clock::is_watched),
];

/// Not a test of its own: the tests below start this on the stand-in GPU.
#[test]
fn behind_the_stand_in() {
    let Ok(name) = std::env::var(CHOSEN) else { return };
    let (_, function) = FUNCTIONS.iter().find(|(known, _)| *known == name).unwrap();
    function();
}

/// A function of the stand-in.
macro_rules! call {
    ($name:ident($($argument:expr),*) as fn($($kind:ty),*)) => {{
        let name = CString::new(stringify!($name)).unwrap();
        // SAFETY: the name has its end.
        let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!found.is_null(), "{} is not there", stringify!($name));
        // SAFETY: NVIDIA documents the function with these arguments.
        let function: extern "C" fn($($kind),*) -> i32 = unsafe { std::mem::transmute(found) };
        function($($argument),*)
    }};
}

mod clock;

fn number(variable: &str) -> usize {
    std::env::var(variable).unwrap().parse().unwrap()
}

fn folder() -> PathBuf {
    std::env::var_os(FOLDER).unwrap().into()
}

fn wait_for(path: &Path) {
    patience::wait(|| path.exists(), || path.display().to_string());
}

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// The same number for all ranks, as PyTorch's store transports it.
fn unique_id(rank: usize) -> UniqueId {
    let path = folder().join("id");
    if rank == 0 {
        let mut id = UniqueId([0; 128]);
        assert_eq!(call!(ncclGetUniqueId(&mut id) as fn(*mut UniqueId)), 0);
        fs::write(folder().join("id.new"), id.0).unwrap();
        fs::rename(folder().join("id.new"), &path).unwrap();
    }
    wait_for(&path);
    UniqueId(fs::read(path).unwrap().try_into().unwrap())
}

/// This process's end of a communicator of all ranks.
fn joined() -> (u64, usize, usize) {
    let (rank, world) = (number(RANK), number(WORLD));
    assert_eq!(call!(cudaSetDevice(rank as i32) as fn(i32)), 0);
    let id = unique_id(rank);
    let mut communicator = 0;
    let code =
        call!(ncclCommInitRank(&mut communicator, world as i32, id, rank as i32) as fn(*mut u64, i32, UniqueId, i32));
    assert_eq!(code, 0);
    (communicator, rank, world)
}

fn device(bytes: usize) -> u64 {
    let mut address = 0;
    assert_eq!(call!(cudaMalloc(&mut address, bytes) as fn(*mut u64, usize)), 0);
    address
}

fn put(address: u64, bytes: &[u8]) {
    assert_eq!(call!(cudaMemcpy(address, bytes.as_ptr() as u64, bytes.len(), 1) as fn(u64, u64, usize, i32)), 0);
}

fn get(address: u64, count: usize) -> (i32, Vec<u8>) {
    let bytes = vec![0xee_u8; count];
    let code = call!(cudaMemcpy(bytes.as_ptr() as u64, address, count, 2) as fn(u64, u64, usize, i32));
    (code, bytes)
}

fn on_device(numbers: &[i64]) -> u64 {
    let address = device(numbers.len().max(1) * 8);
    put(address, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>());
    address
}

fn numbers(address: u64, count: usize) -> Vec<i64> {
    let (code, bytes) = get(address, count * 8);
    assert_eq!(code, 0);
    bytes.chunks(8).map(|bytes| i64::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

type Collective = (u64, u64, usize, i32, u64, u64);

#[test]
fn communicators_of_1_2_8_and_64_ranks_carry_small_integers() {
    for world in [1, 2, 8, 64] {
        let ranks = Ranks::of(world);
        ranks.run("exchanges");
        assert_eq!(ranks.left(), Vec::<PathBuf>::new(), "nothing is left behind");
    }
}

fn exchanges() {
    let (communicator, rank, world) = joined();
    let (me, all) = (rank as i64, world as i64);
    let (mut count, mut mine) = (0, -1);
    assert_eq!(call!(ncclCommCount(communicator, &mut count) as fn(u64, *mut i32)), 0);
    assert_eq!(call!(ncclCommUserRank(communicator, &mut mine) as fn(u64, *mut i32)), 0);
    assert_eq!((count as usize, mine as usize), (world, rank));
    let to = device(64 * 1024);
    let every = |of: fn(i64) -> i64| (0..all).map(of).collect::<Vec<_>>();
    for round in 0..3 {
        let from = on_device(&[me + 1, 10 * me + round]);
        let gather = || call!(ncclAllGather(from, to, 2, INT64, communicator, 0) as fn(u64, u64, usize, i32, u64, u64));
        assert_eq!(gather(), 0);
        assert_eq!(numbers(to, 2 * world), (0..all).flat_map(|rank| [rank + 1, 10 * rank + round]).collect::<Vec<_>>());

        let reduce = |operation| {
            let code = call!(ncclAllReduce(from, to, 2, INT64, operation, communicator, 0)
                as fn(u64, u64, usize, i32, i32, u64, u64));
            assert_eq!(code, 0);
            numbers(to, 2)
        };
        assert_eq!(reduce(SUM), [all * (all + 1) / 2, 5 * all * (all - 1) + round * all]);
        assert_eq!(reduce(MAX), [all, 10 * (all - 1) + round]);
        assert_eq!(reduce(MIN), [1, round]);

        let root = (round as usize % world) as i32;
        let code =
            call!(ncclBroadcast(from, to, 2, INT64, root, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64));
        assert_eq!(code, 0);
        assert_eq!(numbers(to, 2), [i64::from(root) + 1, 10 * i64::from(root) + round]);

        let code =
            call!(ncclReduce(from, to, 2, INT64, SUM, root, communicator, 0)
                as fn(u64, u64, usize, i32, i32, i32, u64, u64));
        assert_eq!(code, 0);
        if rank == root as usize {
            assert_eq!(numbers(to, 1), [all * (all + 1) / 2]);
        }

        let parts = on_device(&(0..all).map(|rank| 100 * me + rank).collect::<Vec<_>>());
        let code = call!(
            ncclReduceScatter(parts, to, 1, INT64, SUM, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64)
        );
        assert_eq!(code, 0);
        assert_eq!(numbers(to, 1), [every(|rank| 100 * rank).iter().sum::<i64>() + me * all]);

        let code = call!(ncclAlltoAll(parts, to, 1, INT64, communicator, 0) as fn(u64, u64, usize, i32, u64, u64));
        assert_eq!(code, 0);
        assert_eq!(numbers(to, world), (0..all).map(|rank| 100 * rank + me).collect::<Vec<_>>());

        let code =
            call!(ncclScatter(parts, to, 1, INT64, root, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64));
        assert_eq!(code, 0);
        assert_eq!(numbers(to, 1), [100 * i64::from(root) + me]);

        let code =
            call!(ncclGather(from, to, 1, INT64, root, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64));
        assert_eq!(code, 0);
        if rank == root as usize {
            assert_eq!(numbers(to, world), every(|rank| rank + 1));
        }
    }
    // In place, as PyTorch gathers.
    let place = device(8 * world);
    put(place + 8 * rank as u64, &(me * me).to_ne_bytes());
    let of_mine = place + 8 * rank as u64;
    let arguments: Collective = (of_mine, place, 1, INT64, communicator, 0);
    let (from, to, count, kind, handle, stream) = arguments;
    assert_eq!(call!(ncclAllGather(from, to, count, kind, handle, stream) as fn(u64, u64, usize, i32, u64, u64)), 0);
    assert_eq!(numbers(place, world), every(|rank| rank * rank));
    assert_eq!(call!(ncclCommDestroy(communicator) as fn(u64)), 0);
    assert_eq!(call!(ncclCommDestroy(communicator) as fn(u64)), INVALID_ARGUMENT, "it is gone");
}

#[test]
fn messages_arrive_in_order_whoever_comes_first() {
    let ranks = Ranks::of(3);
    ranks.run("messages");
    assert_eq!(ranks.left(), Vec::<PathBuf>::new());
}

fn messages() {
    let (communicator, rank, world) = joined();
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let to = device(4096);
    let sent: Vec<u64> = (0..20).map(|round| on_device(&[100 * rank as i64 + round])).collect();
    for group in [false, true] {
        if rank == 0 {
            // The others have to wait for it.
            thread::sleep(Duration::from_millis(100));
        }
        if group {
            assert_eq!(call!(ncclGroupStart() as fn()), 0);
        }
        for (round, from) in sent.iter().enumerate() {
            let receive = || {
                let at = to + 8 * round as u64;
                assert_eq!(
                    call!(ncclRecv(at, 1, INT64, before as i32, communicator, 0) as fn(u64, usize, i32, i32, u64, u64)),
                    0
                );
            };
            if rank % 2 == 1 {
                receive();
            }
            assert_eq!(
                call!(ncclSend(*from, 1, INT64, next as i32, communicator, 0) as fn(u64, usize, i32, i32, u64, u64)),
                0
            );
            if rank % 2 == 0 {
                receive();
            }
        }
        if group {
            assert_eq!(call!(ncclGroupEnd() as fn()), 0);
        }
        assert_eq!(numbers(to, 20), (0..20).map(|round| 100 * before as i64 + round).collect::<Vec<_>>());
    }
    assert_eq!(call!(ncclGroupEnd() as fn()), 5, "no group is open");
}

#[test]
fn a_communicator_splits_by_colour_and_key() {
    let ranks = Ranks::of(6);
    ranks.run("splits");
    assert_eq!(ranks.left(), Vec::<PathBuf>::new());
}

fn splits() {
    let (communicator, rank, _) = joined();
    // Even and odd, the last rank first; rank 5 has no part.
    let colour = if rank == 5 { -1 } else { (rank % 2) as i32 };
    let (mut part, mut mine, mut count) = (1, -1, -1);
    let code =
        call!(ncclCommSplit(communicator, colour, -(rank as i32), &mut part, 0) as fn(u64, i32, i32, *mut u64, u64));
    assert_eq!(code, 0);
    if rank == 5 {
        assert_eq!(part, 0);
        return;
    }
    assert_eq!(call!(ncclCommUserRank(part, &mut mine) as fn(u64, *mut i32)), 0);
    assert_eq!(call!(ncclCommCount(part, &mut count) as fn(u64, *mut i32)), 0);
    let members: &[usize] = if rank % 2 == 0 { &[4, 2, 0] } else { &[3, 1] };
    assert_eq!((members[mine as usize], count as usize), (rank, members.len()));
    let (from, to) = (on_device(&[rank as i64]), device(4096));
    assert_eq!(call!(ncclAllGather(from, to, 1, INT64, part, 0) as fn(u64, u64, usize, i32, u64, u64)), 0);
    assert_eq!(numbers(to, members.len()), members.iter().map(|rank| *rank as i64).collect::<Vec<_>>());
    // Without the first of each.
    if mine > 0 {
        let (mut rest, without) = (0, 0_i32);
        let code =
            call!(ncclCommShrink(part, &without, 1, &mut rest, 0, 0) as fn(u64, *const i32, i32, *mut u64, u64, i32));
        assert_eq!(code, 0);
        assert_eq!(call!(ncclCommCount(rest, &mut count) as fn(u64, *mut i32)), 0);
        assert_eq!(count as usize, members.len() - 1);
    }
}

#[test]
fn who_waits_for_a_killed_rank_is_told_and_goes_on() {
    let ranks = Ranks::of(3);
    let mut children = ranks.start_all("is_killed");
    wait_for(&ranks.folder.path().join("met"));
    children[2].kill().unwrap();
    let third = children.pop().unwrap();
    let pid = third.id();
    assert!(!end(third).0);
    for (rank, child) in children.into_iter().enumerate() {
        let (ended, said) = end(child);
        assert!(ended, "{said}");
        let sentence = format!("rank 2 (process {pid}) has ended: rank {rank} can't go on with ncclAllReduce number 2");
        assert!(said.contains(&sentence), "{sentence} is not in {said}");
    }
    assert_eq!(ranks.left(), Vec::<PathBuf>::new());
}

fn is_killed() {
    let (communicator, rank, _) = joined();
    let to = device(4096);
    let reduce = || {
        let from = on_device(&[1]);
        call!(ncclAllReduce(from, to, 1, INT64, SUM, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64))
    };
    let mut error = -1;
    let mut ask = || {
        assert_eq!(call!(ncclCommGetAsyncError(communicator, &mut error) as fn(u64, *mut i32)), 0);
        error
    };
    assert_eq!(reduce(), 0);
    assert_eq!(numbers(to, 1), [3]);
    assert_eq!(ask(), 0);
    if rank == 2 {
        fs::write(folder().join("met"), "").unwrap();
        thread::sleep(2 * PATIENCE);
        panic!("it was not killed");
    }
    // The call returns at once, as on a card; waiting for it fails.
    assert_eq!(reduce(), 0);
    assert_ne!(call!(cudaStreamSynchronize(0) as fn(u64)), 0);
    assert_eq!(ask(), REMOTE_ERROR);
    assert_eq!(reduce(), REMOTE_ERROR);
    assert_eq!(call!(ncclCommAbort(communicator) as fn(u64)), 0);
}

#[test]
fn a_rank_that_does_not_come_is_named_and_waited_for() {
    let ranks = Ranks::of(3);
    let mut children = ranks.start_all("does_not_come");
    let mut said = vec![String::new(); 3];
    for rank in [0, 2] {
        let mut lines = BufReader::new(children[rank].stderr.take().unwrap()).lines();
        for line in lines.by_ref() {
            said[rank] += &line.unwrap();
            if said[rank].contains("has waited") {
                break;
            }
        }
        // The rest of its output is still read, so that it never blocks in a write.
        thread::spawn(move || lines.for_each(drop));
    }
    fs::write(ranks.folder.path().join("told"), "").unwrap();
    for (rank, child) in children.into_iter().enumerate() {
        let (ended, rest) = end(child);
        said[rank] += &rest;
        assert!(ended, "{}", said[rank]);
    }
    for (rank, said) in said.iter().enumerate() {
        let told = said.contains("s in ncclAllReduce number 3 of a communicator of 3 ranks for rank 1 (process ");
        assert_eq!(told, rank != 1, "{said}");
        assert_eq!(said.contains("of rank 1 its last collective is ncclAllReduce number 2"), rank != 1, "{said}");
    }
}

fn does_not_come() {
    let (communicator, rank, _) = joined();
    let (from, to) = (on_device(&[rank as i64]), device(4096));
    let reduce =
        || call!(ncclAllReduce(from, to, 1, INT64, SUM, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64));
    assert_eq!((reduce(), reduce()), (0, 0));
    if rank == 1 {
        wait_for(&folder().join("told"));
    }
    assert_eq!(reduce(), 0);
    assert_eq!(numbers(to, 1), [3]);
}

#[test]
fn what_is_not_known_stays_unknown() {
    Ranks::of(2).run("unknown");
}

fn unknown() {
    let (communicator, rank, _) = joined();
    let to = device(64 << 20);
    let gather = |from, count| {
        call!(ncclAllGather(from, to, count, UINT8, communicator, 0) as fn(u64, u64, usize, i32, u64, u64))
    };
    let reduce = |from| {
        call!(ncclAllReduce(from, to, 4, INT32, SUM, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64))
    };
    let from = device(16 << 20);
    // Only one rank knows its numbers: the sum is unknown, and of what is gathered its part is known.
    if rank == 1 {
        put(from, &[7; 16]);
    }
    assert_eq!(gather(from, 16), 0);
    assert_eq!(get(to, 32).1, [[0; 16], [7; 16]].concat());
    assert_eq!(reduce(from), 0);
    assert_eq!(get(to, 16).1, [0; 16]);
    // Both know the first half.
    put(from, &1_i32.to_ne_bytes().repeat(2));
    assert_eq!(reduce(from), 0);
    assert_eq!(get(to, 8).1, 2_i32.to_ne_bytes().repeat(2));
    // A model's gradients pass without anybody looking at them.
    assert_eq!(gather(from, 16 << 20), 0);
    assert_eq!(get(to, 16).0, 0);
    // What is written where a result would go is valid.
    put(from, &[9; 16]);
    assert_eq!(gather(from, 16), 0);
    put(to, &[5; 32]);
    assert_eq!(get(to, 32).1, [5; 32]);
}

#[test]
fn garbage_is_refused_with_a_sentence() {
    let said = Ranks::of(2).run("garbage").concat();
    assert!(said.contains("rank 1 wants a communicator of 3 ranks where the others have 2"), "{said}");
    assert!(said.contains("is taken already, by process"), "{said}");
}

fn garbage() {
    let (communicator, rank, _) = joined();
    let mut other = 0;
    let join = |id, world, rank, place: *mut u64| {
        call!(ncclCommInitRank(place, world, id, rank) as fn(*mut u64, i32, UniqueId, i32))
    };
    for (world, rank) in [(0, 0), (2, 2), (2, -1), (-2, 0), (65, 0), (i32::MAX, 1)] {
        assert_eq!(join(UniqueId([1; 128]), world, rank, &mut other), INVALID_ARGUMENT, "{rank} of {world}");
    }
    assert_eq!(join(UniqueId([1; 128]), 2, 0, std::ptr::null_mut()), INVALID_ARGUMENT);
    if rank == 0 {
        // Within a group nothing waits, so the second call finds the first.
        assert_eq!(call!(ncclGroupStart() as fn()), 0);
        let id = UniqueId([2; 128]);
        assert_eq!(join(id, 2, 0, &mut other), 0);
        assert_eq!(join(id, 2, 0, &mut other), INVALID_ARGUMENT);
        assert_eq!(join(id, 3, 1, &mut other), INVALID_ARGUMENT);
        assert_eq!(join(id, 2, 1, &mut other), 0);
        assert_eq!(call!(ncclGroupEnd() as fn()), 0);
        // SAFETY: the function returns a text with its end.
        let said = unsafe {
            let last: extern "C" fn(u64) -> *const std::ffi::c_char =
                std::mem::transmute(libc::dlsym(libc::RTLD_DEFAULT, c"ncclGetLastError".as_ptr()));
            CStr::from_ptr(last(0))
        };
        assert!(!said.is_empty());
    }
    let to = device(4096);
    for handle in [0, 1, u64::MAX, communicator + 1] {
        assert_eq!(
            call!(ncclAllReduce(to, to, 1, INT64, SUM, handle, 0) as fn(u64, u64, usize, i32, i32, u64, u64)),
            INVALID_ARGUMENT
        );
        assert_eq!(call!(ncclCommAbort(handle) as fn(u64)), INVALID_ARGUMENT);
    }
    for root in [-1, 2, i32::MAX] {
        let code =
            call!(ncclBroadcast(to, to, 1, INT64, root, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64));
        assert_eq!(code, INVALID_ARGUMENT);
        let code = call!(ncclSend(to, 1, INT64, root, communicator, 0) as fn(u64, usize, i32, i32, u64, u64));
        assert_eq!(code, INVALID_ARGUMENT);
    }
    // The communicator is unchanged.
    let (from, to) = (on_device(&[1]), device(64));
    assert_eq!(
        call!(ncclAllReduce(from, to, 1, INT64, SUM, communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64)),
        0
    );
    assert_eq!(numbers(to, 1), [2]);
}

#[test]
fn only_what_depends_on_others_waits_for_them() {
    Ranks::of(2).run("waits_on_streams");
}

/// Rank 0 receives on a stream of its own what rank 1 sends only after it hears that everything else went on.
fn waits_on_streams() {
    let (communicator, rank, _) = joined();
    let to = device(64);
    let went_on = folder().join("went-on");
    if rank == 1 {
        wait_for(&went_on);
        let from = on_device(&[77]);
        assert_eq!(call!(ncclSend(from, 1, INT64, 0, communicator, 0) as fn(u64, usize, i32, i32, u64, u64)), 0);
        assert_eq!(call!(cudaDeviceSynchronize() as fn()), 0);
        return;
    }
    let (mut side, mut event, mut other) = (0, 0, 0);
    assert_eq!(call!(cudaStreamCreateWithFlags(&mut side, 1) as fn(*mut u64, u32)), 0);
    assert_eq!(call!(cudaEventCreateWithFlags(&mut event, 2) as fn(*mut u64, u32)), 0);
    assert_eq!(call!(cudaEventCreateWithFlags(&mut other, 2) as fn(*mut u64, u32)), 0);
    assert_eq!(call!(ncclRecv(to, 1, INT64, 1, communicator, side) as fn(u64, usize, i32, i32, u64, u64)), 0);
    assert_eq!(call!(cudaEventRecord(event, side) as fn(u64, u64)), 0);
    assert_eq!(call!(cudaEventRecord(other, 0) as fn(u64, u64)), 0);
    // The work on the default stream does not depend on it.
    assert_eq!(call!(cudaStreamSynchronize(0) as fn(u64)), 0);
    assert_eq!(call!(cudaEventSynchronize(other) as fn(u64)), 0);
    assert_eq!(call!(cudaStreamQuery(0) as fn(u64)), 0);
    // cudaErrorNotReady.
    assert_eq!(call!(cudaEventQuery(event) as fn(u64)), 600);
    assert_eq!(call!(cudaStreamQuery(side) as fn(u64)), 600);
    // Now it does.
    assert_eq!(call!(cudaStreamWaitEvent(0, event, 0) as fn(u64, u64, u32)), 0);
    assert_eq!(call!(cudaStreamQuery(0) as fn(u64)), 600);
    fs::write(went_on, "").unwrap();
    assert_eq!(call!(cudaEventSynchronize(event) as fn(u64)), 0);
    assert_eq!(call!(cudaStreamSynchronize(0) as fn(u64)), 0);
    assert_eq!(numbers(to, 1), [77]);
}

#[test]
fn one_process_may_be_all_ranks() {
    let ranks = Ranks::of(4);
    let (ended, said) = end(ranks.start("all_in_one", 0));
    assert!(ended, "{said}");
    assert_eq!(ranks.left(), Vec::<PathBuf>::new());
}

fn all_in_one() {
    let world = number(WORLD);
    let mut all = vec![0_u64; world];
    assert_eq!(
        call!(ncclCommInitAll(all.as_mut_ptr(), world as i32, std::ptr::null()) as fn(*mut u64, i32, *const i32)),
        0
    );
    let mut places = Vec::new();
    assert_eq!(call!(ncclGroupStart() as fn()), 0);
    for (rank, communicator) in all.iter().enumerate() {
        assert_eq!(call!(cudaSetDevice(rank as i32) as fn(i32)), 0);
        let (from, to) = (on_device(&[rank as i64]), device(4096));
        assert_eq!(
            call!(ncclAllReduce(from, to, 1, INT64, SUM, *communicator, 0) as fn(u64, u64, usize, i32, i32, u64, u64)),
            0
        );
        places.push(to);
    }
    assert_eq!(call!(ncclGroupEnd() as fn()), 0);
    for (rank, to) in places.into_iter().enumerate() {
        assert_eq!(call!(cudaSetDevice(rank as i32) as fn(i32)), 0);
        assert_eq!(numbers(to, 1), [6]);
    }
}

#[test]
fn ranks_meet_where_only_their_user_looks() {
    let ranks = Ranks::of(2);
    let first = ranks.start("exchanges", 0);
    let file = patience::find(|| ranks.left().pop(), || "a communicator's file".to_owned());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let second = ranks.start("exchanges", 1);
    assert!(end(first).0 && end(second).0);
    assert_eq!(ranks.left(), Vec::<PathBuf>::new());
}
