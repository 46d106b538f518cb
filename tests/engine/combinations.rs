//! Every combination of switches that keys can reach trains, on the processor and on a simulated GPU, or runs out of memory:
//! all pairs of values and 500 random combinations of each workload.

use std::sync::Mutex;
use std::thread;

use vramlab::device::sim::CardCatalog;
use vramlab::session::{self, BuildError, DeviceChoice, LabSpec, Trials};
use vramlab::workload::{Catalog, Entry, Extent, Repeats, Sizes};

const RANDOM: usize = 500;
/// Blocks of a deep model: the first, the last, and two between them that are checkpointed or offloaded as all others would be.
const DEPTH: usize = 4;

/// Runs `tried` for every workload that `wanted` names, on all cores.
fn each(wanted: impl Fn(&str) -> bool, tried: impl Fn(LabSpec) -> Result<Trials, BuildError> + Sync) {
    let catalog = Catalog::with_user_workloads(None);
    let names: Vec<String> = catalog.names().filter(|name| wanted(name)).map(str::to_owned).collect();
    assert!(names.len() >= 7, "{names:?}");
    let queue = Mutex::new(names);
    let next = || queue.lock().unwrap().pop();
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = next() {
                    let trials = tried(LabSpec::new(catalog.entry(&name).unwrap())).unwrap();
                    assert!(
                        trials.trained + trials.out_of_memory + trials.refused + trials.failures.len() > RANDOM,
                        "{trials:?}"
                    );
                    assert!(trials.trained > RANDOM / 2, "{name}: {} of them trained", trials.trained);
                    if !trials.failures.is_empty() {
                        failures.lock().unwrap().push(trials);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let told = failures.iter().flat_map(|trials| trials.failures.iter().take(4).map(|f| (&trials.workload, f)));
    assert!(failures.is_empty(), "{:#?}", told.collect::<Vec<_>>());
}

#[test]
fn on_the_processor_every_combination_trains_and_what_moves_memory_changes_no_loss() {
    let combinations = session::combinations(RANDOM, 9);
    each(
        |name| name.ends_with("-mini"),
        |mut spec| {
            // Norms over a batch need one; the others train the same with few samples, sooner.
            if !["dcgan-mini", "resnet-mini"].contains(&&*spec.workload.name) {
                spec.config.batch = spec.config.batch.min(2);
            }
            // As narrow and as short as gpt-mini, which takes a third of the time.
            match &*spec.workload.name {
                "varlen-mini" => (spec.sizes.layers, spec.sizes.width) = (Repeats::new(1), Extent::new(32)),
                "llama-mini" | "lora-llama-mini" => spec.sizes.seq = Extent::new(32),
                // As deep as they are, with half of the channels.
                "dcgan-mini" | "resnet-mini" => spec.sizes.width = Extent::new(4),
                _ => {}
            }
            let trials = session::try_all(&spec, &combinations, true, |_| {})?;
            assert!(trials.compared > RANDOM / 5, "{trials:?}");
            Ok(trials)
        },
    );
}

/// `workload` with [`DEPTH`] blocks of a kind at most: what lies between is more of the same.
fn shallow(workload: &Entry) -> Sizes {
    let least = |blocks: Repeats| Repeats::new(blocks.get().min(DEPTH)).unwrap();
    let of_config = workload.config.is_some() && !workload.name.ends_with("-mini");
    Sizes {
        layers: if of_config { Repeats::new(DEPTH) } else { workload.sizes.layers.map(least) },
        stages: workload.sizes.stages.map(|stages| stages.map(least)),
        ..Sizes::default()
    }
}

#[test]
fn on_a_simulated_gpu_every_combination_trains() {
    let combinations = session::combinations(RANDOM, 3);
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    each(
        |_| true,
        |spec| {
            let mut spec = LabSpec { device: DeviceChoice::Sim(Box::new(card.clone())), ..spec };
            spec.config.batch = spec.config.batch.min(4);
            // One is as deep as it is, and runs out of memory at times.
            if spec.workload.name != "llama-3.1-8b" {
                spec.sizes = shallow(&spec.workload);
            }
            session::flip_through(&spec, &combinations, |_| {})
        },
    );
}
