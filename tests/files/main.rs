#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't be set up fails"
)]

#[path = "../common/big.rs"]
mod big;
#[path = "../judge/mod.rs"]
mod judge;
#[path = "../common/lab_states.rs"]
mod lab_states;
#[path = "../common/patience.rs"]
mod patience;
#[path = "../common/synthetic.rs"]
mod synthetic;
#[path = "../common/thoroughness.rs"]
mod thoroughness;
#[path = "../common/training.rs"]
mod training;

mod budgets;
mod export;
mod findings;
mod guesses;
mod hostile;
mod inputs;
mod large_file;
mod ranks;
mod reading;
mod recording;
mod replay;
mod strangers;
mod versions;
mod whatif;
mod windows;
