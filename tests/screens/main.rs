#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't be set up fails"
)]

#[path = "../common/lab_states.rs"]
mod lab_states;
#[path = "../common/made.rs"]
mod made;
#[path = "../common/patience.rs"]
mod patience;
#[path = "../common/synthetic.rs"]
mod synthetic;
#[path = "../common/thoroughness.rs"]
mod thoroughness;

mod bytes;
mod circles;
mod drawn;
mod explore;
mod guide;
mod keys;
mod lesson_screen;
mod lessons;
mod pictures;
mod rooms;
mod source;
