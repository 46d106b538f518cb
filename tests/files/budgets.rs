//! No command takes more time or memory than a file deserves. The files are made to harm: they have every shape in
//! which the cost of one entry could grow with the entries before it. Each is read under the system's own limits on
//! memory and processor time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use vramlab::allocator::PoolKind;
use vramlab::model::{Event, EventKind, Micros};
use vramlab::recording::{FrameBuilder, Writer};
use vramlab::units::{Address, Bytes, StreamId};

const MIB: u64 = 1 << 20;
/// Entries of a history: comparing each with each would take minutes. If settings are tried, each costs many looks.
const ENTRIES: u64 = 60_000;
const TRIED_ENTRIES: u64 = 12_000;
/// Seconds of the processor: many times what an unoptimised build needs, and a small part of what comparing everything
/// would take.
const SECONDS: u64 = 40;
/// Memory of a program that reads nothing: code, stacks of threads, buffers.
const EMPTY_KIB: u64 = 96 << 10;

/// A pickle under construction, as short as Python writes it: repeated words refer to the first.
struct Pickle {
    bytes: Vec<u8>,
    words: Vec<&'static str>,
}

impl Pickle {
    fn new() -> Self {
        Self { bytes: b"\x80\x04".to_vec(), words: Vec::new() }
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    fn word(&mut self, word: &'static str) -> &mut Self {
        if let Some(at) = self.words.iter().position(|known| *known == word) {
            return self.raw(&[b'h', u8::try_from(at).unwrap()]);
        }
        self.words.push(word);
        let at = u8::try_from(self.words.len() - 1).unwrap();
        let len = u32::try_from(word.len()).unwrap();
        self.raw(b"X").raw(&len.to_le_bytes()).raw(word.as_bytes()).raw(&[b'q', at])
    }

    fn number(&mut self, key: &'static str, number: u64) -> &mut Self {
        self.word(key).raw(b"\x8a\x08").raw(&number.to_le_bytes())
    }

    fn entry(&mut self, action: &'static str, address: u64, size: u64, stream: u64) -> &mut Self {
        self.raw(b"}(").word("action").word(action).number("addr", address).number("size", size);
        self.number("stream", stream).raw(b"u")
    }

    fn segment(&mut self, address: u64, size: u64, held: u64) -> &mut Self {
        self.segment_of_pool(address, size, held, 0)
    }

    fn segment_of_pool(&mut self, address: u64, size: u64, held: u64, pool: u64) -> &mut Self {
        let id = [&b"\x8a\x08"[..], &pool.to_le_bytes()].concat();
        self.raw(b"}(").word("segment_pool_id").raw(&id).raw(&id).raw(b"\x86");
        self.number("address", address).number("total_size", size).word("blocks").raw(b"](");
        for (at, size, state) in [(address, held, "active_allocated"), (address + held, size - held, "inactive")] {
            if size > 0 {
                self.raw(b"}(").number("address", at).number("size", size).word("state").word(state).raw(b"u");
            }
        }
        self.raw(b"eu")
    }

    /// A snapshot with these segments and this history.
    fn snapshot(segments: impl FnOnce(&mut Self), trace: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut pickle = Self::new();
        pickle.raw(b"}(").word("segments").raw(b"](");
        segments(&mut pickle);
        pickle.raw(b"e").word("device_traces").raw(b"](](");
        trace(&mut pickle);
        pickle.raw(b"eeu.");
        pickle.bytes
    }
}

const BASE: u64 = 0x7000_0000_0000;

/// Histories, each with a name for what it has many of.
fn snapshots(entries: u64) -> Vec<(&'static str, Vec<u8>)> {
    let trace = |each: &dyn Fn(&mut Pickle, u64)| {
        Pickle::snapshot(|_| {}, |trace| (0..entries / 2).for_each(|at| each(trace, at)))
    };
    let small = |at: u64| BASE + at * 512;
    let large = |at: u64| BASE + at * 4 * MIB;
    let segment = |at: u64| BASE + at * 2 * MIB;
    vec![
        (
            "frees of blocks that were never taken",
            trace(&|trace, at| {
                trace.entry("free_requested", small(2 * at), 512, 0);
                trace.entry("free_requested", small(2 * at + 1), 512, 0);
            }),
        ),
        (
            "blocks given back that were never taken, far apart",
            trace(&|trace, at| {
                trace.entry("free_requested", large(at), 2 * MIB, 0);
                trace.entry("free_completed", large(at), 2 * MIB, 0);
            }),
        ),
        (
            "frees that are completed alone, in one segment",
            Pickle::snapshot(
                |segments| {
                    segments.segment(BASE, entries * 512, 0);
                },
                |trace| {
                    for at in 0..entries {
                        trace.entry("free_completed", small(at), 512, 0);
                    }
                },
            ),
        ),
        (
            "streams",
            trace(&|trace, at| {
                trace.entry("segment_alloc", segment(at), 2 * MIB, at * 16);
                trace.entry("alloc", segment(at), 512, at * 16);
            }),
        ),
        (
            "streams whose segments are large",
            trace(&|trace, at| {
                trace.entry("segment_alloc", BASE + at * 20 * MIB, 20 * MIB, at * 16);
                trace.entry("alloc", BASE + at * 20 * MIB, 2 * MIB, at * 16);
            }),
        ),
        (
            "streams whose segments nothing gives",
            Pickle::snapshot(
                |_| {},
                |trace| {
                    for at in 0..entries {
                        trace.entry("alloc", segment(at), 2 * MIB, at);
                    }
                },
            ),
        ),
        (
            "private pools, and no history",
            Pickle::snapshot(
                |segments| {
                    for at in 0..entries / 2 {
                        segments.segment_of_pool(segment(at), 2 * MIB, 512, at);
                    }
                },
                |_| {},
            ),
        ),
        (
            "segments before the first request",
            trace(&|trace, at| {
                trace.entry("segment_alloc", segment(2 * at), 2 * MIB, 0);
                trace.entry("segment_alloc", segment(2 * at + 1), 2 * MIB, 0);
            }),
        ),
        (
            "mapped pages before the first request",
            trace(&|trace, at| {
                trace.entry("segment_map", large(2 * at), 2 * MIB, at % 7 * 16);
                trace.entry("segment_map", large(2 * at + 1), 2 * MIB, 0);
            }),
        ),
        (
            "blocks that wait for ever",
            Pickle::snapshot(
                |_| {},
                |trace| {
                    trace.entry("segment_alloc", BASE, entries * MIB * 2, 0);
                    for at in 0..entries / 2 {
                        trace.entry("alloc", segment(at), 2 * MIB, 0);
                        trace.entry("free_requested", segment(at), 2 * MIB, 0);
                    }
                },
            ),
        ),
        (
            "blocks that wait long, one after the other",
            Pickle::snapshot(
                |_| {},
                |trace| {
                    trace.entry("segment_alloc", BASE, entries * MIB * 2, 0);
                    for at in 0..entries / 4 {
                        trace.entry("alloc", segment(at), 2 * MIB, 0);
                        trace.entry("free_requested", segment(at), 2 * MIB, 0);
                    }
                    for at in 0..entries / 4 {
                        trace.entry("free_completed", segment(at), 2 * MIB, 0);
                        trace.entry("alloc", segment(at + entries / 2), 512, 0);
                    }
                },
            ),
        ),
        (
            "segments that go while blocks lie in them",
            Pickle::snapshot(
                |segments| {
                    segments.segment(BASE, entries * 512, entries * 512);
                },
                |trace| {
                    for at in 0..entries / 2 {
                        trace.entry("alloc", small(at), 512, 0);
                    }
                    for at in 0..entries / 2 {
                        trace.entry("segment_free", BASE + at % 2, entries * 512, 0);
                    }
                },
            ),
        ),
        (
            "segments, and no history",
            Pickle::snapshot(
                |segments| {
                    for at in 0..entries / 2 {
                        segments.segment(segment(at), 2 * MIB, 512);
                    }
                },
                |_| {},
            ),
        ),
    ]
}

/// Short recordings that unpack to much, with the number of bytes that they unpack to.
fn recordings() -> Vec<(&'static str, Vec<u8>, u64)> {
    let recording = |frames: u64, events: &dyn Fn(u64) -> Vec<EventKind>| {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        let (mut builder, mut unpacked) = (FrameBuilder::new(0), 0);
        for frame in 0..frames {
            events(frame).into_iter().for_each(|kind| builder.push(&Event::new(Micros(frame), kind)));
            unpacked += builder.bytes() as u64;
            writer.write(&builder.finish().unwrap()).unwrap();
        }
        drop(writer);
        (file, unpacked)
    };
    let (segments, segments_unpacked) = recording(60, &|frame| {
        let address = |at: u64| Address(BASE + (frame * 30_000 + at) * 2 * MIB);
        let (size, stream, pool) = (Bytes::mib(2), StreamId::DEFAULT, PoolKind::Small);
        (0..30_000).map(|at| EventKind::SegmentAlloc { address: address(at), size, stream, pool }).collect()
    });
    let (notices, notices_unpacked) = recording(700, &|_| vec![EventKind::Notice { text: "x".repeat(1 << 16).into() }]);
    vec![("live segments", segments, segments_unpacked), ("long notices", notices, notices_unpacked)]
}

/// Runs a command on a file under limits.
fn bounded(home: &Path, what: &str, command: &[&str], file: &Path, memory_kib: u64) {
    let mut sh = Command::new("sh");
    let script = format!("ulimit -d {memory_kib} && ulimit -t {SECONDS} && exec \"$@\"");
    sh.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_vramlab"), command[0]]).arg(file).args(&command[1..]);
    let out = sh.env("XDG_CONFIG_HOME", home).env("MALLOC_ARENA_MAX", "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code().is_some() && !said.contains("panicked"),
        "{command:?} of {what} ended with {}, within {SECONDS} s and {} MiB: {said}",
        out.status,
        memory_kib >> 10
    );
}

const COMMANDS: [&[&str]; 3] = [&["summary"], &["check", "--max-peak", "1TiB"], &["report", "--no-settings"]];
const TRYING: [&[&str]; 1] = [&["report"]];

#[test]
fn a_snapshot_takes_what_it_is_worth() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("harmful.pickle");
    for (entries, commands) in [(ENTRIES, &COMMANDS[..]), (TRIED_ENTRIES, &TRYING[..])] {
        for (what, pickle) in snapshots(entries) {
            fs::write(&file, &pickle).unwrap();
            for command in commands {
                bounded(home.path(), what, command, &file, EMPTY_KIB + 20 * (pickle.len() as u64 >> 10));
            }
        }
    }
}

