//! `vramlab check`: checks runs against limits.

mod verdict;

use std::io::{self, Write};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;
use serde_json::{Value, json};

use crate::cli::columns::Paper;
use crate::cli::output::{complain, warn};
use crate::cli::subject::examine;
use crate::cli::subjects::{Subject, SubjectsArgs};
use crate::cli::{Status, Usage};
use crate::model::Begins;
use crate::source::DeviceExamination;
use crate::units::Bytes;
use crate::whatif::{Facts, Program};
use verdict::{CheckedLimit, LimitVerdict};

/// Arguments of `vramlab check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    subjects: SubjectsArgs,
    /// The highest peak of allocated memory that passes, such as 20GiB.
    #[arg(long, value_name = "BYTES")]
    max_peak: Option<Bytes>,
    /// The highest peak of reserved memory that passes, such as 22GiB.
    #[arg(long, value_name = "BYTES")]
    max_reserved: Option<Bytes>,
    /// The most memory that may be stranded at the peak of reserved memory: 5% of it, or 200MiB.
    #[arg(long, value_name = "PERCENT|BYTES")]
    max_stranded: Option<Threshold>,
    /// The most that all leaks together may grow in a step, such as 1MiB/step.
    #[arg(long, value_name = "BYTES/step")]
    max_leak: Option<Rate>,
    /// Fail if a replay under this memory limit, such as 24GiB, runs out of memory.
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// Fail if any request for memory failed.
    #[arg(long)]
    no_oom: bool,
    /// Format: text for a terminal, json for programs, github for annotations in a workflow.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// How the outcome is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// For a terminal.
    Text,
    /// For programs.
    Json,
    /// For a workflow of GitHub.
    Github,
}

/// Bytes, or a share of reserved memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Threshold {
    Percent(f64),
    Bytes(Bytes),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else { return text.parse().map(Self::Bytes) };
        let percent = number.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self::Percent).ok_or_else(|| "a share is a number from 0 to 100, such as 5%".to_owned())
    }
}

/// Bytes per step; zero is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(Bytes);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.strip_suffix("/step").unwrap_or(text).trim() {
            "0" => Ok(Self(Bytes::ZERO)),
            size => size.parse().map(Self),
        }
    }
}

/// The outcome for one device of a file.
struct DeviceOutcome {
    file: String,
    /// How sentences name the device, if the file has several.
    which: String,
    run: Facts,
    leak: Option<Bytes>,
    checked: Vec<CheckedLimit>,
}

/// Reads the files and reports which limits are broken. Exit code 1: a limit is broken; 2: a file can't be read; 3: a
/// limit can't be judged.
pub(super) fn run(args: &CheckArgs) -> Result<Status> {
    let sizes = [args.max_peak.is_some(), args.max_reserved.is_some(), args.max_stranded.is_some()];
    let others = [args.max_leak.is_some(), args.limit.is_some(), args.no_oom];
    if !sizes.iter().chain(&others).any(|given| *given) {
        let options = "--max-peak, --max-reserved, --max-stranded, --max-leak, --limit or --no-oom";
        return Err(Usage(format!("there is no limit to check; give {options}")).into());
    }
    if args.subjects.files.is_empty() {
        return Err(Usage("there is no file to check; give one, or one for each rank".into()).into());
    }
    // Only a limit needs a replay, and reading the requests for it takes as long as reading all the rest.
    let outcomes = match args.limit {
        Some(_) => args.subjects.all(None).map(|read| args.outcomes(&read, |run| Some(&run.program))),
        None => args.subjects.facts().map(|read| args.outcomes(&read, |_| None)),
    };
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes?,
        // A workflow must not mistake an unreadable file for a broken limit.
        Err(report) => {
            crate::cli::tell(&report);
            return Ok(Status::USAGE);
        }
    };
    let worst = outcomes.iter().flat_map(|of| &of.checked).map(|checked| checked.verdict).max().unwrap_or_default();
    let format = if args.json { CheckFormat::Json } else { args.format };
    let paper = Paper::terminal();
    write(&mut paper.out(), paper, format, &outcomes, worst)?;
    if worst == LimitVerdict::Unknown && format == CheckFormat::Text {
        complain("a limit that can't be checked is neither kept nor broken: exit code 3");
    }
    Ok(match worst {
        LimitVerdict::Kept => Status::DONE,
        LimitVerdict::Unknown => Status::UNKNOWN,
        LimitVerdict::Broken => Status::FAILED,
    })
}

fn leak(examined: &DeviceExamination) -> Bytes {
    examined.leaks.iter().map(|leak| leak.bytes_per_step).sum()
}

