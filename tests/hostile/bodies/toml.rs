//! Files of the user's folders: workloads up to a step on a small card, devices, themes.

use vramlab::device::sim::{Card, CardCatalog};
use vramlab::drawing::theme::ColorTier;
use vramlab::session::{DeviceChoice, LabSpec, MemoryLimit};
use vramlab::train::{Config, DataPath, TrainError};
use vramlab::units::Bytes;
use vramlab::workload::{Architecture, Catalog, DataKind, WorkloadEntry};

/// The longest file; longer ones test nothing new.
const LONGEST: usize = 16 * 1024;
/// The most requests of a step; larger steps take too long here.
const MOST_REQUESTS: usize = 2000;

/// The first byte says what the rest is.
pub fn run(data: &[u8]) {
    let Some((&kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    if text.len() > LONGEST {
        return;
    }
    match kind % 3 {
        0 => workload(text),
        1 => device(text),
        _ => theme(text),
    }
}

fn workload(text: &str) {
    let mut catalog = Catalog::with_user_workloads(None);
    catalog.insert("fuzzed", text);
    if let (Ok(entry), Ok(card)) = (catalog.entry("fuzzed"), CardCatalog::with_user_cards(None).card("t4")) {
        let rounds = entry.churn.map_or(0, |churn| churn.count.get());
        if entry.model != Architecture::Churn || rounds <= MOST_REQUESTS {
            train(entry, card);
        }
    }
}

fn device(text: &str) {
    let mut cards = CardCatalog::with_user_cards(None);
    cards.insert("fuzzed", text);
    if let (Ok(card), Ok(entry)) = (cards.card("fuzzed"), Catalog::with_user_workloads(None).entry("mlp-mini")) {
        train(entry, card);
    }
}

fn theme(text: &str) {
    let mut themes = vramlab::drawing::theme::ThemeCatalog::default();
    themes.insert("fuzzed", text);
    for tier in [ColorTier::None, ColorTier::Ansi, ColorTier::Indexed, ColorTier::True] {
        let _ = themes.load("fuzzed", tier);
    }
}

/// Trains a step; a request that does not fit in memory is refused.
fn train(workload: WorkloadEntry, card: Card) {
    let data = match workload.data {
        DataKind::Fresh => DataPath::Fresh,
        DataKind::Text | DataKind::Synthetic => DataPath::Streamed,
    };
    let spec = LabSpec {
        config: Config { data, ..Config::new(workload.batch.get()) },
        device: DeviceChoice::Sim(Box::new(card)),
        limit: Some(MemoryLimit::Bytes(Bytes::mib(64))),
        ..LabSpec::new(workload)
    };
    let Ok(mut trainer) = spec.build(Box::new(spec.pace())) else { return };
    match trainer.step() {
        Ok(_) | Err(TrainError::OutOfMemory { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}
