//! Looks for settings under which a program takes less memory: each is tried before it is told.

use rayon::prelude::*;

use super::conditions::{Conditions, ConditionsError};
use super::figures::Figures;
use super::program::Program;
use super::recorded::RecordedRun;
use vramlab_allocator::units::Bytes;
use vramlab_allocator::{Settings, TorchVersion};
use vramlab_model::{Remedy, RemedyTrial};

/// Settings that were tried, and a program's figures under them: predicted, not run.
#[derive(Clone, Debug)]
pub struct TuningTrial {
    /// The settings.
    pub conditions: Conditions,
    /// The program's figures.
    pub figures: Figures,
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every value alone, with and without expandable segments.
    Short,
    /// Then the best of each key together.
    Full,
}

/// All that was tried on a program.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// In the order in which it was tried: the defaults first.
    pub tried: Vec<TuningTrial>,
}

/// A key of the settings, and the values that are tried.
struct TunedKey {
    name: &'static str,
    values: &'static [&'static str],
    /// It does something only where memory is bounded.
    bounded: bool,
}

/// What is tried with and without expandable segments.
const KEYS: [TunedKey; 4] = [
    TunedKey {
        name: "max_split_size_mb",
        values: &["21", "32", "64", "128", "256", "512", "1024", "2048"],
        bounded: false,
    },
    TunedKey { name: "roundup_power2_divisions", values: &["1", "2", "4", "8", "16"], bounded: false },
    TunedKey { name: "large_segment_size_mb", values: &["12", "16", "32", "64", "128"], bounded: false },
    TunedKey { name: "garbage_collection_threshold", values: &["0.6", "0.8", "0.9"], bounded: true },
];

const EXPANDABLE: &str = "expandable_segments:True";
/// Values of a key that are tried together with those of other keys, beside leaving it out.
const KEPT: usize = 3;

/// Remedies that are enough to choose from.
const TOLD: usize = 3;

/// One choice: whether segments expand, and for each of [`KEYS`] a value, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SettingsChoice {
    expandable: bool,
    values: [Option<&'static str>; KEYS.len()],
}

impl SettingsChoice {
    fn text(&self) -> String {
        let keys = KEYS.iter().zip(self.values).filter_map(|(key, value)| Some(format!("{}:{}", key.name, value?)));
        let words: Vec<String> = self.expandable.then(|| EXPANDABLE.to_owned()).into_iter().chain(keys).collect();
        words.join(",")
    }

    fn with(self, key: usize, value: Option<&'static str>) -> Self {
        let mut choice = self;
        choice.values[key] = value;
        choice
    }
}

impl TuningTrial {
    /// Calls of the driver.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.figures.segments_allocated + self.figures.segments_freed
    }

    /// Every request was served.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.figures.ooms == 0
    }

    /// Keys that it sets.
    fn words(&self) -> usize {
        self.conditions.text().split(',').filter(|word| !word.is_empty()).count()
    }

    /// At least as good in both, and better in one; of two that are as good, the one with fewer words.
    fn beats(&self, other: &Self) -> bool {
        let (mine, theirs) = ((self.figures.peak_reserved, self.calls()), (other.figures.peak_reserved, other.calls()));
        mine.0 <= theirs.0 && mine.1 <= theirs.1 && (mine != theirs || self.words() < other.words())
    }
}

