//! `vramlab doctor --selftest --combinations`: whether every combination of switches trains on a device.

use std::io::Write;

use color_eyre::eyre::Result;
use serde_json::json;

use super::selftest::CaseProgress;
use super::{Status, spec};
use crate::session::{self, DeviceChoice, LabSpec, Trials};

/// Random combinations tried after those that cover all pairs of values.
const RANDOM: usize = 500;
/// The same for workloads of full size, whose steps take long.
const RANDOM_OF_LARGE: usize = 40;
/// Failures reported for each workload.
const TOLD: usize = 6;
/// The seed of the random combinations.
const SEED: u64 = 9;

/// Tries all workloads, or those whose names begin with an element of `only`, on the device called `name`.
pub(super) fn run(name: &str, only: &[String], json: bool) -> Result<Status> {
    let device = spec::device(name)?;
    let catalog = spec::workloads();
    let asked = |name: &&str| only.is_empty() || only.iter().any(|only| name.starts_with(only.as_str()));
    let mut progress = CaseProgress::new();
    let mut all = Vec::new();
    for name in catalog.names().filter(asked) {
        let entry = catalog.entry(name)?;
        let small = name.contains("-mini") || name == crate::workload::DEFAULT;
        let spec = LabSpec { device: device.clone(), ..LabSpec::new(entry) };
        let trials = if small {
            let compares = !matches!(device, DeviceChoice::Sim(_));
            let combinations = session::combinations(RANDOM, SEED);
            session::try_all(&spec, &combinations, compares, |text| progress.tell(text))?
        } else {
            let combinations = session::combinations(RANDOM_OF_LARGE, SEED);
            session::flip_through(&spec, &combinations, |text| progress.tell(text))?
        };
        let ended = trials.ended.is_some();
        all.push(trials);
        if ended {
            break;
        }
    }
    progress.clear();
    let passed = all.iter().all(|trials| trials.failures.is_empty());
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "passed": passed, "workloads": all }))?)?;
    } else {
        table(&mut out, &all)?;
    }
    Ok(if passed { Status::DONE } else { Status::FAILED })
}

fn table(out: &mut impl Write, all: &[Trials]) -> std::io::Result<()> {
    let width = all.iter().map(|trials| trials.workload.len()).max().unwrap_or(0).max("workload".len());
    writeln!(
        out,
        "{:width$}  {:>7}  {:>8}  {:>13}  {:>7}  {:>9}  wrong",
        "workload", "trained", "compared", "out of memory", "refused", "worst"
    )?;
    for trials in all {
        let Trials { workload, trained, compared, out_of_memory, refused, worst, failures, .. } = trials;
        let worst = if *compared > 0 { format!("{worst:.2}") } else { "–".to_owned() };
        writeln!(
            out,
            "{workload:width$}  {trained:>7}  {compared:>8}  {out_of_memory:>13}  {refused:>7}  {worst:>9}  {}",
            failures.len()
        )?;
    }
    writeln!(
        out,
        "\nworst: the largest difference from the processor's losses, in parts of what their precision allows."
    )?;
    for trials in all.iter().filter(|trials| !trials.failures.is_empty()) {
        writeln!(out, "\n{}:", trials.workload)?;
        for (combination, sentence) in trials.failures.iter().take(TOLD) {
            writeln!(out, "  {combination}: {sentence}")?;
        }
        if let Some(more) = trials.failures.len().checked_sub(TOLD).filter(|&more| more > 0) {
            writeln!(out, "  and {more} more, see --json")?;
        }
        if let Some(ended) = &trials.ended {
            writeln!(out, "  nothing after it was tried: {ended}")?;
        }
    }
    Ok(())
}
