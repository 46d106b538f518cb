//! Putting a card that is not there under a program: `--device sim:NAME` of `watch`.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};

use super::Usage;
use super::output::complain;
use super::spec::cards;
use crate::device::sim::CardError;
use crate::session::MemoryLimit;
use crate::standin::{self, Cards, Counts, Variable};
use crate::watch;

/// Cards of one machine, at most.
const MOST: usize = 64;

/// Which card a program sees.
#[derive(Debug, Args)]
pub(super) struct StandInArgs {
    /// Run the program on a card that is not there, such as sim:rtx-4090, or sim:h100-80gx8 for eight of them (see `vramlab list`).
    #[arg(long, value_name = "DEVICE", conflicts_with = "attach")]
    pub device: Option<String>,
    /// A smaller card of the same kind: its memory, such as 16GiB or 50%.
    #[arg(long, value_name = "SIZE", requires = "device")]
    pub limit: Option<MemoryLimit>,
}

impl StandInArgs {
    /// The cards that were asked for.
    ///
    /// # Errors
    /// [`Usage`] for what names no card.
    pub fn cards(&self) -> Result<Option<Cards>> {
        let Some(device) = &self.device else { return Ok(None) };
        let name = device.strip_prefix("sim:").ok_or_else(|| {
            Usage(format!("'{device}' is no card to put under a program; give --device sim:NAME, or leave it out for the GPU that is there"))
        })?;
        let known = cards();
        let (card, count) = match known.card(name) {
            Ok(card) => (card, 1),
            Err(error @ CardError::Unknown { .. }) => match several(name) {
                Some((name, count)) => (known.card(name).map_err(|error| Usage(error.to_string()))?, count),
                None => return Err(Usage(error.to_string()).into()),
            },
            Err(error) => return Err(Usage(error.to_string()).into()),
        };
        let memory = self.limit.map(|limit| limit.of(card.memory));
        Ok(Some(Cards { card, count, memory }))
    }

    /// The arguments again, as they were given.
    pub fn words(&self) -> Vec<String> {
        let device = self.device.iter().flat_map(|device| ["--device".to_owned(), device.clone()]);
        let limit = self.limit.iter().flat_map(|limit| ["--limit".to_owned(), limit.to_string()]);
        device.chain(limit).collect()
    }
}

/// `h100-80gx8`: eight of them.
fn several(name: &str) -> Option<(&str, usize)> {
    let (name, count) = name.rsplit_once('x')?;
    count.parse().ok().filter(|count| (1..=MOST).contains(count)).map(|count| (name, count))
}

/// A stand-in that a program can be started on.
pub(super) struct Placed {
    /// What its environment must have.
    pub variables: Vec<Variable>,
    /// Where its processes count.
    pub folder: PathBuf,
}

/// Writes the stand-in beside what a watched program needs: both go when it ends.
pub(super) fn place(cards: &Cards) -> Result<Placed> {
    let folder = watch::folder()?.join("stand-in");
    let variables = standin::install(&folder, cards).wrap_err("the card can't be put under the program")?;
    Ok(Placed { variables, folder })
}

/// What a program did that the figures hang on.
pub(super) fn tell(counts: &Counts) {
    let reads = |count: u64| if count == 1 { "1 read".to_owned() } else { format!("{count} reads") };
    if counts.unknown_reads > 0 {
        complain(format_args!(
            "{} of values that were not computed: they were zero. What the program decided by them may differ on a card.",
            reads(counts.unknown_reads)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(device: &str) -> Result<Option<Cards>> {
        StandInArgs { device: Some(device.to_owned()), limit: None }.cards()
    }

    #[test]
    fn cards_are_named_alone_or_with_their_number() {
        let count = |device: &str| asked(device).unwrap().map(|cards| (cards.card.name, cards.count));
        assert_eq!(count("sim:h200"), Some(("h200".to_owned(), 1)));
        assert_eq!(count("sim:h100-80gx8"), Some(("h100-80g".to_owned(), 8)));
        assert_eq!(count("sim:rtx-4090"), Some(("rtx-4090".to_owned(), 1)), "no x of its name is a number");
    }

    #[test]
    fn what_names_no_card_is_wrong_usage() {
        for device in ["cuda", "cpu", "sim:", "sim:h300", "sim:h200x0", "sim:h200x65", "sim:h200x"] {
            let error = asked(device).unwrap_err();
            assert!(error.is::<Usage>(), "{device}: {error}");
        }
    }
}
