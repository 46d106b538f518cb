//! Claims and verdicts for a terminal, fitted to its width.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::{JudgedClaim, MeasuredOn};
use crate::cli::columns::{Cell, Column, Paper, Table, TableLines, Tone};
use crate::drawing::pane::wrap;
use crate::folklore::{BenchOutcome, NotHere, Side, Verdict, Work};

/// From this width on, the claim and the figures stand side by side.
const SIDE_BY_SIDE: usize = 110;
/// Indentation of lines below a heading, in cells.
const INDENT: usize = 2;

/// Prints all rows: name, verdict, the claim and what was measured.
pub(super) fn table(
    out: &mut impl Write,
    place: &MeasuredOn,
    rows: &[JudgedClaim<'_>],
    paper: Paper,
) -> io::Result<()> {
    paper.paragraph(out, &format!("Folklore, measured on {}", place.words()), 0, Tone::Strong)?;
    writeln!(out)?;
    let columns = [
        Column::left("claim"),
        Column::left("verdict"),
        Column::wraps("what is said"),
        Column::wraps("what was measured"),
    ];
    // If two columns of sentences would be too narrow to read, a claim stands above its figures.
    if paper.width >= SIDE_BY_SIDE {
        let mut table = Table::new(columns);
        for row in rows {
            table.row(vec![name(row), verdict_cell(&row.outcome), said(row).into(), measured(&row.outcome).into()]);
        }
        table.print(out, paper)?;
    } else {
        let mut table = Table::new(&columns[..2]);
        rows.iter().for_each(|row| table.row(vec![name(row), verdict_cell(&row.outcome)]));
        let told = rows.iter().map(|row| (said(row), measured(&row.outcome)));
        above_sentences(out, &table, told, paper)?;
    }
    writeln!(out)?;
    paper.paragraph(out, &tally(rows), 0, Tone::Strong)?;
    let more =
        "`vramlab folklore NAME` says why, where a claim holds and where it does not, and how to measure it yourself.";
    paper.paragraph(out, more, 0, Tone::Plain)
}

/// Prints the claims that can't be run here, with what is known about them; a heading separates them from rows above.
pub(super) fn not_here(out: &mut impl Write, claims: &[&NotHere], below: bool, paper: Paper) -> io::Result<()> {
    if claims.is_empty() {
        return Ok(());
    }
    if below {
        writeln!(out)?;
    }
    paper.paragraph(out, "Not measured here, with what is known from elsewhere", 0, Tone::Strong)?;
    writeln!(out)?;
    let mut table = Table::new([Column::left("claim"), Column::left("verdict"), Column::wraps("needs")]);
    let cell = |claim: &NotHere| {
        vec![
            Cell::toned(claim.name.as_str(), Tone::Strong),
            Cell::toned(word(claim.verdict), tone(claim.verdict)),
            claim.needs.as_str().into(),
        ]
    };
    claims.iter().for_each(|claim| table.row(cell(claim)));
    let told = claims.iter().map(|claim| (claim.claim.clone(), claim.found.clone()));
    above_sentences(out, &table, told, paper)
}

/// A table with two sentences of any length below each row: the claim, and what is known about it.
fn above_sentences(
    out: &mut impl Write,
    table: &Table,
    sentences: impl Iterator<Item = (String, String)>,
    paper: Paper,
) -> io::Result<()> {
    let TableLines { head, rows } = table.laid_out(paper);
    head.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    for (row, (claim, known)) in rows.iter().zip(sentences) {
        row.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        paper.paragraph(out, &claim, INDENT, Tone::Plain)?;
        paper.paragraph(out, &known, INDENT, Tone::Dim)?;
    }
    Ok(())
}

fn name(row: &JudgedClaim<'_>) -> Cell {
    Cell::toned(row.claim.name.as_str(), Tone::Strong)
}

fn said(row: &JudgedClaim<'_>) -> String {
    format!("{}{}", row.claim.claim, if row.claim.users_own { " (your own)" } else { "" })
}

/// The verdict in its colour.
fn verdict_cell(outcome: &BenchOutcome) -> Cell {
    Cell::toned(verdict(outcome), tone(verdict_of(outcome)))
}

const fn tone(verdict: Option<Verdict>) -> Tone {
    match verdict {
        Some(Verdict::True) => Tone::Good,
        Some(Verdict::Partly | Verdict::Depends) => Tone::Mixed,
        Some(Verdict::False) => Tone::Bad,
        None => Tone::Dim,
    }
}

/// Counts the claims of each verdict.
fn tally(rows: &[JudgedClaim<'_>]) -> String {
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

/// Prints one row in full.
pub(super) fn in_full(out: &mut impl Write, place: &MeasuredOn, row: &JudgedClaim<'_>, paper: Paper) -> io::Result<()> {
    let (claim, width) = (&*row.claim, paper.width);
    writeln!(out, "{} on {}", claim.name, place.words())?;
    writeln!(out)?;
    paper.paragraph(out, &format!("“{}”", claim.claim), INDENT, Tone::Plain)?;
    paper.paragraph(out, &format!("Said in: {}.", claim.said_by), INDENT, Tone::Plain)?;
    writeln!(out)?;
    match &row.outcome {
        BenchOutcome::Judged(judged) => {
            let verdict = verdict_cell(&row.outcome);
            writeln!(out, "verdict: {}", paper.toned(&verdict.text, verdict.tone))?;
            for (heading, text) in [
                ("measured", &judged.measured),
                ("why", &judged.reason),
                ("where it holds", &judged.holds),
                ("where not", &judged.fails),
            ] {
                writeln!(out, "\n{}", paper.toned(heading, Tone::Strong))?;
                paper.paragraph(out, text, INDENT, Tone::Plain)?;
            }
            if !judged.figures.is_empty() {
                writeln!(out, "\nfigures{}", if place.simulated { " (simulated)" } else { "" })?;
                let widest = judged.figures.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
                for ((name, amount), figure) in judged.figures.iter().zip(&claim.figures) {
                    let line = format!("{name:widest$}  {:>10}  = {}", amount.to_string(), figure.quantity);
                    let mut lines = hanging(&line, widest + 16, width.saturating_sub(INDENT)).into_iter();
                    lines.try_for_each(|line| writeln!(out, "  {line}"))?;
                }
            }
        }
        other => {
            writeln!(out, "no verdict")?;
            paper.paragraph(out, &measured(other), INDENT, Tone::Plain)?;
        }
    }
    writeln!(out, "\nto run it yourself")?;
    for side in &claim.sides {
        writeln!(out, "  # {}{}", side.name, in_python(side))?;
        for line in side.commands(&place.device) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Where to type the lines of a program.
fn in_python(side: &Side) -> &'static str {
    match side.work {
        Work::Program(_) => ": in Python, after `import torch`",
        Work::Training(_) => "",
    }
}

/// Wraps a line; continuation lines start where the line's last column does.
fn hanging(line: &str, indent: usize, width: usize) -> Vec<String> {
    if line.width() <= width || width < indent + 20 {
        return vec![line.to_owned()];
    }
    let first = wrap(line, width).into_iter().next().unwrap_or_default();
    let rest = line.get(first.len()..).unwrap_or_default().trim_start();
    let more = wrap(rest, width - indent).into_iter().map(|line| format!("{:indent$}{line}", ""));
    std::iter::once(first).chain(more).collect()
}

/// The word in the verdict's column.
pub(super) fn verdict(outcome: &BenchOutcome) -> &'static str {
    word(verdict_of(outcome))
}

/// The word for a verdict, or for a missing one.
pub(super) fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("–", Verdict::label)
}

fn verdict_of(outcome: &BenchOutcome) -> Option<Verdict> {
    if let BenchOutcome::Judged(judged) = outcome { Some(judged.verdict) } else { None }
}

/// What was measured, or why nothing was.
pub(super) fn measured(outcome: &BenchOutcome) -> String {
    match outcome {
        BenchOutcome::Judged(judged) => judged.measured.clone(),
        BenchOutcome::Unfit { side: Some(side), why } => format!("Not measured here: {side}: {why}."),
        BenchOutcome::Unfit { side: None, why } => format!("Not measured here: {why}."),
        BenchOutcome::Cancelled => "Interrupted.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::device::sim::CardCatalog;
    use crate::folklore::{Bench, Folklore};
    use crate::session::DeviceChoice;
    use crate::workload::Catalog;

    #[test]
    fn what_belongs_to_a_claim_stands_together_at_every_width() {
        let folklore = Folklore::with_user_claims(None, &Catalog::with_user_workloads(None)).unwrap();
        let claims: Vec<&NotHere> = folklore.not_here().iter().collect();
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for width in 60..=200 {
            let mut out = Vec::new();
            not_here(&mut out, &claims, false, Paper { width, colors: false }).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
            let is_sentence = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
            let mut lines = text.lines().skip_while(|line| !line.starts_with("claim ")).skip(1).peekable();
            for claim in &claims {
                let mut row: Vec<&str> = lines.next().into_iter().collect();
                while let Some(line) = lines.next_if(|line| line.starts_with("   ")) {
                    row.push(line);
                }
                let mut sentences = Vec::new();
                while let Some(line) = lines.next_if(is_sentence) {
                    sentences.push(line);
                }
                let cells = [claim.name.as_str(), word(claim.verdict), &claim.needs].join(" ");
                assert_eq!(squeezed(&row.join(" ")), squeezed(&cells), "{width}:\n{text}");
                let told = format!("{} {}", claim.claim, claim.found);
                assert_eq!(squeezed(&sentences.join(" ")), squeezed(&told), "{width}:\n{text}");
            }
            assert_eq!(lines.next(), None, "{width}:\n{text}");
        }
    }

    #[test]
    fn no_line_of_the_table_is_wider_than_the_terminal() {
        let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
        let device = DeviceChoice::Sim(Box::new(card));
        let (place, workloads) = (MeasuredOn::of(&device), Catalog::with_user_workloads(None));
        let folklore = Folklore::with_user_claims(None, &workloads).unwrap();
        let bench = Bench { device, workloads };
        let rows: Vec<JudgedClaim<'_>> = ["randn-size", "delete-returns"]
            .map(|name| folklore.named(name).unwrap())
            .map(|claim| JudgedClaim { claim: Cow::Borrowed(claim), outcome: bench.measure(claim, |_| true) })
            .into();
        for width in [40, 60, 80, 120] {
            let mut out = Vec::new();
            table(&mut out, &place, &rows, Paper { width, colors: false }).unwrap();
            let text = String::from_utf8(out).unwrap();
            for line in text.lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
            assert!(text.contains("simulated") && text.contains("2 claims: 2 false.\n"), "{text}");
            assert!(text.lines().any(|line| line.starts_with("claim") && line.contains("verdict")), "{text}");
            assert!(text.lines().count() <= 8 + 2 * (340 / width), "at most a few lines a row: {text}");
        }
        let mut out = Vec::new();
        in_full(&mut out, &place, &rows[0], Paper { width: 100, colors: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("x = torch.empty(4000000, dtype=torch.uint8, device=\"cuda\")"), "{text}");
        let figure = ["allocated", "3.81", "MiB", "=", "float32.allocated"];
        assert!(text.lines().any(|line| line.split_whitespace().eq(figure)), "{text}");
    }
}
