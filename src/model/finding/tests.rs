//! The wording of findings.

use std::borrow::Cow;
use std::sync::Arc;

use super::*;
use crate::{Event, EventKind, FailedRequest, FlipTrials, Micros, NameId, RemedyTrial, Setting, StepReport};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, StreamId};

fn names(texts: &[&str]) -> Names {
    Names(Arc::new(texts.iter().map(|text| Arc::from(*text)).collect()))
}

fn memory(kinds: Vec<EventKind>) -> MemoryModel {
    let mut memory = MemoryModel::new();
    for kind in kinds {
        memory.apply(&Event::new(Micros(0), kind)).unwrap();
    }
    memory
}

fn segment(address: u64, size: Bytes) -> EventKind {
    EventKind::SegmentAlloc { address: Address(address), size, stream: StreamId::DEFAULT, pool: PoolKind::Large }
}

fn alloc(address: u64, size: Bytes, requested: Bytes, category: Category, name: u32) -> EventKind {
    let (address, stream, name) = (Address(address), StreamId::DEFAULT, NameId(name));
    EventKind::Alloc { address, size, requested, stream, category, name }
}

/// Settings with these values. A value in brackets is idle.
fn settings(switches: &[(&str, &str)]) -> RunSettings {
    let setting = |(switch, value): &(&str, &str)| Setting {
        switch: (*switch).into(),
        value: value.trim_matches(['(', ')']).into(),
        wanted: None,
        idle: value.starts_with('(').then(|| "it is another model".into()),
    };
    RunSettings(switches.iter().map(setting).collect())
}

/// The switches that remedies may flip, with their default values.
const USUAL: [(&str, &str); 8] = [
    ("amp", "off"),
    ("ckpt", "off"),
    ("accum", "1"),
    ("opt", "adamw"),
    ("offload", "off"),
    ("zero-grad", "set_to_none"),
    ("retain", "off"),
    ("alloc-conf", "default"),
];

/// [`USUAL`] with some changes.
fn with<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let changed =
        |(switch, value)| changes.iter().find(|change| change.0 == switch).copied().unwrap_or((switch, value));
    USUAL.into_iter().map(changed).collect()
}

fn in_words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Flip { switch, value } => format!("{switch} {value}"),
        Remedy::SmallerBatch { .. } => "smaller batch".to_owned(),
        Remedy::EmptyCache => "empty_cache".to_owned(),
        Remedy::HigherLimit => "higher limit".to_owned(),
        Remedy::KeepNumbers => "keep numbers".to_owned(),
        Remedy::BreakCycles => "break cycles".to_owned(),
        Remedy::ChooseGpu => "set_device".to_owned(),
        Remedy::Detach => "detach".to_owned(),
        Remedy::LetGo => "let go".to_owned(),
    }
}

fn lines(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let remedies: Vec<String> = finding.remedies.iter().map(in_words).collect();
        format!("{:?}: {finding}. [{}]", finding.level, remedies.join(", "))
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What is known besides memory.
#[derive(Clone, Copy, Default)]
struct Facts<'a> {
    oom: Option<&'a Autopsy>,
    skipped: &'a [bool],
    switches: &'a [(&'a str, &'a str)],
    growth: Growth,
    fullest: Option<(Ledger, u64)>,
    weighed: Option<&'a FlipTrials>,
}

/// The findings about `memory`, the most important first.
fn findings(memory: &MemoryModel, told: Facts<'_>) -> Vec<Finding> {
    let mut steps = Steps::default();
    for (step, skipped) in (0..).zip(told.skipped) {
        steps.push(&StepReport {
            step,
            loss: Some(1.0),
            total: Micros(1),
            phases: [Micros(0); 5],
            copy: Micros(0),
            exchange: Micros(0),
            items: 1,
            optimizer_ran: !skipped,
        });
    }
    let names = names(&["", "gpt2.wte.weight.grad", "blocks.3.gelu output"]);
    let known = FindingInputs {
        situation: &Situation::of(memory, &names),
        fullest: told.fullest,
        spare: memory.releasable(),
        oom: told.oom,
        peak_by_category: &memory.by_category(),
        peak_position: Some(77),
        steps: &steps,
        growth: told.growth,
        settings: &settings(told.switches),
        weighed: told.weighed,
        names: &names,
        shared: None,
    };
    known.findings()
}

