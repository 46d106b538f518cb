//! Any text as the allocator's settings: each line is applied to the state that the previous lines left, and requests
//! follow.

use vramlab::allocator::{CachingAllocator, Settings, SimulatedDriver};
use vramlab::units::{Address, Bytes, KIB, MIB, StreamId};

/// Sizes around every border that a size can cross.
const SIZES: [u64; 9] = [1, 700, 700 * KIB, MIB, MIB + 1, 3 * MIB, 10 * MIB, 30 * MIB + 1, 70 * MIB];

/// Applies the lines of `data`.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let settings = match Settings::parse(first) {
        Ok(settings) => settings,
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 1000 && !message.contains('\u{1b}'), "{message}");
            return;
        }
    };
    agrees_with_itself(&settings, first);

    let driver = SimulatedDriver::new(Bytes::gib(1), Bytes::ZERO);
    let mut allocator = CachingAllocator::new(driver, settings, ());
    let mut live: Vec<Address> = Vec::new();
    requests(&mut allocator, &mut live);
    for line in lines.take(4) {
        let accepted = allocator.apply_settings(line).is_ok();
        assert_eq!(allocator.settings().text(), line);
        // PyTorch leaves undefined what happens if these two change at run time, and asserts.
        if !accepted || line.contains("max_split_size_mb") || first.contains("max_split_size_mb") {
            return;
        }
        requests(&mut allocator, &mut live);
    }
    for address in live {
        assert!(allocator.free(address).is_ok());
    }
    allocator.empty_cache();
    assert_eq!(allocator.check_invariants(), Ok(()));
    assert_eq!(allocator.reserved(), Bytes::ZERO);
}

fn agrees_with_itself(settings: &Settings, text: &str) {
    assert_eq!(settings.text(), text);
    assert_eq!(Settings::parse(settings.text()).as_ref(), Ok(settings));
    let mut again = settings.clone();
    assert_eq!(again.apply(text), Ok(()));
    assert_eq!(&again, settings);
    assert!(settings.large_segment_size > Bytes::mib(10));
    assert!(settings.max_split_size >= settings.large_segment_size);
    assert!(settings.max_non_split_rounding >= settings.large_segment_size);
    assert!((0.0..1.0).contains(&settings.garbage_collection_threshold));
    assert!((0.0..=1.0).contains(&settings.per_process_memory_fraction));
    assert!(settings.roundup_power2_divisions.entries().iter().all(|n| *n == 0 || n.is_power_of_two()));
}

fn requests(allocator: &mut CachingAllocator<SimulatedDriver>, live: &mut Vec<Address>) {
    for (at, size) in SIZES.into_iter().enumerate() {
        if let Ok(found) = allocator.malloc(Bytes(size), StreamId::DEFAULT) {
            assert!(found.size >= found.requested && found.requested == Bytes(size));
            live.push(found.address);
        }
        if at % 2 == 0
            && let Some(oldest) = live.first().copied()
        {
            live.remove(0);
            assert!(allocator.free(oldest).is_ok());
        }
    }
    assert_eq!(allocator.check_invariants(), Ok(()));
}
