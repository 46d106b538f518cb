//! Findings as they read.

use std::sync::Arc;

use super::*;
use crate::model::{Event, EventKind, Micros, NameId, Pool, StepReport};
use crate::units::StreamId;

fn names(texts: &[&str]) -> Names {
    Names(Arc::new(texts.iter().map(|text| Arc::from(*text)).collect()))
}

fn memory(kinds: Vec<EventKind>) -> MemoryModel {
    let mut memory = MemoryModel::new();
    for kind in kinds {
        memory.apply(&Event { time: Micros(0), kind }).unwrap();
    }
    memory
}

fn segment(address: u64, size: Bytes) -> EventKind {
    EventKind::SegmentAlloc { address: Address(address), size, stream: StreamId::DEFAULT, pool: Pool::Large }
}

fn alloc(address: u64, size: Bytes, requested: Bytes, category: Category, name: u32) -> EventKind {
    let (address, stream, name) = (Address(address), StreamId::DEFAULT, NameId(name));
    EventKind::Alloc { address, size, requested, stream, category, name }
}

/// What is said of `memory` after the given steps, most important first, one line each.
fn said(memory: &MemoryModel, oom: Option<&OutOfMemory>, skipped: &[bool], switches: &[(char, u32)]) -> String {
    let mut steps = Steps::default();
    for (step, skipped) in (0..).zip(skipped) {
        steps.push(&StepReport {
            step,
            loss: Some(1.0),
            total: Micros(1),
            phases: [Micros(0); 5],
            copy: Micros(0),
            items: 1,
            optimizer_ran: !skipped,
        });
    }
    let evidence = Evidence {
        situation: Situation::of(memory),
        oom,
        peak_by_category: &memory.by_category(),
        steps: &steps,
        growth: Growth::default(),
        switches: &switches.iter().map(|(key, value)| (*key, NameId(*value))).collect(),
        names: &names(&["", "gpt2.wte.weight.grad", "on", "off", "blocks.3.gelu output"]),
    };
    let line = |finding: &Finding| format!("{:?}: {}. {}", finding.level, finding.what, finding.remedy);
    evidence.findings().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(said(&MemoryModel::new(), None, &[], &[]), "");
    let tidy = memory(vec![
        segment(0, Bytes::mib(20)),
        alloc(0, Bytes::mib(8), Bytes::mib(8), Category::Parameter, 0),
        alloc(8 << 20, Bytes::mib(12), Bytes::mib(12), Category::Input, 0),
    ]);
    insta::assert_snapshot!(said(&tidy, None, &[false; 30], &[]), @"");
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
    insta::assert_snapshot!(said(&memory, None, &[], &[]), @r"
    Warning: 26.00 MiB (65 % of reserved) are stranded in 2 segments; the largest hole is 18.00 MiB; 18.00 MiB of segment 0x100000000 are held back by one block of gpt2.wte.weight.grad (2.00 MiB). empty_cache can't return them; PYTORCH_ALLOC_CONF=expandable_segments:True leaves fewer holes
    Info: parameters are 43 % of the step's peak (6.00 MiB of 14.00 MiB). try b (a smaller batch), a smaller model or a higher limit
    ");
}

#[test]
fn the_largest_part_of_the_peak_comes_with_the_switches_that_are_off() {
    let memory = memory(vec![
        segment(0, Bytes::mib(100)),
        alloc(0, Bytes::mib(61), Bytes::mib(61), Category::Activation, 0),
        alloc(61 << 20, Bytes::mib(39), Bytes::mib(39), Category::Parameter, 0),
    ]);
    insta::assert_snapshot!(said(&memory, None, &[], &[]), @"Info: activations are 61 % of the step's peak (61.00 MiB of 100.00 MiB). try c (checkpointing) or a (accumulation) or m (AMP)");
    insta::assert_snapshot!(said(&memory, None, &[], &[('c', 2), ('m', 3)]), @"Info: activations are 61 % of the step's peak (61.00 MiB of 100.00 MiB). try a (accumulation) or m (AMP)");
}

#[test]
fn cached_segments_and_rounding_are_told() {
    let memory = memory(vec![
        segment(0, Bytes::mib(20)),
        segment(20 << 20, Bytes::mib(60)),
        alloc(0, Bytes::mib(20), Bytes::mib(18), Category::Input, 0),
    ]);
    insta::assert_snapshot!(said(&memory, None, &[], &[]), @r"
    Info: 60.00 MiB (75 % of reserved) are cached and unused. e (empty_cache) would return them; the next step would take them again
    Info: rounding loses 2.00 MiB (10 % of allocated): rests of up to 1 MiB stay with large blocks. PYTORCH_ALLOC_CONF=expandable_segments:True splits them off
    ");
}

#[test]
fn the_scaler_is_explained() {
    let none = MemoryModel::new();
    insta::assert_snapshot!(said(&none, None, &[true, true, false, false], &[]), @"Info: the gradient scaler skipped 2 steps: normal while it looks for its scale. ");
    insta::assert_snapshot!(said(&none, None, &[true; 12], &[]), @"Warning: the gradient scaler skipped 12 of the last 12 steps: fp16 gradients overflow. try m (bf16 has the range of fp32)");
}

#[test]
fn out_of_memory_is_explained_by_what_caused_it() {
    let full =
        Ledger { live: Bytes::mib(380), stranded: Bytes::mib(10), largest_free: Bytes::mib(4), ..Ledger::default() };
    let mut by_category = [Bytes::mib(20); 8];
    by_category[Category::Activation as usize] = Bytes::mib(240);
    let oom = OutOfMemory {
        requested: Bytes::mib(48),
        device_free: Bytes::gib(3),
        name: NameId(4),
        limit: Some(Bytes::mib(400)),
        ledger: full,
        by_category,
    };
    let none = MemoryModel::new();
    insta::assert_snapshot!(said(&none, Some(&oom), &[], &[]), @"Danger: out of memory: 48.00 MiB asked for blocks.3.gelu output; of the 400.00 MiB allowed 390.00 MiB are reserved, 380.00 MiB of them allocated. try c (checkpointing) or a (accumulation) or m (AMP)");
    let fragmented = Ledger { live: Bytes::mib(300), stranded: Bytes::mib(90), pending: Bytes::mib(1), ..full };
    let oom = OutOfMemory { ledger: fragmented, limit: None, name: NameId::NONE, device_free: Bytes::mib(12), ..oom };
    insta::assert_snapshot!(said(&none, Some(&oom), &[], &[]), @"Danger: out of memory: 48.00 MiB asked; 12.00 MiB are left on the device, 391.00 MiB are reserved, 300.00 MiB of them allocated and 1.00 MiB waiting for another stream; 90.00 MiB are free in pieces of at most 4.00 MiB. PYTORCH_ALLOC_CONF=expandable_segments:True lets pieces grow together");
}
