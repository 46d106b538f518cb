//! Fused ops: the same training as with the chains of ops that they replace, in less memory.

use vramlab::train::{Amp, Checkpointing, Config, Libraries, Offload, OptimizerKind, Trainer};

/// Losses and the peak of allocated bytes.
fn run(name: &str, amp: Amp, fuse: bool) -> (Vec<f32>, i64) {
    let (model, batch) = crate::training::workload(name);
    let config = Config { amp, fuse, ..Config::new(batch) };
    let (mut trainer, _) = crate::training::trainer(model, config, Libraries::HOPPER);
    let losses = (0..12).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    (losses, trainer.statistics().allocated_bytes.all.peak)
}

#[test]
fn fused_training_loses_what_eager_training_does() {
    for (name, amp, tolerance) in [
        ("gpt-mini", Amp::Off, 1e-5),
        ("bert-mini", Amp::Off, 1e-5),
        ("mlp-mini", Amp::Off, 1e-5),
        ("vit-mini", Amp::Off, 1e-5),
        ("llama-mini", Amp::Off, 1e-5),
        ("gpt-mini", Amp::Bf16, 2e-2),
        ("llama-mini", Amp::Bf16, 2e-2),
        ("bert-odd", Amp::Fp16, 2e-2),
        ("llama-odd", Amp::Bf16, 2e-2),
    ] {
        let ((eager, eager_peak), (fused, fused_peak)) = (run(name, amp, false), run(name, amp, true));
        for (step, (eager, fused)) in eager.iter().zip(&fused).enumerate() {
            assert!((eager - fused).abs() <= tolerance * eager.abs(), "{name} {amp:?} step {step}: {eager} {fused}");
        }
        assert!(fused_peak <= eager_peak, "{name} {amp:?}: {fused_peak} bytes are more than {eager_peak}");
    }
}

#[test]
fn where_tensors_wait_and_what_is_made_again_changes_no_fused_loss() {
    for (name, amp) in [
        ("gpt-mini", Amp::Bf16),
        ("bert-odd", Amp::Off),
        ("vit-mini", Amp::Bf16),
        ("llama-mini", Amp::Bf16),
        ("llama-odd", Amp::Bf16),
    ] {
        let losses = |change: fn(&mut Config)| {
            let (model, batch) = crate::training::workload(name);
            let mut config = Config { amp, fuse: true, accumulation: 2, ..Config::new(batch) };
            change(&mut config);
            let (mut trainer, _) = crate::training::trainer(model, config, Libraries::HOPPER);
            (0..4).map(|_| trainer.step().unwrap().loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        let plain = losses(|_| {});
        assert_eq!(
            losses(|config| config.checkpointing = Checkpointing::ALL),
            plain,
            "{name} {amp:?} with checkpointing"
        );
        assert_eq!(losses(|config| config.offload = Offload::Activations), plain, "{name} {amp:?} with offload");
        assert_eq!(losses(|config| config.offload = Offload::Overlapped), plain, "{name} {amp:?} with overlap");
    }
}

/// Loss of the first step, what that step added to every parameter, and the peak of allocated bytes.
fn first_step(name: &str, amp: Amp, fuse: bool) -> (f32, Vec<(String, Vec<f32>)>, i64) {
    let (model, batch) = crate::training::workload(name);
    let config = Config { amp, fuse, optimizer: OptimizerKind::Sgd, ..Config::new(batch) };
    let (mut trainer, _) = crate::training::trainer(model, config, Libraries::HOPPER);
    let read = |trainer: &Trainer| -> Vec<(String, Vec<f32>)> {
        let values = trainer.parameters().map(|(name, parameter)| {
            let mut bytes = vec![0; 4 * parameter.numel()];
            trainer.memory().read(parameter, &mut bytes).unwrap();
            (name.to_owned(), bytes.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect())
        });
        values.collect()
    };
    let before = read(&trainer);
    let loss = trainer.step().unwrap().loss.unwrap();
    let mut steps = read(&trainer);
    for ((_, step), (_, before)) in steps.iter_mut().zip(&before) {
        step.iter_mut().zip(before).for_each(|(step, before)| *step -= before);
    }
    (loss, steps, trainer.statistics().allocated_bytes.all.peak)
}

/// Batch norm over few elements amplifies rounding within a few steps, so only the first step's gradients are compared.
#[test]
fn fused_images_have_eager_gradients() {
    for (name, amp, tolerance) in [
        ("resnet-mini", Amp::Off, 1e-3),
        ("resnet-odd", Amp::Off, 3e-2),
        ("dcgan-mini", Amp::Off, 3e-2),
        ("resnet-mini", Amp::Bf16, 0.8),
        ("resnet-odd", Amp::Fp16, 0.2),
        ("dcgan-mini", Amp::Bf16, 0.4),
    ] {
        let ((eager_loss, eager, eager_peak), (loss, fused, peak)) =
            (first_step(name, amp, false), first_step(name, amp, true));
        assert!((eager_loss - loss).abs() <= 0.1 * tolerance * eager_loss, "{name} {amp:?}: {eager_loss} {loss}");
        for ((parameter, eager), (_, fused)) in eager.iter().zip(&fused) {
            let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
            let error = norm(&mut eager.iter().zip(fused).map(|(a, b)| a - b));
            let size = norm(&mut eager.iter().copied());
            assert!(error <= tolerance * size, "{name} {amp:?} {parameter}: {error} of {size}");
        }
        // Weights and images are copied to the other layout: in models as small as these, this is much.
        assert!(peak * 2 <= eager_peak * 3, "{name} {amp:?}: {peak} bytes are more than {eager_peak}");
    }
}
