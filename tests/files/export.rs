//! Exports contain what was recorded: they are read back, and compared with PyTorch's own figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use vramlab::allocator::BlockState;
use vramlab::export::{self, ExportMoment, Format, Words};
use vramlab::model::{Event, EventKind, MemoryModel, Ranks};
use vramlab::recording::{FrameBuilder, RecordingError, Writer};
use vramlab::snapshot::replay::{Conditions, Overrides, Statistics, verify};
use vramlab::snapshot::{Action, Beginning, Snapshot, StackId};
use vramlab::source::Whole;
use vramlab::units::{Address, Bytes, DeviceIndex};

const WORDS: Words = Words { flag: |remedy| format!("{remedy:?}"), autopsy: |view| vec![view.position.to_string()] };

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

fn open(path: &Path) -> Whole {
    Whole::read(path, None, |_| {}).unwrap()
}

fn exported(whole: &Whole, format: Format, at: ExportMoment) -> Vec<u8> {
    let end = at.position(whole).unwrap();
    let mut out = Vec::new();
    export::write(whole, format, end, &WORDS, &mut out, &mut |_, _| {}).unwrap();
    out
}

/// A recording of events.
fn recorded(events: &[Event]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
    let mut frames = FrameBuilder::new(0);
    for (index, event) in events.iter().enumerate() {
        frames.push(event);
        if index % 1000 == 999 || index + 1 == events.len() {
            writer.write(&frames.finish().unwrap()).unwrap();
        }
    }
    (folder, path)
}

/// The state of memory after `end` events.
fn memory(whole: &Whole, end: u64, device: DeviceIndex) -> MemoryModel {
    let mut ranks = Ranks::default();
    let each = |_, event: &Event| {
        ranks.apply(event);
        Ok::<_, RecordingError>(())
    };
    whole.each(0..end, each).unwrap();
    ranks.lab(device).unwrap().memory().clone()
}

#[test]
fn statistics_of_a_history_are_those_that_pytorch_told() {
    let mut compared = 0;
    for entry in std::fs::read_dir(traces()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".pickle.xz") {
            continue;
        }
        let snapshot = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
        let Some(Statistics(recorded)) = &conditions.statistics else { panic!("{name}") };
        // Some things leave no entry in a history: silent calls, resets of peaks, and retries that look like calls.
        let report = verify(&snapshot, &conditions).devices.remove(0);
        let whole = open(&path);
        let stats = export::stats(&whole, whole.end(), None, &mut |_, _| {}).unwrap().unwrap();
        for (key, ours) in stats.stats.entries() {
            let theirs = recorded[&key];
            let calls = report.ambiguous_retries.spots - report.ambiguous_retries.read_as_retries;
            let unknown = match key.as_str() {
                "num_alloc_retries" => i64::try_from(calls).unwrap(),
                "num_sync_all_streams" => i64::try_from(calls + report.silent_empty_cache).unwrap(),
                key if report.peak_reset.is_some() && key.ends_with(".peak") => i64::MAX,
                _ => 0,
            };
            assert!((ours - theirs).abs() <= unknown, "{name}: {key} is {ours}, PyTorch's {theirs}");
            compared += u32::from(unknown == 0);
        }
    }
    assert!(compared > 30 * 118, "{compared}");
}

/// Places, sizes and states of blocks, and names of those in use.
type Blocks = BTreeMap<u64, (u64, BlockState, String)>;

fn blocks_of(snapshot: &Snapshot, device: u32) -> Blocks {
    let mut names = BTreeMap::new();
    for entry in snapshot.device_trace(device as usize) {
        if entry.action == Action::Alloc {
            names.insert(entry.address.0, snapshot.caller(entry.stack, entry.metadata).unwrap_or_default());
        }
    }
    let blocks = snapshot.segments.iter().filter(|segment| segment.device == device).flat_map(|s| s.blocks.iter());
    blocks
        .map(|block| {
            let held = block.state != BlockState::Inactive;
            let name = if held { names[&block.address.0].clone() } else { String::new() };
            (block.address.0, (block.size.0, block.state, name))
        })
        .collect()
}

