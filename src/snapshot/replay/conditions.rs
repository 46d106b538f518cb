//! The conditions under which a history was recorded: settings, limit, device memory, and the statistics at its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::types::{Action, Snapshot};
use vramlab_allocator::units::{Bytes, MIB};
use vramlab_allocator::{self as allocator, Settings, SettingsError, TorchVersion};

/// The statistic that counts `empty_cache()` calls which left no entry.
pub const SYNCHRONISATIONS: &str = "num_sync_all_streams";

/// The longest statistics file that is read, in bytes. Such files have a few thousand bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// `torch.cuda.memory_stats()` as it was when the snapshot was taken, under PyTorch's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(pub BTreeMap<String, i64>);

/// What a replay needs to know besides the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The allocator's settings.
    pub settings: Settings,
    /// The most that could be held from the driver; `None` if there is no limit.
    pub limit: Option<Bytes>,
    /// The device's memory; `None` if unknown.
    pub device_bytes: Option<Bytes>,
    /// The statistics at the end.
    pub statistics: Option<Statistics>,
    /// The oldest version of PyTorch that may have recorded this. The settings' keys must be valid for it.
    pub oldest: TorchVersion,
    /// Assumptions that had to be made, in words.
    pub notes: Vec<String>,
}

/// Why the conditions can't be determined.
#[derive(Debug, Error)]
pub enum ConditionError {
    /// A statistics file can't be read.
    #[error("{path}: {error}. Check the path given with --stats.")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A statistics file has the wrong form.
    #[error("{path}: {error}. It should hold what json.dump(torch.cuda.memory_stats(), file) writes.")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A statistics file is too long.
    #[error(
        "{path} is longer than {LONGEST_FILE} bytes. It should hold what json.dump(torch.cuda.memory_stats(), file) writes."
    )]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A statistics file has none of the expected numbers.
    #[error(
        "{path} has none of the numbers of torch.cuda.memory_stats(), so that there is nothing to compare. Save \
         json.dump(torch.cuda.memory_stats(), file) with the snapshot."
    )]
    NoStatistics {
        /// The file.
        path: PathBuf,
    },
    /// PyTorch refuses the configuration string.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Conditions given on the command line. They override what the files say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The version of PyTorch that was recorded.
    pub torch: Option<TorchVersion>,
    /// The configuration string.
    pub alloc_conf: Option<String>,
    /// The limit.
    pub limit: Option<Bytes>,
    /// The device's memory.
    pub device_bytes: Option<Bytes>,
    /// The statistics file.
    pub stats: Option<PathBuf>,
}

