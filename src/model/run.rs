//! What a lab does, what it trains on which device, and the values of its switches: the part of the stream that is not memory.

use std::sync::Arc;
use vramlab_snapshot::Begins;

use serde::{Deserialize, Serialize};

use vramlab_allocator::TorchVersion;

/// What the lab is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Building the model.
    #[default]
    Starting,
    /// Training.
    Running,
    /// Paused at a safe point by a person.
    Paused,
    /// Stopped because a request failed; flip a switch and press space to go on.
    OutOfMemory,
    /// Stopped because a step failed, for this reason; space goes on with the switches of the last whole step.
    StepFailed(Arc<str>),
    /// All requested steps are done.
    Finished,
    /// The device was lost, with its last message; the processor can take over.
    Lost(Arc<str>),
    /// Can't go on, for this reason.
    Failed(Arc<str>),
}

/// What is trained, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The workload's name: `gpt-char`.
    pub workload: Arc<str>,
    /// A description: `435k parameters · B16 T64 · adamw`.
    pub detail: Arc<str>,
    /// The device's name: `AMD EPYC, 2 cores`, `NVIDIA H200`.
    pub device: Arc<str>,
    /// The kind of device that the figures come from.
    pub kind: DeviceKind,
    /// What a step's throughput counts.
    pub items: Items,
    /// The version whose allocator serves it. The ops are those of PyTorch 2.11, or in a snapshot those of the recorded program.
    pub torch: TorchVersion,
    /// True if categories were concluded from the blocks' behaviour, because the program did not report them.
    pub guessed: bool,
    /// Where the history begins, if this is a recorded history of PyTorch with a real driver's addresses; memory
    /// reported before its first step existed by then. `None` for a run of vramlab, which is reported from its first
    /// request on.
    pub history: Option<Begins>,
}

impl About {
    /// The oldest version of PyTorch that it may be: no file tells the versions before 2.12 apart.
    #[must_use]
    pub fn oldest_torch(&self) -> TorchVersion {
        if self.history.is_some() && self.torch <= TorchVersion::V2_11 { TorchVersion::ALL[0] } else { self.torch }
    }
}

/// The kind of device that a run's figures come from. Every screen shows it, so that no picture of a screen can mislead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU's.
    Gpu,
    /// The processor: its times are real, and there are no library workspaces.
    #[default]
    Processor,
    /// A simulated card: times come from a model, and there are no losses.
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

/// The values of all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettings(pub Vec<Setting>);

impl RunSettings {
    /// The switch called `word`.
    #[must_use]
    pub fn get(&self, word: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| &*setting.switch == word)
    }
}

/// The value of one switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The switch, by its word on the command line (`amp`).
    pub switch: Arc<str>,
    /// The value in force.
    pub value: Arc<str>,
    /// The value that was asked for and takes effect at the next step.
    pub wanted: Option<Arc<str>>,
    /// Why the switch changes nothing here, if that is so.
    pub idle: Option<Arc<str>>,
}
