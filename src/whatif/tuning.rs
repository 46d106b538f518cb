//! Searches for settings under which a program needs less memory. Each is tried before it is reported.

use rayon::prelude::*;

use super::conditions::{Conditions, ConditionsError};
use super::figures::Figures;
use super::program::Program;
use super::recorded::RecordedRun;
use vramlab_allocator::units::Bytes;
use vramlab_allocator::{Settings, TorchVersion};
use vramlab_model::{Remedy, RemedyTrial};

/// Settings that were tried, and a program's figures under them, predicted and not run.
#[derive(Clone, Debug)]
pub struct TuningTrial {
    /// The settings.
    pub conditions: Conditions,
    /// The program's figures.
    pub figures: Figures,
}

/// How many settings are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every value by itself, with and without expandable segments.
    Short,
    /// In addition, combinations of the best values of each key.
    Full,
}

/// Everything that was tried on a program.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// The trials in order: the defaults first.
    pub tried: Vec<TuningTrial>,
}

/// A key of the settings, and the values that are tried.
struct TunedKey {
    name: &'static str,
    values: &'static [&'static str],
    /// True if the key has an effect only when memory is bounded.
    bounded: bool,
}

/// The keys that are tried with and without expandable segments.
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
/// How many values of a key are combined with those of other keys, in addition to leaving it out.
const KEPT: usize = 3;

/// How many remedies are enough to choose from.
const TOLD: usize = 3;

/// One choice: whether segments are expandable, and a value or none for each of [`KEYS`].
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
    /// The number of driver calls.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.figures.segments_allocated + self.figures.segments_freed
    }

    /// True if every request was served.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.figures.ooms == 0
    }

    /// The number of keys that it sets.
    fn words(&self) -> usize {
        self.conditions.text().split(',').filter(|word| !word.is_empty()).count()
    }

    /// True if it is at least as good in both figures and better in one. Of two equal trials, the one with fewer keys is better.
    fn beats(&self, other: &Self) -> bool {
        let (mine, theirs) = ((self.figures.peak_reserved, self.calls()), (other.figures.peak_reserved, other.calls()));
        mine.0 <= theirs.0 && mine.1 <= theirs.1 && (mine != theirs || self.words() < other.words())
    }
}

impl Tuning {
    /// Tries settings on a run's requests, on all cores. Only settings that the `oldest` possible version of PyTorch
    /// knows are tried. `progress` hears how many of how many trials are done.
    ///
    /// # Errors
    /// [`ConditionsError`] if the run's conditions can't be determined.
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
        // Some values require others, and not every version knows every key.
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
        // The best values of each key, whether segments are expandable or not.
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

    /// The trials that no other beats in both the reserved peak and driver calls, the lowest peak first. If something
    /// fits, trials that don't fit are left out.
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

    /// The recommended settings for `run`: the simplest that fit and have a peak within 1 % of the lowest. `None` if
    /// that is not worth it, because the run went through and its peak is at most 1 % higher.
    #[must_use]
    pub fn recommended(&self, run: &RecordedRun) -> Option<&TuningTrial> {
        Self::for_all(&[(self, run)])?.first().copied()
    }

    /// The recommended settings for several runs that share an environment: devices of a process, or ranks of a job.
    /// The sum of their peaks counts. One entry per run.
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

    /// The trials of [`Tuning::front`] that are worth showing next to the run: those that lower its peak by at least 1
    /// % or, if requests failed in the run, those that serve every request.
    #[must_use]
    pub fn worth_telling(&self, run: &RecordedRun) -> Vec<&TuningTrial> {
        let before = run.facts.figures.peak_reserved.get();
        let helps = |tried: &&TuningTrial| match run.facts.figures.ooms {
            0 => tried.figures.peak_reserved.get() + before / 100 <= before,
            _ => tried.fits(),
        };
        self.front().into_iter().filter(helps).collect()
    }

    /// The settings that serve most of the run's failed requests, if some do and none serves all.
    #[must_use]
    pub fn serves_most(&self) -> Option<&TuningTrial> {
        let some = self.tried.iter().filter(|tried| tried.figures.served > 0);
        some.min_by_key(|tried| (tried.figures.ooms, std::cmp::Reverse(tried.figures.served), tried.words()))
    }

    /// Trials for failed requests: settings under which every request is served, the lowest peak first; if there are
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

    /// The trial with PyTorch's defaults.
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