/// A statistics file: the result of `torch.cuda.memory_stats()`, or an object with that under the key `stats` beside
/// the conditions.
#[derive(Debug, Default, Deserialize)]
struct StatsFile {
    torch: Option<String>,
    conf: Option<String>,
    limit_bytes: Option<u64>,
    device_bytes: Option<u64>,
    stats: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

impl StatsFile {
    /// The statistics, at the top level or under `stats`; `None` if the file has none. They must be there if the file
    /// was `named` as a statistics file.
    fn statistics(self, named: bool) -> Result<Option<Statistics>, NoStatistics> {
        let named = named || self.stats.is_some();
        let mut numbers = self.stats.unwrap_or(self.others);
        let statistics: BTreeMap<String, i64> = allocator::Statistics::names()
            .into_iter()
            .filter_map(|name| numbers.remove(&name)?.as_i64().map(|value| (name, value)))
            .collect();
        match statistics.is_empty() {
            true if named => Err(NoStatistics),
            true => Ok(None),
            false => Ok(Some(Statistics(statistics))),
        }
    }
}

/// A statistics file without statistics.
struct NoStatistics;

impl Conditions {
    /// Finds the conditions of the snapshot at `path`: from the command line, or else from the snapshot, or else from
    /// the statistics file beside it: `X.stats.json` for `X.pickle` and `X.pickle.xz`.
    ///
    /// # Errors
    /// [`ConditionError`] if a file that was named, or lies there, can't be used, or PyTorch would refuse the settings.
    pub fn find(path: &Path, snapshot: &Snapshot, overrides: &Overrides) -> Result<Self, ConditionError> {
        let beside = Some(beside(path)).filter(|path| path.is_file());
        let source = overrides.stats.as_ref().or(beside.as_ref());
        let file = source.map_or_else(|| Ok(StatsFile::default()), |path| read(path))?;
        let mut notes = Vec::new();
        let told = conf_of(snapshot);
        let of_snapshot = told.as_deref();
        if overrides.alloc_conf.is_none()
            && let (Some(first), Some(second)) = (of_snapshot, file.conf.as_deref())
            && first != second
        {
            notes.push(format!(
                "the snapshot names the settings {first:?}, its statistics file {second:?}: the snapshot's are used"
            ));
        }
        let conf = overrides.alloc_conf.as_deref().or(of_snapshot).or(file.conf.as_deref()).unwrap_or_else(|| {
            notes.push("the snapshot does not name its settings: the defaults are assumed; give --alloc-conf".into());
            ""
        });
        // The snapshot's keys tell versions apart only roughly; a version that was written down is more exact.
        let told = overrides.torch.or(file.torch.as_deref().and_then(|torch| torch.parse().ok()));
        let settings = Settings::parse_for(told.unwrap_or(snapshot.torch), conf)?;
        let limit = overrides.limit.or(file.limit_bytes.map(Bytes));
        let device_bytes = overrides.device_bytes.or(file.device_bytes.map(Bytes));
        let statistics = file
            .statistics(overrides.stats.is_some())
            .map_err(|NoStatistics| ConditionError::NoStatistics { path: source.cloned().unwrap_or_default() })?;
        if statistics.is_none() {
            notes.push(
                "there are no statistics to compare with: save torch.cuda.memory_stats() with the snapshot, and give \
                 --stats"
                    .into(),
            );
        }
        let oldest = told.unwrap_or_else(|| oldest_of(snapshot));
        Ok(Self { settings, limit, device_bytes, statistics, oldest, notes })
    }
}

impl Conditions {
    /// Like [`Conditions::find`] without overrides. Unusable information is left out, and a note says so: a history can
    /// be viewed without knowing its conditions.
    #[must_use]
    pub fn find_or_guess(path: &Path, snapshot: &Snapshot, torch: Option<TorchVersion>) -> Self {
        let overrides = Overrides { torch, ..Overrides::default() };
        let error = match Self::find(path, snapshot, &overrides) {
            Ok(conditions) => return conditions,
            Err(error) => error,
        };
        let usable = usable_settings(&conf_of(snapshot).unwrap_or_default());
        let oldest = torch.unwrap_or_else(|| oldest_of(snapshot));
        Self { settings: usable, oldest, notes: vec![error.to_string()], ..Self::default() }
    }
}

/// The oldest version of PyTorch that has the snapshot's keys. Versions before 2.11 have the same keys as 2.11.
const fn oldest_of(snapshot: &Snapshot) -> TorchVersion {
    match snapshot.torch {
        TorchVersion::V2_11 => TorchVersion::V2_1,
        torch => torch,
    }
}

/// The snapshot's settings as a configuration string. Older snapshots list them one by one, or not at all.
fn conf_of(snapshot: &Snapshot) -> Option<String> {
    let settings = &snapshot.allocator_settings;
    if let Some(conf) = &settings.conf {
        return Some(conf.to_string());
    }
    let mut parts = Vec::new();
    for (key, value) in &settings.others {
        match &**key {
            "expandable_segments" if &**value == "True" => parts.push("expandable_segments:True".to_owned()),
            "max_split_size" => {
                if let Some(bytes) = value.parse::<u64>().ok().filter(|bytes| *bytes > 0) {
                    parts.push(format!("max_split_size_mb:{}", bytes / MIB));
                }
            }
            "garbage_collection_threshold" if value.parse::<f64>().is_ok_and(|share| share > 0.0) => {
                parts.push(format!("garbage_collection_threshold:{value}"));
            }
            _ => {}
        }
    }
    // If the snapshot lists no settings, its segments and entries show whether segments are expandable.
    let expandable = || {
        let maps = |device| snapshot.device_trace(device).iter().any(|entry| entry.action == Action::SegmentMap);
        snapshot.segments.iter().any(|segment| segment.expandable) || (0..snapshot.device_count()).any(maps)
    };
    if settings.others.is_empty() && expandable() {
        parts.push("expandable_segments:True".to_owned());
    }
    (!parts.is_empty() || !settings.others.is_empty()).then(|| parts.join(","))
}

/// The settings of a configuration string that PyTorch accepts, key by key.
fn usable_settings(conf: &str) -> Settings {
    const MOST_KEYS: usize = 64;
    let mut depth = 0_usize;
    let keys = conf.split(|c: char| {
        depth = match c {
            '[' => depth + 1,
            ']' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    });
    let usable: Vec<&str> = keys.take(MOST_KEYS).filter(|key| Settings::parse(key).is_ok()).collect();
    Settings::parse(&usable.join(",")).unwrap_or_default()
}

fn read(path: &Path) -> Result<StatsFile, ConditionError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut text))
        .map_err(|error| ConditionError::Read { path: path.into(), error })?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(ConditionError::TooLong { path: path.into() });
    }
    serde_json::from_slice(&text).map_err(|error| ConditionError::Parse { path: path.into(), error })
}

