//! Any bytes as a recording: unchanged, with correct checksums, and as the columns of a frame.

use vramlab::export::{self, Format, Words};
use vramlab::model::{Event, Ranks};
use vramlab::recording::{
    Bounds, Decoder, Direction, Encoder, Next, Reader, RecordingError, Timeline, prelude, summary,
};
use vramlab::source::Whole;
use vramlab::units::{Bytes, DeviceIndex};

const PREFACE: usize = 16;
const HEADER: usize = 44;
/// Bounds so tight that states are thinned out and events forgotten.
const BOUNDS: Bounds = Bounds { frames: Bytes::kib(2), checkpoints: Bytes::kib(64) };
/// The most events of a frame; more would test nothing new.
const MOST: usize = 2000;

/// Reads `data`, and looks at everything in the result.
pub fn run(data: &[u8]) {
    if data.first() == Some(&0xf6) {
        file(data);
        file(&repaired(data));
    } else {
        columns(data);
    }
}

fn file(data: &[u8]) {
    let mut reader = Reader::new(data);
    let mut timeline = Timeline::new(BOUNDS);
    let mut frames = 0;
    loop {
        match reader.next() {
            Ok(Next::Frame(frame)) => {
                frames += 1;
                if let Err(error) = timeline.append(frame) {
                    is_a_sentence(&error);
                    break;
                }
            }
            Ok(Next::NotYet | Next::End) => break,
            Err(error) => {
                is_a_sentence(&error);
                break;
            }
        }
    }
    if let Ok(summary) = summary(std::io::Cursor::new(data)) {
        assert!(summary.frames >= frames && summary.events >= timeline.end() && summary.bytes <= data.len() as u64);
    }
    holds_together(&mut timeline);
    if let Ok(whole) = Whole::recording(data) {
        export(&whole);
    }
}

/// Exports whatever was recorded, as far as it goes.
fn export(whole: &Whole) {
    let words = Words { flag: |remedy| format!("{remedy:?}"), autopsy: |_| Vec::new() };
    for format in Format::ALL {
        let mut out = Vec::new();
        match export::write(whole, format, whole.end(), &words, &mut out, &mut |_, _| {}) {
            Ok(()) => {
                assert!(!out.is_empty() || whole.end() == 0 || matches!(format, Format::Perfetto | Format::Folded))
            }
            Err(error) => assert!(error.to_string().contains("; "), "{error}"),
        }
    }
}

fn columns(data: &[u8]) {
    let Ok(decoder) = Decoder::new(data) else { return };
    let events: Vec<Event> = decoder.flatten().take(MOST).collect();
    let mut encoder = Encoder::new();
    let mut timeline = Timeline::new(BOUNDS);
    for event in &events {
        encoder.push(event);
        timeline.push(event);
    }
    let again: Vec<Event> = encoder.decoder().flatten().collect();
    // A loss that is NaN is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{events:?}"));
    timeline.close_frame();
    holds_together(&mut timeline);
}

fn holds_together(timeline: &mut Timeline) {
    let (first, end) = (timeline.first(), timeline.end());
    assert!(first <= end && timeline.weight() < 1 << 28);
    assert!(timeline.at(end + 1).is_none() && timeline.event(end).is_none());
    let mut handed = 0;
    timeline.events(0..u64::MAX, |_, _| handed += 1);
    assert_eq!(handed, end - first);
    assert_eq!(timeline.find(end, Direction::Backward, |_| true), end.checked_sub(1).filter(|last| *last >= first));
    for position in [end, first, u64::midpoint(first, end)] {
        let Some(mut state) = timeline.at(position) else { panic!("no state at {position} of {first} to {end}") };
        assert_eq!(state.position(), position);
        look_at(&mut state);
    }
    let mut again = Ranks::default();
    prelude(timeline.now()).iter().for_each(|event| again.apply(event));
    look_at(&mut again);
}

fn look_at(ranks: &mut Ranks) {
    for index in 0..ranks.len() {
        let device = u16::try_from(index).ok().map(DeviceIndex);
        let view = device.and_then(|device| ranks.lab_mut(device)).map(|lab| lab.view());
        assert!(view.is_some_and(|view| view.ledger.reserved() >= view.ledger.allocated()));
    }
}

fn is_a_sentence(error: &RecordingError) {
    let message = error.to_string();
    assert!(message.len() < 300 && message.contains("; ") && !message.contains('\u{1b}'), "{message}");
}

/// The same with correct checksums.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = PREFACE;
    while let Some(frame) = bytes.get_mut(at..).filter(|rest| rest.len() >= HEADER) {
        let (header, rest) = frame.split_at_mut(HEADER);
        let length = header[..4].iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let payload = rest.get(..length).unwrap_or_default();
        header[36..40].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let checksum = crc32fast::hash(&header[..40]);
        header[40..].copy_from_slice(&checksum.to_le_bytes());
        at += HEADER + length;
    }
    bytes
}
