//! The guide: pages of Markdown under `lab/guide`, and their layout in a terminal.

mod markdown;
mod pages;

pub use markdown::{Line, Role, lines, plain};
pub use pages::{CONTENTS, Page, page, pages};
