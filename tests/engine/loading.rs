//! A model that is loaded from a checkpoint, and a pool that is taken first: the bytes are PyTorch's, and the weights
//! unchanged.

use vramlab::allocator::{Settings, TorchVersion};
use vramlab::device::sim::CardCatalog;
use vramlab::model::Category;
use vramlab::session::{DeviceChoice, Headless, LabSpec, MemoryLimit, Switch};
use vramlab::units::Bytes;
use vramlab::workload::{Catalog, CheckpointLoad, InferenceMode, InferencePlan, Models};

fn spec(workload: &str) -> LabSpec {
    let entry = Catalog::with_user_workloads(None).entry(workload).unwrap();
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    LabSpec { device: DeviceChoice::Sim(Box::new(card)), ..LabSpec::new(entry) }
}

/// The highest allocated while a model is made and loaded, its parameters, and what the unused dict then holds. With
/// expandable segments, whose blocks are exactly as large as the requests.
fn loaded(load: Option<CheckpointLoad>) -> (Bytes, Bytes, Bytes) {
    let plan = InferencePlan { mode: InferenceMode::NoGrad, half: false, models: Models::One };
    let settings = Settings::parse_for(TorchVersion::default(), "expandable_segments:True").unwrap();
    let mut run = Headless::start(LabSpec { load, inference: Some(plan), settings, ..spec("vit-b16") }).unwrap();
    let view = run.view();
    assert_eq!(view.malformed, 0);
    (view.peak_allocated, view.by_category[Category::Parameter as usize], view.by_category[Category::Other as usize])
}

/// PyTorch 2.11 on an H200: 936.3 MiB at the peak for a model of 468.2 MiB loaded through the device, 468.2 MiB through
/// the host; if the dict is kept, 936.3 MiB for good.
#[test]
fn by_way_of_the_device_a_model_is_there_twice() {
    let (alone, parameters, _) = loaded(None);
    assert!(alone < parameters + parameters, "making the model is not the peak");
    let (peak, same, left) = loaded(Some(CheckpointLoad::Device));
    assert_eq!((same, left), (parameters, Bytes(0)));
    assert_eq!(peak, parameters + parameters);
    let (peak, _, left) = loaded(Some(CheckpointLoad::Kept));
    assert_eq!(left, parameters, "the dict is still there");
    assert!(peak >= parameters + parameters);
    assert_eq!(loaded(Some(CheckpointLoad::Host)), (alone, parameters, Bytes(0)));
}

#[test]
fn a_loaded_model_learns_as_the_one_that_was_saved() {
    for workload in ["gpt-mini", "resnet-mini"] {
        let losses = |load: Option<CheckpointLoad>| {
            let entry = Catalog::with_user_workloads(None).entry(workload).unwrap();
            let mut run = Headless::start(LabSpec { load, ..LabSpec::new(entry) }).unwrap();
            (0..3).map(|_| run.step().unwrap().loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        let saved = losses(None);
        for load in CheckpointLoad::ALL {
            assert_eq!(losses(Some(load)), saved, "{workload}, {}", load.label());
        }
    }
}

#[test]
fn a_way_that_is_none_is_told_the_known_ones() {
    let error = "usb".parse::<CheckpointLoad>().unwrap_err();
    assert!(error.contains("device, kept or host"), "{error}");
    assert!(CheckpointLoad::ALL.iter().all(|way| way.label().parse() == Ok(*way)));
}

/// PyTorch 2.11 on an H200, where one block of 25 % was allocated and dropped first: then it took one more segment, of
/// the small pool.
#[test]
fn all_that_is_large_is_cut_from_a_pool_that_was_taken_first() {
    let pool = MemoryLimit::Fraction(0.75);
    let mut run = Headless::start(LabSpec { preallocate: Some(pool), ..spec("gpt2") }).unwrap();
    let mut alone = Headless::start(spec("gpt2")).unwrap();
    for run in [&mut run, &mut alone] {
        run.set(Switch::named("batch").unwrap(), "4").unwrap();
        run.step().unwrap();
        run.step().unwrap();
    }
    let (view, without) = (run.view(), alone.view());
    assert_eq!(view.ledger.live, without.ledger.live, "what is asked for is the same");
    let large: Vec<Bytes> =
        view.segments.iter().map(|segment| segment.size).filter(|size| *size > Bytes::mib(2)).collect();
    assert_eq!(large.len(), 1, "{large:?}");
    assert!(large[0] >= pool.of(Bytes(150_109_880_320)));
    assert!(without.segments.len() > view.segments.len());
}
