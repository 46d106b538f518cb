//! Claims and verdicts for programs and pages.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::text::{measured, verdict, word};
use super::{JudgedClaim, MeasuredOn};
use crate::folklore::{BenchOutcome, NotHere, Side};

/// One object: the device, and a row for each claim. Each figure has its unit beside it.
pub(super) fn json(place: &MeasuredOn, rows: &[JudgedClaim<'_>], not_here: &[&NotHere]) -> Value {
    let rows: Vec<Value> = rows.iter().map(|row| object(place, row)).collect();
    let elsewhere = |claim: &&NotHere| {
        let NotHere { name, claim, needs, verdict, found } = *claim;
        json!({ "name": name, "claim": claim, "needs": needs, "verdict": verdict, "found": found })
    };
    let not_here: Vec<Value> = not_here.iter().map(elsewhere).collect();
    json!({ "device": place.device, "simulated": place.simulated, "rows": rows, "not_here": not_here })
}

fn object(place: &MeasuredOn, row: &JudgedClaim<'_>) -> Value {
    let claim = &*row.claim;
    let commands: Vec<String> = claim.sides.iter().flat_map(|side| side.commands(&place.device)).collect();
    let sides: Vec<Value> = claim.sides.iter().map(|side| of_side(place, side)).collect();
    let mut object = json!({
        "name": claim.name,
        "claim": claim.claim,
        "said_by": claim.said_by,
        "device": place.device,
        "simulated": place.simulated,
        "users_own": claim.users_own,
        "verdict": null,
        "figures": {},
        "units": {},
        "measured": null,
        "reason": null,
        "holds": null,
        "fails": null,
        "not_measured": null,
        "sides": sides,
        "commands": commands,
    });
    let Some(fields) = object.as_object_mut() else { return object };
    match &row.outcome {
        BenchOutcome::Judged(judged) => {
            let figures = judged.figures.iter();
            let values: Map<String, Value> =
                figures.clone().map(|(name, amount)| (name.clone(), json!(amount.value))).collect();
            let units: Map<String, Value> = figures.map(|(name, amount)| (name.clone(), json!(amount.unit))).collect();
            fields.insert("verdict".into(), json!(judged.verdict));
            fields.insert("figures".into(), values.into());
            fields.insert("units".into(), units.into());
            fields.insert("measured".into(), json!(judged.measured));
            fields.insert("reason".into(), json!(judged.reason));
            fields.insert("holds".into(), json!(judged.holds));
            fields.insert("fails".into(), json!(judged.fails));
        }
        other => {
            fields.insert("not_measured".into(), json!(measured(other)));
        }
    }
    object
}

fn of_side(place: &MeasuredOn, side: &Side) -> Value {
    json!({ "name": side.name, "commands": side.commands(&place.device) })
}

/// A table for a page.
pub(super) fn markdown(
    out: &mut impl Write,
    place: &MeasuredOn,
    rows: &[JudgedClaim<'_>],
    not_here: &[&NotHere],
) -> io::Result<()> {
    if !rows.is_empty() {
        measured_here(out, place, rows)?;
    }
    if not_here.is_empty() {
        return Ok(());
    }
    let gap = if rows.is_empty() { "" } else { "\n" };
    writeln!(out, "{gap}Not measured here.\n")?;
    writeln!(out, "| Claim | Needs | Verdict | Measured elsewhere |")?;
    writeln!(out, "|---|---|---|---|")?;
    for NotHere { claim, needs, verdict, found, .. } in not_here {
        let cells = [claim.as_str(), needs, word(*verdict), found];
        writeln!(out, "| {} |", cells.map(cell).join(" | "))?;
    }
    Ok(())
}

fn measured_here(out: &mut impl Write, place: &MeasuredOn, rows: &[JudgedClaim<'_>]) -> io::Result<()> {
    writeln!(out, "Measured on {}.\n", place.words())?;
    writeln!(out, "| Claim | Verdict | Measured | Why | Where it holds | Where not |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for row in rows {
        let (reason, holds, fails) = match &row.outcome {
            BenchOutcome::Judged(judged) => (judged.reason.as_str(), judged.holds.as_str(), judged.fails.as_str()),
            _ => ("", "", ""),
        };
        let measured = measured(&row.outcome);
        let cells = [&row.claim.claim, verdict(&row.outcome), &measured, reason, holds, fails];
        writeln!(out, "| {} |", cells.map(cell).join(" | "))?;
    }
    Ok(())
}

/// Text within a cell.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
