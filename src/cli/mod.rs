//! The command line: arguments, one file per subcommand, exit codes.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage; for `check`, 1 means a limit is broken and 3 that it can't be judged. A
//! failure is one sentence on what went wrong and another on what to do.

mod bare;
mod check;
mod class;
mod columns;
mod combinations;
mod compare;
mod config;
mod demo;
mod diff;
mod doctor;
mod epoch;
mod estimate;
mod export;
mod farewell;
mod film;
mod fit;
mod fit_program;
mod flags;
mod folklore;
mod followers;
mod foresight;
mod generate;
mod ghost;
mod guide;
mod interrupt;
mod lab;
mod lesson;
mod list;
mod open;
mod output;
mod paste;
mod percent;
mod progress;
mod ranks;
mod record;
pub mod replay;
mod report;
mod reproduce;
mod row;
mod run;
mod said_once;
mod screen;
mod search;
mod selftest;
mod serving;
mod spec;
mod stand_in;
mod status;
mod subject;
mod subjects;
mod summary;
mod switches;
mod times;
mod tune;
mod usage;
mod watch;
mod ways;
mod whatif;

use std::panic;

use clap::{CommandFactory, Parser, Subcommand};
use color_eyre::eyre::{Report, Result};

use crate::user_input::is_safe;
use output::{complain, is_heard};

pub use status::Status;
pub use usage::Usage;

use crate::device::process;

/// An interactive lab for GPU training memory, in a terminal.
///
/// Without a command it opens the lab: a small language model trains, and single keys flip what changes its
/// memory. `?` in the lab lists the keys.
#[derive(Debug, Parser)]
#[command(name = "vramlab", version, args_conflicts_with_subcommands = true, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    lab: lab::LabArgs,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Train without a screen and print the figures.
    Run(Box<run::RunArgs>),
    /// Open a recording or PyTorch snapshots in the lab's screens.
    Open(open::OpenArgs),
    /// Find the largest batch that fits, and the cheapest combination of switches for a batch.
    Fit(Box<fit::FitArgs>),
    /// Compute the memory of a model from its sizes, with formulas, and check them in a simulated run.
    Estimate(Box<estimate::EstimateArgs>),
    /// Start a PyTorch program and watch its memory while it trains.
    Watch(watch::WatchArgs),
    /// Compare configurations of recordings and of `vramlab run --json`.
    Compare(compare::CompareArgs),
    /// Replay a PyTorch memory snapshot through the allocator and compare every decision.
    Replay(replay::ReplayArgs),
    /// Export a recording or snapshot: for PyTorch's viewer or Perfetto, as a table, a state, a screen or a film.
    Export(export::ExportArgs),
    /// Replay a recording or snapshot under other allocator settings: what would it have reserved?
    Whatif(whatif::WhatifArgs),
    /// Search for allocator settings that reduce the memory of a recording or snapshot.
    Tune(tune::TuneArgs),
    /// Show what grew between two recordings or snapshots, by line and category.
    Diff(diff::DiffArgs),
    /// Report on recordings or snapshots: out of memory, leaks, who held the peak, fragmentation, settings that help.
    Report(report::ReportArgs),
    /// Check recordings or snapshots against limits, for CI: exit code 1 if one is broken, 3 if the file can't tell.
    Check(check::CheckArgs),
    /// Print torch.cuda.memory_summary() at any moment of a recording or snapshot.
    Summary(summary::SummaryArgs),
    /// Play a demo of the lab, with captions.
    Demo(demo::DemoArgs),
    /// Read the guide: what to see, what to do, how every number is made.
    Guide(guide::GuideArgs),
    /// Take a lesson: predict, try, read why. Without a name: list them.
    Lesson(Box<lesson::LessonArgs>),
    /// Follow a class: who is at which step of which lesson.
    Class(class::ClassArgs),
    /// Test what articles and forums claim about GPU memory: verdicts, figures and reasons.
    Folklore(folklore::FolkloreArgs),
    /// List workloads, switches, devices and themes.
    List(list::ListArgs),
    /// Show what was found on this machine: GPUs, libraries, memory.
    Doctor(doctor::DoctorArgs),
    /// Print every setting with its default, and the path of the settings file.
    Config(config::ConfigArgs),
    /// Print completions for a shell.
    Completions(generate::CompletionsArgs),
    /// Print the manual page.
    Man,
}