#[test]
fn a_snapshot_of_a_recording_holds_the_models_blocks_and_names() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    for at in [ExportMoment::Now, ExportMoment::Peak, ExportMoment::Step(2), ExportMoment::Event(1234)] {
        let end = at.position(&whole).unwrap();
        let snapshot = Snapshot::read(&exported(&whole, Format::Pytorch, at)[..]).unwrap();
        let model = memory(&whole, end, DeviceIndex::FIRST);
        let blocks = blocks_of(&snapshot, 0);
        let mut held = 0;
        for (ours, theirs) in model.segments().zip(&snapshot.segments) {
            assert_eq!((ours.address(), ours.size(), ours.stream(), ours.pool()), {
                (theirs.address, theirs.total_size, theirs.stream, theirs.pool)
            });
            for block in ours.blocks() {
                let (size, state, name) = &blocks[&ours.address().offset(block.offset).0];
                assert_eq!((*size, *state == BlockState::ActivePendingFree), (block.size.0, block.pending));
                assert!(name.contains('(') || name.is_empty(), "{name}");
                held += 1;
            }
            let covered: Bytes = theirs.blocks.iter().map(|block| block.size).sum();
            assert_eq!(covered, theirs.total_size, "blocks cover a segment");
        }
        assert_eq!(model.segments().count(), snapshot.segments.len());
        assert_eq!(blocks.values().filter(|(_, state, _)| *state != BlockState::Inactive).count(), held);
    }
}

#[test]
fn the_trace_of_a_recording_has_its_events_in_order() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    let snapshot = Snapshot::read(&exported(&whole, Format::Pytorch, ExportMoment::Now)[..]).unwrap();
    let mut names = BTreeMap::new();
    let mut entries = snapshot.device_trace(0).iter();
    let each = |_, event: &Event| {
        let (action, address, size) = match event.kind {
            EventKind::Alloc { address, requested, name, category, .. } => {
                let entry = entries.clone().next().unwrap();
                let text: &str = names.get(&name).map_or("", |text: &String| text);
                assert_eq!(
                    snapshot.caller(entry.stack, entry.metadata).unwrap(),
                    format!("{text} ({})", category.label())
                );
                (Action::Alloc, address, Some(requested))
            }
            EventKind::FreeRequested { address } => (Action::FreeRequested, address, None),
            EventKind::FreeCompleted { address } => (Action::FreeCompleted, address, None),
            EventKind::SegmentAlloc { address, size, .. } => (Action::SegmentAlloc, address, Some(size)),
            EventKind::SegmentFree { address, size } => (Action::SegmentFree, address, Some(size)),
            EventKind::Oom(ref request) => (Action::Oom, Address(request.device_free.0), Some(request.rounded)),
            EventKind::Define { id, ref text } => {
                names.insert(id, text.to_string());
                return Ok(());
            }
            _ => return Ok::<_, RecordingError>(()),
        };
        let entry = entries.next().unwrap();
        assert_eq!((entry.action, entry.address, entry.time), (action, address, event.time));
        assert!(size.is_none_or(|size| size == entry.size));
        Ok(())
    };
    whole.each(0..whole.end(), each).unwrap();
    assert!(entries.next().is_none() && snapshot.device_trace(0).len() > 1000);
    let steps = snapshot.annotations.iter().filter(|one| snapshot.texts.get(one.name).starts_with("step "));
    assert!(steps.filter(|one| one.start).count() > 2);
}

#[test]
fn every_rank_has_its_own_history() {
    let on = |event: &Event, device| Event { device: DeviceIndex(device), ..event.clone() };
    let events: Vec<Event> =
        crate::synthetic::training_run().iter().flat_map(|event| [on(event, 0), on(event, 1)]).collect();
    let (_folder, path) = recorded(&events);
    let whole = open(&path);
    let snapshot = Snapshot::read(&exported(&whole, Format::Pytorch, ExportMoment::Now)[..]).unwrap();
    assert_eq!(snapshot.device_count(), 2);
    assert_eq!(blocks_of(&snapshot, 0), blocks_of(&snapshot, 1));
    let entries = |device| snapshot.device_trace(device).iter().map(|entry| (entry.action, entry.address, entry.size));
    assert!(entries(0).eq(entries(1)) && entries(0).count() > 1000);
    let stats = |device| export::stats(&whole, whole.end(), Some(device), &mut |_, _| {}).unwrap().unwrap().stats;
    assert_eq!(stats(0), stats(1));
    let table = String::from_utf8(exported(&whole, Format::Csv, ExportMoment::Now)).unwrap();
    assert_eq!(table.lines().count() as u64, whole.end() + 1);
}

