//! Makes the sides of a claim smaller if they do not fit a device.

use std::fmt;

use super::claim::{Claim, Work};
use super::steps::Training;
use crate::session::{DeviceChoice, Switch};
use crate::workload::Catalog;

/// The divisors of a claim's batches, tried in this order until all its sides fit.
const DIVISORS: [usize; 5] = [1, 2, 4, 8, 16];

/// How the sides of a claim were made smaller: all in the same way, so that they can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Batches are divided by this number.
    Batches(usize),
    /// Small models replace large ones; the names of both.
    Minis(Vec<(String, String)>),
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batches(divisor) => write!(f, "Batches are divided by {divisor}, so that every run fits."),
            Self::Minis(stand_ins) => {
                let words: Vec<String> =
                    stand_ins.iter().map(|(large, small)| format!("{small} stands for {large}")).collect();
                write!(f, "{}: the processor computes every step.", words.join(", "))
            }
        }
    }
}

impl Reduction {
    /// The ways to measure `claim` on `device`, in the order in which they are tried; `None` leaves the claim
    /// unchanged.
    pub(super) fn ladder(claim: &Claim, device: &DeviceChoice, workloads: &Catalog) -> Vec<Option<Self>> {
        let trains: Vec<&Training> = claim.sides.iter().filter_map(|side| side.work.training()).collect();
        if claim.fixed || trains.is_empty() {
            return vec![None];
        }
        if *device == DeviceChoice::Cpu {
            let mut stand_ins: Vec<(String, String)> = Vec::new();
            for name in trains.iter().map(|training| &training.workload) {
                if let Some(mini) = mini_of(name, workloads).filter(|_| !stand_ins.iter().any(|(n, _)| n == name)) {
                    stand_ins.push((name.clone(), mini));
                }
            }
            // Sizes that a side gives are meant for the large model.
            let sized = trains.iter().any(|training| !training.sizes.given().is_empty());
            return if stand_ins.is_empty() || sized { vec![None] } else { vec![Some(Self::Minis(stand_ins))] };
        }
        DIVISORS.into_iter().map(|divisor| (divisor > 1).then_some(Self::Batches(divisor))).collect()
    }

    /// The same claim with smaller sides.
    #[must_use]
    pub fn of(&self, claim: &Claim, workloads: &Catalog) -> Claim {
        let mut claim = claim.clone();
        for side in &mut claim.sides {
            if let Work::Training(training) = &mut side.work {
                self.reduce(training, workloads);
            }
        }
        claim
    }

    fn reduce(&self, training: &mut Training, workloads: &Catalog) {
        match self {
            Self::Minis(stand_ins) => {
                if let Some((_, small)) = stand_ins.iter().find(|(large, _)| *large == training.workload) {
                    training.workload.clone_from(small);
                }
            }
            Self::Batches(divisor) => {
                let Some(switch) = Switch::named("batch") else { return };
                let given = training.settings.iter().find(|(known, _)| *known == switch);
                let batch = match given {
                    Some((_, value)) => value.parse().ok(),
                    None => workloads.entry(&training.workload).ok().map(|entry| entry.batch.get()),
                };
                let Some(batch) = batch else { return };
                let accumulated = training.settings.iter().find(|(known, _)| known.word() == "accum");
                let least = accumulated.and_then(|(_, value)| value.parse().ok()).unwrap_or(1).min(batch);
                training.settings.retain(|(known, _)| *known != switch);
                training.settings.push((switch, (batch / divisor).max(least).to_string()));
            }
        }
    }

    /// A text about a large model, reworded for the small model that replaces it.
    pub(super) fn reworded(&self, text: &str) -> String {
        let Self::Minis(stand_ins) = self else { return text.to_owned() };
        stand_ins.iter().fold(text.to_owned(), |text, (large, small)| text.replace(large.as_str(), small))
    }
}

/// The small model of the same kind: `gpt-mini` for `gpt2`.
fn mini_of(name: &str, workloads: &Catalog) -> Option<String> {
    let is_of = |mini: &&str| mini.strip_suffix("-mini").is_some_and(|kind| name.starts_with(kind) && name != *mini);
    workloads.names().filter(is_of).max_by_key(|mini| mini.len()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_large_model_has_its_mini() {
        let catalog = Catalog::with_user_workloads(None);
        for (large, small) in [
            ("gpt2", "gpt-mini"),
            ("bert-large", "bert-mini"),
            ("vit-b16", "vit-mini"),
            ("resnet50", "resnet-mini"),
            ("resnet152", "resnet-mini"),
            ("mlp", "mlp-mini"),
            ("varlen", "varlen-mini"),
            ("dcgan", "dcgan-mini"),
            ("llama-3.2-1b", "llama-mini"),
            ("lora-llama-3.2-1b", "lora-llama-mini"),
        ] {
            assert_eq!(mini_of(large, &catalog).as_deref(), Some(small));
            assert_eq!(mini_of(small, &catalog), None);
        }
    }

    #[test]
    fn texts_name_what_ran() {
        let reduction = Reduction::Minis(vec![("gpt2".to_owned(), "gpt-mini".to_owned())]);
        assert_eq!(reduction.reworded("4.2 (gpt2), 1 (mlp)"), "4.2 (gpt-mini), 1 (mlp)");
    }
}
