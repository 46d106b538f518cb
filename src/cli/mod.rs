//! The command line: arguments, one file per subcommand, exit codes.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. A failure is told in one sentence, and what to do in another.

mod doctor;
mod lab;
mod list;
pub mod replay;
mod run;
mod selftest;
mod spec;
mod switches;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use color_eyre::eyre::Report;

pub use usage::Usage;

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
    /// Train without a screen and print figures.
    Run(Box<run::RunArgs>),
    /// Replay a PyTorch memory snapshot through the allocator and compare every decision.
    Replay(replay::ReplayArgs),
    /// List workloads, switches, devices and themes.
    List(list::ListArgs),
    /// Tell what was found on this machine.
    Doctor(doctor::DoctorArgs),
}

/// Runs the program and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let hooks = color_eyre::config::HookBuilder::default()
        .display_env_section(false)
        .panic_section("This is a bug in vramlab. Training stopped; your terminal should be as it was.");
    if let Err(error) = hooks.install() {
        eprintln!("warning: reports will be plain: {error}");
    }
    let arguments = Arguments::parse();
    let result = match arguments.command {
        None => lab::run(arguments.lab),
        Some(Subcommands::Run(args)) => run::run(&args),
        Some(Subcommands::Replay(args)) => replay::run(args),
        Some(Subcommands::List(args)) => list::run(&args),
        Some(Subcommands::Doctor(args)) => doctor::run(&args),
    };
    result.unwrap_or_else(|report| failed(&report))
}

/// Prints what went wrong, cause by cause, and chooses the exit code.
fn failed(report: &Report) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if report.chain().any(closed) {
        // Whoever read the output has seen enough, as `head` has.
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {report}");
    for cause in report.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
    if report.downcast_ref::<Usage>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}
