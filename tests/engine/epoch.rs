//! Simulated epochs, compared with runs of every step.

use std::num::NonZero;

use vramlab::allocator::{Settings, TorchVersion};
use vramlab::device::sim::CardCatalog;
use vramlab::epoch::{EpochRequest, simulate};
use vramlab::session::{DeviceChoice, Headless, LabSpec, MemoryLimit};
use vramlab::train::{Amp, Checkpointing, Config};
use vramlab::units::Bytes;
use vramlab::whatif::{Conditions, StepPeaks};
use vramlab::workload::{Catalog, Data, LengthPolicy, Lengths, Repeats};

fn spec(workload: &str, samples: &[u32], policy: LengthPolicy, batch: usize) -> LabSpec {
    let entry = Catalog::with_user_workloads(None).entry(workload).unwrap();
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let data = Data::Lengths(Lengths::new(samples.to_vec(), None, 1).unwrap().under(policy));
    let config = Config { data: data.path(), batch, ..Config::new(batch) };
    LabSpec { device: DeviceChoice::Sim(Box::new(card)), data, config, ..LabSpec::new(entry) }
}

fn conditions(spec: &LabSpec) -> Conditions {
    let memory = spec.memory();
    let mut conditions = Conditions::parse(&spec.alloc_conf, memory).unwrap();
    conditions.limit = spec.limit.zip(memory).map(|(limit, memory)| limit.of(memory.total));
    conditions
}

/// The peaks of every step of a run by the engine, and whether a step failed.
fn run(spec: &LabSpec, steps: u64) -> (Vec<StepPeaks>, bool) {
    let mut run = Headless::start(spec.clone()).unwrap();
    let mut peaks = Vec::new();
    for _ in 0..steps {
        run.reset_peaks();
        if run.step().is_err() {
            return (peaks, true);
        }
        let statistics = run.statistics();
        let bytes = |count: i64| Bytes(u64::try_from(count).unwrap());
        peaks.push(StepPeaks {
            allocated: bytes(statistics.allocated_bytes.all.peak),
            reserved: bytes(statistics.reserved_bytes.all.peak),
        });
    }
    (peaks, false)
}

/// Every step of every policy, with odd lengths, batches that are not full, micro-batches, and a second epoch.
#[test]
fn an_epoch_comes_to_what_every_step_does() {
    let samples: Vec<u32> = (0..41).map(|n| n * 7919 % 127 + 1).collect();
    for (workload, accumulation) in [("llama-mini", 1), ("llama-mini", 2), ("gpt-mini", 1)] {
        let samples: Vec<u32> = samples.iter().map(|length| (*length).min(32)).chain([32]).collect();
        for policy in LengthPolicy::ALL {
            let mut spec = spec(workload, &samples, policy, 4);
            spec.config.accumulation = accumulation;
            let Data::Lengths(lengths) = &spec.data else { panic!() };
            let asked = [EpochRequest { policy, conditions: conditions(&spec) }];
            let epochs = simulate(&spec, lengths, 25, &asked).unwrap();
            assert_eq!((epochs[0].steps.clone(), epochs[0].failed.is_some()), run(&spec, 25), "{workload} {policy:?}");
        }
    }
}

#[test]
fn an_epoch_fails_where_its_step_does_and_names_the_sample() {
    let mut samples = vec![64; 40];
    samples[29] = 4096;
    let mut spec = spec("llama-mini", &samples, LengthPolicy::Pad, 4);
    spec.limit = Some(MemoryLimit::Bytes(Bytes::mib(100)));
    let Data::Lengths(lengths) = &spec.data else { panic!() };
    let asked = [EpochRequest { policy: LengthPolicy::Pad, conditions: conditions(&spec) }];
    let epochs = simulate(&spec, lengths, 10, &asked).unwrap();
    let (steps, failed) = run(&spec, 10);
    assert!(failed && steps.len() == 7, "{}", steps.len());
    assert_eq!(epochs[0].steps, steps);
    let batch = epochs[0].failed.as_ref().unwrap()[0];
    assert_eq!((batch.samples, batch.length, batch.longest), (4, 4096, Some(29)));
}

