//! The project's pictures: screens of one simulated run, drawn by the exporter. A stale one fails.
//!
//! `VRAMLAB_UPDATE=1 cargo test --test screens pictures` draws them all into `.github/pictures`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use vramlab::device::sim::CardCatalog;
use vramlab::model::{Event, EventKind};
use vramlab::session::{DeviceChoice, Headless, LabSpec, Switch};
use vramlab::source::Recorder;
use vramlab::units::Address;
use vramlab::workload::{Catalog, Data};

/// A picture: its name, the screen, and the moment.
struct Shot {
    name: &'static str,
    screen: &'static str,
    at: Moment,
}

#[derive(Clone, Copy)]
enum Moment {
    /// Where most is allocated in the last complete step.
    Fullest,
    /// Where a request fails.
    OutOfMemory,
}

const SHOTS: [Shot; 8] = [
    Shot { name: "lab", screen: "lab", at: Moment::Fullest },
    Shot { name: "blocks", screen: "blocks", at: Moment::Fullest },
    Shot { name: "step", screen: "step", at: Moment::Fullest },
    Shot { name: "ops", screen: "ops", at: Moment::Fullest },
    Shot { name: "compare", screen: "compare", at: Moment::Fullest },
    Shot { name: "ledger", screen: "ledger", at: Moment::Fullest },
    Shot { name: "stacks", screen: "stacks", at: Moment::Fullest },
    Shot { name: "out-of-memory", screen: "lab", at: Moment::OutOfMemory },
];

/// Where most is allocated in the last complete step, and where the first request fails.
#[derive(Default)]
struct Places {
    sizes: HashMap<Address, u64>,
    allocated: u64,
    position: u64,
    /// The most of the current step so far, and where.
    most: (u64, u64),
    fullest: u64,
    failed: Option<u64>,
}

impl Places {
    fn hear(&mut self, event: &Event) {
        self.position += 1;
        match &event.kind {
            EventKind::StepBegin { .. } => self.most = (0, self.position),
            EventKind::StepEnd(_) => self.fullest = self.most.1,
            EventKind::Alloc { address, size, .. } => {
                self.sizes.insert(*address, size.get());
                self.allocated += size.get();
                self.most = self.most.max((self.allocated, self.position));
            }
            EventKind::FreeRequested { address } => self.allocated -= self.sizes.remove(address).unwrap(),
            EventKind::Oom(_) if self.failed.is_none() => self.failed = Some(self.position),
            _ => {}
        }
    }
}

/// What is done in a run.
type Course = fn(&mut Headless);

fn train(run: &mut Headless, steps: usize) {
    for _ in 0..steps {
        run.step().unwrap();
    }
}

fn set(run: &mut Headless, switch: &str, value: &str) {
    run.set(Switch::named(switch).unwrap(), value).unwrap();
}

/// Trains as it is, then flips switches one after the other.
fn flips(run: &mut Headless) {
    train(run, 16);
    set(run, "amp", "bf16");
    train(run, 14);
    set(run, "attention", "math");
    train(run, 14);
    set(run, "attention", "auto");
    set(run, "ckpt", "on");
    train(run, 14);
    run.empty_cache();
    train(run, 2);
    set(run, "ckpt", "off");
    train(run, 14);
}

/// A few steps, and then a limit that is too small.
fn runs_out(run: &mut Headless) {
    train(run, 12);
    set(run, "limit", "16GiB");
    run.empty_cache();
    assert!(run.step().is_err(), "that is too much for the limit");
    run.try_remedies();
}

/// Records GPT-2 on a simulated H200. Nothing in it is random: the clock is the card's, and the data are fixed.
fn record(path: &Path, course: Course) -> Places {
    let entry = Catalog::with_user_workloads(None).entry("gpt2").unwrap();
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let device = DeviceChoice::Sim(Box::new(card));
    let mut spec = LabSpec { device, data: Data::Reference, ..LabSpec::new(entry) };
    spec.config.data = spec.data.path();
    let heard = Rc::new(RefCell::new((Recorder::create(path).unwrap(), Places::default())));
    let listener = Rc::clone(&heard);
    let hear = move |event: &Event| {
        let (recorder, places) = &mut *listener.borrow_mut();
        recorder.push(event);
        places.hear(event);
    };
    let mut run = Headless::start_before(spec, Some(Box::new(hear))).unwrap();
    course(&mut run);
    drop(run);
    let (recorder, places) = Rc::try_unwrap(heard).ok().unwrap().into_inner();
    recorder.finish().unwrap();
    places
}

#[test]
fn pictures_show_what_the_screens_show() {
    let folder = tempfile::tempdir().unwrap();
    let [flipped, failed] = ["flips.vram", "runs-out.vram"].map(|name| folder.path().join(name));
    let (fullest, oom) = (record(&flipped, flips).fullest, record(&failed, runs_out).failed.unwrap());
    let mut stale = Vec::new();
    for Shot { name, screen, at } in SHOTS {
        let (recording, position) = match at {
            Moment::Fullest => (&flipped, fullest),
            Moment::OutOfMemory => (&failed, oom),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.env("XDG_CONFIG_HOME", folder.path()).arg("export").arg(recording);
        command.args(["--to", "svg", "--size", "120x40", "--screen", screen, "--at", &format!("event:{position}")]);
        let output = command.args(["--out", "-"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let drawn = String::from_utf8(output.stdout).unwrap();
        let simulated = drawn.contains("simulated") || drawn.contains("sim:h200");
        assert!(drawn.starts_with("<svg ") && simulated, "{name} says whose figures they are");
        let path = crate::made::file(&format!(".github/pictures/{name}.svg"));
        if crate::made::renews() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &drawn).unwrap();
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&drawn) {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "stale pictures: {stale:?}; VRAMLAB_UPDATE=1 cargo test --test screens pictures draws them anew"
    );
}