#[test]
fn an_exported_history_replays_as_the_one_that_it_was_made_of() {
    for name in ["gpt-frames", "two-streams", "torture.c", "oom-and-recover", "churn-expandable", "mlp-mini.bf16ckpt"] {
        let path = traces().join(format!("{name}.pickle.xz"));
        let before = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find(&path, &before, &Overrides::default()).unwrap();
        let whole = open(&path);
        let after = Snapshot::read(&exported(&whole, Format::Pytorch, ExportMoment::Now)[..]).unwrap();
        let (one, other) = (verify(&before, &conditions), verify(&after, &conditions));
        assert!(other.is_match(), "{name}: {other:?}");
        assert_eq!(
            (one.segments, one.placements, one.stats),
            (other.segments, other.placements, other.stats),
            "{name}"
        );
        assert_eq!((one.blocks, one.pending), (other.blocks, other.pending), "{name}");
        assert_eq!(before.allocator_settings.conf, after.allocator_settings.conf);
        let allocs = |snapshot: &Snapshot| -> Vec<Option<String>> {
            let entries = snapshot.device_trace(0).iter().filter(|entry| entry.action == Action::Alloc);
            entries.map(|entry| snapshot.caller(entry.stack, entry.metadata)).collect()
        };
        assert_eq!(allocs(&before), allocs(&after), "{name}");
    }
}

/// What existed when recording began is no entry of a history, and private pools keep their segments.
#[test]
fn an_exported_history_that_began_late_says_so_again() {
    for name in [
        "compiled-gpt",
        "cuda-graphs",
        "hf-trainer-llama",
        "leak-outputs",
        "lightning-resnet-expandable",
        "oom-observer",
        "timm-convnext-ring",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/strangers/{name}.pickle.xz"));
        let before = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find(Path::new("alone"), &before, &Overrides::default()).unwrap();
        let whole = open(&path);
        let after = Snapshot::read(&exported(&whole, Format::Pytorch, ExportMoment::Now)[..]).unwrap();
        let (one, other) = (verify(&before, &conditions), verify(&after, &conditions));
        assert_eq!(
            (one.segments, one.placements, one.blocks, one.pending),
            (other.segments, other.placements, other.blocks, other.pending),
            "{name}: {other:?}"
        );
        let settings = &conditions.settings;
        let [one, other] = [&before, &after].map(|snapshot| Beginning::of(snapshot, 0, settings));
        assert_eq!(one.space.blocks().count(), other.space.blocks().count(), "{name}");
        let named =
            |beginning: &Beginning| beginning.space.blocks().filter(|(_, held)| held.stack != StackId::EMPTY).count();
        assert_eq!(named(&one), named(&other), "{name}: nobody recorded who took the rest");
    }
}

#[test]
fn a_table_has_a_row_for_every_event_and_the_ledgers_figures() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    let text = String::from_utf8(exported(&whole, Format::Csv, ExportMoment::Now)).unwrap();
    let mut rows = text.lines();
    let header: Vec<&str> = rows.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let mut model = MemoryModel::new();
    let each = |index: u64, event: &Event| {
        let row: Vec<&str> = rows.next().unwrap().split(',').collect();
        assert_eq!(row.len(), header.len(), "{row:?}");
        model.apply(event).unwrap();
        assert_eq!(row[column("position")], index.to_string());
        assert_eq!(row[column("time_us")], event.time.0.to_string());
        assert_eq!(row[column("allocated_bytes")], model.allocated().0.to_string());
        assert_eq!(row[column("reserved_bytes")], model.reserved().0.to_string());
        if let EventKind::Alloc { address, size, requested, category, .. } = event.kind {
            assert_eq!(row[column("kind")], "alloc");
            assert_eq!(row[column("address")], address.to_string());
            assert_eq!(row[column("size_bytes")], size.0.to_string());
            assert_eq!(row[column("requested_bytes")], requested.0.to_string());
            assert_eq!(row[column("category")], category.label());
            assert!(!row[column("name")].is_empty() && !row[column("pool")].is_empty());
        }
        Ok::<_, RecordingError>(())
    };
    whole.each(0..whole.end(), each).unwrap();
    assert!(rows.next().is_none());
}

