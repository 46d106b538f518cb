//! Every combination of switches that keys can reach trains, on the processor and on a simulated GPU, or runs out of
//! memory. Covered are all pairs of values with each workload, and random combinations: 500 if all are run, of each
//! small model on the processor, and of each kind of model on a simulated GPU, where its sizes share them.

use std::sync::Mutex;
use std::thread;

use vramlab::device::sim::{Card, CardCatalog};
use vramlab::session::{self, BuildError, Combination, DeviceChoice, LabSpec, Trials};
use vramlab::units::Bytes;
use vramlab::workload::{Architecture, Catalog, Extent, Repeats, Sizes, WorkloadEntry};

use crate::thoroughness::Thoroughness;

/// The blocks of a deep model that are kept: the first, the last, and two between them, which are checkpointed or
/// offloaded as all others would be.
const DEPTH: usize = 4;

/// Number of random combinations after the pairs.
fn random() -> usize {
    Thoroughness::asked().of(0, 500)
}

/// Runs `tried` for every workload that `wanted` names, with its share of `combinations`, on all cores.
fn each(
    wanted: impl Fn(&str) -> bool,
    combinations: impl Fn(&Catalog, &str) -> Vec<Combination> + Sync,
    tried: impl Fn(LabSpec, &[Combination]) -> Result<Trials, BuildError> + Sync,
) {
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
                    let combinations = combinations(&catalog, &name);
                    let trials = tried(LabSpec::new(catalog.entry(&name).unwrap()), &combinations).unwrap();
                    let all = trials.trained + trials.out_of_memory + trials.refused + trials.failures.len();
                    assert!(all >= combinations.len(), "{trials:?}");
                    assert!(9 * trials.trained > 4 * all, "{name}: {} of {all} trained", trials.trained);
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
    each(
        |name| name.ends_with("-mini"),
        |_, _| session::combinations(random(), 9),
        |mut spec, combinations| {
            // Norms over a batch need more than one sample; the other models train the same way with few samples, in
            // less time.
            if !["dcgan-mini", "resnet-mini"].contains(&&*spec.workload.name) {
                spec.config.batch = spec.config.batch.min(2);
            }
            // As narrow as gpt-mini and half as long, which takes a third of the time.
            match &*spec.workload.name {
                "varlen-mini" => (spec.sizes.layers, spec.sizes.width) = (Repeats::new(1), Extent::new(32)),
                "cs336-mini" => (spec.sizes.seq, spec.sizes.width) = (Extent::new(16), Extent::new(32)),
                "bert-mini" | "gpt-mini" | "llama-mini" | "lora-llama-mini" | "mixtral-mini" => {
                    spec.sizes.seq = Extent::new(16);
                }
                // All layers, with half of the channels.
                "dcgan-mini" | "resnet-mini" => spec.sizes.width = Extent::new(4),
                _ => {}
            }
            let trials = session::try_all(&spec, combinations, true, |_| {})?;
            assert!(trials.compared > random() / 5, "{trials:?}");
            Ok(trials)
        },
    );
}

/// `workload` with at most [`DEPTH`] blocks of a kind: blocks in between would be more of the same.
fn shallow(workload: &WorkloadEntry) -> Sizes {
    let least = |blocks: Repeats| Repeats::new(blocks.get().min(DEPTH)).unwrap();
    let of_config = workload.config.is_some() && !workload.name.ends_with("-mini");
    Sizes {
        layers: if of_config { Repeats::new(DEPTH) } else { workload.sizes.layers.map(least) },
        stages: workload.sizes.stages.map(|stages| stages.map(least)),
        ..Sizes::default()
    }
}

/// The properties that workloads of one kind share: ops and switches. Their sizes and lengths differ.
fn kind(workload: &WorkloadEntry) -> (Architecture, Option<&str>, bool) {
    let of_config = workload.config.as_ref().map(|config| &*config.model_type);
    (workload.model, of_config, workload.lora.is_some())
}

/// The pairs among `combinations`, and this workload's part of the [`random`] ones after them, by its index among the
/// workloads of its kind.
fn dealt(combinations: &[Combination], catalog: &Catalog, name: &str) -> Vec<Combination> {
    let own = catalog.entry(name).unwrap();
    let alike: Vec<&str> = catalog.names().filter(|other| kind(&catalog.entry(other).unwrap()) == kind(&own)).collect();
    let place = alike.iter().position(|other| *other == name).unwrap();
    let (pairs, others) = combinations.split_at(combinations.len() - random());
    let part = others.iter().skip(place).step_by(alike.len());
    pairs.iter().chain(part).cloned().collect()
}

#[test]
fn on_a_simulated_gpu_every_combination_trains() {
    let all = session::combinations(random(), 3);
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    // This card has a third of the memory, so that those blocks run out of memory at times.
    let small = Card { memory: Bytes(card.memory.get() / 3), ..card.clone() };
    each(
        |_| true,
        |catalog, name| dealt(&all, catalog, name),
        |spec, combinations| {
            let is_deep = spec.workload.name == "llama-3.1-8b";
            let card = if is_deep { &small } else { &card };
            let mut spec = LabSpec { device: DeviceChoice::Sim(Box::new(card.clone())), ..spec };
            spec.config.batch = spec.config.batch.min(4);
            spec.sizes = shallow(&spec.workload);
            if is_deep {
                spec.sizes.layers = Repeats::new(11);
            }
            let trials = session::flip_through(&spec, combinations, |_| {})?;
            assert!(!is_deep || trials.out_of_memory > 0, "{trials:?}");
            Ok(trials)
        },
    );
}
