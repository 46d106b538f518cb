use std::io::Write;

use super::*;
use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockState, PoolKind};

const PROTOCOL_0: &[u8] = include_bytes!("../../tests/pickles/small.protocol0.pickle");
const PROTOCOL_2: &[u8] = include_bytes!("../../tests/pickles/small.protocol2.pickle");
const PROTOCOL_4: &[u8] = include_bytes!("../../tests/pickles/small.protocol4.pickle");
const XZ: &[u8] = include_bytes!("../../tests/pickles/small.protocol4.pickle.xz");

#[test]
fn all_protocols_and_xz_hold_the_same() {
    let expected = Snapshot::read(PROTOCOL_4).unwrap();
    for bytes in [PROTOCOL_0, PROTOCOL_2, XZ] {
        let snapshot = Snapshot::read(bytes).unwrap();
        // Texts and stacks are numbered in the order of the file, which is the same in all.
        assert_eq!(snapshot.segments, expected.segments);
        assert_eq!(snapshot.device_trace(0).len(), expected.device_trace(0).len());
        for (a, b) in snapshot.device_trace(0).iter().zip(expected.device_trace(0)) {
            assert_eq!((a.action.word(), a.address, a.size, a.stream), (b.action.word(), b.address, b.size, b.stream));
            assert_eq!(snapshot.stacks.frames(a.stack).count(), expected.stacks.frames(b.stack).count());
        }
        assert_eq!(snapshot.allocator_settings, expected.allocator_settings);
    }
}

#[test]
fn a_snapshot_is_read_key_for_key() {
    let snapshot = Snapshot::read(PROTOCOL_4).unwrap();
    assert_eq!(snapshot.device_count(), 2);
    let trace = snapshot.device_trace(0);
    assert_eq!(trace.len(), 8);
    assert_eq!(trace[0].action, Action::SegmentAlloc);
    assert_eq!(trace[1].action, Action::Alloc);
    assert_eq!(trace[1].address, Address(140_024_733_499_392));
    assert_eq!(trace[1].size, Bytes(12_582_912));
    assert_eq!(trace[1].time, Micros(1_795_235_347_029_333));
    let frames: Vec<_> = snapshot.stacks.frames(trace[1].stack).collect();
    assert_eq!(frames.len(), 3);
    assert_eq!(snapshot.texts.get(frames[0].name), "convert");
    assert_eq!(frames[0].line, 1370);
    assert!(snapshot.texts.get(frames[0].filename).ends_with("module.py"));
    let oom = trace[6];
    assert_eq!((oom.action, oom.device_free(), oom.size), (Action::Oom, Some(Bytes(123_456_789)), Bytes(512)));
    assert_eq!(snapshot.texts.get(oom.metadata), "étape 1");
    // An action that PyTorch 2.11 does not have, with keys that it does not have.
    let Action::Other(word) = trace[7].action else { panic!("{:?}", trace[7]) };
    assert_eq!(snapshot.texts.get(word), "workspace_snapshot");
    assert_eq!(trace[7].stream, StreamId(u64::MAX - 4095));
    assert!(snapshot.device_trace(1).is_empty() && snapshot.device_trace(2).is_empty());

    assert_eq!(snapshot.segments.len(), 2);
    let segment = &snapshot.segments[0];
    assert_eq!(
        (segment.device, segment.pool, segment.pool_id, segment.expandable),
        (0, PoolKind::Large, vramlab_allocator::PoolId::DEFAULT, false)
    );
    assert_eq!(snapshot.segments[1].pool_id, vramlab_allocator::PoolId(0, 3));
    let block = segment.blocks[0];
    assert_eq!((block.address, block.size), (segment.address, segment.total_size));
    assert_eq!((block.requested, block.state), (Some(Bytes(67_108_864)), BlockState::Inactive));
    assert_eq!(snapshot.allocator_settings.conf.as_deref(), Some(""));
    assert_eq!(snapshot.annotations.len(), 2);
    assert!(snapshot.annotations[0].start && !snapshot.annotations[1].start);
}

#[test]
fn older_dumps_lack_keys() {
    let bytes = b"}(\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x07\x8c\x04addrK\x00\x8c\x06streamK\x00uee\
        \x8c\x08segments](}(\x8c\x07addressM\x00\x02\x8c\x0atotal_sizeM\x00\x06\x8c\x06blocks](\
        }(\x8c\x04sizeM\x00\x02\x8c\x05state\x8c\x08inactiveu}(\x8c\x04sizeM\x00\x04\x8c\x05state\x8c\x10active_allocatedueueu.";
    let snapshot = Snapshot::read(&bytes[..]).unwrap();
    assert_eq!(snapshot.device_trace(0)[0].size, Bytes(7));
    let blocks = &snapshot.segments[0].blocks;
    assert_eq!(blocks[0].requested, None);
    assert_eq!(blocks[1].address, Address(1024));
    assert_eq!(snapshot.allocator_settings.conf, None);
}

