//! Compares our allocator with PyTorch's own.
//!
//! ```text
//! cargo run --example judge -- PROGRAM…                        programs that PyTorch's has run
//! cargo run --example judge -- --random RUNNER FIRST COUNT     random ones, run by it now
//! ```
//!
//! `tests/judge/mod.rs` describes programs; a file may hold several, divided by lines of `====`. `RUNNER` runs
//! PyTorch's allocator; see `runner.rs`. Prints the first difference of each program that has one, and keeps random
//! ones in the folder `different`. Exit code 0 if there is no difference.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a program that can't be read can't be judged")]

#[path = "../../tests/judge/mod.rs"]
mod judge;
mod random;
mod runner;

use std::path::Path;
use std::process::ExitCode;

use random::{Draw, Program};
use runner::Runner;

/// Counts of what was judged so far.
#[derive(Default)]
struct Tally {
    programs: u64,
    refused: u64,
    different: u64,
    facts: usize,
}

impl Tally {
    /// Judges one program. True if it differs.
    fn judge(&mut self, name: &str, program: &str) -> bool {
        self.programs += 1;
        match judge::judge(program) {
            Ok(agreed) => self.facts += agreed,
            Err(difference) => {
                self.different += 1;
                println!("{name}: {difference}");
                return true;
            }
        }
        false
    }

    fn tell(&self) {
        let Self { programs, refused, different, facts } = self;
        println!(
            "{programs} programs, {different} of them different; {facts} facts agree; {refused} had settings that PyTorch refuses"
        );
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tally = match words[..] {
        ["--random", runner, first, count] => random_ones(runner, first, count),
        _ => recorded(&arguments),
    };
    match tally {
        Ok(tally) => {
            tally.tell();
            ExitCode::from(u8::from(tally.different > 0))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn recorded(paths: &[String]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        for (number, program) in text.split("====\n").filter(|program| !program.is_empty()).enumerate() {
            tally.judge(&format!("{path}, program {number}"), program);
        }
    }
    Ok(tally)
}

fn random_ones(runner: &str, first: &str, count: &str) -> Result<Tally, String> {
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word} is not a number: RUNNER FIRST COUNT"));
    let (first, count) = (number(first)?, number(count)?);
    let runner = Runner::at(Path::new(runner))?;
    let mut tally = Tally::default();
    for seed in first..first + count {
        let program = Program::draw(&mut Draw::new(seed), runner.minor());
        let Some(text) = runner.run(&program).map_err(|error| format!("seed {seed}: {error}"))? else {
            tally.refused += 1;
            continue;
        };
        if tally.judge(&format!("seed {seed}"), &text) {
            let kept = Path::new("different").join(format!("{}-{seed}", runner.torch()));
            std::fs::create_dir_all("different")
                .and_then(|()| std::fs::write(kept, text))
                .map_err(|e| e.to_string())?;
        }
        if (seed - first) % 1000 == 999 {
            tally.tell();
        }
    }
    Ok(tally)
}
