//! `vramlab check`: holds a run to limits.

use std::io::Write;
use std::str::FromStr;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::json;

use super::output::{stdout, warn};
use super::subject::{SubjectArgs, examine};
use super::{Status, Usage};
use crate::source::Examined;
use crate::units::Bytes;
use crate::whatif::Recorded;

/// Arguments of `vramlab check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// The highest peak of allocated memory, such as 20GiB.
    #[arg(long, value_name = "BYTES")]
    max_peak: Option<Bytes>,
    /// The highest peak of reserved memory.
    #[arg(long, value_name = "BYTES")]
    max_reserved: Option<Bytes>,
    /// The most that may be stranded where most is reserved: 5% of it, or 200MiB.
    #[arg(long, value_name = "PERCENT|BYTES")]
    max_stranded: Option<Amount>,
    /// The most that all leaks together may keep of a step, such as 1MiB/step.
    #[arg(long, value_name = "BYTES/step")]
    max_leak: Option<Rate>,
    /// Print one JSON object instead of sentences.
    #[arg(long)]
    json: bool,
}

/// Bytes, or a share of reserved memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Percent(f64),
    Bytes(Bytes),
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else { return text.parse().map(Self::Bytes) };
        let percent = number.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self::Percent).ok_or_else(|| "a share is a number from 0 to 100, such as 5%".to_owned())
    }
}

/// Bytes of a step; none are allowed, too.
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

/// Reads the file and tells which limits are broken: exit code 1 where any is.
pub(super) fn run(args: &CheckArgs) -> Result<Status> {
    let limits =
        [args.max_peak.is_some(), args.max_reserved.is_some(), args.max_stranded.is_some(), args.max_leak.is_some()];
    if !limits.contains(&true) {
        return Err(Usage(
            "there is no limit to check; give --max-peak, --max-reserved, --max-stranded or --max-leak".into(),
        )
        .into());
    }
    let (whole, runs) = args.subject.all()?;
    let examined = if args.max_leak.is_some() { examine(&whole)? } else { Vec::new() };
    let mut broken = Vec::new();
    for run in &runs {
        let of = examined.iter().find(|examined| examined.device == run.device);
        let sentences = args.broken(run, of);
        broken.extend(sentences.into_iter().map(|sentence| match runs.len() {
            1 => sentence,
            _ => format!("device {}: {sentence}", run.device.0),
        }));
        if run.figures.ooms > 0 {
            warn(format_args!("device {}: requests for memory failed in it", run.device.0));
        }
    }
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", json!({ "passed": broken.is_empty(), "broken": broken }))?;
    } else {
        for sentence in &broken {
            writeln!(out, "{sentence}")?;
        }
        if broken.is_empty() {
            writeln!(out, "{} is within all limits", args.subject.name())?;
        }
    }
    Ok(if broken.is_empty() { Status::DONE } else { Status::FAILED })
}

impl CheckArgs {
    /// A sentence for every limit that a run breaks.
    fn broken(&self, run: &Recorded, examined: Option<&Examined>) -> Vec<String> {
        let mut broken = Vec::new();
        for (what, is, most, option) in [
            ("peak of allocated memory", run.figures.peak_allocated, self.max_peak, "--max-peak"),
            ("peak of reserved memory", run.figures.peak_reserved, self.max_reserved, "--max-reserved"),
        ] {
            if let Some(most) = most.filter(|most| is > *most) {
                broken.push(format!("the {what} is {is} ({} bytes), above {option} {most}", is.get()));
            }
        }
        let (stranded, reserved) = (run.stranded_at_peak, run.figures.peak_reserved);
        let percent = stranded.get() as f64 / reserved.get().max(1) as f64 * 100.0;
        let over = match self.max_stranded {
            Some(Amount::Percent(most)) => (percent > most).then(|| format!("{most} %")),
            Some(Amount::Bytes(most)) => (stranded > most).then(|| most.to_string()),
            None => None,
        };
        if let Some(most) = over {
            broken.push(format!(
                "{stranded} ({percent:.1} % of reserved) are stranded where most is reserved, above --max-stranded {most}"
            ));
        }
        if let (Some(Rate(most)), Some(examined)) = (self.max_leak, examined) {
            if examined.rhythm.is_none() {
                warn(format_args!(
                    "device {}: it does not repeat itself often enough to tell a leak; record more steps",
                    run.device.0
                ));
            }
            let rate: Bytes = examined.leaks.iter().map(|leak| leak.bytes_per_step).sum();
            if let Some(worst) = examined.leaks.first().filter(|_| rate > most) {
                broken.push(format!(
                    "every step leaves {rate} behind, most of it {} ({}), above --max-leak {most}/step",
                    worst.line, worst.bytes_per_step
                ));
            }
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        assert_eq!("5%".parse(), Ok(Amount::Percent(5.0)));
        assert_eq!("1.5 %".parse(), Ok(Amount::Percent(1.5)));
        assert_eq!("200MiB".parse(), Ok(Amount::Bytes(Bytes::mib(200))));
        for text in ["1MiB/step", "1MiB", "1048576", " 1 MiB / step"] {
            assert_eq!(text.replace(" / ", "/").parse(), Ok(Rate(Bytes::mib(1))), "{text}");
        }
        assert_eq!("0".parse(), Ok(Rate(Bytes::ZERO)));
        assert!("101%".parse::<Amount>().is_err() && "much".parse::<Rate>().is_err());
    }
}
