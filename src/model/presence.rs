//! Whether a rank can be reached.

use serde::{Deserialize, Serialize};

/// Whether a rank can be reached. A rank in another process may fall silent, and any rank may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It answers.
    #[default]
    There,
    /// Its process has sent nothing for this many seconds.
    Silent(u32),
    /// Its process, or its device, is gone.
    Gone,
}
