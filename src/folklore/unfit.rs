//! Why a side can't be run on a device, and what a simulated driver would say.

use thiserror::Error;

use crate::figures::{Figure, Figures};
use crate::session::DeviceChoice;
use crate::units::Bytes;

/// A side can't be run on this device: a sentence without its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// Why a side has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum SideFailure {
    /// It can't be run here.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It would fit if it were smaller.
    #[error(transparent)]
    TooLarge(Unfit),
    /// It was interrupted.
    #[error("it was cancelled")]
    Cancelled,
}

/// Sets what the driver of a simulated card would count as used: a process has its context, and what the allocator holds.
/// A GPU's driver says it itself, the processor has none.
pub(super) fn tell_driver(figures: &mut Figures, device: &DeviceChoice, reserved: Bytes) {
    if let (DeviceChoice::Sim(card), Some(used)) = (device, Figure::named("driver_used")) {
        figures.set(used, (card.context() + reserved).get() as f64);
    }
}
