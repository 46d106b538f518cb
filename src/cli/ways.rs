//! Prints which other batches would fit, and under which switches.

use std::io::{Result, Write};

use serde_json::{Map, Value, json};

use crate::fit::CandidateFit;
use crate::session::Setup;

/// The changes of a way, and the largest batch under it.
fn words(way: &CandidateFit) -> String {
    let word = |(switch, value): &(crate::session::Switch, String)| format!("{} {value}", switch.word());
    let words: Vec<String> = way.candidate.changed.iter().map(word).collect();
    if words.is_empty() { "as it stands".to_owned() } else { words.join(", ") }
}

/// Writes each way on a line, followed by the command that runs it.
pub(super) fn write(
    out: &mut impl Write,
    ways: &[CandidateFit],
    simulated: &str,
    command: impl Fn(&Setup) -> String,
) -> Result<()> {
    if ways.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nOther batches fit{simulated}:")?;
    for way in ways {
        let batch = way.candidate.setup.config.batch;
        writeln!(out, "  {}: batch {batch}\n    {}", words(way), command(&way.candidate.setup))?;
    }
    Ok(())
}

/// Every way as a JSON object.
pub(super) fn document(ways: &[CandidateFit], command: impl Fn(&Setup) -> String) -> Value {
    let row = |way: &CandidateFit| {
        let switches: Map<String, Value> =
            way.candidate.changed.iter().map(|(switch, value)| (switch.word().to_owned(), json!(value))).collect();
        json!({
            "switches": switches,
            "largest_batch": way.candidate.setup.config.batch,
            "complete": way.largest.complete,
            "command": command(&way.candidate.setup),
        })
    };
    ways.iter().map(row).collect()
}
