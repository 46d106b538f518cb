//! What a rank holds because it shares work is recognised in other people's programs as in a lab of our own: by PyTorch's
//! stacks, in a snapshot, and in a recording of it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use vramlab::device::sim::SimDevice;
use vramlab::model::{AlikeRanks, Event, EventKind, Evidence, Finding, Lab, Micros};
use vramlab::narration::{Guesses, events};
use vramlab::snapshot::replay::{Conditions, Overrides};
use vramlab::snapshot::{Beginning, Snapshot};
use vramlab::source::{self, Picture, Recorder};
use vramlab::train::{Amp, Config, Libraries, LoopStyle, Member, Parallelism, Trainer, TrainerOptions, World};

use crate::patience;

/// Three steps of GPT-2 in bf16, on the first of two H200s that PyTorch trained it on.
fn snapshot(way: Parallelism) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/ranks/gpt2.{way}.pickle.xz"))
}

fn narrated(way: Parallelism) -> Vec<Event> {
    let path = snapshot(way);
    let snapshot = Snapshot::open(&path).unwrap();
    let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    let beginning = Beginning::of(&snapshot, 0, &conditions.settings);
    let guesses = Guesses::of(&snapshot, 0, &beginning).unwrap();
    let mut told = Vec::new();
    events(&snapshot, 0, &conditions, Some(&guesses), |event| told.push(event));
    told
}

/// The same run by our trainer.
fn trained(way: Parallelism) -> Vec<Event> {
    let (model, _) = crate::training::workload("gpt2");
    let member = Member { parallelism: way, world: World::new(2, 0).unwrap() };
    let mut config = Config::new(member.samples(16).unwrap());
    config.amp = Amp::Bf16;
    let options = TrainerOptions {
        style: LoopStyle::Accumulating,
        workspaces: Libraries::HOPPER,
        member: Some(member),
        ..TrainerOptions::default()
    };
    let told: Rc<RefCell<Vec<Event>>> = Rc::default();
    let device = Box::new(SimDevice::h200().unwrap());
    let mut trainer = Trainer::new(device, model, config, options, Box::new(Rc::clone(&told))).unwrap();
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let alike = AlikeRanks { parallelism: Some(way), world: 2, ranks: vec![0] };
    let mut events = vec![Event::new(Micros(0), EventKind::AlikeRanks(Arc::new(alike)))];
    events.append(&mut told.borrow_mut());
    events
}

fn is_shared(finding: &&Finding) -> bool {
    matches!(finding.evidence, Evidence::Gathered { .. } | Evidence::Buckets { .. })
}

fn found(events: &[Event]) -> Option<Evidence> {
    let mut lab = Lab::new();
    events.iter().for_each(|event| lab.apply(event));
    lab.view().findings.iter().find(is_shared).map(|finding| finding.evidence.clone())
}

/// The sentences on screens about a file, once it has been read.
fn said(path: &Path) -> Vec<String> {
    let mut source = source::open(&[path.to_owned()], false, None).unwrap_or_else(|(_, error)| panic!("{error}"));
    let at_rest = patience::in_time(async {
        let looked_at = |picture: &Arc<Picture>| {
            picture.reading.is_none() && picture.diagnosis.is_some() && picture.marked.is_some()
        };
        source.pictures.wait_for(looked_at).await.ok()?;
        // It is complete when nothing more follows.
        while let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(500), source.pictures.changed()).await {}
        Some(Arc::clone(&source.pictures.borrow()))
    });
    let findings = at_rest.flatten().unwrap_or_else(|| panic!("it is not looked at")).findings().to_vec();
    findings.iter().filter(is_shared).map(ToString::to_string).collect()
}

#[test]
fn buckets_of_ddp_are_found_by_its_stacks_and_are_those_of_a_run_of_our_own() {
    let ours = found(&trained(Parallelism::Ddp));
    assert!(matches!(ours, Some(Evidence::Buckets { .. })), "{ours:?}");
    assert_eq!(found(&narrated(Parallelism::Ddp)), ours);
}

#[test]
fn gathered_parameters_are_found_by_the_stacks_of_fsdp_and_are_those_of_a_run_of_our_own() {
    let ours = found(&trained(Parallelism::Fsdp));
    let theirs = found(&narrated(Parallelism::Fsdp));
    let (
        Some(Evidence::Gathered { bytes, peak, gathers }),
        Some(Evidence::Gathered { bytes: found, peak: of, gathers: all }),
    ) = (&ours, &theirs)
    else {
        panic!("{ours:?} {theirs:?}");
    };
    // Twelve blocks and the root, in forward and again in backward.
    assert_eq!((*gathers, *all), (26, 26));
    assert_eq!(found, bytes);
    // The placement of segments decides which free blocks are cut; figures of ranks on the card differ by as much, too.
    assert!(peak.get().abs_diff(of.get()) * 1000 < peak.get(), "{of}, not {peak}");
}

#[test]
fn snapshots_of_ranks_stand_side_by_side_under_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, way| {
        let path = folder.path().join(name);
        std::fs::copy(snapshot(way), &path).unwrap();
        path
    };
    let numbers = |paths: &[PathBuf]| {
        let mut source = source::open(paths, false, None).unwrap_or_else(|(_, error)| panic!("{error}"));
        let read = patience::in_time(async {
            let read = |picture: &Arc<Picture>| picture.reading.is_none() && picture.extent.end > 0;
            source.pictures.wait_for(read).await.ok().map(|of| Arc::clone(&of))
        });
        let picture = read.flatten().unwrap_or_else(|| panic!("it is not read"));
        picture.ranks.iter().map(|of| of.alike.numbers()).collect::<Vec<_>>()
    };
    let ranks = [named("run.rank2.pickle.xz", Parallelism::Ddp), named("run.rank10.pickle.xz", Parallelism::Fsdp)];
    assert_eq!(numbers(&ranks), ["2", "10"]);
    let runs = [named("one.pickle.xz", Parallelism::Ddp), named("another.pickle.xz", Parallelism::Ddp)];
    assert_eq!(numbers(&runs), ["0", "1"]);
    let alone = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/gpt-frames.pickle.xz");
    assert_eq!(numbers(&[ranks[0].clone(), alone]), [""; 0], "one of them exchanges nothing");
    assert_eq!(numbers(&ranks[..1]), [""; 0], "a rank alone");
}

#[test]
fn a_snapshot_and_its_recording_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for way in [Parallelism::Ddp, Parallelism::Fsdp] {
        let path = folder.path().join(format!("{way}.vram"));
        let mut recorder = Recorder::create(&path).unwrap();
        narrated(way).iter().for_each(|event| recorder.push(event));
        recorder.close_frame();
        recorder.finish().unwrap();
        let (file, recording) = (said(&snapshot(way)), said(&path));
        assert_eq!(file.len(), 1, "{file:?}");
        assert_eq!(file, recording);
    }
}