#[test]
fn a_recording_takes_what_it_unpacks_to() {
    let home = tempfile::tempdir().unwrap();
    for (what, recording, unpacked) in recordings() {
        let file = home.path().join(format!("{}.vram", what.replace(' ', "-")));
        fs::write(&file, &recording).unwrap();
        for command in COMMANDS.into_iter().chain(TRYING) {
            bounded(home.path(), what, command, &file, EMPTY_KIB + 20 * (unpacked >> 10));
        }
    }
}

/// Each failure gives back what it can, beside many parts of segments that can't be given back.
#[test]
fn requests_that_fail_do_not_look_through_all_that_is_free() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("failures.pickle");
    let (held, failures) = (ENTRIES / 4, ENTRIES / 10);
    let history = |trace: &mut Pickle| {
        for at in 0..held {
            trace.entry("segment_alloc", BASE + at * 12 * MIB, 12 * MIB, 0);
            trace.entry("alloc", BASE + at * 12 * MIB, 21 * MIB / 2, 0);
        }
        for at in 0..failures {
            let [kept, freed] = [held + at, held + failures + at].map(|at| BASE + at * 20 * MIB);
            trace.entry("alloc", kept, 20 * MIB, 0);
            trace.entry("segment_alloc", freed, 20 * MIB, 0);
            for action in ["alloc", "free_requested", "free_completed"] {
                trace.entry(action, freed, 20 * MIB, 0);
            }
        }
    };
    let pickle = Pickle::snapshot(|_| {}, history);
    fs::write(&file, &pickle).unwrap();
    let command = ["whatif", "--limit", "180GiB"];
    bounded(home.path(), "failures", &command, &file, EMPTY_KIB + 20 * (pickle.len() as u64 >> 10));
}
