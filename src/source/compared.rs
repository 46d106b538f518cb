//! Configurations in other files, for comparisons: recordings, PyTorch's snapshots, and the output of `vramlab run --json`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::counted::MeteredReader;
use super::snapshot::{OpenError, OpenSnapshot, is_snapshot, narrate};
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{Configuration, EventKind, Figure, Lab, Measurement, Ranks, RunSettings, Setting};
use vramlab_recording::{Next, Reader, RecordingError};
use vramlab_session::Switch;
use vramlab_snapshot::Snapshot;
use vramlab_user_input::{FileError, read_text};

/// Why a file is not compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// It is a recording, but can't be read from the start.
    #[error(transparent)]
    Recording(RecordingError),
    /// The file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is a snapshot, but can't be opened.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// It is something else.
    #[error("it is no recording, no PyTorch snapshot and nothing that `vramlab run --json` printed; name one of those")]
    Neither,
    /// It is a snapshot without a history.
    #[error(
        "it holds no history, and so no peaks; record one with torch.cuda.memory._record_memory_history() before the \
         snapshot is taken"
    )]
    NoHistory,
    /// It has nothing that can be compared.
    #[error("no step ended in it; record a longer run")]
    NoStep,
}

/// What a file offers for comparison.
#[derive(Clone, Debug)]
pub struct Comparable {
    /// Its configurations, in the order in which they were first in force.
    pub configurations: Vec<Arc<Configuration>>,
    /// A remark for the person.
    pub remark: Option<String>,
}

