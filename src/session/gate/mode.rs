//! How far the engine may go.

use crate::{LabSpec, StepSize};
use vramlab_train::SafePoint;

/// How far the engine may go before it pauses by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Running,
    Paused,
    Until(StepSize),
    /// For this many more steps.
    Steps(u64),
}

impl Mode {
    /// The mode in which a run of `spec` begins.
    pub const fn first(spec: &LabSpec) -> Self {
        if spec.rests { Self::Paused } else { Self::Running }
    }

    /// True if it pauses at this point.
    pub fn arrives(&mut self, point: SafePoint) -> bool {
        match self {
            Self::Steps(left) if point == SafePoint::Step => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Self::Until(StepSize::Op) => true,
            Self::Until(StepSize::Phase) => point != SafePoint::Op,
            Self::Until(StepSize::Step) => point == SafePoint::Step,
            Self::Running | Self::Paused | Self::Steps(_) => false,
        }
    }
}
