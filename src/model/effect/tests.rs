//! Effects of made-up steps whose medians are known.

use super::*;
use vramlab_allocator::units::MIB;

fn report(effects: &Effects, micros: u64) -> StepReport {
    StepReport {
        step: effects.finished,
        loss: Some(2.0),
        total: Micros(micros),
        phases: [Micros(0); 5],
        copy: Micros(0),
        exchange: Micros(0),
        items: 100,
        optimizer_ran: true,
    }
}

fn step_that_grows(effects: &mut Effects, mib: u64, micros: u64, grown: u64) {
    let peaks = StepPeaks { allocated: Bytes::mib(mib), reserved: Bytes::mib(mib + 10), ..StepPeaks::default() };
    effects.end_step(&report(effects, micros), &peaks, (Bytes::mib(100), Bytes(mib)), None, grown);
}

fn step(effects: &mut Effects, mib: u64, micros: u64) {
    step_that_grows(effects, mib, micros, 0);
}

fn steps(effects: &mut Effects, count: usize, mib: u64) {
    for _ in 0..count {
        step(effects, mib, 1000 * mib);
    }
}

fn flip(effects: &mut Effects, switch: &str, from: &str, to: &str, position: u64) {
    effects.flip(Flip { switch: switch.into(), from: from.into(), to: to.into() }, position);
}

fn peak(measurement: Option<Measurement>) -> Option<u64> {
    measurement.map(|measurement| measurement.peak_allocated.bytes().get() / MIB)
}

fn flips(effect: &Effect) -> Vec<String> {
    effect.flips.iter().map(|flip| format!("{} {} → {}", flip.switch, flip.from, flip.to)).collect()
}

#[test]
fn medians_before_and_after_leave_the_warm_up_out() {
    let mut effects = Effects::default();
    steps(&mut effects, 2, 500);
    steps(&mut effects, 5, 20);
    flip(&mut effects, "amp", "off", "bf16", 77);
    steps(&mut effects, 2, 900);
    assert_eq!(effects.view()[0].after, None);
    for mib in [12, 11, 10, 14, 13, 12, 12] {
        steps(&mut effects, 1, mib);
    }
    let measuring = effects.view();
    assert_eq!((measuring[0].measured, measuring[0].is_under_way()), ((7, 10), true));
    steps(&mut effects, 30, 12);
    let view = effects.view();
    let [effect] = &*view else { panic!("one effect: {view:?}") };
    assert_eq!((&*flips(effect), effect.step, effect.position), (&["amp off → bf16".to_owned()][..], 7, 77));
    assert_eq!((effect.measured, effect.cut_short, effect.is_under_way()), ((10, 10), false, false));
    assert_eq!((peak(effect.before), peak(effect.after)), (Some(20), Some(12)));
    let after = effect.after.unwrap();
    assert_eq!((after.peak_reserved.bytes(), after.stranded.unwrap().bytes()), (Bytes::mib(22), Bytes(12)));
    assert_eq!(after.step.unwrap().micros(), Micros(12_000));
    assert!((after.throughput.median - 100.0 / 0.012).abs() < 1e-6);
    assert_eq!(effect.emptied, None);
}

#[test]
fn a_figure_is_a_median_with_the_quartiles_around_it() {
    let figure = Figure::of([50, 10, 30, 20, 40, 60, 70, 80].into_iter().map(f64::from)).unwrap();
    assert_eq!((figure.median, figure.low, figure.high), (50.0, 30.0, 70.0));
    assert_eq!(figure.spread(), 20.0);
    let one = Figure::of(std::iter::once(7.0)).unwrap();
    assert_eq!((one.median, one.low, one.high), (7.0, 7.0, 7.0));
    assert_eq!(Figure::of(std::iter::empty()), None);
}

