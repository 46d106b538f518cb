//! A claim: its words, what is run, and when which verdict holds.

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
    /// The word for it.
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

/// A claim, read and checked.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its name on the command line.
    pub name: String,
    /// The claim in its own words.
    pub claim: String,
    /// Who says so, in general terms.
    pub said_by: String,
    /// What is run, in this order.
    pub sides: Vec<Side>,
    /// What of it is compared.
    pub figures: Vec<ClaimMetric>,
    /// What was measured, in a line.
    pub measured: Template,
    /// Without what there is nothing to judge.
    pub needs: Vec<Need>,
    /// The verdicts with their conditions; the first that holds counts.
    pub verdicts: Vec<Ruling>,
    /// The verdict where none of those holds.
    pub otherwise: Verdict,
    /// Why it is so.
    pub reason: Template,
    /// Where the claim holds.
    pub holds: Template,
    /// Where it does not.
    pub fails: Template,
    /// Its sides are what they are: batches and limits that the claim is about.
    pub fixed: bool,
    /// It is of the user's file.
    pub users_own: bool,
}

/// A claim that can't be run here, with what is known of it elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHere {
    /// Its name on the command line.
    pub name: String,
    /// The claim in its own words.
    pub claim: String,
    /// What a run of it would need, and is not here.
    pub needs: String,
    /// The verdict of those figures; none where they were not measured.
    pub verdict: Option<Verdict>,
    /// The figures, with where and under what they were measured; else why there are none.
    pub found: String,
}

/// A verdict, and when it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// The verdict.
    pub is: Verdict,
    /// Its condition, over the figures of all sides.
    pub when: Condition,
}

/// What must hold for a verdict to mean something.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The condition, over the figures of all sides.
    pub when: Condition,
    /// What is said where it does not hold: a sentence without a full stop.
    pub otherwise: String,
}

/// A figure that both sides are compared by.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimMetric {
    /// Its name in this claim: `$saved`.
    pub name: String,
    /// What it is.
    pub quantity: Quantity,
}

/// Something that is run from a clean state.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name: the mark of its figures when it has ended.
    pub name: String,
    /// What is done.
    pub work: Work,
}

/// What a side does.
#[derive(Clone, Debug)]
pub enum Work {
    /// A model is trained, or run.
    Training(Box<Training>),
    /// The allocator is asked for memory, as lines of a program would.
    Program(Vec<ProgramLine>),
}

impl Work {
    /// The training, where it is one.
    #[must_use]
    pub fn training(&self) -> Option<&Training> {
        if let Self::Training(training) = self { Some(training) } else { None }
    }
}

impl Side {
    /// The marks that its figures get: those within it, and its name at its end.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        let within: Vec<&str> = match &self.work {
            Work::Training(training) => training.marks().collect(),
            Work::Program(requests) => requests.iter().filter_map(ProgramLine::mark).collect(),
        };
        within.into_iter().chain([self.name.as_str()])
    }

    /// What runs it without vramlab's folklore, line by line, on the device of that name.
    #[must_use]
    pub fn commands(&self, device: &str) -> Vec<String> {
        match &self.work {
            Work::Training(training) => training.commands(device),
            Work::Program(requests) => requests.iter().filter_map(ProgramLine::in_pytorch).collect(),
        }
    }
}