#[test]
fn keys_that_come_one_by_one_make_an_entry_too() {
    let bytes = b"}\x8c\x0ddevice_traces]]}\x8c\x06action\x8c\x05allocs\x8c\x04sizeK\x07saa\
        s.";
    let snapshot = Snapshot::read(&bytes[..]).unwrap();
    assert_eq!((snapshot.device_trace(0)[0].action, snapshot.device_trace(0)[0].size), (Action::Alloc, Bytes(7)));
}

#[test]
fn other_pickles_are_named() {
    let message = |bytes: &[u8]| Snapshot::read(bytes).unwrap_err().to_string();
    assert!(message(b"}.").contains("has no device_traces and no segments"));
    assert!(message(b"].").contains("is an empty list"));
    assert!(message(b"}\x8c\x0ddevice_tracesK\x01s.").contains("an integer where a list should be"));
    let entry = b"}\x8c\x0ddevice_traces]](N}(\x8c\x06actionK\x01ueas.";
    assert!(message(entry).contains("an entry 0 in the trace of device 0"), "{}", message(entry));
    assert!(message(b"\x80\x02Psomething\n.").contains("run code (PERSID)"));
    assert!(message(b"\x7fELF").contains("0x7f"));
    assert!(message(b"").contains("middle of a value"));
}

/// The small pickle, compressed.
fn packed() -> [Vec<u8>; 2] {
    let plain = include_bytes!("../../tests/pickles/small.protocol4.pickle");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(plain).unwrap();
    [gzip.finish().unwrap(), zstd::encode_all(&plain[..], 3).unwrap()]
}

#[test]
fn gzip_and_zstd_hold_the_same_as_xz() {
    let xz = Snapshot::read(XZ).unwrap();
    for packed in packed() {
        let snapshot = Snapshot::read(&packed[..]).unwrap();
        assert_eq!((&snapshot.entries, &snapshot.segments), (&xz.entries, &xz.segments));
    }
}

#[test]
fn damaged_gzip_and_zstd_files_are_errors() {
    for packed in packed() {
        for end in (4..packed.len() - 12).step_by(7) {
            assert!(Snapshot::read(&packed[..end]).is_err(), "{end}");
        }
        for at in (4..packed.len()).step_by(5) {
            let mut bytes = packed.clone();
            bytes[at] ^= 0x55;
            let _ = Snapshot::read(&bytes[..]);
        }
        // Nothing may unpack to much more than a snapshot could.
        let zeros = vec![0; 96 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"(").unwrap();
        gzip.write_all(&zeros).unwrap();
        assert!(Snapshot::read(&gzip.finish().unwrap()[..]).is_err());
    }
}

#[test]
fn damaged_xz_files_are_errors() {
    for end in 6..XZ.len() - 40 {
        assert!(Snapshot::read(&XZ[..end]).is_err(), "{end}");
    }
    for at in (12..XZ.len() - 40).step_by(3) {
        let mut bytes = XZ.to_vec();
        bytes[at] ^= 0x55;
        let _ = Snapshot::read(&bytes[..]);
    }
    // Byte 16 holds the dictionary's size: from 96 MiB to 4 GiB. A second stream may ask for it too.
    for size in 29..=40 {
        let mut bytes = XZ.to_vec();
        assert_eq!((bytes[12], bytes[14], bytes[15]), (2, 0x21, 1));
        bytes[16] = size;
        let checksum = crc32fast::hash(&bytes[12..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        for file in [bytes.clone(), [XZ, &bytes].concat(), [XZ, &[0; 8], &bytes].concat()] {
            let error = Snapshot::read(&file[..]).unwrap_err().to_string();
            assert!(error.contains("dictionary"), "{size}: {error}");
        }
    }
}

#[test]
fn other_compressed_files_are_named_with_what_unpacks_them() {
    for (head, name, command) in [
        (&b"BZh91AY"[..], "bzip2", "bunzip2"),
        (b"\x04\x22\x4d\x18", "lz4", "unlz4"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
        (b"PK\x03\x04", "zip", "unzip"),
    ] {
        let message = Snapshot::read(head).unwrap_err().to_string();
        assert!(message.contains(&format!("a {name} file")) && message.contains(command), "{message}");
    }
}

#[test]
fn a_small_compressed_file_earns_little_memory() {
    // Thirty million two-byte items in ten kilobytes.
    let bomb = include_bytes!("../../tests/pickles/two-byte-items.pickle.xz");
    let message = Snapshot::read(&bomb[..]).unwrap_err().to_string();
    assert!(message.contains("far more memory"), "{message}");
}