/// Runs the program and ends the process with its exit code.
pub fn main() -> ! {
    let hooks = color_eyre::config::HookBuilder::default()
        .display_env_section(false)
        .panic_section("This is a bug in vramlab. Training stopped; your terminal should be as it was.");
    // Errors are printed as words only: color-eyre's own hook would look up a backtrace for each, which takes half a second.
    match hooks.try_into_hooks() {
        Ok((panics, _)) => panics.install(),
        Err(error) => complain(format_args!("warning: reports of bugs will be plain: {error}")),
    }
    let print = panic::take_hook();
    // A hook that can't print would panic itself, and the process would abort.
    panic::set_hook(Box::new(move |info| {
        if is_heard() {
            print(info);
        }
    }));
    // The process ends in this one place, even after a panic.
    let status = panic::catch_unwind(|| match Arguments::try_parse_from(bare::with_values(std::env::args_os())) {
        Ok(arguments) => dispatch(arguments).unwrap_or_else(|report| failed(&report)),
        Err(error) => refused(&error),
    });
    process::exit(status.unwrap_or(Status::PANICKED).code())
}

fn dispatch(arguments: Arguments) -> Result<Status> {
    match arguments.command {
        None => lab::run(arguments.lab),
        Some(Subcommands::Run(args)) => run::run(&args),
        Some(Subcommands::Fit(args)) => fit::run(&args),
        Some(Subcommands::Estimate(args)) => estimate::run(&args),
        Some(Subcommands::Open(args)) => open::run(&args),
        Some(Subcommands::Watch(args)) => watch::run(&args),
        Some(Subcommands::Compare(args)) => compare::run(&args),
        Some(Subcommands::Replay(args)) => replay::run(args),
        Some(Subcommands::Export(args)) => export::run(&args),
        Some(Subcommands::Whatif(args)) => whatif::run(&args),
        Some(Subcommands::Tune(args)) => tune::run(&args),
        Some(Subcommands::Diff(args)) => diff::run(&args),
        Some(Subcommands::Report(args)) => report::run(&args),
        Some(Subcommands::Check(args)) => check::run(&args),
        Some(Subcommands::Summary(args)) => summary::run(&args),
        Some(Subcommands::Demo(args)) => demo::run(&args),
        Some(Subcommands::Guide(args)) => guide::run(&args),
        Some(Subcommands::Lesson(args)) => lesson::run(&args),
        Some(Subcommands::Class(args)) => class::run(&args),
        Some(Subcommands::Folklore(args)) => folklore::run(&args),
        Some(Subcommands::List(args)) => list::run(&args),
        Some(Subcommands::Doctor(args)) => doctor::run(&args),
        Some(Subcommands::Config(args)) => config::run(&args),
        Some(Subcommands::Completions(args)) => generate::completions(&args, Arguments::command()),
        Some(Subcommands::Man) => generate::man(Arguments::command()),
    }
}

/// Prints clap's message, which may be the help; in colours, unless it could repeat text that must not reach a terminal.
fn refused(error: &clap::Error) -> Status {
    if std::env::args_os().all(|argument| argument.to_string_lossy().chars().all(is_safe)) {
        // A message that can't be printed must not cause another failure.
        let _ = error.print();
    } else {
        complain(error.render().to_string().trim_end());
    }
    if error.use_stderr() { Status::USAGE } else { Status::DONE }
}

/// Prints an error, cause by cause.
fn tell(report: &Report) {
    complain(format_args!("error: {report}"));
    for cause in report.chain().skip(1) {
        complain(format_args!("  because: {cause}"));
    }
}

/// Prints an error and chooses the exit code.
fn failed(report: &Report) -> Status {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if report.chain().any(closed) {
        // The output's reader has closed the pipe, as `head` does.
        return Status::DONE;
    }
    tell(report);
    if report.downcast_ref::<Usage>().is_some() { Status::USAGE } else { Status::FAILED }
}
