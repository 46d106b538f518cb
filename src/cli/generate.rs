//! `vramlab completions` and `vramlab man`: the command line's description for shells and for `man`.

use std::io::{self, Write};

use clap::{Args, Command, ValueEnum};
use clap_complete::shells::{Bash, Fish, Zsh};
use color_eyre::eyre::Result;

use super::Status;

/// The shells that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// eval "$(vramlab completions bash)" in ~/.bashrc
    Bash,
    /// vramlab completions zsh > a folder of $fpath/_vramlab
    Zsh,
    /// vramlab completions fish > ~/.config/fish/completions/vramlab.fish
    Fish,
}

/// Arguments of `vramlab completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script of a shell. The script is generated before it is written, so that a reader who closes the pipe
/// early causes no error.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<Status> {
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => clap_complete::generate(Bash, &mut command, "vramlab", &mut script),
        Shell::Zsh => clap_complete::generate(Zsh, &mut command, "vramlab", &mut script),
        Shell::Fish => clap_complete::generate(Fish, &mut command, "vramlab", &mut script),
    }
    io::stdout().lock().write_all(&script)?;
    Ok(Status::DONE)
}

/// Prints the manual page, followed by the subcommands' pages.
pub(super) fn man(mut command: Command) -> Result<Status> {
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        let name = format!("vramlab-{}", subcommand.get_name());
        clap_mangen::Man::new(subcommand.clone()).title(name).render(&mut page)?;
    }
    io::stdout().lock().write_all(&page)?;
    Ok(Status::DONE)
}
