//! Under which conditions a history was recorded: settings, limit, device memory, and the statistics at its end.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::allocator::{Settings, SettingsError};
use crate::snapshot::Snapshot;
use crate::units::Bytes;

/// The statistic that counts `empty_cache()` calls which left no entry.
pub const SYNCHRONISATIONS: &str = "num_sync_all_streams";

/// `torch.cuda.memory_stats()` as it was when the snapshot was taken, under PyTorch's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(pub BTreeMap<String, i64>);

/// What a replay needs to know beside the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The allocator's settings.
    pub settings: Settings,
    /// The most that could be held from the driver.
    pub limit: Option<Bytes>,
    /// Memory of the device.
    pub device_bytes: Option<Bytes>,
    /// The statistics at the end.
    pub statistics: Option<Statistics>,
    /// What had to be assumed, for people.
    pub notes: Vec<String>,
}

/// Conditions that can't be found out.
#[derive(Debug, Error)]
pub enum ConditionError {
    /// A statistics file that was named can't be read.
    #[error("{path}: {error}. Check the path given with --stats.")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A statistics file is not what it should be.
    #[error(
        "{path}: {error}. It should be an object with the keys conf, limit_bytes, device_bytes and stats \
         (torch.cuda.memory_stats())."
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// The configuration string is refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// What the command line says about the conditions; each wins over what the files say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The configuration string.
    pub alloc_conf: Option<String>,
    /// The limit.
    pub limit: Option<Bytes>,
    /// Memory of the device.
    pub device_bytes: Option<Bytes>,
    /// The statistics file.
    pub stats: Option<PathBuf>,
}

/// A statistics file.
#[derive(Debug, Default, Deserialize)]
struct StatsFile {
    conf: Option<String>,
    limit_bytes: Option<u64>,
    device_bytes: Option<u64>,
    stats: Option<BTreeMap<String, serde_json::Value>>,
}

impl Conditions {
    /// The conditions of the snapshot at `path`: from the command line, else from the snapshot itself, else from the
    /// statistics file, which for `X.pickle` and `X.pickle.xz` is `X.stats.json` beside it.
    ///
    /// # Errors
    /// [`ConditionError`] when a file that was named, or lies there, can't be used, or PyTorch would refuse the settings.
    pub fn find(path: &Path, snapshot: &Snapshot, overrides: &Overrides) -> Result<Self, ConditionError> {
        let file = match &overrides.stats {
            Some(path) => read(path)?,
            None => {
                let beside = beside(path);
                if beside.is_file() { read(&beside)? } else { StatsFile::default() }
            }
        };
        let mut notes = Vec::new();
        let of_snapshot = snapshot.allocator_settings.conf.clone();
        if overrides.alloc_conf.is_none()
            && let (Some(first), Some(second)) = (&of_snapshot, &file.conf)
            && first != second
        {
            notes.push(format!(
                "the snapshot names the settings {first:?}, its statistics file {second:?}: the snapshot's are used"
            ));
        }
        let conf = overrides.alloc_conf.clone().or(of_snapshot).or(file.conf).unwrap_or_else(|| {
            notes.push("the snapshot does not name its settings: the defaults are assumed; give --alloc-conf".into());
            String::new()
        });
        if file.stats.is_none() {
            notes.push(
                "there are no statistics to compare with: save torch.cuda.memory_stats() with the snapshot, and give \
                 --stats"
                    .into(),
            );
        }
        let statistics = file.stats.map(|stats| {
            Statistics(stats.into_iter().filter_map(|(key, value)| Some((key, value.as_i64()?))).collect())
        });
        Ok(Self {
            settings: Settings::parse(&conf)?,
            limit: overrides.limit.or(file.limit_bytes.map(Bytes)),
            device_bytes: overrides.device_bytes.or(file.device_bytes.map(Bytes)),
            statistics,
            notes,
        })
    }
}

fn read(path: &Path) -> Result<StatsFile, ConditionError> {
    let text = fs::read(path).map_err(|error| ConditionError::Read { path: path.into(), error })?;
    serde_json::from_slice(&text).map_err(|error| ConditionError::Parse { path: path.into(), error })
}

/// Where the statistics of a snapshot lie: `X.stats.json` for `X.pickle` and `X.pickle.xz`.
fn beside(path: &Path) -> PathBuf {
    let mut stem = path.to_owned();
    for suffix in ["xz", "pickle", "pkl"] {
        if stem.extension().is_some_and(|extension| extension == suffix) {
            stem.set_extension("");
        }
    }
    let mut name = stem.into_os_string();
    name.push(".stats.json");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_lie_beside_the_snapshot() {
        for name in ["a/run.1.pickle", "a/run.1.pickle.xz", "a/run.1.pkl"] {
            assert_eq!(beside(Path::new(name)), Path::new("a/run.1.stats.json"));
        }
        assert_eq!(beside(Path::new("run")), Path::new("run.stats.json"));
    }
}