impl CheckArgs {
    /// Returns the outcome of every device of every file; `program` is what the run requested, if that was read.
    fn outcomes<R: AsRef<Facts>>(
        &self,
        subjects: &[Subject<R>],
        program: impl Fn(&R) -> Option<&Program>,
    ) -> Result<Vec<DeviceOutcome>> {
        let mut outcomes = Vec::new();
        for subject in subjects {
            let examined = if self.max_leak.is_some() { examine(&subject.whole)? } else { Vec::new() };
            for run in &subject.runs {
                let facts = run.as_ref();
                let of = examined.iter().find(|examined| examined.device == facts.device);
                let mut which = String::new();
                if subjects.len() > 1 {
                    which += &format!("{}: ", subject.name);
                }
                if subject.runs.len() > 1 {
                    which += &format!("device {}: ", facts.device.0);
                }
                if facts.figures.ooms > 0 && !self.no_oom {
                    warn(format_args!("{which}requests for memory failed in it; --no-oom makes that an error"));
                }
                let leak = of.filter(|of| of.rhythm.is_some()).map(leak);
                let checked = self.checked(facts, program(run), of);
                outcomes.push(DeviceOutcome { file: subject.name.clone(), which, run: facts.clone(), leak, checked });
            }
        }
        Ok(outcomes)
    }

    /// The figures of a run that are checked against the given limits.
    fn checked(
        &self,
        run: &Facts,
        program: Option<&Program>,
        examined: Option<&DeviceExamination>,
    ) -> Vec<CheckedLimit> {
        let mut checked = Vec::new();
        // If events were overwritten or never recorded, the peak that is seen is only a lower bound.
        let unseen = match run.begins {
            Some(Begins::Ring) => {
                Some("the ring buffer overwrote the oldest entries; record with a larger max_entries")
            }
            Some(Begins::Nowhere) => {
                Some("the file has no history; call _record_memory_history() before the program runs")
            }
            _ => None,
        };
        let figures = &run.figures;
        for (name, what, is, most, option) in [
            ("max_peak", "peak of allocated memory", figures.peak_allocated, self.max_peak, "--max-peak"),
            ("max_reserved", "peak of reserved memory", figures.peak_reserved, self.max_reserved, "--max-reserved"),
        ] {
            let Some(most) = most else { continue };
            let bytes = is.get();
            checked.push(CheckedLimit::of(name, Some(bytes), Some(most.get()), is > most, unseen, |verdict| {
                match verdict {
                    LimitVerdict::Kept => format!("the {what} is {is}, within {option} {most}"),
                    LimitVerdict::Broken => format!("the {what} is {is} ({bytes} bytes), above {option} {most}"),
                    LimitVerdict::Unknown => format!("the {what} is {is} at least"),
                }
            }));
        }
        if let Some(most) = self.max_stranded {
            let (stranded, reserved) = (run.stranded_at_peak, figures.peak_reserved);
            let percent = stranded.get() as f64 / reserved.get().max(1) as f64 * 100.0;
            let (over, most) = match most {
                Threshold::Percent(most) => (percent > most, format!("{most} %")),
                Threshold::Bytes(most) => (stranded > most, most.to_string()),
            };
            checked.push(CheckedLimit::of("max_stranded", Some(stranded.get()), None, over, unseen, |verdict| {
                let above = if verdict == LimitVerdict::Broken { "above" } else { "within" };
                format!("{stranded} ({percent:.1} % of reserved) are stranded where most is reserved, {above} --max-stranded {most}")
            }));
        }
        if let (Some(Rate(most)), Some(examined)) = (self.max_leak, examined) {
            let unseen = examined.rhythm.is_none().then_some(
                "the run has too few repeating steps to tell a leak from memory that is taken once; record more steps",
            );
            let rate = leak(examined);
            let told = unseen.is_none().then_some(rate.get());
            checked.push(CheckedLimit::of("max_leak", told, Some(most.get()), rate > most, unseen, |verdict| {
                match (verdict, examined.leaks.first()) {
                    (LimitVerdict::Broken, Some(worst)) => format!(
                        "every step leaves {rate} behind, most of it {} ({}), above --max-leak {most}/step",
                        worst.line, worst.bytes_per_step
                    ),
                    (LimitVerdict::Unknown, _) => "what a step leaves behind is not known".to_owned(),
                    _ => format!("every step leaves {rate} behind, within --max-leak {most}/step"),
                }
            }));
        }
        if self.no_oom {
            let ooms = figures.ooms;
            checked.push(CheckedLimit::of("no_oom", Some(ooms), Some(0), ooms > 0, unseen, |verdict| match verdict {
                LimitVerdict::Broken if ooms == 1 => "1 request for memory failed".to_owned(),
                LimitVerdict::Broken => format!("{ooms} requests for memory failed"),
                LimitVerdict::Kept => "no request for memory failed".to_owned(),
                LimitVerdict::Unknown => "no recorded request for memory failed".to_owned(),
            }));
        }
        if let (Some(limit), Some(program)) = (self.limit, program) {
            let mut conditions = run.conditions.clone();
            conditions.limit = Some(limit);
            let ooms = program.replay(&conditions).figures.ooms;
            checked.push(CheckedLimit::of("limit", Some(ooms), Some(0), ooms > 0, unseen, |verdict| match verdict {
                LimitVerdict::Kept => format!("the run goes through under --limit {limit} (replayed)"),
                LimitVerdict::Broken => format!("under --limit {limit} requests for memory fail: {ooms} (replayed)"),
                LimitVerdict::Unknown => format!("the recorded part goes through under --limit {limit} (replayed)"),
            }));
        }
        checked
    }
}

