//! The categories of a snapshot's blocks are guessed. For our own runs they are known, so the guesses for their exports
//! are compared with them, in bytes at the peak.

use std::collections::HashMap;

use vramlab::allocator::Settings;
use vramlab::export::{self, Format, Words};
use vramlab::model::{Category, Event, EventKind, Micros, NameId, Phase};
use vramlab::narration::Guesses;
use vramlab::recording::{FrameBuilder, Writer};
use vramlab::snapshot::{Action, Beginning, Snapshot};
use vramlab::source::Whole;
use vramlab::units::Bytes;

const WORDS: Words = Words { flag: |remedy| format!("{remedy:?}"), autopsy: |_| Vec::new() };

fn run(workload: &str, variant: &str) -> Vec<Event> {
    let (model, batch) = crate::training::workload(workload);
    let (mut trainer, events) = crate::training::simulated(model, crate::training::variant(variant, batch));
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    events.take()
}

fn exported(events: &[Event]) -> Snapshot {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    let mut frames = FrameBuilder::new(0);
    for event in events {
        frames.push(event);
        if frames.is_full() {
            writer.write(&frames.finish().unwrap()).unwrap();
        }
    }
    if let Some(frame) = frames.finish() {
        writer.write(&frame).unwrap();
    }
    drop(writer);
    let whole = Whole::recording(&bytes[..]).unwrap();
    let mut out = Vec::new();
    export::write(&whole, Format::Pytorch, whole.end(), &WORDS, &mut out, &mut |_, _| {}).unwrap();
    Snapshot::read(&out[..]).unwrap()
}

/// The same run as PyTorch would have recorded it: no categories, no phases except the optimizer's scope, Python frames
/// of the user's program, and none in backward, which runs on a thread of its own.
fn as_pytorch(events: &[Event]) -> Vec<Event> {
    const STACKS: [&str; 5] = [
        "__init__ (/job/model.py:5)",
        "main (/job/train.py:3)",
        "forward (/job/model.py:9)",
        "recompute_fn (/v/site-packages/torch/utils/checkpoint.py:1607)",
        "step (/v/site-packages/torch/optim/adam.py:238)",
    ];
    let name = |index: u32| NameId(1_000_000 + index);
    let define = |(index, text): (u32, &&str)| EventKind::Define { id: name(index), text: (*text).into() };
    let mut told: Vec<Event> = Vec::new();
    let (mut texts, mut phase, mut op) = (HashMap::new(), None, NameId::NONE);
    for event in events {
        let mut event = event.clone();
        match &mut event.kind {
            EventKind::Define { id, text } => {
                texts.insert(*id, text.to_string());
                continue;
            }
            EventKind::Begin(_) => {
                told.push(event.clone());
                told.extend((0..).zip(&STACKS).map(define).map(|kind| Event::new(Micros(0), kind)));
                continue;
            }
            EventKind::Relabel { .. } => continue,
            EventKind::OpBegin { name } => {
                op = *name;
                continue;
            }
            EventKind::OpEnd => {
                op = NameId::NONE;
                continue;
            }
            EventKind::PhaseBegin { phase: begun } => {
                phase = Some(*begun);
                if *begun != Phase::Optimizer {
                    continue;
                }
            }
            EventKind::PhaseEnd { phase: ended } => {
                phase = None;
                if *ended != Phase::Optimizer {
                    continue;
                }
            }
            EventKind::Alloc { category, name: asked, .. } => {
                let forward_again = texts.get(&op).is_some_and(|op| !op.ends_with("Backward"));
                *asked = match phase {
                    None if *category == Category::Input => name(1),
                    None => name(0),
                    Some(Phase::Data | Phase::ZeroGrad) => name(1),
                    Some(Phase::Forward) => name(2),
                    Some(Phase::Backward) if forward_again && op != NameId::NONE => name(3),
                    Some(Phase::Backward) => NameId::NONE,
                    Some(Phase::Optimizer) => name(4),
                };
                *category = Category::Other;
            }
            _ => {}
        }
        told.push(event);
    }
    if !told.iter().any(|event| matches!(event.kind, EventKind::Define { .. })) {
        let first = (0..).zip(&STACKS).map(define).map(|kind| Event::new(Micros(0), kind));
        told.splice(0..0, first);
    }
    told
}

