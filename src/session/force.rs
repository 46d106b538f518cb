//! How wanted switches come into force between two steps.

use super::{LabSpec, Setup, switches};
use vramlab_device::DeviceError;
use vramlab_model::EventKind;
use vramlab_train::{Config, TrainError, Trainer};

/// Notes the switches that don't begin with their usual value.
pub(super) fn note_first_values(trainer: &Trainer, spec: &LabSpec) {
    note(trainer, &Setup::new(Config::new(spec.config.batch)), &spec.setup());
}

fn note(trainer: &Trainer, from: &Setup, to: &Setup) {
    for flipped in switches::differences(from, to) {
        trainer.note_switch(flipped.switch.word(), &flipped.from, &flipped.to);
    }
}

/// Marks each changed switch in the event stream and puts the wanted values in force. Returns what is then in force. A
/// value that is not possible stays as it was, and the log says why: a batch that does not fit, or allocator settings
/// that PyTorch would refuse.
///
/// # Errors
/// If the device is lost.
pub(super) fn flip(trainer: &mut Trainer, present: &Setup, wanted: &Setup) -> Result<Setup, DeviceError> {
    flip_with(trainer, present, wanted, Trainer::configure)
}

/// Like [`flip`], with `configure` to put the configuration in force.
///
/// # Errors
/// If the device is lost.
pub(super) fn flip_with(
    trainer: &mut Trainer,
    present: &Setup,
    wanted: &Setup,
    configure: impl Fn(&mut Trainer, Config) -> Result<(), TrainError>,
) -> Result<Setup, DeviceError> {
    let mut setup = wanted.clone();
    let refused = |trainer: &Trainer, why: String| trainer.memory().emit(EventKind::Notice { text: why.into() });
    if setup.alloc_conf != present.alloc_conf
        && let Err(error) = trainer.apply_alloc_conf(&setup.alloc_conf)
    {
        refused(trainer, format!("allocator settings refused: {error}"));
        setup.alloc_conf = present.alloc_conf.clone();
    }
    note(trainer, present, &setup);
    if setup.limit != present.limit {
        // The news of a flip mentions what is still held, and if that is more than the limit.
        trainer.set_limit(setup.limit.map(|limit| limit.of(trainer.device_info().memory)));
    }
    if setup.config != present.config
        && let Err(error) = configure(trainer, setup.config)
    {
        trainer.check_device()?;
        refused(
            trainer,
            match error {
                TrainError::OutOfMemory { .. } => {
                    "refused: the batches of that configuration do not fit; it stays as it was".to_owned()
                }
                error => format!("refused: {error}"),
            },
        );
        let asked = setup.clone();
        setup.config = present.config;
        note(trainer, &asked, &setup);
    }
    Ok(setup)
}
