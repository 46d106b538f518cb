//! The state of the screen besides its source, and how keys and news change it: a pure function of messages.

mod acting;
mod awaiting;
mod loud;
mod message;
mod notices;
mod picking;
mod pointer;
mod requests;
mod scroll;
mod state;
mod telling;
#[cfg(test)]
mod tests;

pub use message::{Effect, Message};
pub use state::App;
