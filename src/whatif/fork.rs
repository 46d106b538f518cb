//! What a change in the middle of a run would do: an emptied cache, or other settings from there on.

use super::ask::Ask;
use super::conditions::Conditions;
use super::player::Player;
use super::program::Program;
use vramlab_allocator::units::Bytes;

/// The reserved peaks from a step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkPeaks {
    /// Without a change.
    pub plain: Bytes,
    /// With the cache emptied before the step.
    pub emptied: Bytes,
    /// With other settings in force and the cache emptied, as both keys would do.
    pub changed: Option<Bytes>,
}

impl Program {
    /// Replays the run under its own conditions up to the beginning of a step, and from there in three ways: unchanged,
    /// with an emptied cache, and in addition with `settings` in force. `None` if the run has no such step.
    #[must_use]
    pub fn forked(&self, own: &Conditions, step: u64, settings: Option<&str>) -> Option<ForkPeaks> {
        let begins = |ask: &Ask| matches!(ask, Ask::StepBegin { step: of, .. } if *of == step);
        let at = self.asks().iter().position(begins)?;
        let (before, after) = self.asks().split_at(at);
        let mut plain = Player::new(own, self.places());
        before.iter().for_each(|ask| plain.play(ask));
        let mut emptied = plain.clone();
        emptied.play(&Ask::EmptyCache);
        let changed = settings.and_then(|text| {
            let mut changed = plain.clone();
            changed.change(text).then(|| {
                changed.play(&Ask::EmptyCache);
                changed
            })
        });
        let peak = |player: Player| peak_of_steps(player, after);
        Some(ForkPeaks { plain: peak(plain), emptied: peak(emptied), changed: changed.map(peak) })
    }
}

/// The most that whole steps reserved.
fn peak_of_steps(mut player: Player, asks: &[Ask]) -> Bytes {
    let mut peak = Bytes::ZERO;
    for ask in asks {
        player.play(ask);
        if matches!(ask, Ask::StepEnd { .. }) {
            peak = peak.max(player.history().latest().map_or(Bytes::ZERO, |column| column.reserved));
        }
    }
    peak
}
