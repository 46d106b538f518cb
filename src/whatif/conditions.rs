//! The conditions of another allocator, in the form in which a person writes them.

use std::fmt;

use thiserror::Error;

use vramlab_allocator::units::Bytes;
use vramlab_allocator::{DeviceMemory, Settings, SettingsError, TorchVersion, setting_entries};

/// Keys of our own, in addition to PyTorch's.
const LIMIT: &str = "limit";
const EMPTY_CACHE_EVERY: &str = "empty_cache_every";
/// A key of PyTorch's that has an effect only with a limit.
const GARBAGE: &str = "garbage_collection_threshold";

/// The conditions of another allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// The allocator's settings.
    pub settings: Settings,
    /// The most that may be reserved; `None` for the run's own limit.
    pub limit: Option<Bytes>,
    /// The device's memory, and how much was free before the run; `None` if unknown, and always enough.
    pub device: Option<DeviceMemory>,
    /// The program empties the cache each time after this many steps; `None` for only when the run did.
    pub empty_cache_every: Option<u64>,
    text: Box<str>,
}

/// Why conditions are refused.
#[derive(Debug, Error)]
pub enum ConditionsError {
    /// PyTorch refuses the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The limit is not a size.
    #[error("limit: {0}")]
    Limit(String),
    /// Not a number of steps.
    #[error("empty_cache_every takes a number of steps from 1 on, such as empty_cache_every:10")]
    EmptyCacheEvery,
    /// A share of an unknown amount of memory.
    #[error("the memory of the device is not known, nor what a share of it is; give limit:8GiB instead")]
    UnknownDevice,
}

impl Default for Conditions {
    /// PyTorch's defaults on a device that has enough.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Conditions {
    /// The memory of an unknown device: more than any device has.
    const ENOUGH: Bytes = Bytes(1 << 40);

    /// These settings on a device with enough memory.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let text = settings.text().into();
        Self { settings, limit: None, device: None, empty_cache_every: None, text }
    }

    /// Reads PyTorch's configuration string (`expandable_segments:True,max_split_size_mb:128`). Besides PyTorch's keys,
    /// it may have `limit:8GiB` and `empty_cache_every:10` (in steps).
    ///
    /// # Errors
    /// [`ConditionsError`]. A share of the device's memory needs `device`.
    pub fn parse(text: &str, device: Option<DeviceMemory>) -> Result<Self, ConditionsError> {
        Self::parse_for(TorchVersion::default(), text, device)
    }

    /// Like [`Conditions::parse`], for the allocator of another version of PyTorch.
    ///
    /// # Errors
    /// [`ConditionsError`].
    pub fn parse_for(torch: TorchVersion, text: &str, device: Option<DeviceMemory>) -> Result<Self, ConditionsError> {
        let mut conditions = Self { device, text: text.trim().into(), ..Self::default() };
        let mut settings: Vec<&str> = Vec::new();
        for entry in setting_entries(text) {
            match entry.split_once(':').map(|(key, value)| (key.trim(), value.trim())) {
                Some((LIMIT, value)) => {
                    conditions.limit = Some(value.parse().map_err(ConditionsError::Limit)?);
                }
                Some((EMPTY_CACHE_EVERY, value)) => {
                    let steps = value.parse().ok().filter(|&steps| steps > 0);
                    conditions.empty_cache_every = Some(steps.ok_or(ConditionsError::EmptyCacheEvery)?);
                }
                _ => settings.push(entry),
            }
        }
        conditions.settings = Settings::parse_for(torch, &settings.join(","))?;
        if conditions.has_share() && device.is_none() {
            return Err(ConditionsError::UnknownDevice);
        }
        Ok(conditions)
    }

    /// The text that was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if they name their own limit. The run's limit is then ignored.
    #[must_use]
    pub fn bounds_memory(&self) -> bool {
        self.limit.is_some() || self.has_share()
    }

    /// True if a run that reserved at most `reserved` gives the same result under these conditions as under `others`:
    /// they differ only in garbage collection, and nothing is collected below that amount.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "PyTorch computes the threshold in floating point")]
    pub fn collect_nothing_beside(&self, others: &Self, reserved: Bytes) -> bool {
        let share = self.settings.garbage_collection_threshold;
        let Some(limit) = self.limit.filter(|_| share > 0.0) else { return false };
        let collects = |entry: &&str| entry.trim_start().starts_with(GARBAGE);
        let rest = setting_entries(&self.text).filter(|entry| !collects(entry));
        let alike = (self.device, self.empty_cache_every) == (others.device, others.empty_cache_every);
        let fits = |limit: Bytes| reserved <= limit;
        alike
            && rest.eq(setting_entries(&others.text))
            && others.limit.is_none_or(fits)
            && reserved.get() as f64 <= share * limit.get() as f64
    }

    fn has_share(&self) -> bool {
        self.settings.per_process_memory_fraction < 1.0
    }

    /// The device's memory, or more than any has.
    pub(super) fn memory(&self) -> DeviceMemory {
        self.device.unwrap_or(DeviceMemory { free: Self::ENOUGH, total: Self::ENOUGH })
    }
}

/// The conditions as they were written; PyTorch's defaults have a word.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.text.is_empty() { "PyTorch's defaults" } else { &self.text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_words_stand_among_pytorchs() {
        let text = " roundup_power2_divisions:[256:1,>:4], limit: 6GiB ,expandable_segments:True,empty_cache_every:10";
        let conditions = Conditions::parse(text, None).unwrap();
        assert_eq!(conditions.limit, Some(Bytes::gib(6)));
        assert_eq!(conditions.empty_cache_every, Some(10));
        assert!(conditions.settings.expandable_segments);
        assert_eq!(conditions.settings.roundup_power2_divisions.divisions(Bytes::gib(1)), 4);
        assert!(conditions.bounds_memory());
        assert_eq!(conditions.to_string(), text.trim());
        assert_eq!(Conditions::parse("", None).unwrap().to_string(), "PyTorch's defaults");
    }

    #[test]
    fn garbage_is_collected_above_a_share_of_the_limit_alone() {
        let limited = |text: &str, limit| Conditions { limit, ..Conditions::parse(text, None).unwrap() };
        let plain = limited("max_split_size_mb:128", None);
        let collecting = "garbage_collection_threshold:0.5,max_split_size_mb:128";
        let half = limited(collecting, Some(Bytes::gib(8)));
        assert!(half.collect_nothing_beside(&plain, Bytes::gib(4)));
        assert!(!half.collect_nothing_beside(&plain, Bytes(Bytes::gib(4).get() + 1)), "more is reserved");
        assert!(!half.collect_nothing_beside(&limited("", None), Bytes::gib(1)), "they differ in more");
        assert!(!plain.collect_nothing_beside(&plain, Bytes::gib(1)), "nothing is collected at all");
        assert!(!limited(collecting, None).collect_nothing_beside(&plain, Bytes::gib(1)), "nor without a limit");
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let refused = |text: &str| Conditions::parse(text, None).unwrap_err().to_string();
        assert!(refused("limit:GiB").contains("such as 8GiB"), "{}", refused("limit:GiB"));
        assert!(refused("empty_cache_every:0").contains("from 1 on"));
        assert!(refused("expandable:True").contains("expandable_segments"), "{}", refused("expandable:True"));
        assert!(refused("per_process_memory_fraction:0.5").contains("limit:8GiB"));
        let memory = DeviceMemory { free: Bytes::gib(7), total: Bytes::gib(8) };
        let half = Conditions::parse("per_process_memory_fraction:0.5", Some(memory)).unwrap();
        assert!(half.bounds_memory() && half.limit.is_none());
    }
}
