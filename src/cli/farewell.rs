//! What stays on the terminal after a screen closes: the run's figures, where things were saved, and how to get the same again.

use std::io::{self, Write};
use std::path::PathBuf;

use super::output::stdout;
use crate::model::{Configuration, DeviceKind, Effect, Figure, Finding, Measurement, Remedy, RunSettings, View};
use crate::session::{Switch, in_flags, in_program};
use crate::source::{Picture, SourceKind};
use crate::tui::{self, Exit, OpeningCommand, ScreenOutcome};

/// Findings that are printed; the screens show more.
const FINDINGS: usize = 3;
/// Cells of a heading.
const HEAD: usize = 15;
/// With fewer cells, words may be broken.
const LEAST: usize = 20;

/// Prints the summary if the user left by choice; if a signal ended the program, prints nothing.
///
/// # Errors
/// If standard output can't be written.
pub(super) fn print(left: &ScreenOutcome, origin: &OpeningCommand) -> io::Result<()> {
    if left.exit != Exit::Quit {
        return Ok(());
    }
    let width = crossterm::terminal::size().map_or(usize::MAX, |(columns, _)| usize::from(columns));
    let mut out = stdout();
    for line in lines(left, origin) {
        for row in line.rows(width) {
            writeln!(out, "{}", left.glyphs.shown(&row))?;
        }
    }
    out.flush()
}

/// A line of the summary.
struct SummaryLine {
    head: &'static str,
    text: String,
    /// The line is to be pasted: if a terminal breaks it, a copy still gives the whole line.
    literal: bool,
}

impl SummaryLine {
    /// The line as a terminal of this width shows it: words stay whole, and continuation lines are indented below the text.
    fn rows(&self, width: usize) -> Vec<String> {
        let before = if self.head.is_empty() { 0 } else { HEAD + 2 };
        let head = if self.head.is_empty() { String::new() } else { format!("  {:<HEAD$}", self.head) };
        let room = width.saturating_sub(before);
        if self.literal || room < LEAST {
            return vec![format!("{head}{}", self.text)];
        }
        let rows = crate::drawing::pane::wrap(&self.text, room);
        let begins = std::iter::once(head).chain(std::iter::repeat(" ".repeat(before)));
        rows.into_iter().zip(begins).map(|(row, begin)| format!("{begin}{row}")).collect()
    }
}

fn lines(left: &ScreenOutcome, origin: &OpeningCommand) -> Vec<SummaryLine> {
    let picture = &*left.picture;
    let view = &*picture.view;
    let mut lines = vec![SummaryLine { head: "", text: title(picture), literal: false }];
    let mut tell = |head, text| lines.push(SummaryLine { head, text, literal: false });
    if !view.knows_peaks() {
        tell("at the end", format!("{} allocated, {} reserved", view.ledger.allocated(), view.ledger.reserved()));
    } else if !view.segments.is_empty() || view.peak_reserved.get() > 0 {
        tell("peak", format!("{} allocated, {} reserved", view.peak_allocated, view.peak_reserved));
    }
    if let Some(effect) = view.effects.iter().rev().find_map(|effect| effect_told(effect)) {
        tell("last effect", effect);
    }
    for (head, text) in best(&picture.configurations, view) {
        tell(head, text);
    }
    for finding in view.findings.iter().take(FINDINGS) {
        tell("found", finding_told(finding, |remedy| word(picture, remedy)));
    }
    let mut paste = |head, text| lines.push(SummaryLine { head, text, literal: true });
    let mut files = |head, files: &[PathBuf]| {
        files.iter().for_each(|path| paste(head, path.display().to_string()));
    };
    files("recorded", &left.recordings);
    files("screen saved", &left.screens);
    paste(if picture.is_live() { "run it again" } else { "open it again" }, origin.command(picture));
    lines
}

/// A remedy for the next run: our flags for our own run, PyTorch's code for a user's program.
fn word(picture: &Picture, remedy: &Remedy) -> String {
    let about = &picture.view.about;
    match picture.kind {
        SourceKind::Live => in_flags(remedy),
        SourceKind::Recording(_) if about.history.is_none() => in_flags(remedy),
        SourceKind::Recording(_) | SourceKind::Snapshot(_) | SourceKind::Watched(_) => {
            in_program(remedy, about.oldest_torch())
        }
    }
}

