//! Effects over made-up steps whose medians are known.

use super::*;
use crate::units::MIB;

fn step(effects: &mut Effects, mib: u64, micros: u64) {
    let report = StepReport {
        step: effects.finished,
        loss: Some(2.0),
        total: Micros(micros),
        phases: [Micros(0); 5],
        copy: Micros(0),
        items: 100,
        optimizer_ran: true,
    };
    let peaks = StepPeaks { allocated: Bytes::mib(mib), reserved: Bytes::mib(mib + 10), by_category: [Bytes::ZERO; 8] };
    effects.end_step(&report, &peaks, Bytes(mib));
}

fn steps(effects: &mut Effects, count: usize, mib: u64) {
    for _ in 0..count {
        step(effects, mib, 1000 * mib);
    }
}

fn peak(measurement: Option<Measurement>) -> Option<u64> {
    measurement.map(|measurement| measurement.peak_allocated.get() / MIB)
}

#[test]
fn medians_before_and_after_leave_the_warm_up_out() {
    let mut effects = Effects::default();
    steps(&mut effects, 2, 500);
    steps(&mut effects, 5, 20);
    effects.flip('m', "AMP", "off", "bf16", 77);
    steps(&mut effects, 2, 900);
    assert_eq!(effects.view()[0].after, None);
    for mib in [12, 11, 10, 14, 13, 12, 12] {
        steps(&mut effects, 1, mib);
    }
    let measuring = effects.view();
    assert_eq!(measuring[0].measured, (7, 10));
    steps(&mut effects, 30, 12);
    let view = effects.view();
    let [effect] = &*view else { panic!("one effect: {view:?}") };
    assert_eq!((effect.key, &*effect.title, effect.step, effect.position), ('m', "AMP off → bf16", 7, 77));
    assert_eq!(effect.measured, (10, 10));
    assert_eq!((peak(effect.before), peak(effect.after)), (Some(20), Some(12)));
    let after = effect.after.unwrap();
    assert_eq!((after.peak_reserved, after.stranded, after.step), (Bytes::mib(22), Bytes(12), Micros(12_000)));
    assert!((after.throughput - 100.0 / 0.012).abs() < 1e-6);
    assert_eq!(effect.released, None);
}

#[test]
fn a_second_flip_ends_the_first_measurement_with_what_it_has() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.flip('m', "AMP", "off", "bf16", 1);
    steps(&mut effects, 5, 12);
    effects.flip('c', "checkpointing", "off", "on", 2);
    steps(&mut effects, 20, 8);
    let view = effects.view();
    assert_eq!(view.iter().map(|effect| effect.measured).collect::<Vec<_>>(), [(3, 10), (10, 10)]);
    assert_eq!((peak(view[0].before), peak(view[0].after)), (Some(20), Some(12)));
    assert_eq!((peak(view[1].before), peak(view[1].after)), (Some(12), Some(8)));
}

#[test]
fn a_flip_inside_the_warm_up_of_another_compares_with_the_steps_there_are() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.flip('m', "AMP", "off", "bf16", 1);
    steps(&mut effects, 1, 12);
    effects.flip('c', "checkpointing", "off", "on", 2);
    steps(&mut effects, 20, 8);
    let view = effects.view();
    assert_eq!((view[0].measured, view[0].after), ((0, 10), None));
    assert_eq!((peak(view[1].before), peak(view[1].after)), (Some(12), Some(8)));
}

#[test]
fn flips_with_no_step_between_are_one_effect() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.flip('m', "AMP", "off", "fp16", 1);
    effects.flip('m', "AMP", "fp16", "bf16", 2);
    effects.flip('c', "checkpointing", "off", "on", 3);
    steps(&mut effects, 12, 8);
    let view = effects.view();
    let [effect] = &*view else { panic!("one effect: {view:?}") };
    assert_eq!((&*effect.title, effect.key), ("AMP off → bf16, checkpointing off → on", 'c'));
    assert_eq!((peak(effect.before), peak(effect.after)), (Some(20), Some(8)));
    // There and back again is no effect.
    effects.flip('c', "checkpointing", "on", "off", 4);
    effects.flip('c', "checkpointing", "off", "on", 5);
    assert_eq!(effects.view().len(), 1);
}

#[test]
fn empty_cache_is_measured_by_the_step_that_pays_for_it() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.empty_cache(5);
    effects.released(Bytes::mib(30));
    step(&mut effects, 20, 90_000);
    steps(&mut effects, 5, 20);
    let view = effects.view();
    assert_eq!((view[0].released, view[0].measured), (Some(Bytes::mib(30)), (1, 1)));
    assert_eq!(view[0].before.map(|before| before.step), Some(Micros(20_000)));
    assert_eq!(view[0].after.map(|after| after.step), Some(Micros(90_000)));
}

#[test]
fn without_a_step_before_there_is_nothing_to_compare() {
    let mut effects = Effects::default();
    effects.flip('m', "AMP", "off", "bf16", 0);
    steps(&mut effects, 20, 8);
    assert!(effects.view().is_empty());
}

#[test]
fn the_number_of_effects_is_bounded() {
    let mut effects = Effects::default();
    for position in 0..200 {
        steps(&mut effects, 1, 8);
        effects.flip('m', "AMP", "off", "bf16", position);
    }
    let view = effects.view();
    assert_eq!(view.len(), Effects::KEPT + 1);
    assert_eq!(view.last().map(|effect| effect.position), Some(199));
}
