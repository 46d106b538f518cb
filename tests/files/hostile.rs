//! The bodies of the fuzz targets without a fuzzer: stored inputs (seeds, and what fuzzing found), and mutations of
//! them that are the same in each run.

#[path = "../hostile/bodies/pickle.rs"]
mod pickle;
#[path = "../hostile/bodies/recording.rs"]
mod recording;
#[path = "../hostile/bodies/settings.rs"]
mod settings;
#[path = "../hostile/bodies/snapshot.rs"]
mod snapshot;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The number of mutations of all inputs of a target together.
const MUTATIONS: usize = 3000;

/// Pseudo-random numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % n.max(1)
    }
}

/// The stored inputs of a target, by name.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// `input` with a few changes; some parts are taken from `other`.
fn mutated(input: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        let len = chance.below(9).min(bytes.len() - at);
        match chance.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 if at < bytes.len() => bytes[at] = u8::try_from(chance.below(256)).unwrap(),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let again = bytes[at..at + len].repeat(1 + chance.below(40));
                bytes.splice(at..at, again);
            }
            5 => {
                let from = chance.below(other.len());
                let piece = other[from..].iter().copied().take(1 + chance.below(60));
                bytes.splice(at..at + len, piece);
            }
            _ => bytes.insert(at, u8::try_from(chance.below(256)).unwrap()),
        }
    }
    bytes
}

fn walk(target: &str, body: fn(&[u8])) {
    let inputs = inputs(target);
    assert!(inputs.len() >= 3, "{target} has no seeds");
    let tried = |bytes: &[u8]| {
        let result = catch_unwind(AssertUnwindSafe(|| body(bytes)));
        assert!(result.is_ok(), "{target} panics at {:?}", bytes.escape_ascii().to_string());
    };
    inputs.iter().for_each(|input| tried(input));
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for _ in 0..MUTATIONS {
        let (input, other) = (&inputs[chance.below(inputs.len())], &inputs[chance.below(inputs.len())]);
        tried(&mutated(input, other, &mut chance));
    }
}

#[test]
fn any_bytes_as_a_snapshot() {
    walk("pickle", pickle::run);
}

#[test]
fn any_bytes_as_a_recording() {
    walk("recording", recording::run);
}

#[test]
fn any_text_as_settings() {
    walk("settings", settings::run);
}

#[test]
fn any_history() {
    walk("snapshot", snapshot::run);
}
