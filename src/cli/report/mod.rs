//! `vramlab report`: a full report on a run's memory, for people, programs and issue trackers.

mod document;
mod failure;
mod json;
mod message;
mod page;
mod part;
mod ranks;
mod subject;
mod words;

use std::io::Write;

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;

use super::columns::Paper;
use super::output::stdout;
use super::subject::examine;
use super::subjects::{Subject as File, SubjectsArgs};
use super::{Status, Usage};
use crate::snapshot::{PrintedSize, Refusal};
use crate::units::Bytes;
use document::{Style, Writer};
use part::DocumentPart;
use subject::{ReportRequest, ReportSubject};
use words::By;

/// Arguments of `vramlab report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    #[command(flatten)]
    subjects: SubjectsArgs,
    /// PyTorch's message, "CUDA out of memory. Tried to allocate …", a file that holds it, or `-` for standard input. It says the
    /// limit, who else has memory, and how much was requested. Without a FILE, the report explains this message alone.
    #[arg(long, value_name = "MESSAGE|FILE|-")]
    error: Option<String>,
    /// Memory limit of the recorded process, such as 8GiB [default: as the message or the file says].
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// Sum up what held the peak by this: line, module or category.
    #[arg(long, value_enum, default_value_t = By::Line)]
    by: By,
    /// Skip the search for allocator settings, which takes longest.
    #[arg(long)]
    no_settings: bool,
    /// Format: text for a terminal, json for programs, markdown for an issue tracker, html as one page.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For a terminal.
    Text,
    /// For programs.
    Json,
    /// For an issue tracker.
    Markdown,
    /// For a browser, in one file.
    Html,
}

/// Reads the files and prints the report as it is computed, the slowest part last.
pub(super) fn run(args: &ReportArgs) -> Result<Status> {
    let refusal = args.error.as_deref().map(message::read).transpose()?;
    if args.subjects.files.is_empty() {
        let Some(refusal) = &refusal else {
            return Err(
                Usage("there is nothing to report on; give a FILE, or PyTorch's message with --error".into()).into()
            );
        };
        return alone(args, refusal);
    }
    let limit = args.limit.map(PrintedSize::exactly).or(refusal.as_ref().and_then(|refusal| refusal.allowed));
    let files = args.subjects.all(limit)?;
    let asked = ReportRequest { settings: !args.no_settings, refusal: refusal.as_ref(), told: limit };
    match args.format.style() {
        None => object(&files, asked),
        Some(style) => print(args, &files, asked, style),
    }
}

/// Explains a message without a file.
fn alone(args: &ReportArgs, refusal: &Refusal) -> Result<Status> {
    match args.format.style() {
        None => writeln!(stdout(), "{}", json::message(refusal))?,
        Some(style) => {
            let paper = Paper::terminal();
            let mut out = Writer::new(paper.out(), style, paper)?;
            out.write(&message::parts(refusal))?;
            out.finish()?;
        }
    }
    Ok(Status::DONE)
}

fn object(files: &[File], asked: ReportRequest<'_>) -> Result<Status> {
    let mut objects = Vec::new();
    for file in files {
        let mut subjects = ReportSubject::all(file, examine(&file.whole)?, asked);
        subjects.iter_mut().try_for_each(ReportSubject::try_settings)?;
        objects.push(json::object(file, &subjects));
    }
    writeln!(stdout(), "{}", json::all(objects, asked.refusal))?;
    Ok(Status::DONE)
}

fn print(args: &ReportArgs, files: &[File], asked: ReportRequest<'_>, style: Style) -> Result<Status> {
    let paper = Paper::terminal();
    let mut out = Writer::new(paper.out(), style, paper)?;
    out.write(&title(files))?;
    let mut subjects = Vec::new();
    for file in files {
        subjects.extend(ReportSubject::all(file, examine(&file.whole)?, asked));
    }
    let several = subjects.len() > 1;
    if several {
        out.write(&ranks::parts(&subjects))?;
    }
    // Of a job's ranks, the worst is examined.
    if files.len() > 1 {
        let worst = ranks::worst(&subjects);
        subjects = subjects.into_iter().enumerate().filter(|(index, _)| *index == worst).map(|(_, of)| of).collect();
    }
    for subject in &mut subjects {
        if several {
            out.write(&[DocumentPart::Heading(subject.called(files.len() > 1))])?;
        }
        out.write(&subject.remarks())?;
        // After a failure, the question is whether the request would have fitted: that is tried first.
        if subject.failure().is_some() {
            subject.try_settings()?;
        }
        out.write(&words::before_settings(subject, args.by))?;
    }
    if !args.no_settings {
        subjects.iter_mut().try_for_each(ReportSubject::try_settings)?;
        out.write(&words::settings(&subjects))?;
    }
    out.finish()?;
    Ok(Status::DONE)
}

fn title(files: &[File]) -> Vec<DocumentPart> {
    let title = match files {
        [one] => format!("Device memory of {}", one.name),
        all => format!("Device memory of {} runs", all.len()),
    };
    let mut parts = vec![DocumentPart::Title(title)];
    for file in files {
        let of = |remark: &String| if files.len() > 1 { format!("{}: {remark}", file.name) } else { remark.clone() };
        let remarks: Vec<String> = file.whole.remarks().iter().map(of).collect();
        if !remarks.is_empty() {
            parts.push(DocumentPart::Items(remarks));
        }
    }
    parts
}

impl ReportFormat {
    /// The document's style; `None` for JSON.
    const fn style(self) -> Option<Style> {
        match self {
            Self::Text => Some(Style::Text),
            Self::Markdown => Some(Style::Markdown),
            Self::Html => Some(Style::Html),
            Self::Json => None,
        }
    }
}
