//! What a person does for a remedy: keys on the screen, flags on a command line.

use super::switches::{Reach, Switch};
use crate::model::Remedy;

/// Where something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// At a lab that runs, with keys.
    Keys,
    /// On the command line of the next run.
    Flags,
}

impl Hand {
    /// How a remedy is done: `c (checkpoint on)`, `--ckpt`.
    #[must_use]
    pub fn does(self, remedy: &Remedy) -> String {
        let (keys, flags) = match remedy {
            Remedy::Flip { switch, value } => return self.flips(switch, value),
            Remedy::SmallerBatch { batch: 0 } => ("b (a smaller batch)", "a smaller --batch"),
            Remedy::SmallerBatch { batch } => match self {
                Self::Keys => return format!("b (batch {batch})"),
                Self::Flags => return format!("--batch {batch}"),
            },
            Remedy::EmptyCache => ("e (empty_cache)", "torch.cuda.empty_cache()"),
            Remedy::HigherLimit => ("L (a higher limit)", "a higher --limit"),
            Remedy::KeepNumbers => {
                ("keep loss.item() instead of the loss", "loss.item() in place of the loss that is kept")
            }
        };
        let words = match self {
            Self::Keys => keys,
            Self::Flags => flags,
        };
        words.to_owned()
    }

    fn flips(self, word: &str, value: &str) -> String {
        match (self, Switch::named(word)) {
            (Self::Keys, Some(switch)) if switch.reach() == Reach::Written => format!("{} ({value})", switch.key()),
            (Self::Keys, Some(switch)) if value == "off" => {
                format!("{} lets go ({} off)", switch.key(), switch.label())
            }
            (Self::Keys, Some(switch)) => format!("{} ({} {value})", switch.key(), switch.label()),
            (Self::Keys, None) => format!("{word} {value}"),
            (Self::Flags, Some(switch)) if switch.alone() == Some(value) => format!("--{word}"),
            (Self::Flags, _) => format!("--{word} {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_flags_say_the_same() {
        for (remedy, keys, flags) in [
            (Remedy::flip("ckpt", "on"), "c (checkpoint on)", "--ckpt"),
            (Remedy::flip("amp", "bf16"), "m (AMP bf16)", "--amp bf16"),
            (Remedy::SmallerBatch { batch: 8 }, "b (batch 8)", "--batch 8"),
            (Remedy::SmallerBatch { batch: 0 }, "b (a smaller batch)", "a smaller --batch"),
            (Remedy::HigherLimit, "L (a higher limit)", "a higher --limit"),
            (Remedy::flip("warp", "9"), "warp 9", "--warp 9"),
        ] {
            assert_eq!((&*Hand::Keys.does(&remedy), &*Hand::Flags.does(&remedy)), (keys, flags));
        }
    }
}
