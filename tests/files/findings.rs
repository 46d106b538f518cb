//! What is reported about a run: the effect of a flip, leaks, and remedies, which are compared with what happens when
//! they are applied.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use vramlab::device::sim::CardCatalog;
use vramlab::model::{Effect, Event, Evidence, Figure, Finding, News};
use vramlab::session::{DeviceChoice, Headless, LabSpec, Switch};
use vramlab::source::{self, Picture, Recorder, Source};
use vramlab::train::Retain;
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::whatif::{Places, RecordedRun, RecordedWriter};
use vramlab::workload::Catalog;

use crate::patience;

fn spec(workload: &str, card: &str) -> LabSpec {
    let entry = Catalog::with_user_workloads(None).entry(workload).unwrap();
    let card = CardCatalog::with_user_cards(None).card(card).unwrap();
    LabSpec { device: DeviceChoice::Sim(Box::new(card)), ..LabSpec::new(entry) }
}

/// A run, and everything that happened in it.
struct Heard {
    run: Headless,
    events: Rc<RefCell<Vec<Event>>>,
}

impl Heard {
    fn start(spec: LabSpec) -> Option<Self> {
        let events = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&events);
        let listener = Box::new(move |event: &Event| heard.borrow_mut().push(event.clone()));
        Some(Self { run: Headless::start_before(spec, Some(listener)).ok()?, events })
    }

    /// Returns false if memory ran out.
    fn steps(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.run.step().is_ok())
    }

    fn set(&mut self, word: &str, value: &str) -> bool {
        self.run.set(Switch::named(word).unwrap(), value).is_ok()
    }

    /// The highest reserved memory of the last step.
    fn reserved(&mut self) -> Bytes {
        self.run.view().history.latest().unwrap().reserved
    }

    fn recorded(&self) -> RecordedRun {
        let mut writer = RecordedWriter::new(DeviceIndex::FIRST, Places::default());
        self.events.borrow().iter().for_each(|event| writer.push(event));
        writer.finish(None, None).unwrap()
    }
}

/// The figure with the largest relative change, as text; `None` if nothing changed beyond noise.
fn moved_most(effect: &Effect) -> Option<String> {
    let (before, after) = (effect.before.as_ref()?, effect.after.as_ref()?);
    let share = |a: &Figure, b: &Figure, least: f64| {
        let by = (b.median - a.median).abs() / a.median.max(1.0);
        if a.differs(b) && by >= least { by } else { 0.0 }
    };
    let bytes = |figure: &Figure| figure.bytes().to_string();
    let time = before.step.zip(after.step);
    let all = [
        (share(&before.peak_allocated, &after.peak_allocated, 0.005), bytes(&after.peak_allocated)),
        (share(&before.peak_reserved, &after.peak_reserved, 0.005), bytes(&after.peak_reserved)),
        time.map_or((0.0, String::new()), |(a, b)| (share(&a, &b, 0.02), format!("→ {:.1} ms", b.median / 1000.0))),
    ];
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(by, _)| *by > 0.0).map(|(_, text)| text)
}

