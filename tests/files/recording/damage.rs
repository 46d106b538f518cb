//! Files that are no recordings, of other versions, or damaged: each gives a sentence, whatever its bytes are.

use std::io::{Cursor, Read};
use std::sync::Arc;

use vramlab::model::{CopyDirection, Event, EventKind, Micros, NameId, StepReport};
use vramlab::recording::{Encoder, Next, Reader, RecordingError, Timeline, summary};
use vramlab::units::{Bytes, DeviceIndex};

use super::file::{read, recorded};
use super::{every_kind, frames_of, runs, two_ranks};
use crate::synthetic;

/// The first frame with `change` applied to its header, whose own checksum is right.
fn with_header(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = recorded(&frames_of(&synthetic::crowded(50), 1000));
    change(&mut bytes[16..56]);
    let checksum = crc32fast::hash(&bytes[16..56]);
    bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn sentence(error: &RecordingError) -> String {
    let text = error.to_string();
    assert!(text.len() < 200 && !text.contains('\n') && text.contains("; "), "{text}");
    text
}

#[test]
fn other_files_and_versions_are_refused_with_a_sentence() {
    let bytes = recorded(&frames_of(&synthetic::crowded(50), 1000));
    for other in
        [&b"{\"traceEvents\": []}"[..], b"\x80\x04\x95 a pickle", b"\xf6vram", &[0; 100], b"\xf6vramla\0\x01\0"]
    {
        let refused = read(other);
        if other == b"\xf6vram" {
            assert!(matches!(refused, Ok((events, false)) if events.is_empty()), "more may follow");
        } else {
            assert!(sentence(&refused.unwrap_err()).contains("no recording"));
            assert!(summary(Cursor::new(other)).is_err());
        }
    }
    for (version, words) in
        [(9_u16, "newer vramlab"), (u16::MAX, "format 65535"), (0, "no longer read"), (5, "no longer read")]
    {
        let mut bytes = bytes.clone();
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        assert!(sentence(&read(&bytes[..]).unwrap_err()).contains(words));
        assert!(sentence(&summary(Cursor::new(bytes)).unwrap_err()).contains(words));
    }
}

#[test]
fn a_file_of_the_format_before_is_read_as_it_was_written() {
    let events = synthetic::training_run();
    let mut bytes = recorded(&frames_of(&events, 1000));
    bytes[8..10].copy_from_slice(&6_u16.to_le_bytes());
    let (read, whole) = read(&bytes[..]).unwrap();
    assert!(whole && read == events);
    assert_eq!(summary(Cursor::new(bytes)).unwrap().events, events.len() as u64);
}

#[test]
fn any_flipped_bit_is_noticed_and_what_lies_before_is_good() {
    let events = synthetic::crowded(120);
    let frames = frames_of(&events, 100);
    let bytes = recorded(&frames);
    for at in 10..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        if (10..16).contains(&at) {
            // Not in use yet.
            assert!(read(&bytes[..]).is_ok());
            continue;
        }
        let mut reader = Reader::new(&bytes[..]);
        let mut timeline = Timeline::default();
        let error = loop {
            match reader.next() {
                Ok(Next::Frame(frame)) => timeline.append(frame).unwrap(),
                Ok(other) => panic!("{other:?} for a flip at {at}"),
                Err(error) => break error,
            }
        };
        assert!(sentence(&error).contains(&format!("behind its event {}", timeline.end())));
        assert!(timeline.end() < events.len() as u64 && timeline.end().is_multiple_of(100));
        assert!(matches!(reader.next(), Err(RecordingError::Damaged(_))), "it stays so");
    }
}

#[test]
fn a_header_that_asks_for_much_gets_nothing() {
    let put = |at: usize, value: u64, size: usize| {
        with_header(move |header| header[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]))
    };
    let huge = u64::MAX;
    for bytes in [
        put(0, huge, 4),
        put(0, 1 << 24, 4),
        put(4, huge, 4),
        put(4, 1 << 23, 4),
        put(8, huge, 4),
        put(8, 0, 4),
        put(8, 1 << 17, 4),
        put(12, huge, 8),
        put(12, 1, 8),
    ] {
        assert!(matches!(read(&bytes[..]), Err(RecordingError::Damaged(0))));
        assert_eq!(summary(Cursor::new(bytes)).unwrap().frames, 0);
    }
}