#[test]
fn noise_is_told_from_a_change() {
    let mut effects = Effects::default();
    // Times jitter by a fifth; the peak of allocated never does.
    let jitter = [100, 84, 112, 95, 118, 88, 104, 97, 109, 91];
    let run = |effects: &mut Effects, mib: u64, micros: u64| {
        for share in jitter {
            step(effects, mib, micros * share / 100);
        }
    };
    steps(&mut effects, 2, 20);
    run(&mut effects, 20, 10_000);
    flip(&mut effects, "ckpt", "off", "on", 1);
    steps(&mut effects, 2, 20);
    run(&mut effects, 19, 10_300);
    flip(&mut effects, "ckpt", "on", "off", 2);
    steps(&mut effects, 2, 20);
    run(&mut effects, 19, 20_000);
    let view = effects.view();
    let differs = |effect: &Effect, figure: fn(&Measurement) -> Figure| {
        figure(&effect.before.unwrap()).differs(&figure(&effect.after.unwrap()))
    };
    assert!(!differs(&view[0], |measured| measured.step.unwrap()), "three per cent of what jitters by twenty");
    assert!(!differs(&view[0], |measured| measured.throughput));
    assert!(differs(&view[0], |measured| measured.peak_allocated), "what never varies differs by one MiB");
    assert!(!differs(&view[1], |measured| measured.peak_allocated), "and where it is the same, not");
    assert!(differs(&view[1], |measured| measured.step.unwrap()), "twice as long is no jitter");
    assert!(differs(&view[1], |measured| measured.throughput));
}

#[test]
fn a_change_must_be_larger_than_the_wider_of_both_spreads() {
    let figure = |median: f64, spread: f64| Figure { median, low: median - spread, high: median + spread };
    assert!(!figure(100.0, 5.0).differs(&figure(110.0, 0.0)));
    assert!(figure(100.0, 5.0).differs(&figure(110.1, 0.0)));
    assert!(!figure(100.0, 0.0).differs(&figure(90.0, 5.0)), "the noise of either side counts");
    assert!(figure(100.0, 0.0).differs(&figure(100.5, 0.0)));
    assert!(!figure(100.0, 0.0).differs(&figure(100.0, 0.0)));
}

#[test]
fn a_later_flip_ends_the_first_measurement_with_what_it_has() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    flip(&mut effects, "amp", "off", "bf16", 1);
    steps(&mut effects, 5, 12);
    flip(&mut effects, "ckpt", "off", "on", 2);
    steps(&mut effects, 20, 8);
    let view = effects.view();
    let measured: Vec<_> = view.iter().map(|effect| (effect.measured, effect.cut_short)).collect();
    assert_eq!(measured, [((3, 10), true), ((10, 10), false)]);
    assert!(!view[0].is_under_way());
    assert_eq!((peak(view[0].before), peak(view[0].after)), (Some(20), Some(12)));
    assert_eq!((peak(view[1].before), peak(view[1].after)), (Some(12), Some(8)));
}

#[test]
fn flips_that_follow_each_other_quickly_are_measured_together() {
    // Between the flips lie no measured steps, one (in the warm-up) or two: too few to tell the flips apart.
    for between in [1, 2, 3, 4] {
        let mut effects = Effects::default();
        steps(&mut effects, 12, 20);
        flip(&mut effects, "amp", "off", "bf16", 1);
        steps(&mut effects, between, 12);
        flip(&mut effects, "ckpt", "off", "on", 2);
        steps(&mut effects, 2, 900);
        steps(&mut effects, 20, 8);
        let view = effects.view();
        let [effect] = &*view else { panic!("{between} steps between, one effect: {view:?}") };
        assert_eq!(flips(effect), ["amp off → bf16", "ckpt off → on"]);
        assert_eq!((effect.measured, effect.cut_short), ((10, 10), false));
        assert_eq!((effect.step, effect.position), (12 + between as u64, 2), "measured since the last of them");
        assert_eq!((peak(effect.before), peak(effect.after)), (Some(20), Some(8)), "before the first, after the last");
    }
}

#[test]
fn flips_with_no_step_between_are_one_effect() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    flip(&mut effects, "amp", "off", "fp16", 1);
    flip(&mut effects, "amp", "fp16", "bf16", 2);
    flip(&mut effects, "ckpt", "off", "on", 3);
    steps(&mut effects, 12, 8);
    let view = effects.view();
    let [effect] = &*view else { panic!("one effect: {view:?}") };
    assert_eq!(flips(effect), ["amp off → bf16", "ckpt off → on"]);
    assert_eq!((peak(effect.before), peak(effect.after)), (Some(20), Some(8)));
    // A flip there and back again is not an effect.
    flip(&mut effects, "ckpt", "on", "off", 4);
    flip(&mut effects, "ckpt", "off", "on", 5);
    assert_eq!(effects.view().len(), 1);
    // Nor is it a part of one.
    flip(&mut effects, "amp", "bf16", "off", 6);
    flip(&mut effects, "ckpt", "on", "off", 7);
    flip(&mut effects, "amp", "off", "bf16", 8);
    assert_eq!(flips(&effects.view()[1]), ["ckpt on → off"]);
}

