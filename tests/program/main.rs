#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't be set up fails"
)]

#[path = "../common/big.rs"]
mod big;
#[path = "../common/made.rs"]
mod made;
#[path = "../common/patience.rs"]
mod patience;
#[path = "../common/pytorch.rs"]
mod pytorch;

mod cli;
mod demo;
mod diagnose;
mod ends;
mod float8;
mod launched;
mod launched_lab;
mod lengths;
mod measured;
mod pty;
mod ranks_standin;
mod read_back;
mod report;
mod standin;
mod terminal;
mod watch;
mod wheel;