#[test]
fn a_frame_whose_counts_do_not_agree_is_damaged() {
    let add = |at: usize, more: u32| {
        with_header(|header| {
            let field: &mut [u8; 4] = (&mut header[at..at + 4]).try_into().unwrap();
            *field = u32::from_le_bytes(*field).wrapping_add(more).to_le_bytes();
        })
    };
    let changed = [add(8, 1), add(8, u32::MAX), add(4, 1), add(4, u32::MAX), add(4, 1 << 20)];
    for bytes in changed {
        let Next::Frame(frame) = Reader::new(&bytes[..]).next().unwrap() else { panic!("the bytes are whole") };
        assert!(matches!(frame.unpack(), Err(RecordingError::Damaged(0))));
        let mut timeline = Timeline::default();
        assert!(timeline.append(frame).is_err());
        assert_eq!((timeline.end(), timeline.frames(0).count()), (0, 0));
    }
}

#[test]
fn a_damaged_frame_takes_nothing_of_the_history_away() {
    let bytes = with_header(|header| header[8] = header[8].wrapping_add(1));
    let Next::Frame(damaged) = Reader::new(&bytes[..]).next().unwrap() else { panic!("the bytes are whole") };
    let events = runs(2);
    let frames = frames_of(&events, events.len() / 2);
    let mut timeline = Timeline::default();
    timeline.append(frames[0].clone()).unwrap();
    let history = |timeline: &mut Timeline| format!("{:?}", timeline.now().lab(DeviceIndex::FIRST).unwrap().history());
    let (known, end) = (history(&mut timeline), timeline.end());
    assert!(timeline.append(damaged.numbered(end)).is_err());
    assert_eq!((timeline.end(), history(&mut timeline)), (end, known));
    frames[1..].iter().for_each(|frame| timeline.append(frame.clone()).unwrap());
    let mut whole = Timeline::default();
    events.iter().for_each(|event| whole.push(event));
    assert_eq!(history(&mut timeline), history(&mut whole));
}

#[test]
fn a_disk_that_fails_is_told() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("worn out"))
        }
    }
    assert!(sentence(&read(Broken).unwrap_err()).contains("worn out"));
}

#[test]
fn names_without_end_fill_no_memory() {
    let text: Arc<str> = "n".repeat(500_000).into();
    let define = |id| Event::new(Micros(0), EventKind::Define { id: NameId(id), text: Arc::clone(&text) });
    let events: Vec<Event> = (1..300).map(define).collect();
    let mut timeline = Timeline::default();
    for frame in frames_of(&events, 1 << 15) {
        timeline.append(frame).unwrap();
    }
    let view = timeline.now().lab_mut(DeviceIndex::FIRST).unwrap().view();
    let known: usize = view.names.0.iter().map(|name| name.len()).sum();
    assert!(known > 60 << 20 && known <= 64 << 20, "{known} bytes");
    assert!(view.log.last().is_some_and(|line| line.text.contains("left out")));
}

fn at_once(kind: EventKind) -> Event {
    Event::new(Micros(0), kind)
}

/// Run `cargo test --test files recording -- --ignored` when the format has changed.
#[test]
#[ignore = "writes the seeds of the fuzz target"]
fn seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/seeds/recording");
    std::fs::create_dir_all(&folder).unwrap();
    let columns = |events: &[Event]| {
        let mut encoder = Encoder::new();
        events.iter().for_each(|event| encoder.push(event));
        let mut bytes = Vec::new();
        encoder.finish(&mut bytes);
        bytes
    };
    let kinds: Vec<Event> = (0..).map(Micros).zip(every_kind()).map(|(time, kind)| Event::new(time, kind)).collect();
    let run = synthetic::training_run();
    let most = Bytes(u64::MAX);
    let copy = EventKind::Copy { direction: CopyDirection::ToDevice, bytes: most, pinned: true, duration: Micros(1) };
    let end = every_kind().into_iter().find(|kind| matches!(kind, EventKind::StepEnd(_))).map(|kind| match kind {
        EventKind::StepEnd(report) => EventKind::StepEnd(StepReport { copy: Micros(u64::MAX), ..report }),
        other => other,
    });
    let huge: Vec<Event> = [copy.clone(), copy].into_iter().chain(end).cycle().take(9).map(at_once).collect();
    for (name, bytes) in [
        ("huge.columns", columns(&huge)),
        ("kinds.vram", recorded(&frames_of(&kinds, 20))),
        ("ranks.vram", recorded(&frames_of(&two_ranks()[..400], 150))),
        ("run.columns", columns(&run[..300])),
        ("kinds.columns", columns(&kinds)),
        ("crowd.columns", columns(&synthetic::crowded(40))),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