/// Long samples, whose blocks are large, and few lengths, so that most steps are repeated in another state of the small
/// pool. The settings change both pools, and the cache is emptied now and then.
#[test]
fn steps_that_come_again_do_what_they_did() {
    let samples: Vec<u32> = (0..160).map(|n| [700, 90, 1500, 330, 1501, 12][(n * n + n / 7) % 6]).collect();
    for (settings, torch) in [
        ("", TorchVersion::V2_11),
        ("expandable_segments:True", TorchVersion::V2_11),
        ("max_split_size_mb:64,roundup_power2_divisions:4", TorchVersion::V2_11),
        ("", TorchVersion::V2_12),
        ("", TorchVersion::V2_13),
    ] {
        for limit in [None, Some(MemoryLimit::Bytes(Bytes::mib(430)))] {
            let mut spec = spec("llama-mini", &samples, LengthPolicy::Pad, 2);
            spec.limit = limit;
            spec.alloc_conf = settings.into();
            spec.settings = Settings::parse_for(torch, settings).unwrap();
            let Data::Lengths(lengths) = &spec.data else { panic!() };
            let mut conditions = Conditions::parse_for(torch, settings, spec.memory()).unwrap();
            conditions.limit = spec.limit.zip(spec.memory()).map(|(limit, memory)| limit.of(memory.total));
            let asked = [EpochRequest { policy: LengthPolicy::Pad, conditions }];
            let epochs = simulate(&spec, lengths, 80, &asked).unwrap();
            let told = (epochs[0].steps.clone(), epochs[0].failed.is_some());
            assert_eq!(told, run(&spec, 80), "{settings} {torch:?} {limit:?}");
        }
    }
}

/// If reserved stays far below the threshold, the setting changes nothing; if the limit is just above what is reserved,
/// it does.
#[test]
fn an_epoch_that_collects_garbage_comes_to_the_same_whoever_is_asked_beside_it() {
    let samples: Vec<u32> = (0..64).map(|n| n * 7919 % 509 + 1).collect();
    let spec = spec("llama-mini", &samples, LengthPolicy::Pad, 4);
    let Data::Lengths(lengths) = &spec.data else { panic!() };
    let asked = |conditions| EpochRequest { policy: LengthPolicy::Pad, conditions };
    let plain = asked(conditions(&spec));
    let most = simulate(&spec, lengths, 16, std::slice::from_ref(&plain)).unwrap()[0].reserved().unwrap().max;
    let collecting = |limit| {
        let mut conditions = Conditions::parse("garbage_collection_threshold:0.8", spec.memory()).unwrap();
        conditions.limit = Some(limit);
        conditions
    };
    let mut differ = 0;
    for limit in [Bytes(2 * most.get()), most] {
        let collecting = asked(collecting(limit));
        let alone = simulate(&spec, lengths, 16, std::slice::from_ref(&collecting)).unwrap().swap_remove(0);
        let beside = simulate(&spec, lengths, 16, &[collecting, plain.clone()]).unwrap();
        assert_eq!(beside[0].steps, alone.steps, "{limit}");
        differ += usize::from(beside[0].steps != beside[1].steps);
    }
    assert_eq!(differ, 1, "garbage is collected below the tight limit alone");
}

/// A model of many layers, most of whose steps are derived from those of one with fewer layers: with and without
/// padding, with a length from which on another kernel runs, and with settings that change what layers request.
#[test]
fn steps_of_fewer_layers_tell_those_of_all() {
    let samples: Vec<u32> = (0..400).map(|n| n * 7919 % 389 + 1).collect();
    for configure in [
        (|_| {}) as fn(&mut Config),
        |config| config.checkpointing = Checkpointing::Every(NonZero::new(4).unwrap()),
        |config| config.attention_mask = true,
        |config| config.hyper.clip = Some(1.0),
        |config| config.amp = Amp::Bf16,
    ] {
        for batch in [1, 3] {
            let mut spec = spec("llama-mini", &samples, LengthPolicy::Pad, batch);
            spec.sizes.layers = Some(Repeats::nearest(9));
            configure(&mut spec.config);
            let Data::Lengths(lengths) = &spec.data else { panic!() };
            let asked = [EpochRequest { policy: LengthPolicy::Pad, conditions: conditions(&spec) }];
            let epochs = simulate(&spec, lengths, 80, &asked).unwrap();
            assert_eq!(
                (epochs[0].steps.clone(), epochs[0].failed.is_some()),
                run(&spec, 80),
                "{:?} by {batch}",
                spec.config
            );
        }
    }
}
