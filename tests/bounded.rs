//! No small file makes the program take much memory or time. The files are hostile pickles of every shape in which two
//! bytes refer to a large object once more, with each object at each place of a snapshot that can refer to one.
//!
//! There is one test, because it measures its own process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't measure must fail")]

use std::fs;

use rustix::process::{Resource, Rlimit, setrlimit};
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, verify};

/// How often an object repeats its contents, and how often it is referred to. Reading it once for each pair would take
/// hours and hundreds of gigabytes.
const TIMES: usize = 12_000;
/// The most memory that the process may ever use.
const MEMORY_KIB: u64 = 128 << 10;
/// The most processor time for one pickle, in hundredths of a second: far more than a slow machine needs, and far less
/// than reading everything would take.
const TICKS: u64 = 300;

/// A pickle under construction.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        let len = u32::try_from(text.len()).unwrap();
        self.raw(b"X").raw(&len.to_le_bytes()).raw(text.as_bytes())
    }

    /// Repeats `bytes`.
    fn times(self, bytes: &[u8]) -> Self {
        self.raw(&bytes.repeat(TIMES))
    }

    /// A dictionary of texts (or, after `=`, raw values), written in one batch.
    fn dict(self, pairs: &[(&str, &[u8])]) -> Self {
        pairs.iter().fold(self.raw(b"}("), |bytes, (key, value)| bytes.text(key).raw(value)).raw(b"u")
    }

    /// A dictionary whose keys are written one by one.
    fn slow_dict(self, pairs: &[(&str, &[u8])]) -> Self {
        pairs.iter().fold(self.raw(b"}"), |bytes, (key, value)| bytes.text(key).raw(value).raw(b"s"))
    }
}

fn bytes() -> Bytes {
    Bytes::default()
}

fn text(text: &str) -> Vec<u8> {
    bytes().text(text).0
}

/// A list that contains `item` once and then refers to it.
fn list_of(item: &[u8]) -> Vec<u8> {
    bytes().raw(b"](").raw(item).raw(b"q\x08").times(b"h\x08").raw(b"e").0
}

/// `pairs`, with many more that nobody reads.
fn padded(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    bytes().slow_dict(pairs).raw(b"(").text("x").raw(b"q\x09N").times(b"h\x09N").raw(b"u").0
}