#[test]
fn empty_cache_is_measured_by_the_step_that_pays_for_it() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.empty_cache(5, Bytes::mib(70), false);
    effects.released(Bytes::mib(10), 1);
    effects.released(Bytes::mib(30), 2);
    let told = EmptyCacheEffect { before: Bytes::mib(70), released: Bytes::mib(30), frees: 2, allocs: None };
    assert_eq!(effects.view()[0].emptied, Some(told), "told before the step that pays has ended");
    step_that_grows(&mut effects, 20, 90_000, 3);
    steps(&mut effects, 5, 20);
    let view = effects.view();
    assert_eq!(view[0].emptied, Some(EmptyCacheEffect { allocs: Some(3), ..told }));
    assert_eq!((view[0].measured, view[0].flips.len()), ((1, 1), 0));
    assert_eq!(view[0].before.map(|before| before.step.unwrap().micros()), Some(Micros(20_000)));
    assert_eq!(view[0].after.map(|after| after.step.unwrap().micros()), Some(Micros(90_000)));
    // The step that paid does not count for anything else.
    flip(&mut effects, "amp", "off", "bf16", 6);
    let before = effects.view()[1].before.unwrap();
    assert_eq!(before.step.map(|step| (step.median, step.high)), Some((20_000.0, 20_000.0)));
}

#[test]
fn a_flip_is_not_measured_together_with_an_empty_cache() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    effects.empty_cache(5, Bytes::mib(70), false);
    flip(&mut effects, "amp", "off", "bf16", 6);
    steps(&mut effects, 12, 8);
    let view = effects.view();
    assert_eq!(view.iter().map(|effect| flips(effect).len()).collect::<Vec<_>>(), [0, 1]);
    assert!(view[0].cut_short && view[0].emptied.is_some() && view[1].emptied.is_none());
    assert_eq!((peak(view[1].before), peak(view[1].after)), (Some(20), Some(8)));
}

#[test]
fn out_of_memory_cuts_a_measurement_short() {
    let mut effects = Effects::default();
    steps(&mut effects, 12, 20);
    flip(&mut effects, "batch", "8", "16", 1);
    steps(&mut effects, 3, 40);
    effects.cut_short();
    steps(&mut effects, 12, 90);
    let view = effects.view();
    let [effect] = &*view else { panic!("one effect: {view:?}") };
    assert_eq!((effect.measured, effect.cut_short, effect.is_under_way()), ((1, 10), true, false));
    assert_eq!(peak(effect.after), Some(40), "what came after is not of it");
}

#[test]
fn without_a_step_before_there_is_nothing_to_compare() {
    let mut effects = Effects::default();
    flip(&mut effects, "amp", "off", "bf16", 0);
    steps(&mut effects, 20, 8);
    assert!(effects.view().is_empty());
}

#[test]
fn the_number_of_effects_is_bounded() {
    let mut effects = Effects::default();
    for position in 0..200 {
        // Five steps: the flip before has been measured.
        steps(&mut effects, 5, 8);
        flip(&mut effects, "amp", "off", "bf16", position);
    }
    let view = effects.view();
    assert_eq!(view.len(), Effects::KEPT + 1);
    assert_eq!(view.last().map(|effect| effect.position), Some(199));
}

#[test]
fn bytes_that_climb_with_every_step_are_where_they_have_come_to() {
    let mut effects = Effects::default();
    for mib in (0..14).map(|step| 20 + 4 * step) {
        step(&mut effects, mib, 1000);
    }
    flip(&mut effects, "retain", "loss", "off", 77);
    steps(&mut effects, 12, 20);
    let effect = effects.view()[0].clone();
    let [before, after] = [effect.before, effect.after].map(|measured| measured.unwrap().peak_allocated);
    assert_eq!((before.bytes(), before.spread()), (Bytes::mib(72), 0.0));
    assert_eq!((after.bytes(), after.spread()), (Bytes::mib(20), 0.0));
    assert!(effect.before.unwrap().step.unwrap().median > 0.0, "times are medians");
}