/// The findings as text, one per line.
fn said(memory: &MemoryModel, told: Facts<'_>) -> String {
    lines(&findings(memory, told))
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(said(&MemoryModel::new(), Facts::default()), "");
    let tidy = memory(vec![
        segment(0, Bytes::mib(20)),
        alloc(0, Bytes::mib(8), Bytes::mib(8), Category::Parameter, 0),
        alloc(8 << 20, Bytes::mib(12), Bytes::mib(12), Category::Input, 0),
    ]);
    assert_eq!(said(&tidy, Facts { skipped: &[false; 30], switches: &USUAL, ..Facts::default() }), "");
}

#[test]
fn stranded_bytes_are_told_with_the_block_that_holds_them() {
    let gradient = Category::Gradient;
    let memory = memory(vec![
        segment(0x1_0000_0000, Bytes::mib(20)),
        segment(0x2_0000_0000, Bytes::mib(20)),
        alloc(0x1_0000_0000, Bytes::mib(2), Bytes::mib(2), gradient, 1),
        alloc(0x2_0000_0000, Bytes::mib(6), Bytes::mib(6), Category::Parameter, 0),
        alloc(0x2_0000_0000 + (8 << 20), Bytes::mib(6), Bytes::mib(6), Category::Input, 0),
    ]);
    let told = Facts { switches: &USUAL, ..Facts::default() };
    insta::assert_snapshot!(said(&memory, told), @r"
    Warning: 26.00 MiB (65 % of reserved) are stranded, in 2 segments; the largest hole is 18.00 MiB, held by gpt2.wte.weight.grad (2.00 MiB). []
    Info: parameters are 43 % of the step's peak (6.00 MiB of 14.00 MiB). []
    ");
    let found = findings(&memory, told);
    assert_eq!(found[0].remedies, [], "nothing was tried");
    assert_eq!((found[0].position, found[1].position), (Some(memory.position()), Some(77)), "both can be gone to");
    let holder = SegmentHolder {
        segment: Address(0x1_0000_0000),
        free: Bytes::mib(18),
        name: "gpt2.wte.weight.grad".into(),
        size: Bytes::mib(2),
        others: 0,
        other: None,
    };
    let Evidence::Stranded { holder: found, .. } = &found[0].evidence else { panic!("{found:?}") };
    assert_eq!(*found, Some(holder));
}

#[test]
fn of_two_blocks_that_hold_a_hole_both_are_told() {
    let held_by = |sizes: &[u64]| {
        let at = |index: usize| 0x1_0000_0000 + ((index as u64) << 23);
        let block = |(index, mib): (usize, &u64)| {
            alloc(at(index), Bytes::mib(*mib), Bytes::mib(*mib), Category::Gradient, 1 + index as u32)
        };
        let mut events = vec![segment(0x1_0000_0000, Bytes::mib(60))];
        events.extend(sizes.iter().enumerate().map(block));
        let said = said(&memory(events), Facts { switches: &USUAL, ..Facts::default() });
        let sentence = said.lines().find_map(|line| line.split_once(", held by ")).map(|(_, holder)| holder.to_owned());
        sentence.unwrap_or_default()
    };
    let named = [
        "blocks.3.gelu output (3.00 MiB) and gpt2.wte.weight.grad (2.00 MiB). []",
        "gpt2.wte.weight.grad and blocks.3.gelu output (2.00 MiB each). []",
    ];
    assert_eq!([held_by(&[2, 3]), held_by(&[2, 2])], named);
    assert!(held_by(&[2, 2, 3]).contains(" (3.00 MiB) and 2 more blocks"), "of more, how many");
}

#[test]
fn the_largest_part_of_the_peak_comes_with_the_switches_that_are_off() {
    let peak = |category| {
        memory(vec![
            segment(0, Bytes::mib(100)),
            alloc(0, Bytes::mib(61), Bytes::mib(61), category, 0),
            alloc(61 << 20, Bytes::mib(39), Bytes::mib(39), Category::Other, 0),
        ])
    };
    let activations = peak(Category::Activation);
    let said = |memory: &MemoryModel, switches: &[(&str, &str)]| said(memory, Facts { switches, ..Facts::default() });
    insta::assert_snapshot!(said(&activations, &USUAL), @"Info: activations are 61 % of the step's peak (61.00 MiB of 100.00 MiB). []");
    let remedies = |category, changes: &[(&str, &str)]| {
        let offered = advice::against(category, &settings(&with(changes)));
        offered.iter().map(in_words).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(remedies(Category::Activation, &[("ckpt", "on"), ("amp", "fp16")]), "accum 2");
    assert_eq!(remedies(Category::Activation, &[("ckpt", "(off)")]), "accum 2, amp bf16", "it would change nothing");
    let all = [("ckpt", "on"), ("accum", "4"), ("amp", "bf16")];
    assert_eq!(remedies(Category::Activation, &all), "", "nothing is left to switch");
    assert_eq!(remedies(Category::Temporary, &[]), "accum 2, amp bf16");
    assert_eq!(remedies(Category::OptimizerState, &[]), "offload optimizer, opt adamw_8bit, opt sgd");
    assert_eq!(remedies(Category::OptimizerState, &[("opt", "sgd")]), "offload optimizer");
    assert_eq!(
        remedies(Category::OptimizerState, &[("offload", "activations")]),
        "opt adamw_8bit, opt sgd",
        "it offloads already"
    );
    assert_eq!(remedies(Category::Gradient, &[("zero-grad", "zeroed")]), "zero-grad set_to_none");
    assert_eq!(remedies(Category::Gradient, &[]), "");
    assert!(
        advice::against(Category::Activation, &settings(&[])).is_empty(),
        "a run without switches has none to offer"
    );
}

#[test]
fn of_flips_that_were_tried_the_one_that_saves_most_is_advised() {
    let memory = memory(vec![
        segment(0, Bytes::mib(100)),
        alloc(0, Bytes::mib(61), Bytes::mib(61), Category::Activation, 0),
        alloc(61 << 20, Bytes::mib(39), Bytes::mib(39), Category::Other, 0),
    ]);
    let flips = |ckpt, amp| {
        let optimizer = (Remedy::flip("opt", "sgd"), Bytes::mib(1));
        vec![(Remedy::flip("ckpt", "on"), Bytes::mib(ckpt)), (Remedy::flip("amp", "bf16"), Bytes::mib(amp)), optimizer]
    };
    let advised = |flips| {
        let weighed = FlipTrials { step: 2, peak: Bytes::mib(100), flips };
        let told = Facts { switches: &USUAL, weighed: Some(&weighed), ..Facts::default() };
        let found = findings(&memory, told).swap_remove(0);
        let remedies: Vec<String> = found.remedies.iter().map(in_words).collect();
        (remedies.join(", "), found.gain.map(|gain| gain.to_string()).unwrap_or_default())
    };
    // A flip that lowers another category is not a remedy for this one.
    let gain = "in a fresh run, peak 100.00 → 70.00 MiB (−30 %), simulated".to_owned();
    assert_eq!(advised(flips(85, 70)), ("amp bf16".to_owned(), gain));
    assert_eq!(advised(flips(101, 100)), (String::new(), String::new()), "checkpointing can raise a peak");
}

#[test]
fn cached_segments_and_rounding_are_told() {
    let memory = memory(vec![
        segment(0, Bytes::mib(20)),
        segment(20 << 20, Bytes::mib(60)),
        alloc(0, Bytes::mib(20), Bytes::mib(18), Category::Input, 0),
    ]);
    insta::assert_snapshot!(said(&memory, Facts { switches: &USUAL, ..Facts::default() }), @r"
    Info: 60.00 MiB (75 % of reserved) are cached in segments that nothing holds. [empty_cache]
    Info: rounding takes 2.00 MiB (10 % of allocated): rests of up to 1 MiB stay with large blocks. []
    ");
}

#[test]
fn of_a_run_that_has_ended_free_memory_is_told_where_most_was_reserved() {
    let memory = memory(vec![segment(0, Bytes::gib(13)), alloc(0, Bytes::mib(1), Bytes::mib(1), Category::Input, 0)]);
    let fullest = |stranded, releasable| {
        let ledger = Ledger {
            live: Bytes::gib(9),
            stranded: Bytes::gib(stranded),
            releasable: Bytes::gib(releasable),
            ..Ledger::default()
        };
        said(&memory, Facts { fullest: Some((ledger, 4711)), switches: &USUAL, ..Facts::default() })
    };
    assert_eq!(fullest(0, 0), "", "that all is free once it is over is no finding");
    insta::assert_snapshot!(fullest(1, 3), @r"
    Warning: 1.00 GiB (8 % of reserved) were stranded when most was reserved. []
    Info: 3.00 GiB (23 % of reserved) were cached and unused when most was reserved. []
    ");
    let found = findings(&memory, Facts { fullest: Some((Ledger::default(), memory.position())), ..Facts::default() });
    assert!(matches!(found[0].evidence, Evidence::Stranded { when: FreeMemoryMoment::Now, .. }), "{found:?}");
}

#[test]
fn the_scaler_is_explained() {
    let none = MemoryModel::new();
    let said = |skipped: &[bool]| said(&none, Facts { skipped, switches: &USUAL, ..Facts::default() });
    insta::assert_snapshot!(said(&[true, true, false, false]), @"Info: the gradient scaler skipped 2 steps: fp16 gradients overflowed, the scale was halved. []");
    insta::assert_snapshot!(said(&[true; 12]), @"Warning: the gradient scaler skipped 12 of the last 12 steps: fp16 gradients overflow. [amp bf16]");
}

#[test]
fn a_leak_is_told_with_what_keeps_it() {
    let mut growth = Growth::default();
    (0..6).for_each(|step| growth.end_step(Bytes::mib(10 + 3 * step)));
    let none = MemoryModel::new();
    let told = |retain: &str| {
        let switches = with(&[("retain", retain)]);
        said(&none, Facts { growth, switches: &switches, ..Facts::default() })
    };
    insta::assert_snapshot!(told("graph"), @"Warning: a leak: each of the last 5 steps left 3.00 MiB behind: losses are kept with their graphs, which hold every saved tensor. [retain off, keep numbers]");
    insta::assert_snapshot!(told("losses"), @"Warning: a leak: each of the last 5 steps left 3.00 MiB behind: the loss tensor of every step is kept. [retain off, keep numbers]");
    insta::assert_snapshot!(told("cycles"), @"Warning: a leak: each of the last 5 steps left 3.00 MiB behind: the output of each step is held by objects that refer to each other, until Python's garbage collector runs. [retain off, break cycles]");
    insta::assert_snapshot!(told("off"), @"Warning: a leak: each of the last 5 steps left 3.00 MiB behind: something keeps tensors of finished steps. [let go]");
}

fn autopsy() -> Autopsy {
    let mut by_category = [Bytes::mib(20); 9];
    by_category[Category::Activation as usize] = Bytes::mib(240);
    let full =
        Ledger { live: Bytes::mib(380), stranded: Bytes::mib(10), largest_free: Bytes::mib(4), ..Ledger::default() };
    let request = FailedRequest {
        requested: Bytes::mib(48),
        rounded: Bytes::mib(48),
        segment: Bytes::mib(48),
        pool: PoolKind::Large,
        stream: StreamId::DEFAULT,
        device_free: Bytes::gib(3),
        name: NameId(2),
        attempts: Vec::new(),
    };
    Autopsy {
        position: 4711,
        step: 3,
        request: Arc::new(request),
        op: "gelu".into(),
        phase: None,
        limit: Some(Bytes::mib(400)),
        ledger: full,
        by_category,
        owners: Vec::new(),
        modules: Vec::new(),
        unusable: Vec::new(),
        short: Bytes::mib(38),
        remedied: Arc::default(),
        tried: false,
    }
}

#[test]
fn out_of_memory_is_explained_by_what_caused_it() {
    let none = MemoryModel::new();
    let full = autopsy();
    let told = |oom| said(&none, Facts { oom: Some(oom), switches: &USUAL, ..Facts::default() });
    insta::assert_snapshot!(told(&full), @"Danger: out of memory: 48.00 MiB asked for blocks.3.gelu output; of the 400.00 MiB allowed 390.00 MiB are reserved, 380.00 MiB of them allocated. []");
    let request = FailedRequest {
        segment: Bytes::mib(50),
        device_free: Bytes::mib(12),
        name: NameId::NONE,
        ..(*full.request).clone()
    };
    let ledger = Ledger { live: Bytes::mib(300), stranded: Bytes::mib(90), pending: Bytes::mib(1), ..full.ledger };
    let fragmented = Autopsy { request: Arc::new(request), ledger, limit: None, ..full.clone() };
    insta::assert_snapshot!(told(&fragmented), @"Danger: out of memory: 50.00 MiB asked (a tensor of 48.00 MiB); the device has 12.00 MiB left, 391.00 MiB are reserved, 300.00 MiB of them allocated; 90.00 MiB are free, but in pieces that can't serve it. []");
    let request = FailedRequest { name: NameId::NONE, ..(*full.request).clone() };
    let refused = Autopsy { request: Arc::new(request), limit: None, ..full.clone() };
    let words =
        "; a limit of this process stopped it, not the device, which had 3.00 GiB left: 390.00 MiB were reserved, ";
    assert!(told(&refused).contains(words), "{}", told(&refused));
    let found = findings(&none, Facts { oom: Some(&full), switches: &USUAL, ..Facts::default() });
    assert_eq!(found[0].position, Some(4711));
    assert_eq!(found[0].remedies, [], "nothing was tried");
}

#[test]
fn only_what_was_tried_for_a_failed_request_is_advised() {
    let none = MemoryModel::new();
    let tried = |switch: &'static str, fits| RemedyTrial {
        remedy: Remedy::Flip { switch: Cow::Borrowed(switch), value: "on".into() },
        fits,
        peak_reserved: Bytes::mib(100),
    };
    let remedies = |remedied: Vec<RemedyTrial>| {
        let oom = Autopsy { remedied: remedied.into(), ..autopsy() };
        let found = findings(&none, Facts { oom: Some(&oom), switches: &USUAL, ..Facts::default() });
        found[0].remedies.iter().map(in_words).collect::<Vec<_>>()
    };
    assert_eq!(
        remedies(vec![tried("amp", false), tried("offload", true), tried("ckpt", true)]),
        ["offload on", "ckpt on"]
    );
    assert_eq!(remedies(vec![tried("amp", false)]), [""; 0], "nothing that was tried helps");
    let mut growth = Growth::default();
    (0..6).for_each(|step| growth.end_step(Bytes::mib(10 + 3 * step)));
    let oom = autopsy();
    let leaks = with(&[("retain", "graph")]);
    let found = findings(&none, Facts { oom: Some(&oom), switches: &leaks, growth, ..Facts::default() });
    let cures = [Remedy::flip("retain", "off"), Remedy::KeepNumbers];
    assert_eq!(found[0].remedies, cures, "a leak fills any memory");
}