/// Large objects, each with a name; [`places`] refer to them.
fn objects() -> Vec<(&'static str, Vec<u8>)> {
    let frame = bytes().dict(&[("filename", &text("f")), ("line", b"K\x01"), ("name", &text("n"))]).0;
    let slow_frame = bytes().slow_dict(&[("filename", &text("f")), ("line", b"K\x01"), ("name", &text("n"))]).0;
    let entry = bytes().dict(&[("action", &text("alloc")), ("size", b"K\x01"), ("addr", b"K\x00")]).0;
    let slow_entry = [("action", &text("alloc")[..]), ("size", b"K\x01"), ("addr", b"K\x00")];
    let block = bytes().dict(&[("size", b"K\x01"), ("state", &text("inactive"))]).0;
    let segment = [("address", &b"K\x00"[..]), ("total_size", b"K\x01")];
    let blocks = list_of(&block);
    let annotation = [("name", &text("a")[..]), ("stage", &text("START"))];
    vec![
        ("a text", text(&"x".repeat(1 << 20))),
        ("settings of many words", text(&"a,".repeat(1 << 19))),
        ("a list of nothing", list_of(b"N")),
        ("a list of wide numbers", list_of(b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40")),
        ("a stack", list_of(&frame)),
        ("a stack of frames that were stored", bytes().raw(&frame).raw(b"q\x080](").times(b"h\x08").raw(b"h\x08e").0),
        (
            "a stack that goes on after its end",
            bytes().raw(&frame).raw(b"q\x080](").times(b"h\x08").raw(b"e(").times(b"h\x08").raw(b"e").0,
        ),
        ("nearly a stack", bytes().raw(&list_of(&frame)).raw(b"Na").0),
        ("a stack of frames made key by key", list_of(&slow_frame)),
        ("nearly a stack of frames made key by key", bytes().raw(&list_of(&slow_frame)).raw(b"Na").0),
        ("a frame of many keys", padded(&[("name", &text("n")), ("filename", &text("f"))])),
        ("no frame, of many keys", padded(&[("filename", b"N")])),
        ("a list of entries", list_of(&entry)),
        ("a list of entries made key by key", list_of(&bytes().slow_dict(&slow_entry).0)),
        ("an entry of many keys", padded(&slow_entry)),
        ("a list of blocks", blocks.clone()),
        ("a block of many keys", padded(&[("size", b"K\x01"), ("state", &text("inactive"))])),
        ("a segment of many blocks", bytes().slow_dict(&segment).text("blocks").raw(&blocks).raw(b"s").0),
        ("a segment of many keys", padded(&segment)),
        ("a list of segments", list_of(&bytes().dict(&segment).0)),
        ("an annotation of many keys", padded(&annotation)),
        ("a list of annotations", list_of(&bytes().dict(&annotation).0)),
        (
            "a dictionary of texts",
            bytes()
                .raw(b"}(")
                .text("k")
                .raw(b"q\x0a")
                .text(&"x".repeat(1 << 16))
                .raw(b"q\x0b")
                .times(b"h\x0ah\x0b")
                .raw(b"u")
                .0,
        ),
    ]
}

/// Places of a snapshot that refer to objects, each with a name: a snapshot with many references to the object in memo
/// 0.
fn places() -> Vec<(&'static str, Vec<u8>)> {
    const OBJECT: &[u8] = b"h\x00";
    let snapshot = |pairs: &[(&str, &[u8])]| {
        let traces: (&str, &[u8]) = ("device_traces", b"]");
        bytes().dict(&[&[traces], pairs].concat()).0
    };
    let many = bytes().raw(b"](").times(OBJECT).raw(b"e").0;
    // Many dictionaries, each with the object under one key.
    let each = |pairs: &[(&str, &[u8])], key: &str| {
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| text(key)).chain([text(key)]).collect();
        let mut one = b"}(".to_vec();
        let mut all = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let memo = u8::try_from(0x20 + at).unwrap();
            all.extend([key, &b"q"[..], &[memo], b"0"].concat());
            one.extend([b'h', memo]);
            one.extend(pairs.get(at).map_or(OBJECT, |(_, value)| value));
        }
        one.push(b'u');
        all.extend(bytes().raw(b"](").times(&one).raw(b"e").0);
        all
    };
    let listed = |list: &[u8]| bytes().raw(b"]").raw(list).raw(b"a").0;
    let alloc = text("alloc");
    let entry: [(&str, &[u8]); 2] = [("size", b"K\x01"), ("action", &alloc)];
    // As Python writes them: the action comes first, as a short text.
    let usual: [(&str, &[u8]); 2] = [("action", b"\x8c\x05alloc"), ("size", b"K\x01")];
    let segment: [(&str, &[u8]); 2] = [("address", b"K\x00"), ("total_size", b"K\x01")];
    let inactive = text("inactive");
    let block: [(&str, &[u8]); 2] = [("size", b"K\x01"), ("state", &inactive)];
    let with_blocks = |list: &[u8]| listed(&bytes().dict(&[segment[0], segment[1], ("blocks", list)]).0);
    let settings = bytes().raw(b"}(").text("k").raw(b"q\x20").raw(OBJECT).times(b"h\x20h\x00").raw(b"u").0;
    let duplicates = |key: &str| {
        bytes()
            .raw(b"}(")
            .text("device_traces")
            .raw(b"]")
            .text(key)
            .raw(b"q\x20")
            .raw(OBJECT)
            .times(b"h\x20h\x00")
            .raw(b"u")
            .0
    };
    vec![
        ("device_traces", bytes().raw(b"}").text("device_traces").raw(&many).raw(b"s").0),
        (
            "a few device_traces",
            bytes().raw(b"}").text("device_traces").raw(b"](").raw(&OBJECT.repeat(100)).raw(b"es").0,
        ),
        ("a trace", bytes().raw(b"}").text("device_traces").raw(&listed(&many)).raw(b"s").0),
        (
            "frames of entries",
            bytes().raw(b"}").text("device_traces").raw(&listed(&each(&entry, "frames"))).raw(b"s").0,
        ),
        (
            "frames of entries as Python writes them",
            bytes().raw(b"}").text("device_traces").raw(&listed(&each(&usual, "frames"))).raw(b"s").0,
        ),
        (
            "pools of entries as Python writes them",
            bytes().raw(b"}").text("device_traces").raw(&listed(&each(&usual, "pool_id"))).raw(b"s").0,
        ),
        (
            "metadata of entries",
            bytes().raw(b"}").text("device_traces").raw(&listed(&each(&entry, "user_metadata"))).raw(b"s").0,
        ),
        (
            "action of entries",
            bytes().raw(b"}").text("device_traces").raw(&listed(&each(&entry[..1], "action"))).raw(b"s").0,
        ),
        ("segments", snapshot(&[("segments", &many)])),
        ("segments, again and again", duplicates("segments")),
        ("blocks of segments", snapshot(&[("segments", &each(&segment, "blocks"))])),
        ("frames of segments", snapshot(&[("segments", &each(&segment, "frames"))])),
        ("pools of segments", snapshot(&[("segments", &each(&segment, "segment_pool_id"))])),
        ("types of segments", snapshot(&[("segments", &each(&segment, "segment_type"))])),
        ("blocks", snapshot(&[("segments", &with_blocks(&many))])),
        ("frames of blocks", snapshot(&[("segments", &with_blocks(&each(&block, "frames")))])),
        ("states of blocks", snapshot(&[("segments", &with_blocks(&each(&block[..1], "state")))])),
        ("settings", snapshot(&[("allocator_settings", &settings)])),
        ("all settings", snapshot(&[("allocator_settings", OBJECT)])),
        (
            "the configuration",
            snapshot(&[("allocator_settings", &bytes().dict(&[("PYTORCH_CUDA_ALLOC_CONF", OBJECT)]).0)]),
        ),
        ("annotations", snapshot(&[("external_annotations", &many)])),
        ("names of annotations", snapshot(&[("external_annotations", &each(&[], "name"))])),
        ("nothing that is looked for", snapshot(&[("x", &many)])),
    ]
}

