//! Runs the sides of a claim on a device, each from a clean state, and judges.

use super::claim::{Claim, Work};
use super::judge::{Judgement, judge};
use super::program;
use super::reduce::Reduction;
use super::unfit::{SideFailure, Unfit};
use crate::figures::{Figures, Moments};
use crate::session::DeviceChoice;
use crate::workload::Catalog;

/// Where claims are measured.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The device that every side runs on.
    pub device: DeviceChoice,
    /// The workloads that sides name.
    pub workloads: Catalog,
}

/// The outcome of measuring a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum BenchOutcome {
    /// A verdict.
    Judged(Box<Judgement>),
    /// A side can't be run on this device, or a figure is not known there: no verdict.
    Unfit {
        /// The side.
        side: Option<String>,
        /// Why.
        why: Unfit,
    },
    /// It was interrupted.
    Cancelled,
}

/// How far the measuring of a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchProgress<'a> {
    /// The side under way.
    pub side: &'a str,
    /// Its place among them, from 0 on.
    pub index: usize,
    /// How many there are.
    pub of: usize,
}

impl Bench {
    /// Runs all sides of `claim` and judges; where they do not fit, smaller ones. `go_on` is asked before every step, and ends
    /// it by saying no.
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

    /// The error: a side is too large for the device.
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