fn write(
    out: &mut impl Write,
    paper: Paper,
    format: CheckFormat,
    outcomes: &[DeviceOutcome],
    worst: LimitVerdict,
) -> io::Result<()> {
    match format {
        CheckFormat::Json => writeln!(out, "{}", object(outcomes, worst)),
        CheckFormat::Text => {
            for (outcome, checked) in all(outcomes).filter(|(_, checked)| checked.verdict != LimitVerdict::Kept) {
                paper.paragraph(out, &format!("{}{}", outcome.which, checked.sentence), 0, checked.verdict.tone())?;
            }
            if worst == LimitVerdict::Kept {
                let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.file.as_str()).collect();
                let names = if names.len() > 1 {
                    format!("{} runs are", names.len())
                } else {
                    format!("{} is", names.concat())
                };
                paper.paragraph(out, &format!("{names} within all limits"), 0, worst.tone())?;
            }
            Ok(())
        }
        CheckFormat::Github => {
            for (outcome, checked) in all(outcomes) {
                let level = match checked.verdict {
                    LimitVerdict::Kept => "notice",
                    LimitVerdict::Unknown => "warning",
                    LimitVerdict::Broken => "error",
                };
                let sentence = format!("{}{}", outcome.which, checked.sentence);
                writeln!(out, "::{level} title={}::{}", property("vramlab check"), escaped(&sentence))?;
            }
            Ok(())
        }
    }
}

fn all(outcomes: &[DeviceOutcome]) -> impl Iterator<Item = (&DeviceOutcome, &CheckedLimit)> {
    outcomes.iter().flat_map(|outcome| outcome.checked.iter().map(move |checked| (outcome, checked)))
}

fn object(outcomes: &[DeviceOutcome], worst: LimitVerdict) -> Value {
    let sentences = |wanted: LimitVerdict| -> Vec<String> {
        let those = all(outcomes).filter(|(_, checked)| checked.verdict == wanted);
        those.map(|(outcome, checked)| format!("{}{}", outcome.which, checked.sentence)).collect()
    };
    let run = |outcome: &DeviceOutcome| {
        let figures = &outcome.run.figures;
        json!({
            "file": outcome.file,
            "device": outcome.run.device,
            "begins": outcome.run.begins,
            "peak_allocated": figures.peak_allocated,
            "peak_reserved": figures.peak_reserved,
            "stranded_at_peak": outcome.run.stranded_at_peak,
            "leak_per_step": outcome.leak,
            "num_ooms": figures.ooms,
            "steps": outcome.run.steps,
            "checks": outcome.checked,
        })
    };
    json!({
        "units": { "sizes": "bytes" },
        "passed": worst == LimitVerdict::Kept,
        "verdict": worst,
        "broken": sentences(LimitVerdict::Broken),
        "unknown": sentences(LimitVerdict::Unknown),
        "runs": outcomes.iter().map(run).collect::<Vec<_>>(),
    })
}

/// Escapes a message in the way that GitHub's workflows read.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        assert_eq!("5%".parse(), Ok(Threshold::Percent(5.0)));
        assert_eq!("1.5 %".parse(), Ok(Threshold::Percent(1.5)));
        assert_eq!("200MiB".parse(), Ok(Threshold::Bytes(Bytes::mib(200))));
        for text in ["1MiB/step", "1MiB", "1048576", " 1 MiB / step"] {
            assert_eq!(text.replace(" / ", "/").parse(), Ok(Rate(Bytes::mib(1))), "{text}");
        }
        assert_eq!("0".parse(), Ok(Rate(Bytes::ZERO)));
        assert!("101%".parse::<Threshold>().is_err() && "much".parse::<Rate>().is_err());
    }

    #[test]
    fn a_message_for_a_workflow_is_one_line() {
        assert_eq!(escaped("5 % of\nit"), "5 %25 of%0Ait");
        assert_eq!(property("a:b,c"), "a%3Ab%2Cc");
    }
}