/// `gpt2 on sim:h200 · NVIDIA H200: 41 steps of 87.1 ms (simulated)`.
fn title(picture: &Picture) -> String {
    let view = &*picture.view;
    let about = &view.about;
    let mut title = match &picture.kind {
        SourceKind::Live => String::new(),
        SourceKind::Watched(_) => String::new(),
        SourceKind::Recording(name) | SourceKind::Snapshot(name) => format!("{name}: "),
    };
    title.push_str(match &*about.workload {
        "" => "vramlab",
        workload => workload,
    });
    if !about.device.is_empty() {
        title.push_str(&format!(" on {}", about.device));
    }
    if let SourceKind::Snapshot(_) = picture.kind {
        return title;
    }
    let steps = picture.extent.steps;
    title.push_str(&format!(", {steps} {}", if steps == 1 { "step" } else { "steps" }));
    if view.steps.finished > 0 {
        title.push_str(&format!(" of {:.1} ms{}", view.steps.median.0 as f64 / 1e3, simulated(view)));
    }
    title
}

const fn simulated_word(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Simulated => " (simulated)",
        DeviceKind::Absent => " (of the host: nothing was computed)",
        DeviceKind::Gpu | DeviceKind::Processor => "",
    }
}

fn simulated(view: &View) -> &'static str {
    simulated_word(view.about.kind)
}

/// `AMP off → bf16: peak allocated −31 %, step +12 %`; `None` if the effect was not measured.
fn effect_told(effect: &Effect) -> Option<String> {
    if let Some(emptied) = &effect.emptied {
        return Some(format!("empty_cache: {} went back to the driver", emptied.released));
    }
    let (before, after) = (effect.before.as_ref()?, effect.after.as_ref()?);
    let flips: Vec<String> =
        effect.flips.iter().map(|flip| format!("{} {} → {}", label(&flip.switch), flip.from, flip.to)).collect();
    let changes: Vec<String> = [
        ("peak allocated", Some((before.peak_allocated, after.peak_allocated))),
        ("peak reserved", Some((before.peak_reserved, after.peak_reserved))),
        ("step", before.step.zip(after.step)),
    ]
    .into_iter()
    .filter_map(|(word, figures)| figures.map(|(before, after)| format!("{word} {}", tui::change(&before, &after))))
    .collect();
    Some(format!("{}: {}", flips.join(", "), changes.join(", ")))
}

/// The configurations with the least memory and the least time, if there are several.
fn best(all: &[std::sync::Arc<Configuration>], view: &View) -> Vec<(&'static str, String)> {
    let measured: Vec<(&Configuration, &Measurement)> =
        all.iter().filter_map(|one| Some((&**one, &one.measured.as_ref()?.1))).collect();
    let [(first, base), _, ..] = &*measured else { return Vec::new() };
    let least = |of: fn(&Measurement) -> Option<Figure>| {
        let figures: Vec<Option<Figure>> = measured.iter().map(|(_, measured)| of(measured)).collect();
        Figure::best_of(&figures, true).first().map(|&place| measured[place])
    };
    let name = |one: &Configuration| match &*differences(&first.settings, &one.settings) {
        "" => "initial settings".to_owned(),
        name => name.to_owned(),
    };
    let change = |base: &Figure, of: &Figure| match &*tui::change(base, of) {
        "same" | "" => String::new(),
        change => format!(", {change} against the first"),
    };
    let memory = least(|of| Some(of.peak_allocated)).map(|(one, of)| {
        let change = change(&base.peak_allocated, &of.peak_allocated);
        ("least memory", format!("{}: {} allocated{change}", name(one), of.peak_allocated.bytes()))
    });
    let time = least(|of| of.step).and_then(|(one, of)| {
        let (base, of) = base.step.zip(of.step)?;
        let (change, simulated) = (change(&base, &of), simulated(view));
        Some(("fastest", format!("{}: {:.1} ms a step{simulated}{change}", name(one), of.median / 1e3)))
    });
    memory.into_iter().chain(time).collect()
}

fn label(word: &str) -> &str {
    Switch::named(word).map_or(word, |switch| switch.label())
}

/// The settings that differ: `AMP bf16, checkpoint on`.
fn differences(first: &RunSettings, other: &RunSettings) -> String {
    let differs = |setting: &&crate::model::Setting| {
        first.get(&setting.switch).is_some_and(|before| before.value != setting.value)
    };
    let words = other.0.iter().filter(differs).map(|setting| format!("{} {}", label(&setting.switch), setting.value));
    words.collect::<Vec<_>>().join(", ")
}