#[test]
fn the_state_as_json_is_the_models() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    for at in [ExportMoment::Now, ExportMoment::Peak] {
        let end = at.position(&whole).unwrap();
        let value: Value = serde_json::from_slice(&exported(&whole, Format::Json, at)).unwrap();
        assert_eq!((value["position"].as_u64(), value["events"].as_u64()), (Some(end), Some(whole.end())));
        let device = &value["devices"][0];
        let model = memory(&whole, end, DeviceIndex::FIRST);
        let ledger = model.ledger();
        for (key, bytes) in [
            ("live", ledger.live),
            ("rounding", ledger.rounding),
            ("pending", ledger.pending),
            ("releasable", ledger.releasable),
            ("stranded", ledger.stranded),
            ("allocated", ledger.allocated()),
            ("reserved", ledger.reserved()),
        ] {
            assert_eq!(device["ledger"][key].as_u64(), Some(bytes.0), "{key}");
        }
        assert_eq!(device["stats"]["allocated_bytes.all.current"].as_u64(), Some(ledger.allocated().0));
        assert_eq!(device["stats"]["reserved_bytes.all.current"].as_u64(), Some(ledger.reserved().0));
        assert_eq!(device["stats"].as_object().unwrap().len(), 122);
        let segments = device["segments"].as_array().unwrap();
        let sum = |state: &str| -> u64 {
            let blocks = segments.iter().flat_map(|segment| segment["blocks"].as_array().unwrap());
            blocks.filter(|block| block["state"] == state).map(|block| block["size"].as_u64().unwrap()).sum()
        };
        assert_eq!(sum("active_allocated"), ledger.allocated().0);
        assert_eq!(sum("inactive"), ledger.free().0);
        if at == ExportMoment::Peak {
            assert_eq!(device["ledger"]["allocated"], device["peak_allocated"]);
            assert_eq!(device["peak_position"].as_u64(), Some(end));
        }
        for key in ["findings", "history", "effects", "marks"] {
            assert!(device[key].is_array(), "{key}");
        }
    }
}

/// The fields of a message: numbers, and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Result<u64, &[u8]>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        fields.push((
            key >> 3,
            match key & 7 {
                0 => Ok(value),
                2 => {
                    let (inner, rest) = bytes.split_at(usize::try_from(value).unwrap());
                    bytes = rest;
                    Err(inner)
                }
                other => panic!("wire type {other}"),
            },
        ));
    }
    fields
}

fn number(fields: &[(u64, Result<u64, &[u8]>)], field: u64) -> Option<u64> {
    fields.iter().find(|(number, _)| *number == field).and_then(|(_, value)| value.ok())
}

fn bytes<'a>(fields: &[(u64, Result<u64, &'a [u8]>)], field: u64) -> Option<&'a [u8]> {
    fields.iter().find(|(number, _)| *number == field).and_then(|(_, value)| value.err())
}

#[test]
fn a_perfetto_trace_counts_what_the_model_counts() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    let trace = exported(&whole, Format::Perfetto, ExportMoment::Now);
    let (mut tracks, mut names) = (BTreeMap::new(), BTreeMap::new());
    let (mut counters, mut depths): (BTreeMap<String, Vec<u64>>, BTreeMap<u64, i64>) = Default::default();
    let mut slices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last = 0;
    for (_, packet) in fields(&trace) {
        let packet = fields(packet.unwrap_err());
        if let Some(descriptor) = bytes(&packet, 60) {
            let descriptor = fields(descriptor);
            let name = bytes(&descriptor, 2).map_or(String::new(), |name| String::from_utf8(name.to_vec()).unwrap());
            tracks.insert(number(&descriptor, 1).unwrap(), name);
        }
        if let Some(interned) = bytes(&packet, 12) {
            let name = fields(bytes(&fields(interned), 2).unwrap());
            names.insert(number(&name, 1).unwrap(), String::from_utf8(bytes(&name, 2).unwrap().to_vec()).unwrap());
        }
        let Some(event) = bytes(&packet, 11) else { continue };
        let (event, time) = (fields(event), number(&packet, 8).unwrap());
        assert!(time >= last, "time goes back");
        last = time;
        let track = number(&event, 11).unwrap();
        let name = || names[&number(&event, 10).unwrap()].clone();
        match number(&event, 9).unwrap() {
            1 => {
                *depths.entry(track).or_default() += 1;
                slices.entry(tracks[&track].clone()).or_default().push(name());
            }
            2 => *depths.get_mut(&track).unwrap() -= 1,
            3 => slices.entry(tracks[&track].clone()).or_default().push(name()),
            4 => counters.entry(tracks[&track].clone()).or_default().push(number(&event, 30).unwrap()),
            other => panic!("type {other}"),
        }
        assert!(depths.values().all(|depth| (0..=1).contains(depth)));
    }
    assert!(depths.values().all(|depth| *depth == 0), "what begins ends");
    let model = memory(&whole, whole.end(), DeviceIndex::FIRST);
    assert_eq!(counters["allocated"].last(), Some(&model.allocated().0));
    assert_eq!(counters["allocated"].iter().max(), Some(&model.peak_allocated().0));
    assert_eq!(counters["reserved"].iter().max(), Some(&model.peak_reserved().0));
    assert!(counters.contains_key("active"));
    assert!(slices["steps"].contains(&"step 1".to_owned()) && slices["phases"].contains(&"forward".to_owned()));
    assert!(slices["events"].contains(&"segment_alloc".to_owned()), "{:?}", slices["events"]);
}

