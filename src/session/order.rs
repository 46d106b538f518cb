//! The orders to a rank between steps, and its replies. They are the same whether its trainer is in this thread, in a
//! thread of its own, or in a process of its own.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::force::{self, note_first_values};
use super::{LabSpec, Setup};
use vramlab_allocator::units::Bytes;
use vramlab_device::DeviceError;
use vramlab_model::About;
use vramlab_train::{Config, MemoryKind, Seat, TrainError, Trainer};

/// An order to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum RankRequest {
    /// Report the switches that don't begin with their usual value.
    NoteFirstValues,
    /// Describe what it trains, and on which device.
    Describe,
    /// Put the wanted setup in force, in place of the present one.
    Flip { present: Box<Setup>, wanted: Box<Setup> },
    /// Train a step.
    Step,
    /// Do nothing: it has done this step already.
    Rest,
    /// Release cached segments.
    EmptyCache,
    /// Reset the peaks of the statistics.
    ResetPeaks,
}

/// A rank's reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The order is done.
    Done,
    /// What it trains, and on which device.
    About(Box<About>),
    /// The setup in force.
    InForce(Result<Setup, RankFault>),
    /// The result of the step.
    Stepped(Result<(), RankFault>),
}

/// Why a rank could not obey, in a form that can be sent to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RankFault {
    OutOfMemory { of_host: bool, requested: Bytes, left: Bytes, what: Arc<str> },
    Lost { device: String, reason: String },
    RankEnded(usize),
    Stopped,
    Other(String),
}

impl From<TrainError> for RankFault {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::OutOfMemory { kind, requested, left, what } => {
                Self::OutOfMemory { of_host: kind == MemoryKind::Host, requested, left, what }
            }
            TrainError::Device(DeviceError::Lost { device, reason }) => Self::Lost { device, reason },
            TrainError::RankEnded(rank) => Self::RankEnded(rank),
            TrainError::Stopped => Self::Stopped,
            error => Self::Other(error.to_string()),
        }
    }
}

impl From<RankFault> for TrainError {
    fn from(fault: RankFault) -> Self {
        match fault {
            RankFault::OutOfMemory { of_host, requested, left, what } => {
                let kind = if of_host { MemoryKind::Host } else { MemoryKind::Device };
                Self::OutOfMemory { kind, requested, left, what }
            }
            RankFault::Lost { device, reason } => Self::Device(DeviceError::Lost { device, reason }),
            RankFault::RankEnded(rank) => Self::RankEnded(rank),
            RankFault::Stopped => Self::Stopped,
            RankFault::Other(text) => Self::Workload(text),
        }
    }
}

/// Obeys an order to the rank that `spec` describes.
pub(super) fn obey(order: RankRequest, trainer: &mut Trainer, spec: &LabSpec) -> Reply {
    match order {
        RankRequest::NoteFirstValues => note_first_values(trainer, spec),
        RankRequest::Describe => return Reply::About(Box::new(spec.about(Some(trainer)))),
        RankRequest::Flip { present, wanted } if present == wanted => return Reply::InForce(Ok(*wanted)),
        RankRequest::Flip { present, wanted } => {
            let had = force::flip_with(trainer, &present, &wanted, configure);
            return Reply::InForce(had.map_err(|error| TrainError::from(error).into()));
        }
        RankRequest::Step => {
            let stepped = match &spec.seat {
                Some(seat) => step_beside(trainer, seat),
                None => trainer.step().map(drop),
            };
            return Reply::Stepped(stepped.map_err(Into::into));
        }
        RankRequest::Rest => return Reply::Stepped(Ok(())),
        RankRequest::EmptyCache => trainer.empty_cache(),
        RankRequest::ResetPeaks => trainer.reset_peak_memory_stats(),
    }
    Reply::Done
}

/// One step of a rank that waits for others. If it fails, the others stop waiting for it.
fn step_beside(trainer: &mut Trainer, seat: &Seat) -> Result<(), TrainError> {
    match (trainer.step(), seat.failed()) {
        // The results of a device are worthless if its exchanges ended meanwhile.
        (Ok(_), Some(other)) if trainer.memory().exchanges() => Err(TrainError::RankEnded(other)),
        (Ok(_), _) => Ok(()),
        (Err(TrainError::Stopped), _) => Err(TrainError::Stopped),
        (Err(error), _) => {
            // A device that is gone can't give memory either, and its kernels fail.
            let error = trainer.check_device().err().map_or(error, Into::into);
            seat.fail();
            Err(error)
        }
    }
}

/// Configures a rank. The batch in `config` is that of all ranks.
fn configure(trainer: &mut Trainer, config: Config) -> Result<(), TrainError> {
    let Some(member) = trainer.member() else { return trainer.configure(config) };
    let batch = member.samples(config.batch).map_err(|uneven| TrainError::Workload(uneven.to_string()))?;
    trainer.configure(Config { batch, ..config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fault_says_is_what_the_error_said() {
        let errors = [
            TrainError::OutOfMemory {
                kind: MemoryKind::Host,
                requested: Bytes::mib(3),
                left: Bytes::mib(2),
                what: "a batch".into(),
            },
            TrainError::Device(DeviceError::Lost { device: "cuda:0".to_owned(), reason: "it fell".to_owned() }),
            TrainError::RankEnded(3),
            TrainError::Stopped,
            TrainError::TwoOptimizers,
        ];
        for error in errors {
            let text = error.to_string();
            let fault = RankFault::from(error);
            let bytes = postcard::to_stdvec(&fault).unwrap();
            let read: RankFault = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read, fault);
            assert_eq!(TrainError::from(read).to_string(), text);
        }
    }
}
