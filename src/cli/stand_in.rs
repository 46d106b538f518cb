//! Runs a program on a card that is not there: `--device sim:NAME` of `watch`.

use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};

use super::Usage;
use super::output::complain;
use super::spec::cards;
use crate::device::sim::CardError;
use crate::session::MemoryLimit;
use crate::standin::{self, Cards, Counts, Read, Reads, Variable};
use crate::train::{Libraries, Skips};
use crate::watch;

/// The variable that says which steps of a gradient scaler overflow.
const SKIP_STEPS: &str = "VRAMLAB_SKIP_STEPS";
/// Source lines that are listed.
const LINES: usize = 5;
/// The most cards of one machine.
const MOST: usize = 64;

/// Which card a program sees.
#[derive(Debug, Args)]
pub(super) struct StandInArgs {
    /// Run the program without a GPU, on a simulated card such as sim:rtx-4090, or sim:h100-80gx8 for eight of them (see
    /// `vramlab list`).
    #[arg(long, value_name = "DEVICE", conflicts_with = "attach")]
    pub device: Option<String>,
    /// Give the card less memory, such as 16GiB or 50% of its own.
    #[arg(long, value_name = "SIZE", requires = "device")]
    pub limit: Option<MemoryLimit>,
    /// Let the first N steps of a gradient scaler overflow, so that it skips them, as it may on a real card. 1..4 lets the steps
    /// 1 to 3 overflow. If it has several optimizers, commas separate them: 1..3,0 is 1..3 for the first one and 0 for all
    /// others.
    #[arg(long, value_name = "N", requires = "device", value_delimiter = ',')]
    pub skip_steps: Vec<Skips>,
}

impl StandInArgs {
    /// The requested cards.
    ///
    /// # Errors
    /// [`Usage`] if the text names no card.
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
        let libraries = Libraries { compute_capability: card.compute_capability, ..Libraries::HOPPER };
        if libraries.rocm() {
            let title = &card.title;
            return Err(Usage(format!(
                "PyTorch for CUDA runs on no {title}; give a card of NVIDIA's, or ask vramlab run"
            ))
            .into());
        }
        let memory = self.limit.map(|limit| limit.of(card.memory));
        Ok(Some(Cards { card, count, memory }))
    }

    /// The arguments as they were given.
    pub fn words(&self) -> Vec<String> {
        let device = self.device.iter().flat_map(|device| ["--device".to_owned(), device.clone()]);
        let limit = self.limit.iter().flat_map(|limit| ["--limit".to_owned(), limit.to_string()]);
        let skip = spelled(&self.skip_steps).into_iter().flat_map(|steps| ["--skip-steps".to_owned(), steps]);
        device.chain(limit).chain(skip).collect()
    }
}

/// The skipped steps of each optimizer, as they were given; `None` if there are none.
fn spelled(skip_steps: &[Skips]) -> Option<String> {
    let each: Vec<String> = skip_steps.iter().map(Skips::to_string).collect();
    (!each.is_empty()).then(|| each.join(","))
}

/// `h100-80gx8`: eight of them.
fn several(name: &str) -> Option<(&str, usize)> {
    let (name, count) = name.rsplit_once('x')?;
    count.parse().ok().filter(|count| (1..=MOST).contains(count)).map(|count| (name, count))
}

/// A stand-in that a program can be started on.
pub(super) struct StandInFiles {
    /// The environment that the program needs.
    pub variables: Vec<Variable>,
    /// The folder in which its processes write their counts.
    pub folder: PathBuf,
}

/// Writes the stand-in beside the files that a watched program needs: both are removed when it ends.
pub(super) fn place(cards: &Cards, skip_steps: &[Skips]) -> Result<StandInFiles> {
    let folder = watch::folder()?.join("stand-in");
    let mut variables = standin::install(&folder, cards).wrap_err("the card can't be put under the program")?;
    variables.extend(spelled(skip_steps).map(|steps| (SKIP_STEPS.into(), steps.into())));
    Ok(StandInFiles { variables, folder })
}

/// Reports which values the program read that nothing computed, and what was estimated for it: the figures may depend on both.
pub(super) fn tell(folder: &Path) {
    let reads = Reads::read(folder);
    let counts = Counts::read(folder);
    // If no process's values were followed, the stand-in's own count is used.
    let count = if reads.processes > 0 { reads.count() } else { counts.unknown_reads };
    if count > 0 {
        for line in told(count, &reads.rows) {
            complain(line);
        }
    }
    complain_of_workspaces(counts.estimated_workspaces);
}

fn complain_of_workspaces(count: u64) {
    if count > 0 {
        let workspaces = if count == 1 { "1 workspace".to_owned() } else { format!("{count} workspaces") };
        complain(format!(
            "{workspaces} of cuDNN's convolutions or recurrent nets estimated: this card was not asked for these shapes. Peaks may differ \
             on it (vramlab guide stand-in)."
        ));
    }
}

fn told(count: u64, rows: &[Read]) -> Vec<String> {
    let reads = if count == 1 { "1 read".to_owned() } else { format!("{count} reads") };
    let mut lines = vec![format!(
        "{reads} of values that were not computed. What the program decided by them may differ on a card (vramlab guide read-back):"
    )];
    for row in rows.iter().take(LINES) {
        let place =
            if row.file.is_empty() { "no line of its own".to_owned() } else { format!("{}:{}", row.file, row.line) };
        lines.push(format!("  {place}  {} × {} ({}): {}", row.count, row.rule, row.dtype, row.taken));
    }
    match rows.len().saturating_sub(LINES) {
        0 if rows.is_empty() => lines[0] = lines[0].trim_end_matches(':').to_owned() + ". They were zero.",
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(device: &str) -> Result<Option<Cards>> {
        StandInArgs { device: Some(device.to_owned()), limit: None, skip_steps: Vec::new() }.cards()
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

    #[test]
    fn reads_are_told_by_line() {
        let row = |line| Read {
            file: "train.py".to_owned(),
            line,
            rule: "item".to_owned(),
            taken: "zero, or false".to_owned(),
            dtype: "float32".to_owned(),
            count: 7,
        };
        let lines = told(42, &(1..=6).map(row).collect::<Vec<_>>());
        assert!(lines[0].starts_with("42 reads of values that were not computed."), "{}", lines[0]);
        assert_eq!(lines[1], "  train.py:1  7 × item (float32): zero, or false");
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[6], "  and 1 more");
        assert!(told(1, &[])[0].ends_with("They were zero."), "{}", told(1, &[])[0]);
    }
}