#[test]
fn moments_are_where_they_should_be() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let whole = open(&path);
    assert_eq!(ExportMoment::Now.position(&whole).unwrap(), whole.end());
    let peak = ExportMoment::Peak.position(&whole).unwrap();
    let last = memory(&whole, whole.end(), DeviceIndex::FIRST);
    assert_eq!(memory(&whole, peak, DeviceIndex::FIRST).allocated(), last.peak_allocated());
    assert!(memory(&whole, peak - 1, DeviceIndex::FIRST).allocated() < last.peak_allocated());
    let missing = ExportMoment::Step(1 << 40).position(&whole).unwrap_err().to_string();
    assert!(missing.contains("it has 0 to"), "{missing}");
    assert!(ExportMoment::Event(whole.end() + 1).position(&whole).is_err());
}

fn vramlab(folder: &Path, arguments: &[&str], input: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(arguments).current_dir(folder);
    command.env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF").env("CUDA_VISIBLE_DEVICES", "");
    command.stdin(input.map_or_else(Stdio::null, |path| std::fs::File::open(path).unwrap().into()));
    command.output().unwrap()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = vramlab(folder, arguments, None);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_run_that_is_exported_replays_to_the_last_statistic() {
    let folder = tempfile::tempdir().unwrap();
    let runs: [(&str, &[&str]); 3] = [
        ("plain", &["gpt-mini", "--data", "fresh"]),
        ("expandable", &["vit-mini", "--data", "fresh", "--alloc-conf", "expandable_segments:True"]),
        // A request that finds no room gives back the cache, five times.
        ("limited", &["churn", "--data", "fresh", "--limit", "880MiB"]),
    ];
    for (name, arguments) in runs {
        let recording = format!("{name}.vram");
        let run = ["run", "--device", "sim:h200", "--steps", "4", "--record", &recording, "--summary"];
        let table = done(folder.path(), &[&run[..1], arguments, &run[1..]].concat());
        let summary = done(folder.path(), &["summary", &recording]);
        assert!(table.ends_with(&summary), "{name}: the run says {table}, its recording {summary}");
        done(folder.path(), &["export", &recording, "--to", "pytorch", "--out", &format!("{name}.pickle")]);
        let stats = done(folder.path(), &["summary", &recording, "--json"]);
        std::fs::write(folder.path().join(format!("{name}.stats.json")), stats).unwrap();
        let replayed = done(folder.path(), &["replay", &format!("{name}.pickle"), "--json"]);
        let report: Value = serde_json::from_str(&replayed).unwrap();
        assert_eq!(report["first_mismatch"], Value::Null, "{name}");
        assert_eq!((report["stats"]["matched"].as_u64(), report["stats"]["total"].as_u64()), (Some(122), Some(122)));
        assert!(name != "limited" || summary.contains("cudaMalloc retries: 5"), "{summary}");
        assert!(report["placements"]["total"].as_u64().unwrap() > 100, "{name}");
    }
}

#[test]
fn what_modules_kept_is_exported_as_the_run_told_it() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        ["run", "gpt-mini", "--device", "sim:h200", "--steps", "2", "--modules", "--json", "--record", "run.vram"];
    let told: Value = serde_json::from_str(&done(folder.path(), &run)).unwrap();
    let exported: Value = serde_json::from_str(&done(folder.path(), &["export", "run.vram", "--to", "json"])).unwrap();
    let modules = exported["devices"][0]["modules"].as_array().unwrap();
    assert_eq!(modules, told["modules"].as_array().unwrap());
    assert!(modules.iter().any(|module| module["kept"].as_u64() > Some(0)), "{modules:?}");
    // The first step also took a workspace, which its first product kept.
    let first = ["export", "run.vram", "--to", "json", "--at", "step:1"];
    let first: Value = serde_json::from_str(&done(folder.path(), &first)).unwrap();
    let first = first["devices"][0]["modules"].as_array().unwrap();
    let more = |(first, last): (&Value, &Value)| first["kept"].as_u64() >= last["kept"].as_u64();
    assert!(first.len() == modules.len() && first.iter().zip(modules).all(more), "{first:?}");
}