#[test]
fn after_every_flip_why_says_what_moved_most_and_what_e_returns() {
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for switch in Switch::all() {
        for value in switch.values().iter().filter(|value| !value.is_empty()) {
            let mut heard = Heard::start(spec("gpt-mini", "h200")).unwrap();
            assert!(heard.steps(14));
            let name = format!("{} {value}", switch.word());
            if *switch.value(heard.run.setup()) == **value || !heard.set(switch.word(), value) || !heard.steps(14) {
                continue;
            }
            let view = heard.run.view();
            let effect = view.effects.last().unwrap_or_else(|| panic!("{name}: no effect"));
            let news = News::of(effect).unwrap_or_else(|| panic!("{name}: no news"));
            let text = news.to_string();
            match moved_most(effect) {
                Some(figure) => assert!(text.contains(&figure), "{name}: {figure} is not in \"{text}\""),
                None if effect.to.unwrap().rise.0 > Bytes::ZERO => assert!(text.contains("leaves"), "{name}: {text}"),
                None => assert!(text.contains("no change beyond noise") || text.contains("stays"), "{name}: {text}"),
            }
            if news.spare > Bytes::ZERO {
                let before = heard.reserved();
                heard.run.empty_cache();
                assert!(heard.steps(3));
                let (after, most) = (heard.reserved(), before - news.spare);
                assert!(after.get() * 100 < before.get() * 99, "{name}: {text}; but e led from {before} to {after}");
                let near = Bytes(before.get() / 20);
                assert!(after <= most + near, "{name}: {text}; but e led from {before} to {after}");
            }
            told.insert(name, text);
        }
    }
    assert!(told.len() > 20, "{}", told.len());
    for (flip, words) in [
        ("ckpt on", "activations 811.00 → 228.50 KiB"),
        ("accum 8", "reserved stays"),
        ("retain graph", "each step leaves"),
        ("offload activations", "the step's peak fell"),
        ("tf32 on", "no change beyond noise"),
    ] {
        assert!(told[flip].contains(words), "{flip}: {}", told[flip]);
    }
}

#[test]
fn what_waits_for_an_emptied_cache_is_said_and_gets_no_credit() {
    for (switch, value, words) in [
        ("alloc-conf", "expandable_segments:True", "nothing changed yet, because steps go on in the "),
        (
            "limit",
            "4 MiB",
            " stay reserved, above the limit of 4.00 MiB, which binds when a step asks the driver for more",
        ),
    ] {
        let mut heard = Heard::start(spec("gpt-mini", "h200")).unwrap();
        assert!(heard.steps(14) && heard.set(switch, value) && heard.steps(14));
        let news = News::of(heard.run.view().effects.last().unwrap()).unwrap();
        let text = news.to_string();
        assert!(news.waits && text.contains(words) && !text.contains("a step takes"), "{switch}: {text}");
    }
}

#[test]
fn a_leak_that_ends_leaves_a_cache_that_e_returns() {
    let mut heard = Heard::start(spec("gpt-mini", "h200")).unwrap();
    assert!(heard.steps(6) && heard.set("retain", "graph") && heard.steps(30));
    assert!(heard.set("retain", "off") && heard.steps(14));
    let view = heard.run.view();
    let news = News::of(view.effects.last().unwrap()).unwrap();
    let text = news.to_string();
    assert!(text.contains("steps leave nothing behind any more"), "{text}");
    assert!(text.contains("reserved stays") && news.spare > Bytes::ZERO, "{text}");
    let unused = |finding: &Finding| matches!(finding.evidence, Evidence::Releasable { .. });
    assert!(view.findings.iter().any(unused), "{:?}", view.findings);
    let before = heard.reserved();
    heard.run.empty_cache();
    assert!(heard.steps(2) && heard.reserved() < before - Bytes(news.spare.get() * 9 / 10));
}

#[test]
fn remedies_are_worth_what_was_found_by_trying_them() {
    let mut tried = 0;
    for (workload, card) in
        [("gpt-mini", "h200"), ("resnet-mini", "t4"), ("bert-mini", "h200"), ("varlen-mini", "h200"), ("churn", "h200")]
    {
        let start = || Heard::start(spec(workload, card));
        let Some(mut heard) = start() else { continue };
        if !heard.steps(7) {
            continue;
        }
        let recorded = heard.recorded();
        let text = recorded.facts.conditions.settings.with_expandable_segments().unwrap();
        let forked = recorded.program.forked(&recorded.facts.conditions, 3, Some(&text)).unwrap();
        // The same steps again, with the keys pressed where the trial pressed them.
        let pressed = |conf: Option<&str>, empty: bool| {
            let mut heard = start().unwrap();
            heard.steps(3);
            if let Some(conf) = conf {
                assert!(heard.set("alloc-conf", conf));
            }
            if empty {
                heard.run.empty_cache();
            }
            (0..4).map(|_| (heard.steps(1), heard.reserved()).1).max().unwrap()
        };
        assert_eq!(forked.plain, pressed(None, false), "{workload}");
        assert_eq!(forked.emptied, pressed(None, true), "{workload}: e");
        assert_eq!(forked.changed, Some(pressed(Some(&text), true)), "{workload}: x and e");
        tried += 1;
    }
    assert_eq!(tried, 5);
}

