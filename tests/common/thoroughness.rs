//! How far tests walk what has only a size: random cases, combinations of switches, families of models × what they are built with.
#![allow(clippy::panic, reason = "what nobody can mean fails a test")]

use std::env;
use std::io::{self, Write};
use std::sync::Once;

/// What plain `cargo test` leaves to `VRAMLAB_TEST=all cargo test`, which `.ci/run` calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// Each value at least once.
    Part,
    /// Everything.
    All,
}

impl Thoroughness {
    /// What `VRAMLAB_TEST` asks for. That a part is walked is told beside the tests' names, once.
    pub fn asked() -> Self {
        static TOLD: Once = Once::new();
        match env::var("VRAMLAB_TEST").as_deref() {
            Ok("all") => return Self::All,
            Ok("" | "part") | Err(env::VarError::NotPresent) => {}
            other => panic!("VRAMLAB_TEST is `all` or `part`, not {other:?}"),
        }
        TOLD.call_once(|| {
            // Past what keeps the output of tests that pass.
            let _ = writeln!(
                io::stderr(),
                "a part of all cases is walked here; VRAMLAB_TEST=all cargo test walks all of them"
            );
        });
        Self::Part
    }

    /// The size of a walk: `part` or `all` of it.
    pub fn of<N>(self, part: N, all: N) -> N {
        match self {
            Self::Part => part,
            Self::All => all,
        }
    }
}