#[test]
fn a_request_that_failed_is_exported_where_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", "gpt2", "--device", "sim:t4", "--steps", "2", "--record", "o.vram"];
    assert_eq!(vramlab(folder.path(), &run, None).status.code(), Some(1));
    let state: Value =
        serde_json::from_str(&done(folder.path(), &["export", "o.vram", "--to", "json", "--at", "oom"])).unwrap();
    let oom = &state["devices"][0]["oom"];
    assert!(oom["request"]["requested"].as_u64().unwrap() > 1 << 20 && oom["tried"] == true, "{oom}");
    assert!(!oom["remedied"].as_array().unwrap().is_empty() && !oom["words"].as_array().unwrap().is_empty());
    assert_eq!(state["devices"][0]["stats"]["num_ooms"], 1);
    // After it the step was given up: its memory is freed.
    let later: Value = serde_json::from_str(&done(folder.path(), &["export", "o.vram", "--to", "json"])).unwrap();
    let allocated = |state: &Value| state["devices"][0]["ledger"]["allocated"].as_u64().unwrap();
    assert!(allocated(&later) < allocated(&state) / 2);
}

#[test]
fn what_is_wrong_is_told_before_anything_is_written() {
    let (folder, path) = recorded(&crate::synthetic::training_run());
    let folder = folder.path();
    std::fs::write(folder.join("mine.csv"), "mine").unwrap();
    std::fs::write(folder.join("none.vram"), "a text").unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["export", "run.vram"], 2, "--to"),
        (&["export", "run.vram", "--to", "xml"], 2, "perfetto"),
        (&["export", "run.vram", "--to", "csv", "--out", "mine.csv"], 2, "is there already"),
        (&["export", "run.vram", "--to", "csv", "--out", "no/such.csv"], 1, "can't be written"),
        (&["export", "run.vram", "--to", "csv", "--at", "later"], 2, "step:N"),
        (&["export", "run.vram", "--to", "csv", "--at", "step:99999"], 2, "step 99999 is not in it"),
        (&["export", "none.vram", "--to", "csv"], 1, "neither a recording of vramlab nor a PyTorch snapshot"),
        (&["export", "gone.vram", "--to", "csv"], 1, "gone.vram can't be read"),
        (&["summary", "run.vram", "--rank", "7"], 2, "nothing happened on device 7"),
    ];
    for (arguments, code, words) in cases {
        let output = vramlab(folder, arguments, None);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?} says: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?} prints");
    }
    assert_eq!(std::fs::read_to_string(folder.join("mine.csv")).unwrap(), "mine");
    done(folder, &["export", "run.vram", "--to", "csv", "--out", "mine.csv", "--force"]);
    let replaced = std::fs::read_to_string(folder.join("mine.csv")).unwrap();
    let piped = vramlab(folder, &["export", "-", "--to", "csv"], Some(&path));
    assert_eq!(replaced.as_bytes(), piped.stdout, "through a pipe it is the same");
    assert!(!done(folder, &["export", "run.vram", "--to", "csv", "--at", "step:3"]).contains(",3,forward,"));
}

#[test]
fn what_is_cut_off_is_exported_up_to_there_and_told() {
    let (folder, path) = recorded(&crate::synthetic::training_run());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(folder.path().join("cut.vram"), &bytes[..bytes.len() - 10]).unwrap();
    let output = vramlab(folder.path(), &["export", "cut.vram", "--to", "csv"], None);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("was cut off"));
    let whole = done(folder.path(), &["export", "run.vram", "--to", "csv"]);
    assert!(whole.as_bytes().starts_with(&output.stdout) && output.stdout.len() > 10_000);
}

