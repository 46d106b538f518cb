//! Any bytes as a snapshot file.

use vramlab::snapshot::Snapshot;

/// Reads `data`, and looks at everything in the result.
pub fn run(data: &[u8]) {
    let snapshot = match Snapshot::read(data) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let message = error.to_string();
            assert!(message.ends_with('.') && !message.contains('\u{1b}'), "{message}");
            return;
        }
    };
    assert!(snapshot.device_count() <= 128);
    for device in 0..snapshot.device_count() {
        for entry in snapshot.device_trace(device) {
            assert!(entry.address.0 < 1 << 57 && entry.size.0 < 1 << 57);
            assert_eq!(snapshot.stacks.frames(entry.stack).count(), snapshot.stacks.depth(entry.stack));
            let _ = (snapshot.caller(entry.stack, entry.metadata), snapshot.texts.get(entry.metadata));
        }
    }
    for segment in &snapshot.segments {
        assert!(segment.blocks.iter().all(|block| block.address.0 < 1 << 58));
    }
    assert!(snapshot.annotations.iter().all(|annotation| annotation.name.0 < u32::MAX));
}
