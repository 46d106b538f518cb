//! The learning rate over the steps.

use std::f64::consts::PI;

use crate::config::{Config, Schedule};

/// The factor on the learning rate in step number `step`. The cosine is `CosineAnnealingLR` with a minimum of 0: it falls from
/// 1 to 0 within [`crate::Hyper::schedule_steps`], rises to 1 within as many, and so on.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2⁵³ steps")]
pub(super) fn factor(config: &Config, step: u64) -> f64 {
    match config.schedule {
        Schedule::Constant => 1.0,
        Schedule::Cosine => {
            let half = config.hyper.schedule_steps.max(1);
            let within = step % half.saturating_mul(2);
            0.5 * (1.0 + (PI * within as f64 / half as f64).cos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CosineAnnealingLR.get_lr` of PyTorch 2.11, which computes each rate from the one before.
    #[expect(clippy::cast_precision_loss, reason = "a hundred steps")]
    fn pytorch(half: u64, steps: u64) -> Vec<f64> {
        let angle = |step: u64| (PI * step as f64 / half as f64).cos();
        let mut rates = vec![1.0];
        for step in 1..steps {
            let last = rates[rates.len() - 1];
            // Python's remainder is positive for a negative number.
            let turns = step > half && (step - 1 - half).is_multiple_of(2 * half);
            rates.push(if turns {
                last + (1.0 - (PI / half as f64).cos()) / 2.0
            } else {
                (1.0 + angle(step)) / (1.0 + angle(step - 1)) * last
            });
        }
        rates
    }

    #[test]
    fn every_schedule_goes_as_pytorchs() {
        for half in [1, 2, 3, 4, 6, 7, 10, 25, 1000] {
            let mut config = Config { schedule: Schedule::Cosine, ..Config::new(1) };
            config.hyper.schedule_steps = half;
            for (step, expected) in (0..).zip(pytorch(half, 5 * half + 3)) {
                let ours = factor(&config, step);
                assert!((ours - expected).abs() < 1e-9, "{half} steps down, step {step}: {ours}, PyTorch {expected}");
            }
            config.schedule = Schedule::Constant;
            assert_eq!(factor(&config, 3 * half).to_bits(), 1.0_f64.to_bits());
        }
    }

    #[test]
    fn a_lab_left_on_the_cosine_goes_on_learning() {
        let config = Config { schedule: Schedule::Cosine, ..Config::new(1) };
        for round in 0..50 {
            let mean = (0..2000).map(|step| factor(&config, round * 2000 + step)).sum::<f64>() / 2000.0;
            assert!((mean - 0.5).abs() < 1e-3, "{mean}");
        }
        assert!(factor(&config, u64::MAX) >= 0.0);
    }
}
