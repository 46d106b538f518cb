//! Every event is decoded unchanged.

use proptest::prelude::*;
use vramlab::allocator::PoolKind;
use vramlab::model::{Category, Event, EventKind, Micros, NameId};
use vramlab::recording::{Decoder, Encoder, LARGEST_EVENT, VERSION};
use vramlab::units::{Address, Bytes, DeviceIndex, StreamId};

use super::{events_of, every_kind, frames_of};
use crate::synthetic;
use crate::thoroughness::Thoroughness;

fn encoded(events: &[Event]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    events.iter().for_each(|event| encoder.push(event));
    let mut bytes = Vec::new();
    encoder.finish(&mut bytes);
    assert_eq!(encoder.len(), bytes.len());
    assert_eq!(encoder.decoder().map(Result::unwrap).collect::<Vec<_>>(), events, "while it is open");
    bytes
}

fn assert_comes_back(events: &[Event]) {
    let bytes = encoded(events);
    let decoded: Vec<Event> = Decoder::new(&bytes).unwrap().map(Result::unwrap).collect();
    assert_eq!(decoded, events);
    let framed: Vec<Event> = frames_of(events, 1 << 14).iter().flat_map(events_of).collect();
    assert_eq!(framed, events);
}

/// Every kind, at times and on devices that go back and forth.
fn all_events() -> Vec<Event> {
    let at = |(index, kind): (u64, EventKind)| Event {
        time: Micros(if index.is_multiple_of(5) { u64::MAX - index } else { index * 1000 }),
        device: DeviceIndex(if index.is_multiple_of(7) { u16::MAX } else { 1 }),
        kind,
    };
    (0..).zip(every_kind()).map(at).collect()
}

#[test]
fn every_kind_comes_back() {
    let events = all_events();
    assert_comes_back(&events);
    let reversed: Vec<Event> = events.into_iter().rev().collect();
    assert_comes_back(&reversed);
}

#[test]
fn runs_come_back() {
    assert_comes_back(&synthetic::training_run());
    let (setup, churn) = synthetic::churn(500, 2000);
    assert_comes_back(&setup);
    assert_comes_back(&churn);
}

#[test]
fn a_loss_that_is_no_number_keeps_its_bits() {
    let Some(EventKind::StepEnd(mut report)) =
        every_kind().into_iter().find(|kind| matches!(kind, EventKind::StepEnd(_)))
    else {
        panic!("a step ends")
    };
    let losses = [f32::NAN, f32::from_bits(0xffc0_1234), -0.0, f32::INFINITY];
    for loss in losses {
        report.loss = Some(loss);
        let bytes = encoded_unequal(&Event::new(Micros(1), EventKind::StepEnd(report.clone())));
        let event = Decoder::new(&bytes).unwrap().next().unwrap().unwrap();
        let EventKind::StepEnd(report) = event.kind else { panic!("{event:?}") };
        assert_eq!(report.loss.map(f32::to_bits), Some(loss.to_bits()));
    }
}

/// The encoding of an event that is not equal to itself.
fn encoded_unequal(event: &Event) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.push(event);
    let mut bytes = Vec::new();
    encoder.finish(&mut bytes);
    bytes
}

#[test]
fn an_event_beyond_all_measure_becomes_a_note() {
    let event = |length| Event::new(Micros(1), EventKind::Generated { text: "x".repeat(length).into() });
    let fits = event(LARGEST_EVENT - 10);
    assert_eq!(frames_of(std::slice::from_ref(&fits), 1).iter().flat_map(events_of).collect::<Vec<_>>(), [fits]);
    let frames = frames_of(&[event(LARGEST_EVENT + 1)], 1);
    let kinds: Vec<EventKind> = frames.iter().flat_map(events_of).map(|event| event.kind).collect();
    assert!(matches!(&kinds[..], [EventKind::Note { text }] if text.contains("too large")), "{kinds:?}");
}

/// If you change the bytes of an event, change [`VERSION`] too, and this figure.
#[test]
fn the_format_is_that_of_its_version() {
    let events = all_events();
    // Formats 7 and 6 can be read, too: they have the same bytes for what they have.
    let older = [3, 4].map(|more| crc32fast::hash(&encoded(&events[..events.len() - more])));
    assert_eq!(older, [482_095_310, 1_923_612_467]);
    assert_eq!((VERSION, crc32fast::hash(&encoded(&events))), (8, 460_320_927));
}

#[test]
fn frequent_events_take_few_bytes_on_disk() {
    let run = super::runs(40);
    let (mut setup, churn) = synthetic::churn(5000, 30_000);
    setup.extend(churn);
    // Whole frames, and those that a recorder closes four times a second.
    for (name, events, at_a_time, most) in [
        ("training run", &run, 1 << 15, 1.0),
        ("training run, live", &run, 2000, 3.0),
        ("churn", &setup, 1 << 15, 3.0),
        ("churn, live", &setup, 2000, 4.0),
    ] {
        let bytes: usize = frames_of(events, at_a_time).iter().map(|frame| frame.bytes().len() + 44).sum();
        let each = bytes as f64 / events.len() as f64;
        println!("{name}: {each:.2} bytes an event");
        assert!(each < most, "{name}: {each:.2} bytes an event");
    }
}

fn event() -> impl Strategy<Value = Event> {
    // Numbers near each other, far apart, aligned and not.
    let number = || prop_oneof![0_u64..4096, (0_u64..64).prop_map(|n| n * 512), any::<u64>(), Just(1 << 63)];
    let address = number().prop_map(Address);
    let category = (0_usize..8).prop_map(|index| Category::ALL[index]);
    let name = any::<u32>().prop_map(NameId);
    let pool = prop_oneof![Just(PoolKind::Small), Just(PoolKind::Large)];
    let stream = prop_oneof![Just(0_u64), any::<u64>()].prop_map(StreamId);
    let parts = (0_usize..11, address, number(), number(), stream, (category, name, pool));
    let kind = parts.prop_map(|(kind, address, size, other, stream, (category, name, pool))| {
        let (size, requested) = (Bytes(size), Bytes(other));
        match kind {
            0 => EventKind::Alloc { address, size, requested, stream, category, name },
            1 => EventKind::FreeRequested { address },
            2 => EventKind::FreeCompleted { address },
            3 => EventKind::OpBegin { name },
            4 => EventKind::OpEnd,
            5 => EventKind::Relabel { address, category, name },
            6 => EventKind::SegmentAlloc { address, size, stream, pool },
            7 => EventKind::SegmentFree { address, size },
            8 => EventKind::SegmentMap { address, size, stream, pool, range: Address(other), page: size },
            9 => EventKind::SegmentUnmap { address, size },
            _ => EventKind::HostMemory { allocated: size, reserved: requested },
        }
    });
    let device = prop_oneof![Just(0), any::<u16>()].prop_map(DeviceIndex);
    (number(), device, kind).prop_map(|(time, device, kind)| Event { time: Micros(time), device, kind })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Thoroughness::asked().of(64, 256)))]

    #[test]
    fn any_events_come_back(events in prop::collection::vec(event(), 0..200)) {
        assert_comes_back(&events);
    }

    #[test]
    fn any_bytes_are_events_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(decoder) = Decoder::new(&bytes) {
            let (length, events) = (decoder.len(), decoder.collect::<Vec<_>>());
            prop_assert!(events.len() <= length);
        }
    }
}