impl Tuning {
    /// Tries settings on what a run asked, on all cores: those whose keys the `oldest` PyTorch knows that it may be of.
    /// `progress` hears how many of how many are done.
    ///
    /// # Errors
    /// [`ConditionsError`], where the conditions of the run can't be had.
    pub fn of(
        recorded: &RecordedRun,
        limit: Option<Bytes>,
        effort: Effort,
        oldest: TorchVersion,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self, ConditionsError> {
        let known = |choice: &SettingsChoice| {
            !matches!(recorded.under(&choice.text()), Err(ConditionsError::Settings(_)))
                && Settings::parse_for(oldest, &choice.text()).is_ok()
        };
        let bounded = limit.is_some() || recorded.facts.conditions.bounds_memory();
        let keys = || (0..KEYS.len()).filter(|key| bounded || !KEYS[*key].bounded);
        let mut choices = Vec::new();
        for expandable in [false, true] {
            let bare = SettingsChoice { expandable, ..SettingsChoice::default() };
            choices.push(bare);
            for key in keys() {
                choices.extend(KEYS[key].values.iter().map(|value| bare.with(key, Some(value))));
            }
        }
        // Some values ask for others, and not every PyTorch knows every key.
        choices.retain(known);
        let together = if effort == Effort::Short {
            0
        } else {
            2 * (KEPT as u64 + 1).pow(u32::try_from(keys().count()).unwrap_or(0))
        };
        let total = choices.len() as u64 + together;
        let mut tried = try_all(&choices, recorded, limit, &|done| progress(done, total))?;
        if effort == Effort::Short {
            return Ok(Self { tried });
        }
        let first = choices.len() as u64;
        // The best values of each key, wherever segments expand or not.
        let mut products =
            vec![SettingsChoice::default(), SettingsChoice { expandable: true, ..SettingsChoice::default() }];
        for key in keys() {
            let mut alone: Vec<(usize, &str)> =
                (0..choices.len()).filter_map(|index| Some((index, choices[index].values[key]?))).collect();
            alone.sort_by_key(|(index, _)| {
                let of = &tried[*index];
                (of.figures.ooms, of.figures.peak_reserved, of.calls())
            });
            let mut best: Vec<&'static str> = Vec::new();
            for (index, _) in alone {
                if let Some(value) = choices[index].values[key].filter(|value| !best.contains(value))
                    && best.len() < KEPT
                {
                    best.push(value);
                }
            }
            let with = |choice: &SettingsChoice| -> Vec<SettingsChoice> {
                std::iter::once(*choice).chain(best.iter().map(|value| choice.with(key, Some(value)))).collect()
            };
            products = products.iter().flat_map(with).collect();
        }
        products.retain(|choice| !choices.contains(choice) && known(choice));
        let total = first + products.len() as u64;
        let more = try_all(&products, recorded, limit, &|done| progress(first + done, total))?;
        tried.extend(more);
        Ok(Self { tried })
    }

    /// Those that no other beats in the peak of reserved and in calls of the driver; the lowest peak first. Where something fits,
    /// what does not is left out.
    #[must_use]
    pub fn front(&self) -> Vec<&TuningTrial> {
        let any = self.tried.iter().any(TuningTrial::fits);
        let fit: Vec<&TuningTrial> = self.tried.iter().filter(|tried| tried.fits() || !any).collect();
        let mut front: Vec<&TuningTrial> = Vec::new();
        for tried in &fit {
            let same = |other: &&&TuningTrial| {
                (other.figures.peak_reserved, other.calls()) == (tried.figures.peak_reserved, tried.calls())
            };
            if !fit.iter().any(|other| other.beats(tried)) && !front.iter().any(|other| same(&other)) {
                front.push(tried);
            }
        }
        front.sort_by_key(|tried| (tried.figures.peak_reserved, tried.calls()));
        front
    }

    /// What to change the settings of `run` to: the simplest that fit and have a peak within 1 % of the lowest. `None` where
    /// that is not worth it: the run went through, and its peak is no more than 1 % higher.
    #[must_use]
    pub fn recommended(&self, run: &RecordedRun) -> Option<&TuningTrial> {
        Self::for_all(&[(self, run)])?.first().copied()
    }

    /// The same settings for several runs that start with the same environment: devices of a process, ranks of a job. What is low
    /// is the sum of their peaks. One entry for each run.
    #[must_use]
    pub fn for_all<'a>(runs: &[(&'a Self, &RecordedRun)]) -> Option<Vec<&'a TuningTrial>> {
        let ((first, _), others) = runs.split_first()?;
        let everywhere = |tried: &'a TuningTrial| -> Option<Vec<&'a TuningTrial>> {
            let text = tried.conditions.text();
            let beside =
                |(tuning, _): &(&'a Self, &RecordedRun)| tuning.tried.iter().find(|of| of.conditions.text() == text);
            let mut all = vec![tried];
            all.extend(others.iter().map(beside).collect::<Option<Vec<_>>>()?);
            all.iter().all(|tried| tried.fits()).then_some(all)
        };
        let sum = |of: &[&TuningTrial]| -> Bytes { of.iter().map(|tried| tried.figures.peak_reserved).sum() };
        let fit: Vec<Vec<&TuningTrial>> = first.tried.iter().filter_map(everywhere).collect();
        let lowest = fit.iter().map(|of| sum(of)).min()?;
        let near = |peak: Bytes| peak.get() <= lowest.get() + lowest.get() / 100;
        let calls = |of: &[&TuningTrial]| of.iter().map(|tried| tried.calls()).sum::<u64>();
        let best = fit
            .into_iter()
            .filter(|of| near(sum(of)))
            .min_by_key(|of| (of.first().map(|tried| tried.words()), calls(of), sum(of)))?;
        let served = runs.iter().any(|(_, run)| run.facts.figures.ooms > 0);
        let recorded: Bytes = runs.iter().map(|(_, run)| run.facts.figures.peak_reserved).sum();
        (served || !near(recorded)).then_some(best)
    }

    /// Those of [`Tuning::front`] that are worth a row beside a run: where no request failed in it, such as lower its peak by 1 % or
    /// more; else such as serve every request.
    #[must_use]
    pub fn worth_telling(&self, run: &RecordedRun) -> Vec<&TuningTrial> {
        let before = run.facts.figures.peak_reserved.get();
        let helps = |tried: &&TuningTrial| match run.facts.figures.ooms {
            0 => tried.figures.peak_reserved.get() + before / 100 <= before,
            _ => tried.fits(),
        };
        self.front().into_iter().filter(helps).collect()
    }

    /// The settings that serve most of the requests that failed in the run, where some do and none serve all.
    #[must_use]
    pub fn serves_most(&self) -> Option<&TuningTrial> {
        let some = self.tried.iter().filter(|tried| tried.figures.served > 0);
        some.min_by_key(|tried| (tried.figures.ooms, std::cmp::Reverse(tried.figures.served), tried.words()))
    }

    /// What was tried for requests that failed: settings under which every one is served, the lowest peak first; where there are
    /// none, expandable segments, which did not help.
    #[must_use]
    pub fn remedied(&self) -> Vec<RemedyTrial> {
        let remedied = |tried: &TuningTrial| RemedyTrial {
            remedy: Remedy::settings(tried.conditions.text().to_owned()),
            fits: tried.fits(),
            peak_reserved: tried.figures.peak_reserved,
        };
        if self.tried.iter().any(TuningTrial::fits) {
            return self.front().into_iter().take(TOLD).map(remedied).collect();
        }
        let expandable = |tried: &&TuningTrial| tried.conditions.settings.expandable_segments;
        self.tried.iter().find(expandable).map(remedied).into_iter().collect()
    }

    /// What PyTorch does when it is told nothing.
    #[must_use]
    pub fn defaults(&self) -> Option<&TuningTrial> {
        self.tried.first()
    }
}

fn try_all(
    choices: &[SettingsChoice],
    recorded: &RecordedRun,
    limit: Option<Bytes>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<TuningTrial>, ConditionsError> {
    let done = std::sync::atomic::AtomicU64::new(0);
    let program: &Program = &recorded.program;
    let try_one = |choice: &SettingsChoice| {
        let mut conditions = recorded.under(&choice.text())?;
        conditions.limit = limit.or(conditions.limit);
        let figures = program.replay(&conditions).figures;
        progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1);
        Ok(TuningTrial { conditions, figures })
    };
    choices.par_iter().map(try_one).collect()
}
