//! A step of two models trained against each other: first the discriminator, then the generator.

use std::rc::Rc;

use crate::train::error::{OpResult, TrainError};
use crate::train::workload::{Model, Outcome};

use super::Trainer;

impl Trainer {
    pub(super) fn adversarial_step(&mut self, [_generator, _discriminator]: &[Rc<dyn Model>; 2]) -> OpResult<Outcome> {
        Err(TrainError::Workload("no workload of this build trains two models against each other".into()).into())
    }
}
