//! Claims and verdicts for a terminal, fitted to its width.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::{Place, Row};
use crate::folklore::{Outcome, Side, Verdict, Work};
use crate::tui::wrap;

/// Between two columns.
const GAP: usize = 2;
/// The verdict's column; a row without one says so in the text.
const VERDICT: usize = 7;

/// All rows: name, verdict, the claim and what was measured.
pub(super) fn table(out: &mut impl Write, place: &Place, rows: &[Row<'_>], width: usize) -> io::Result<()> {
    paragraph(out, &format!("Folklore, measured on {}", place.words()), 0, width)?;
    writeln!(out)?;
    let name_width = rows.iter().map(|row| row.claim.name.width()).max().unwrap_or(0).max("claim".len());
    let narrow = name_width + VERDICT + 2 * GAP + 30 > width;
    let indent = if narrow { GAP } else { name_width + VERDICT + 2 * GAP };
    for row in rows {
        let own = if row.claim.users_own { " (your own)" } else { "" };
        let claim = format!("{}{own}", row.claim.claim);
        let head = format!("{:name_width$}  {:VERDICT$}", row.claim.name, verdict(&row.outcome));
        if narrow {
            writeln!(out, "{}", head.trim_end())?;
            paragraph(out, &claim, indent, width)?;
        } else {
            let mut lines = wrap(&claim, width - indent).into_iter();
            writeln!(out, "{head}  {}", lines.next().unwrap_or_default())?;
            lines.try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))?;
        }
        paragraph(out, &measured(&row.outcome), indent, width)?;
        writeln!(out)?;
    }
    paragraph(out, &tally(rows), 0, width)?;
    let more = "`vramlab folklore NAME` tells why, where a claim holds and where not, and how to measure it oneself.";
    paragraph(out, more, 0, width)
}

/// How many claims came to which verdict.
fn tally(rows: &[Row<'_>]) -> String {
    let count = |wanted: Option<Verdict>| rows.iter().filter(|row| verdict_of(&row.outcome) == wanted).count();
    let mut parts: Vec<String> = [Verdict::True, Verdict::Partly, Verdict::Depends, Verdict::False]
        .into_iter()
        .map(|verdict| (count(Some(verdict)), verdict))
        .filter(|(count, _)| *count > 0)
        .map(|(count, verdict)| format!("{count} {verdict}"))
        .collect();
    let none = count(None);
    if none > 0 {
        parts.push(format!("{none} without a verdict"));
    }
    format!("{} claims: {}.", rows.len(), parts.join(", "))
}

/// One row with all there is to say.
pub(super) fn in_full(out: &mut impl Write, place: &Place, row: &Row<'_>, width: usize) -> io::Result<()> {
    let claim = row.claim;
    writeln!(out, "{} on {}", claim.name, place.words())?;
    writeln!(out)?;
    paragraph(out, &format!("“{}”", claim.claim), GAP, width)?;
    paragraph(out, &format!("Said in: {}.", claim.said_by), GAP, width)?;
    writeln!(out)?;
    match &row.outcome {
        Outcome::Judged(judged) => {
            writeln!(out, "verdict: {}", judged.verdict)?;
            for (heading, text) in [
                ("measured", &judged.measured),
                ("why", &judged.reason),
                ("where it holds", &judged.holds),
                ("where not", &judged.fails),
            ] {
                writeln!(out, "\n{heading}")?;
                paragraph(out, text, GAP, width)?;
            }
            if !judged.figures.is_empty() {
                writeln!(out, "\nfigures{}", if place.simulated { " (simulated)" } else { "" })?;
                let widest = judged.figures.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
                for ((name, amount), figure) in judged.figures.iter().zip(&claim.figures) {
                    let line = format!("{name:widest$}  {:>10}  = {}", amount.to_string(), figure.quantity);
                    let mut lines = hanging(&line, widest + 16, width.saturating_sub(GAP)).into_iter();
                    lines.try_for_each(|line| writeln!(out, "  {line}"))?;
                }
            }
        }
        other => {
            writeln!(out, "no verdict")?;
            paragraph(out, &measured(other), GAP, width)?;
        }
    }
    writeln!(out, "\nto run it oneself")?;
    for side in &claim.sides {
        writeln!(out, "  # {}{}", side.name, in_python(side))?;
        for line in side.commands(&place.device) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// What the lines of a program are to be typed into.
fn in_python(side: &Side) -> &'static str {
    match side.work {
        Work::Program(_) => ": in Python, after `import torch`",
        Work::Training(_) => "",
    }
}

/// A line whose later lines begin where its last column does.
fn hanging(line: &str, indent: usize, width: usize) -> Vec<String> {
    if line.width() <= width || width < indent + 20 {
        return vec![line.to_owned()];
    }
    let first = wrap(line, width).into_iter().next().unwrap_or_default();
    let rest = line.get(first.len()..).unwrap_or_default().trim_start();
    let more = wrap(rest, width - indent).into_iter().map(|line| format!("{:indent$}{line}", ""));
    std::iter::once(first).chain(more).collect()
}

fn paragraph(out: &mut impl Write, text: &str, indent: usize, width: usize) -> io::Result<()> {
    wrap(text, width.saturating_sub(indent).max(20)).iter().try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))
}

/// The word in the verdict's column.
pub(super) fn verdict(outcome: &Outcome) -> &'static str {
    verdict_of(outcome).map_or("–", Verdict::label)
}

fn verdict_of(outcome: &Outcome) -> Option<Verdict> {
    if let Outcome::Judged(judged) = outcome { Some(judged.verdict) } else { None }
}

/// What was measured, or why nothing was.
pub(super) fn measured(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Judged(judged) => judged.measured.clone(),
        Outcome::Unfit { side: Some(side), why } => format!("Not measured here: {side}: {why}."),
        Outcome::Unfit { side: None, why } => format!("Not measured here: {why}."),
        Outcome::Cancelled => "Interrupted.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::CardCatalog;
    use crate::folklore::{Bench, Folklore};
    use crate::session::DeviceChoice;
    use crate::workload::Catalog;

    #[test]
    fn no_line_of_the_table_is_wider_than_the_terminal() {
        let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
        let device = DeviceChoice::Sim(Box::new(card));
        let (place, workloads) = (Place::of(&device), Catalog::with_user_workloads(None));
        let folklore = Folklore::with_user_claims(None, &workloads).unwrap();
        let bench = Bench { device, workloads };
        let rows: Vec<Row<'_>> = ["randn-size", "delete-returns"]
            .map(|name| folklore.named(name).unwrap())
            .map(|claim| Row { claim, outcome: bench.measure(claim, |_| true) })
            .into();
        for width in [40, 60, 80, 120] {
            let mut out = Vec::new();
            table(&mut out, &place, &rows, width).unwrap();
            let text = String::from_utf8(out).unwrap();
            for line in text.lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
            assert!(text.contains("simulated") && text.contains("2 claims: 2 false.\n"), "{text}");
        }
        let mut out = Vec::new();
        in_full(&mut out, &place, &rows[0], 100).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("x = torch.empty(4000000, dtype=torch.uint8, device=\"cuda\")"), "{text}");
        let figure = ["allocated", "3.81", "MiB", "=", "float32.allocated"];
        assert!(text.lines().any(|line| line.split_whitespace().eq(figure)), "{text}");
    }
}
