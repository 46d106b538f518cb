//! Runs the sides of a claim on a device, each from a clean state, and judges the claim.

use super::claim::{Claim, Work};
use super::judge::{Judgement, judge};
use super::program;
use super::reduce::Reduction;
use super::unfit::{SideFailure, Unfit};
use crate::figures::{Figures, Moments};
use crate::session::DeviceChoice;
use crate::workload::Catalog;

/// What is needed to measure claims.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The device that every side runs on.
    pub device: DeviceChoice,
    /// The workloads that sides can name.
    pub workloads: Catalog,
}

/// The outcome of measuring a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum BenchOutcome {
    /// The claim has a verdict.
    Judged(Box<Judgement>),
    /// There is no verdict: a side can't be run on this device, or a figure is unknown there.
    Unfit {
        /// The side.
        side: Option<String>,
        /// The reason.
        why: Unfit,
    },
    /// The measurement was interrupted.
    Cancelled,
}

/// How far the measurement of a claim has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchProgress<'a> {
    /// The side that runs now.
    pub side: &'a str,
    /// Its index among the sides, counted from 0.
    pub index: usize,
    /// The number of sides.
    pub of: usize,
}

impl Bench {
    /// Runs all sides of `claim` and judges it; if they do not fit, smaller sides are run. `go_on` is called before
    /// every step, and ends the measurement by returning false.
    pub fn measure(&self, claim: &Claim, mut go_on: impl FnMut(BenchProgress<'_>) -> bool) -> BenchOutcome {
        let mut last = None;
        for reduction in Reduction::ladder(claim, &self.device, &self.workloads) {
            let smaller = reduction.as_ref().map(|reduction| reduction.of(claim, &self.workloads));
            match self.try_sides(smaller.as_ref().unwrap_or(claim), &mut go_on) {
                Ok(mut outcome) => {
                    if let (BenchOutcome::Judged(judged), Some(reduction)) = (&mut outcome, reduction) {
                        judged.reduce(reduction);
                    }
                    return outcome;
                }
                Err(too_large) => last = Some(too_large),
            }
        }
        last.unwrap_or(BenchOutcome::Cancelled)
    }

    /// The error says that a side is too large for the device.
    fn try_sides(
        &self,
        claim: &Claim,
        go_on: &mut impl FnMut(BenchProgress<'_>) -> bool,
    ) -> Result<BenchOutcome, BenchOutcome> {
        let mut moments = Moments::new(Figures::default());
        for (index, side) in claim.sides.iter().enumerate() {
            let stage = BenchProgress { side: &side.name, index, of: claim.sides.len() };
            let mut marked = Vec::new();
            let mark = |name: &str, figures: Figures| marked.push((name.to_owned(), figures));
            let ran = match &side.work {
                _ if !go_on(stage) => Err(SideFailure::Cancelled),
                Work::Program(requests) => program::run(requests, &self.device, mark).map_err(SideFailure::from),
                Work::Training(training) => training.run(&self.device, &self.workloads, mark, &mut || go_on(stage)),
            };
            match ran {
                Ok(figures) => marked.push((side.name.clone(), figures)),
                Err(SideFailure::Cancelled) => return Ok(BenchOutcome::Cancelled),
                Err(SideFailure::Unfit(why)) => return Ok(BenchOutcome::Unfit { side: Some(side.name.clone()), why }),
                Err(SideFailure::TooLarge(why)) => {
                    return Err(BenchOutcome::Unfit { side: Some(side.name.clone()), why });
                }
            }
            for (name, figures) in marked {
                moments.mark(&name, figures);
            }
        }
        Ok(match judge(claim, &moments) {
            Ok(judgement) => BenchOutcome::Judged(Box::new(judgement)),
            Err(not_judged) => BenchOutcome::Unfit { side: None, why: Unfit(not_judged.to_string()) },
        })
    }
}
