//! Finds another way of parallelism for the ranks of a run.

use super::process_group::{GroupError, check_ranks, of_rank};
use super::{DeviceChoice, LabSpec, Parallel, Setup};
use vramlab_device::sim::CardCatalog;
use vramlab_train::Parallelism;

/// The simulated card on which a way is tried for ranks on real devices.
const CARD: &str = "h200";

/// A run with another way of parallelism.
pub(super) struct AnotherWay {
    pub spec: LabSpec,
    pub parallelism: Parallelism,
    /// Ways that were skipped because they are not possible here, and why.
    pub left_out: Vec<(Parallelism, String)>,
}

/// The same run with the next way that can train it, from the start, with the switches of `setup`.
///
/// # Errors
/// A sentence if there is no other way.
pub(super) fn another_way(spec: &LabSpec, setup: &Setup) -> Result<AnotherWay, String> {
    let Some(present) = spec.parallel else {
        return Err("one device shares nothing; give several, such as --device sim:h200x2".to_owned());
    };
    let ways = Parallelism::ALL.into_iter();
    let later = ways.clone().skip_while(|way| *way != present.parallelism).skip(1);
    let mut left_out = Vec::new();
    for parallelism in later.chain(ways.take_while(|way| *way != present.parallelism)) {
        let parallel = Parallel { parallelism, ..present };
        let spec = LabSpec { parallel: Some(parallel), ..spec.clone().under(setup) };
        match attempt(&spec, parallel) {
            Ok(()) => return Ok(AnotherWay { spec, parallelism, left_out }),
            Err(why) => left_out.push((parallelism, why.to_string())),
        }
    }
    let first = left_out.first().map(|(way, why)| format!(" ({way}: {why})")).unwrap_or_default();
    Err(format!("no other way of parallelism can train this{first}"))
}

impl AnotherWay {
    /// The message when it begins.
    pub fn words(&self) -> String {
        let mut words = format!("started again with {}, from the same weights", self.parallelism);
        for (way, why) in &self.left_out {
            words.push_str(&format!("; {way} is left out: {why}"));
        }
        words
    }
}

/// Builds the first rank on a simulated card: a way that is not possible is refused there.
fn attempt(spec: &LabSpec, parallel: Parallel) -> Result<(), GroupError> {
    check_ranks(parallel, spec)?;
    let mut first = of_rank(parallel, spec, 0, 0)?;
    first.kernels = None;
    if !matches!(first.device, DeviceChoice::Sim(_)) {
        let Ok(card) = CardCatalog::with_user_cards(None).card(CARD) else { return Ok(()) };
        first.device = DeviceChoice::Sim(Box::new(card));
    }
    first.build(Box::new(())).map(drop).map_err(|error| GroupError::of(0, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_go_round_and_what_can_not_be_had_is_left_out() {
        let mut spec = LabSpec::on_h200("gpt-mini");
        spec.config.batch = 12;
        let from = |ranks, parallelism| {
            let spec = LabSpec { parallel: Some(Parallel { parallelism, ranks }), ..spec.clone() };
            another_way(&spec, &spec.setup())
        };
        let mut way = Parallelism::Ddp;
        let round: Vec<Parallelism> = Parallelism::ALL
            .iter()
            .map(|_| {
                way = from(2, way).unwrap_or_else(|why| panic!("{why}")).parallelism;
                way
            })
            .collect();
        assert!(Parallelism::ALL.iter().all(|way| round.contains(way)), "{round:?}");
        // Four heads can't be divided into three equal parts, nor can two blocks.
        let next = from(3, Parallelism::Fsdp).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(next.parallelism, Parallelism::Server);
        let words = next.words();
        assert!(words.starts_with("started again with ps, from the same weights; tp is left out: 4 attention heads"));
        assert_eq!(next.left_out.len(), 3);
        let none = from(5, Parallelism::Ddp).map(|_| ()).unwrap_err();
        assert!(none.starts_with("no other way of parallelism can train this (ddp-view: 12 samples"), "{none}");
    }
}