/// Waits until a run has been searched for leaks.
fn diagnosed(mut source: Source, wanted: impl Fn(&Picture) -> bool) -> Arc<Picture> {
    let found = patience::in_time(async {
        let wanted = |picture: &Arc<Picture>| picture.diagnosis.is_some() && wanted(picture);
        source.pictures.wait_for(wanted).await.ok().map(|picture| Arc::clone(&picture))
    });
    found.flatten().unwrap_or_else(|| panic!("not looked at: {:?}", source.pictures.borrow().findings()))
}

/// The bytes that each step leaves, the finding's sentence, and its index among all findings.
fn leak(picture: &Picture) -> (Bytes, String, usize) {
    let findings = picture.findings();
    let found = findings.iter().enumerate().find_map(|(place, finding)| match &finding.evidence {
        Evidence::Leak { rise, lines, .. } if !lines.is_empty() => Some((*rise, finding.to_string(), place)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no leak in {findings:#?}"))
}

#[test]
fn a_leak_is_found_by_its_lines_in_a_lab_its_recording_and_its_snapshot() {
    let mut leaking = spec("gpt-mini", "h200");
    leaking.config.retain = Retain::Graph;
    let mut heard = Heard::start(leaking.clone()).unwrap();
    assert!(heard.steps(20));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut recorder = Recorder::create(&path("run.vram")).unwrap();
    heard.events.borrow().iter().for_each(|event| recorder.push(event));
    recorder.close_frame();
    recorder.finish().unwrap();
    let export = [Path::new("export"), &path("run.vram"), Path::new("--to"), Path::new("pytorch"), Path::new("--out")];
    let out = path("run.pickle");
    let status = Command::new(env!("CARGO_BIN_EXE_vramlab")).args(export).arg(&out).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));

    let has_lines = |picture: &Picture| {
        let lines = |finding: &Finding| matches!(&finding.evidence, Evidence::Leak { lines, .. } if !lines.is_empty());
        picture.findings().iter().any(lines)
    };
    let live = leak(&diagnosed(source::live(leaking).unwrap(), has_lines));
    let open = |name| source::open(&[path(name)], false, None).unwrap_or_else(|(_, error)| panic!("{error}"));
    let (recorded, snapshot) = (diagnosed(open("run.vram"), has_lines), diagnosed(open("run.pickle"), has_lines));
    let (recorded, snapshot) = (leak(&recorded), leak(&snapshot));
    assert_eq!((live.0, live.2), (recorded.0, 0), "{live:?}\n{recorded:?}");
    assert_eq!((snapshot.0, snapshot.2), (recorded.0, 0), "{snapshot:?}\n{recorded:?}");
}

#[test]
fn a_run_that_does_not_leak_is_not_said_to() {
    let mut heard = Heard::start(spec("gpt-mini", "h200")).unwrap();
    assert!(heard.steps(20));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let mut recorder = Recorder::create(&path).unwrap();
    heard.events.borrow().iter().for_each(|event| recorder.push(event));
    recorder.close_frame();
    recorder.finish().unwrap();
    let source = source::open(&[path], false, None).unwrap_or_else(|(_, error)| panic!("{error}"));
    let picture = diagnosed(source, |_| true);
    let findings = picture.findings();
    assert!(!findings.iter().any(|finding| matches!(finding.evidence, Evidence::Leak { .. })), "{findings:#?}");
}
