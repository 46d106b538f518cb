//! Files that are whole, cut off, or still being written, and pipes.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};

use vramlab::model::Event;
use vramlab::recording::{Next, Reader, RecordingError, Timeline, Writer, summary};

use super::{Frame, events_of, frames_of};
use crate::synthetic;

/// A recording of `frames`.
pub fn recorded(frames: &[Frame]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    frames.iter().for_each(|frame| writer.write(frame).unwrap());
    writer.into_inner()
}

/// All events up to the end, or up to the first incomplete frame.
pub fn read(source: impl Read) -> Result<(Vec<Event>, bool), RecordingError> {
    let mut reader = Reader::new(source);
    let mut events = Vec::new();
    loop {
        match reader.next()? {
            Next::Frame(frame) => events.extend(events_of(&frame)),
            Next::NotYet => return Ok((events, false)),
            Next::End => return Ok((events, true)),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let events = synthetic::training_run();
    let bytes = recorded(&frames_of(&events, 500));
    assert_eq!(read(&bytes[..]).unwrap(), (events.clone(), true));
    assert_eq!(read(&recorded(&[])[..]).unwrap(), (Vec::new(), true));
    let summary = summary(Cursor::new(&bytes)).unwrap();
    assert_eq!((summary.events, summary.frames), (events.len() as u64, events.len().div_ceil(500) as u64));
    assert_eq!((summary.from, summary.to), (events[0].time, events.last().unwrap().time));
    assert!(summary.whole && summary.bytes == bytes.len() as u64);
}

#[test]
fn a_recording_cut_off_anywhere_is_good_up_to_there() {
    let events = synthetic::crowded(60);
    let frames = frames_of(&events, 40);
    let bytes = recorded(&frames);
    let mut ends = vec![16];
    for frame in &frames {
        ends.push(ends.last().unwrap() + 44 + frame.bytes().len());
    }
    for cut in 0..=bytes.len() {
        let (read, between) = read(&bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
        assert_eq!(read.len(), events.len().min(whole * 40), "{cut}");
        assert_eq!(read, events[..read.len()]);
        assert_eq!(between, ends.contains(&cut), "{cut}");
        let summary = summary(Cursor::new(&bytes[..cut])).unwrap();
        assert_eq!((summary.frames, summary.events), (whole as u64, read.len() as u64));
        assert_eq!(summary.whole, ends.contains(&cut));
    }
}

#[test]
fn a_recording_can_be_followed_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let events = synthetic::training_run();
    let frames = frames_of(&events, 700);
    let bytes = recorded(&frames);
    let mut out = File::create(&path).unwrap();
    let mut reader = Reader::new(File::open(&path).unwrap());
    let mut timeline = Timeline::default();
    let (mut waited, mut between) = (0, 0);
    for piece in bytes.chunks(1777) {
        out.write_all(piece).unwrap();
        loop {
            match reader.next().unwrap() {
                Next::Frame(frame) => timeline.append(frame).unwrap(),
                Next::NotYet => break waited += 1,
                Next::End => break between += 1,
            }
        }
    }
    assert!(waited > 3 && between > 0, "{waited} {between}");
    assert_eq!(timeline.end(), events.len() as u64);
    assert_eq!(reader.events(), timeline.end());
}

/// Delivers one byte at a time, and now and then reports that there is nothing yet.
struct Trickle<'a>(&'a [u8], u32);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        match self.1 % 7 {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            3 => Err(io::ErrorKind::Interrupted.into()),
            _ => {
                let length = buffer.len().min(1);
                self.0.read(&mut buffer[..length])
            }
        }
    }
}

#[test]
fn a_pipe_that_trickles_gives_all_frames() {
    let events = synthetic::crowded(300);
    let frames = frames_of(&events, 100);
    let bytes = recorded(&frames);
    let mut reader = Reader::new(Trickle(&bytes, 0));
    let mut read = Vec::new();
    while read.len() < frames.len() {
        if let Next::Frame(frame) = reader.next().unwrap() {
            read.push(frame);
        }
    }
    assert_eq!(read, frames);
}

#[test]
fn a_recording_that_begins_late_counts_from_its_own_beginning() {
    let events = synthetic::crowded(100);
    let late: Vec<Frame> = frames_of(&events, 30)
        .into_iter()
        .map(|frame| {
            let first = frame.first() + 1_000_000;
            frame.numbered(first)
        })
        .collect();
    assert_eq!(read(&recorded(&late)[..]).unwrap(), (events, true));
}

/// Accepts only this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told() {
    let frames = frames_of(&synthetic::crowded(100), 1000);
    assert!(matches!(Writer::new(Full(3)), Err(RecordingError::Unwritable(_))));
    let error = Writer::new(Full(100)).unwrap().write(&frames[0]).unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
}
