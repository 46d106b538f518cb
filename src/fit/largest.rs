//! The largest batch of a lab.

use super::{Control, FitError, Probe, ProbeOutcome, SearchNews, Terms, probe, search};
use crate::session::LabSpec;
use crate::train::Config;
use crate::workload::BatchSize;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Largest {
    /// The largest batch that was seen to fit, in samples; `None` if none did.
    pub batch: Option<usize>,
    /// All probes in order.
    pub probes: Vec<Probe>,
    /// Batches below the largest that do not fit.
    pub holes: Vec<usize>,
    /// True if the search was completed: the next batches don't fit.
    pub complete: bool,
}

impl Largest {
    /// The probe of the largest batch that fits.
    #[must_use]
    pub fn best(&self) -> Option<&Probe> {
        self.probes.iter().find(|probe| Some(probe.batch) == self.batch)
    }

    /// The probe of the smallest larger batch that was tried, which says why it does not fit.
    #[must_use]
    pub fn beyond(&self) -> Option<&Probe> {
        let largest = self.batch.unwrap_or(0);
        self.probes.iter().filter(|probe| probe.batch > largest && !probe.fits()).min_by_key(|probe| probe.batch)
    }
}

/// Searches for the largest batch of `spec` whose first `steps` steps go through, beginning with its own.
///
/// Batches are whole micro-batches: with accumulation over n micro-batches, multiples of n.
///
/// # Errors
/// See [`probe()`].
pub fn largest_batch(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<Largest, FitError> {
    let unit = spec.config.accumulation.max(1);
    let mut search = LargestSearch { spec, steps, terms, control, unit, found: Largest::default() };
    let most = BatchSize::MOST.get() / unit;
    let start = (spec.config.batch / unit).max(1);
    let Some(outcome) = search::largest(start, most, |units| search.fits(units))? else { return Ok(search.found) };
    let outcome = outcome.map(|units| units * unit);
    let mut found = search.found;
    found.complete = true;
    found.batch = outcome;
    let largest = outcome.unwrap_or(0);
    found.holes = found.probes.iter().filter(|p| p.batch < largest && !p.fits()).map(|p| p.batch).collect();
    found.holes.sort_unstable();
    Ok(found)
}

struct LargestSearch<'a> {
    spec: &'a LabSpec,
    steps: u64,
    terms: Terms,
    control: &'a Control<'a>,
    /// Batches are multiples of this many samples.
    unit: usize,
    found: Largest,
}

impl LargestSearch<'_> {
    /// Whether a batch of this many units fits; `None` if the search was stopped.
    fn fits(&mut self, units: usize) -> Result<Option<bool>, FitError> {
        let batch = units * self.unit;
        if let Some(known) = self.found.probes.iter().find(|probe| probe.batch == batch) {
            return Ok(Some(known.fits()));
        }
        self.control.tell(SearchNews::Trying { batch });
        let spec = LabSpec { config: Config { batch, ..self.spec.config }, ..self.spec.clone() };
        let outcome = probe(&spec, self.steps, self.terms, self.control)?;
        if outcome == ProbeOutcome::Stopped {
            return Ok(None);
        }
        let probe = Probe { batch, outcome };
        self.control.tell(SearchNews::Tried(&probe));
        let fits = probe.fits();
        if fits {
            self.found.batch = self.found.batch.max(Some(batch));
        }
        self.found.probes.push(probe);
        Ok(Some(fits))
    }
}