/// The requests that are alive at the peak of allocated, after the first ones: by their number, with their bytes and
/// their final category.
fn at_peak(events: &[Event], first: usize) -> Vec<(usize, Bytes, Category)> {
    let mut blocks: Vec<(Bytes, Category)> = Vec::new();
    let mut read = |until: usize| {
        blocks.clear();
        let (mut live, mut alive) = (HashMap::new(), None);
        let (mut held, mut most, mut fullest) = (Bytes::ZERO, Bytes::ZERO, 0);
        for (index, event) in events.iter().enumerate() {
            match event.kind {
                EventKind::Alloc { address, size, category, .. } => {
                    live.insert(address, blocks.len());
                    blocks.push((size, category));
                    held += size;
                    if held > most && blocks.len() > first {
                        (most, fullest) = (held, index);
                    }
                }
                EventKind::Relabel { address, category, .. } => blocks[live[&address]].1 = category,
                EventKind::FreeRequested { address } => {
                    held = held.saturating_sub(blocks[live.remove(&address).unwrap()].0)
                }
                _ => {}
            }
            if index == until {
                alive = Some(live.values().copied().collect::<Vec<usize>>());
            }
        }
        (fullest, alive)
    };
    let (fullest, _) = read(usize::MAX);
    let (_, alive) = read(fullest);
    alive.unwrap().into_iter().map(|number| (number, blocks[number].0, blocks[number].1)).collect()
}

fn beginning(snapshot: &Snapshot) -> Beginning {
    Beginning::of(snapshot, 0, &Settings::default())
}

/// The share of bytes at the peak with a correctly guessed category, among requests after the first entries; and the
/// wrong ones, with their category and the guess.
fn share(events: &[Event], mut snapshot: Snapshot, first: usize) -> (f64, String) {
    let asked: Vec<usize> = (0..)
        .zip(snapshot.device_trace(0))
        .filter(|(_, entry)| entry.action == Action::Alloc)
        .map(|(index, _)| index)
        .collect();
    let forgotten = asked.iter().filter(|entry| **entry < first).count();
    snapshot.forget(0, first);
    let guesses = Guesses::of(&snapshot, 0, &beginning(&snapshot)).unwrap();
    let (mut right, mut all) = (0, 0);
    let mut wrong: HashMap<(Category, Category), u64> = HashMap::new();
    for (number, bytes, category) in at_peak(events, forgotten) {
        let Some(entry) = asked[number].checked_sub(first) else { continue };
        let guess = guesses.category(entry);
        all += bytes.get();
        if guess == category {
            right += bytes.get();
        } else {
            *wrong.entry((category, guess)).or_default() += bytes.get();
        }
    }
    (right as f64 / all as f64, format!("{wrong:?}"))
}

#[test]
fn most_bytes_at_the_peak_are_guessed_right() {
    // The least share that must be right: for exports as they are, and for the same runs as PyTorch would have recorded
    // them.
    for (workload, variant, floors) in [
        ("gpt-mini", "base", [0.98, 0.98]),
        ("gpt-mini", "bf16ckpt", [0.98, 0.98]),
        ("gpt-mini", "sgd0", [0.98, 0.98]),
        ("gpt-frames", "bf16", [0.99, 0.99]),
        ("bert-med", "accum4", [0.99, 0.99]),
        ("vit-med", "amp16", [0.99, 0.99]),
        ("resnet-med", "base", [0.96, 0.96]),
        ("mlp", "base", [0.88, 0.88]),
    ] {
        let events = run(workload, variant);
        let ours = share(&events, exported(&events), 0);
        let theirs = share(&events, exported(&as_pytorch(&events)), 0);
        println!("{workload} {variant}: {:.3} {:.3} wrong {} / {}", ours.0, theirs.0, ours.1, theirs.1);
        assert!(ours.0 >= floors[0] && theirs.0 >= floors[1], "{workload} {variant}: {ours:?} {theirs:?}");
    }
}

/// The first entry after the optimizer's first step has ended.
fn behind_first_step(snapshot: &Snapshot) -> usize {
    let end = snapshot.annotations.iter().find(|scope| !scope.start).expect("an optimizer's scope ends");
    snapshot.device_trace(0).iter().position(|entry| entry.time > end.time).expect("more than one step")
}

#[test]
fn what_began_late_is_guessed_as_well() {
    // Parameters existed before, so errors weigh more among the rest.
    for (workload, variant, floor) in [
        ("gpt-mini", "base", 0.98),
        ("gpt-mini", "bf16ckpt", 0.98),
        ("gpt-mini", "sgd0", 0.98),
        ("gpt-frames", "bf16", 0.99),
        ("bert-med", "accum4", 0.99),
        ("vit-med", "amp16", 0.99),
        ("resnet-med", "base", 0.94),
        ("mlp", "base", 0.88),
    ] {
        let events = run(workload, variant);
        let theirs = exported(&as_pytorch(&events));
        let first = behind_first_step(&theirs);
        let late = share(&events, theirs, first);
        println!("{workload} {variant} behind entry {first}: {:.3} wrong {}", late.0, late.1);
        assert!(late.0 >= floor, "{workload} {variant}: {late:?}");
    }
}
