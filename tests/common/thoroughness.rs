//! How much of a large set tests cover: random cases, combinations of switches, families of models × how they are
//! built.
#![allow(clippy::panic, reason = "what nobody can mean fails a test")]

use std::env;
use std::io::{self, Write};
use std::sync::Once;

/// What plain `cargo test` leaves out, and `VRAMLAB_TEST=all cargo test` runs; `.ci/run` calls the latter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// Each value at least once.
    Part,
    /// Everything.
    All,
}

impl Thoroughness {
    /// The choice in `VRAMLAB_TEST`. If only a part is covered, a message says so once, beside the tests' names.
    pub fn asked() -> Self {
        static TOLD: Once = Once::new();
        match env::var("VRAMLAB_TEST").as_deref() {
            Ok("all") => return Self::All,
            Ok("" | "part") | Err(env::VarError::NotPresent) => {}
            other => panic!("VRAMLAB_TEST is `all` or `part`, not {other:?}"),
        }
        TOLD.call_once(|| {
            // Written past the capture of output, which hides what passing tests print.
            let _ = writeln!(
                io::stderr(),
                "a part of all cases is walked here; VRAMLAB_TEST=all cargo test walks all of them"
            );
        });
        Self::Part
    }

    /// The size of a set: `part` or `all` of it.
    pub fn of<N>(self, part: N, all: N) -> N {
        match self {
            Self::Part => part,
            Self::All => all,
        }
    }
}