fn finding_told(finding: &Finding, word: impl Fn(&Remedy) -> String) -> String {
    let remedies: Vec<String> = finding.remedies.iter().map(word).collect();
    if remedies.is_empty() { finding.to_string() } else { format!("{finding} (try {})", remedies.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Lab, Setting};
    use crate::source::Extent;
    use crate::synthetic;
    use crate::tui::GlyphTier;

    fn left(exit: Exit) -> ScreenOutcome {
        let mut lab = Lab::new();
        synthetic::training_run().iter().for_each(|event| lab.apply(event));
        let steps = lab.finished();
        let first = lab.view().configurations[0].clone();
        let under = |amp: &str, share: f64| {
            let setting = Setting { switch: "amp".into(), value: amp.into(), wanted: None, idle: None };
            let mut one = Configuration { settings: Arc::new(RunSettings(vec![setting])), ..(*first).clone() };
            let (_, measured) = one.measured.as_mut().unwrap();
            let peak = measured.peak_allocated.median * share;
            measured.peak_allocated = Figure { median: peak, low: peak, high: peak };
            Arc::new(one)
        };
        let configurations = Arc::from([under("off", 1.0), under("bf16", 0.5)]);
        let extent = Extent { steps, ..Extent::default() };
        let picture = Picture { view: Arc::new(lab.view()), configurations, extent, ..Picture::default() };
        ScreenOutcome {
            exit,
            picture: picture.into(),
            glyphs: GlyphTier::Unicode,
            recordings: vec!["run.vram".into()],
            screens: vec!["a.svg".into()],
        }
    }

    #[test]
    fn the_summary_tells_what_the_run_came_to_and_where_things_are() {
        let left = left(Exit::Quit);
        let said = lines(&left, &OpeningCommand::default());
        let lines: Vec<String> = said.iter().flat_map(|line| line.rows(usize::MAX)).collect();
        let view = &left.picture.view;
        assert!(lines[0].contains(&format!("{} steps", left.picture.extent.steps)), "{lines:?}");
        let told = |head: &str| {
            let of_head = |line: &&String| line.starts_with(&format!("  {head:<HEAD$}"));
            lines.iter().find(of_head).unwrap_or_else(|| panic!("no {head}: {lines:?}"))[HEAD + 2..].to_owned()
        };
        assert_eq!(told("peak"), format!("{} allocated, {} reserved", view.peak_allocated, view.peak_reserved));
        assert!(told("last effect").contains(" → "), "{lines:?}");
        let least = told("least memory");
        assert!(least.starts_with("AMP bf16: ") && least.ends_with("allocated, −50 % against the first"), "{least}");
        assert!(told("found").starts_with(&view.findings[0].to_string()));
        assert_eq!((told("recorded"), told("screen saved")), ("run.vram".to_owned(), "a.svg".to_owned()));
        assert!(told("run it again").starts_with("vramlab run "));
        for head in ["least memory", "screen saved", "run it again", "open it again"] {
            assert!(head.len() + 2 <= HEAD, "what is told stands clear of {head}");
        }
        assert!(lines.len() <= 12, "few lines: {lines:?}");
        // Narrow terminals break words only in lines to paste.
        for line in said.iter().filter(|line| !line.literal) {
            let rows = line.rows(60);
            assert!(rows.iter().all(|row| row.chars().count() <= 60), "{rows:?}");
            let words =
                |rows: &[String]| rows.iter().flat_map(|row| row.split_whitespace()).collect::<Vec<_>>().join(" ");
            assert_eq!(words(&rows), words(&line.rows(usize::MAX)));
            assert!(rows.iter().skip(1).all(|row| line.head.is_empty() || row.starts_with(&" ".repeat(HEAD + 2))));
        }
    }

    #[test]
    fn somebodys_own_program_is_told_what_to_change_in_it() {
        let mut picture = Picture { kind: SourceKind::Live, ..Picture::default() };
        let remedy = Remedy::SmallerBatch { batch: 0 };
        assert_eq!(word(&picture, &remedy), "a smaller --batch");
        for kind in [SourceKind::Snapshot("a.pickle".into()), SourceKind::Watched("train.py".into())] {
            picture.kind = kind;
            assert_eq!(word(&picture, &remedy), "a smaller batch");
            assert!(word(&picture, &Remedy::EXPANDABLE).starts_with("PYTORCH_"));
        }
    }
}
