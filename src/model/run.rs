//! What a lab does, what it trains and on what, and how its switches stand: the part of the stream that is not memory.

use std::sync::Arc;
use vramlab_snapshot::Begins;

use serde::{Deserialize, Serialize};

use vramlab_allocator::TorchVersion;

/// What the lab is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Making the model.
    #[default]
    Starting,
    /// Training.
    Running,
    /// Stopped at a safe point by a person.
    Paused,
    /// Stopped because a request failed; a switch and space go on.
    OutOfMemory,
    /// Stopped because a step failed, and why; space goes on with the switches of the last whole step.
    StepFailed(Arc<str>),
    /// All steps asked for are done.
    Finished,
    /// The device is gone, and what it said last; the processor can take over.
    Lost(Arc<str>),
    /// Can't go on, and why.
    Failed(Arc<str>),
}

/// What is trained, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// `gpt-char`.
    pub workload: Arc<str>,
    /// `435k parameters · B16 T64 · adamw`.
    pub detail: Arc<str>,
    /// `AMD EPYC, 2 cores`, `NVIDIA H200`.
    pub device: Arc<str>,
    /// Whose figures these are.
    pub kind: DeviceKind,
    /// What a step's throughput counts.
    pub items: Items,
    /// Whose allocator serves it. The ops are those of PyTorch 2.11, or, in a snapshot, those of the program that ran.
    pub torch: TorchVersion,
    /// What blocks are for was concluded from how they behave: the program did not say.
    pub guessed: bool,
    /// Where PyTorch's own history begins that this is, on a real driver's addresses; what is told of memory before the first
    /// step was there by then. `None`: a run of vramlab's, told from its first request on.
    pub history: Option<Begins>,
}

impl About {
    /// The oldest PyTorch that it may be of: no file tells the versions before 2.12 apart.
    #[must_use]
    pub fn oldest_torch(&self) -> TorchVersion {
        if self.history.is_some() && self.torch <= TorchVersion::V2_11 { TorchVersion::ALL[0] } else { self.torch }
    }
}

/// Whose figures a run has: every picture that could be taken of a screen says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU's.
    Gpu,
    /// The processor's: its times are real, and there are no library workspaces.
    #[default]
    Processor,
    /// A simulated card's: times are a model's, and there are no losses.
    Simulated,
    /// A stand-in for a card, under a user's program: times are the host's, and nothing is computed.
    Absent,
}

/// What a step's throughput counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Items {
    /// Tokens.
    Tokens,
    /// Images.
    Images,
    /// Samples.
    #[default]
    Samples,
}

impl Items {
    /// Its unit a second.
    #[must_use]
    pub const fn per_second(self) -> &'static str {
        match self {
            Self::Tokens => "tok/s",
            Self::Images => "images/s",
            Self::Samples => "samples/s",
        }
    }
}

/// How all switches stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettings(pub Vec<Setting>);

impl RunSettings {
    /// How the switch called `word` stands.
    #[must_use]
    pub fn get(&self, word: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| &*setting.switch == word)
    }
}

/// How one switch stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The switch, by its word on the command line (`amp`).
    pub switch: Arc<str>,
    /// The value in force.
    pub value: Arc<str>,
    /// The value asked for that takes effect at the next step.
    pub wanted: Option<Arc<str>>,
    /// Why it changes nothing here, where that is so.
    pub idle: Option<Arc<str>>,
}
