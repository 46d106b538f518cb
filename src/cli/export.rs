//! `vramlab export`: writes a recording or snapshot as a file for another program.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use color_eyre::eyre::{Report, Result, WrapErr};

use super::film::{FilmArgs, Shot};
use super::flags::WORDS;
use super::output::warn;
use super::progress::ProgressLine;
use super::{Status, Usage};
use crate::allocator::TorchVersion;
use crate::export::{self, AtomicFile, ExportError, ExportMoment, Format, MomentError};
use crate::source::{LoadProgress, Whole};

/// Arguments of `vramlab export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// A recording or a PyTorch memory snapshot; `-` reads standard input.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// The PyTorch version of a snapshot, from 2.1 to 2.15 [default: the one that its keys show].
    #[arg(long, value_name = "VERSION")]
    torch: Option<TorchVersion>,
    /// The format to write.
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    to: Target,
    /// A new file, or `-` for standard output.
    #[arg(long, value_name = "PATH|-", default_value = "-", hide_default_value = true)]
    out: PathBuf,
    /// The moment: now (the end), peak (of allocated), oom (the last request that failed), step:N (where the step begins),
    /// event:N (after N events). A table or trace ends there.
    #[arg(long, value_name = "MOMENT", default_value = "now")]
    at: ExportMoment,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    film: FilmArgs,
}

/// What the file is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A file of another program.
    Data(Format),
    /// A screen.
    Shot(Shot),
}

impl Target {
    fn all() -> impl Iterator<Item = Self> {
        Format::ALL.into_iter().map(Self::Data).chain(Shot::ALL.into_iter().map(Self::Shot))
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Data(format) => format.word(),
            Self::Shot(shot) => shot.word(),
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Data(format) => format.about(),
            Self::Shot(shot) => shot.about(),
        }
    }

    const fn is_binary(self) -> bool {
        matches!(self, Self::Data(format) if format.is_binary())
    }
}

fn format() -> impl TypedValueParser<Value = Target> {
    let values: Vec<PossibleValue> =
        Target::all().map(|target| PossibleValue::new(target.word()).help(target.about())).collect();
    let named = |word: String| Target::all().find(|target| target.word() == word);
    PossibleValuesParser::new(values).try_map(move |word| named(word).ok_or("there is no such format"))
}

/// Writes the file.
pub(super) fn run(args: &ExportArgs) -> Result<Status> {
    let piped = args.out == Path::new("-");
    if piped && args.to.is_binary() && io::stdout().is_terminal() {
        let word = args.to.word();
        return Err(Usage(format!("{word} is binary; give --out a name, or pipe it")).into());
    }
    args.film.check(match args.to {
        Target::Data(_) => None,
        Target::Shot(shot) => Some(shot),
    })?;
    // A missing destination is reported before anything is read.
    let file = if piped {
        None
    } else {
        Some(AtomicFile::create(&args.out, args.force).map_err(|error| refused(error, args))?)
    };
    let whole = read(&args.file, args.torch)?;
    let end = position(args.at, &whole)?;
    let mut progress = ProgressLine::new("exporting", 100);
    let mut look = |done: u64, total: u64| progress.of(done, total);
    let written = match file {
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            write(args, &whole, end, &mut out, &mut look)
        }
        Some(mut file) => {
            let written = write(args, &whole, end, &mut file, &mut look);
            written.and_then(|()| file.finish().map_err(|error| refused(error, args)))
        }
    };
    drop(progress);
    written?;
    Ok(Status::DONE)
}

fn write(
    args: &ExportArgs,
    whole: &Whole,
    end: u64,
    out: &mut dyn Write,
    look: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    match args.to {
        Target::Data(format) => {
            export::write(whole, format, end, &WORDS, out, look).map_err(|error| refused(error, args))
        }
        Target::Shot(shot) => args.film.write(shot, whole, end, out, look),
    }
}

fn refused(error: ExportError, args: &ExportArgs) -> Report {
    match error {
        ExportError::Exists => {
            let path = args.out.display();
            Usage(format!("{path} is there already; give --out another name, or --force to replace it")).into()
        }
        error => error.into(),
    }
}

/// Reads a whole recording or snapshot, and prints what the user should know about it.
pub(super) fn read(path: &Path, torch: Option<TorchVersion>) -> Result<Whole> {
    let whole = read_quietly(path, torch)?;
    whole.remarks().iter().for_each(|remark| warn(format_args!("{}: {remark}", name_of(path))));
    Ok(whole)
}

fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() }
}

/// Reads a whole recording or snapshot for a caller that reports its remarks elsewhere.
pub(super) fn read_quietly(path: &Path, torch: Option<TorchVersion>) -> Result<Whole> {
    let mut progress: Option<(ProgressLine, bool)> = None;
    let whole = Whole::read(path, torch, |reading| {
        let (what, done, total, replays) = match reading {
            // The size of a pipe's content is unknown.
            LoadProgress::Bytes(_, 0) => return,
            LoadProgress::Bytes(done, total) => ("reading", done, total, false),
            LoadProgress::Entries(done, total) => ("replaying", done, total, true),
        };
        if progress.as_ref().is_none_or(|(_, before)| *before != replays) {
            progress = Some((ProgressLine::new(what, total), replays));
        }
        if let Some((progress, _)) = &mut progress {
            progress.at(done);
        }
    });
    drop(progress);
    whole.wrap_err_with(|| format!("{} can't be read", name_of(path)))
}

/// The position of a moment, in events.
pub(super) fn position(moment: ExportMoment, whole: &Whole) -> Result<u64> {
    moment.position(whole).map_err(|error| match error {
        MomentError::Recording(error) => error.into(),
        error => Usage(error.to_string()).into(),
    })
}
