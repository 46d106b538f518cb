use std::io;

use proptest::prelude::*;

use super::opcode as op;
use super::*;
use crate::types::{StackId, TextId, TraceEntry};
use crate::{Snapshot, SnapshotError, read};

const SMALL: [&[u8]; 3] = [
    include_bytes!("../../../tests/pickles/small.protocol0.pickle"),
    include_bytes!("../../../tests/pickles/small.protocol2.pickle"),
    include_bytes!("../../../tests/pickles/small.protocol4.pickle"),
];

/// A listener that ignores everything.
struct IgnoringListener;

impl PickleListener for IgnoringListener {
    fn hear(&mut self, _: &mut Arena, _: &[Value]) -> Result<(), Problem> {
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<(Arena, Value), PickleError> {
    super::read(&mut Plain(bytes), &mut IgnoringListener).map(|(arena, top, _)| (arena, top))
}

fn snapshot(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    read::snapshot(&mut Plain(bytes), None)
}

fn problem(bytes: &[u8]) -> (u64, String) {
    let error = parse(bytes).unwrap_err();
    (error.offset, error.problem.to_string())
}

fn value(bytes: &[u8]) -> Value {
    parse(bytes).unwrap().1
}

#[test]
fn numbers_of_all_widths_are_read() {
    assert_eq!(value(b"K\x07."), Value::Int(7));
    assert_eq!(value(b"M\x01\x02."), Value::Int(513));
    assert_eq!(value(b"J\xff\xff\xff\xff."), Value::Int(-1));
    assert_eq!(value(b"\x8a\x00."), Value::Int(0));
    assert_eq!(value(b"\x8a\x01\xff."), Value::Int(-1));
    assert_eq!(value(b"\x8a\x06\x00\x00\x00\x02\x03\x00."), Value::Int(0x3_0200_0000));
    assert_eq!(value(b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."), Value::Unsigned(u64::MAX));
    assert_eq!(value(b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), Value::Int(i64::MIN));
    assert_eq!(value(b"\x8a\x0a\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01."), Value::Opaque);
    assert_eq!(value(b"\x8b\x02\x00\x00\x00\x01\x02."), Value::Int(513));
    assert_eq!(value(b"I01\n."), Value::Bool(true));
    assert_eq!(value(b"L-12L\n."), Value::Int(-12));
    assert_eq!(value(b"L18446744073709551615L\n."), Value::Unsigned(u64::MAX));
    assert_eq!(value(b"F1.5\n."), Value::Float(1.5));
    assert_eq!(value(b"G\x3f\xf8\x00\x00\x00\x00\x00\x00."), Value::Float(1.5));
}

#[test]
fn packed_values_come_back_whole() {
    for bytes in [&b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00\x94h\x00."[..], b"J\xff\xff\xff\xff\x94h\x00."] {
        assert_eq!(value(bytes), value(&bytes[..bytes.len() - 4].iter().copied().chain(*b".").collect::<Vec<_>>()));
    }
    assert_eq!(value(b"J\xff\xff\xff\x7fq\x05Nh\x05."), Value::Int(0x7fff_ffff));
    assert_eq!(value(b"G\x3f\xf8\x00\x00\x00\x00\x00\x00q\x00h\x00."), Value::Float(1.5));
}

#[test]
fn lists_dictionaries_and_tuples_are_read() {
    let (mut arena, top) = parse(&b"\x80\x04}(\x8c\x01a](K\x01K\x02e\x8c\x01bK\x03K\x04\x86u."[..]).unwrap();
    let a = arena.get(top, "a").unwrap().unwrap();
    assert_eq!((arena.list_len(a).unwrap(), arena.item(a, 1)), (Some(2), Some(Value::Int(2))));
    let b = arena.get(top, "b").unwrap().unwrap();
    assert_eq!(arena.item(b, 0), Some(Value::Int(3)));
    assert_eq!(arena.get(top, "c").unwrap(), None);
}

#[test]
fn texts_of_protocol_0_are_unescaped() {
    let (arena, top) = parse(&b"V\xe9\\u00e9\\U0001f600\\x\\u12\n."[..]).unwrap();
    let Value::Text(id) = top else { panic!("{top:?}") };
    assert_eq!(arena.texts.get(id), "éé😀\\x\\u12");
}

#[test]
fn code_is_refused_by_name_and_place() {
    let (offset, problem) = problem(b"\x80\x02cos\nsystem\n.");
    assert_eq!(offset, 2);
    assert!(problem.contains("run code (GLOBAL)"), "{problem}");
    for opcode in *b"RbioPQ\x81\x82\x83\x84\x92\x93\x97\x98" {
        assert!(matches!(parse(&[b'N', opcode][..]).unwrap_err().problem, Problem::Executes(_)), "{opcode}");
    }
}

#[test]
fn damage_is_named() {
    assert!(problem(b"\x80\x09.").1.contains("protocol 9"));
    assert!(problem(b"\xff.").1.contains("0xff"));
    assert!(problem(b"h\x05.").1.contains("memo entry 5"));
    assert!(problem(b".").1.contains("not there"));
    assert!(problem(b"K").1.contains("middle of a value"));
    assert!(problem(b"}(K\x01u.").1.contains("no value"));
    assert!(problem(b"N(K\x01u.").1.contains("no dictionary"));
    assert!(problem(b"NK\x01a.").1.contains("no list"));
    assert!(problem(b"(0N1.").1.contains("without a mark"));
}

#[test]
fn impossible_lengths_are_refused_at_once() {
    let huge_text = [&b"\x8d"[..], &u64::MAX.to_le_bytes(), b"abc"].concat();
    assert!(problem(&huge_text).1.contains("longer than any"));
    let huge_bytes = [&b"\x8e"[..], &u64::MAX.to_le_bytes(), b"abc"].concat();
    assert!(problem(&huge_bytes).1.contains("middle of a value"));
    let far_memo = [&b"Nr"[..], &u32::MAX.to_le_bytes(), b"."].concat();
    assert!(problem(&far_memo).1.contains("far more memory"));
    let long_text = [&b"X"[..], &(16u32 << 20).to_le_bytes(), b"abc"].concat();
    assert!(problem(&long_text).1.contains("middle of a value"));
}

#[test]
fn deep_nesting_is_harmless() {
    assert!(problem(&b"(".repeat(1_000_000)).1.contains("more than 1000 deep"));
    // Nested lists need no marks: hundreds of thousands are read, and dropped, without recursion.
    let nested = [b"]".repeat(300_000), b"a".repeat(299_999), b".".to_vec()].concat();
    assert!(matches!(value(&nested), Value::List(0)));
}

#[test]
fn shared_values_stay_shared() {
    // Each of 60 lists holds the previous one twice: a reader that copies would make 2^60 leaves.
    let mut bomb = b"]\x94".to_vec();
    for level in 0..60u8 {
        bomb.extend([b']', 0x94, b'(', b'h', level, b'h', level, b'e']);
    }
    bomb.push(b'.');
    assert!(matches!(value(&bomb), Value::List(60)));
}

/// A trace of a hundred entries, listed for one device and then for `more`.
fn shared_trace(more: usize) -> Vec<u8> {
    let mut bytes = b"}(\x8c\x0ddevice_traces](](".to_vec();
    for _ in 0..100 {
        bytes.extend(b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01u");
    }
    bytes.extend(b"e\x94");
    bytes.extend(b"h\x00".repeat(more));
    bytes.extend(b"eu.");
    bytes
}

#[test]
fn a_shared_trace_is_read_once() {
    let shared = snapshot(&shared_trace(127)).unwrap();
    assert_eq!((shared.device_count(), shared.entries.len()), (128, 100));
    let error = snapshot(&shared_trace(128)).unwrap_err().to_string();
    assert!(error.contains("traces of 129 devices"), "{error}");
}

#[test]
fn what_would_be_copied_is_counted() {
    // A segment list that contains one segment of 1000 blocks half a million times.
    let mut bomb =
        b"}(\x8c\x0ddevice_traces]\x8c\x08segments](}(\x8c\x07addressK\x00\x8c\x0atotal_sizeK\x00\x8c\x06blocks]("
            .to_vec();
    bomb.extend(b"}(\x8c\x04sizeK\x01\x8c\x05state\x8c\x08inactiveu\x94");
    bomb.extend(b"h\x00".repeat(1000));
    bomb.extend(b"eu\x94");
    bomb.extend(b"h\x01".repeat(500_000));
    bomb.extend(b"eu.");
    let error = snapshot(&bomb[..]).unwrap_err().to_string();
    assert!(error.contains("far more memory"), "{error}");
}

#[test]
fn what_is_looked_at_again_is_counted() {
    // A list that is no stack, which only its last item shows, in every entry of a trace.
    let mut bomb = b"](}(\x8c\x08filename\x8c\x01fu\x94".to_vec();
    bomb.extend(b"h\x00".repeat(50_000));
    bomb.extend(b"Neq\x010}(\x8c\x0ddevice_traces](](");
    for _ in 0..5000 {
        bomb.extend(b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x06framesh\x01u");
    }
    bomb.extend(b"eeu.");
    let error = snapshot(&bomb).unwrap_err().to_string();
    assert!(error.contains("far more work"), "{error}");
}

#[test]
fn an_entry_may_be_a_frame_of_its_own_stack() {
    let bytes = b"}\x8c\x0ddevice_traces]](}\x94\x8c\x08filename\x8c\x01fs\x8c\x06frames]h\x00as\x8c\x06action\x8c\x05allocs\x8c\x04sizeK\x01seas.";
    let error = snapshot(bytes).unwrap_err().to_string();
    assert!(error.contains("an entry 0 in the trace of device 0"), "{error}");
}

#[test]
fn a_frame_may_have_any_line() {
    // As torch.compile leaves it: -1 stored as an unsigned number.
    for (line, expected) in [
        (&b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"[..], 0),
        (b"J\xff\xff\xff\xff", 0),
        (b"\x8a\x05\x00\x00\x00\x00\x01", 0),
        (b"K\x07", 7),
    ] {
        let mut bytes = b"}\x8c\x0ddevice_traces]](}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x06frames]\
            }(\x8c\x04name\x8c\x05graph\x8c\x08filename\x8c\x05ab.py\x8c\x04line"
            .to_vec();
        bytes.extend(line);
        bytes.extend(b"uaueas.");
        let snapshot = snapshot(&bytes).unwrap();
        let entry = &snapshot.device_trace(0)[0];
        let frames: Vec<_> = snapshot.stacks.frames(entry.stack).collect();
        assert_eq!(frames.iter().map(|frame| frame.line).collect::<Vec<_>>(), [expected]);
        let caller = snapshot.caller(entry.stack, entry.metadata).unwrap();
        assert_eq!(caller, if expected == 0 { "graph (ab.py)" } else { "graph (ab.py:7)" });
    }
}

#[test]
fn every_prefix_of_a_snapshot_is_an_error() {
    for bytes in SMALL {
        assert!(snapshot(bytes).is_ok());
        for end in 0..bytes.len() {
            assert!(snapshot(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = snapshot(&bytes[..]);
    }

    #[test]
    fn random_opcodes_never_panic(
        bytes in prop::collection::vec(
            prop::sample::select(&b"(.012KN]})tuaesqhjlrd\x00\x01\x02\x85\x86\x87\x88\x89\x8a\x8c\x8f\x90\x91\x94"[..]),
            0..300,
        )
    ) {
        let _ = snapshot(&bytes[..]);
    }

    #[test]
    fn damaged_snapshots_never_panic(
        which in 0..3usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = SMALL[which].to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = snapshot(&bytes[..]);
    }
}

/// Writes a snapshot opcode by opcode: in a form that the fast reader can read, or, if it is `slow`, in an equivalent
/// form that only the full machine can read.
struct PickleWriter {
    bytes: Vec<u8>,
    slow: bool,
    stored: u32,
}

impl PickleWriter {
    /// Keys and words of entries, each stored under its index.
    const WORDS: [&str; 13] = [
        "action",
        "alloc",
        "addr",
        "size",
        "stream",
        "time_us",
        "user_metadata",
        "frames",
        "pool_id",
        "oom",
        "filename",
        "name",
        "line",
    ];
    /// The index under which the first frame is stored.
    const FRAME: u32 = 300;

    fn new(slow: bool) -> Self {
        let mut spelled = Self { bytes: b"}(\x8c\x0ddevice_traces](](".to_vec(), slow, stored: 0 };
        for word in Self::WORDS {
            spelled.text(word);
            spelled.bytes.push(op::POP);
        }
        while spelled.stored < Self::FRAME {
            spelled.bytes.push(b'K');
            spelled.bytes.push(spelled.stored as u8);
            spelled.memoize();
            spelled.bytes.push(op::POP);
        }
        spelled
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend(b"eeu.");
        self.bytes
    }

    fn memoize(&mut self) {
        self.bytes.push(op::MEMOIZE);
        self.stored += 1;
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend([&[op::SHORT_BINUNICODE, text.len() as u8], text.as_bytes()].concat());
        self.memoize();
    }

    fn stored(&mut self, index: u32) {
        match u8::try_from(index) {
            Ok(index) => self.bytes.extend([b'h', index]),
            Err(_) => self.bytes.extend([&b"j"[..], &index.to_le_bytes()].concat()),
        }
    }

    fn word(&mut self, word: &str) {
        self.stored(Self::WORDS.iter().position(|known| *known == word).unwrap() as u32);
    }

    /// Opens a list or dictionary. A value that is dropped at once keeps the fast reader from reading it.
    fn open(&mut self, opcode: u8, stored: bool) {
        self.bytes.push(opcode);
        if stored {
            self.memoize();
        }
        if self.slow {
            self.bytes.extend(b"N0");
        }
    }

    /// Stores a frame that is not part of anything yet.
    fn frame(&mut self, line: u8) {
        self.open(op::EMPTY_DICT, true);
        self.bytes.push(op::MARK);
        self.word("name");
        self.word("stream");
        self.word("line");
        self.bytes.extend([b'K', line]);
        self.word("filename");
        self.word("addr");
        self.bytes.extend(b"u0");
    }

    fn number(&mut self, n: u64, width: u8) {
        match width {
            0 if n < 1 << 8 => self.bytes.extend([b'K', n as u8]),
            0 | 1 if n < 1 << 16 => self.bytes.extend([&b"M"[..], &(n as u16).to_le_bytes()].concat()),
            0..=2 if n < 1 << 31 => self.bytes.extend([&b"J"[..], &(n as u32).to_le_bytes()].concat()),
            _ => self.bytes.extend([&[op::LONG1, 8][..], &n.to_le_bytes()].concat()),
        }
    }

    /// An entry; `shape` chooses one of the ways to write it.
    fn entry(&mut self, n: u64, shape: u16, stack: &[u32]) {
        let is = |bit: u16| shape >> bit & 1 == 1;
        self.open(op::EMPTY_DICT, is(0));
        self.bytes.push(op::MARK);
        self.word("action");
        self.word(if is(1) { "alloc" } else { "oom" });
        self.word("addr");
        self.number(n, (shape >> 2 & 3) as u8);
        self.word("size");
        self.number(n / 2, (shape >> 4 & 3) as u8);
        if is(6) {
            self.word("user_metadata");
            self.text(["N/A", "", "a text"][usize::from(shape % 3)]);
        }
        if is(7) {
            self.word("pool_id");
            self.number(u64::from(shape % 3), 0);
            self.number(0, 0);
            self.bytes.push(op::TUPLE2);
            self.memoize();
        }
        if is(8) {
            self.word("time_us");
            self.number(n, 3);
        }
        self.word("frames");
        self.stack(stack, is(9));
        self.bytes.push(op::SETITEMS);
    }

    fn stack(&mut self, stack: &[u32], stored: bool) {
        self.open(op::EMPTY_LIST, stored);
        match stack {
            [] => {}
            [frame] => {
                self.stored(Self::FRAME + frame);
                self.bytes.push(op::APPEND);
            }
            _ => {
                for batch in stack.chunks(1000) {
                    self.bytes.push(op::MARK);
                    batch.iter().for_each(|frame| self.stored(Self::FRAME + frame));
                    self.bytes.push(op::APPENDS);
                }
            }
        }
    }
}

/// The entries of the first device.
fn told(bytes: &[u8]) -> Vec<(TraceEntry, String, Vec<u32>)> {
    let mut snapshot = snapshot(bytes).unwrap();
    let entries = std::mem::take(&mut snapshot.entries);
    let mut all = Vec::new();
    for mut entry in entries {
        let lines = snapshot.stacks.frames(entry.stack).map(|frame| frame.line).collect();
        let metadata = snapshot.texts.get(entry.metadata).to_owned();
        // The numbers of stacks and texts depend on when they were first needed.
        (entry.stack, entry.metadata) = (StackId::EMPTY, TextId::default());
        all.push((entry, metadata, lines));
    }
    all
}

#[test]
fn a_stack_may_be_written_in_several_parts() {
    for stack in [0, 1, 2, 999, 1000, 1001, 2001] {
        let stack: Vec<u32> = (0..stack).map(|frame| frame % 3).collect();
        let mut both = [false, true].map(|slow| {
            let mut spelled = PickleWriter::new(slow);
            (1..4).for_each(|line| spelled.frame(line));
            spelled.entry(7, 0x3ff, &stack);
            spelled.entry(8, 0x3ff, &stack);
            told(&spelled.finish())
        });
        let lines: Vec<u32> = stack.iter().map(|frame| frame + 1).collect();
        assert_eq!(both[0].iter().map(|(.., lines)| lines).collect::<Vec<_>>(), [&lines, &lines]);
        let [quick, slow] = &mut both;
        assert_eq!(quick, slow);
    }
}

#[test]
fn what_is_stored_anew_is_read_anew() {
    let mut spelled = PickleWriter::new(false);
    (1..4).for_each(|line| spelled.frame(line));
    spelled.entry(7, 0x3ff, &[0, 1]);
    // The third frame replaces the first.
    spelled.stored(PickleWriter::FRAME + 2);
    spelled.bytes.extend([&b"r"[..], &PickleWriter::FRAME.to_le_bytes(), b"0"].concat());
    spelled.entry(8, 0x3ff, &[0, 1]);
    let told = told(&spelled.finish());
    assert_eq!(told.iter().map(|(.., lines)| &lines[..]).collect::<Vec<_>>(), [[1, 2], [3, 2]]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn one_look_reads_what_the_machine_reads(
        entries in prop::collection::vec(
            (0..1u64 << 40, any::<u16>(), prop::collection::vec(0..5u32, 0..6)),
            0..40,
        )
    ) {
        let [quick, slow] = [false, true].map(|slow| {
            let mut spelled = PickleWriter::new(slow);
            (1..6).for_each(|line| spelled.frame(line));
            for (n, shape, stack) in &entries {
                spelled.entry(*n, *shape, stack);
            }
            spelled.finish()
        });
        // The result is the same if only a few bytes are available at a time.
        let drops = read::snapshot(&mut Plain(Drops(&quick)), None).unwrap();
        prop_assert_eq!(drops.device_trace(0).len(), entries.len());
        prop_assert_eq!(told(&quick), told(&slow));
    }
}

/// A source that never gives more than a few bytes at once.
struct Drops<'a>(&'a [u8]);

impl io::Read for Drops<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.len().min(buffer.len()).min(1 + self.0.len() % 13);
        buffer[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}
