//! Fused ops: the same training as the chains that they replace, in less memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]

#[path = "common/training.rs"]
mod training;

use vramlab::train::{Amp, Config, Libraries, Offload};

/// Losses and the peak of allocated bytes.
fn run(name: &str, amp: Amp, fuse: bool) -> (Vec<f32>, i64) {
    let (model, batch) = training::workload(name);
    let config = Config { amp, fuse, ..Config::new(batch) };
    let (mut trainer, _) = training::trainer(model, config, Libraries::HOPPER);
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
        ("gpt-mini", Amp::Bf16, 2e-2),
        ("bert-odd", Amp::Fp16, 2e-2),
        ("resnet-mini", Amp::Off, 2e-3),
        ("resnet-odd", Amp::Off, 2e-3),
        ("resnet-mini", Amp::Bf16, 5e-2),
        ("resnet-odd", Amp::Fp16, 5e-2),
        ("dcgan-mini", Amp::Off, 2e-3),
        ("dcgan-mini", Amp::Bf16, 5e-2),
    ] {
        let ((eager, eager_peak), (fused, fused_peak)) = (run(name, amp, false), run(name, amp, true));
        for (step, (eager, fused)) in eager.iter().zip(&fused).enumerate() {
            assert!(
                (eager - fused).abs() <= tolerance * eager.abs().max(1.0),
                "{name} {amp:?} step {step}: {eager} {fused}"
            );
        }
        assert!(fused_peak <= eager_peak, "{name} {amp:?}: {fused_peak} bytes are more than {eager_peak}");
    }
}

#[test]
fn where_tensors_wait_and_what_is_made_again_changes_no_fused_loss() {
    for (name, amp) in [("gpt-mini", Amp::Bf16), ("bert-odd", Amp::Off), ("vit-mini", Amp::Bf16)] {
        let losses = |change: fn(&mut Config)| {
            let (model, batch) = training::workload(name);
            let mut config = Config { amp, fuse: true, accumulation: 2, ..Config::new(batch) };
            change(&mut config);
            let (mut trainer, _) = training::trainer(model, config, Libraries::HOPPER);
            (0..4).map(|_| trainer.step().unwrap().loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        let plain = losses(|_| {});
        assert_eq!(losses(|config| config.checkpointing = true), plain, "{name} {amp:?} with checkpointing");
        assert_eq!(losses(|config| config.offload = Offload::Activations), plain, "{name} {amp:?} with offload");
        assert_eq!(losses(|config| config.offload = Offload::Overlapped), plain, "{name} {amp:?} with overlap");
    }
}