/// The most memory that this process has used so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Processor time of this process so far, in hundredths of a second.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn what_a_pickle_asks_for_is_bounded_by_its_length() {
    // A reading without bounds shall fail here, and not take the machine down.
    let end = |amount| Rlimit { current: Some(amount), maximum: Some(amount) };
    setrlimit(Resource::As, end(2 << 30)).unwrap();
    setrlimit(Resource::Cpu, end(120)).unwrap();

    let (mut memory, mut work, mut read) = (0, 0, 0);
    for (object, made) in objects() {
        for (place, snapshot) in places() {
            let pickle = bytes().raw(&made).raw(b"q\x000").raw(&snapshot).raw(b".").0;
            assert!(pickle.len() < 3 << 20);
            let before = ticks();
            let message = match Snapshot::read(&pickle[..]) {
                Ok(snapshot) => {
                    read += 1;
                    if let Ok(conditions) = Conditions::find("none".as_ref(), &snapshot, &Default::default()) {
                        let _ = verify(&snapshot, &conditions);
                    }
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            memory += usize::from(message.contains("far more memory"));
            work += usize::from(message.contains("far more work"));
            let (took, held) = (ticks() - before, peak());
            assert!(took < TICKS, "{object} as {place} takes {took}0 ms: {message}");
            assert!(held < MEMORY_KIB, "{object} as {place} takes {held} KiB: {message}");
        }
    }
    // The shapes reach both limits, and harmless ones are read.
    assert!(memory > 0 && work > 20 && read > 100, "{memory} {work} {read}");
}
