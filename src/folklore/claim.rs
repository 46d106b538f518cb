//! A claim: its texts, the runs that test it, and the conditions of its verdicts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::program::ProgramLine;
use super::steps::Training;
use crate::figures::{Condition, Quantity, Template};

/// The outcome of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is as the claim says.
    True,
    /// A part of the claim is true.
    Partly,
    /// True for some models, settings or devices and not for others.
    Depends,
    /// It is not as the claim says.
    False,
}

impl Verdict {
    /// The verdict's word.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Partly => "partly",
            Self::Depends => "depends",
            Self::False => "false",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// A claim, parsed and checked.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its name on the command line.
    pub name: String,
    /// The claim in its own words.
    pub claim: String,
    /// Who says so, in general terms.
    pub said_by: String,
    /// The runs, in their order.
    pub sides: Vec<Side>,
    /// The figures that are compared.
    pub figures: Vec<ClaimMetric>,
    /// The line that says what was measured.
    pub measured: Template,
    /// The conditions without which there is nothing to judge.
    pub needs: Vec<Need>,
    /// The verdicts with their conditions; the first that holds counts.
    pub verdicts: Vec<Ruling>,
    /// The verdict if no condition holds.
    pub otherwise: Verdict,
    /// The reason.
    pub reason: Template,
    /// Where the claim holds.
    pub holds: Template,
    /// Where it does not.
    pub fails: Template,
    /// Whether its batches and limits are what the claim is about, so that they can't be made smaller.
    pub fixed: bool,
    /// Whether it comes from the user's file.
    pub users_own: bool,
}

/// A claim that can't be run here, with measurements made elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHere {
    /// Its name on the command line.
    pub name: String,
    /// The claim in its own words.
    pub claim: String,
    /// What a run would need and vramlab lacks.
    pub needs: String,
    /// The verdict that those measurements support; `None` if there are none.
    pub verdict: Option<Verdict>,
    /// The measurements, with where and how they were made, or why there are none.
    pub found: String,
}

/// A verdict, with its condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// The verdict.
    pub is: Verdict,
    /// Its condition, over the figures of all sides.
    pub when: Condition,
}

/// A condition without which a verdict means nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The condition, over the figures of all sides.
    pub when: Condition,
    /// What is said if the condition does not hold: a sentence without a full stop.
    pub otherwise: String,
}

/// A figure by which the sides are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimMetric {
    /// Its name in this claim: `$saved`.
    pub name: String,
    /// How it is computed.
    pub quantity: Quantity,
}

/// A run from a clean state.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name, which is also the mark of its figures at its end.
    pub name: String,
    /// What it does.
    pub work: Work,
}

/// What a side does.
#[derive(Clone, Debug)]
pub enum Work {
    /// Trains a model, or runs it.
    Training(Box<Training>),
    /// Makes requests to the allocator, as the lines of a program would.
    Program(Vec<ProgramLine>),
}

impl Work {
    /// The training, if it is one.
    #[must_use]
    pub fn training(&self) -> Option<&Training> {
        if let Self::Training(training) = self { Some(training) } else { None }
    }
}

impl Side {
    /// The marks of its figures: those that it sets itself, and its name at its end.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        let within: Vec<&str> = match &self.work {
            Work::Training(training) => training.marks().collect(),
            Work::Program(requests) => requests.iter().filter_map(ProgramLine::mark).collect(),
        };
        within.into_iter().chain([self.name.as_str()])
    }

    /// Commands that run the same without vramlab's folklore, line by line, on the device of this name.
    #[must_use]
    pub fn commands(&self, device: &str) -> Vec<String> {
        match &self.work {
            Work::Training(training) => training.commands(device),
            Work::Program(requests) => requests.iter().filter_map(ProgramLine::in_pytorch).collect(),
        }
    }
}