/// The path of a snapshot's statistics: `X.stats.json` for `X.pickle` and `X.pickle.xz`.
fn beside(path: &Path) -> PathBuf {
    let mut stem = path.to_owned();
    for suffix in ["gz", "xz", "zst", "pickle", "pkl"] {
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
        for name in ["a/run.1.pickle", "a/run.1.pickle.xz", "a/run.1.pickle.gz", "a/run.1.pkl"] {
            assert_eq!(beside(Path::new(name)), Path::new("a/run.1.stats.json"));
        }
        assert_eq!(beside(Path::new("run")), Path::new("run.stats.json"));
    }

    #[test]
    fn of_settings_that_are_refused_the_others_count() {
        let mut snapshot = Snapshot::default();
        snapshot.allocator_settings.conf =
            Some("expandable_segments:True,what_is_new:[1,2],max_split_size_mb:100".into());
        let conditions = Conditions::find_or_guess(Path::new("none.pickle"), &snapshot, None);
        assert!(conditions.settings.expandable_segments);
        assert_eq!(conditions.settings.max_split_size, Bytes::mib(100));
        assert!(conditions.notes[0].contains("what_is_new"), "{:?}", conditions.notes);
    }

    #[test]
    fn older_snapshots_name_settings_one_by_one() {
        let mut snapshot = Snapshot::default();
        assert_eq!(conf_of(&snapshot), None);
        let others =
            [("max_split_size", "-1"), ("expandable_segments", "True"), ("garbage_collection_threshold", "0.5")];
        snapshot.allocator_settings.others = others.map(|(key, value)| (key.into(), value.into())).into();
        let conf = conf_of(&snapshot).unwrap();
        assert_eq!(conf, "expandable_segments:True,garbage_collection_threshold:0.5");
    }

    fn found(stats: &str, named: bool) -> Result<Conditions, ConditionError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.stats.json");
        std::fs::write(&path, stats).unwrap();
        let overrides = Overrides { stats: named.then_some(path), ..Overrides::default() };
        Conditions::find(&folder.path().join("x.pickle"), &Snapshot::default(), &overrides)
    }

    #[test]
    fn statistics_are_read_bare_and_among_the_conditions() {
        let expected = BTreeMap::from([("num_ooms".to_owned(), 3), ("active.all.current".to_owned(), 0)]);
        let bare = r#"{"num_ooms": 3, "active.all.current": 0, "what PyTorch adds": 1}"#;
        let among = format!(r#"{{"conf": "", "limit_bytes": 7, "stats": {bare}}}"#);
        for named in [false, true] {
            assert_eq!(found(bare, named).unwrap().statistics, Some(Statistics(expected.clone())));
            let conditions = found(&among, named).unwrap();
            assert_eq!((conditions.statistics, conditions.limit), (Some(Statistics(expected.clone())), Some(Bytes(7))));
        }
    }

    #[test]
    fn a_file_of_statistics_without_any_is_an_error() {
        let message = |stats: &str, named| found(stats, named).unwrap_err().to_string();
        for stats in ["{}", r#"{"active": 1}"#, r#"{"num_ooms": "3"}"#, r#"{"limit_bytes": 7}"#] {
            assert!(message(stats, true).contains("has none of the numbers"));
            // Nothing marks the file as a statistics file.
            assert_eq!(found(stats, false).unwrap().statistics, None);
        }
        for named in [false, true] {
            assert!(message(r#"{"stats": {"active": 1}}"#, named).contains("has none of the numbers"));
            assert!(message("[]", named).contains("It should hold"));
            assert!(message(&" ".repeat(1 << 21), named).contains("is longer than 1048576 bytes"));
        }
    }
}