/// The configurations in the file at `path`. `progress` hears how many bytes of how many have been read.
///
/// # Errors
/// [`CompareError`].
pub fn compared(path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<Comparable, CompareError> {
    let compared = match recorded(path, &mut progress) {
        Err(RecordingError::NoRecording) => {
            if let Some(compared) = of_snapshot(path, &mut progress)? {
                return if compared.configurations.is_empty() { Err(CompareError::NoHistory) } else { Ok(compared) };
            }
            let text = read_text(path)?;
            let printed = serde_json::from_str(&text).ok();
            let configuration = printed.as_ref().and_then(of_printed).ok_or(CompareError::Neither)?;
            Comparable { configurations: vec![Arc::new(configuration)], remark: None }
        }
        recorded => recorded.map_err(CompareError::Recording)?,
    };
    if compared.configurations.is_empty() { Err(CompareError::NoStep) } else { Ok(compared) }
}

/// Opens the file at `path`. `progress` hears how many bytes of how many have been read.
fn opened(path: &Path, progress: &mut impl FnMut(u64, u64)) -> Result<impl Read, RecordingError> {
    let source = File::open(path).map_err(RecordingError::Unreadable)?;
    let all = source.metadata().map_or(0, |data| data.len());
    let mut done = 0;
    let each = move |bytes| {
        done += bytes;
        progress(done, all);
    };
    Ok(MeteredReader { source, each })
}

/// The figures of a snapshot's histories; `None` if the file is not a snapshot.
fn of_snapshot(path: &Path, progress: &mut impl FnMut(u64, u64)) -> Result<Option<Comparable>, CompareError> {
    let mut source = BufReader::with_capacity(1 << 16, opened(path, progress).map_err(CompareError::Recording)?);
    let head = source.fill_buf().map_err(RecordingError::Unreadable).map_err(CompareError::Recording)?;
    if !is_snapshot(head) {
        return Ok(None);
    }
    let snapshot = Snapshot::read(source).map_err(OpenError::from)?;
    let (mut ranks, mut remarks) = (Ranks::default(), Vec::new());
    narrate(&[OpenSnapshot::new(path, snapshot, None)], |event| {
        if let EventKind::Notice { text } = &event.kind {
            remarks.push(text.to_string());
        }
        ranks.apply(&event);
    })?;
    let remark = Some(remarks.join("; ")).filter(|remarks| !remarks.is_empty());
    Ok(Some(Comparable { configurations: of_ranks(&ranks), remark }))
}

fn of_ranks(ranks: &Ranks) -> Vec<Arc<Configuration>> {
    let labs = (0..ranks.len()).filter_map(|device| ranks.lab(DeviceIndex(u16::try_from(device).ok()?)));
    labs.flat_map(Lab::configurations).collect()
}

/// Plays a recording to its end; what is damaged ends it.
fn recorded(path: &Path, progress: &mut impl FnMut(u64, u64)) -> Result<Comparable, RecordingError> {
    let mut reader = Reader::new(opened(path, progress)?);
    let mut ranks = Ranks::default();
    let remark = loop {
        match reader.next() {
            Ok(Next::Frame(frame)) => {
                for event in frame.unpack()?.events() {
                    ranks.apply(&event?);
                }
            }
            Ok(Next::End) => break None,
            Ok(Next::NotYet) => break Some("it was cut off; what lies before is compared".to_owned()),
            Err(error) if ranks.position() == 0 => return Err(error),
            Err(error) => break Some(error.to_string()),
        }
    };
    Ok(Comparable { configurations: of_ranks(&ranks), remark })
}

/// The configuration of an object that `vramlab run --json` printed; `None` for any other object. Its peaks are those
/// of the whole run.
#[must_use]
pub fn of_printed(printed: &Value) -> Option<Configuration> {
    let exact = Figure::exact;
    let object = printed.as_object()?;
    object.get("workload")?;
    let number = |key: &str| object.get(key).and_then(Value::as_f64);
    // In the words that recordings use.
    let word = |switch: &str, value: &Value| match (switch, value) {
        ("limit", Value::Null) => "none".to_owned(),
        ("limit", value) => value.as_u64().map_or_else(String::new, |limit| Bytes(limit).to_string()),
        (_, Value::Null) => "off".to_owned(),
        (_, Value::Bool(on)) => if *on { "on" } else { "off" }.to_owned(),
        ("alloc-conf", Value::String(text)) if text.is_empty() => "default".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    };
    let setting = |switch: Switch| {
        let value = word(switch.word(), object.get(&switch.word().replace('-', "_"))?);
        Some(Setting { switch: switch.word().into(), value: value.as_str().into(), wanted: None, idle: None })
    };
    let last_loss = object.get("losses").and_then(|losses| losses.as_array()?.last()?.as_f64());
    let steps = object.get("steps").and_then(Value::as_u64)?;
    let measured = || {
        Some(Measurement {
            peak_allocated: exact(number("peak_allocated")?),
            peak_reserved: exact(number("peak_reserved")?),
            stranded: None,
            step: Some(exact(number("step_ms").filter(|_| steps > 0)? * 1e3)),
            // The throughput is not printed; 0 is never shown.
            throughput: Figure::default(),
            loss: last_loss.map(exact),
        })
    };
    Some(Configuration {
        settings: Arc::new(RunSettings(Switch::all().filter_map(setting).collect())),
        step: 0,
        position: 0,
        steps,
        measured: measured().map(|measured| (usize::try_from(steps).unwrap_or(usize::MAX), measured)),
        out_of_memory: object.get("oom").is_some_and(Value::is_object),
        curve: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_objects_are_no_runs() {
        assert!(of_printed(&json!({"steps": 3})).is_none());
        assert!(of_printed(&json!([1])).is_none());
    }

    /// The only configuration of a snapshot, the remark about it, and PyTorch's statistics.
    fn of(name: &str) -> (Arc<Configuration>, Option<String>, Value) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(format!("{name}.pickle.xz"));
        let Comparable { configurations, remark } = compared(&path, |_, _| {}).unwrap();
        let [one] = &*configurations else { panic!("{configurations:?}") };
        let stats = std::fs::read(path.to_str().unwrap().replace(".pickle.xz", ".stats.json")).unwrap();
        (Arc::clone(one), remark, serde_json::from_slice(&stats).unwrap())
    }

    #[test]
    fn a_snapshot_without_steps_has_the_peaks_of_its_window() {
        let (one, _, stats) = of("traces/churn-gc");
        let (_, measured) = one.measured.unwrap();
        let peak = |of: &str| stats["stats"][format!("{of}_bytes.all.peak")].as_f64();
        assert_eq!(Some(measured.peak_allocated.median), peak("allocated"));
        assert_eq!(Some(measured.peak_reserved.median), peak("reserved"));
        assert_eq!((one.steps, measured.step, measured.loss), (0, None, None));
        assert!(one.out_of_memory && one.knows_no_steps());
    }

    #[test]
    fn a_snapshot_with_steps_has_what_they_came_to_and_that_memory_ran_out() {
        let (one, remark, stats) = of("strangers/oom-observer");
        let (_, measured) = one.measured.unwrap();
        let peak = stats["stats"]["allocated_bytes.all.peak"].as_f64().unwrap();
        // The step that failed is not among the measured ones.
        assert!((0.5 * peak..peak).contains(&measured.peak_allocated.median), "{measured:?}");
        assert_eq!((one.steps, measured.loss), (3, None));
        assert!(measured.step.is_some() && one.out_of_memory && !one.knows_no_steps());
        assert!(remark.unwrap().contains("recording began late"));
    }

    #[test]
    fn a_snapshot_without_a_history_has_no_peaks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("end.pickle");
        // [{"address": 512, "total_size": 512}]
        std::fs::write(&path, b"\x80\x02]}(U\x07addressM\x00\x02U\x0atotal_sizeM\x00\x02ua.").unwrap();
        assert!(matches!(compared(&path, |_, _| {}), Err(CompareError::NoHistory)));
    }

    #[test]
    fn a_file_of_another_kind_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "dear diary").unwrap();
        assert!(matches!(compared(&path, |_, _| {}), Err(CompareError::Neither)));
        assert!(compared(&folder.path().join("none"), |_, _| {}).is_err());
    }
}
