//! The `vramlab` binary: see [`vramlab::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    vramlab::cli::main()
}
