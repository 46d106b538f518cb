//! Why a side can't be run on a device, and what a simulated driver would report.

use thiserror::Error;

use crate::figures::{Figure, Figures};
use crate::session::DeviceChoice;
use crate::units::Bytes;

/// Why a side can't be run on this device: a sentence that does not name the side.
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

/// Sets the used memory that the driver of a simulated card would report: the process's context, and what the allocator
/// has reserved. A GPU's own driver reports it itself, and the processor has no driver.
pub(super) fn tell_driver(figures: &mut Figures, device: &DeviceChoice, reserved: Bytes) {
    if let (DeviceChoice::Sim(card), Some(used)) = (device, Figure::named("driver_used")) {
        figures.set(used, (card.context() + reserved).get() as f64);
    }
}