#[test]
fn no_escape_sequence_of_a_recording_reaches_the_terminal() {
    let mut source = crate::synthetic::Source::new(None);
    source.alloc(vramlab::model::Category::Parameter, "\u{1b}]0;owned\u{7}, \"x\"", 1000).unwrap();
    source.emit(EventKind::Note { text: "\u{9b}2J".into() });
    let (folder, _) = recorded(&source.events);
    for format in ["csv", "json"] {
        let text = done(folder.path(), &["export", "run.vram", "--to", format]);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains(r"\u001b]0;owned"), "{text}");
    }
    let table = done(folder.path(), &["export", "run.vram", "--to", "csv"]);
    assert!(table.contains(r#""\u001b]0;owned\u0007, ""x""""#), "{table}");
    let state: Value = serde_json::from_str(&done(folder.path(), &["export", "run.vram", "--to", "json"])).unwrap();
    let name = &state["devices"][0]["segments"][0]["blocks"][0]["name"];
    assert_eq!(name, "\u{1b}]0;owned\u{7}, \"x\"", "it means the same in JSON");
}

/// The output of `vramlab export` with these arguments.
fn export_command(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.arg("export").arg(path).args(arguments).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    command.output().unwrap()
}

fn text_of(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_film_that_is_played_to_its_end_shows_the_last_screen() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    // The Blocks screen is left out: its legend keeps its names from before, as it should in a film.
    for screen in ["lab", "step", "ops", "compare", "ledger"] {
        let common = ["--size", "100x30", "--screen", screen];
        let film = text_of(export_command(&path, &[&common[..], &["--to", "cast", "--fps", "20"]].concat()));
        let mut lines = film.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let head = lines.next().unwrap();
        assert_eq!((&head["version"], &head["width"], &head["height"]), (&2.into(), &100.into(), &30.into()));
        let mut terminal = vt100::Parser::new(30, 100, 0);
        let (mut before, mut frames) = (0.0, 0);
        for line in lines {
            let (at, bytes) = (line[0].as_f64().unwrap(), line[2].as_str().unwrap());
            assert!(at >= before && line[1] == "o", "{screen}: {line}");
            terminal.process(bytes.as_bytes());
            (before, frames) = (at, frames + 1);
        }
        assert!(frames > 3, "{screen}: {frames} frames");
        // A wide area is erased in its colour.
        let told = |row: &str| row.replace('█', " ").trim_end().to_owned();
        let seen: Vec<String> = terminal.screen().rows(0, 100).map(|row| told(&row)).collect();
        let shown = text_of(export_command(&path, &[&common[..], &["--to", "text"]].concat()));
        assert_eq!(seen, shown.lines().map(told).collect::<Vec<_>>(), "{screen}");
        assert!(!shown.contains("reading the events"), "what is studied is waited for:\n{shown}");
    }
}

#[test]
fn a_screen_is_drawn_of_the_moment_that_is_asked_for() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    let text = |at: &str| text_of(export_command(&path, &["--to", "text", "--size", "80x24", "--at", at]));
    let (early, late) = (text("step:3"), text("now"));
    assert!(early.lines().count() == 24 && early.lines().all(|line| line.chars().count() <= 80), "{early}");
    assert_ne!(early, late);
    let drawing = text_of(export_command(&path, &["--to", "svg", "--theme", "light", "--screen", "ledger"]));
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    let ascii = text_of(export_command(&path, &["--to", "text", "--glyphs", "ascii"]));
    assert!(ascii.is_ascii());
}

#[test]
fn flags_of_screens_say_nothing_about_other_formats() {
    let (_folder, path) = recorded(&crate::synthetic::training_run());
    for (arguments, said) in [
        (["--to", "csv", "--size", "80x24"], "--size does not apply to this format; give --to svg, text or cast"),
        (["--to", "svg", "--fps", "5"], "--fps does not apply to this format; give --to cast"),
        (["--to", "svg", "--theme", "none"], "none"),
        (["--to", "svg", "--size", "1x1"], "such as 120x40"),
    ] {
        let output = export_command(&path, &arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(said), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
    }
}
