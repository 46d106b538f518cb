//! Holds our allocator against programs that PyTorch's own has run: `cargo run --example judge -- PROGRAM…`.
//!
//! What a program is stands in `tests/judge/mod.rs`; a file may hold several, divided by lines of `====`. Prints the first
//! difference of each that has one. Exit code 0 if none has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a program that can't be read can't be judged")]

#[path = "../tests/judge/mod.rs"]
mod judge;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut programs, mut facts, mut different) = (0, 0, 0);
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for (number, program) in text.split("====\n").filter(|program| !program.is_empty()).enumerate() {
            programs += 1;
            match judge::judge(program) {
                Ok(agreed) => facts += agreed,
                Err(difference) => {
                    different += 1;
                    println!("{path}, program {number}: {difference}");
                }
            }
        }
    }
    println!("{programs} programs, {different} of them different; {facts} facts agree");
    ExitCode::from(u8::from(different > 0))
}
