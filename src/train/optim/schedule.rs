//! The learning rate over the steps.

use std::f64::consts::PI;

use crate::train::config::{Config, Schedule};

/// The factor on the learning rate in step number `step`. The cosine goes from 1 towards 0 within
/// [`crate::train::Hyper::schedule_steps`] and begins again (`CosineAnnealingWarmRestarts` with a minimum of 0).
#[expect(clippy::cast_precision_loss, reason = "fewer than 2⁵³ steps")]
pub(super) fn factor(config: &Config, step: u64) -> f64 {
    match config.schedule {
        Schedule::Constant => 1.0,
        Schedule::Cosine => {
            let period = config.hyper.schedule_steps.max(1);
            0.5 * (1.0 + (PI * (step % period) as f64 / period as f64).cos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cosine_falls_and_begins_again() {
        let mut config = Config { schedule: Schedule::Cosine, ..Config::new(1) };
        config.hyper.schedule_steps = 4;
        let factors: Vec<f64> = (0..6).map(|step| factor(&config, step)).collect();
        let expected = [1.0, 0.853_553_390_593_273_8, 0.5, 0.146_446_609_406_726_2, 1.0, 0.853_553_390_593_273_8];
        assert!(factors.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{factors:?}");
        config.schedule = Schedule::Constant;
        assert_eq!(factor(&config, 3).to_bits(), 1.0_f64.to_bits());
    }
}
